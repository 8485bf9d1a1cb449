//! Access logs and the error log.

pub(crate) mod access_log;
pub(crate) mod access_log_line;
pub(crate) mod deferred;
pub(crate) mod line_file;
pub(crate) mod log_limit;
pub(crate) mod pool_access_log;
pub(crate) mod pool_access_log_entry;
pub(crate) mod queued_file;
pub(crate) mod repeated;
pub(crate) mod request_lines;
pub(crate) mod request_record;
pub(crate) mod script_messages;
pub(crate) mod site_log;
pub(crate) mod terminal_lines;
