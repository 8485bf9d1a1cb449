//! `handle_errors`: pages of errors.

use super::site_walk::SiteWalk;
use crate::file_draft::Placed;
use crate::source_directive::Directive;
use crate::toml_text;

/// The statuses of a block without any: those that servers have pages for.
const USUAL: [u16; 4] = [403, 404, 500, 503];

impl SiteWalk<'_, '_, '_> {
    /// `handle_errors`.
    pub(super) fn handle_errors(&mut self, line: &Directive) {
        let own: Vec<u16> = line.arguments.iter().filter_map(|one| one.parse().ok()).collect();
        let is_fixed = line.arguments.len() == own.len();
        let statuses = if line.arguments.is_empty() { USUAL.to_vec() } else { own };
        let mut is_whole = is_fixed;
        for one in &line.block {
            match one.name.as_str() {
                "rewrite" if is_fixed => is_whole &= self.error_page(one, line, &statuses),
                "file_server" | "php_fastcgi" | "php_server" | "root" => {}
                name if name.starts_with('@') => {}
                _ => is_whole = false,
            }
        }
        match is_whole {
            true => {
                self.kept(line);
                self.shared.report.cover(line);
            }
            false => {
                let why = "write `error_pages` for each status, and `intercept_errors` for errors \
                           of scripts";
                self.shared.report.left_out(&line.place, &line.shown(), why);
            }
        }
    }

    fn error_page(&mut self, rewrite: &Directive, line: &Directive, statuses: &[u16]) -> bool {
        let first = rewrite.first();
        let (of_matcher, to) = match rewrite.arguments.as_slice() {
            [to] => (None, to),
            [_, to] if first == "*" => (None, to),
            [_, to] => match statuses_of(line, first) {
                Some(found) => (Some(found), to),
                None => return false,
            },
            _ => return false,
        };
        for status in of_matcher.as_deref().unwrap_or(statuses) {
            let page = to.replace("{http.error.status_code}", "{err.status_code}");
            let page = page.replace("{err.status_code}", &status.to_string());
            if page.contains(['{', '?']) || !page.starts_with('/') {
                return false;
            }
            // One that does not exist is none: the server has its own text then.
            let value = Placed::new(toml_text::string(&page), &rewrite.place);
            self.site.settings.entry("error_pages", &status.to_string(), value);
        }
        true
    }
}

/// The statuses of a matcher such as `expression {err.status_code} in [404, 410]`.
fn statuses_of(line: &Directive, name: &str) -> Option<Vec<u16>> {
    let matcher = line.block.iter().find(|one| one.name == name)?;
    let words = matcher.arguments.join(" ");
    let of_block = matcher.block.first().map(|one| one.shown());
    let text = of_block.unwrap_or(words);
    let text = text.strip_prefix("expression").unwrap_or(&text).trim();
    let text = text.trim_matches('`').replace("{http.error.status_code}", "{err.status_code}");
    let rest = text.strip_prefix("{err.status_code}")?.trim();
    let list = rest.strip_prefix("==").or_else(|| rest.strip_prefix("in"))?;
    let list = list.trim().trim_start_matches('[').trim_end_matches(']');
    list.split(',').map(|one| one.trim().parse().ok()).collect()
}
