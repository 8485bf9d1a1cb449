//! Settings in environment variables, for containers: `MAITRED_LISTEN` is `listen` at the top of
//! the file, `MAITRED_POOL_PM` is `pm` of every pool, and so on. They replace those of the file.

use std::borrow::Cow;
use std::path::PathBuf;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistakes::{Fault, Mistake, Mistakes};
use crate::model::config::IMPLICIT_POOL;
use crate::otel_settings::{OtelSetting, otel_settings};
use crate::read::directive::SectionTable;
use crate::read::directives::{CACHE, POOL, SITE, TLS, TOP, TRACES, takes_decimals};
use crate::suggest::nearest;

/// The start of all names.
const PREFIX: &str = "MAITRED_";

/// Variables of maitred with another meaning: the log level, and the program that tests run.
const OTHERS: [&str; 2] = ["MAITRED_LOG", "MAITRED_BIN"];

/// Whether a variable of this name replaces settings of the file.
pub fn is_env_setting(name: &str) -> bool {
    name.starts_with(PREFIX) && !OTHERS.contains(&name)
}

/// The setting that no variable has, since files are read before variables.
const INCLUDE: &str = "include";

/// The tables that a variable sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tables {
    Top,
    Tls,
    Traces,
    /// Of a variable of OpenTelemetry: what an existing `[traces]` lacks.
    TracesLeftOut,
    EveryPool,
    EverySite,
    EveryCache,
}

impl Tables {
    /// The tables of a name without [`PREFIX`], the settings they take, and the setting's name.
    fn of(name: &str) -> (Tables, SectionTable, &str) {
        let by_start = [
            ("POOL_", Tables::EveryPool, POOL),
            ("SITE_", Tables::EverySite, SITE),
            ("CACHE_", Tables::EveryCache, CACHE),
            ("TLS_", Tables::Tls, TLS),
            ("TRACES_", Tables::Traces, TRACES),
        ];
        for (start, tables, section) in by_start {
            if let Some(setting) = name.strip_prefix(start)
                // `cache_memory` is a setting at the top of the file.
                && !(TOP.settings)().contains(&name.to_lowercase().as_str())
            {
                return (tables, section, setting);
            }
        }
        (Tables::Top, TOP, name)
    }
}

/// A setting in a variable.
#[derive(Debug, Clone)]
struct EnvSetting {
    /// The name of the variable.
    name: String,
    tables: Tables,
    setting: String,
    value: String,
    /// `x = VALUE`, in which TOML finds the type of the value.
    line: String,
}

/// The settings in a process's environment.
#[derive(Debug, Clone, Default)]
pub struct Environment(Vec<EnvSetting>);

impl Environment {
    /// Those of this process.
    ///
    /// # Errors
    /// A name that is nearly one of a setting, which is a misspelling.
    pub fn of_process() -> Result<Environment, Mistakes> {
        let all = std::env::vars_os();
        Self::of(all.filter_map(|(name, value)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        }))
    }

    /// Those among `variables`.
    ///
    /// # Errors
    /// As [`of_process`](Self::of_process).
    pub fn of(variables: impl Iterator<Item = (String, String)>) -> Result<Environment, Mistakes> {
        let all: Vec<(String, String)> = variables.collect();
        let get = |name: &str| {
            let found = all.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.clone())
        };
        let further: Vec<EnvSetting> = otel_settings(get).into_iter().map(Into::into).collect();
        let own = all.into_iter().filter(|(name, _)| is_env_setting(name));
        let mut found = Vec::new();
        for (name, value) in own {
            let (tables, section, setting) = Tables::of(&name[PREFIX.len()..]);
            let setting = setting.to_lowercase();
            let known = (section.settings)();
            if setting == INCLUDE {
                let sentence = "it is a setting of files alone; write `include` in one".to_owned();
                return Err(Mistakes::about(&place(&name), sentence));
            }
            if known.contains(&setting.as_str()) {
                let line = format!("x = {value}");
                found.push(EnvSetting { tables, setting, value, line, name });
            } else if let Some(meant) = nearest(&setting, known.iter().copied()) {
                let start = &name[..name.len() - setting.len()];
                let sentence =
                    format!("it is no setting; did you mean {start}{}?", meant.to_uppercase());
                return Err(Mistakes::about(&place(&name), sentence));
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found.extend(further);
        Ok(Environment(found))
    }

    /// Whether there are none, but for those of OpenTelemetry.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|setting| setting.tables == Tables::TracesLeftOut)
    }

    /// Puts the settings into the file's table. Their positions are beyond the text, whose length
    /// is `end`: the n-th variable is at `end + n`, counted from 1.
    pub(crate) fn put_into<'t>(&'t self, table: &mut DeTable<'t>, end: usize) {
        for (index, variable) in self.0.iter().enumerate() {
            let at = end + index + 1;
            let put = |table: &mut DeTable<'t>| {
                let key = Spanned::new(at..at, Cow::Borrowed(variable.setting.as_str()));
                table.insert(key, Spanned::new(at..at, variable.scalar()));
            };
            let top = std::iter::once(&mut *table);
            match variable.tables {
                Tables::Top => top.for_each(put),
                Tables::Tls => top.filter_map(|top| subtable(top, "tls", at)).for_each(put),
                Tables::Traces => {
                    top.filter_map(|top| subtable(top, "traces", at)).for_each(put);
                }
                Tables::TracesLeftOut => {
                    let traces = table.get_mut("traces").and_then(as_table);
                    let is_set =
                        |table: &&mut DeTable<'t>| table.contains_key(variable.setting.as_str());
                    traces.into_iter().filter(|table| !is_set(table)).for_each(put);
                }
                Tables::EveryPool => pools(table, at).for_each(put),
                Tables::EverySite => sites(table).for_each(put),
                Tables::EveryCache => {
                    sites(table).filter_map(|site| subtable(site, "cache", at)).for_each(put);
                }
            }
        }
    }

    /// A fault in one of the variables; the others come back.
    pub(crate) fn locate(&self, fault: Fault, end: usize) -> Result<Mistake, Fault> {
        let index = fault.span.start.checked_sub(end + 1);
        let Some(variable) = index.and_then(|index| self.0.get(index)) else {
            return Err(fault);
        };
        Ok(Mistake { file: place(&variable.name), place: None, sentence: fault.sentence })
    }
}

impl From<OtelSetting> for EnvSetting {
    fn from(of: OtelSetting) -> EnvSetting {
        // Without a line, the value is text.
        let line = if of.is_text { String::new() } else { format!("x = {}", of.value) };
        EnvSetting {
            name: of.variable.to_owned(),
            tables: Tables::TracesLeftOut,
            setting: of.setting.to_owned(),
            value: of.value,
            line,
        }
    }
}

impl EnvSetting {
    /// A number, a boolean or a quoted string of TOML, or else the value as a string.
    fn scalar(&self) -> DeValue<'_> {
        let (table, errors) = DeTable::parse_recoverable(&self.line);
        let value = table.into_inner().remove("x").map(Spanned::into_inner);
        match value.filter(|_| errors.is_empty()) {
            Some(DeValue::Array(_) | DeValue::Table(_) | DeValue::Datetime(_)) | None => {
                DeValue::String(Cow::Borrowed(&self.value))
            }
            Some(DeValue::Float(_)) if !takes_decimals(&self.setting) => {
                DeValue::String(Cow::Borrowed(&self.value))
            }
            Some(scalar) => scalar,
        }
    }
}

/// The place of a mistake in a variable.
fn place(name: &str) -> PathBuf {
    PathBuf::from(format!("environment variable {name}"))
}

fn as_table<'a, 't>(value: &'a mut Spanned<DeValue<'t>>) -> Option<&'a mut DeTable<'t>> {
    match value.get_mut() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// The table of this name, which is added if there is none. None where the name has another value,
/// which is a mistake of the file.
fn subtable<'a, 't>(
    table: &'a mut DeTable<'t>,
    name: &'static str,
    at: usize,
) -> Option<&'a mut DeTable<'t>> {
    if !table.contains_key(name) {
        let empty = Spanned::new(at..at, DeValue::Table(DeTable::default()));
        table.insert(Spanned::new(at..at, Cow::Borrowed(name)), empty);
    }
    table.get_mut(name).and_then(as_table)
}

/// The tables of all pools; that of the implicit pool is added if there is none.
fn pools<'a, 't>(
    table: &'a mut DeTable<'t>,
    at: usize,
) -> impl Iterator<Item = &'a mut DeTable<'t>> {
    let mut pools = subtable(table, "pools", at);
    if let Some(pools) = pools.as_mut().filter(|pools| pools.is_empty()) {
        subtable(pools, IMPLICIT_POOL, at);
    }
    let all = pools.into_iter().flat_map(|pools| pools.iter_mut());
    all.filter_map(|(_, pool)| as_table(pool))
}

/// The tables of all sites.
fn sites<'a, 't>(table: &'a mut DeTable<'t>) -> impl Iterator<Item = &'a mut DeTable<'t>> {
    let all = table.get_mut("sites").and_then(|sites| match sites.get_mut() {
        DeValue::Array(sites) => Some(sites.iter_mut()),
        _ => None,
    });
    all.into_iter().flatten().filter_map(as_table)
}
