//! Steps for a host alone: each becomes a site of its own.

use serde_json::Value;

use super::unit_routes::{REDIRECTS, SitePlace, SiteRoute, site};
use super::uri_patterns::UriList;
use super::{UnitConfig, names};
use crate::file_draft::FileDraft;
use crate::report::ImportReport;

/// Adds the sites of what a listener passes requests to.
pub(super) fn sites(
    config: &UnitConfig,
    pass: &str,
    file: &mut FileDraft,
    report: &mut ImportReport,
) {
    let pointer = UnitConfig::target(pass);
    let steps = config.get(&pointer).and_then(Value::as_array).map_or(0, Vec::len);
    // Steps for a host alone are sites of their own.
    for step in 0..steps {
        let at = format!("{pointer}/{step}");
        let is_host = names(config, &format!("{at}/match")) == ["host"];
        let inner = config.get(&format!("{at}/action/pass")).and_then(Value::as_str);
        if !is_host {
            continue;
        }
        let Some(inner) = inner else {
            host_action(config, &at, report);
            continue;
        };
        let hosts = UriList::of(config.get(&format!("{at}/match/host")).unwrap_or(&Value::Null));
        let place = config.place(&at);
        match hosts.map(|_| host_names(config.get(&format!("{at}/match/host")))) {
            Some(Some(hosts)) => {
                report.kept(&place, "match host");
                let before: Vec<String> = (0..step).map(|at| format!("{pointer}/{at}")).collect();
                let led = SiteRoute { pass: inner, before: &before };
                site(config, &led, &hosts, SitePlace { file, report, place: &place });
            }
            _ => report.access_left_out(&place, "match host", "it is no list of names"),
        }
    }
    let all = ["*".to_owned()];
    let place = config.place(&pointer);
    let led = SiteRoute { pass, before: &[] };
    site(config, &led, &all, SitePlace { file, report, place: &place });
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
    texts.iter().all(|text| is_name(text)).then(|| texts.into_iter().map(str::to_owned).collect())
}
