//! The reasons why an upstream HTTP server has sent no complete response.

use hyper::header::HeaderValue;

use crate::http::body::BodyError;
use crate::proxy::upload::Upload;

/// The reason why a response of an upstream server is missing or incomplete.
#[derive(Debug)]
pub enum ProxyError {
    /// It has as many connections as it may.
    NoDescriptor,
    /// The connection failed.
    Unreachable(String),
    /// It did not accept a connection within `connect_timeout`.
    NotAccepted,
    /// It sent nothing for `read_timeout`.
    Silent,
    /// It read nothing of the request for `send_timeout`.
    Deaf,
    /// It closed its connection too early, or sent an invalid response.
    Broken(String),
    /// Its response has this status, for which the site has an error page.
    Intercepted {
        /// The status.
        status: u16,
        /// Its `WWW-Authenticate` headers.
        challenges: Vec<HeaderValue>,
    },
    /// The request's body could not be read.
    BodyError(BodyError),
    /// The client closed the connection.
    ClientLeft,
}

/// What an idle server was waited for.
pub(crate) enum Silence {
    SaysNothing,
    TakesNothing,
}

impl Silence {
    pub(crate) fn of(upload: &Upload) -> Silence {
        if upload.is_over() { Silence::SaysNothing } else { Silence::TakesNothing }
    }
}

impl From<Silence> for ProxyError {
    fn from(silence: Silence) -> ProxyError {
        match silence {
            Silence::SaysNothing => ProxyError::Silent,
            Silence::TakesNothing => ProxyError::Deaf,
        }
    }
}
