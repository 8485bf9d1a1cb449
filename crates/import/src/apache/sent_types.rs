//! Types by which Apache keeps browsers from running a file. Here they are always the usual ones.

use super::host_import::HostImport;
use super::path_area::PathArea;
use crate::active_types::ACTIVE;
use crate::regex_shapes::never_ends_in;
use crate::source_directive::Directive;

/// How the types begin that are handlers.
const HANDLER_TYPES: &str = "application/x-httpd-";

impl<'a> HostImport<'_, 'a> {
    /// The lines by which Apache sends files that browsers run with another type.
    pub(super) fn sent_types(&mut self) {
        let sections = self.sections.iter();
        let lines = sections.flat_map(|one| one.directives.iter().map(|line| (&one.area, *line)));
        let lines = lines.filter(|(_, line)| self.php_handler(line.first()).is_none());
        let found = lines.map(|(area, line)| (line, plain_endings(area, line)));
        let found: Vec<(&'a Directive, Vec<&str>)> = found.collect();
        for (line, endings) in found.into_iter().filter(|(_, endings)| !endings.is_empty()) {
            let why = format!(
                "browsers run files that end in {} here: set `Content-Type` in `headers` of the \
                 site for these paths, or deny them",
                endings.join(", ")
            );
            self.report.access_left_out(&line.place, &line.shown(), &why);
        }
    }
}

/// The endings of files that browsers run, and do not by this line.
fn plain_endings(area: &PathArea, line: &Directive) -> Vec<&'static str> {
    let kind = line.first().to_ascii_lowercase();
    let is_named = |ending: &str, after: usize| {
        let names = line.arguments.iter().skip(after).map(|one| one.trim_start_matches('.'));
        names.into_iter().any(|name| name.eq_ignore_ascii_case(ending))
    };
    let is_plain = |ending: &str| match line.name.to_ascii_lowercase().as_str() {
        "forcetype" => !is_active(&kind),
        "addtype" => is_named(ending, 1) && !is_active(&kind),
        "removetype" => is_named(ending, 0),
        _ => false,
    };
    let may_end_in = |ending: &str| match area {
        PathArea::Below(_) => true,
        PathArea::Regex(text) => !never_ends_in(text, format!(".{ending}").as_bytes()),
    };
    let endings = ACTIVE.iter().map(|(ending, _)| *ending);
    endings.filter(|ending| is_plain(ending) && may_end_in(ending)).collect()
}

/// Whether browsers run files of a type, or it is a handler, which decides itself.
fn is_active(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let mut ends = ACTIVE.iter().flat_map(|(_, ends)| *ends);
    let is_handler = !kind.contains('/') || kind.starts_with(HANDLER_TYPES);
    is_handler || ends.any(|end| kind.ends_with(end))
}
