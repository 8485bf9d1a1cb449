//! A generation of a pool: its zygote, its workers, and the decisions about them.

pub mod adopt;
pub mod application_memory;
pub mod backoff;
pub mod copy_counters;
pub mod error_log;
pub mod generation;
pub mod growth;
pub mod kill_reason;
pub mod life;
pub mod opcache_size;
pub mod opcache_stats;
pub mod opcache_warming;
pub mod php_files;
pub mod php_trial;
pub mod plan;
pub mod pools;
pub mod preloading;
pub mod profiles;
pub mod protocol_errors;
pub mod running_pool;
pub mod scoreboards;
pub mod script_children;
pub mod script_waits;
pub mod slow_scripts;
pub mod traces;
pub mod worker_logs;
