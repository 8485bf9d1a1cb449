//! Differences by cause: the addresses that differ in the same way, by the same rules.

use std::collections::BTreeMap;

use maitred_import::report::{ImportFinding, ImportReport, Outcome, SourceLine};
use maitred_import::served::{ServedRule, ServedSite};
use serde_json::{Value, json};

use crate::difference::{Aspect, Difference};
use crate::probe::Responses;

/// Most addresses that are listed for a cause.
const MAX_LISTED: usize = 20;

/// Most causes.
const MAX_CAUSES: usize = 500;

/// Statuses with which a server shows nothing.
const CLOSED: [u16; 5] = [401, 403, 404, 410, 444];

/// Why a difference is no surprise.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Explanation {
    /// Nothing explains it.
    None,
    /// The import has reported it.
    Reported(String),
    /// Every site has it.
    Accepted(&'static str),
}

/// How addresses differ, and by which rules.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cause {
    /// Whether the new server shows what the old one does not.
    pub is_open: std::cmp::Reverse<bool>,
    /// Why it is no surprise.
    pub explanation: Explanation,
    /// The form of the requests.
    pub form: &'static str,
    /// What differs. The values are those of the first address.
    pub aspect: Aspect,
    /// The statuses of both.
    pub statuses: [u16; 2],
    /// The rule of the old server: file, line and text.
    pub old_rule: String,
    /// The rule of the new server.
    pub new_rule: String,
}

/// The addresses of a cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DifferingAddresses {
    /// The values of the first address.
    pub example: Difference,
    /// The first addresses.
    pub addresses: Vec<String>,
    /// The number of all.
    pub count: usize,
}

/// The result of a whole comparison.
#[derive(Debug, Clone, Default)]
pub struct Proof {
    /// The differing addresses by cause.
    pub causes: BTreeMap<Cause, DifferingAddresses>,
    /// Compared addresses.
    pub addresses: usize,
    /// Compared requests, each of them sent to both.
    pub compared: usize,
    /// Requests to both servers together.
    pub requests: usize,
    /// Compared requests without a difference.
    pub same: usize,
    /// Compared requests with parts that vary by themselves.
    pub varying: usize,
    /// Addresses that are not requested since they may change something.
    pub skipped: Vec<String>,
    /// Addresses that are left out: others like them are requested, or the limit is reached.
    pub left_out: usize,
    /// Sites that cannot be requested, and why.
    pub troubles: Vec<String>,
}

/// A difference with all that is known of it.
#[derive(Debug)]
pub struct FoundDifference<'a> {
    /// The difference.
    pub difference: Difference,
    /// The address.
    pub address: String,
    /// The form of the request.
    pub form: &'static str,
    /// The responses.
    pub responses: &'a Responses,
    /// Why it is no surprise.
    pub explanation: Explanation,
    /// The rule of the old server.
    pub old_rule: String,
    /// The rule of the new server.
    pub new_rule: String,
}

impl Proof {
    /// Adds a difference.
    pub fn add(&mut self, found: FoundDifference<'_>) {
        let statuses = [found.responses.old[0].status, found.responses.new.status];
        let is_open = CLOSED.contains(&statuses[0]) && (200..300).contains(&statuses[1]);
        let cause = Cause {
            is_open: std::cmp::Reverse(is_open),
            explanation: found.explanation,
            form: found.form,
            aspect: found.difference.aspect.clone(),
            statuses,
            old_rule: found.old_rule,
            new_rule: found.new_rule,
        };
        if self.causes.len() >= MAX_CAUSES && !self.causes.contains_key(&cause) {
            self.left_out += 1;
            return;
        }
        let addresses = self.causes.entry(cause).or_insert_with(|| DifferingAddresses {
            example: found.difference,
            addresses: Vec::new(),
            count: 0,
        });
        addresses.count += 1;
        if addresses.addresses.len() < MAX_LISTED {
            addresses.addresses.push(found.address);
        }
    }

    /// The causes that nothing explains.
    pub fn unexplained(&self) -> impl Iterator<Item = (&Cause, &DifferingAddresses)> {
        self.causes.iter().filter(|(cause, _)| cause.explanation == Explanation::None)
    }

    /// The result for programs.
    pub fn to_json(&self) -> Value {
        let causes = self.causes.iter().map(|(cause, found)| {
            let (explanation, reason) = match &cause.explanation {
                Explanation::None => ("none", None),
                Explanation::Reported(why) => ("import", Some(why.as_str())),
                Explanation::Accepted(why) => ("accepted", Some(*why)),
            };
            json!({
                "explanation": explanation,
                "reason": reason,
                "opens": cause.is_open.0,
                "form": cause.form,
                "aspect": cause.aspect.to_string(),
                "old": { "status": cause.statuses[0], "value": found.example.old,
                    "rule": cause.old_rule },
                "new": { "status": cause.statuses[1], "value": found.example.new,
                    "rule": cause.new_rule },
                "count": found.count,
                "addresses": found.addresses,
            })
        });
        json!({
            "addresses": self.addresses,
            "compared": self.compared,
            "requests": self.requests,
            "same": self.same,
            "varying": self.varying,
            "unexplained": self.unexplained().count(),
            "differences": causes.collect::<Vec<_>>(),
            "skipped": self.skipped,
            "left_out": self.left_out,
            "troubles": self.troubles,
        })
    }
}

/// The directives of nginx that can cause a difference in an aspect.
fn causes(aspect: &Aspect, name: &str) -> bool {
    let routes = [
        "return",
        "rewrite",
        "location",
        "try_files",
        "deny",
        "allow",
        "internal",
        "if",
        "alias",
        "root",
        "satisfy",
        "auth_basic",
        "fastcgi_pass",
        "proxy_pass",
        "error_page",
        "limit_req",
        "limit_conn",
        "fastcgi_param",
        "index",
        "autoindex",
        "server",
        "listen",
    ];
    match aspect {
        Aspect::Exchange => false,
        Aspect::Status | Aspect::Body => routes.contains(&name) || name == "map",
        Aspect::Header(header) => match header.as_str() {
            "location" => routes.contains(&name),
            "cache-control" => ["expires", "add_header"].contains(&name),
            _ => ["add_header", "location", "proxy_hide_header", "userid", "charset", "map"]
                .contains(&name),
        },
    }
}

/// The finding of the import that explains a difference: of the rule that nginx applies, of the
/// directive that made the rule here, or of the whole site.
pub fn reported(
    difference: &Difference,
    report: &ImportReport,
    rule: Option<&ServedRule>,
    site: &ServedSite,
) -> Option<String> {
    let places = |one: &SourceLine| {
        let of_rule = rule.is_some_and(|rule| rule.place == *one || rule.inner.contains(one));
        of_rule || site.general.contains(one)
    };
    let is_meant = |finding: &&ImportFinding| {
        let name = finding.what.split([' ', ';']).next().unwrap_or_default();
        let is_changed =
            matches!(finding.outcome, Outcome::Changed | Outcome::LeftOut | Outcome::LeftOutAccess);
        let is_header = match (&difference.aspect, name) {
            (Aspect::Header(header), "add_header") => {
                let of_finding = finding.what.split(' ').nth(1).unwrap_or_default();
                of_finding.eq_ignore_ascii_case(header)
            }
            _ => true,
        };
        is_changed && is_header && causes(&difference.aspect, name) && places(&finding.place)
    };
    let found = report.findings().iter().find(is_meant)?;
    Some(format!("{}: {}: {}", found.place, found.what, found.why))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::probe::ServerResponse;

    fn responses(old: u16, new: u16) -> Responses {
        let [old, new] =
            [old, new].map(|status| ServerResponse { status, ..ServerResponse::default() });
        Responses { old: [old.clone(), old], new }
    }

    fn found<'a>(responses: &'a Responses, address: &str, why: Explanation) -> FoundDifference<'a> {
        FoundDifference {
            difference: Difference {
                aspect: Aspect::Status,
                old: "a".to_owned(),
                new: "b".to_owned(),
            },
            address: address.to_owned(),
            form: "GET",
            responses,
            explanation: why,
            old_rule: "a.conf:7: location".to_owned(),
            new_rule: "deny".to_owned(),
        }
    }

    #[test]
    fn addresses_of_one_cause_are_listed_together_and_what_opens_comes_first() {
        let mut proof = Proof::default();
        let [open, closed] = [responses(403, 200), responses(200, 403)];
        proof.add(found(&closed, "/a", Explanation::None));
        proof.add(found(&closed, "/b", Explanation::None));
        proof.add(found(&open, "/c", Explanation::None));
        proof.add(found(&closed, "/d", Explanation::Accepted("as always")));
        let listed: Vec<_> = proof.causes.values().map(|one| one.addresses.join(" ")).collect();
        assert_eq!(listed, ["/c", "/a /b", "/d"]);
        assert_eq!(proof.unexplained().count(), 2);
        assert_eq!(proof.to_json()["differences"][0]["opens"], true);
    }
}
