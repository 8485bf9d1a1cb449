//! Whether applications display errors, from the settings of frameworks and WordPress.

use super::world::World;
use crate::facts::{Application, Facts};

/// Whether the text of a settings file turns the display of errors on.
type ShowsErrors = fn(&str) -> bool;

/// Settings files in a document root or, better, beside it.
const FILES: [(&str, ShowsErrors); 2] = [(".env", env), ("wp-config.php", wp_config)];

/// Most document roots that are searched.
const MAX_ROOTS: usize = 200;

/// The applications of all document roots.
pub(super) fn applications(world: &World, facts: &Facts) -> Vec<Application> {
    let roots = facts.pools().flat_map(|(_, pool)| &pool.roots);
    let mut roots: Vec<&str> = roots.map(|root| root.trim_end_matches('/')).collect();
    roots.sort_unstable();
    roots.dedup();
    let mut found: Vec<Application> = Vec::new();
    for root in roots.into_iter().take(MAX_ROOTS) {
        let beside = root.rsplit_once('/').map(|(parent, _)| parent);
        for folder in [Some(root), beside].into_iter().flatten() {
            found.extend(FILES.iter().filter_map(|(name, says)| {
                let file = format!("{folder}/{name}");
                let text = world.read_or_none(&file).transpose()?;
                let shows_errors = text.map(|text| says(&text));
                Some(Application { file, shows_errors })
            }));
        }
    }
    found.sort_by(|a, b| a.file.cmp(&b.file));
    found.dedup_by(|a, b| a.file == b.file);
    found
}

/// Laravel's `APP_DEBUG=true`, and Symfony's `APP_DEBUG=1` and `APP_ENV=dev`.
fn env(text: &str) -> bool {
    let mut lines = text.lines().filter_map(|line| line.trim().split_once('='));
    lines.any(|(name, value)| {
        let value = value.trim().trim_matches(['"', '\'']).to_ascii_lowercase();
        match name.trim_start_matches("export ").trim() {
            "APP_DEBUG" => matches!(value.as_str(), "true" | "1"),
            "APP_ENV" => value == "dev",
            _ => false,
        }
    })
}

/// WordPress' `define( 'WP_DEBUG', true )`.
fn wp_config(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| {
        let plain: String =
            line.chars().filter(|c| !c.is_whitespace() && *c != '"' && *c != '\'').collect();
        plain.to_ascii_lowercase().starts_with("define(wp_debug,true)")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_ways_to_say_it_are_known() {
        assert!(env("APP_NAME=x\nAPP_DEBUG=true\n") && env("APP_ENV = \"dev\"\n"));
        assert!(!env("#APP_DEBUG=true\nAPP_DEBUG=false\nAPP_ENV=prod\n"));
        assert!(wp_config("<?php\ndefine( 'WP_DEBUG', true );\n"));
        assert!(!wp_config("<?php\n// define('WP_DEBUG', true);\ndefine( 'WP_DEBUG', false );\n"));
    }
}
