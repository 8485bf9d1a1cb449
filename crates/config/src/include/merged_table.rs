//! The tables of all files of a configuration as one table.

use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use crate::mistakes::{Fault, quoted};
use crate::read::directives;
use crate::read::syntax::syntax_faults;
use crate::sources::Sources;

/// The files of a configuration as one table.
pub(crate) struct Merged<'s> {
    /// The table of the first file with the pools, sites and certificates of the others. All
    /// positions are those among all files.
    pub(crate) table: DeTable<'s>,
    /// What an included file may not contain.
    pub(crate) faults: Vec<Fault>,
}

/// Merges the tables of all files, unless the files could not be gathered, with these faults.
///
/// # Errors
/// Those, and what is no TOML.
pub(crate) fn merged(sources: &Sources, gathered: Vec<Fault>) -> Result<Merged<'_>, Vec<Fault>> {
    let mut tables = Vec::new();
    let mut faults = gathered;
    for file in sources.files() {
        let (table, errors) = DeTable::parse_recoverable(&file.text);
        for fault in syntax_faults(&errors, &file.text) {
            let span = fault.span.start + file.start..fault.span.end + file.start;
            faults.push(Fault::new(span, fault.sentence));
        }
        tables.push(moved_table(table.into_inner(), file.start));
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let mut tables = tables.into_iter();
    let mut merger = Merger { sources, table: tables.next().unwrap_or_default(), faults };
    tables.for_each(|table| merger.merge(table));
    Ok(Merged { table: merger.table, faults: merger.faults })
}

type Key<'s> = Spanned<std::borrow::Cow<'s, str>>;

struct Merger<'s> {
    sources: &'s Sources,
    table: DeTable<'s>,
    faults: Vec<Fault>,
}

impl<'s> Merger<'s> {
    fn fault(&mut self, at: usize, sentence: String) {
        self.faults.push(Fault::new(at..at, sentence));
    }

    /// Adds the table of an included file.
    fn merge(&mut self, included: DeTable<'s>) {
        for (key, value) in included {
            match (key.get_ref().as_ref(), value.get_ref()) {
                ("include", _) => self.include(&value),
                ("sites", DeValue::Array(_)) => self.append(key, value),
                ("pools", DeValue::Table(_)) => self.pools(key, value),
                ("tls", DeValue::Table(_)) => self.tls(key, value),
                _ => self.misplaced(&key),
            }
        }
    }

    /// Faults of the type of an `include`, whose patterns have been followed already.
    fn include(&mut self, value: &Spanned<DeValue<'s>>) {
        let read = directives::global::include(value, self.sources);
        self.faults.extend(read);
    }

    /// Appends the items of an array to the array of this name. Where the first file has another
    /// value, that is a fault of the first file.
    fn append(&mut self, key: Key<'s>, value: Spanned<DeValue<'s>>) {
        match self.table.get_mut(key.get_ref().as_ref()).map(Spanned::get_mut) {
            None => drop(self.table.insert(key, value)),
            Some(DeValue::Array(all)) => items(value).for_each(|item| all.push(item)),
            Some(_) => {}
        }
    }

    fn pools(&mut self, key: Key<'s>, value: Spanned<DeValue<'s>>) {
        let Some(DeValue::Table(all)) = self.table.get_mut("pools").map(Spanned::get_mut) else {
            if !self.table.contains_key("pools") {
                self.table.insert(key, value);
            }
            return;
        };
        let DeValue::Table(pools) = value.into_inner() else { return };
        for (name, pool) in pools {
            let first = all.get_key_value(name.get_ref().as_ref()).map(|(first, _)| first.span());
            if let Some(first) = first {
                let sentence = format!(
                    "the pool `{}` is defined at {} already; rename one of the two, or leave it \
                     out",
                    quoted(name.get_ref()),
                    self.sources.place(first.start)
                );
                self.faults.push(Fault::new(name.span(), sentence));
            } else {
                all.insert(name, pool);
            }
        }
    }

    /// Adds the certificates of an included `[tls]`, which has nothing else.
    fn tls(&mut self, key: Key<'s>, value: Spanned<DeValue<'s>>) {
        let span = value.span();
        let DeValue::Table(settings) = value.into_inner() else { return };
        for (name, value) in settings {
            if name.get_ref() != "certificates" {
                let sentence = format!(
                    "`{}` of [tls] is a setting of the whole server; write it in {}, and here \
                     `certificates` alone",
                    quoted(name.get_ref()),
                    self.first_file()
                );
                self.fault(name.span().start, sentence);
                continue;
            }
            if !self.table.contains_key("tls") {
                let empty = DeValue::Table(DeTable::new());
                self.table.insert(key.clone(), Spanned::new(span.clone(), empty));
            }
            if let Some(DeValue::Table(tls)) = self.table.get_mut("tls").map(Spanned::get_mut) {
                let all = tls.remove("certificates").into_iter().flat_map(items);
                let mut array = DeArray::new();
                let at = value.span();
                all.chain(items(value)).for_each(|item| array.push(item));
                tls.insert(name, Spanned::new(at, DeValue::Array(array)));
            }
        }
    }

    fn misplaced(&mut self, key: &Key<'s>) {
        let name = quoted(key.get_ref());
        let of_server = (directives::TOP.settings)().contains(&name.as_str());
        let sentence = match name.as_str() {
            "sites" => {
                "`sites` is not a list of sites; write [[sites]], with two brackets, before the \
                 settings of each site"
                    .to_owned()
            }
            "pools" | "tls" => {
                let section = if name == "tls" { "[tls]" } else { "[pools.NAME]" };
                format!("`{name}` is no table; write a section {section}")
            }
            name if of_server || name == "pool_defaults" => format!(
                "`{name}` is a setting of the whole server; write it in {}, which includes this \
                 file",
                self.first_file()
            ),
            name => format!(
                "unknown setting `{name}` in an included file; expected `include`, [pools.NAME], \
                 [[sites]], or [tls] with `certificates`"
            ),
        };
        self.fault(key.span().start, sentence);
    }

    fn first_file(&self) -> String {
        self.sources.at(0).path.display().to_string()
    }
}

/// The items of an array; another value is one item.
fn items<'s>(value: Spanned<DeValue<'s>>) -> impl Iterator<Item = Spanned<DeValue<'s>>> {
    let is_array = value.get_ref().is_array();
    let (array, single) = match value {
        value if is_array => (Some(value.into_inner()), None),
        value => (None, Some(value)),
    };
    let array = array.into_iter().flat_map(|array| match array {
        DeValue::Array(array) => array.to_vec(),
        _ => Vec::new(),
    });
    array.chain(single)
}

/// The table with `by` added to all positions.
fn moved_table(table: DeTable<'_>, by: usize) -> DeTable<'_> {
    if by == 0 {
        return table;
    }
    let moved = table.into_iter().map(|(key, value)| {
        let span = key.span().start + by..key.span().end + by;
        (Spanned::new(span, key.into_inner()), moved(value, by))
    });
    moved.collect()
}

fn moved(value: Spanned<DeValue<'_>>, by: usize) -> Spanned<DeValue<'_>> {
    let span = value.span().start + by..value.span().end + by;
    let value = match value.into_inner() {
        DeValue::Table(table) => DeValue::Table(moved_table(table, by)),
        DeValue::Array(array) => {
            let mut all = DeArray::new();
            array.iter().cloned().for_each(|item| all.push(moved(item, by)));
            DeValue::Array(all)
        }
        scalar => scalar,
    };
    Spanned::new(span, value)
}
