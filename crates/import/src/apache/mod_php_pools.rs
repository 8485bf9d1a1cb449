//! Pools for mod_php: one for each set of settings of PHP that virtual hosts have.

use super::config_reader::ApacheConfig;
use super::virtual_hosts::last;
use crate::FileReader;
use crate::file_draft::{Placed, PoolDraft};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::toml_text;

/// Why pools have no `user_ini.filename`.
const NO_USER_INI: &str = "mod_php reads no `.user.ini`";

/// A setting of PHP or of its environment: the table, the name, the value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PoolEntry {
    /// `php_value` or another table of a pool, or empty for a setting of the pool itself.
    pub table: &'static str,
    /// The name.
    pub name: String,
    /// The value.
    pub value: Placed,
}

impl PoolEntry {
    /// Adds it to earlier ones, in place of the one with its name. An admin's value stays.
    pub fn merge_into(self, entries: &mut Vec<PoolEntry>) {
        let is_php = |one: &PoolEntry| one.table.starts_with("php_");
        let is_admin = |one: &PoolEntry| one.table.starts_with("php_admin_");
        let is_same = |one: &PoolEntry| one.name == self.name && is_php(one) == is_php(&self);
        if entries.iter().any(|one| is_same(one) && is_admin(one)) && !is_admin(&self) {
            return;
        }
        entries.retain(|one| !is_same(one));
        entries.push(self);
    }
}

/// The pools.
#[derive(Debug)]
pub(super) struct ModPhpPools {
    base: PoolDraft,
    /// The lines of Apache about its processes.
    lines: Vec<(Directive, &'static str)>,
    pools: Vec<(Vec<PoolEntry>, PoolDraft)>,
}

impl ModPhpPools {
    /// None so far. Apache's processes are the workers, and so its numbers are theirs.
    pub fn new(files: &dyn FileReader, config: &ApacheConfig) -> ModPhpPools {
        let mut base = PoolDraft { name: "apache".to_owned(), ..PoolDraft::default() };
        let mut lines = Vec::new();
        let is_php = |one: &&Directive| one.is("LoadModule") && one.first().starts_with("php");
        if let Some(load) = config.tree.iter().find(is_php) {
            base.from = load.place.to_string();
            version(files, load, &mut base);
            // mod_php reads no `.user.ini`, which php-fpm does by default.
            let none = Placed::because(toml_text::string(""), &load.place, NO_USER_INI);
            base.settings.entry("php_admin_value", "user_ini.filename", none);
        }
        for name in ["User", "Group"] {
            if let Some(line) = last(&config.tree, name) {
                let toml = toml_text::string(line.first().trim_start_matches('#'));
                base.settings.set(&name.to_ascii_lowercase(), Placed::new(toml, &line.place));
            }
        }
        if ["mpm_prefork_module", "mpm_itk_module"].iter().any(|one| config.modules.contains(*one))
        {
            prefork(config, &mut base, &mut lines);
        }
        ModPhpPools { base, lines, pools: Vec::new() }
    }

    /// The pool with these entries.
    pub fn pool(&mut self, entries: Vec<PoolEntry>) -> String {
        let is_same = |known: &[PoolEntry]| {
            known.len() == entries.len()
                && known.iter().zip(&entries).all(|(one, other)| {
                    one.table == other.table
                        && one.name == other.name
                        && one.value.toml == other.value.toml
                })
        };
        if let Some((_, pool)) = self.pools.iter().find(|(known, _)| is_same(known)) {
            return pool.name.clone();
        }
        let mut pool = self.base.clone();
        if !self.pools.is_empty() {
            pool.name = format!("{}-{}", pool.name, self.pools.len() + 1);
        }
        for PoolEntry { table, name, value } in &entries {
            match *table {
                "" => pool.settings.replace(name, value.clone()),
                table => pool.settings.entry(table, name, value.clone()),
            }
        }
        let name = pool.name.clone();
        self.pools.push((entries, pool));
        name
    }

    /// The values of settings in a pool, also those of PHP; none without the pool.
    pub fn values(&self, pool: &str, names: &[&str]) -> Option<Vec<Option<&str>>> {
        let (entries, _) = self.pools.iter().find(|(_, known)| known.name == pool)?;
        let last = |name: &&str| {
            let found = entries.iter().rev().find(|one| one.name == *name);
            found.map(|one| one.value.toml.as_str())
        };
        Some(names.iter().map(last).collect())
    }

    /// The sections of the pools, with findings for Apache's lines about its processes.
    pub fn sections(self, report: &mut ImportReport) -> Vec<PoolDraft> {
        if !self.pools.is_empty() {
            for (line, why) in &self.lines {
                match why.is_empty() {
                    true => report.kept(&line.place, &line.shown()),
                    false => report.changed(&line.place, &line.shown(), why),
                }
            }
        }
        self.pools.into_iter().map(|(_, pool)| pool).collect()
    }
}

/// The version of PHP by the name of the module's file, and its php.ini.
fn version(files: &dyn FileReader, load: &Directive, base: &mut PoolDraft) {
    let file = load.argument(1).rsplit('/').next().unwrap_or_default();
    let version = file.trim_start_matches("libphp").trim_end_matches(".so");
    if !version.contains('.') {
        return;
    }
    base.settings.set("php", Placed::new(toml_text::string(version), &load.place));
    let folder = format!("/etc/php/{version}/apache2");
    for (setting, name) in [("php_ini", "php.ini"), ("php_ini_scan_dir", "conf.d")] {
        let path = format!("{folder}/{name}");
        if files.resolved(&path).is_some() {
            base.settings.set(setting, Placed::new(toml_text::string(&path), &load.place));
        }
    }
}

/// Apache's prefork: its processes run scripts.
fn prefork(
    config: &ApacheConfig,
    base: &mut PoolDraft,
    lines: &mut Vec<(Directive, &'static str)>,
) {
    let get = |names: &[&str]| names.iter().find_map(|name| last(&config.tree, name));
    let number = |line: Option<&Directive>| line.and_then(|line| line.first().parse::<u32>().ok());
    let Some(most_line) = get(&["MaxRequestWorkers", "MaxClients"]) else { return };
    let Some(most) = number(Some(most_line)).filter(|most| *most > 0) else { return };
    let most = most.min(10_000);
    let place = most_line.place.clone();
    base.settings.set("pm", Placed::new("\"dynamic\"".to_owned(), &place));
    base.settings.set("max_children", Placed::new(most.to_string(), &place));
    let own = [
        ("start_servers", get(&["StartServers"]), 5),
        ("min_spare_servers", get(&["MinSpareServers"]), 5),
        ("max_spare_servers", get(&["MaxSpareServers"]), 10),
    ];
    let value = |at: usize| number(own[at].1).unwrap_or(own[at].2).clamp(1, most);
    let least = value(1);
    let spare = value(2).max(least);
    let values = [value(0).clamp(least, spare), least, spare];
    for ((name, line, _), value) in own.into_iter().zip(values) {
        let place = line.map_or(place.clone(), |line| line.place.clone());
        base.settings.set(name, Placed::new(value.to_string(), &place));
        lines.extend(line.map(|line| (line.clone(), "")));
    }
    let why = "the processes run scripts alone, no files and no idle connections: fewer are \
               enough, and `pm = \"auto\"` finds the number";
    lines.push((most_line.clone(), why));
    let requests = get(&["MaxConnectionsPerChild", "MaxRequestsPerChild"]);
    if let Some(line) = requests {
        let number = number(Some(line)).filter(|number| *number > 0);
        if let Some(number) = number {
            base.settings.set("max_requests", Placed::new(number.to_string(), &line.place));
        }
        let why = if number.is_some() { "it counts requests here, not connections" } else { "" };
        lines.push((line.clone(), why));
    }
}
