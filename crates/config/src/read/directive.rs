//! Directives: one item per setting, and reading a table with them.

use toml::de::DeTable;

use crate::mistakes::{Fault, quoted};
use crate::read::foreign::foreign_setting;
use crate::read::value::{BadValue, Value};
use crate::sources::Sources;
use crate::suggest::{enumerate, nearest};

/// A setting: the one place that knows its name, default, documentation and parser.
///
/// `T` is the struct with the setting's field.
pub struct Directive<T> {
    /// The name in the configuration file.
    pub name: &'static str,
    /// The default.
    pub default: Preset,
    /// The accepted values, as a continuation of "expected".
    pub takes: &'static str,
    /// The action that applies a change of the setting.
    pub needs: Needs,
    /// The paragraph in the reference.
    pub doc: &'static str,
    /// An example of a value, as written after `name =`.
    pub example: &'static str,
    /// Reads the value into its field.
    pub read: fn(&mut T, &Value<'_>) -> Result<(), BadValue>,
}

/// The default of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preset {
    /// This value, in TOML.
    Value(&'static str),
    /// A default that no value expresses, as text.
    Words(&'static str),
}

/// The action that applies a change of a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Needs {
    /// A reload; running processes apply it.
    Live,
    /// A reload that gives the pool a new zygote and new workers.
    NewZygote,
    /// A restart of the whole program.
    Restart,
}

impl std::fmt::Display for Needs {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Needs::Live => "a reload",
            Needs::NewZygote => "a reload, which restarts the pool's PHP",
            Needs::Restart => "a restart",
        })
    }
}

/// Puts a value that was read into its field.
pub(crate) fn store<R>(field: &mut R, value: Result<R, BadValue>) -> Result<(), BadValue> {
    *field = value?;
    Ok(())
}

/// A section of the file and the settings it takes.
pub(crate) struct SectionTable {
    /// The section, as messages name it.
    pub(crate) home: &'static str,
    /// The names of its settings.
    pub(crate) settings: fn() -> Vec<&'static str>,
    /// The names of the sections within it.
    pub(crate) subsections: &'static [&'static str],
}

impl SectionTable {
    /// A fault for each name in `table` that the section does not take. `title` continues
    /// "unknown setting `NAME`"; `home_of` finds the section of a misplaced setting.
    pub(crate) fn unknown(
        &self,
        table: &DeTable<'_>,
        title: &str,
        home_of: fn(&str) -> Option<&'static str>,
    ) -> Vec<Fault> {
        let mut known = (self.settings)();
        known.extend(self.subsections);
        let settings = table.iter().map(|(key, value)| (key.get_ref().as_ref(), key.span(), value));
        let unknown = settings.filter(|(name, ..)| !known.contains(name));
        let fault = |(name, span, value)| {
            let what = format!("unknown setting `{}` {title}", quoted(name));
            let names = || known.iter().copied();
            let home = home_of(name);
            if let Some(sentence) = foreign_setting(name, value).filter(|_| home.is_none()) {
                return Fault::new(span, sentence);
            }
            let sentence = match (home, nearest(name, names())) {
                (Some(home), _) => format!("{what}; it belongs in {home}"),
                (None, Some(nearest)) => format!("{what}; did you mean `{nearest}`?"),
                (None, None) => format!("{what}; expected one of {}", enumerate(names())),
            };
            Fault::new(span, sentence)
        };
        unknown.map(fault).collect()
    }
}

/// Reads the settings of `table` that are among `directives` into `target`. Relative paths start
/// from the directory of the file among `sources` in which they stand.
pub(crate) fn read_settings<T>(
    directives: &[Directive<T>],
    table: &DeTable<'_>,
    sources: &Sources,
    target: &mut T,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (key, value) in table.iter() {
        let name = key.get_ref().as_ref();
        let Some(directive) = directives.iter().find(|directive| directive.name == name) else {
            continue;
        };
        let value = Value::of(directive.name, directive.takes, value, sources);
        if let Err(wrong) = (directive.read)(target, &value) {
            faults.extend(wrong.into_faults());
        }
    }
    faults
}
