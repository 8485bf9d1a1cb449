//! Why an upstream HTTP server gives no response.

use crate::http::body::NoBody;
use crate::proxy::upload::Upload;

/// Why a response of an upstream server is missing or incomplete.
#[derive(Debug)]
pub enum ProxyError {
    /// There is no connection to it.
    Unreachable(String),
    /// It did not accept a connection within `connect_timeout`.
    NotAccepted,
    /// It sent nothing for `read_timeout`.
    Silent,
    /// It took nothing of the request for `send_timeout`.
    Deaf,
    /// It closed its connection too early, or sent an invalid response.
    Broken(String),
    /// Its response has this status, for which the site has a page.
    Intercepted(u16),
    /// The request's body is missing.
    NoBody(NoBody),
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
