//! The reference of the metrics, `docs/reference/metrics.md`.

use std::fmt::Write;

use maitred_scoreboard::{Cause, Counter, RequestOutcome};

use super::*;
use crate::admin::exposition::{Label, MetricFamily};

const HEAD: &str = "# Metrics

<!-- Written by the tables of crates/front/src/admin and crates/scoreboard/src/counters.rs:
     MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-front reference -->

`/metrics` of the [admin listener](../guide/status.md#metrics). Counters of pools survive a reload,
an upgrade and a crash of the front, and restart from 0 with the server; those of the page cache, of
proxied servers and of clients restart with each front, those of OPcache with each zygote. Reasons
that never occurred are left out.

`maitred_info` is 1; its label `version` is the running version.
";

fn section<T>(out: &mut String, title: &str, labels: &str, metrics: &[MetricFamily<T>]) {
    head(out, title, labels);
    for metric in metrics {
        row(out, metric.name, metric.kind, metric.label, metric.help);
    }
}

fn head(out: &mut String, title: &str, labels: &str) {
    let _ = writeln!(
        out,
        "\n## {title}\n\n{labels}\n\n| metric | type | label | meaning |\n| --- | --- | --- | --- |"
    );
}

fn row(out: &mut String, name: &str, kind: &str, label: Option<Label>, help: &str) {
    let label = label.map_or(String::new(), |(label, values)| {
        let values: Vec<String> = values.iter().map(|value| format!("`{value}`")).collect();
        let colon = if values.is_empty() { "" } else { ": " };
        format!("`{label}`{colon}{}", values.join(", "))
    });
    let _ = writeln!(out, "| `{name}` | {kind} | {label} | {help} |");
}

fn values(out: &mut String, title: &str, values: &[(&str, &str)]) {
    let _ = writeln!(out, "\n### {title}\n\n| value | meaning |\n| --- | --- |");
    for (name, help) in values {
        let _ = writeln!(out, "| `{name}` | {help} |");
    }
}

fn reference() -> String {
    let mut out = HEAD.to_owned();
    section(&mut out, "Pools", "Label `pool`.", POOL);
    for counter in Counter::ALL {
        row(&mut out, counter.metric(), "counter", None, counter.help());
    }
    let outcomes = RequestOutcome::ALL
        .map(|outcome| (outcome.metric_name(), outcome.help().unwrap_or_default()));
    values(&mut out, "Outcomes of requests", &outcomes);
    let causes = Cause::ALL.map(|cause| (cause.name(), cause.help()));
    values(&mut out, "Reasons why workers exit", &causes);
    let labels = "Labels `pool` and [`route`](../guide/status.md#metrics).";
    section(&mut out, "Routes of a pool", labels, ROUTE);
    section(&mut out, "OPcache of a pool", "Label `pool`.", OPCACHE);
    let labels = "Label `pool`. See [how it chooses](../guide/workers.md).";
    section(&mut out, "Pools with `pm = \"auto\"`", labels, SIZE);
    let labels = "Label `pool`. See [snapshot mode](../guide/snapshot-mode.md).";
    section(&mut out, "Pools with `mode = \"snapshot\"`", labels, COPIES);
    let labels = "Label `pool`. The application's own metrics are [`app_…`](../guide/metrics.md).";
    section(&mut out, "Metrics of the application", labels, APPLICATION);
    let labels = "Label `site`: its first host. Reasons are those of `Cache-Status`.";
    section(&mut out, "Sites with a page cache", labels, CACHED_SITE);
    section(&mut out, "Page cache, by tier", "Label `tier`: `memory`, `disk`.", CACHE_TIER);
    section(&mut out, "Page cache", "For the whole server.", CACHE);
    let labels = "For the whole server, with [`purge_log`](../guide/several-machines.md).";
    section(&mut out, "Purge log", labels, PURGE_LOG);
    let labels = "Label `peer`: its address, with `peers` of `purge_log`.";
    section(&mut out, "Peers of the purge log", labels, PURGE_PEER);
    let labels = "Label `node`: its name in [`purge_log`](../guide/several-machines.md). Each node \
                  announces itself every five seconds; at most 64 are shown, this one included.";
    section(&mut out, "Nodes with one purge log", labels, KNOWN_NODE);
    section(&mut out, "Proxied servers", "Label `server`.", PROXY);
    section(&mut out, "Clients", "For the whole server.", CLIENTS);
    section(
        &mut out,
        "[Traces](../guide/traces.md)",
        "For the whole server, with `[traces]`.",
        TRACES,
    );
    let labels = "For the whole server. See [what to scale on](../guide/several-machines.md).";
    section(&mut out, "Load of the node", labels, NODE);
    section(&mut out, "Load of a pool", "Label `pool`.", LOAD);
    out
}

#[test]
fn the_reference_is_what_the_tables_say() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/metrics.md");
    let text = reference();
    if std::env::var_os("MAITRED_WRITE_REFERENCE").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    let written = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        written == text,
        "{path} is outdated; write it with\n  \
         MAITRED_WRITE_REFERENCE=1 cargo test -p maitred-front reference"
    );
}
