//! An access log sent again with its own spacing. It is read as it is needed: it may be of any
//! length.
//!
//! Understood are the common and the combined format of Apache and nginx, and every other one with
//! a time in brackets and a request line in quotes: `… [22/Nov/2026:07:00:00 +0000] … "GET / …" …`.
//! Such a time says no more than the second, so the requests of a second are spread over it.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;

use crate::clock;
use crate::request::RequestSpec;
use crate::url::Url;
use crate::words;

/// Longest line that is looked at, in bytes; the rest of a longer one is passed over.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// How many lines are read before a log counts as one in another format.
const LINES_TO_JUDGE: usize = 1_000;

/// The furthest that a zone is ahead or behind, as zones are written.
const FURTHEST_ZONE: i64 = 1_400;

/// How many requests are read ahead.
const AHEAD: usize = 4_096;

/// Most requests of one second that are spread over it; more come at its end.
const MAX_IN_SECOND: usize = 100_000;

/// A log, and how it is sent.
#[derive(Debug, Clone)]
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// What is sent to whom, but for method and path.
    pub like: RequestSpec,
    /// How much faster than it was.
    pub speed: f64,
}

/// A request of a log.
#[derive(Debug, Clone, PartialEq)]
pub struct Line {
    /// When it is due, in nanoseconds from the first one's second.
    pub at: u64,
    /// The request of the plan's list that it belongs to.
    pub row: usize,
    /// What is asked.
    pub spec: RequestSpec,
}

/// What a line of a log says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry<'a> {
    /// Seconds since 1970.
    second: i64,
    method: &'a str,
    path: &'a str,
}

impl Source {
    /// Looks whether the log can be read.
    ///
    /// # Errors
    /// One sentence about what is wrong with it.
    pub fn check(&self) -> Result<(), String> {
        let shown = self.file.display();
        let file =
            File::open(&self.file).map_err(|why| format!("{shown} cannot be read: {why}"))?;
        let mut lines = Lines::new(file);
        let mut first = None;
        for _ in 0..LINES_TO_JUDGE {
            let line = lines
                .next()
                .map_err(|why| format!("{shown} cannot be read: {why}"))?;
            let Some(line) = line else { break };
            if entry(&line).is_some_and(|entry| is_repeatable(entry.method)) {
                return Ok(());
            }
            first.get_or_insert(line);
        }
        let first = first.unwrap_or_default();
        let like: String = first.trim_end().chars().take(100).collect();
        let like = words::printable(&like);
        Err(format!(
            "{shown} is no access log with requests to send: expected lines such as '192.0.2.1 - - \
             [22/Nov/2026:07:00:00 +0000] \"GET / HTTP/1.1\" 200 5', found '{like}'"
        ))
    }
}

/// The paths of a log that may be asked for again, those most asked for first, each with how often it
/// was. No more than `most` lines are looked at.
///
/// # Errors
/// One sentence about what is wrong with the log.
pub fn popular(file: &Path, like: &RequestSpec, most: usize) -> Result<Vec<RequestSpec>, String> {
    let log = Source {
        file: file.to_owned(),
        like: like.clone(),
        speed: 1.0,
    };
    log.check()?;
    let unreadable = |why: io::Error| format!("{} cannot be read: {why}", file.display());
    let mut lines = Lines::new(File::open(file).map_err(unreadable)?);
    let mut counts: HashMap<(String, String), f64> = HashMap::new();
    for _ in 0..most {
        let Some(line) = lines.next().map_err(unreadable)? else {
            break;
        };
        let Some(entry) = entry(&line).filter(|entry| is_repeatable(entry.method)) else {
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

/// What may be sent again: a log has no bodies.
fn is_repeatable(method: &str) -> bool {
    matches!(method, "GET" | "HEAD")
}

/// Reads a log on a thread of its own.
#[derive(Debug)]
pub struct Reader {
    lines: mpsc::Receiver<Line>,
}

impl Reader {
    /// Begins to read.
    ///
    /// # Errors
    /// When the file cannot be read, or no thread can be had.
    pub fn start(log: &Source) -> io::Result<Reader> {
        let mut lines = Lines::new(File::open(&log.file)?);
        let (say, hear) = mpsc::channel(AHEAD);
        let log = log.clone();
        std::thread::Builder::new()
            .name("bench-log".to_owned())
            .spawn(move || {
                let mut spread = Spread::new(&log);
                while let Ok(Some(line)) = lines.next() {
                    let Some(entry) = entry(&line) else { continue };
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

    /// The next request, up to the end of the log.
    pub async fn next(&mut self) -> Option<Line> {
        self.lines.recv().await
    }
}

/// A file's lines, each bounded.
struct Lines {
    file: BufReader<File>,
    buffer: Vec<u8>,
}

impl Lines {
    fn new(file: File) -> Lines {
        Lines {
            file: BufReader::with_capacity(1 << 20, file),
            buffer: Vec::new(),
        }
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
        Spread {
            log,
            first: None,
            second: 0,
            specs: Vec::new(),
        }
    }

    /// The requests of the second before, if this one is of another.
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
        let since = self
            .second
            .saturating_sub(self.first.unwrap_or(self.second));
        let specs = std::mem::take(&mut self.specs);
        let count = specs.len().max(1) as f64;
        let lines = specs.into_iter().enumerate().map(|(place, spec)| {
            let second = since as f64 + place as f64 / count;
            Line {
                at: clock::nanos(second / self.log.speed),
                row: 0,
                spec,
            }
        });
        lines.collect()
    }
}

fn entry(line: &str) -> Option<Entry<'_>> {
    let (before, rest) = line.split_at(request_line(line)?);
    // A user's name comes before the time, and clients choose it: the last bracket is the server's.
    let (before, _) = before.rsplit_once(']')?;
    let (_, time) = before.rsplit_once('[')?;
    let (request, _) = rest[1..].split_once('"')?;
    let mut words = request.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    path.starts_with('/').then_some(Entry {
        second: seconds(time)?,
        method,
        path,
    })
}

/// Where the request line's quote is: the first that is none of a user's name, where Apache has a backslash before it.
fn request_line(line: &str) -> Option<usize> {
    let mut quotes = line.match_indices('"').map(|(place, _)| place);
    quotes.find(|place| !line[..*place].ends_with('\\'))
}

/// Seconds since 1970 of `22/Nov/2026:07:00:00 +0000`.
fn seconds(time: &str) -> Option<i64> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (date, zone) = time.split_once(' ')?;
    let (day, date) = date.split_once('/')?;
    let (month, date) = date.split_once('/')?;
    let mut parts = date.split(':');
    let day = number(day, 2, 31).filter(|day| *day > 0)?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let year = number(parts.next()?, 4, 9_999)?;
    let mut next = |most| number(parts.next()?, 2, most);
    let (hour, minute, second) = (next(23)?, next(59)?, next(60)?);
    if parts.next().is_some() {
        return None;
    }
    let (sign, digits) = match zone.split_at_checked(1)? {
        ("+", digits) => (1, digits),
        ("-", digits) => (-1, digits),
        _ => return None,
    };
    let offset = number(digits, 4, FURTHEST_ZONE)?;
    let offset = sign * (offset / 100 * 3_600 + offset % 100 * 60);
    let days = days_since_1970(year, i64::try_from(month).ok()? + 1, day);
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second - offset)
}

/// A number of so many digits, and no more than the most.
fn number(text: &str, digits: usize, most: i64) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_number)?;
    (number <= most).then_some(number)
}

/// Days of the Gregorian calendar, with years that begin in March, so that the leap day is the last.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let month_of_march_year = (month + 9) % 12;
    let day_of_year = (153 * month_of_march_year + 2) / 5 + day - 1;
    year * 365 + year / 4 - year / 100 + year / 400 + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str, speed: f64, name: &str) -> Source {
        let file = std::env::temp_dir().join(format!("maitred-{name}-{}", std::process::id()));
        std::fs::write(&file, text).expect("a file");
        let place = Url::read("http://127.0.0.1:80/", None).expect("a URL");
        Source {
            file,
            like: RequestSpec::get(place),
            speed,
        }
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
        let wanted = [
            (0.0, "GET /a?x=1"),
            (0.5, "HEAD /b"),
            (0.75, "GET /c"),
            (1.5, "GET /d"),
        ];
        let wanted = wanted.map(|(at, label)| (at, label.to_owned()));
        assert_eq!(lines(&source), wanted);
        std::fs::remove_file(&source.file).expect("a file of ours");
    }

    #[test]
    fn a_users_name_that_looks_like_a_time_delays_nothing() {
        let usual = source(LOG, 2.0, "named-not");
        for name in [
            "[31/Dec/9999/23/59/59 -2300]",
            "[31/Dec/9999:23:59:59 +9223372036854775807]",
            r#"[31/Dec/9999:23:59:59 +0000] \"GET /x"#,
        ] {
            let named = source(&LOG.replace("- - [", &format!("- {name} [")), 2.0, "named");
            assert_eq!(lines(&named), lines(&usual), "{name}");
            std::fs::remove_file(&named.file).expect("a file of ours");
        }
        std::fs::remove_file(&usual.file).expect("a file of ours");
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
        let found: Vec<_> = found
            .iter()
            .map(|spec| (spec.label(), spec.weight))
            .collect();
        let wanted = [("GET /c", 2.0), ("GET /a?x=1", 1.0), ("HEAD /b", 1.0)];
        assert_eq!(
            found,
            wanted.map(|(label, weight)| (label.to_owned(), weight))
        );
        std::fs::remove_file(&source.file).expect("a file of ours");
    }

    #[test]
    fn times_are_those_of_the_calendar() {
        for (text, wanted) in [
            ("01/Jan/1970:00:00:00 +0000", Some(0)),
            ("29/Feb/2024:12:00:00 +0000", Some(1_709_208_000)),
            ("22/Nov/2026:07:00:00 +0100", Some(1_795_327_200)),
            ("22/Nov/2026:01:30:00 -0430", Some(1_795_327_200)),
            ("32/Nov/2026:07:00:00 +0000", None),
            ("22/Nov/2026:07:00:00", None),
            ("22/Nov/2026/07/00/00 +0000", None),
            ("22/Nov/2026:07:00:00:00 +0000", None),
            ("22/Nov/2026:07:00:00 +9223372036854775807", None),
            ("22/Nov/2026:07:00:00 -2300", None),
            ("22/Nov/12026:07:00:00 +0000", None),
            ("22/Foo/2026:07:00:00 +0000", None),
            ("", None),
        ] {
            assert_eq!(seconds(text), wanted, "{text}");
        }
    }
}
