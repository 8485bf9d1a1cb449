//! Steps for a host alone: each becomes a site of its own.

use serde_json::Value;

use super::unit_routes::{RouteLead, SitePlace, SiteRoute, site};
use super::{UnitConfig, names};
use crate::file_draft::FileDraft;
use crate::report::{ImportReport, SourceLine};

/// Adds the sites of what a listener passes requests to. Whether one serves something.
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
        if names(config, &format!("{at}/match")) != ["host"] {
            continue;
        }
        let place = config.place(&at);
        let Some(mut hosts) = host_names(config.get(&format!("{at}/match/host"))) else {
            report.access_left_out(&place, "match host", "it is no list of names");
            continue;
        };
        precede(&earlier, &hosts, &place, report);
        hosts.retain(|one| !earlier.contains(one));
        earlier.extend(hosts.clone());
        report.kept(&place, "match host");
        if !hosts.is_empty() {
            let before: Vec<String> = (0..step).map(|at| format!("{pointer}/{at}")).collect();
            let action = format!("{at}/action");
            let led = SiteRoute { lead: RouteLead::Action(&action), before: &before };
            serves |= site(config, &led, &hosts, SitePlace { file, report, place: &place });
        }
    }
    let all = ["*".to_owned()];
    let place = config.place(&pointer);
    let led = SiteRoute { lead: RouteLead::Pass(pass), before: &[] };
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
