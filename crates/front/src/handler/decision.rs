//! How a request is served: the result of routing and rules. `handler/request.rs` carries it out.

use std::sync::Arc;

use crate::handler::respond::TextResponse;
use crate::proxy::server::Server;
use crate::site::files::StaticFile;
use crate::site::resolver::Script;

/// How a request is served.
pub enum Decision<'r> {
    /// With a response of the server's own.
    Respond(TextResponse),
    /// With a file.
    File(Arc<StaticFile>),
    /// By a script.
    Script(Arc<Script>),
    /// By an upstream HTTP server.
    Proxy {
        /// The server.
        server: &'r Server,
        /// The path of the request, decoded and normalised.
        path: Vec<u8>,
    },
    /// By dropping pages from the cache.
    Purge,
}

impl From<TextResponse> for Decision<'_> {
    fn from(response: TextResponse) -> Self {
        Decision::Respond(response)
    }
}
