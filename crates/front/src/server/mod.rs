//! Connections of clients: accept, HTTP/1.1, HTTP/2, FastCGI, HAProxy's agent check.

pub(crate) mod accept;
pub(crate) mod agent_check;
pub(crate) mod connection_tasks;
pub(crate) mod fastcgi;
pub(crate) mod http1;
pub(crate) mod http2;
