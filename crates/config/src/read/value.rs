//! Reading one value: its type, its unit, and the error text.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toml::Spanned;
use toml::de::DeValue;

use crate::mistakes::{Fault, plain_path, quoted};
use crate::on_disk::{directory_problem, file_problem};
use crate::read::units::{self, MAX_DURATION, MAX_SIZE_BYTES};
use crate::sources::Sources;
use crate::suggest::enumerate;

/// Most items of an array; each is compared with those before it.
const MAX_ITEMS: usize = 10_000;

/// A value in the file, with the context of its error texts.
#[derive(Debug)]
pub struct Value<'a> {
    name: Cow<'a, str>,
    /// "is" for the value of a setting, "has" for an item of it.
    verb: &'static str,
    takes: &'static str,
    /// The files, whose directories are the bases of relative paths.
    sources: &'a Sources,
    value: &'a Spanned<DeValue<'a>>,
}

/// Why a value is rejected: one or more faults.
#[derive(Debug)]
pub struct BadValue(Vec<Fault>);

impl BadValue {
    pub(crate) fn into_faults(self) -> Vec<Fault> {
        self.0
    }
}

/// An entry of a table, and the position of its name.
pub(crate) struct TableEntry<'a> {
    pub(crate) name: String,
    pub(crate) span: Range<usize>,
    pub(crate) value: Value<'a>,
}

impl<'a> Value<'a> {
    pub(crate) fn of(
        name: &'a str,
        takes: &'static str,
        value: &'a Spanned<DeValue<'a>>,
        sources: &'a Sources,
    ) -> Value<'a> {
        Value { name: Cow::Borrowed(name), verb: "is", takes, sources, value }
    }

    pub(crate) fn span(&self) -> Range<usize> {
        self.value.span()
    }

    /// The fault of a value of the wrong type or out of range.
    pub(crate) fn wrong(&self) -> BadValue {
        let (name, verb, takes) = (quoted(&self.name), self.verb, self.takes);
        self.because(format!("`{name}` {verb} {}; expected {takes}", self.found()))
    }

    /// A fault with its reason: `why` continues "`name` is 5, which".
    pub(crate) fn refused(&self, why: &str) -> BadValue {
        let (name, verb) = (quoted(&self.name), self.verb);
        self.because(format!("`{name}` {verb} {}, which {why}", self.found()))
    }

    pub(crate) fn because(&self, sentence: String) -> BadValue {
        BadValue(vec![Fault::new(self.span(), sentence)])
    }

    fn found(&self) -> String {
        match self.value.get_ref() {
            DeValue::String(text) => format!("the string \"{}\"", quoted(text)),
            DeValue::Integer(number) => format!("the number {}", quoted(&number.to_string())),
            DeValue::Float(number) => format!("the number {}", quoted(number.as_str())),
            DeValue::Boolean(value) => value.to_string(),
            DeValue::Datetime(_) => "a date or time".to_owned(),
            DeValue::Array(items) if items.is_empty() => "an empty array".to_owned(),
            DeValue::Array(_) => "an array".to_owned(),
            DeValue::Table(_) => "a table".to_owned(),
        }
    }

    pub(crate) fn is_table(&self) -> bool {
        self.value.get_ref().is_table()
    }

    fn integer(&self) -> Option<i64> {
        let integer = self.value.get_ref().as_integer()?;
        i64::from_str_radix(integer.as_str(), integer.radix()).ok()
    }

    /// A string without NUL, since it may be passed to C.
    pub(crate) fn text(&self) -> Result<&'a str, BadValue> {
        let text = self.value.get_ref().as_str().ok_or_else(|| self.wrong())?;
        if text.contains('\0') {
            return Err(self.refused("holds a NUL character; leave it out"));
        }
        Ok(text)
    }

    /// A string that `accept` converts.
    pub(crate) fn text_as<R>(&self, accept: impl Fn(&'a str) -> Option<R>) -> Result<R, BadValue> {
        accept(self.text()?).ok_or_else(|| self.wrong())
    }

    /// A secret string, which no message shows.
    pub(crate) fn secret<R>(&self, accept: impl Fn(&'a str) -> Option<R>) -> Result<R, BadValue> {
        let text = self.value.get_ref().as_str();
        text.and_then(accept).ok_or_else(|| {
            let value = self.value.get_ref();
            let is_shown = !value.is_str() && !value.is_integer() && !value.is_float();
            if is_shown {
                return self.wrong();
            }
            let (name, takes) = (quoted(&self.name), self.takes);
            let sentence = format!("`{name}` is something else, not shown here; expected {takes}");
            self.because(sentence)
        })
    }

    pub(crate) fn boolean(&self) -> Result<bool, BadValue> {
        self.value.get_ref().as_bool().ok_or_else(|| self.wrong())
    }

    /// A whole number from `least` to `most`, both included.
    pub(crate) fn count(&self, least: u32, most: u32) -> Result<u32, BadValue> {
        let number = self.integer().and_then(|number| u32::try_from(number).ok());
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| self.wrong())
    }

    /// A whole number from `least` to `most`, both included, which may be negative.
    pub(crate) fn signed(&self, least: i32, most: i32) -> Result<i32, BadValue> {
        let number = self.integer().and_then(|number| i32::try_from(number).ok());
        number.filter(|number| (least..=most).contains(number)).ok_or_else(|| self.wrong())
    }

    /// A number with or without decimals, in thousandths (rounded) from `least` to `most`.
    pub(crate) fn thousandths(&self, least: u32, most: u32) -> Result<u32, BadValue> {
        let number = match self.value.get_ref() {
            DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
            _ => self.integer().map(|number| number as f64),
        };
        let thousandths = number.map(|number| (number * 1000.0).round());
        thousandths
            .filter(|number| (f64::from(least)..=f64::from(most)).contains(number))
            .map(|number| number as u32)
            .ok_or_else(|| self.wrong())
    }

    /// A user or a group: a name, or a number.
    pub(crate) fn account(&self) -> Result<String, BadValue> {
        if let Some(number) = self.integer() {
            return u32::try_from(number).map(|id| id.to_string()).map_err(|_| self.wrong());
        }
        self.text_as(|text| {
            let good = |c: char| !c.is_whitespace() && !c.is_control() && !":/,".contains(c);
            (!text.is_empty() && text.chars().all(good)).then(|| text.to_owned())
        })
    }

    /// A duration: a string with a unit, or a number of seconds.
    pub(crate) fn duration(&self) -> Result<Duration, BadValue> {
        let duration = match self.integer() {
            Some(seconds) => u64::try_from(seconds).ok().map(Duration::from_secs),
            None => match units::duration(self.text()?) {
                None => return Err(self.unit_or_wrong(units::wrong_duration)),
                duration => duration,
            },
        };
        duration.filter(|duration| *duration <= MAX_DURATION).ok_or_else(|| self.wrong())
    }

    /// The fault of a text that is no number with a unit.
    fn unit_or_wrong(&self, why: fn(&str) -> Option<String>) -> BadValue {
        let why = self.value.get_ref().as_str().and_then(why);
        why.map_or_else(|| self.wrong(), |why| self.refused(&why))
    }

    /// A size in bytes from `least` on: a string with a unit, or a number of bytes.
    pub(crate) fn size(&self, least: u64) -> Result<u64, BadValue> {
        let size = match self.integer() {
            Some(bytes) => u64::try_from(bytes).ok(),
            None => match units::size(self.text()?) {
                None => return Err(self.unit_or_wrong(units::wrong_size)),
                size => size,
            },
        };
        size.filter(|size| (least..=MAX_SIZE_BYTES).contains(size)).ok_or_else(|| self.wrong())
    }

    /// An absolute path; a relative one starts from the directory of the file.
    pub(crate) fn path(&self) -> Result<PathBuf, BadValue> {
        let text = self.text_as(|text| (!text.is_empty()).then_some(text))?;
        if text.starts_with('$') || text == "~" || text.starts_with("~/") {
            let sign = &text[..1];
            return Err(self.refused(&format!(
                "starts with `{sign}`, and that is not expanded; expected the whole path, such as \
                 \"/home/anna/site\""
            )));
        }
        let base = &self.sources.at(self.span().start).folder;
        let path = base.join(text);
        if path.to_str().is_none() {
            let base = base.display();
            return Err(self.refused(&format!("is below {base}, whose name is not UTF-8")));
        }
        Ok(path)
    }

    /// The path of a log. Words that turn a log on in other programs are none.
    pub(crate) fn log_path(&self) -> Result<PathBuf, BadValue> {
        match self.text()? {
            switch @ ("on" | "yes" | "true" | "no" | "false") => Err(self.refused(&format!(
                "is no path; expected one such as \"log/access.log\", or \"./{switch}\" for a file \
                 of that name"
            ))),
            _ => self.path(),
        }
    }

    /// The path of an existing directory.
    pub(crate) fn directory(&self) -> Result<PathBuf, BadValue> {
        self.existing(directory_problem)
    }

    /// The path of an existing file.
    pub(crate) fn file(&self) -> Result<PathBuf, BadValue> {
        self.existing(file_problem)
    }

    fn existing(&self, problem: fn(&Path) -> Option<String>) -> Result<PathBuf, BadValue> {
        let path = self.path()?;
        match problem(&path) {
            None => Ok(path),
            Some(problem) => {
                let (name, path) = (quoted(&self.name), plain_path(&path));
                Err(self.because(format!("`{name}` is {path}, but it {problem}")))
            }
        }
    }

    /// The items of an array, each converted by `read`; a single value stands for an array of one.
    /// An empty array and duplicates are faults.
    pub(crate) fn each<R: PartialEq>(
        &self,
        read: impl Fn(&Value<'a>) -> Result<R, BadValue>,
    ) -> Result<Vec<R>, BadValue> {
        let Some(items) = self.value.get_ref().as_array() else {
            return Ok(vec![read(self)?]);
        };
        if items.is_empty() {
            return Err(self.wrong());
        }
        if items.len() > MAX_ITEMS {
            return Err(self.refused(&format!("has more than {MAX_ITEMS} items")));
        }
        let mut good = Vec::new();
        let mut faults = Vec::new();
        for item in items {
            let item = Value { name: self.name.clone(), verb: "has", value: item, ..*self };
            match read(&item) {
                Ok(value) if good.contains(&value) => {
                    faults.extend(item.refused("is there twice; leave one out").0);
                }
                Ok(value) => good.push(value),
                Err(wrong) => faults.extend(wrong.0),
            }
        }
        if faults.is_empty() { Ok(good) } else { Err(BadValue(faults)) }
    }

    /// The items of an array in their order, each converted by `read`; they may be equal.
    pub(crate) fn items<R>(
        &self,
        read: impl Fn(&Value<'a>) -> Result<R, BadValue>,
    ) -> Result<Vec<R>, BadValue> {
        let items = self.value.get_ref().as_array().ok_or_else(|| self.wrong())?;
        if items.len() > MAX_ITEMS {
            return Err(self.refused(&format!("has more than {MAX_ITEMS} items")));
        }
        let item = |value| Value { name: self.name.clone(), verb: "has", value, ..*self };
        items.iter().map(|value| read(&item(value))).collect()
    }

    /// The entries of a table, each with `takes` as its accepted values.
    pub(crate) fn entries(&self, takes: &'static str) -> Result<Vec<TableEntry<'a>>, BadValue> {
        let table = self.value.get_ref().as_table().ok_or_else(|| self.wrong())?;
        let entry = |(key, value): (&'a Spanned<_>, &'a Spanned<DeValue<'a>>)| {
            let name: &Cow<'a, str> = key.get_ref();
            let full_name = Cow::Owned(format!("{}.{name}", self.name));
            let value = Value { name: full_name, verb: "is", takes, sources: self.sources, value };
            TableEntry { name: name.to_string(), span: key.span(), value }
        };
        Ok(table.iter().map(entry).collect())
    }

    /// A string, a number or a boolean as the text of a php.ini value.
    pub(crate) fn ini_value(&self) -> Result<String, BadValue> {
        match self.value.get_ref() {
            DeValue::Boolean(value) => Ok(u8::from(*value).to_string()),
            DeValue::Integer(_) => {
                self.integer().map(|number| number.to_string()).ok_or_else(|| self.wrong())
            }
            DeValue::Float(number) => {
                let finite = number.as_str().parse::<f64>().is_ok_and(f64::is_finite);
                finite.then(|| number.as_str().to_owned()).ok_or_else(|| self.wrong())
            }
            _ => self.text().map(str::to_owned),
        }
    }

    /// A switch like php-fpm's `php_flag`, as `1` or `0` (`fpm_conf_set_boolean`).
    pub(crate) fn ini_flag(&self) -> Result<String, BadValue> {
        let flag = match self.value.get_ref() {
            DeValue::Boolean(value) => Some(*value),
            DeValue::Integer(_) => match self.integer() {
                Some(0) => Some(false),
                Some(1) => Some(true),
                _ => None,
            },
            _ => match self.text()? {
                "1" | "yes" | "true" | "on" => Some(true),
                "0" | "no" | "none" | "false" | "off" | "" => Some(false),
                _ => None,
            },
        };
        flag.map(|flag| u8::from(flag).to_string()).ok_or_else(|| self.wrong())
    }
}

/// A table with fixed names, such as one item of a list of rules.
pub(crate) struct Record<'a> {
    fields: Vec<TableEntry<'a>>,
    whole: Value<'a>,
}

impl<'a> Value<'a> {
    /// The fields of a table, each with its accepted values. Any other name is a fault.
    pub(crate) fn record(
        &self,
        known: &[(&'static str, &'static str)],
    ) -> Result<Record<'a>, BadValue> {
        let mut fields = self.entries(self.takes)?;
        let mut faults = Vec::new();
        for field in &mut fields {
            match known.iter().find(|(name, _)| *name == field.name) {
                Some((_, takes)) => field.value.takes = takes,
                None => {
                    let names = enumerate(known.iter().map(|(name, _)| *name));
                    let wrong = field.misnamed(&format!("is unknown; expected one of {names}"));
                    faults.extend(wrong.0);
                }
            }
        }
        let whole = Value { name: self.name.clone(), ..*self };
        if faults.is_empty() { Ok(Record { fields, whole }) } else { Err(BadValue(faults)) }
    }
}

impl<'a> Record<'a> {
    /// The field of this name, if it is set.
    pub(crate) fn get(&self, name: &str) -> Option<&Value<'a>> {
        let field = self.fields.iter().find(|field| field.name == name);
        field.map(|field| &field.value)
    }

    /// The field of this name, which is required.
    pub(crate) fn need(&self, name: &str) -> Result<&Value<'a>, BadValue> {
        let lacks = || self.whole.refused(&format!("lacks `{name}`"));
        self.get(name).ok_or_else(lacks)
    }
}

/// Runs `read` for each of `items` and collects their faults.
pub(crate) fn for_each<I>(
    items: impl IntoIterator<Item = I>,
    mut read: impl FnMut(I) -> Result<(), BadValue>,
) -> Result<(), BadValue> {
    let mut faults = Vec::new();
    for item in items {
        if let Err(wrong) = read(item) {
            faults.extend(wrong.0);
        }
    }
    if faults.is_empty() { Ok(()) } else { Err(BadValue(faults)) }
}

impl TableEntry<'_> {
    /// A fault with this sentence, at the entry's name.
    pub(crate) fn fault(&self, sentence: String) -> BadValue {
        BadValue(vec![Fault::new(self.span.clone(), sentence)])
    }

    /// The fault of an entry with an invalid name; `why` continues the name.
    pub(crate) fn misnamed(&self, why: &str) -> BadValue {
        self.fault(format!("`{}` {why}", quoted(&self.value.name)))
    }
}
