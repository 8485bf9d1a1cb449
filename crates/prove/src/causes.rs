//! Differences by cause: the addresses that differ in the same way, by the same rules.

use std::collections::BTreeMap;

use maitred_import::report::{ImportFinding, ImportReport, Outcome, SourceLine};
use maitred_import::served::{RuleChoice, ServedRule, ServedSite};
use serde_json::{Value, json};

use crate::difference::{Aspect, Difference};
use crate::probe::Responses;

/// Most addresses that are listed for a cause.
const MAX_LISTED: usize = 20;

/// Most causes.
const MAX_CAUSES: usize = 500;

/// Statuses with which a server shows nothing.
const CLOSED: [u16; 5] = [401, 403, 404, 410, 444];

/// Whether the new server shows what the old one does not, by their statuses.
pub fn opens(old: u16, new: u16) -> bool {
    CLOSED.contains(&old) && (200..300).contains(&new)
}

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
        let is_open = opens(statuses[0], statuses[1]);
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

/// Directives that decide what a path leads to, in the rule of the path.
const ROUTES: [&str; 18] = [
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
    "fastcgi_param",
    "index",
    "autoindex",
    "map",
];

/// Directives that do so for all paths of a site.
const GENERAL_ROUTES: [&str; 6] =
    ["try_files", "deny", "allow", "auth_basic", "satisfy", "fastcgi_param"];

/// Directives of Apache that decide what a path leads to, in lower case.
const MERGED_ROUTES: [&str; 31] = [
    "require",
    "<requireall",
    "<requireany",
    "<requirenone",
    "order",
    "allow",
    "deny",
    "satisfy",
    "authtype",
    "authuserfile",
    "authgroupfile",
    "redirect",
    "redirectmatch",
    "redirectpermanent",
    "redirecttemp",
    "rewriterule",
    "rewritecond",
    "fallbackresource",
    "alias",
    "aliasmatch",
    "scriptalias",
    "scriptaliasmatch",
    "documentroot",
    "proxypass",
    "proxypassmatch",
    "sethandler",
    "addhandler",
    "php_flag",
    "php_admin_flag",
    "php_value",
    "php_admin_value",
];

/// What is known of a difference when the report is searched.
#[derive(Debug, Clone, Copy)]
pub struct DifferenceOrigin<'a> {
    /// The rules of the old server.
    pub rules: &'a [&'a ServedRule],
    /// The site of the old server.
    pub site: &'a ServedSite,
    /// The place that the rule of the new server comes from, and perhaps a reason.
    pub new_rule_from: &'a str,
    /// The request target.
    pub target: &'a str,
    /// The status of the new server.
    pub new_status: u16,
    /// Whether the new server shows a file or runs a script that the old one refuses.
    pub is_leak: bool,
}

impl DifferenceOrigin<'_> {
    /// Whether a directive is part of the rule of either server.
    fn is_of_rule(&self, place: &SourceLine) -> bool {
        let mut rules = self.rules.iter();
        let of_old = rules.any(|one| one.place == *place || one.inner.contains(place));
        let text = place.to_string();
        let of_new = self.new_rule_from.strip_prefix(text.as_str());
        of_old || of_new.is_some_and(|rest| rest.is_empty() || rest.starts_with(": "))
    }

    /// Whether a directive of this name and place can cause a difference in an aspect.
    fn explains(&self, aspect: &Aspect, finding: &ImportFinding) -> bool {
        let mut words = finding.what.split([' ', ';']);
        let (name, argument) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let is_of_rule = self.is_of_rule(&finding.place);
        if !is_of_rule && !self.site.general.contains(&finding.place) {
            return false;
        }
        let is_folder = self.target.split('?').next().is_some_and(|path| path.ends_with('/'));
        if self.site.choice == RuleChoice::Merged {
            return self.merged_explains(aspect, finding, is_folder);
        }
        let routes = match name {
            "index" | "autoindex" => is_folder,
            "error_page" => self.new_status >= 400,
            name if is_of_rule => ROUTES.contains(&name),
            name => GENERAL_ROUTES.contains(&name),
        };
        match aspect {
            Aspect::Exchange => false,
            Aspect::Status | Aspect::Body => routes,
            Aspect::Header(header) => match (header.as_str(), name) {
                (header, "add_header") => argument.eq_ignore_ascii_case(header),
                ("cache-control", "expires") | ("content-type", "charset") => true,
                ("set-cookie", "userid") => true,
                // Tables of headers add up here, where a location replaces those of the server.
                (_, "location") => is_of_rule,
                _ => routes,
            },
        }
    }

    /// The same for a directive of Apache.
    fn merged_explains(&self, aspect: &Aspect, finding: &ImportFinding, is_folder: bool) -> bool {
        let what = finding.what.to_ascii_lowercase();
        let mut words = what.split([' ', ';']);
        let name = words.next().unwrap_or_default();
        let is_of_rule = self.is_of_rule(&finding.place);
        let routes = match name {
            "directoryindex" | "options" => is_folder,
            "errordocument" => self.new_status >= 400,
            // A file that is not imported may do anything; without one there is no excuse.
            "allowoverride" => finding.outcome == Outcome::LeftOutAccess && is_of_rule,
            name if is_of_rule => MERGED_ROUTES.contains(&name),
            // What holds for a site as a whole explains no single path.
            _ => false,
        };
        match aspect {
            Aspect::Exchange => false,
            Aspect::Status | Aspect::Body => routes,
            Aspect::Header(header) => match (header.as_str(), name) {
                (header, "header") => words.any(|word| word == header),
                ("cache-control", name) if name.starts_with("expires") => true,
                ("content-type", "adddefaultcharset" | "forcetype") => true,
                ("content-type", "addtype") => {
                    let path = self.target.split('?').next().unwrap_or_default();
                    let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension);
                    let extension = extension.to_ascii_lowercase();
                    words.skip(1).any(|word| word.trim_start_matches('.') == extension)
                }
                _ => routes,
            },
        }
    }
}

/// The finding of the import that explains a difference: one about a directive of the rule, or of
/// the whole site, that can cause it.
pub fn reported(
    difference: &Difference,
    report: &ImportReport,
    origin: DifferenceOrigin<'_>,
) -> Option<String> {
    let is_meant = |finding: &&ImportFinding| {
        let is_excuse = match finding.outcome {
            Outcome::Kept => false,
            // What is left out and opens something is to be written by hand.
            Outcome::LeftOutAccess => !origin.is_leak,
            Outcome::Changed | Outcome::LeftOut => true,
        };
        is_excuse && origin.explains(&difference.aspect, finding)
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

    fn place(line: usize) -> SourceLine {
        SourceLine { file: std::rc::Rc::from("a.conf"), line, word: line }
    }

    /// A site of line 1, with a directive of its own on line 2.
    fn site(choice: RuleChoice) -> ServedSite {
        ServedSite {
            place: place(1),
            names: Vec::new(),
            is_default: true,
            addresses: Vec::new(),
            root: None,
            aliases: Vec::new(),
            access_logs: Vec::new(),
            rules: Vec::new(),
            general: vec![place(2)],
            choice,
        }
    }

    #[test]
    fn the_report_explains_what_its_directives_can_cause_and_nothing_else() {
        use maitred_import::served::RulePaths;
        let mut report = ImportReport::default();
        report.changed(&place(2), "error_page 404 /e.php", "the status stays");
        report.changed(&place(4), "return 404", "it applies as well elsewhere");
        report.changed(&place(5), "add_header X-A b", "errors have it, too");
        let mut rule = ServedRule::new(RulePaths::Exact("/a".to_owned()), &place(3), "location");
        rule.inner = vec![place(4), place(5)];
        let site = site(RuleChoice::Location);
        let why = |aspect: Aspect, rule: Option<&ServedRule>, from: &str, status: u16| {
            let difference = Difference { aspect, old: String::new(), new: String::new() };
            let rules: Vec<&ServedRule> = rule.into_iter().collect();
            let origin = DifferenceOrigin {
                rules: &rules,
                site: &site,
                new_rule_from: from,
                target: "/a",
                new_status: status,
                is_leak: false,
            };
            reported(&difference, &report, origin)
        };
        let line = |why: Option<String>| why.and_then(|why| why.chars().nth(7));
        assert_eq!(line(why(Aspect::Status, Some(&rule), "", 200)), Some('4'));
        assert_eq!(line(why(Aspect::Status, None, "", 200)), None);
        assert_eq!(line(why(Aspect::Status, None, "", 404)), Some('2'));
        assert_eq!(line(why(Aspect::Status, None, "a.conf:4", 200)), Some('4'));
        assert_eq!(line(why(Aspect::Status, None, "a.conf:40", 200)), None);
        let header = |name: &str| Aspect::Header(name.to_owned());
        assert_eq!(line(why(header("x-a"), Some(&rule), "", 200)), Some('4'));
        assert_eq!(line(why(header("x-a"), None, "", 200)), None);
    }

    #[test]
    fn directives_of_apache_explain_the_paths_of_their_sections() {
        use maitred_import::served::RulePaths;
        let mut rule = ServedRule::new(RulePaths::Folder(String::new()), &place(3), "<Directory");
        rule.inner = (4..9).map(place).collect();
        let site = site(RuleChoice::Merged);
        let explains = |report: &ImportReport, aspect: Aspect, is_leak: bool| {
            let difference = Difference { aspect, old: String::new(), new: String::new() };
            let origin = DifferenceOrigin {
                rules: &[&rule],
                site: &site,
                new_rule_from: "",
                target: "/a.Z",
                new_status: 200,
                is_leak,
            };
            reported(&difference, report, origin).is_some()
        };
        let report = |add: &dyn Fn(&mut ImportReport)| {
            let mut report = ImportReport::default();
            add(&mut report);
            report
        };
        let changed = report(&|one| one.changed(&place(4), "AllowOverride All", "no file"));
        assert!(!explains(&changed, Aspect::Status, false));
        let left = report(&|one| one.access_left_out(&place(4), "AllowOverride All", "a file"));
        assert!(explains(&left, Aspect::Status, false));
        assert!(!explains(&left, Aspect::Status, true));
        let rewrite = report(&|one| one.left_out(&place(5), "RewriteRule ^ index.php", "one"));
        assert!(explains(&rewrite, Aspect::Status, false));
        let general = report(&|one| one.left_out(&place(2), "RewriteRule ^ index.php", "one"));
        assert!(!explains(&general, Aspect::Status, false));
        let typed = report(&|one| one.left_out(&place(6), "AddType application/x-z .Z", "types"));
        assert!(explains(&typed, Aspect::Header("content-type".to_owned()), false));
        assert!(!explains(&typed, Aspect::Status, false));
        let header = report(&|one| one.changed(&place(7), "Header always set X-A b", "all"));
        assert!(explains(&header, Aspect::Header("x-a".to_owned()), false));
        assert!(!explains(&header, Aspect::Header("x-b".to_owned()), false));
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
