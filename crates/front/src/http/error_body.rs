//! Bodies of error responses. Visitors read them: the operator's words are in the log, which the
//! request's id leads to.

pub(crate) const NOT_FOUND: &str = "There is no such page.";

pub(crate) const FORBIDDEN: &str = "Access to this page is denied.";

/// The sentence that a client may see for this status: for errors of its own, the reason.
pub(crate) fn words(status: u16, why: &str) -> &str {
    match status {
        404 => NOT_FOUND,
        403 => FORBIDDEN,
        413 => "The request is too large.",
        500 | 502 => "An error on the server prevents this page.",
        503 => "The server cannot respond to this now. Please try again later.",
        504 => "This page took too long. Please try again later.",
        507 => "The server cannot store the request now. Please try again later.",
        _ => why,
    }
}

/// The body of an error response.
pub fn in_words(status: u16, why: &str) -> String {
    unfiltered(status, words(status, why))
}

/// The body of an error response to the request with this id.
pub fn of_request(status: u16, why: &str, id: &str) -> String {
    let mut body = in_words(status, why);
    body.push_str("Request ");
    body.push_str(id);
    body.push('\n');
    body
}

/// The body of an error response, with the reason.
pub fn unfiltered(status: u16, why: &str) -> String {
    let phrase = maitred_http1::reason_phrase(status);
    format!("{status} {phrase}\n{why}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_visitor_reads_no_names_of_settings_and_the_id() {
        let why = "The script ran longer than request_terminate_timeout.";
        let body = of_request(504, why, "662c59d8");
        let expected = "504 Gateway Timeout\nThis page took too long. Please try again later.\n\
                        Request 662c59d8\n";
        assert_eq!(body, expected);
        assert_eq!(
            in_words(405, "TRACE is not supported."),
            unfiltered(405, "TRACE is not supported.")
        );
    }
}
