/// What is known of the client after bytes were handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Somebody may still read the answer.
    Continue,
    /// Nobody reads it any more. PHP ends the script, unless it said `ignore_user_abort(true)`.
    ClientGone,
}

use crate::engine::Served;
use crate::foreign::{Foreign, Paths};
use crate::params::Params;

/// How important a message is, as php-fpm's log has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// For those who look for a fault.
    Debug,
    /// PHP's own messages, whatever they are about.
    Notice,
    /// What may become a fault.
    Warning,
    /// What failed.
    Error,
}

/// What one request has to do with the world outside PHP. A panic in any of these ends the script
/// and is raised again by [`Engine::serve`](crate::Engine::serve).
pub trait Exchange {
    /// Copies the next part of the request body into `buffer`; 0 is the end of it.
    fn read_body(&mut self, buffer: &mut [u8]) -> usize;

    /// Takes the next bytes of the answer: first the whole CGI head (RFC 3875 section 6) in one
    /// piece, then the body.
    fn send(&mut self, bytes: &[u8]) -> Verdict;

    /// What was sent so far must not wait: the script called `flush()`, or has finished its answer
    /// and runs on (`fastcgi_finish_request`).
    fn flush(&mut self) -> Verdict;

    /// Takes early hints (RFC 8297) for the client: the header as it is so far, each line with its
    /// CR LF, and an empty line. They must not wait.
    fn hint(&mut self, lines: &[u8]) -> Verdict;

    /// The answer is complete. Called once per request, as a rule when the request ends.
    fn finish(&mut self);

    /// Finds out what a web server's variables come to, and may change them. Called once, before
    /// anything else, for a request of [`Engine::serve_foreign`](crate::Engine::serve_foreign); if
    /// it panics, there is no request.
    fn translate(&mut self, params: &mut Params, paths: &Paths<'_>) -> Foreign;

    /// Takes one message for the error log, without a line feed at its end. With `to_client` it is
    /// for the web server as well (`fastcgi.logging`).
    fn log(&mut self, level: Level, to_client: bool, message: &[u8]);

    /// Has pages dropped that the server keeps, and returns when nobody gets them any more.
    fn purge(&mut self, asked: &Purge<'_>) -> Purged;

    /// The script of [`Engine::boot`](crate::Engine::boot) is booted: copies of this process may
    /// serve from here, unless `obstacle` says in one sentence why they must not. True in a copy,
    /// which is then asked for its requests ([`next`](Self::next)); false: the script ends.
    fn freeze(&mut self, obstacle: Option<String>) -> bool {
        let _ = obstacle;
        false
    }

    /// The pool as `fpm_get_status()` tells it; `None` makes that function return false.
    fn status(&mut self) -> Option<PoolStatus>;

    /// A script that [`Engine::work`](crate::Engine::work) runs asks for a request: waits for one, and
    /// writes its variables into `params`.
    fn next(&mut self, _params: &mut Params) -> Next {
        Next::Leave
    }

    /// Such a script has handled its request, whose answer has been finished. What it does until it
    /// asks for another one, nobody waits for.
    fn answered(&mut self, _served: &Served) {}
}

/// What a worker script is to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Handle a request whose variables are ours.
    Own,
    /// Handle a request whose variables are a web server's own.
    Foreign,
    /// Come to its end.
    Leave,
}

/// What a script has dropped of the pages that the server keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Purge<'a> {
    /// The names are addresses (`maitred_cache_purge_urls`), and not tags.
    pub are_urls: bool,
    /// They become stale only.
    pub soft: bool,
    /// What is dropped.
    pub names: Vec<&'a [u8]>,
}

/// What came of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purged {
    /// They are gone.
    Dropped,
    /// Nobody has heard it.
    Unheard,
    /// No site that the script's pool serves has a cache.
    NoCache,
    /// An address is none of such a site.
    NotIts,
    /// A name is too long.
    TooLong,
}

/// What `fpm_get_status()` tells of a pool. Times are Unix seconds, queue lengths are requests.
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
    /// Requests that wait for a worker.
    pub listen_queue: i64,
    /// The most that ever waited.
    pub max_listen_queue: i64,
    /// The most that may wait.
    pub listen_queue_len: i64,
    /// Workers without a request.
    pub idle_processes: i64,
    /// Workers with one.
    pub active_processes: i64,
    /// The most that ever had one at the same time.
    pub max_active_processes: i64,
    /// How often `max_children` stood in the way.
    pub max_children_reached: i64,
    /// Requests slower than `request_slowlog_timeout`.
    pub slow_requests: i64,
    /// The workers.
    pub processes: Vec<ProcessStatus>,
}

/// What `fpm_get_status()` tells of a worker.
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
    /// Microseconds of the present or last request.
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
    /// CPU it used, in per cent of its duration.
    pub last_request_cpu: f64,
    /// Most memory PHP's allocator held for it, in bytes.
    pub last_request_memory: i64,
}
