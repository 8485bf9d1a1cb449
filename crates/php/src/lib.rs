//! PHP inside this process: Debian's `libphp` (the embed library, non-thread-safe builds) behind a
//! thin C shim.
//!
//! A zygote calls [`Engine::start`] once and forks; each child calls [`Engine::after_fork`] and
//! then [`Engine::serve`] for one request after another. An [`Exchange`] connects a request to its
//! client: body bytes in, response bytes and log lines out. While a child runs a script, its zygote
//! can read the script's stack with [`read_stack`] or a [`Sampler`].
//!
//! Three rules hold at the boundary, in `shim/` and in the private module `raw`, the only ones with
//! unsafe code besides one call in `direct_calls`: a PHP bailout (`longjmp`) never crosses a Rust
//! frame, a Rust panic never unwinds into C, and Rust knows no Zend type.

mod cgi_names;
mod direct_calls;
mod engine;
mod exchange;
mod foreign;
mod opcache;
mod params;
mod raw;
mod settings;
mod stack;
mod stack_samples;
mod version;

pub use cgi_names::Name;
pub use direct_calls::{NotUsed, use_direct_calls, write_direct_calls};
pub use engine::{Engine, Outcome, Served, Show, StartError, Worked};
pub use exchange::{Exchange, Level, Next, Purge, Purged, Verdict};
pub use foreign::{Admission, Foreign, Paths};
pub use opcache::{CacheFigures, CachedScript};
pub use params::{PARAMS_BYTES_MAX, PARAMS_MAX, Params, ParamsError, Text};
pub use raw::connections::connected_at;
pub use raw::metrics_extension::{METRICS_EXTENSION, METRICS_VARIABLE, count_in};
pub use raw::opcache::cache_figures_within;
pub use raw::opcache_memory::OpcacheMemory;
pub use raw::patterns::{learn_patterns, share_patterns, tell_patterns};
pub use raw::present::{
    RealpathCache, count_requests, exit_status, peak_memory, realpath_cache, response_status,
};
pub use settings::{IniValue, Mode, Settings};
pub use stack::{Call, Frame, Memory, NoStack, STACK_DEPTH_MAX, Stack, read_stack};
pub use stack_samples::{CallName, Sample, Sampler};
pub use version::{PhpVersion, is_fixed};

/// The PHP branch that this program was built for, as `8.2`.
pub const PHP_BRANCH: &str = env!("MAITRED_PHP_BRANCH");
