//! What a check has to say.

use serde::Serialize;

use crate::checks::Check;
use crate::facts::Unknown;

/// How bad something is, the worst first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Requests fail or will, or one user's page may be shown to another.
    Fail,
    /// It will hurt under load, or misleads whoever looks at it.
    Warn,
    /// What the check needs could not be found out.
    CannotTell,
    /// Worth knowing.
    Info,
    /// As it should be.
    #[serde(rename = "ok")]
    Well,
}

impl Severity {
    /// As people read it.
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

/// Something that a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check: `D1` to `D20`.
    pub check: &'static str,
    /// The check's name.
    pub title: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What it is about: a pool, a file, the machine.
    pub about: String,
    /// What was seen, with its numbers; why it cannot be told.
    pub seen: String,
    /// When it is said; empty for what is as it should be.
    pub condition: String,
    /// What comes of it.
    pub consequence: String,
    /// What to do.
    pub fix: String,
    /// The rules (R) and errors (W) of the tuning articles that it is about.
    pub rules: Vec<&'static str>,
}

impl Finding {
    /// What comes of it.
    pub fn so(&mut self, consequence: impl Into<String>) -> &mut Finding {
        self.consequence = consequence.into();
        self
    }

    /// What to do.
    pub fn fix(&mut self, fix: impl Into<String>) -> &mut Finding {
        self.fix = fix.into();
        self
    }

    /// Which rules it is about.
    pub fn rules(&mut self, rules: &[&'static str]) -> &mut Finding {
        self.rules.extend(rules);
        self
    }
}

/// Where one check writes what it finds.
#[derive(Debug)]
pub struct Sheet {
    check: &'static Check,
    /// What it has found so far.
    pub findings: Vec<Finding>,
}

impl Sheet {
    /// An empty one.
    pub fn of(check: &'static Check) -> Sheet {
        Sheet {
            check,
            findings: Vec::new(),
        }
    }

    /// Something of some severity, said when `condition` holds.
    pub fn say(
        &mut self,
        severity: Severity,
        about: &str,
        seen: impl Into<String>,
        condition: impl Into<String>,
    ) -> &mut Finding {
        let at = self.findings.len();
        self.findings.push(Finding {
            check: self.check.id,
            title: self.check.title,
            severity,
            about: about.to_owned(),
            seen: seen.into(),
            condition: condition.into(),
            consequence: String::new(),
            fix: String::new(),
            rules: Vec::new(),
        });
        &mut self.findings[at]
    }

    /// A failure.
    pub fn fail(
        &mut self,
        about: &str,
        seen: impl Into<String>,
        condition: impl Into<String>,
    ) -> &mut Finding {
        self.say(Severity::Fail, about, seen, condition)
    }

    /// A warning.
    pub fn warn(
        &mut self,
        about: &str,
        seen: impl Into<String>,
        condition: impl Into<String>,
    ) -> &mut Finding {
        self.say(Severity::Warn, about, seen, condition)
    }

    /// Something worth knowing.
    pub fn info(
        &mut self,
        about: &str,
        seen: impl Into<String>,
        condition: impl Into<String>,
    ) -> &mut Finding {
        self.say(Severity::Info, about, seen, condition)
    }

    /// It is as it should be.
    pub fn ok(&mut self, about: &str, seen: impl Into<String>) {
        self.say(Severity::Well, about, seen, "");
    }

    /// What is needed is not known.
    pub fn cannot_tell(&mut self, about: &str, what: &str, why: &Unknown) {
        self.say(Severity::CannotTell, about, format!("{what}: {why}"), "");
    }
}
