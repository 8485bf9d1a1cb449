//! Findings in order, for people and for programs.

use serde::Serialize;

use crate::checks::CHECKS;
use crate::facts::Facts;
use crate::finding::{Finding, Severity};

/// Widest line in characters.
const COLUMNS: usize = 100;

/// The documentation of the checks.
const MANUAL: &str = "docs/guide/doctor.md";

/// The result of all checks, the worst findings first.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The examined servers and files.
    pub looked_at: Vec<String>,
    /// The findings.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Runs all checks.
    pub fn of(facts: &Facts) -> Report {
        let mut looked_at: Vec<String> =
            facts.services.iter().map(|service| service.name.clone()).collect();
        looked_at.extend(facts.nginx.iter().map(|nginx| format!("nginx ({})", nginx.file)));
        looked_at.extend(facts.apache.iter().map(|apache| format!("Apache ({})", apache.file)));
        let broken = facts.broken.iter().map(|(about, why)| Finding {
            check: "D0",
            title: "configuration",
            severity: Severity::Fail,
            about: about.clone(),
            seen: why.to_string(),
            condition: "a configuration cannot be read".to_owned(),
            consequence: "its contents are unknown, and a server would reject it, too".to_owned(),
            fix: "fix it; the checks below use the rest of it".to_owned(),
            rules: Vec::new(),
        });
        let installed = facts.installed.iter().map(|name| Finding {
            check: "D0",
            title: "configuration",
            severity: Severity::Info,
            about: name.clone(),
            seen: "it is installed, and does not run".to_owned(),
            condition: "a server is installed that does not run".to_owned(),
            consequence: "it is not examined".to_owned(),
            fix: "maitred doctor --php-fpm, to examine it all the same".to_owned(),
            rules: Vec::new(),
        });
        let found = CHECKS.iter().flat_map(|check| check.look(facts));
        let mut findings: Vec<Finding> = broken.chain(installed).chain(found).collect();
        // Pools share files and web servers; a finding about those is reported once.
        let mut seen = std::collections::HashSet::new();
        findings
            .retain(|found| seen.insert((found.check, found.about.clone(), found.seen.clone())));
        findings.sort_by_key(|finding| finding.severity);
        Report { looked_at, findings }
    }

    /// Adds what a start of PHP for the pools of a configuration has shown: its mistakes, or why
    /// PHP was not started.
    pub fn add_php_start(&mut self, file: &str, shown: Result<Vec<String>, String>) {
        let finding = |severity, seen: String| Finding {
            check: "D0",
            title: "PHP's start",
            severity,
            about: file.to_owned(),
            seen,
            condition: String::new(),
            consequence: String::new(),
            fix: String::new(),
            rules: Vec::new(),
        };
        match shown {
            Ok(mistakes) if mistakes.is_empty() => {
                let seen = "PHP starts for each kind of pool";
                self.findings.push(finding(Severity::Well, seen.to_owned()));
            }
            Ok(mistakes) => self.findings.extend(mistakes.into_iter().map(|mistake| Finding {
                condition: "PHP does not start, or complains at its start".to_owned(),
                consequence: "requests for the pool get a 503, or lack an extension".to_owned(),
                fix: "what the line says; maitred check shows it as well".to_owned(),
                ..finding(Severity::Fail, mistake)
            })),
            Err(why) => {
                self.findings.push(finding(Severity::CannotTell, format!("PHP's start: {why}")));
            }
        }
        self.findings.sort_by_key(|finding| finding.severity);
    }

    /// The number of findings of a severity.
    pub fn count(&self, severity: Severity) -> usize {
        let same = self.findings.iter().filter(|finding| finding.severity == severity);
        same.count()
    }

    /// 2 with a failure, 1 with a warning, 0 otherwise.
    pub fn exit_code(&self) -> u8 {
        match self.findings.first().map(|finding| finding.severity) {
            Some(Severity::Fail) => 2,
            Some(Severity::Warn) => 1,
            _ => 0,
        }
    }

    /// JSON on one line.
    pub fn json(&self) -> String {
        let object = serde_json::json!({
            "looked_at": self.looked_at,
            "fail": self.count(Severity::Fail),
            "warn": self.count(Severity::Warn),
            "cannot_tell": self.count(Severity::CannotTell),
            "info": self.count(Severity::Info),
            "ok": self.count(Severity::Well),
            "findings": self.findings,
        });
        object.to_string()
    }

    /// Lines for people: the worst first, with fixes; OK is only counted, unless `all` is set.
    pub fn text(&self, all: bool, colours: bool) -> String {
        let mut lines = Vec::new();
        if self.looked_at.is_empty() {
            lines.push(
                "Neither maitred nor php-fpm, nginx or Apache is configured here; this is about \
                 the machine alone."
                    .to_owned(),
            )
        } else {
            lines.extend(wrapped(&format!("Looked at {}.", self.looked_at.join(", ")), 0))
        }
        lines.push(String::new());
        for finding in &self.findings {
            match finding.severity {
                Severity::Fail | Severity::Warn => lines.extend(in_full(finding, colours)),
                Severity::CannotTell | Severity::Info | Severity::Well if all => {
                    lines.extend(in_full(finding, colours));
                }
                Severity::CannotTell | Severity::Info => lines.extend(in_short(finding, colours)),
                Severity::Well => {}
            }
        }
        if lines.last().is_some_and(|line| !line.is_empty()) {
            lines.push(String::new());
        }
        lines.extend(wrapped(&self.summary(all), 0));
        lines.join("\n")
    }

    /// The number of findings by severity.
    pub(crate) fn summary(&self, all: bool) -> String {
        let ok = self.count(Severity::Well);
        let hint = if all { "" } else { " (--all shows everything in full)" };
        format!(
            "{} FAIL, {} WARN, {} that cannot be told, {} INFO, {ok} OK{hint}; {MANUAL}",
            self.count(Severity::Fail),
            self.count(Severity::Warn),
            self.count(Severity::CannotTell),
            self.count(Severity::Info),
        )
    }
}

/// The severity's name in its colour (SGR, ECMA-48 §8.3.117).
fn coloured(severity: Severity, colours: bool) -> String {
    let colour = match severity {
        Severity::Fail => "1;31",
        Severity::Warn => "1;33",
        Severity::CannotTell => "35",
        Severity::Info => "36",
        Severity::Well => "32",
    };
    if colours {
        format!("\x1b[{colour}m{}\x1b[0m", severity.name())
    } else {
        severity.name().to_owned()
    }
}

fn in_full(finding: &Finding, colours: bool) -> Vec<String> {
    let mut lines = vec![format!(
        "{} {} {}: {}",
        coloured(finding.severity, colours),
        finding.check,
        finding.title,
        finding.about
    )];
    for (name, text) in finding.parts() {
        lines.extend(wrapped(&format!("  {name:<5} {text}"), 8));
    }
    lines.push(String::new());
    lines
}

fn in_short(finding: &Finding, colours: bool) -> Vec<String> {
    let severity = coloured(finding.severity, colours);
    let line = format!("{severity} {} {}: {}", finding.check, finding.about, finding.seen);
    wrapped(&line, 5)
}

/// Text wrapped to a terminal's width, further lines indented.
fn wrapped(text: &str, indent: usize) -> Vec<String> {
    let mut lines = Vec::new();
    let begin = text.len() - text.trim_start().len();
    let mut line = " ".repeat(begin);
    for word in text.trim_start().split(' ') {
        let width = line.chars().count();
        if width + 1 + word.chars().count() > COLUMNS && !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, " ".repeat(indent)));
        } else if !line.trim().is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture;

    #[test]
    fn the_worst_comes_first_and_decides_the_exit_code() {
        let mut facts = fixture::php_fpm();
        assert_eq!(Report::of(&facts).exit_code(), 0);
        facts.nginx.as_mut().unwrap().open_files = Ok(100);
        let report = Report::of(&facts);
        assert_eq!((report.exit_code(), report.count(Severity::Warn)), (1, 1));
        facts.services[0].control_timeout = std::time::Duration::ZERO;
        let report = Report::of(&facts);
        assert_eq!(report.exit_code(), 2);
        let text = report.text(false, false);
        assert!(
            text.contains("FAIL D17 reload and stop: php-fpm 8.2\n  seen  process_control"),
            "{text}"
        );
        assert!(text.find("FAIL").unwrap() < text.find("WARN").unwrap(), "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(!text.contains("OK D1"), "{text}");
        assert!(report.text(true, true).contains("\x1b[32mOK\x1b[0m D1"));
        let json: serde_json::Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(json["findings"][0]["severity"], "fail");
        assert_eq!(json["fail"], 1);
    }

    #[test]
    fn a_configuration_that_is_broken_is_a_failure_of_its_own() {
        let mut facts = fixture::nothing();
        facts
            .broken
            .push(("www.conf:5".to_owned(), crate::facts::Unknown("unexpected ']'".to_owned())));
        let report = Report::of(&facts);
        assert_eq!((report.exit_code(), report.findings[0].check), (2, "D0"));
    }
}
