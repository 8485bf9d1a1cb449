//! Rules of `.htaccess` files that others inherit by the `RewriteOptions` of a `<Directory>`.

use super::host_import::HostImport;
use super::htaccess_lines::HtaccessFile;
use super::path_area::PathArea;
use crate::source_directive::Directive;

/// The line of mod_rewrite that says who inherits.
const OPTIONS: &str = "RewriteOptions";

/// Its words by which a file inherits.
const INHERITING: [&str; 2] = ["inherit", "inheritbefore"];

/// Its words by which the files below inherit.
const PASSING: [&str; 2] = ["inheritdown", "inheritdownbefore"];

impl<'a> HostImport<'_, 'a> {
    /// Rules of an outer `.htaccess` file that apply in Apache beside those of an inner one.
    pub(super) fn inheritance_of_files(&mut self) {
        if !self.site.settings.has("htaccess") {
            return;
        }
        // Apache merges folders with each other before it merges them with the virtual host, and so
        // the options of that decide about no file.
        let sections = self.sections.iter().filter(|one| one.permits_files());
        let options = sections
            .flat_map(|one| one.all(OPTIONS).into_iter().map(|line| (one.area.clone(), line)));
        let is_one = |line: &Directive| has(line, &INHERITING) || has(line, &PASSING);
        let options: Vec<(PathArea, &'a Directive)> =
            options.filter(|(_, line)| is_one(line)).collect();
        if options.is_empty() {
            return;
        }
        let files = self.files_of_site();
        for (area, line) in options {
            let why = match &files {
                Some(files) => inherited(files, &area, line),
                None => Some(
                    "its folders are too many, too deep, or not readable: write the line into the \
                     `.htaccess` files whose rules are inherited"
                        .to_owned(),
                ),
            };
            if let Some(why) = why {
                self.report.access_left_out(&line.place, &line.shown(), &why);
            }
        }
    }
}

/// Whether an option is among some.
fn has(line: &Directive, some: &[&str]) -> bool {
    line.arguments.iter().any(|word| some.contains(&word.to_ascii_lowercase().as_str()))
}

/// What to do about a line by which a file inherits the rules of another one.
fn inherited(files: &[HtaccessFile], area: &PathArea, line: &Directive) -> Option<String> {
    let is_rule = |line: &Directive| line.is("RewriteRule");
    // Any line of mod_rewrite takes the place of the rules around it.
    let is_rewriting = |line: &Directive| line.name.to_ascii_lowercase().starts_with("rewrite");
    let decides = |words: &[&str], file: &HtaccessFile| {
        let has_own = file.has(|line| line.is(OPTIONS));
        has(line, words) && is_in(area, &file.path) && !has_own
    };
    files.iter().filter(|outer| outer.has(is_rule)).find_map(|outer| {
        let is_inner = |inner: &&HtaccessFile| {
            inner.path != outer.path && outer.is_around(&inner.path) && inner.has(is_rewriting)
        };
        files.iter().filter(is_inner).find_map(|inner| {
            let deciding = match () {
                () if decides(&INHERITING, inner) => inner,
                () if decides(&PASSING, outer) => outer,
                () => return None,
            };
            Some(format!(
                "the rules of {}/.htaccess do not apply in {}/ here, since its `.htaccess` file \
                 has some lines of mod_rewrite: write this line into {}/.htaccess",
                outer.path, inner.path, deciding.path
            ))
        })
    })
}

/// Whether a folder may be in an area.
fn is_in(area: &PathArea, path: &str) -> bool {
    match area {
        PathArea::Below(_) => area.has(path),
        PathArea::Regex(_) => true,
    }
}
