//! Steps for a host alone: each becomes a site of its own.

use serde_json::Value;

use super::unit_routes::{REDIRECTS, SitePlace, SiteRoute, site};
use super::{UnitConfig, names};
use crate::file_draft::FileDraft;
use crate::report::{ImportReport, SourceLine};

/// Adds the sites of what a listener passes requests to. Whether one serves
/// something.
pub(super) fn sites(
    config: &UnitConfig,
    pass: &str,
    file: &mut FileDraft,
    report: &mut ImportReport,
) -> bool {
    let pointer = UnitConfig::target(pass);
    let steps = config.get(&pointer).and_then(Value::as_array).map_or(0, Vec::len);
    let (mut serves, mut earlier) = (false, Vec::new());
    // Steps for a host alone are sites of their own.
    for step in 0..steps {
        let at = format!("{pointer}/{step}");
        let is_host = names(config, &format!("{at}/match")) == ["host"];
        let inner = config.get(&format!("{at}/action/pass")).and_then(Value::as_str);
        if !is_host {
            continue;
        }
        let place = config.place(&at);
        let hosts = host_names(config.get(&format!("{at}/match/host")));
        if let Some(hosts) = &hosts {
            precede(&earlier, hosts, &place, report);
        }
        let own = hosts.clone().unwrap_or_default();
        let new: Vec<String> = own.into_iter().filter(|one| !earlier.contains(one)).collect();
        earlier.extend(new.clone());
        match (inner, hosts) {
            (None, _) => host_action(config, &at, report),
            (Some(_), None) => {
                report.access_left_out(&place, "match host", "it is no list of names");
            }
            // Earlier steps have all of its hosts.
            (Some(_), Some(_)) if new.is_empty() => report.kept(&place, "match host"),
            (Some(inner), Some(_)) => {
                report.kept(&place, "match host");
                let before: Vec<String> = (0..step).map(|at| format!("{pointer}/{at}")).collect();
                let led = SiteRoute { pass: inner, before: &before };
                serves |= site(config, &led, &new, SitePlace { file, report, place: &place });
            }
        }
    }
    let all = ["*".to_owned()];
    let place = config.place(&pointer);
    let led = SiteRoute { pass, before: &[] };
    site(config, &led, &all, SitePlace { file, report, place: &place }) || serves
}

/// Names the hosts of a step that an earlier one has: here, the longest name has a request, and in
/// Unit the first step.
fn precede(earlier: &[String], hosts: &[String], place: &SourceLine, report: &mut ImportReport) {
    let has = |all: &&String, own: &String| {
        all.strip_prefix('*').is_some_and(|end| own.ends_with(end)) && *all != own
    };
    let mut first = hosts.iter().filter_map(|own| earlier.iter().find(|all| has(all, own)));
    if let Some(first) = first.next() {
        let why = format!(
            "Unit has an earlier step for {first}, and here the longest name has the request: \
             write the site by hand"
        );
        report.access_left_out(place, "match host", &why);
    }
}

/// A step for a host that leads to no route: a redirect refuses no one.
fn host_action(config: &UnitConfig, at: &str, report: &mut ImportReport) {
    let action = config.get(&format!("{at}/action"));
    let status = action.and_then(|action| action.get("return")).and_then(Value::as_u64);
    let has_target = action.is_some_and(|action| action.get("location").is_some());
    let place = config.place(at);
    if has_target && status.is_some_and(|status| REDIRECTS.contains(&status)) {
        return report.left_out(&place, "match host", "write `redirects` of a site of its own");
    }
    let why = "only a step that passes to routes or to an application becomes a site of its own: \
               write the site";
    report.access_left_out(&place, "match host", why);
}

/// Names of hosts: `example.com`, `*.example.com`.
fn host_names(value: Option<&Value>) -> Option<Vec<String>> {
    let texts: Vec<&str> = match value? {
        Value::String(text) => vec![text.as_str()],
        Value::Array(all) => all.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let is_name = |text: &str| {
        let inner = text.strip_prefix("*.").unwrap_or(text);
        !inner.contains(['*', '!', '~', ':'])
    };
    let is_list = texts.iter().all(|text| is_name(text));
    is_list.then(|| texts.into_iter().map(str::to_ascii_lowercase).collect())
}
