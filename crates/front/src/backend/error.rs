//! The reasons why a script's response is not sent, or replaced.

use std::fmt;

use maitred_scoreboard::RequestOutcome;
use maitred_trace::TraceId;

/// The reason why a script's response is not sent, or replaced.
#[derive(Debug)]
pub enum Failure {
    /// The response is missing or incomplete.
    Ended {
        /// How the request ended.
        outcome: RequestOutcome,
        /// More for the log; mostly empty.
        detail: String,
    },
    /// The site has an error page for this status (nginx's `fastcgi_intercept_errors`).
    Intercepted(u16),
    /// The `.htaccess` files of the site say something about its headers, and it is not known what:
    /// they take too long.
    Unevaluated,
    /// The script has named a file to send instead (`X-Accel-Redirect`).
    FileNamed,
}

impl From<RequestOutcome> for Failure {
    fn from(outcome: RequestOutcome) -> Failure {
        let detail = String::new();
        Failure::Ended { outcome, detail }
    }
}

impl Failure {
    /// A failure with a detail for the log.
    pub fn detailed(outcome: RequestOutcome, detail: impl fmt::Display) -> Failure {
        let detail = format!(" {detail}");
        Failure::Ended { outcome, detail }
    }

    /// The script's response is not valid, for this reason.
    pub fn invalid(detail: impl fmt::Display) -> Failure {
        Failure::detailed(RequestOutcome::InvalidResponse, detail)
    }

    /// The script ran for too long, and its worker, which sits in `seat`, is killed.
    pub fn terminated(seat: u32) -> Failure {
        let detail = format_args!("Its worker is ended (seat {seat}).");
        Failure::detailed(RequestOutcome::Terminated, detail)
    }

    /// The stored request body could not be read.
    pub fn body_lost(error: std::io::Error) -> Failure {
        Failure::detailed(RequestOutcome::BodyLost, error)
    }

    /// The outcome of the request. A response that was replaced by an error page or a file counts
    /// as served.
    pub fn outcome(&self) -> RequestOutcome {
        match self {
            Failure::Ended { outcome, .. } => *outcome,
            Failure::Intercepted(_) | Failure::Unevaluated | Failure::FileNamed => {
                RequestOutcome::Responded
            }
        }
    }

    /// The status for the client.
    pub fn status(&self) -> u16 {
        match self {
            Failure::Intercepted(status) => *status,
            Failure::Unevaluated => 500,
            _ => self.outcome().status(),
        }
    }

    /// One sentence for the client.
    pub fn sentence(&self) -> &'static str {
        match self {
            Failure::Unevaluated => "The headers of the response could not be determined.",
            _ => self.outcome().sentence(),
        }
    }

    /// Whether the client has closed the connection.
    pub fn is_client_gone(&self) -> bool {
        let outcome = self.outcome();
        matches!(outcome, RequestOutcome::ClientLeft | RequestOutcome::LeftQueue)
    }
}

/// The end of a log line about a request: its id, if it has one.
#[derive(Debug, Clone, Copy)]
pub struct LogSuffix<'a> {
    pub(crate) id: &'a str,
    pub(crate) trace: Option<TraceId>,
}

impl fmt::Display for LogSuffix<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.id.is_empty() {
            write!(out, " [request {}]", self.id)?;
        }
        match self.trace {
            Some(trace) => write!(out, " [trace {trace}]"),
            None => Ok(()),
        }
    }
}
