//! Names in messages: lists of them, and suggestions.

/// Longest unknown name that gets a suggestion, in bytes.
const MAX_COMPARED_BYTES: usize = 64;

/// The name among `known` that `name` is most likely a misspelling of.
pub(crate) fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    if name.len() > MAX_COMPARED_BYTES {
        return None;
    }
    // A third of the letters may be wrong: more, and short names resemble everything.
    let far = name.chars().count().div_ceil(3).min(4);
    known
        .map(|candidate| (strsim::damerau_levenshtein(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= far)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The names as a list for a sentence.
pub(crate) fn enumerate<'k>(names: impl Iterator<Item = &'k str>) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
}
