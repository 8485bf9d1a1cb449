//! `if`: what has a counterpart, and what decides who may see what.

use super::client_tests::{is_about_client, is_about_scheme};
use super::location::Location;
use super::own_paths::leads_elsewhere;
use super::redirect_target::{TargetKind, target};
use super::routing::REDIRECTS;
use super::server::ServerImport;
use crate::file_draft::Placed;
use crate::regexes;
use crate::source_directive::Directive;
use crate::toml_text;

/// What decides in an `if` who may see what, or leads to something else than the document root.
const DECIDING_IN_IF: [&str; 8] =
    ["return", "deny", "allow", "auth_basic", "fastcgi_pass", "proxy_pass", "root", "alias"];

/// The file of the script that the path names.
const SCRIPT_FILES: [&str; 6] = [
    "$document_root$fastcgi_script_name",
    "$document_root/$fastcgi_script_name",
    "$document_root$uri",
    "$realpath_root$fastcgi_script_name",
    "$realpath_root$uri",
    "$request_filename",
];

impl<'a> ServerImport<'_, 'a> {
    /// `if` in the forms that have a counterpart.
    pub(super) fn condition(&mut self, condition: &Directive, location: Option<&Location<'a>>) {
        if self.report.is_covered(&condition.place, "if") {
            return;
        }
        let test = condition.arguments.join(" ");
        let test = test.trim_start_matches('(').trim_end_matches(')').trim();
        let back = condition.block.iter().find(|one| one.name == "return");
        let only_sets = condition.block.iter().all(|one| one.name == "set");
        if only_sets {
            self.report.left_out(&condition.place, &condition.shown(), "variables of nginx");
            condition.block.iter().for_each(|one| self.report.cover(one));
            return;
        }
        if location.is_none() && self.mapped(condition, test) {
            return;
        }
        let runs_php = |one: &Location<'a>| one.scope.own("fastcgi_pass").next().is_some();
        if location.is_some_and(runs_php) && refuses_missing_script(condition, test) {
            self.keep(condition);
            return condition.block.iter().for_each(|one| self.report.cover(one));
        }
        let parts: Vec<&str> = test.splitn(3, ' ').collect();
        let by_path = match parts.as_slice() {
            ["$uri" | "$request_uri" | "$document_uri", "~", expression] => {
                Some(expression.to_string())
            }
            ["$uri" | "$request_uri" | "$document_uri", "~*", expression] => {
                Some(format!("(?i){expression}"))
            }
            ["$uri" | "$request_uri", "=", path] => Some(format!("^{}$", regex::escape(path))),
            _ => None,
        };
        if let (Some(expression), Some(back), true, None) =
            (by_path, back, condition.block.len() == 1, location)
        {
            let pattern = format!("~{}", expression.trim_matches('"'));
            // The raw address has other spellings of a path, and the query.
            let is_raw = parts[0] == "$request_uri" && !REDIRECTS.contains(&back.first());
            let is_right = !is_raw && regexes::check_regex(&pattern).is_ok();
            if is_right && self.return_for(back, &pattern) {
                self.keep(condition);
                return;
            }
        }
        let refuses = condition.block.iter().any(|one| {
            DECIDING_IN_IF.contains(&one.name.as_str()) && !REDIRECTS.contains(&one.first())
        });
        let leads = |one: &Directive| ["return", "rewrite"].contains(&one.name.as_str());
        let is_about_file = test.trim_start_matches('!').starts_with('-');
        let is_secure = |one: &Directive| leads(one) && !one.argument(1).starts_with("http://");
        let is_gate = condition.block.iter().any(leads) && is_about_client(test)
            || self.has_plain_http
                && is_about_scheme(test)
                && condition.block.iter().any(is_secure)
            || condition.block.iter().any(leads_elsewhere) && !is_about_file;
        let what = condition.shown();
        condition.block.iter().for_each(|one| self.report.cover(one));
        match refuses || is_gate {
            true => self.report.access_left_out(
                &condition.place,
                &what,
                "`if` refuses requests by this test, or leads them elsewhere; there is no \
                 counterpart but `deny`, or `.htaccess` rules with `htaccess = true`",
            ),
            false => self.report.left_out(
                &condition.place,
                &what,
                "`if` has no counterpart; write `redirects` or `rewrite` of the site",
            ),
        }
    }

    /// `if ($new) { return 301 $new; }`, where a `map` of paths sets `$new`. Tells whether it is.
    fn mapped(&mut self, condition: &Directive, variable: &str) -> bool {
        let Some(map) = self.redirect_maps.get(variable) else { return false };
        let status = match condition.block.as_slice() {
            [back] if back.name == "return" && back.argument(1) == variable => back.first(),
            [one] if one.name == "rewrite" && one.argument(1).trim_end_matches('?') == variable => {
                match one.argument(2) {
                    "permanent" => "301",
                    _ => "302",
                }
            }
            _ => return false,
        };
        if !REDIRECTS.contains(&status) {
            return false;
        }
        for (path, to, place) in map {
            let pattern = match path.strip_prefix("~*") {
                Some(expression) => format!("~(?i){expression}"),
                None => path.clone(),
            };
            let to = target(to, TargetKind::Return, self.name(), pattern.starts_with('~'));
            let made = regexes::check_regex(&pattern).and(to);
            match made {
                Ok(to) => {
                    let fields = [
                        ("from", toml_text::string(&regexes::whole_match(&pattern, &to))),
                        ("to", toml_text::string(&to)),
                        ("status", status.to_owned()),
                    ];
                    let item = Placed::new(toml_text::table(fields), place);
                    self.site.settings.push("redirects", item);
                }
                Err(why) => self.report.left_out(place, path, &why),
            }
        }
        self.keep(condition);
        condition.block.iter().for_each(|one| self.report.cover(one));
        true
    }

    /// A `return` for the paths of a pattern. Tells whether it could be written.
    fn return_for(&mut self, back: &Directive, pattern: &str) -> bool {
        let (status, url) = (back.argument(0), back.argument(1));
        if REDIRECTS.contains(&status) {
            let Ok(to) = target(url, TargetKind::Return, self.name(), true) else { return false };
            self.redirect(back, pattern, &to, status);
            return true;
        }
        let path = toml_text::string(pattern);
        let toml = match status {
            "404" | "410" => toml_text::table([("path", path), ("status", status.to_owned())]),
            _ => path,
        };
        self.push("deny", back, toml);
        true
    }
}

/// `if (!-f …) { return 404; }` for the script of the path: one without a file never runs.
fn refuses_missing_script(condition: &Directive, test: &str) -> bool {
    let file = test.strip_prefix("!-f ").or(test.strip_prefix("!-e ")).map(str::trim);
    let is_back = |one: &Directive| one.name == "return" && one.arguments == ["404"];
    file.is_some_and(|file| SCRIPT_FILES.contains(&file))
        && matches!(condition.block.as_slice(), [back] if is_back(back))
}
