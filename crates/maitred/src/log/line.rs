//! Lines of php-fpm's log, byte for byte (`zlog.c`).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_config::fpm::Level;
use maitred_os::clock::format_local;

/// Longest line that is not cut even if `log_limit` is lower, in bytes: php-fpm's own buffer.
const UNCUT_BYTES: usize = 2048;

/// The end of a cut line.
const CUT: &[u8] = b"...";

/// The source location of a message; shown at the debug level.
#[derive(Debug, Clone, Copy)]
pub struct SourceLocation<'a> {
    /// The process.
    pub pid: u32,
    /// The module.
    pub module: &'a str,
    /// The line in it.
    pub line: u32,
}

/// The prefix of a message in a file: time and level, and the source location if there is one.
pub fn prefix(level: Level, now: SystemTime, place: Option<SourceLocation<'_>>) -> String {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let date = date(since);
    let level = level.name();
    match place {
        None => format!("[{date}] {level}: "),
        Some(SourceLocation { pid, module, line }) => {
            let micros = since.subsec_micros();
            format!("[{date}.{micros:06}] {level}: pid {pid}, {module}(), line {line}: ")
        }
    }
}

/// The prefix of a message in syslog, which adds time and process.
pub fn syslog_prefix(level: Level, place: Option<SourceLocation<'_>>) -> String {
    let level = level.name();
    match place {
        None => format!("[{level}] "),
        Some(SourceLocation { module, line, .. }) => format!("[{level}] {module}(), line {line}: "),
    }
}

fn date(since: Duration) -> String {
    let second = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let text = format_local(second, c"%d-%b-%Y %H:%M:%S");
    String::from_utf8_lossy(&text).into_owned()
}

/// A message of the server: one line, cut if it is longer than both `limit` and php-fpm's buffer.
pub fn whole(prefix: &str, text: &[u8], limit: usize) -> Vec<u8> {
    let mut line = [prefix.as_bytes(), text].concat();
    let longest = limit.max(UNCUT_BYTES);
    if line.len() >= longest {
        line.truncate(longest - 1 - CUT.len());
        line.extend_from_slice(CUT);
    }
    line.push(b'\n');
    line
}

/// Output of a worker.
#[derive(Debug, Clone, Copy)]
pub struct WorkerOutput<'a> {
    /// The worker and its stream, with a colon and a blank at the end.
    pub who: &'a str,
    /// The output.
    pub text: &'a [u8],
    /// The text after the closing quote.
    pub ending: &'a str,
}

/// Worker output in quotes, wrapped into lines of at most `limit` bytes.
pub fn said(prefix: &str, said: &WorkerOutput<'_>, limit: usize) -> Vec<Vec<u8>> {
    if said.text.is_empty() && said.ending.is_empty() {
        return Vec::new();
    }
    let before = [prefix, said.who, "\""].concat();
    let mut lines = wrapped(&before, said.text, "\"", limit);
    if let Some(last) = lines.last_mut().filter(|_| !said.ending.is_empty()) {
        // The end of line stands there already.
        if last.len() + said.ending.len() > limit {
            let line = [prefix, said.who, said.ending.trim_start_matches(", "), "\n"].concat();
            lines.push(line.into_bytes());
        } else {
            last.pop();
            last.extend_from_slice(said.ending.as_bytes());
            last.push(b'\n');
        }
    }
    lines
}

/// Undecorated worker output, wrapped into lines of at most `limit` bytes.
pub fn bare(text: &[u8], limit: usize) -> Vec<Vec<u8>> {
    if text.is_empty() {
        return Vec::new();
    }
    wrapped("", text, "", limit)
}

/// `text` between `before` and `after`, in lines of at most `limit` bytes with their ends. A line
/// breaks as soon as it would be `limit` bytes long without its end.
fn wrapped(before: &str, text: &[u8], after: &str, limit: usize) -> Vec<Vec<u8>> {
    // Without space for the text this loop would never end.
    let room = limit.saturating_sub(before.len() + after.len()).max(2);
    let mut lines = Vec::new();
    let mut rest = text;
    loop {
        let here = if rest.len() >= room { room - 1 } else { rest.len() };
        let (piece, more) = rest.split_at(here);
        lines.push([before.as_bytes(), piece, after.as_bytes(), b"\n"].concat());
        if more.is_empty() {
            return lines;
        }
        rest = more;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PREFIX: &str = "[21-Nov-2026 23:48:00] WARNING: ";

    #[test]
    fn a_line_begins_with_time_and_level_and_at_debug_level_with_the_place() {
        let now = UNIX_EPOCH + Duration::new(1_795_166_070, 5_000);
        let line = prefix(Level::Notice, now, None);
        assert!(line.starts_with('[') && line.ends_with("] NOTICE: "), "{line}");
        assert!(line.contains("-Nov-2026 "), "{line}");
        assert_eq!(line.len(), "[21-Nov-2026 09:14:30] NOTICE: ".len());
        let place = SourceLocation { pid: 7, module: "reload", line: 12 };
        let line = prefix(Level::Debug, now, Some(place));
        let end = ".000005] DEBUG: pid 7, reload(), line 12: ";
        assert!(line.ends_with(end), "{line}");
        assert_eq!(syslog_prefix(Level::Alert, None), "[ALERT] ");
        assert_eq!(syslog_prefix(Level::Debug, Some(place)), "[DEBUG] reload(), line 12: ");
    }

    #[test]
    fn a_message_is_cut_only_beyond_the_limit_and_beyond_what_php_fpm_takes() {
        let text = vec![b'x'; 1500];
        assert_eq!(whole(PREFIX, &text, 1024).len(), PREFIX.len() + 1500 + 1);
        let text = vec![b'x'; 5000];
        let cut = whole(PREFIX, &text, 1024);
        assert_eq!(cut.len(), UNCUT_BYTES);
        assert!(cut.ends_with(b"x...\n"));
        assert_eq!(whole(PREFIX, &text, 8000).len(), PREFIX.len() + 5000 + 1);
    }

    /// What php-fpm8.2 8.2.36 does with `log_limit = 1050` and a message of 2048 bytes.
    #[test]
    fn what_a_worker_says_is_wrapped_so_that_no_line_is_longer_than_the_limit() {
        let who = "[pool unconfined] child 12345 said into stderr: ";
        let text = vec![b'a'; 2048];
        let said = |text, ending, limit| said(PREFIX, &WorkerOutput { who, text, ending }, limit);
        let lines = said(&text, "", 1050);
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0].len(), 1050);
        assert_eq!(lines[1].len(), 1050);
        assert!(lines.iter().all(|line| line.ends_with(b"\"\n")));
        let letters = |line: &Vec<u8>| line.iter().filter(|byte| **byte == b'a').count();
        let own = letters(&said(b"b", "", 1050)[0]);
        let all: usize = lines.iter().map(|line| letters(line) - own).sum();
        assert_eq!(all, 2048);
        assert!(said(b"x", ", pipe is closed", 1050)[0].ends_with(b"\"x\", pipe is closed\n"));
        let full = vec![b'a'; 1050 - PREFIX.len() - who.len() - 3];
        let lines = said(&full, ", pipe is closed", 1050);
        assert_eq!(lines.len(), 2);
        assert!(lines[1].ends_with(b"stderr: pipe is closed\n"));
    }

    #[test]
    fn undecorated_words_are_wrapped_alone() {
        let lines = bare(&[b'a'; 2000], 1000);
        let lengths: Vec<usize> = lines.iter().map(Vec::len).collect();
        assert_eq!(lengths, [1000, 1000, 3]);
        assert!(bare(b"", 1000).is_empty(), "nothing was said");
    }

    #[test]
    fn a_limit_below_the_prefix_still_comes_to_an_end() {
        assert_eq!(wrapped(PREFIX, b"abc", "\"", 10).len(), 3);
    }
}
