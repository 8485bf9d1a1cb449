//! Arguments of a reload, and what is logged when it has finished.

use std::collections::BTreeSet;

use maitred_config::Config;

use super::pool_changes::PoolChanges;
use super::{Outcome, Reload, ReloadScope};

/// Logs settings that need a restart to change.
pub fn needs_restart(names: &[&str]) -> String {
    let (has, it) = match names.len() {
        1 => ("has", "it stays as it was"),
        _ => ("have", "they stay as they were"),
    };
    let names = names.join(" and ");
    format!("{names} {has} changed, which needs a restart; {it}")
}

impl Reload {
    /// What the reload has done, and which pools continue unchanged. `unchanged` is the number of
    /// pools that were not touched; `busy` is the number of workers of earlier generations that
    /// still run a script.
    pub fn outcome(&self, unchanged: usize, busy: usize) -> Outcome {
        let is_new = |name: &&String| self.changes.added.contains(*name);
        let (started, restarted): (Vec<&String>, Vec<&String>) =
            self.replaced.iter().partition(is_new);
        let mut parts = vec![format!("{unchanged} unchanged")];
        if !started.is_empty() {
            parts.insert(0, format!("{} started", list(&started)));
        }
        if !restarted.is_empty() || started.is_empty() {
            parts.insert(0, format!("{} restarted", list(&restarted)));
        }
        let PoolChanges { removed, stopped, .. } = &self.changes;
        for (names, verb) in [(removed, "removed"), (stopped, "stopped")] {
            let names: Vec<&String> = names.iter().collect();
            if !names.is_empty() {
                parts.push(format!("{} {verb}", list(&names)));
            }
        }
        let mut said = format!("reloaded: {}", parts.join(", "));
        match busy {
            0 => {}
            1 => said.push_str("; 1 old worker ends with the script it runs"),
            _ => said.push_str(&format!("; {busy} old workers end with the scripts they run")),
        }
        let PoolChanges { added, to_other_users, .. } = &self.changes;
        for (name, why) in &self.kept {
            let is_new = added.contains(name) || to_other_users.contains(name);
            let state = if is_new { "does not run" } else { "goes on as it was" };
            said.push_str(&format!("; pool {name} {state}: {why}"));
        }
        for fault in self.faults.shown() {
            said.push_str(&format!("; {fault}"));
        }
        if !self.stays.is_empty() {
            said.push_str(&format!("; {}", needs_restart(&self.stays)));
        }
        // Faults are in the output: one site's missing folder fails no other site's deployment.
        if self.kept.is_empty() { Ok(said) } else { Err(said) }
    }
}

/// Pools by name.
fn list(names: &[&String]) -> String {
    match names {
        [] => "no pool".to_owned(),
        [one] => format!("pool {one}"),
        many => {
            let many: Vec<&str> = many.iter().map(|name| name.as_str()).collect();
            format!("pools {}", many.join(", "))
        }
    }
}

impl ReloadScope {
    /// The scope of a reload that takes over what an earlier one had not done.
    pub fn with(self, earlier: ReloadScope) -> ReloadScope {
        match (self, earlier) {
            (ReloadScope::Named(mut names), ReloadScope::Named(more)) => {
                names.extend(more);
                ReloadScope::Named(names)
            }
            (ReloadScope::All, _) | (_, ReloadScope::All) => ReloadScope::All,
            (named @ ReloadScope::Named(_), _) | (_, named @ ReloadScope::Named(_)) => named,
            (ReloadScope::Mended, ReloadScope::Mended) => ReloadScope::Mended,
            (ReloadScope::Changed, _) | (_, ReloadScope::Changed) => ReloadScope::Changed,
        }
    }

    /// The pools that were requested by name.
    pub fn names(&self, config: &Config) -> BTreeSet<String> {
        match self {
            ReloadScope::Changed | ReloadScope::Mended => BTreeSet::new(),
            ReloadScope::Named(names) => names.iter().cloned().collect(),
            ReloadScope::All => config.pools.iter().map(|pool| pool.name.clone()).collect(),
        }
    }
}
