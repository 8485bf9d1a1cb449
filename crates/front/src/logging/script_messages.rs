//! Messages of scripts as records of the log: a message of several lines, such as an uncaught
//! exception with its stack trace, is one record.

use std::fmt::Display;

/// What PHP puts before a message that it logs.
pub const PHP_PREFIX: &str = "PHP message: ";

/// Starts of PHP's messages about errors that end a script: `E_ERROR`, uncaught exceptions,
/// `E_PARSE` and `E_RECOVERABLE_ERROR`.
const FATAL: [&str; 3] = ["PHP Fatal error:", "PHP Parse error:", "PHP Recoverable fatal error:"];

/// Longest record, in bytes without the prefix of the log; the rest of a longer message is a record
/// of its own. A datagram of syslog holds as much.
const RECORD_BYTES: usize = 7 * 1024;

/// What stands before each line of a record but the first.
const INDENTATION: &str = "    ";

/// Whether a message of PHP, without its prefix, is about an error that ends the script.
pub fn is_fatal(message: &str) -> bool {
    FATAL.iter().any(|start| message.starts_with(start))
}

/// A record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptRecord {
    /// Whether it is about an error that ends the script.
    pub is_fatal: bool,
    first: String,
    /// Further lines, indented, each with a line end before it.
    rest: String,
}

impl ScriptRecord {
    /// The text, with `suffix` at the end of the first line.
    pub fn text(&self, suffix: &dyn Display) -> String {
        format!("{}{suffix}{}", self.first, self.rest)
    }

    fn begin(line: &str) -> ScriptRecord {
        ScriptRecord { is_fatal: is_fatal(line), first: line.to_owned(), rest: String::new() }
    }

    fn append(&mut self, line: &str) {
        self.rest.push('\n');
        self.rest.push_str(INDENTATION);
        self.rest.push_str(line);
    }

    fn has_room(&self, line: &str) -> bool {
        self.first.len() + self.rest.len() + line.len() <= RECORD_BYTES
    }
}

/// The records of a message. `admits` decides on each line by its length in bytes; lines that it
/// does not admit are left out, and with the first line of a record all of it.
pub fn records(message: &[u8], mut admits: impl FnMut(usize) -> bool) -> Vec<ScriptRecord> {
    let mut records: Vec<ScriptRecord> = Vec::new();
    let mut is_dropped = false;
    for line in message.split(|byte| *byte == b'\n') {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let begins = records.is_empty() || line.starts_with(PHP_PREFIX.as_bytes());
        // The limit first, so that a dropped line costs little.
        if !admits(line.len()) {
            is_dropped |= begins;
            continue;
        }
        is_dropped &= !begins;
        if is_dropped {
            continue;
        }
        let line = of_line(line);
        match records.last_mut() {
            Some(record) if !begins && record.has_room(&line) => record.append(&line),
            last => {
                let is_fatal = !begins && last.is_some_and(|record| record.is_fatal);
                let text = line.strip_prefix(PHP_PREFIX).unwrap_or(&line);
                let record = ScriptRecord::begin(text);
                records.push(ScriptRecord { is_fatal: is_fatal || record.is_fatal, ..record });
            }
        }
    }
    records
}

fn of_line(line: &[u8]) -> String {
    printable(&String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(line)))
}

/// A line of the log, with a space for each control character but a tab: a carriage return would
/// overwrite its start on a terminal.
pub fn printable(line: &str) -> String {
    line.replace(|c: char| c.is_control() && c != '\t', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(message: &[u8]) -> Vec<String> {
        let records = records(message, |_| true);
        records.iter().map(|record| record.text(&" [request 5a]")).collect()
    }

    #[test]
    fn an_exception_with_its_trace_is_one_record_and_fatal() {
        let message = b"PHP message: PHP Fatal error:  Uncaught E: x in /a.php:3\nStack trace:\n\
                        #0 /a.php(4): f()\n#1 {main}\n  thrown in /a.php on line 3\n";
        let expected = "PHP Fatal error:  Uncaught E: x in /a.php:3 [request 5a]\n    Stack trace:\
                        \n    #0 /a.php(4): f()\n    #1 {main}\n      thrown in /a.php on line 3";
        assert_eq!(texts(message), [expected]);
        assert!(records(message, |_| true)[0].is_fatal);
        for (message, fatal) in [
            ("PHP message: PHP Parse error:  syntax error in /a.php on line 1", true),
            ("PHP message: PHP Warning:  Undefined variable $x in /a.php on line 1", false),
            ("PHP message: a script says PHP Fatal error: no", false),
        ] {
            assert_eq!(records(message.as_bytes(), |_| true)[0].is_fatal, fatal, "{message}");
        }
    }

    #[test]
    fn each_message_is_a_record() {
        let said = texts(b"PHP message: one\r\n\nPHP message: two\x1b[2K\n three");
        assert_eq!(said, ["one [request 5a]", "two [2K [request 5a]\n     three"]);
        assert!(texts(b"\n \n").is_empty());
    }

    #[test]
    fn no_record_is_longer_than_a_datagram_of_syslog() {
        let line = [&[b'x'; 1000][..], b"\n"].concat();
        let message = [b"PHP message: PHP Fatal error:  x\n", &line.repeat(20)[..]].concat();
        let records = records(&message, |_| true);
        assert!(records.len() > 2, "{}", records.len());
        for record in records {
            assert!(record.is_fatal && record.text(&"").len() <= RECORD_BYTES + 200);
        }
    }

    #[test]
    fn with_the_first_line_all_of_a_record_is_dropped() {
        let mut admitted = [true, true, false, true, true].into_iter();
        let message = b"PHP message: a\nb\nPHP message: c\nd\nPHP message: e";
        let records = records(message, |_| admitted.next().unwrap_or(false));
        let texts: Vec<String> = records.iter().map(|record| record.text(&"")).collect();
        assert_eq!(texts, ["a\n    b", "e"]);
    }
}
