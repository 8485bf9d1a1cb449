//! Steps of Unit that refuse or redirect requests.

use maitred_rules::Pattern;

use super::unit_routes::RouteWalk;
use super::uri_patterns::UriList;
use crate::file_draft::Placed;
use crate::report::SourceLine;
use crate::toml_text;

/// The statuses of redirects.
const REDIRECTS: [u64; 5] = [301, 302, 303, 307, 308];

/// What follows `~\\.php` in patterns for scripts alone.
const SCRIPT_ENDS: [&str; 7] = ["$", "/", "($|/)", "(/|$)", "(?:$|/)", "(?:/|$)", "(/.*)?$"];

/// Paths that tell whether a pattern is for all of `/.well-known/`.
const WELL_KNOWN: [&str; 2] = ["/.well-known/zz9", "/.well-known/acme-challenge/zz9"];

impl RouteWalk<'_> {
    /// A fixed response, or a redirect.
    pub(super) fn returned(
        &mut self,
        status: u64,
        location: Option<&str>,
        place: &SourceLine,
        paths: Option<&UriList>,
    ) {
        if let (true, Some(to)) = (REDIRECTS.contains(&status), location) {
            let to = to.replace("${host}", "$host").replace("${request_uri}", "$request_uri");
            let is_fixed = !to.replace("$host", "").replace("$request_uri", "").contains('$');
            if !is_fixed {
                let why = "its target is not fixed; write `redirects`";
                return self.report.left_out(place, "return", why);
            }
            let to = to.replace("$request_uri", "$0");
            for pattern in self.patterns(paths, place) {
                let from = match pattern.strip_prefix('~').filter(|_| to.contains("$0")) {
                    Some(expression) => format!("~^.*?(?:{expression}).*$"),
                    None => pattern,
                };
                let fields = [
                    ("from", toml_text::string(&from)),
                    ("to", toml_text::string(&to)),
                    ("status", status.to_string()),
                ];
                let item = Placed::new(toml_text::table(fields), place);
                self.site.settings.push("redirects", item);
            }
            return self.report.kept(place, "return");
        }
        let written = if [404, 410].contains(&status) { status } else { 403 };
        self.deny(written, place, paths);
        match status == written {
            true => self.report.kept(place, "return"),
            false => {
                let why = format!("it refuses with 403 in place of {status}");
                self.report.changed(place, "return", &why);
            }
        }
    }

    /// Denies the paths of a step that no earlier one has.
    pub(super) fn deny(&mut self, status: u64, place: &SourceLine, paths: Option<&UriList>) {
        let Some(list) = paths.filter(|list| !list.is_all()) else {
            // All that remains: without scripts and shares, that is what `allow_php` leaves.
            if self.runs_all && !self.shares {
                let why = "files of the document root are sent here: deny them, or move them out \
                           of it";
                return self.report.access_left_out(place, "return", why);
            }
            if self.shares {
                return;
            }
            let all = toml_text::string("/*");
            return self.site.settings.push("deny", Placed::new(all, place));
        };
        for pattern in &self.patterns(paths, place) {
            let after_script = pattern.strip_prefix("~\\.php");
            if after_script.is_some_and(|end| SCRIPT_ENDS.contains(&end)) {
                // `allow_php` refuses the scripts that no step runs.
                self.refuse_scripts(place, &list.except);
                continue;
            }
            // Files whose names go on are no scripts.
            let pattern = if after_script == Some("") { "~\\.php[^/]" } else { pattern };
            let except =
                list.except.iter().chain(self.earlier.iter().flat_map(|one| &one.patterns));
            let literal = pattern.trim_end_matches('*');
            let is_rest = list.has_all();
            let except = except.filter(|other| !is_rest || !list.except.contains(other));
            let inside: Vec<&String> = except
                .filter(|other| other.starts_with(literal) || other.starts_with('~'))
                .collect();
            // Hidden files are never served, but for `/.well-known/`.
            let is_hidden = pattern.contains("/\\.") && opens_well_known(list);
            if !inside.is_empty() && !is_hidden {
                let why = format!(
                    "`{pattern}` applies as well where an earlier step or an exception has {}",
                    inside.iter().map(|one| one.as_str()).collect::<Vec<_>>().join(", ")
                );
                self.report.changed(place, "return", &why);
            }
            if pattern == "~/\\." && is_hidden {
                continue;
            }
            let path = toml_text::string(pattern);
            let toml = match status {
                403 => path,
                status => toml_text::table([("path", path), ("status", status.to_string())]),
            };
            self.site.settings.push("deny", Placed::new(toml, place));
        }
    }

    /// From here on, no scripts run but those of earlier steps and the exceptions.
    pub(super) fn refuse_scripts(&mut self, place: &SourceLine, except: &[String]) {
        let direct = self.direct.iter().map(|(pattern, _)| pattern);
        let runs: Vec<String> = except.iter().chain(direct).cloned().collect();
        match self.refuses_scripts {
            Some(_) => self.still_run.retain(|one| runs.contains(one)),
            None => {
                self.refuses_scripts = Some(place.clone());
                self.still_run = runs;
            }
        }
    }

    pub(super) fn nothing_here(&mut self, place: &SourceLine, paths: Option<&UriList>) {
        for pattern in self.patterns(paths, place) {
            let fields = [("path", toml_text::string(&pattern)), ("status", "404".to_owned())];
            let why = "it leads elsewhere in Unit";
            let item = Placed::because(toml_text::table(fields), place, why);
            self.site.settings.push("deny", item);
        }
    }

    /// The patterns of a step: for all paths but some, one that matches the others.
    fn patterns(&mut self, paths: Option<&UriList>, place: &SourceLine) -> Vec<String> {
        let Some(list) = paths.filter(|list| !list.is_all()) else { return vec!["/*".to_owned()] };
        if !list.has_all() {
            return list.patterns.clone();
        }
        let others = list.complement();
        if others.is_none() {
            let why = format!(
                "it is for all paths but {}, which has no pattern: write `deny`, `redirects` or \
                 `[[sites.proxy]]` of the site",
                list.except.join(", ")
            );
            self.report.access_left_out(place, "match uri", &why);
        }
        others.into_iter().collect()
    }

    /// The patterns of a step's paths alone, for what is open to them.
    pub(super) fn exact_patterns(
        &mut self,
        paths: Option<&UriList>,
        place: &SourceLine,
    ) -> Vec<String> {
        let Some(list) = paths else { return vec!["/*".to_owned()] };
        list.exact().unwrap_or_else(|| {
            let why = format!(
                "no pattern has its paths without {}: write `[[sites.proxy]]` or `rewrite` of the \
                 site",
                list.except.join(", ")
            );
            self.report.access_left_out(place, "match uri", &why);
            Vec::new()
        })
    }
}

/// Whether a list excepts all of `/.well-known/`.
fn opens_well_known(list: &UriList) -> bool {
    list.except.iter().any(|one| {
        let parsed = Pattern::parse(one);
        parsed.is_ok_and(|one| WELL_KNOWN.iter().all(|path| one.matches(path.as_bytes())))
    })
}
