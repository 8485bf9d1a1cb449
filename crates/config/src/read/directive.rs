//! One setting, one item: what a directive is, and how a table of settings is read with them.

use crate::suggest::{enumerate, nearest};
use std::path::Path;

use toml::de::DeTable;

use crate::mistakes::{Fault, quoted};
use crate::read::directives;
use crate::read::value::{Value, Wrong};

/// A setting: the one place that knows its name, default, unit, documentation and parser.
///
/// `T` is what the setting is read into.
pub struct Directive<T> {
    /// The name in the configuration file.
    pub name: &'static str,
    /// What holds when the setting is absent.
    pub default: Preset,
    /// What a bare number counts; empty where there are no numbers.
    pub unit: &'static str,
    /// What the value may be, as it follows the word "expected".
    pub takes: &'static str,
    /// What a change of the setting needs to take effect.
    pub needs: Needs,
    /// What the setting does, for the reference.
    pub doc: &'static str,
    /// A value as it stands after `name =`.
    pub example: &'static str,
    /// Reads the value into its place.
    pub read: fn(&mut T, &Value<'_>) -> Result<(), Wrong>,
}

/// What holds when a setting is absent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// The same as this value, in TOML.
    Value(&'static str),
    /// Something that no value says, in words.
    Words(&'static str),
}

/// What a change of a setting needs to take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// A reload, which applies it to the running processes.
    Live,
    /// A reload, which gives the pool a new zygote, and with it new workers.
    NewZygote,
    /// A restart of the whole program.
    Restart,
}

impl std::fmt::Display for Needs {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Needs::Live => "a reload",
            Needs::NewZygote => "a reload, which starts the pool's PHP anew",
            Needs::Restart => "a restart",
        })
    }
}

/// Reads all settings of `table` into `target`. Names in `others` are somebody else's to read.
pub(crate) fn read_table<T>(
    directives: &[Directive<T>],
    others: &[&'static str],
    section: &str,
    table: &DeTable<'_>,
    base: &Path,
    target: &mut T,
) -> Vec<Fault> {
    let known = directives.iter().map(|directive| directive.name);
    let known: Vec<_> = known.chain(others.iter().copied()).collect();
    let unknown = table
        .iter()
        .filter(|(key, _)| !known.contains(&key.get_ref().as_ref()));
    let mut faults: Vec<_> = unknown
        .map(|(key, _)| {
            let sentence = unknown_setting(key.get_ref(), section, &known);
            Fault::new(key.span(), sentence)
        })
        .collect();
    faults.extend(read_known(directives, table, base, target));
    faults
}

/// Reads those settings of `table` into `target` that are among `directives`.
pub(crate) fn read_known<T>(
    directives: &[Directive<T>],
    table: &DeTable<'_>,
    base: &Path,
    target: &mut T,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (key, value) in table.iter() {
        let name = key.get_ref().as_ref();
        let Some(directive) = directives.iter().find(|directive| directive.name == name) else {
            continue;
        };
        let value = Value::of(directive.name, directive.takes, value, base);
        if let Err(wrong) = (directive.read)(target, &value) {
            faults.extend(wrong.into_faults());
        }
    }
    faults
}

fn unknown_setting(name: &str, section: &str, known: &[&'static str]) -> String {
    let what = format!("unknown setting `{}` {section}", quoted(name));
    if let Some(home) = directives::section_of(name) {
        return format!("{what}; it belongs in {home}");
    }
    match nearest(name, known.iter().copied()) {
        Some(nearest) => format!("{what}; did you mean `{nearest}`?"),
        None => format!(
            "{what}; expected one of {}",
            enumerate(known.iter().copied())
        ),
    }
}
