//! Rewrites of paths without a file. maitred's look at no file: the names that the document root
//! has at the time of the import are left out of them.

use super::location::{Location, Matcher};
use super::redirect_target::{TargetKind, target};
use super::server::{ANY_SCRIPT, ServerImport};
use crate::FileReader;
use crate::file_draft::Placed;
use crate::prefix_complement::other_name;
use crate::regexes::{check_regex, whole_match};
use crate::source_directive::Directive;
use crate::toml_text;

/// Most names that the report lists.
const MAX_LISTED: usize = 6;

/// A folder that some sites have below their name, as the multisite of WordPress.
const SITE_FOLDER: &str = "^(/[^/]+)?";

/// The names in a folder.
fn names_in(files: &dyn FileReader, folder: &str) -> Vec<String> {
    let found = files.entries(folder);
    let names = found.iter().filter_map(|path| Some(path.rsplit_once('/')?.1.to_owned()));
    names.filter(|name| name != "*" && name != ".*").collect()
}

impl<'a> ServerImport<'_, 'a> {
    /// Writes the rewrites of paths without a file. Tells whether that is possible.
    pub(super) fn rewrites_of_missing(
        &mut self,
        rewrites: &[&'a Directive],
        locations: &[Location<'a>],
    ) -> bool {
        let mut names = names_in(self.files, &self.root);
        if names.is_empty() {
            return false;
        }
        for path in locations.iter().filter_map(|one| one.matcher.literal()) {
            let first = path.text.trim_start_matches('/').split('/').next().unwrap_or_default();
            if !first.is_empty() && !names.iter().any(|known| known == first) {
                names.push(first.to_owned());
            }
        }
        let Some(other) = other_name(&names) else { return false };
        let made: Option<Vec<(String, String)>> =
            rewrites.iter().map(|one| self.of_missing(one, &names, &other)).collect();
        let Some(made) = made else { return false };
        if !rewrites.iter().any(|one| one.first().contains("php")) {
            self.without_scripts_of(locations);
        }
        let more = names.len().saturating_sub(MAX_LISTED);
        let shown: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
        let shown = match more {
            0 => shown.join(", "),
            more => format!("{} and {more} more", shown.join(", ")),
        };
        for (one, (from, to)) in rewrites.iter().zip(made) {
            let to_url = to.starts_with("http") || to.starts_with("$scheme");
            let is_redirect = to_url || ["permanent", "redirect"].contains(&one.argument(2));
            let status = if one.argument(2) == "permanent" { "301" } else { "302" };
            let last = match is_redirect {
                true => ("status", status.to_owned()),
                false => ("end", "true".to_owned()),
            };
            let from = toml_text::string(&whole_match(&from, &to));
            let fields = [("from", from), ("to", toml_text::string(&to)), last];
            let item = Placed::new(toml_text::table(fields), &one.place);
            let list = if is_redirect { "redirects" } else { "rewrite" };
            self.site.settings.push(list, item);
            let why = format!(
                "it applies unless a path begins with a name that the document root has now \
                 ({shown}): add further ones to its pattern"
            );
            self.report.changed(&one.place, &one.shown(), &why);
        }
        true
    }

    /// A script without a file is not one of these paths.
    fn without_scripts_of(&mut self, locations: &[Location<'a>]) {
        let Some(php) = locations.iter().find(|one| runs_scripts(one)) else { return };
        let fields = [
            ("from", toml_text::string("~^(/.*\\.php)$")),
            ("to", toml_text::string("$1")),
            ("end", "true".to_owned()),
        ];
        let (toml, place) = (toml_text::table(fields), &php.directive.place);
        let item = Placed::because(toml, place, "scripts are not rewritten");
        self.site.settings.push("rewrite", item);
    }

    /// The pattern and the target of one rewrite.
    fn of_missing(
        &self,
        rewrite: &Directive,
        names: &[String],
        other: &str,
    ) -> Option<(String, String)> {
        let (expression, to) = (rewrite.argument(0), rewrite.argument(1));
        let to = to.replace("$request_uri/", "$uri/");
        let to = target(&to, TargetKind::Rewrite, self.name(), true).ok()?;
        let folder = expression.strip_prefix("^/").and_then(|rest| rest.split_once('/'));
        let is_plain =
            |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        let pattern = if let Some(rest) = expression.strip_prefix(SITE_FOLDER) {
            format!("~^(/{other}){rest}")
        } else if let Some((name, _)) = folder.filter(|(name, _)| is_plain(name)) {
            match names.iter().any(|known| known == name) {
                true => return None,
                false => format!("~{expression}"),
            }
        } else if !expression.starts_with('^') && expression.ends_with('$') {
            format!("~^/{other}.*{expression}")
        } else {
            match expression {
                "^/(.*)" | "^/(.*)$" | "^/(.+)$" => format!("~^/({other}(?:/.*)?)$"),
                "^(.*)$" | "^(.*)" | "^(.+)$" | "^(/.*)$" => format!("~^(/{other}(?:/.*)?)$"),
                "^" | "." | ".*" | "^.*$" | "^/" => format!("~^/{other}(?:/|$)"),
                _ => return None,
            }
        };
        check_regex(&pattern).ok()?;
        maitred_rules::Pattern::parse(&pattern).ok()?;
        Some((pattern, to))
    }
}

fn runs_scripts(location: &Location<'_>) -> bool {
    let has_php = location.scope.own("fastcgi_pass").next().is_some();
    has_php
        && matches!(location.matcher, Matcher::Regex(_))
        && super::php_locations::matches_path(location, ANY_SCRIPT.as_bytes())
}
