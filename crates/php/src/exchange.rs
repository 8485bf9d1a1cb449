/// Whether the client is still connected, after bytes were handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client may still read the response.
    Continue,
    /// The client has disconnected. PHP ends the script, unless it called
    /// `ignore_user_abort(true)`.
    ClientGone,
}

use crate::engine::Served;
use crate::foreign::{Foreign, Paths};
use crate::params::Params;

/// Log levels, those of php-fpm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For debugging.
    Debug,
    /// PHP's own messages of any kind.
    Notice,
    /// A possible error.
    Warning,
    /// An error.
    Error,
}

/// Connects one request to its client and to the server. A panic in any of these ends the script
/// and is resumed by [`Engine::serve`](crate::Engine::serve).
pub trait Exchange {
    /// Reads the next part of the request body into `buffer`; 0 at its end.
    fn read_body(&mut self, buffer: &mut [u8]) -> usize;

    /// Sends the next bytes of the response: first the complete CGI head (RFC 3875 section 6) in
    /// one piece, then the body.
    fn send(&mut self, bytes: &[u8]) -> Verdict;

    /// Sends buffered bytes now: the script called `flush()`, or has completed its response and
    /// continues (`fastcgi_finish_request`).
    fn flush(&mut self) -> Verdict;

    /// Sends early hints (RFC 8297): the headers so far, each line with its CR LF, and an empty
    /// line. They must not be delayed.
    fn hint(&mut self, lines: &[u8]) -> Verdict;

    /// The response is complete. Called once per request, usually when the request ends.
    fn finish(&mut self);

    /// Interprets a web server's variables, and may change them. Called once, before any other
    /// call, for a request of [`Engine::serve_foreign`](crate::Engine::serve_foreign); if it
    /// panics, there is no request.
    fn translate(&mut self, params: &mut Params, paths: &Paths<'_>) -> Foreign;

    /// Logs one message, without a trailing line feed. With `to_client` it is for the web server as
    /// well (`fastcgi.logging`).
    fn log(&mut self, level: Level, to_client: bool, message: &[u8]);

    /// Purges cached pages, and returns when the purge is in effect.
    fn purge(&mut self, asked: &Purge<'_>) -> Purged;

    /// The script of [`Engine::boot`](crate::Engine::boot) is booted: copies of this process may
    /// serve from here, unless `obstacle` gives a reason against it in one sentence. True in a
    /// copy, which then waits for requests ([`next`](Self::next)); false: the script ends.
    fn freeze(&mut self, obstacle: Option<String>) -> bool {
        let _ = obstacle;
        false
    }

    /// The data of `fpm_get_status()`; `None` makes that function return false.
    fn status(&mut self) -> Option<PoolStatus>;

    /// A script of [`Engine::work`](crate::Engine::work) waits for a request, whose variables are
    /// written into `params`.
    fn next(&mut self, _params: &mut Params) -> Next {
        Next::Leave
    }

    /// Such a script has handled its request, whose response is complete. The client does not wait
    /// for what it does until the next request.
    fn answered(&mut self, _served: &Served) {}
}

/// The next step of a worker script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Handle a request with our own variables.
    Own,
    /// Handle a request with the variables of a web server.
    Foreign,
    /// End.
    Leave,
}

/// A purge of cached pages by a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge<'a> {
    /// The names are URLs (`maitred_cache_purge_urls`), not tags.
    pub are_urls: bool,
    /// A soft purge.
    pub soft: bool,
    /// The URLs or tags.
    pub names: Vec<&'a [u8]>,
}

/// The result of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// The pages are purged.
    Done,
    /// The server did not confirm it.
    NoReply,
    /// No site that the script's pool serves has a cache.
    NoCache,
    /// A URL belongs to no such site.
    OtherSite,
    /// A name is too long.
    TooLong,
}

/// The data of `fpm_get_status()` about a pool. Times are Unix seconds, queue lengths are requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolStatus {
    /// Name of the pool.
    pub pool: String,
    /// `static`, `dynamic`, `ondemand` or `auto`.
    pub process_manager: String,
    /// When the pool started.
    pub start_time: i64,
    /// Seconds since then.
    pub start_since: i64,
    /// Requests accepted.
    pub accepted_conn: i64,
    /// Requests waiting for a worker.
    pub listen_queue: i64,
    /// The longest queue so far.
    pub max_listen_queue: i64,
    /// The queue's limit.
    pub listen_queue_len: i64,
    /// Workers without a request.
    pub idle_processes: i64,
    /// Workers with a request.
    pub active_processes: i64,
    /// Most active workers at the same time.
    pub max_active_processes: i64,
    /// How often `max_children` was reached.
    pub max_children_reached: i64,
    /// Requests slower than `request_slowlog_timeout`.
    pub slow_requests: i64,
    /// The workers.
    pub processes: Vec<ProcessStatus>,
}

/// The data of `fpm_get_status()` about a worker.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessStatus {
    /// Process id.
    pub pid: i64,
    /// `Idle`, `Running`, `Finishing`…
    pub state: String,
    /// When it started, in Unix seconds.
    pub start_time: i64,
    /// Seconds since then.
    pub start_since: i64,
    /// Requests served.
    pub requests: i64,
    /// Microseconds of the current or last request.
    pub request_duration: i64,
    /// Its method.
    pub request_method: String,
    /// Its URI.
    pub request_uri: String,
    /// Its query string.
    pub query_string: String,
    /// Bytes of its body.
    pub request_length: i64,
    /// Its user, or `-`.
    pub user: String,
    /// Its script, or `-`.
    pub script: String,
    /// CPU usage in percent of its duration.
    pub last_request_cpu: f64,
    /// Peak memory of PHP's allocator for it, in bytes.
    pub last_request_memory: i64,
}
