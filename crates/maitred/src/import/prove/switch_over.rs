//! The commands of the switch-over, and back.

use maitred_config::{Config, Destination};

use super::Claim;
use crate::command::DEFAULT_CONFIG;

/// What the commands depend on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// The name of the old server for `maitred import`.
    pub server: String,
    /// The service of the old server.
    pub service: String,
    /// The configuration file, if it is written.
    pub file: Option<String>,
    /// The services of php-fpm.
    pub php_fpm: Vec<String>,
    /// Whether php-fpm still has pools to serve.
    pub is_php_fpm_used: bool,
    /// The addresses of the new server.
    pub listen: Vec<String>,
}

impl Facts {
    /// Those of an imported configuration.
    pub fn of(claim: &Claim<'_>) -> Facts {
        let Config { listen, tls, sites, .. } = claim.config;
        let tls = tls.iter().flat_map(|tls| &tls.listen);
        let upstream =
            sites.iter().any(|site| matches!(site.destination, Destination::Upstream(_)));
        let unused = claim.report.findings().iter().any(|finding| finding.what.starts_with('['));
        Facts {
            server: claim.old.name.to_ascii_lowercase(),
            service: claim.old.service.to_owned(),
            file: claim.is_written.then(|| claim.name.to_owned()),
            php_fpm: services(claim.old.php_fpm),
            is_php_fpm_used: upstream || unused,
            listen: listen.iter().chain(tls).map(ToString::to_string).collect(),
        }
    }
}

/// The names of php-fpm's services: Debian has one for each version.
fn services(files: &[String]) -> Vec<String> {
    let mut found: Vec<String> = files
        .iter()
        .map(|file| match file.strip_prefix("/etc/php/").and_then(|rest| rest.split_once('/')) {
            Some((version, _)) => format!("php{version}-fpm"),
            None => "php-fpm".to_owned(),
        })
        .collect();
    found.dedup();
    found
}

/// The commands.
pub fn commands(facts: &Facts) -> String {
    let Facts { file, listen, server, .. } = facts;
    let mut old = vec![facts.service.clone()];
    if !facts.is_php_fpm_used {
        old.extend(facts.php_fpm.clone());
    }
    let back: Vec<&str> = old.iter().rev().map(String::as_str).collect();
    let (old, back) = (old.join(" "), back.join(" "));
    let kept = match facts.is_php_fpm_used {
        true => "php-fpm runs on: a site, or something else, uses one of its pools.\n",
        false => "",
    };
    let place = match file.as_deref() {
        Some(DEFAULT_CONFIG) => "maitred check".to_owned(),
        Some(file) => format!("cp {file} {DEFAULT_CONFIG} && maitred check"),
        None => format!(
            "maitred import {server} --output maitred.toml\n  \
             cp maitred.toml {DEFAULT_CONFIG} && maitred check"
        ),
    };
    format!(
        "To switch over to maitred on {}:\n  \
         {place}\n  \
         systemctl disable --now {old} && systemctl enable --now maitred\n\
         {kept}And back:\n  \
         systemctl disable --now maitred && systemctl enable --now {back}\n",
        listen.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_commands_stop_what_is_not_used_any_more_and_lead_back() {
        let mut facts = Facts {
            server: "nginx".to_owned(),
            service: "nginx".to_owned(),
            file: Some("new.toml".to_owned()),
            php_fpm: services(&["/etc/php/8.2/fpm/php-fpm.conf".to_owned()]),
            is_php_fpm_used: false,
            listen: vec!["0.0.0.0:80".to_owned()],
        };
        let text = commands(&facts);
        assert!(text.contains("cp new.toml /etc/maitred/maitred.toml && "), "{text}");
        assert!(text.contains("disable --now nginx php8.2-fpm && "), "{text}");
        assert!(text.contains("enable --now php8.2-fpm nginx\n"), "{text}");
        facts.is_php_fpm_used = true;
        let text = commands(&facts);
        assert!(text.contains("disable --now nginx && ") && text.contains("runs on"), "{text}");
    }
}
