//! Paths without PHP: here, a site runs all scripts of its document root.

use super::path_areas::{BlockPaths, gap};
use super::served_areas::ServedArea;
use super::site_walk::SiteWalk;
use crate::toml_text;

impl SiteWalk<'_, '_, '_> {
    /// `allow_php`, where PHP is for some paths alone.
    pub(super) fn allow_php(&mut self, php: &[ServedArea]) {
        for one in php {
            match one.area.patterns() {
                Ok(patterns) => {
                    for pattern in patterns {
                        self.push("allow_php", &one.line, toml_text::string(&pattern));
                    }
                }
                Err(why) => {
                    let why = format!("{why}: write `allow_php`, or scripts run elsewhere, too");
                    self.shared.report.access_left_out(&one.line.place, &one.line.shown(), &why);
                }
            }
        }
    }

    /// Denies the scripts of paths that PHP is not for.
    pub(super) fn deny_unrun(&mut self, php: &[ServedArea]) {
        let areas = areas_of(php.iter().chain(&self.elsewhere));
        for one in php {
            for path in one.area.except.iter().filter(|path| path.may_be_scripts()) {
                let patterns = self.guards(&gap(path, &areas), &one.line);
                for pattern in patterns.unwrap_or_default() {
                    self.push("deny_php", &one.line, toml_text::string(&pattern));
                }
            }
        }
    }
}

fn areas_of<'s>(all: impl IntoIterator<Item = &'s ServedArea>) -> Vec<BlockPaths> {
    all.into_iter().map(|one| one.area.clone()).collect()
}
