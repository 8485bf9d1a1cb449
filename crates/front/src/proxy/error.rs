//! Why an upstream HTTP server gives no response.

use crate::http::body::NoBody;
use crate::proxy::upload::Upload;

/// Why a server's answer is not there, or not all of it.
#[derive(Debug)]
pub enum Failure {
    /// There is no connection to it.
    Unreachable(String),
    /// It did not accept a connection in time.
    NotAccepted,
    /// It said nothing for too long.
    Silent,
    /// It took nothing of the request for too long.
    Deaf,
    /// It closed its connection too early, or what it says is no answer.
    Broken(String),
    /// It answered with this status, for which the site has a page.
    Intercepted(u16),
    /// The request's body has not come.
    NoBody(NoBody),
    /// The client left.
    ClientLeft,
}

/// What a server that does nothing for too long has not done.
pub(crate) enum Silence {
    SaysNothing,
    TakesNothing,
}

impl Silence {
    pub(crate) fn of(upload: &Upload) -> Silence {
        match upload.is_over() {
            true => Silence::SaysNothing,
            false => Silence::TakesNothing,
        }
    }
}

impl From<Silence> for Failure {
    fn from(silence: Silence) -> Failure {
        match silence {
            Silence::SaysNothing => Failure::Silent,
            Silence::TakesNothing => Failure::Deaf,
        }
    }
}
