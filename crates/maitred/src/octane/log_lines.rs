//! Lines of maitred's log as lines of Caddy's JSON log, which Octane reads and prints.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

/// The format of the access log: a line has the fields that Octane reads of Caddy's.
pub const ACCESS_LOG_FORMAT: &str = concat!(
    r#"{"level":"info","ts":$msec,"logger":"http.log.access","msg":"handled request","#,
    r#""request":{"remote_ip":"$remote_addr","proto":"$server_protocol","#,
    r#""method":"$request_method","host":"$host","uri":"$request_uri"},"#,
    r#""bytes_read":$request_length,"duration":$request_time,"size":$body_bytes_sent,"#,
    r#""status":$status}"#
);

/// What a line of the access log begins with.
const ACCESS_LINE: &str = r#"{"level":"info","ts":"#;

/// What maitred's messages without a time begin with.
const PLAIN: &str = "maitred: ";

/// Levels of maitred's log, and Caddy's names for them.
const LEVELS: [(&str, &str); 5] = [
    ("ERROR", "error"),
    ("WARN", "warn"),
    ("INFO", "info"),
    ("DEBUG", "debug"),
    ("TRACE", "debug"),
];

/// Translates message by message. A further line of a message, if it comes later, has the level of
/// the first.
#[derive(Debug)]
pub struct LogLines {
    level: &'static str,
}

impl LogLines {
    /// At the begin of the log.
    pub fn new() -> LogLines {
        LogLines { level: "info" }
    }

    /// The line for Octane; nothing of an empty message.
    pub fn translate(&mut self, line: &str, now: SystemTime) -> String {
        if line.trim().is_empty() {
            return String::new();
        }
        if line.starts_with(ACCESS_LINE) {
            return format!("{line}\n");
        }
        let message = match self.level_of(line) {
            Some((level, message)) => {
                self.level = level;
                message
            }
            None => line.trim_start(),
        };
        let message = stream_of(message).unwrap_or(message);
        let seconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let line = json!({
            "level": self.level, "ts": seconds, "logger": "maitred", "msg": message
        });
        format!("{line}\n")
    }

    /// The level of a line with one, and its message; none of a message's further lines.
    fn level_of<'l>(&self, line: &'l str) -> Option<(&'static str, &'l str)> {
        if let Some(message) = line.strip_prefix(PLAIN) {
            let level = if message.starts_with("serving ") { "info" } else { "error" };
            return Some((level, message));
        }
        let (time, rest) = line.split_once(' ')?;
        if !time.as_bytes().first()?.is_ascii_digit() {
            return None;
        }
        let (word, message) = rest.trim_start().split_once(' ')?;
        let level = LEVELS.into_iter().find(|(name, _)| *name == word)?.1;
        Some((level, message))
    }
}

/// What a worker of Octane has written for the command, which prints it: an object with a `type`.
/// maitred writes the pool before it.
fn stream_of(message: &str) -> Option<&str> {
    let start = message.find('{')?;
    let is_of_pool = message[..start].trim_end().ends_with(':');
    let text = message.get(start..)?;
    let value: Value = serde_json::from_str(text).ok()?;
    (is_of_pool && value.get("type").is_some_and(Value::is_string)).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &mut LogLines, line: &str) -> (String, String) {
        let text = lines.translate(line, UNIX_EPOCH);
        let value: Value = serde_json::from_str(&text).unwrap();
        let field = |name: &str| value[name].as_str().unwrap_or_default().to_owned();
        (field("level"), field("msg"))
    }

    fn pair(level: &str, message: &str) -> (String, String) {
        (level.to_owned(), message.to_owned())
    }

    #[test]
    fn levels_are_caddys_and_further_lines_have_the_level_of_the_first() {
        let mut lines = LogLines::new();
        let line = "2026-11-29T06:42:38+00:00  WARN pool worker: a.php: an error [request a0]";
        let expected = pair("warn", "pool worker: a.php: an error [request a0]");
        assert_eq!(fields(&mut lines, line), expected);
        assert_eq!(fields(&mut lines, "    second \"line\""), pair("warn", "second \"line\""));
        let line = "2026-11-29T06:42:38+00:00 ERROR pool worker: PHP Fatal error";
        assert_eq!(fields(&mut lines, line), pair("error", "pool worker: PHP Fatal error"));
        let line = "maitred: serving /srv on http://localhost:8000";
        assert_eq!(fields(&mut lines, line).0, "info");
        assert_eq!(fields(&mut lines, "maitred: a.toml:3: no such user").0, "error");
    }

    #[test]
    fn what_a_worker_says_to_octane_is_the_message_itself() {
        let mut lines = LogLines::new();
        let said = r#"{"type":"throwable","message":"m","trace":[{"file":"a\nb"}]}"#;
        let line = format!("2026-11-29T06:42:38+00:00  WARN pool worker: {said}");
        assert_eq!(fields(&mut lines, &line), pair("warn", said));
        let line = r#"2026-11-29T06:42:38+00:00  WARN pool worker: a.php: got {"n":1}"#;
        assert_eq!(fields(&mut lines, line), pair("warn", r#"pool worker: a.php: got {"n":1}"#));
    }

    #[test]
    fn a_line_of_the_access_log_stays_as_it_is() {
        let line = r#"{"level":"info","ts":1.5,"msg":"handled request"}"#;
        assert_eq!(LogLines::new().translate(line, UNIX_EPOCH), format!("{line}\n"));
        assert_eq!(LogLines::new().translate(" ", UNIX_EPOCH), "");
        assert!(ACCESS_LOG_FORMAT.starts_with(ACCESS_LINE));
    }
}
