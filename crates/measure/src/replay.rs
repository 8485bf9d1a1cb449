//! Replays an access log with its original timing. The log is streamed, so it may be of any length.
//!
//! Accepts the common and the combined format of Apache and nginx, and any format with a time in
//! brackets and a request line in quotes: `… [22/Nov/2026:07:00:00 +0000] … "GET / …" …`. Such
//! times have a resolution of one second, so the requests of a second are spread over it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use crate::clock;
use crate::request::RequestSpec;
use crate::url::Url;
use maitred_text::access_log::Entry;
use maitred_text::humanize;

/// The longest line that is parsed, in bytes; the rest of a longer one is skipped.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Number of lines without a request after which the log counts as one in another format.
const LINES_TO_JUDGE: usize = 1_000;

/// How many requests are read ahead.
const AHEAD: usize = 4_096;

/// Most requests of one second that are spread over it; further ones follow at its end.
const MAX_IN_SECOND: usize = 100_000;

/// A log, and how it is replayed.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// The template of the requests; method and path are the log's.
    pub like: RequestSpec,
    /// The speed as a factor.
    pub speed: f64,
}

/// A request of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// Its due time, in nanoseconds since the second of the first request.
    pub at: u64,
    /// The index of the plan's request that it belongs to.
    pub row: usize,
    /// The request.
    pub spec: RequestSpec,
}

impl Source {
    /// Checks that the log can be read.
    ///
    /// # Errors
    /// A message that says what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let shown = self.file.display();
        let file =
            File::open(&self.file).map_err(|why| format!("{shown} cannot be read: {why}"))?;
        let mut lines = Lines::new(file);
        let mut first = None;
        for _ in 0..LINES_TO_JUDGE {
            let line = lines.next().map_err(|why| format!("{shown} cannot be read: {why}"))?;
            let Some(line) = line else { break };
            if Entry::parse(&line).is_some_and(|entry| is_repeatable(entry.method)) {
                return Ok(());
            }
            first.get_or_insert(line);
        }
        let first = first.unwrap_or_default();
        let like: String = first.trim_end().chars().take(100).collect();
        let like = humanize::printable(&like);
        Err(format!(
            "{shown} is no access log with requests to send: expected lines such as '192.0.2.1 - - \
             [22/Nov/2026:07:00:00 +0000] \"GET / HTTP/1.1\" 200 5', found '{like}'"
        ))
    }
}

/// The paths of a log that may be requested again, the most frequent first, with their counts as
/// weights. At most `most` lines are read.
///
/// # Errors
/// A message that says what is wrong with the log.
pub fn popular(file: &Path, like: &RequestSpec, most: usize) -> Result<Vec<RequestSpec>, String> {
    let log = Source { file: file.to_owned(), like: like.clone(), speed: 1.0 };
    log.check()?;
    let unreadable = |why: io::Error| format!("{} cannot be read: {why}", file.display());
    let mut lines = Lines::new(File::open(file).map_err(unreadable)?);
    let mut counts: HashMap<(String, String), f64> = HashMap::new();
    for _ in 0..most {
        let Some(line) = lines.next().map_err(unreadable)? else {
            break;
        };
        let Some(entry) = Entry::parse(&line).filter(|entry| is_repeatable(entry.method)) else {
            continue;
        };
        let key = (entry.method.to_owned(), entry.path.to_owned());
        *counts.entry(key).or_default() += 1.0;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by(|(a, more), (b, less)| less.total_cmp(more).then_with(|| a.cmp(b)));
    let specs = counts.into_iter().filter_map(|((method, path), weight)| {
        Some(RequestSpec {
            url: Url::read(&path, Some(&like.url)).ok()?,
            method,
            weight,
            ..like.clone()
        })
    });
    Ok(specs.collect())
}

/// Whether the request may be sent again: a log has no bodies.
fn is_repeatable(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

/// Reads a log in a thread of its own.
#[derive(Debug)]
pub struct Reader {
    lines: mpsc::Receiver<Line>,
}

impl Reader {
    /// Starts to read.
    ///
    /// # Errors
    /// When the file cannot be read, or no thread can be started.
    pub fn start(log: &Source) -> io::Result<Reader> {
        let mut lines = Lines::new(File::open(&log.file)?);
        let (say, hear) = mpsc::channel(AHEAD);
        let log = log.clone();
        std::thread::Builder::new().name("bench-log".to_owned()).spawn(move || {
            let mut spread = Spread::new(&log);
            while let Ok(Some(line)) = lines.next() {
                let Some(entry) = Entry::parse(&line) else {
                    continue;
                };
                for line in spread.add(entry) {
                    if say.blocking_send(line).is_err() {
                        return;
                    }
                }
            }
            for line in spread.take() {
                if say.blocking_send(line).is_err() {
                    return;
                }
            }
        })?;
        Ok(Reader { lines: hear })
    }

    /// The next request, until the end of the log.
    pub async fn next(&mut self) -> Option<Line> {
        self.lines.recv().await
    }
}

/// The lines of a file, each with a maximum length.
struct Lines {
    file: BufReader<File>,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(file: File) -> Lines {
        Lines { file: BufReader::with_capacity(1 << 20, file), buffer: Vec::new() }
    }

    fn next(&mut self) -> io::Result<Option<String>> {
        self.buffer.clear();
        let mut bounded = io::Read::take(&mut self.file, MAX_LINE_BYTES);
        if bounded.read_until(b'\n', &mut self.buffer)? == 0 {
            return Ok(None);
        }
        if self.buffer.last() != Some(&b'\n') {
            self.file.skip_until(b'\n')?;
        }
        Ok(Some(String::from_utf8_lossy(&self.buffer).into_owned()))
    }
}

/// Spreads the requests of each second over it.
struct Spread<'a> {
    log: &'a Source,
    first: Option<i64>,
    second: i64,
    specs: Vec<RequestSpec>,
}

impl<'a> Spread<'a> {
    fn new(log: &'a Source) -> Spread<'a> {
        Spread { log, first: None, second: 0, specs: Vec::new() }
    }

    /// Adds a request. Returns the requests of the second before, if this one starts a new second.
    fn add(&mut self, entry: Entry<'_>) -> Vec<Line> {
        if !is_repeatable(entry.method) {
            return Vec::new();
        }
        let Ok(url) = Url::read(entry.path, Some(&self.log.like.url)) else {
            return Vec::new();
        };
        self.first.get_or_insert(entry.second);
        // Lines are written when requests end, so a time may be older than the one before.
        let over = entry.second > self.second || self.specs.len() >= MAX_IN_SECOND;
        let lines = if over { self.take() } else { Vec::new() };
        self.second = self.second.max(entry.second);
        self.specs.push(RequestSpec {
            url,
            method: entry.method.to_owned(),
            ..self.log.like.clone()
        });
        lines
    }

    fn take(&mut self) -> Vec<Line> {
        let since = self.second.saturating_sub(self.first.unwrap_or(self.second));
        let specs = std::mem::take(&mut self.specs);
        let count = specs.len().max(1) as f64;
        let lines = specs.into_iter().enumerate().map(|(place, spec)| {
            let second = since as f64 + place as f64 / count;
            Line { at: clock::nanos(second / self.log.speed), row: 0, spec }
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str, speed: f64, name: &str) -> Source {
        let file = std::env::temp_dir().join(format!("maitred-{name}-{}", std::process::id()));
        std::fs::write(&file, text).expect("a file");
        let place = Url::read("http://127.0.0.1:80/", None).expect("a URL");
        Source { file, like: RequestSpec::get(place), speed }
    }

    fn lines(source: &Source) -> Vec<(f64, String)> {
        let mut reader = Reader::start(source).expect("a thread");
        let mut lines = Vec::new();
        while let Some(line) = reader.lines.blocking_recv() {
            lines.push((clock::seconds(line.at), line.spec.label()));
        }
        lines
    }

    const LOG: &str = "\
192.0.2.1 - - [28/Feb/2024:23:59:59 +0000] \"GET /a?x=1 HTTP/1.1\" 200 5 \"-\" \"curl\"\n\
192.0.2.1 - - [28/Feb/2024:23:59:59 +0000] \"POST /cart HTTP/1.1\" 200 5\n\
192.0.2.1 - - [29/Feb/2024:00:00:00 +0000] \"HEAD /b HTTP/1.1\" 200 5\n\
what is no line\n\
192.0.2.1 - - [28/Feb/2024:23:59:59 +0000] \"GET /c HTTP/1.1\" 200 5\n\
192.0.2.1 - - [29/Feb/2024:01:00:02 +0100] \"GET /d HTTP/1.1\" 200 5\n";

    #[test]
    fn a_log_is_sent_again_with_its_own_spacing() {
        let source = source(LOG, 2.0, "replay");
        source.check().expect("a log");
        let wanted = [(0.0, "GET /a?x=1"), (0.5, "HEAD /b"), (0.75, "GET /c"), (1.5, "GET /d")];
        let wanted = wanted.map(|(at, label)| (at, label.to_owned()));
        assert_eq!(lines(&source), wanted);
        std::fs::remove_file(&source.file).expect("a file of ours");
    }

    #[test]
    fn a_log_in_another_format_is_refused_with_an_example() {
        let source = source("{\"ts\": 1, \"path\": \"/\"}\n", 1.0, "other");
        let why = source.check().expect_err("another format");
        assert!(why.contains("found '{\"ts\": 1"), "{why}");
        assert!(why.ends_with("\"/\"}'"), "{why}");
        std::fs::remove_file(&source.file).expect("a file of ours");
    }

    #[test]
    fn what_is_shown_of_a_log_commands_no_terminal() {
        let source = source("\u{1b}]0;mine\u{7} \u{9b}2J\r\n", 1.0, "commands");
        let why = source.check().expect_err("no log");
        assert!(!why.contains(char::is_control), "{why:?}");
        assert!(why.contains("found '\\u{1b}]0;mine"), "{why}");
        std::fs::remove_file(&source.file).expect("a file of ours");
    }

    #[test]
    fn what_a_log_has_most_of_comes_first() {
        let log = LOG.replace("GET /d", "GET /c");
        let source = source(&log, 1.0, "popular");
        let found = popular(&source.file, &source.like, 1_000).expect("a log");
        let found: Vec<_> = found.iter().map(|spec| (spec.label(), spec.weight)).collect();
        let wanted = [("GET /c", 2.0), ("GET /a?x=1", 1.0), ("HEAD /b", 1.0)];
        assert_eq!(found, wanted.map(|(label, weight)| (label.to_owned(), weight)));
        std::fs::remove_file(&source.file).expect("a file of ours");
    }
}
