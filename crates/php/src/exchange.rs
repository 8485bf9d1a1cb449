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
    /// Reads the next part of the request body into `buffer`; 0 at its end, and none if its rest
    /// will not arrive.
    fn read_body(&mut self, buffer: &mut [u8]) -> Option<usize>;

    /// Sends the next bytes of the response: first the complete CGI header (RFC 3875 section 6) in
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

    /// The result of `fpm_get_status()`, as a JSON object; `None` makes that function return false.
    fn status(&mut self) -> Option<String>;

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
