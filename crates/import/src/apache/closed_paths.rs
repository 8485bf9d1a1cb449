//! Paths that Apache refuses to clients without a password, and the written site does not, found by
//! comparing both. It is the last of the rules of the import, and knows none of the others.

use crate::report::{ImportReport, SourceLine};
use crate::rule_examples::crossed;
use crate::served::{RuleAccess, ServedRule, ServedSite};
use crate::written_site::{Behind, WrittenSites};

/// Names the sections of Apache whose paths are served to more clients.
pub fn report(written: &WrittenSites, served: &[ServedSite], report: &mut ImportReport) {
    for old in served {
        let Some(new) = written.from(&old.place.to_string()) else { continue };
        let crossed = crossed(&old.rules);
        report.compares(&crossed);
        for path in crossed.paths {
            let Some(rule) = closing(old, &path).filter(|_| !path.ends_with('/')) else { continue };
            let served = new.serve(&path);
            let is_here = matches!(served.behind, Behind::File | Behind::Script);
            if is_here && served.users.is_none() {
                add(report, rule, &path);
            }
        }
    }
}

/// The section that closes a path, if one does.
fn closing<'s>(site: &'s ServedSite, path: &str) -> Option<&'s ServedRule> {
    let mut rules = site.rules_of(path).into_iter();
    let deciding = rules.rfind(|rule| rule.access != RuleAccess::Unset);
    deciding.filter(|rule| rule.is_closed)
}

/// Adds a finding for a section that has none about access.
fn add(report: &mut ImportReport, rule: &ServedRule, path: &str) {
    let is_there = |place: &SourceLine| *place == rule.place || rule.inner.contains(place);
    if !report.leaves_access_out(is_there) {
        let why = format!(
            "paths such as `{path}` are served to all clients: write `deny` or `basic_auth` of the \
             site"
        );
        report.access_left_out(&rule.place, &rule.what, &why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileReader;
    use crate::apache::served_sites;

    struct SectionsConf;

    impl FileReader for SectionsConf {
        fn read(&self, path: &str) -> Result<String, String> {
            let conf = "Listen 80\n<VirtualHost *:80>\nServerName a.example\nDocumentRoot /srv/a\n\
                        <Directory /srv/a>\nRequire all granted\n</Directory>\n\
                        <Directory /srv/a/private>\nRequire all denied\n</Directory>\n\
                        <Files \"*.sql\">\nRequire ip 10.0.0.0/8\n</Files>\n\
                        <Location /open>\nRequire all granted\n</Location>\n</VirtualHost>\n";
            (path == "/a.conf").then(|| conf.to_owned()).ok_or_else(|| "there is none".to_owned())
        }

        fn glob(&self, _: &str) -> Vec<String> {
            Vec::new()
        }

        fn resolved(&self, _: &str) -> Option<String> {
            None
        }
    }

    #[test]
    fn a_section_that_closes_paths_is_named_where_they_are_served() {
        let served = served_sites(&SectionsConf, "/a.conf").expect("a site");
        let lines = |deny: &str| {
            let toml = format!(
                "[[sites]]\nhosts = [\"a.example\"]\nroot = \"/srv/a\"\ndeny = [\"/x\", {deny}]\n"
            );
            let written = WrittenSites::of_toml(&toml, &[&served[0].place.to_string()]);
            let mut found = ImportReport::default();
            report(&written, &served, &mut found);
            let lines: Vec<usize> = found.findings().iter().map(|one| one.place.line).collect();
            lines
        };
        assert_eq!(lines(""), [11, 8]);
        assert_eq!(lines("\"~^/private(/|$)\""), [11]);
        assert_eq!(lines("\"~\\\\.sql$\""), [8]);
        assert!(lines("\"~^/private(/|$)\", \"~\\\\.sql$\"").is_empty());
    }
}
