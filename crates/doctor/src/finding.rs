//! Findings of the checks.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::facts::Unknown;

/// The severity of a finding, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Requests fail or will, or one user's page may be shown to another.
    Fail,
    /// It will hurt under load, or misleads an operator.
    Warn,
    /// A fact that the check needs is unknown.
    CannotTell,
    /// Worth knowing.
    Info,
    /// As it should be.
    #[serde(rename = "ok")]
    Well,
}

impl Severity {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Fail => "FAIL",
            Severity::Warn => "WARN",
            Severity::CannotTell => "CANNOT TELL",
            Severity::Info => "INFO",
            Severity::Well => "OK",
        }
    }
}

/// A finding of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check: `D1` to `D20`.
    pub check: &'static str,
    /// The check's name.
    pub title: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// Its object: a pool, a file, the machine.
    pub about: String,
    /// The observation with its numbers, or the reason why it is unknown.
    pub seen: String,
    /// The condition of the finding; empty for OK.
    pub condition: String,
    /// The consequence.
    pub consequence: String,
    /// The fix.
    pub fix: String,
    /// The related rules (R) and errors (W) of the tuning articles.
    pub rules: Vec<&'static str>,
}

impl Finding {
    /// What reports show below the title, each part with its name; empty ones are left out.
    pub fn parts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let parts = [
            ("seen", self.seen.clone()),
            ("when", self.condition.clone()),
            ("so", self.consequence.clone()),
            ("do", self.fix.clone()),
            ("rules", self.rules.join(", ")),
        ];
        parts.into_iter().filter(|(_, text)| !text.is_empty())
    }

    /// Sets the consequence.
    pub fn so(&mut self, consequence: impl Into<String>) -> &mut Finding {
        self.consequence = consequence.into();
        self
    }

    /// Sets the fix.
    pub fn fix(&mut self, fix: impl Into<String>) -> &mut Finding {
        self.fix = fix.into();
        self
    }
}

/// Collects the findings of one check.
#[derive(Debug)]
pub struct Sheet {
    id: &'static str,
    title: &'static str,
    /// In the order in which they were found.
    pub findings: Vec<Finding>,
}

impl Sheet {
    /// No findings yet.
    pub fn new(id: &'static str, title: &'static str) -> Sheet {
        Sheet { id, title, findings: Vec::new() }
    }

    /// A finding with the texts of a key in `data/findings.toml`, such as `oom.kills-all`.
    pub fn report(&mut self, key: &str, about: &str, seen: impl Into<String>) -> &mut Finding {
        let texts = texts(key);
        let severity = texts.map_or(Severity::CannotTell, |texts| texts.severity);
        let finding = self.add(severity, about, seen.into());
        if let Some(texts) = texts {
            finding.condition.clone_from(&texts.condition);
            finding.consequence.clone_from(&texts.consequence);
            finding.fix.clone_from(&texts.fix);
            finding.rules = texts.rules.iter().map(String::as_str).collect();
        }
        finding
    }

    /// Reports that there is no problem.
    pub fn ok(&mut self, about: &str, seen: impl Into<String>) {
        self.add(Severity::Well, about, seen.into());
    }

    /// Reports that a needed fact is unknown.
    pub fn cannot_tell(&mut self, about: &str, what: &str, why: &Unknown) {
        self.add(Severity::CannotTell, about, format!("{what}: {why}"));
    }

    fn add(&mut self, severity: Severity, about: &str, seen: String) -> &mut Finding {
        let at = self.findings.len();
        self.findings.push(Finding {
            check: self.id,
            title: self.title,
            severity,
            about: about.to_owned(),
            seen,
            condition: String::new(),
            consequence: String::new(),
            fix: String::new(),
            rules: Vec::new(),
        });
        &mut self.findings[at]
    }
}

/// The fixed texts of a finding.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    severity: Severity,
    #[serde(default)]
    condition: String,
    #[serde(default)]
    consequence: String,
    #[serde(default)]
    fix: String,
    #[serde(default)]
    rules: Vec<String>,
}

type Catalog = BTreeMap<String, BTreeMap<String, Texts>>;

/// The texts of a key. A test checks that every key used has some.
fn texts(key: &str) -> Option<&'static Texts> {
    static CATALOG: LazyLock<Catalog> = LazyLock::new(|| {
        let data = include_str!("../data/findings.toml");
        toml::from_str(data).unwrap_or_default()
    });
    let (file, name) = key.split_once('.')?;
    CATALOG.get(file)?.get(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_finding_of_the_checks_has_its_texts_and_no_other_is_there() {
        let data = include_str!("../data/findings.toml");
        let catalog: Catalog = toml::from_str(data).unwrap();
        let files = catalog.iter();
        let described: BTreeSet<String> = files
            .flat_map(|(file, texts)| texts.keys().map(move |name| format!("{file}.{name}")))
            .collect();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/checks");
        let mut used = BTreeSet::new();
        for entry in std::fs::read_dir(folder).unwrap() {
            let source = std::fs::read_to_string(entry.unwrap().path()).unwrap();
            let literals = source.split('"').skip(1).step_by(2);
            used.extend(literals.filter(|key| texts(key).is_some()).map(str::to_owned));
            let reported = source.split("report(\"").skip(1);
            for key in reported.filter_map(|rest| rest.split('"').next()) {
                assert!(described.contains(key), "{key}");
            }
        }
        assert_eq!(used, described);
    }
}
