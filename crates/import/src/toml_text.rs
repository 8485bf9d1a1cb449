//! Values as TOML.

use toml_writer::{ToTomlKey, ToTomlValue};

/// A string: literal where it has a backslash and no quote, since that is how people write regular
/// expressions.
pub fn string(text: &str) -> String {
    text.to_toml_value()
}

/// An array of strings.
pub fn strings<T: AsRef<str>>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|text| string(text.as_ref())).collect();
    format!("[{}]", all.join(", "))
}

/// A key: bare where it may be.
pub fn key(name: &str) -> String {
    name.to_toml_key()
}

/// An inline table; each value is TOML already.
pub fn table<K: AsRef<str>>(fields: impl IntoIterator<Item = (K, String)>) -> String {
    let fields =
        fields.into_iter().map(|(name, value)| format!("{} = {value}", key(name.as_ref())));
    let fields: Vec<String> = fields.collect();
    format!("{{ {} }}", fields.join(", "))
}
