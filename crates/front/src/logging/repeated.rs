//! Errors of the whole front that recur, logged at the start of an episode and then summarised:
//! connections beyond the limit or that cannot be accepted, files that cannot be opened, log lines
//! that cannot be written.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use maitred_control::episode::{Account, LogThrottle, News};
use maitred_rules::forwarded::UnknownClient;
use maitred_rules::path::Refused;
pub use maitred_text::humanize::lasted as seconds;
use maitred_text::humanize::{plural, plural_with};
use tokio::sync::Notify;

use crate::net::client_rate::TooSlow;

/// An episode ends after this long without an occurrence.
pub const CALM: Duration = Duration::from_secs(10);

/// Most sentences about `.htaccess` files that are logged at a time, beyond the first of each
/// document root.
const MAX_SENTENCES: usize = 256;

/// Most of them about the files of one document root. What is left out is counted as one more.
const MAX_SENTENCES_OF_ROOT: usize = 8;

/// The sentence for mistakes without a line of their own.
const LEFT_OUT: &str = "there are more mistakes than are logged at a time; `maitred check` lists \
                        the wrong lines";

/// Interval at which open episodes are checked.
pub const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The repeated errors of the front, shared by its threads.
#[derive(Debug)]
pub struct RepeatedErrors {
    started: Instant,
    episodes: Mutex<Episodes>,
    stirred: Notify,
}

#[derive(Debug)]
struct Episodes {
    full: LogThrottle<()>,
    accept: LogThrottle<()>,
    handshakes: LogThrottle<()>,
    /// By access log, of which there are as many as the configuration names; none: the server's.
    lost: BTreeMap<Option<PathBuf>, LogThrottle<u64>>,
    /// By cause, of which there are two.
    cut: BTreeMap<&'static str, LogThrottle<()>>,
    heads: LogThrottle<()>,
    crowds: LogThrottle<()>,
    slow: LogThrottle<()>,
    proxied: LogThrottle<()>,
    unknown: LogThrottle<()>,
    /// By document root and cause, of which there are a few.
    files: BTreeMap<(PathBuf, &'static str), LogThrottle<()>>,
    /// By document root, of which there are as many as the configuration names, and by sentence
    /// about a `.htaccess` file.
    htaccess: BTreeMap<PathBuf, BTreeMap<String, LogThrottle<()>>>,
    /// By server, of which there are as many as the configuration names.
    proxies: BTreeMap<String, LogThrottle<()>>,
    websockets: LogThrottle<()>,
    unwatched: LogThrottle<()>,
    unrefreshed: LogThrottle<()>,
}

impl Default for RepeatedErrors {
    fn default() -> RepeatedErrors {
        RepeatedErrors {
            started: Instant::now(),
            episodes: Mutex::new(Episodes {
                full: LogThrottle::new(CALM),
                accept: LogThrottle::new(CALM),
                handshakes: LogThrottle::new(CALM),
                lost: BTreeMap::new(),
                cut: BTreeMap::new(),
                heads: LogThrottle::new(CALM),
                crowds: LogThrottle::new(CALM),
                slow: LogThrottle::new(CALM),
                proxied: LogThrottle::new(CALM),
                unknown: LogThrottle::new(CALM),
                files: BTreeMap::new(),
                htaccess: BTreeMap::new(),
                proxies: BTreeMap::new(),
                websockets: LogThrottle::new(CALM),
                unwatched: LogThrottle::new(CALM),
                unrefreshed: LogThrottle::new(CALM),
            }),
            stirred: Notify::new(),
        }
    }
}

impl RepeatedErrors {
    /// Reports a connection that was not accepted, because `most` are open.
    pub fn full(&self, most: usize) {
        if self.note(|episodes, now| episodes.full.happened(now, |()| {})) {
            tracing::warn!(
                "{most} connections are open, the most that the limit of open files allows; \
                 further clients wait until some close; raise LimitNOFILE (ulimit -n)"
            );
        }
    }

    /// Reports a failed `accept(2)`.
    pub fn not_accepted(&self, why: &impl Display) {
        if self.note(|episodes, now| episodes.accept.happened(now, |()| {})) {
            tracing::warn!("no connection can be accepted at the moment: {why}; retrying");
        }
    }

    /// Reports an HTTP/2 connection that was closed because of what the client at this address
    /// sends.
    pub fn http2_cut(&self, peer: IpAddr, why: &'static str) {
        let happened = |episodes: &mut Episodes, now| {
            let cut = episodes.cut.entry(why).or_insert_with(|| LogThrottle::new(CALM));
            cut.happened(now, |()| {})
        };
        if self.note(happened) {
            tracing::warn!(
                "an HTTP/2 connection from {peer} is closed: {why}; further ones are counted"
            );
        }
    }

    /// Reports a connection that was closed because its address has `most` already.
    pub fn too_many_of(&self, peer: IpAddr, most: u32) {
        if self.note(|episodes, now| episodes.crowds.happened(now, |()| {})) {
            tracing::warn!(
                "a connection from {peer} is closed: {most} of this address are open \
                 (max_connections_per_address); if it is a proxy, add it to `trusted_proxies`; \
                 further \
                 ones are counted"
            );
        }
    }

    /// Reports a request from this address that was refused because requests in progress use too
    /// much memory.
    pub fn head_refused(&self, peer: IpAddr, why: &str) {
        if self.note(|episodes, now| episodes.heads.happened(now, |()| {})) {
            tracing::warn!("a request from {peer} is refused: {why}; further ones are counted");
        }
    }

    /// Reports a client at this address that was disconnected because it is too slow.
    pub fn too_slow(&self, peer: IpAddr, at: TooSlow) {
        if self.note(|episodes, now| episodes.slow.happened(now, |()| {})) {
            let (does, setting) = match at {
                TooSlow::Sending => ("sends its request", "min_request_rate"),
                TooSlow::Reading => ("reads its response", "min_response_rate"),
            };
            tracing::warn!(
                "a client at {peer} is disconnected: it {does} too slowly ({setting}); further \
                 ones are counted"
            );
        }
    }

    /// Reports a TLS handshake that was aborted in favour of another.
    pub fn gave_way(&self) {
        if self.note(|episodes, now| episodes.handshakes.happened(now, |()| {})) {
            tracing::warn!("too many TLS handshakes are incomplete: the oldest are aborted");
        }
    }

    /// Reports `lines` that could not be written to the access log in this file; none: the
    /// server's.
    pub fn lines_lost(&self, file: Option<&Path>, lines: u64, why: &impl Display) {
        let file = file.map(Path::to_path_buf);
        let log = access_log(file.as_deref());
        let happened = |episodes: &mut Episodes, now| {
            let lost = episodes.lost.entry(file);
            let lost = lost.or_insert_with(|| LogThrottle::new(CALM));
            lost.happened(now, |lost| *lost += lines)
        };
        if self.note(happened) {
            tracing::error!("{log} cannot be written: {why}; its lines are lost");
        }
    }

    /// Reports a connection from `peer` that was closed for lack of a valid PROXY header.
    pub fn not_proxied(&self, peer: IpAddr, why: &str) {
        if self.note(|episodes, now| episodes.proxied.happened(now, |()| {})) {
            tracing::warn!("a connection from {peer} was closed: {why} (proxy_protocol is on)");
        }
    }

    /// Reports a request that got a 400 because the trusted proxy at `peer` does not name its
    /// client.
    pub fn client_unknown(&self, peer: IpAddr, unknown: &UnknownClient<'_>) {
        tracing::debug!("{peer}: 400: the client is unknown: its {unknown}");
        if self.note(|episodes, now| episodes.unknown.happened(now, |()| {})) {
            tracing::warn!(
                "a request from {peer}, one of trusted_proxies, gets a 400: its {unknown}, so the \
                 client is unknown; have the proxy set this field, or name another in \
                 trusted_headers; further ones are counted"
            );
        }
    }

    /// Reports a request for a file that got this `status` of the 500s; `root` is the document root
    /// of its site.
    pub fn file_failed(&self, root: &Path, status: u16, why: &'static str) {
        let happened = |episodes: &mut Episodes, now| {
            let files = episodes.files.entry((root.to_owned(), why));
            let files = files.or_insert_with(|| LogThrottle::new(CALM));
            files.happened(now, |()| {})
        };
        if self.note(happened) {
            let root = root.display();
            tracing::error!("{root}: {status}: {why}; further such requests are counted");
        }
    }

    /// Reports a request that a mistake in a `.htaccess` file has failed; the sentence names file
    /// and line.
    pub fn htaccess_failed(&self, root: &Path, sentence: &str) {
        let mut mistake = format!("{}: .htaccess: {}", root.display(), sentence.escape_debug());
        let happened = |episodes: &mut Episodes, now| {
            if !episodes.has_room_for(root, &mistake) {
                mistake = format!("{}: .htaccess: {LEFT_OUT}", root.display());
            }
            let of_root = episodes.htaccess.entry(root.to_owned()).or_default();
            let lines = of_root.entry(mistake.clone());
            let lines = lines.or_insert_with(|| LogThrottle::new(CALM));
            lines.happened(now, |()| {})
        };
        if self.note(happened) {
            tracing::error!("{mistake}; further such requests are counted");
        }
    }

    /// Reports a 404 or 403 for a path with an existing file, for a reason that the operator should
    /// see once. `root` is the document root of its site.
    pub fn file_refused(&self, root: &Path, path: &str, refused: &Refused) {
        let Refused { status, why, .. } = *refused;
        let happened = |episodes: &mut Episodes, now| {
            let files = episodes.files.entry((root.to_owned(), why));
            let files = files.or_insert_with(|| LogThrottle::new(CALM));
            files.happened(now, |()| {})
        };
        if self.note(happened) {
            let (root, path) = (root.display(), path.escape_debug());
            tracing::warn!("{root}: {path}: {status}: {why}; further such requests are counted");
        }
    }

    /// Reports a request to an upstream HTTP server that got this `status`.
    pub fn proxy_failed(&self, server: &str, status: u16, why: &str) {
        let happened = |episodes: &mut Episodes, now| {
            let servers = episodes.proxies.entry(server.to_owned());
            let servers = servers.or_insert_with(|| LogThrottle::new(CALM));
            servers.happened(now, |()| {})
        };
        if self.note(happened) {
            tracing::error!(
                "proxy: {server}: {status}: {why}; further requests that fail are counted"
            );
        }
    }

    /// Reports a WebSocket request at a path without an upstream server. Browsers show only the
    /// status.
    pub fn websocket_refused(&self, host: &str, path: &str) {
        if self.note(|episodes, now| episodes.websockets.happened(now, |()| {})) {
            tracing::warn!(
                "{host}: a WebSocket at {path} is refused with a 501: no `proxy` of the site takes \
                 this path; further ones are counted"
            );
        }
    }

    /// Reports that a worker of this pool is replaced because its exit could not be detected.
    pub fn not_watched(&self, pool: &str, why: &impl Display) {
        if self.note(|episodes, now| episodes.unwatched.happened(now, |()| {})) {
            tracing::error!(
                "pool {pool}: a worker cannot be watched and is replaced: {why}; further ones are \
                 counted"
            );
        }
    }

    /// Reports a page that stays stale, because this backend has too many background refreshes.
    pub fn not_refreshed(&self, backend: &impl Display) {
        if self.note(|episodes, now| episodes.unrefreshed.happened(now, |()| {})) {
            tracing::warn!(
                "{backend}: a stale page of the cache is not refreshed: too many refreshes run; \
                 see whether its scripts hang; further pages are counted"
            );
        }
    }

    /// True when an episode starts: then [`RepeatedErrors::tell`] is notified.
    fn note(&self, happened: impl FnOnce(&mut Episodes, Duration) -> u64) -> bool {
        let begins = happened(&mut self.lock(), self.started.elapsed()) == 1;
        if begins {
            self.stirred.notify_one();
        }
        begins
    }

    /// Logs the ends of episodes while the front runs.
    pub async fn tell(&self) {
        loop {
            self.stirred.notified().await;
            while !self.lock().is_quiet() {
                tokio::time::sleep(LOOK_EVERY).await;
                let lines = self.lock().due(self.started.elapsed());
                for line in lines {
                    tracing::warn!("{line}");
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Episodes> {
        self.episodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Episodes {
    /// Whether this mistake in a `.htaccess` file below `root` has a line of its own.
    fn has_room_for(&self, root: &Path, mistake: &str) -> bool {
        let count = || self.htaccess.values().map(BTreeMap::len).sum::<usize>();
        self.htaccess.get(root).is_none_or(|of_root| {
            let has_room = of_root.len() < MAX_SENTENCES_OF_ROOT;
            of_root.contains_key(mistake) || (has_room && count() < MAX_SENTENCES)
        })
    }

    fn is_quiet(&self) -> bool {
        self.full.is_quiet()
            && self.accept.is_quiet()
            && self.handshakes.is_quiet()
            && self.lost.is_empty()
            && self.cut.is_empty()
            && self.heads.is_quiet()
            && self.crowds.is_quiet()
            && self.slow.is_quiet()
            && self.proxied.is_quiet()
            && self.unknown.is_quiet()
            && self.files.is_empty()
            && self.htaccess.is_empty()
            && self.proxies.is_empty()
            && self.websockets.is_quiet()
            && self.unwatched.is_quiet()
            && self.unrefreshed.is_quiet()
    }

    fn due(&mut self, now: Duration) -> Vec<String> {
        let full = reported(&mut self.full, now, |verb, lasted, _| {
            format!("the connection limit {verb} reached for {lasted}")
        });
        let accept = reported(&mut self.accept, now, |verb, lasted, times| {
            let have = agreeing(verb, 2);
            let attempts = plural(times, "attempt");
            format!("connections {have} not accepted at times for {lasted}: {attempts} failed")
        });
        let handshakes = reported(&mut self.handshakes, now, |verb, lasted, times| {
            let have = agreeing(verb, times);
            let handshakes = plural(times, "incomplete TLS handshake");
            format!("for {lasted}, {handshakes} {have} aborted")
        });
        let mut lost = Vec::new();
        self.lost.retain(|file, episode| {
            lost.extend(episode.due(now).map(|news| {
                let (verb, Account { lasted, total, .. }) = tense(news);
                let (log, lasted) = (access_log(file.as_deref()), seconds(lasted));
                let lines = plural_with(total, "line", "are");
                format!("{log} {verb} not written for {lasted}: up to {lines} lost")
            }));
            !episode.is_quiet()
        });
        let cut = told_of_each(&mut self.cut, now, |why, verb, lasted, times| {
            let have = agreeing(verb, times);
            let connections = plural(times, "HTTP/2 connection");
            format!("for {lasted}, {connections} {have} closed: {why}")
        });
        let heads = reported(&mut self.heads, now, |verb, lasted, times| {
            format!(
                "for {lasted}, the number of requests refused because requests in progress hold \
                 too much memory {verb} {times}"
            )
        });
        let crowds = reported(&mut self.crowds, now, |verb, lasted, times| {
            format!(
                "for {lasted}, the number of connections closed of addresses that have too many \
                 {verb} \
                 {times}"
            )
        });
        let slow = reported(&mut self.slow, now, |verb, lasted, times| {
            format!(
                "for {lasted}, the number of clients disconnected because they are too slow \
                 {verb} {times}"
            )
        });
        let proxied = reported(&mut self.proxied, now, |verb, lasted, times| {
            let have = agreeing(verb, times);
            let connections = plural(times, "connection");
            format!("for {lasted}, {connections} without the PROXY protocol {have} closed")
        });
        let files = told_of_each(&mut self.files, now, |(root, why), verb, lasted, times| {
            let (root, requests) = (root.display(), plural(times, "request"));
            format!("{root}: for {lasted}, {why}: this {verb} the response to {requests}")
        });
        let mut htaccess = Vec::new();
        self.htaccess.retain(|_, mistakes| {
            htaccess.extend(told_of_each(mistakes, now, |mistake, verb, lasted, times| {
                let have = agreeing(verb, times);
                let requests = plural(times, "request");
                format!("for {lasted}, {requests} {have} failed: {mistake}")
            }));
            !mistakes.is_empty()
        });
        let websockets = reported(&mut self.websockets, now, |verb, lasted, times| {
            let have = agreeing(verb, times);
            let websockets = plural(times, "WebSocket");
            format!("for {lasted}, {websockets} without a `proxy` {have} refused")
        });
        let unwatched = reported(&mut self.unwatched, now, |verb, lasted, times| {
            let have = agreeing(verb, times);
            let workers = plural(times, "worker");
            format!("for {lasted}, {workers} {have} replaced that could not be watched")
        });
        let unrefreshed = reported(&mut self.unrefreshed, now, |verb, lasted, times| {
            let have = agreeing(verb, times);
            let pages = plural(times, "stale page");
            format!("for {lasted}, {pages} of the cache {have} not refreshed")
        });
        let proxies = told_of_each(&mut self.proxies, now, |server, verb, lasted, times| {
            let have = agreeing(verb, times);
            let requests = plural(times, "request");
            format!("for {lasted}, {requests} {have} failed by proxy: {server}")
        });
        let unknown = reported(&mut self.unknown, now, |verb, lasted, times| {
            format!("for {lasted}, the number of requests from unknown clients {verb} {times}")
        });
        let first = [full, accept, handshakes, heads, crowds, slow, proxied, unknown];
        let first = first.into_iter().flatten().chain(lost).chain(cut);
        let files = files.into_iter().chain(htaccess);
        let last = [websockets, unwatched, unrefreshed].into_iter().flatten();
        first.chain(files).chain(last).chain(proxies).collect()
    }
}

/// The line that is due for an episode: verb, duration and count.
fn reported(
    episode: &mut LogThrottle<()>,
    now: Duration,
    line: impl Fn(&str, &str, u64) -> String,
) -> Option<String> {
    let (verb, account) = tense(episode.due(now)?);
    Some(line(verb, &seconds(account.lasted), account.times))
}

/// The same of several episodes, each with its subject; those that have ended are removed.
fn told_of_each<K: Ord>(
    episodes: &mut BTreeMap<K, LogThrottle<()>>,
    now: Duration,
    line: impl Fn(&K, &str, &str, u64) -> String,
) -> Vec<String> {
    let mut lines = Vec::new();
    episodes.retain(|about, episode| {
        let of = |verb: &str, lasted: &str, times| line(about, verb, lasted, times);
        lines.extend(reported(episode, now, of));
        !episode.is_quiet()
    });
    lines
}

/// The name of the access log in this file; none: the server's.
fn access_log(file: Option<&Path>) -> String {
    file.map_or("the access log".to_owned(), |file| format!("the access log {}", file.display()))
}

/// The same verb for a number of subjects.
fn agreeing(verb: &str, subjects: u64) -> &'static str {
    match (verb, subjects) {
        ("was", 1) => "was",
        ("was", _) => "were",
        (_, 1) => "has been",
        _ => "have been",
    }
}

/// The verb for an episode, and its numbers.
pub fn tense<T>(news: News<T>) -> (&'static str, Account<T>) {
    match news {
        News::GoesOn(account) => ("has been", account),
        News::Over(account) => ("was", account),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_lines_are_counted_and_told_when_the_log_is_well_again() {
        let troubles = RepeatedErrors::default();
        assert!(troubles.lock().is_quiet());
        for _ in 0..100 {
            troubles.lines_lost(None, 3, &"no space");
        }
        let later = troubles.started.elapsed() + CALM;
        let lines = troubles.lock().due(later);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].contains("up to 300 lines are lost"), "{lines:?}");
        assert!(troubles.lock().is_quiet());
    }

    #[test]
    fn lost_lines_and_refused_files_of_a_site_hide_those_of_no_other_log_or_site() {
        let troubles = RepeatedErrors::default();
        let refused = Refused::plain(404, "too many symbolic links");
        for name in ["a", "b"].map(|name| Path::new("/srv").join(name)) {
            troubles.lines_lost(Some(&name), 1, &"the quota is reached");
            troubles.file_refused(&name, "/x", &refused);
        }
        troubles.lines_lost(None, 2, &"no space");
        let later = troubles.started.elapsed() + CALM;
        let lines = troubles.lock().due(later).join("\n");
        for of_each in ["the access log was", "the access log /srv/b was", "/srv/b: for"] {
            assert!(lines.contains(of_each), "{lines}");
        }
        assert_eq!(lines.lines().count(), 5, "{lines}");
        assert!(troubles.lock().is_quiet());
    }

    #[test]
    fn a_mistake_in_a_htaccess_file_is_counted_and_logged_again_when_it_comes_back() {
        let troubles = RepeatedErrors::default();
        let root = Path::new("/srv/www");
        for number in 0..MAX_SENTENCES_OF_ROOT + 100 {
            for _ in 0..2 {
                troubles.htaccess_failed(root, &format!("/.htaccess:{number}: Order is unknown"));
            }
        }
        assert!(!troubles.lock().is_quiet());
        let later = troubles.started.elapsed() + CALM;
        let lines = troubles.lock().due(later);
        assert_eq!(lines.len(), MAX_SENTENCES_OF_ROOT + 1);
        let end = "2 requests were failed: /srv/www: .htaccess: /.htaccess:0: Order is unknown";
        assert!(lines[0].ends_with(end), "{}", lines[0]);
        let end = format!("200 requests were failed: /srv/www: .htaccess: {LEFT_OUT}");
        assert!(lines[MAX_SENTENCES_OF_ROOT].ends_with(&end), "{lines:?}");
        assert!(troubles.lock().is_quiet());
        troubles.htaccess_failed(root, "/.htaccess:600: Order is unknown");
        assert!(!troubles.lock().is_quiet(), "there is room for other mistakes");
    }

    #[test]
    fn mistakes_of_some_sites_keep_those_of_no_other_site_out_of_the_log() {
        let troubles = RepeatedErrors::default();
        let logged = |of: &str| {
            let episodes = troubles.lock();
            let of_root = episodes.htaccess.get(Path::new(of));
            of_root.map_or(0, |of_root| {
                of_root.keys().filter(|said| !said.ends_with(LEFT_OUT)).count()
            })
        };
        let fail = |root: &str| {
            for number in 0..2 * MAX_SENTENCES {
                troubles.htaccess_failed(Path::new(root), &format!("/.htaccess:{number}: unknown"));
            }
        };
        fail("/srv/hostile");
        fail("/srv/other");
        assert_eq!(logged("/srv/other"), MAX_SENTENCES_OF_ROOT);
        // Together, many fill the common places.
        for number in 0..MAX_SENTENCES {
            fail(&format!("/srv/hostile{number}"));
        }
        fail("/srv/last");
        assert_eq!(logged("/srv/last"), 1);
    }
}
