//! The rule of maitred for a request, with its line in the configuration.

use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;

use maitred_config::Config;
use maitred_front::Hosts;
use maitred_front::explain::{self, Question};
use maitred_prove::difference::ComparedSite;
use maitred_prove::run::{NewRule, decoded};

/// Facts of an explanation that name a rule, with the text between the pattern and the rest.
const RULES: [(&str, &str); 6] = [
    ("deny", " matches"),
    ("redirects", " matches"),
    ("basic_auth", " matches"),
    ("proxy", " matches"),
    ("rewrite", " matches"),
    ("aliases", " is "),
];

/// The rules of a configuration.
pub struct NewRules<'a> {
    lines: Vec<&'a str>,
    name: &'a str,
    config: &'a Config,
    hosts: Hosts,
}

impl<'a> NewRules<'a> {
    /// Those of this configuration, which the report calls `name`.
    pub fn new(toml: &'a str, name: &'a str, config: &'a Config) -> NewRules<'a> {
        let hosts = Hosts::of(&config.sites);
        NewRules { lines: toml.lines().collect(), name, config, hosts }
    }

    /// The rule for a request.
    pub fn find(&self, site: &ComparedSite, target: &str, method: &str) -> NewRule {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query.to_owned())),
            None => (target, None),
        };
        let question = Question {
            scheme: if site.is_tls { "https" } else { "http" }.to_owned(),
            authority: site.authority.clone(),
            path: path.to_owned(),
            query,
            method: method.to_owned(),
            client: IpAddr::V4(Ipv4Addr::LOCALHOST),
            fields: Vec::new(),
        };
        let lines = match explain::explain(self.config, &question) {
            Ok(explanation) => explanation.lines,
            Err(why) => return NewRule { text: why, ..NewRule::default() },
        };
        let index = self.hosts.site_for(&site.authority);
        let fact = |about: &str| {
            lines.iter().find(|(known, _)| known == about).map(|(_, what)| what.as_str())
        };
        let response = fact("response").unwrap_or("no response");
        let section = index.and_then(|index| self.section(index));
        let rule = lines.iter().find_map(|(about, what)| {
            let (_, end) = RULES.iter().find(|(known, _)| known == about)?;
            let pattern = what.split(end).next()?;
            let line = section.as_ref().and_then(|section| self.line_of(about, pattern, section));
            Some((about, pattern, line))
        });
        let origin = |line: usize| self.lines[line].split_once("  # ").map_or("", |(_, from)| from);
        let line = rule.and_then(|(_, _, line)| line);
        let from = line.map_or("", origin).to_owned();
        let text = match (rule, &section) {
            (Some((about, pattern, Some(line))), _) => {
                let name = self.name;
                format!("{name}:{}: {about} {pattern} (from {from}): {response}", line + 1)
            }
            (Some((about, pattern, None)), _) => format!("{about} {pattern}: {response}"),
            (None, Some(section)) => {
                let script = fact("script").map(|script| format!("{script}: ")).unwrap_or_default();
                format!("{}:{}: site: {script}{response}", self.name, section.start + 1)
            }
            (None, None) => response.to_owned(),
        };
        let front = index.and_then(|index| self.config.sites.get(index));
        let front = front.and_then(|site| site.front_controller.as_deref());
        let runs_front_controller = front.is_some_and(|front| {
            let front = front.to_string();
            fact("script").is_some_and(|script| script.ends_with(&front))
                && !decoded(target).starts_with(&front)
        });
        NewRule { text, from, runs_front_controller }
    }

    /// The lines of the section of a site.
    fn section(&self, index: usize) -> Option<Range<usize>> {
        let is_start = |line: &&str| line.starts_with("[[sites]]");
        let mut starts =
            self.lines.iter().enumerate().filter(|(_, line)| is_start(line)).map(|(at, _)| at);
        let start = starts.nth(index)?;
        Some(start..starts.next().unwrap_or(self.lines.len()))
    }

    /// The line with a pattern in a setting of a section.
    fn line_of(&self, about: &str, pattern: &str, section: &Range<usize>) -> Option<usize> {
        let escaped = pattern.replace('\\', "\\\\");
        let quoted = [pattern, escaped.as_str()]
            .map(|text| [format!("\"{text}\""), format!("'{text}'")])
            .concat();
        let starts = |at: &usize| {
            let rest = self.lines[*at].strip_prefix(about);
            rest.is_some_and(|rest| rest.starts_with([' ', '.']))
        };
        let start = section.clone().find(starts)?;
        (start..section.end).find(|at| {
            let line = self.lines[*at].split("  # ").next().unwrap_or_default();
            quoted.iter().any(|text| line.contains(text.as_str()))
                || line.contains(&format!(".\"{pattern}\""))
        })
    }
}
