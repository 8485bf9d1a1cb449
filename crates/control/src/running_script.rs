//! A running script in the reply to `maitred status`.

use serde::{Deserialize, Serialize};

/// A running script. All values except pid and seat are reported by its worker, which a hostile
/// script can falsify.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Running {
    /// Process id of its worker.
    pub pid: i32,
    /// Seat of its worker.
    pub seat: u32,
    /// Run time so far, in seconds.
    pub seconds: f64,
    /// Method of its request.
    pub method: String,
    /// Target of its request, without the query.
    pub uri: String,
    /// Its query with the names of parameters and `…` in place of their values, such as
    /// `p=…&lang=…`.
    #[serde(default)]
    pub query: String,
    /// Its file.
    pub script: String,
    /// Its client has closed the connection.
    #[serde(default)]
    pub client_left: bool,
    /// CPU time of it so far, in seconds; `None`, like the next two, if its pool does not measure
    /// it or the kernel does not report it.
    #[serde(default)]
    pub cpu_seconds: Option<f64>,
    /// Part of it: runnable without a CPU.
    #[serde(default)]
    pub core_wait_seconds: Option<f64>,
    /// Part of it: blocked on anything else.
    #[serde(default)]
    pub blocked_seconds: Option<f64>,
    /// What it waited for at that moment: `disk`, `network`, `file_lock`, `sleep`, `program` or
    /// `other`; `None` if it did not wait.
    #[serde(default)]
    pub waits_for: Option<String>,
    /// Its stack, the innermost call first, each as `function() file:line` of the call site. Empty
    /// if unknown, and for all but the slowest scripts
    /// ([`MAX_STACKS_SHOWN`](crate::admin::MAX_STACKS_SHOWN)) that have run for a tenth of a
    /// second.
    pub stack: Vec<String>,
}
