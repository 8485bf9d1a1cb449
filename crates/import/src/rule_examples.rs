//! Addresses for the paths of a rule, and for paths beside them.

use std::collections::BTreeSet;

use regex_syntax::hir::{Class, Hir, HirKind};

use crate::served::{RulePaths, ServedRule};

/// Most addresses for the alternatives of an expression.
const MAX_EXAMPLES: usize = 12;

/// Most folders, and most names, that are combined for a site.
const MAX_PARTS: usize = 48;

/// Most folders that are put into each other.
const MAX_INNER: usize = 24;

/// How groups begin that look ahead or behind.
const LOOK_AROUND: [&str; 4] = ["(?!", "(?=", "(?<!", "(?<="];

/// Most tests of a path by a rule, for all paths of a comparison: about a second.
const MAX_TESTS: usize = 20_000_000;

/// Names that no configuration has.
const UNKNOWN_NAMES: [&str; 3] = ["zz9.php", "zz9.txt", "zz9"];

/// Most addresses for what an expression looks at ahead or behind.
const MAX_LOOKED_AT: usize = 6;

/// Longest example, in bytes.
const MAX_EXAMPLE_BYTES: usize = 512;

/// A name that no site has.
const UNKNOWN: &str = "zz9";

/// Decoded paths that a rule matches, and those beside it that it does not match.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct RuleExamples {
    /// Those that it matches.
    pub matching: Vec<String>,
    /// Those that it does not match.
    pub beside: Vec<String>,
}

/// Examples for a rule.
pub fn examples(rule: &ServedRule) -> RuleExamples {
    let candidates = match &rule.paths {
        RulePaths::Exact(path) => vec![path.clone()],
        RulePaths::Prefix { text, .. } => {
            let folder = text.trim_end_matches('/');
            vec![
                text.clone(),
                format!("{folder}/"),
                format!("{folder}/{UNKNOWN}"),
                format!("{folder}/{UNKNOWN}.php"),
            ]
        }
        RulePaths::Folder(folder) => vec![
            folder.clone(),
            format!("{folder}/"),
            format!("{folder}/{UNKNOWN}"),
            format!("{folder}/{UNKNOWN}.php"),
        ],
        RulePaths::Regex(text) => of_expression(text, rule.around.as_deref().unwrap_or_default()),
    };
    let mut found = RuleExamples::default();
    for path in &candidates {
        for near in [path.clone()].into_iter().chain(neighbours(path)) {
            if near.len() > MAX_EXAMPLE_BYTES || !near.starts_with('/') {
                continue;
            }
            let list = match rule.matches(&near) {
                true => &mut found.matching,
                false => &mut found.beside,
            };
            if !list.contains(&near) && list.len() < MAX_EXAMPLES {
                list.push(near);
            }
        }
    }
    found
}

/// Paths for a comparison, and how many they are part of.
pub struct CrossedPaths {
    /// The paths.
    pub paths: BTreeSet<String>,
    /// How many there are about without limits; as many as `paths` if none was reached.
    pub all: usize,
}

impl CrossedPaths {
    /// As many of them as can be compared with a number of rules: every second, or every third.
    pub fn within_bounds(self, rules: usize) -> CrossedPaths {
        let most = MAX_TESTS / rules.max(1);
        let step = self.paths.len() / most.max(1) + 1;
        let paths = self.paths.into_iter().step_by(step).collect();
        CrossedPaths { paths, all: self.all }
    }

    /// Those alone that can be compared.
    pub fn retain(&mut self, is_comparable: impl Fn(&str) -> bool) {
        let before = self.paths.len();
        self.paths.retain(|path| is_comparable(path));
        self.all -= before - self.paths.len();
    }
}

/// Paths of all rules of a site, and the names and folders of each in the folders of the others.
pub fn crossed(rules: &[ServedRule]) -> CrossedPaths {
    let mut all: BTreeSet<String> = BTreeSet::new();
    for rule in rules {
        let found = examples(rule);
        all.extend(found.matching.into_iter().chain(found.beside));
    }
    let (mut folders, mut names) = (BTreeSet::from(["/".to_owned()]), BTreeSet::new());
    for path in &all {
        let (folder, name) = path.rsplit_once('/').unwrap_or_default();
        folders.insert(format!("{folder}/"));
        names.insert(name.to_owned());
    }
    let is_part = folders.len() > MAX_INNER || names.len() > MAX_PARTS;
    let count = folders.len() * (names.len() + UNKNOWN_NAMES.len()) + folders.len().pow(2) * 2;
    let names: BTreeSet<String> = names.into_iter().take(MAX_PARTS).collect();
    for folder in folders.iter().take(MAX_PARTS) {
        let names = names.iter().map(String::as_str).chain(UNKNOWN_NAMES);
        all.extend(names.map(|name| format!("{folder}{name}")));
    }
    for (outer, inner) in pairs(&folders) {
        let folder = format!("{outer}{}", inner.trim_start_matches('/'));
        all.extend([format!("{folder}{UNKNOWN}"), folder]);
    }
    // Paths below a script are those of the script, and `.` and `..` are resolved before all rules.
    let is_resolved = |path: &str| path.split('/').all(|name| name != "." && name != "..");
    all.retain(|path| !path.contains(".php/") && is_resolved(path));
    CrossedPaths { all: if is_part { count.max(all.len()) } else { all.len() }, paths: all }
}

/// Each two of the first folders.
fn pairs(folders: &BTreeSet<String>) -> impl Iterator<Item = (&String, &String)> {
    let some = || folders.iter().take(MAX_INNER);
    some().flat_map(move |outer| some().map(move |inner| (outer, inner)))
}

/// Paths that differ from a path by little.
fn neighbours(path: &str) -> Vec<String> {
    let mut found = vec![format!("{path}{UNKNOWN}"), format!("/{UNKNOWN}{path}")];
    if let Some(shorter) = path.strip_suffix(|_: char| true).filter(|rest| !rest.is_empty()) {
        found.push(shorter.to_owned());
    }
    let upper = path.to_ascii_uppercase();
    if upper != path {
        found.push(upper);
    }
    if !path.ends_with('/') {
        found.push(format!("{path}/"));
    }
    if path.ends_with(".php") {
        found.push(format!("{path}/{UNKNOWN}"));
    }
    found
}

/// Paths for an expression of PCRE, within the prefix around it.
fn of_expression(text: &str, around: &str) -> Vec<String> {
    let strings_of = |text: &str| {
        let mut parser = regex_syntax::ParserBuilder::new().utf8(false).build();
        parser.parse(&text.replace("\\/", "/")).map(|hir| strings(&hir)).unwrap_or_default()
    };
    let mut inner = Vec::new();
    if LOOK_AROUND.iter().any(|begin| text.contains(begin)) {
        // What it does not match is what it looks at.
        let looked_at =
            LOOK_AROUND.iter().fold(text.to_owned(), |text, one| text.replace(one, "(?:"));
        inner.extend(strings_of(&looked_at).into_iter().take(MAX_LOOKED_AT));
    }
    inner.extend(strings_of(&without_look_around(text)));
    let folder = around.trim_end_matches('/');
    let paths = inner.into_iter().flat_map(|inner| match inner.starts_with('/') {
        true => vec![inner.clone(), format!("{folder}{inner}")],
        false => vec![format!("{folder}/{UNKNOWN}{inner}"), format!("{folder}/{inner}")],
    });
    paths.collect()
}

/// An expression without groups that look ahead or behind, which regular expressions here do not
/// have, and with plain groups for atomic ones.
fn without_look_around(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = LOOK_AROUND.iter().filter_map(|one| rest.find(one)).min() {
        out += &rest[..at];
        rest = &rest[at + end_of_group(&rest[at..])..];
    }
    (out + rest).replace("(?>", "(?:")
}

/// The length of the group at the beginning of a text.
fn end_of_group(text: &str) -> usize {
    let (mut depth, mut is_escaped) = (0_u32, false);
    for (at, letter) in text.char_indices() {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '(' => depth += 1,
            ')' if depth == 1 => return at + 1,
            ')' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// Strings that an expression matches: one for each alternative, as far as there are few.
fn strings(hir: &Hir) -> Vec<String> {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => vec![String::new()],
        HirKind::Literal(literal) => vec![String::from_utf8_lossy(&literal.0).into_owned()],
        HirKind::Class(class) => vec![letter(class)],
        HirKind::Repetition(repetition) => {
            // Something of everything that may be there.
            let count = repetition.min.max(u32::from(repetition.max != Some(0))).min(64);
            let inner = strings(&repetition.sub);
            inner.into_iter().map(|text| text.repeat(count as usize)).collect()
        }
        HirKind::Capture(capture) => strings(&capture.sub),
        HirKind::Concat(parts) => {
            let mut all = vec![String::new()];
            for part in parts {
                let next = strings(part);
                let longer = all.iter().enumerate().flat_map(|(index, start)| {
                    // The combinations of all alternatives would be too many.
                    let next = if index == 0 { &next[..] } else { &next[..next.len().min(1)] };
                    next.iter().map(move |end| format!("{start}{end}"))
                });
                all = longer.take(MAX_EXAMPLES).collect();
            }
            all
        }
        HirKind::Alternation(parts) => parts.iter().flat_map(strings).take(MAX_EXAMPLES).collect(),
    }
}

/// A letter of a class: one that is usual in paths.
fn letter(class: &Class) -> String {
    let has = |letter: char| match class {
        Class::Unicode(class) => {
            class.iter().any(|range| range.start() <= letter && letter <= range.end())
        }
        Class::Bytes(class) => u8::try_from(letter).is_ok_and(|byte| {
            class.iter().any(|range| range.start() <= byte && byte <= range.end())
        }),
    };
    let usual = "z9/a.-_".chars().chain('a'..='z').chain('A'..='Z').chain('!'..='~');
    usual.into_iter().find(|letter| has(*letter)).map(String::from).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use crate::report::SourceLine;

    use super::*;

    fn of(paths: RulePaths) -> RuleExamples {
        let place = SourceLine { file: Rc::from("a.conf"), line: 1, word: 1 };
        examples(&ServedRule::new(paths, &place, "location"))
    }

    #[test]
    fn the_paths_of_many_rules_are_part_of_their_combinations() {
        let of = |count: usize| {
            let place = SourceLine { file: Rc::from("a.conf"), line: 1, word: 1 };
            let paths = (0..count).map(|at| RulePaths::Exact(format!("/a{at}/b{at}")));
            let rules: Vec<ServedRule> =
                paths.map(|paths| ServedRule::new(paths, &place, "location")).collect();
            crossed(&rules)
        };
        let (few, many) = (of(2), of(100));
        assert_eq!(few.all, few.paths.len());
        assert!(many.all > many.paths.len() * 10, "{} of {}", many.paths.len(), many.all);
    }

    #[test]
    fn what_an_expression_looks_at_is_beside_it() {
        let found = of(RulePaths::Regex("^/a/(?!b/c|b/f)".to_owned()));
        for path in ["/a/b/c", "/a/b/f"] {
            assert!(found.beside.contains(&path.to_owned()), "{found:?}");
        }
        assert!(found.matching.contains(&"/a/zz9".to_owned()), "{found:?}");
    }

    #[test]
    fn the_paths_of_a_rule_match_it_and_those_beside_do_not() {
        for expression in [
            r"\.php$",
            r"/\.(?!well-known)",
            r"(?i)/(?:uploads|files)/.*\.php$",
            r"^/(?:build|tests|config)(?:$|/)",
            r"^/index\.php(/|$)",
            r"^/w/(index|load|api)\.php$",
            r"(?i)\.(ico|jpg|css)$",
            r"^/[_0-9a-zA-Z-]+(/wp-(content|admin|includes).*)",
        ] {
            let found = of(RulePaths::Regex(expression.to_owned()));
            assert!(!found.matching.is_empty() && !found.beside.is_empty(), "{expression}");
        }
        let found = of(RulePaths::Regex("^/w/(index|load|api)\\.php$".to_owned()));
        for path in ["/w/index.php", "/w/load.php", "/w/api.php"] {
            assert!(found.matching.contains(&path.to_owned()), "{found:?}");
        }
        assert!(found.beside.contains(&"/w/index.ph".to_owned()), "{found:?}");
        let found = of(RulePaths::Exact("/xmlrpc.php".to_owned()));
        assert_eq!(found.matching, ["/xmlrpc.php"]);
    }
}
