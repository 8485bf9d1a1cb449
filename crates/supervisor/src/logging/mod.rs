//! Log files, and the output of processes that is written to them.

pub mod address_lines;
pub mod exit_reports;
pub mod line_framing;
pub mod log_files;
pub mod log_openers;
pub mod native_stack;
pub mod pool_access_logs;
pub mod pool_output;
pub mod repeated_errors;
pub mod running_time;
pub mod shared_limit;
pub mod slowlog;
pub mod tenant_pipe;
pub mod terminal;
pub mod text;
pub mod worker_output;
