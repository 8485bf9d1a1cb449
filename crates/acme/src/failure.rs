//! Failures: a message, and the kind of failure.

use std::time::Duration;

use instant_acme::{Error, Problem};
use maitred_control::acme::{Cause, FromAcme};

/// The prefix of all problem types (RFC 8555 §6.7).
const PROBLEM: &str = "urn:ietf:params:acme:error:";

/// The longest part of a message that is the authority's text, in characters.
const MAX_WORDS_CHARS: usize = 500;

/// Most causes of an error in a message.
const MAX_CAUSES: usize = 8;

/// Why there is no certificate.
#[derive(Debug)]
pub struct Failure {
    cause: Cause,
    why: String,
    /// The authority's `Retry-After`.
    pub retry_after: Option<Duration>,
}

impl Failure {
    /// A failure of this kind with this message.
    pub fn new(cause: Cause, why: String) -> Failure {
        Failure { cause, why, retry_after: None }
    }

    /// The failure of a request for `what`, which may be an error response of the authority.
    pub fn of(what: &str, error: Error) -> Failure {
        match error {
            Error::Api(problem) => Failure::refused(&format!("refuses {what}"), &problem),
            Error::Timeout(_) => {
                let why = format!("the authority takes too long over {what}");
                Failure::new(Cause::Unreachable, why)
            }
            Error::Json(_) => {
                let why = format!("the authority's answer about {what} is none of ACME (RFC 8555)");
                Failure::new(Cause::Unreachable, why)
            }
            other => {
                let why = format!("the authority cannot be asked for {what}: {}", chain(&other));
                Failure::new(Cause::Unreachable, why)
            }
        }
    }

    /// A refusal by the authority: `does` is its action, followed by its reason.
    pub fn refused(does: &str, problem: &Problem) -> Failure {
        let kind = kind(problem);
        let cause = match kind {
            "rateLimited" => Cause::Limited,
            "serverInternal" | "badNonce" => Cause::Unreachable,
            _ => Cause::Refused,
        };
        let below = problem.subproblems.iter().find_map(|sub| sub.detail.as_ref());
        let detail = below.or(problem.detail.as_ref());
        let detail = detail.map_or("it does not say why", String::as_str);
        let why = format!("the authority {does}: {} ({kind})", words(detail));
        Failure::new(cause, why)
    }

    /// The report for the supervisor.
    pub fn report(self) -> FromAcme {
        FromAcme::Failed { why: self.why, cause: self.cause, retry_after: self.retry_after }
    }
}

/// The problem's type (RFC 8555 §6.7) without its prefix.
pub fn kind(problem: &Problem) -> &str {
    let kind = problem.r#type.as_deref().unwrap_or("no type");
    kind.strip_prefix(PROBLEM).unwrap_or(kind)
}

/// The authority's text, on one line and not too long.
fn words(text: &str) -> String {
    let line = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    line.take(MAX_WORDS_CHARS).collect()
}

/// An error with its causes, the last of which is the most specific.
fn chain(error: &Error) -> String {
    let first: &dyn std::error::Error = match error {
        Error::Other(inner) => inner.as_ref(),
        other => other,
    };
    let mut causes = vec![first.to_string()];
    let mut behind = first.source();
    while let Some(error) = behind.filter(|_| causes.len() < MAX_CAUSES) {
        let text = error.to_string();
        if !causes.iter().any(|earlier| earlier.contains(&text)) {
            causes.push(text);
        }
        behind = error.source();
    }
    words(&causes.join(": "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(kind: &str, detail: &str) -> Problem {
        let json = serde_json::json!({ "type": format!("{PROBLEM}{kind}"), "detail": detail });
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn only_what_the_authority_counts_is_a_refusal() {
        let cause = |kind: &str| {
            let error = Error::Api(problem(kind, "no"));
            Failure::of("the order", error).cause
        };
        assert_eq!(cause("rejectedIdentifier"), Cause::Refused);
        assert_eq!(cause("rateLimited"), Cause::Limited);
        assert_eq!(cause("serverInternal"), Cause::Unreachable);
        let timeout = Failure::of("the order", Error::Timeout(None));
        assert_eq!(timeout.cause, Cause::Unreachable);
    }

    #[test]
    fn the_authoritys_words_are_repeated_on_one_line_and_not_too_long() {
        let long = format!("no\nway {}", "x".repeat(5000));
        let failure = Failure::of("the order", Error::Api(problem("dns", &long)));
        assert!(failure.why.starts_with("the authority refuses the order: no way xxx"));
        assert!(failure.why.ends_with("x (dns)") && failure.why.len() < 600);
    }
}
