//! Paths without a `file_server` or without PHP: here, a site sends all files of its document root
//! and runs all scripts in it.

use std::collections::BTreeSet;

use super::path_areas::{BlockPaths, CaddyPath, gap};
use super::served_areas::ServedArea;
use super::site_walk::SiteWalk;
use crate::file_draft::Placed;
use crate::source_directive::Directive;
use crate::toml_text;

/// Most comparisons of two paths for a site: some seconds.
const MAX_COMPARISONS: usize = 4_000_000;

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
        if php.is_empty() {
            return;
        }
        let all: Vec<ServedArea> = php.iter().chain(&self.elsewhere).cloned().collect();
        let areas = areas_of(&all);
        let closed = self.closed.clone();
        let Some(excepted) = excepted(&all, &areas) else {
            let why = "there are too many paths without PHP: write `deny_php` of the site";
            return self.too_many(&all, why);
        };
        let excepted = excepted.into_iter().filter(|(path, _)| path.may_be_scripts());
        for (path, line) in excepted.filter(|(path, _)| !is_closed(path, &closed)) {
            let patterns = self.guards(&gap(path, &areas), line);
            for pattern in patterns.unwrap_or_default() {
                self.push("deny_php", line, toml_text::string(&pattern));
            }
        }
    }

    /// Denies the paths whose files Caddy does not send. `ended` if it has responded to all
    /// requests.
    pub(super) fn deny_unsent(&mut self, ended: bool) {
        let senders = self.served.iter().filter(|one| one.sends_files);
        let all: Vec<ServedArea> = senders.chain(&self.elsewhere).cloned().collect();
        let areas = areas_of(&all);
        let closed = self.closed.clone();
        let Some(excepted) = excepted(&all, &areas) else {
            let why = "there are too many paths without a `file_server`: write `deny` of the site";
            return self.too_many(&all, why);
        };
        let excepted = excepted.into_iter().filter(|(path, _)| !path.are_scripts());
        for (path, line) in excepted.filter(|(path, _)| !is_closed(path, &closed)) {
            self.unsent(&gap(path, &areas), line);
        }
        let rest = gap(&CaddyPath::Prefix("/".to_owned()), &areas);
        match rest.guards() {
            Ok(patterns) if patterns.is_empty() => {}
            guards => self.unsent_rest(guards.ok(), ended),
        }
    }

    fn too_many(&mut self, all: &[ServedArea], why: &str) {
        if let Some(last) = all.last() {
            self.shared.report.access_left_out(&last.line.place, &last.line.shown(), why);
        }
    }

    /// Paths that something else serves than files.
    fn unsent(&mut self, rest: &BlockPaths, line: &Directive) {
        let mut php = self.served.iter().filter(|one| one.runs_php() && !one.sends_files);
        if let Some(php) = php.find(|one| one.area.meets(rest)) {
            let line = php.line.clone();
            let paths = rest.paths.iter().filter_map(|one| one.pattern().ok());
            let why = format!(
                "no `file_server` sends the files of {}, and they are sent here, but hidden ones \
                 and PHP source: deny them, or move them out of the document root",
                paths.collect::<Vec<_>>().join(", ")
            );
            return self.shared.report.access_left_out(&line.place, &line.shown(), &why);
        }
        let patterns = self.guards(rest, line).unwrap_or_default();
        for pattern in &patterns {
            self.deny_files(pattern);
        }
        if let (Some(pattern), [CaddyPath::Regex { .. }]) = (patterns.first(), &rest.paths[..]) {
            let why = format!("files of `{pattern}` are a 404 in all paths of the site");
            self.shared.report.changed(&line.place, &line.shown(), &why);
        }
    }

    /// All paths but those that something is for.
    fn unsent_rest(&mut self, guards: Option<Vec<String>>, ended: bool) {
        let is_php = |one: &&ServedArea| one.runs_php() && one.area.stripped.is_empty();
        match (self.served.iter().find(is_php), guards) {
            (Some(php), _) => {
                let line = php.line.clone();
                let why = "no `file_server` sends all files of the document root, and they are \
                           sent here, but hidden ones and PHP source: deny the others, or move \
                           them out of the document root";
                self.shared.report.access_left_out(&line.place, &line.shown(), why);
            }
            // Nothing is left that a file could be sent for.
            (None, _) if ended => {}
            (None, Some(patterns)) => patterns.iter().for_each(|one| self.deny_files(one)),
            (None, None) => {
                let why = "`file_server` is for some paths alone, and here all files of the \
                           document root are sent: deny the others";
                let place = self.place.clone();
                self.shared.report.access_left_out(&place, "file_server", why);
            }
        }
    }

    fn deny_files(&mut self, pattern: &str) {
        let toml =
            toml_text::table([("path", toml_text::string(pattern)), ("status", "404".to_owned())]);
        let why = "no `file_server` for these paths";
        self.site.settings.push("deny", Placed::because(toml, &self.place, why));
    }
}

/// The paths that areas leave out, each once, with the first directive that does. `None` if a
/// comparison of all of them with all areas takes too long.
fn excepted<'s>(
    all: &'s [ServedArea],
    areas: &[BlockPaths],
) -> Option<Vec<(&'s CaddyPath, &'s Directive)>> {
    let mut known = BTreeSet::new();
    let paths =
        all.iter().flat_map(|one| one.area.except.iter().map(move |path| (path, &one.line)));
    let found: Vec<_> = paths.filter(|(path, _)| known.insert(*path)).collect();
    let count: usize = areas.iter().map(|area| area.except.len() + 1).sum();
    (found.len().saturating_mul(count) <= MAX_COMPARISONS).then_some(found)
}

/// Whether all clients are refused a path already.
fn is_closed(path: &CaddyPath, closed: &[BlockPaths]) -> bool {
    let area = BlockPaths { paths: vec![path.clone()], ..BlockPaths::default() };
    closed.iter().any(|one| one.covers(&area))
}

fn areas_of<'s>(all: impl IntoIterator<Item = &'s ServedArea>) -> Vec<BlockPaths> {
    all.into_iter().map(|one| one.area.clone()).collect()
}
