//! Requests for scripts of sites with a page cache.

pub(crate) mod changed_headers;
pub(crate) mod compressed;
pub(crate) mod detached_client;
pub(crate) mod fill;
pub(crate) mod fill_body;
pub(crate) mod fill_remaining;
pub(crate) mod lookup;
pub(crate) mod purge;
pub(crate) mod refresh;
pub(crate) mod reply;
pub(crate) mod tee;
