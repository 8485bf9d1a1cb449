//! How many violations a file may still have.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::fs;

use crate::source::{Violation, root};

const FILE: &str = "tests/tests/tidy/exemptions.txt";

/// One line of the list: a rule, a count, a file, and the reason why it stays, if it does.
struct Line {
    rule: String,
    count: usize,
    file: String,
    reason: String,
}

fn read() -> (Vec<String>, Vec<Line>) {
    let text = fs::read_to_string(root().join(FILE)).unwrap();
    let (comments, lines): (Vec<_>, Vec<_>) =
        text.lines().partition(|line| line.starts_with('#') || line.is_empty());
    let lines = lines.into_iter().map(|line| {
        let (line, reason) = line.split_once(" # ").unwrap_or((line, ""));
        let mut words = line.split_whitespace();
        let mut word = || words.next().unwrap_or_else(|| panic!("{FILE}: bad line: {line}"));
        Line {
            rule: word().to_owned(),
            count: word().parse().unwrap(),
            file: word().to_owned(),
            reason: reason.to_owned(),
        }
    });
    (comments.into_iter().map(str::to_owned).collect(), lines.collect())
}

/// Fails when a file has more violations than it may, or fewer.
pub fn compare(rule: &str, violations: Vec<Violation>) {
    let mut found: BTreeMap<String, Vec<Violation>> = BTreeMap::new();
    for violation in violations {
        found.entry(violation.file.clone()).or_default().push(violation);
    }
    let (comments, mut lines) = read();
    if std::env::var_os("MAITRED_SHRINK_TIDY").is_some() {
        return shrink(rule, &found, &comments, &mut lines);
    }
    let allowed = |file: &str| {
        let line = lines.iter().find(|line| line.rule == rule && line.file == file);
        line.map_or(0, |line| line.count)
    };
    let mut text = String::new();
    for (file, violations) in &found {
        if violations.len() > allowed(file) {
            for violation in violations {
                let Violation { file, line, what } = violation;
                writeln!(text, "{file}:{line}: {what}").unwrap();
            }
        }
    }
    for line in lines.iter().filter(|line| line.rule == rule) {
        let now = found.get(&line.file).map_or(0, Vec::len);
        if now < line.count {
            let (count, file) = (line.count, &line.file);
            writeln!(text, "{FILE} allows {count} in {file}, which has {now}: shorten it").unwrap();
        }
    }
    assert!(text.is_empty(), "rule `{rule}`:\n{text}");
}

fn shrink(
    rule: &str,
    found: &BTreeMap<String, Vec<Violation>>,
    comments: &[String],
    lines: &mut Vec<Line>,
) {
    for line in lines.iter_mut().filter(|line| line.rule == rule) {
        line.count = line.count.min(found.get(&line.file).map_or(0, Vec::len));
    }
    lines.retain(|line| line.count > 0);
    let mut text: String = comments.iter().map(|comment| format!("{comment}\n")).collect();
    for line in lines {
        write!(text, "{} {} {}", line.rule, line.count, line.file).unwrap();
        if !line.reason.is_empty() {
            write!(text, " # {}", line.reason).unwrap();
        }
        text.push('\n');
    }
    fs::write(root().join(FILE), text).unwrap();
}
