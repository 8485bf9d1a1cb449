//! Connections of clients: accept, HTTP/1.1, HTTP/2, FastCGI.

pub(crate) mod accept;
pub(crate) mod connection_tasks;
pub(crate) mod fastcgi;
pub(crate) mod http1;
pub(crate) mod http2;
