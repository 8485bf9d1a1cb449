//! The report of an import: what is kept, changed and left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use maitred_text::humanize::printable_pattern;

use crate::rule_examples::CrossedPaths;
use crate::source_directive::Directive;

/// The place of a directive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceLine {
    /// The file.
    pub file: Rc<str>,
    /// The line, from 1 on.
    pub line: usize,
    /// The number of the word in the file, which tells directives of one line apart.
    pub word: usize,
}

impl fmt::Display for SourceLine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}", self.file, self.line)
    }
}

/// What has become of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The file has it, or maitred does it by default.
    Kept,
    /// It is there with another meaning.
    Changed,
    /// It is missing, and does not decide who may see what.
    LeftOut,
    /// It is missing, and decides who may see what, or may do so.
    LeftOutAccess,
}

/// One directive and its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportFinding {
    /// The outcome.
    pub outcome: Outcome,
    /// Its place.
    pub place: SourceLine,
    /// The directive as written, shortened.
    pub what: String,
    /// The reason of a change, or what to do by hand. Empty if the directive is kept.
    pub why: String,
}

/// All findings of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImportReport {
    findings: Vec<ImportFinding>,
    covered: BTreeSet<(SourceLine, String)>,
    covered_before: BTreeSet<(SourceLine, String)>,
    /// Directives of servers that are no site.
    dropped: BTreeSet<(SourceLine, String)>,
    /// Directives of those that are one.
    imported: BTreeSet<(SourceLine, String)>,
    /// How many paths are compared with the old server.
    compared: usize,
    /// How many there are about.
    comparable: usize,
}

impl ImportReport {
    /// Adds a finding; the same one counts once.
    pub fn add(&mut self, outcome: Outcome, place: &SourceLine, what: &str, why: &str) {
        let name = what.split([' ', ';']).next().unwrap_or_default().to_owned();
        self.covered.insert((place.clone(), name));
        let (what, why) = (what.to_owned(), why.to_owned());
        let finding = ImportFinding { outcome, place: place.clone(), what, why };
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// A directive that the file has.
    pub fn kept(&mut self, place: &SourceLine, what: &str) {
        self.add(Outcome::Kept, place, what, "");
    }

    /// A directive with another meaning.
    pub fn changed(&mut self, place: &SourceLine, what: &str, why: &str) {
        self.add(Outcome::Changed, place, what, why);
    }

    /// A missing directive that does not decide who may see what.
    pub fn left_out(&mut self, place: &SourceLine, what: &str, why: &str) {
        self.add(Outcome::LeftOut, place, what, why);
    }

    /// A missing directive that decides who may see what.
    pub fn access_left_out(&mut self, place: &SourceLine, what: &str, why: &str) {
        self.add(Outcome::LeftOutAccess, place, what, why);
    }

    /// Marks a directive, and those in its block, as part of another finding.
    pub fn cover(&mut self, directive: &Directive) {
        self.covered.insert((directive.place.clone(), directive.name.clone()));
        directive.block.iter().for_each(|inner| self.cover(inner));
    }

    /// Marks a directive, and those in its block, as those of a server that is no site. A site may
    /// include the same file.
    pub fn drop_server(&mut self, directive: &Directive) {
        self.dropped.insert((directive.place.clone(), directive.name.clone()));
        directive.block.iter().for_each(|inner| self.drop_server(inner));
    }

    /// Marks a directive, and those in its block, as those of a site.
    pub fn imports(&mut self, directive: &Directive) {
        self.imported.insert((directive.place.clone(), directive.name.clone()));
        directive.block.iter().for_each(|inner| self.imports(inner));
    }

    /// Counts the paths of a site that are compared, and about how many the old server's rules
    /// make.
    pub fn compares(&mut self, paths: &CrossedPaths) {
        self.compared += paths.paths.len();
        self.comparable += paths.all;
    }

    /// From now on, directives are those of another server. Servers may include the same file.
    pub fn begin_server(&mut self) {
        self.covered_before.append(&mut self.covered);
    }

    /// Whether there is a finding for this directive, of whatever server.
    pub fn is_known(&self, place: &SourceLine, name: &str) -> bool {
        let one = (place.clone(), name.to_owned());
        self.covered.contains(&one)
            || self.covered_before.contains(&one)
            || self.dropped.contains(&one) && !self.imported.contains(&one)
    }

    /// Whether there is a finding for this directive of this server.
    pub fn is_covered(&self, place: &SourceLine, name: &str) -> bool {
        self.covered.contains(&(place.clone(), name.to_owned()))
    }

    /// All findings, in the order in which they were made.
    pub fn findings(&self) -> &[ImportFinding] {
        &self.findings
    }

    /// Whether a directive at one of these places is missing and decides who may see what.
    pub fn leaves_access_out(&self, is_there: impl Fn(&SourceLine) -> bool) -> bool {
        let missing = |finding: &&ImportFinding| finding.outcome == Outcome::LeftOutAccess;
        self.findings.iter().filter(missing).any(|finding| is_there(&finding.place))
    }

    /// Whether nothing was left out that decides who may see what.
    pub fn keeps_access(&self) -> bool {
        self.findings.iter().all(|finding| finding.outcome != Outcome::LeftOutAccess)
    }

    fn section(&self, out: &mut fmt::Formatter<'_>, title: &str, outcome: Outcome) -> fmt::Result {
        let mut found: Vec<_> =
            self.findings.iter().filter(|finding| finding.outcome == outcome).collect();
        found.sort_by(|a, b| a.place.cmp(&b.place));
        if found.is_empty() {
            return Ok(());
        }
        writeln!(out, "{title} ({}):", found.len())?;
        for finding in found {
            let line = format!("{}: {}: {}", finding.place, finding.what, finding.why);
            writeln!(out, "  {}", printable_pattern(&line))?;
        }
        Ok(())
    }
}

impl fmt::Display for ImportReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kept: BTreeMap<&str, usize> = BTreeMap::new();
        for finding in self.findings.iter().filter(|one| one.outcome == Outcome::Kept) {
            let name = finding.what.split([' ', ';']).next().unwrap_or_default();
            *kept.entry(name).or_default() += 1;
        }
        let names = kept.iter().map(|(name, count)| match count {
            1 => (*name).to_owned(),
            count => format!("{name} ({count})"),
        });
        let names: Vec<String> = names.collect();
        if !names.is_empty() {
            writeln!(out, "Kept: {}", printable_pattern(&names.join(", ")))?;
        }
        if self.compared > 0 {
            let all = self.comparable;
            let of_all =
                if all > self.compared { format!(" of about {all}") } else { String::new() };
            let compared = self.compared;
            writeln!(out, "Compared: {compared} paths{of_all} that the old server's rules make")?;
        }
        self.section(out, "Changed", Outcome::Changed)?;
        self.section(out, "Left out", Outcome::LeftOut)?;
        let title = "Left out, and decides who may see what";
        self.section(out, title, Outcome::LeftOutAccess)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_of_all_sites_that_are_compared_are_counted() {
        let mut report = ImportReport::default();
        assert_eq!(report.to_string(), "");
        let paths = |names: [&str; 2], all| CrossedPaths {
            paths: names.iter().map(|name| (*name).to_owned()).collect(),
            all,
        };
        report.compares(&paths(["/a", "/b"], 2));
        let of_rules = "that the old server's rules make\n";
        assert_eq!(report.to_string(), format!("Compared: 2 paths {of_rules}"));
        report.compares(&paths(["/c", "/d"], 9));
        assert_eq!(report.to_string(), format!("Compared: 4 paths of about 11 {of_rules}"));
    }

    #[test]
    fn a_name_with_control_characters_writes_nothing_to_a_terminal() {
        let place = SourceLine { file: "/srv/\u{1b}]0;x".into(), line: 1, word: 0 };
        let mut report = ImportReport::default();
        report.left_out(&place, "Alias /a /b", "the folder\n\u{1b}[2J has `\\d`");
        let shown = report.to_string();
        assert_eq!(shown.lines().count(), 2, "{shown}");
        assert!(!shown.contains('\u{1b}') && shown.contains("`\\d`"), "{shown}");
    }
}
