//! Bodies of error responses.

pub(crate) const NOT_FOUND: &str = "There is no such page.";

pub(crate) const FORBIDDEN: &str = "Access to this page is denied.";

/// The reason that a client may see for this status.
pub(crate) fn words(status: u16, why: &str) -> &str {
    match status {
        404 => NOT_FOUND,
        403 => FORBIDDEN,
        _ => why,
    }
}

/// The body of an error response; for 404 and 403 without the reason.
pub fn in_words(status: u16, why: &str) -> String {
    unfiltered(status, words(status, why))
}

/// The body of an error response, with the reason.
pub fn unfiltered(status: u16, why: &str) -> String {
    let phrase = maitred_http1::reason_phrase(status);
    format!("{status} {phrase}\n{why}\n")
}
