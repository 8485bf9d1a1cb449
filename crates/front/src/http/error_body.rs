//! Bodies of error responses.

pub(crate) const NOT_FOUND: &str = "There is no such page.";

pub(crate) const FORBIDDEN: &str = "This page is not for you.";

/// What a client may read of why it gets this status.
pub(crate) fn words(status: u16, why: &str) -> &str {
    match status {
        404 => NOT_FOUND,
        403 => FORBIDDEN,
        _ => why,
    }
}

/// The body of a response of our own: of a 404 or 403 always the same.
pub fn in_words(status: u16, why: &str) -> String {
    unfiltered(status, words(status, why))
}

/// The body of a response of our own, with the reason.
pub fn unfiltered(status: u16, why: &str) -> String {
    let phrase = maitred_http1::reason_phrase(status);
    format!("{status} {phrase}\n{why}\n")
}
