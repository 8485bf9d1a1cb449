//! Values as TOML.

/// A string: literal where it has a backslash and no quote, since that is how people write regular
/// expressions.
pub fn string(text: &str) -> String {
    let is_plain = |c: char| c != '\'' && !c.is_control();
    if text.contains('\\') && text.chars().all(is_plain) {
        return format!("'{text}'");
    }
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            '\n' => quoted += "\\n",
            '\t' => quoted += "\\t",
            letter if letter.is_control() => quoted += &format!("\\u{:04X}", u32::from(letter)),
            letter => quoted.push(letter),
        }
    }
    quoted + "\""
}

/// An array of strings.
pub fn strings<T: AsRef<str>>(all: impl IntoIterator<Item = T>) -> String {
    let all: Vec<String> = all.into_iter().map(|text| string(text.as_ref())).collect();
    format!("[{}]", all.join(", "))
}

/// A key: bare where it may be.
pub fn key(name: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    match !name.is_empty() && name.chars().all(is_bare) {
        true => name.to_owned(),
        false => string(name),
    }
}

/// An inline table; each value is TOML already.
pub fn table<K: AsRef<str>>(fields: impl IntoIterator<Item = (K, String)>) -> String {
    let fields =
        fields.into_iter().map(|(name, value)| format!("{} = {value}", key(name.as_ref())));
    let fields: Vec<String> = fields.collect();
    format!("{{ {} }}", fields.join(", "))
}
