//! Rules of `.htaccess` files that others inherit by a `RewriteOptions` outside of them.

use super::host_import::HostImport;
use super::path_area::PathArea;
use super::site_files::HtaccessFile;
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
        let sections = self.sections.iter().filter(|one| one.is_folder || one.section.is_none());
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
    let has_own = |file: &HtaccessFile| file.has(|line| line.is(OPTIONS));
    files.iter().filter(|outer| outer.has(is_rule)).find_map(|outer| {
        let folder = PathArea::Below(outer.path.clone());
        let is_inner = |inner: &&HtaccessFile| {
            let is_below = inner.path != outer.path && folder.has(&inner.path);
            is_below && is_in(area, &inner.path) && inner.has(is_rewriting)
        };
        files.iter().filter(is_inner).find_map(|inner| {
            let deciding = match () {
                () if has(line, &INHERITING) && !has_own(inner) => inner,
                () if has(line, &PASSING) && !has_own(outer) => outer,
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
