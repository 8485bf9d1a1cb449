//! The configuration to write: sections with settings and lists, each with its place.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::report::SourceLine;
use crate::toml_text;

/// A value as TOML, and the place that it comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    /// The value as TOML.
    pub toml: String,
    /// Where it comes from, or the reason for it.
    pub from: String,
}

impl Placed {
    /// A value from this place.
    pub fn new(toml: String, place: &SourceLine) -> Placed {
        Placed { toml, from: place.to_string() }
    }

    /// A value with a reason after its place.
    pub fn because(toml: String, place: &SourceLine, why: &str) -> Placed {
        Placed { toml, from: format!("{place}: {why}") }
    }
}

/// A section of the file. Settings stand in the order in which they were first set.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SectionDraft {
    settings: Vec<(String, Placed)>,
    lists: Vec<(String, Vec<Placed>)>,
    tables: Vec<(String, BTreeMap<String, Placed>)>,
}

impl SectionDraft {
    /// Sets a setting, once.
    pub fn set(&mut self, name: &str, value: Placed) {
        if !self.has(name) {
            self.settings.push((name.to_owned(), value));
        }
    }

    /// Whether a setting is set.
    pub fn has(&self, name: &str) -> bool {
        self.settings.iter().any(|(known, _)| known == name)
    }

    /// Sets a setting in place of its value.
    pub fn replace(&mut self, name: &str, value: Placed) {
        match self.settings.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) => *known = value,
            None => self.set(name, value),
        }
    }

    /// The value of a setting.
    pub fn value(&self, name: &str) -> Option<&str> {
        let found = self.settings.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.toml.as_str())
    }

    /// Adds an item to a list; an equal one counts once.
    pub fn push(&mut self, name: &str, item: Placed) {
        if let Some((_, items)) = self.lists.iter_mut().find(|(known, _)| known == name) {
            if items.iter().all(|known| known.toml != item.toml) {
                items.push(item);
            }
            return;
        }
        self.lists.push((name.to_owned(), vec![item]));
    }

    /// Changes each item of a list.
    pub fn change_list(&mut self, name: &str, change: impl Fn(&str) -> String) {
        let found = self.lists.iter_mut().find(|(known, _)| known == name);
        for item in found.into_iter().flat_map(|(_, items)| items) {
            item.toml = change(&item.toml);
        }
    }

    /// Sets an entry of a table, once.
    pub fn entry(&mut self, table: &str, name: &str, value: Placed) {
        let found = self.tables.iter().position(|(known, _)| known == table);
        let at = found.unwrap_or_else(|| {
            self.tables.push((table.to_owned(), BTreeMap::new()));
            self.tables.len() - 1
        });
        self.tables[at].1.entry(name.to_owned()).or_insert(value);
    }

    /// The value of an entry of a table.
    pub fn value_in(&self, table: &str, name: &str) -> Option<&str> {
        let (_, entries) = self.tables.iter().find(|(known, _)| known == table)?;
        entries.get(name).map(|value| value.toml.as_str())
    }

    /// The items of a list.
    pub fn list(&self, name: &str) -> &[Placed] {
        let found = self.lists.iter().find(|(known, _)| known == name);
        found.map(|(_, items)| items.as_slice()).unwrap_or_default()
    }

    /// Whether all values but those of `ignored` settings are those of another section, wherever
    /// they come from.
    pub fn has_values_of(&self, other: &SectionDraft, ignored: &[&str]) -> bool {
        let texts = |section: &SectionDraft| {
            let settings = section.settings.iter().filter(|(name, _)| !ignored.contains(&&**name));
            let mut all: Vec<String> =
                settings.map(|(name, value)| format!("{name} = {}", value.toml)).collect();
            for (name, items) in &section.lists {
                all.extend(items.iter().map(|item| format!("{name} + {}", item.toml)));
            }
            for (name, entries) in &section.tables {
                let entries = entries.iter();
                all.extend(entries.map(|(key, value)| format!("{name}.{key} = {}", value.toml)));
            }
            all.sort();
            all
        };
        texts(self) == texts(other)
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.settings.is_empty() && self.lists.is_empty() && self.tables.is_empty()
    }

    fn write(&self, out: &mut String) {
        for (name, value) in &self.settings {
            let _ = writeln!(out, "{name} = {}  # {}", value.toml, comment(&value.from));
        }
        for (name, items) in &self.lists {
            let _ = writeln!(out, "{name} = [");
            for item in items {
                let _ = writeln!(out, "  {},  # {}", item.toml, comment(&item.from));
            }
            let _ = writeln!(out, "]");
        }
        for (name, entries) in &self.tables {
            for (entry, value) in entries {
                let key = toml_text::key(entry);
                let _ = writeln!(out, "{name}.{key} = {}  # {}", value.toml, comment(&value.from));
            }
        }
    }
}

/// A comment has one line, and none of the characters that TOML forbids there.
fn comment(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PoolDraft {
    /// Its name.
    pub name: String,
    /// The old server's name of what became this pool, where another one may have the same here.
    pub origin: String,
    /// Where it comes from.
    pub from: String,
    /// Its settings.
    pub settings: SectionDraft,
}

/// A site.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SiteDraft {
    /// Where it comes from.
    pub from: String,
    /// Its settings.
    pub settings: SectionDraft,
    /// Its page cache, if it has one.
    pub cache: Option<SectionDraft>,
}

/// The whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileDraft {
    /// Top of the file.
    pub server: SectionDraft,
    /// The section `[tls]`; left out if empty.
    pub tls: SectionDraft,
    /// The pools.
    pub pools: Vec<PoolDraft>,
    /// The sites.
    pub sites: Vec<SiteDraft>,
}

impl FileDraft {
    /// Gives sites without PHP a pool: with several pools, each site has to name one.
    pub fn name_pools(&mut self) {
        let Some(first) = self.pools.first().filter(|_| self.pools.len() > 1) else { return };
        let toml = toml_text::string(&first.name);
        for site in &mut self.sites {
            if !site.settings.has("pool") && !site.settings.has("upstream") {
                let from = "not used".to_owned();
                site.settings.set("pool", Placed { toml: toml.clone(), from });
            }
        }
    }

    /// The file as TOML. `origin` is what it was made of.
    pub fn to_toml(&self, origin: &str) -> String {
        let mut out = format!("# Made by `maitred import` of {}.\n", comment(origin));
        out += "# The comment beside each part says where it comes from.\n\n";
        self.server.write(&mut out);
        if !self.tls.is_empty() {
            out += "\n[tls]\n";
            self.tls.write(&mut out);
        }
        for pool in &self.pools {
            let name = toml_text::key(&pool.name);
            let _ = writeln!(out, "\n[pools.{name}]  # {}", comment(&pool.from));
            pool.settings.write(&mut out);
        }
        for site in &self.sites {
            let _ = writeln!(out, "\n[[sites]]  # {}", comment(&site.from));
            site.settings.write(&mut out);
            if let Some(cache) = &site.cache {
                out += "\n[sites.cache]\n";
                cache.write(&mut out);
            }
        }
        out
    }
}
