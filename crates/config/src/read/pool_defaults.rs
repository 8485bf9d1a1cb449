//! `[pool_defaults]`: settings of every pool that does not set them itself.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistakes::Fault;

/// Settings of one pool alone, since two pools cannot have the same address.
const OF_ONE_POOL: [&str; 2] = ["listen", "status_listen"];

/// Sections of one pool.
const JOBS: [&str; 2] = ["commands", "schedules"];

/// Tables of php.ini settings: a name in one of them takes the place of the same in the others.
const INI_TABLES: [&str; 4] = ["php_value", "php_admin_value", "php_flag", "php_admin_flag"];

/// The table of environment variables, which is merged by name as well.
const ENV: &str = "env";

/// The settings of a pool: its own, and the defaults that it does not set. Tables of php.ini
/// settings and of variables are merged entry by entry.
pub(crate) fn inherited<'t>(own: &DeTable<'t>, defaults: &DeTable<'t>) -> DeTable<'t> {
    let mut all = own.clone();
    for (key, value) in defaults {
        let name = key.get_ref().as_ref();
        let is_merged = name == ENV || INI_TABLES.contains(&name);
        match (all.get_mut(name).map(Spanned::get_mut), value.get_ref()) {
            _ if OF_ONE_POOL.contains(&name) || JOBS.contains(&name) => {}
            (Some(DeValue::Table(entries)), DeValue::Table(defaults)) if is_merged => {
                add_entries(entries, defaults, |entry| sets_elsewhere(own, name, entry));
            }
            (None, DeValue::Table(defaults)) if is_merged => {
                let mut entries = DeTable::new();
                add_entries(&mut entries, defaults, |entry| sets_elsewhere(own, name, entry));
                all.insert(key.clone(), Spanned::new(value.span(), DeValue::Table(entries)));
            }
            (None, _) => drop(all.insert(key.clone(), value.clone())),
            (Some(_), _) => {}
        }
    }
    all
}

/// Adds the entries of `defaults` that `entries` lacks and `is_set` does not know.
fn add_entries<'t>(
    entries: &mut DeTable<'t>,
    defaults: &DeTable<'t>,
    is_set: impl Fn(&str) -> bool,
) {
    let own: HashSet<String> = names_in(entries);
    for (name, key, value) in flat(defaults) {
        if !own.contains(&name) && !is_set(&name) {
            entries.insert(Spanned::new(key, Cow::Owned(name)), value);
        }
    }
}

/// Whether the pool sets a php.ini setting in another table than `table`.
fn sets_elsewhere(own: &DeTable<'_>, table: &str, entry: &str) -> bool {
    let mut others = INI_TABLES.iter().filter(|other| **other != table && table != ENV);
    others.any(|other| {
        let entries = own.get(*other).and_then(|other| other.get_ref().as_table());
        entries.is_some_and(|entries| names_in(entries).contains(entry))
    })
}

fn names_in(entries: &DeTable<'_>) -> HashSet<String> {
    flat(entries).into_iter().map(|(name, _, _)| name).collect()
}

/// An entry with its name, the position of the name, and its value.
type Entry<'t> = (String, Range<usize>, Spanned<DeValue<'t>>);

/// The entries, with `session.name` for the entry `name` of a table `session`.
fn flat<'t>(entries: &DeTable<'t>) -> Vec<Entry<'t>> {
    let mut found = Vec::new();
    for (key, value) in entries {
        match value.get_ref() {
            DeValue::Table(below) => {
                let prefix = key.get_ref();
                let below = flat(below).into_iter();
                found.extend(
                    below.map(|(name, key, value)| (format!("{prefix}.{name}"), key, value)),
                );
            }
            _ => found.push((key.get_ref().to_string(), key.span(), value.clone())),
        }
    }
    found
}

/// Faults for settings that no two pools share.
pub(crate) fn refuse_settings_of_one_pool(defaults: &DeTable<'_>) -> Vec<Fault> {
    let set = OF_ONE_POOL.iter().filter(|name| defaults.contains_key(**name));
    let fault = |name: &&str| {
        let sentence = format!("`{name}` is an address of one pool; write it in [pools.NAME]");
        Fault::at(defaults, name, sentence)
    };
    let lists = JOBS.iter().filter(|name| defaults.contains_key(**name));
    let of_jobs = |name: &&str| {
        let sentence = format!("`{name}` are those of one pool; write [[pools.NAME.{name}]]");
        Fault::at(defaults, name, sentence)
    };
    set.map(fault).chain(lists.map(of_jobs)).collect()
}

/// Whether a fault of a pool is at a default that the pool inherits.
pub(crate) fn is_at_default(fault: &Fault, defaults: &DeTable<'_>) -> bool {
    let mut values = defaults.iter().map(|(_, value)| value.span());
    values.any(|span| span.contains(&fault.span.start))
}
