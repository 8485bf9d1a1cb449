//! Messages of scripts on the terminal of a development server: without the prefix of the log, and
//! a stack trace indented below its first line.

use maitred_config::Development;
use maitred_os::stderr;

use crate::logging::script_messages::PHP_PREFIX;

/// The colours of PHP's messages, by their start (ECMA-48, SGR); the last is for all others.
const COLORS: [(&str, &str); 5] = [
    ("PHP Fatal error:", "\x1b[1;31m"),
    ("PHP Parse error:", "\x1b[1;31m"),
    ("PHP Recoverable fatal error:", "\x1b[1;31m"),
    ("PHP Warning:", "\x1b[33m"),
    ("", "\x1b[2m"),
];

/// The control sequence that ends a colour.
const RESET: &str = "\x1b[0m";

/// Writes a message to the terminal. A terminal that takes nothing loses it.
pub fn write(message: &[u8], development: Development) {
    if let Some(lines) = lines(message, development.colors) {
        let _ = stderr::write_line(lines.as_bytes(), |_| Vec::new());
    }
}

fn lines(message: &[u8], colors: bool) -> Option<String> {
    let text = String::from_utf8_lossy(message);
    let text = text.trim_end();
    let text = text.strip_prefix(PHP_PREFIX).unwrap_or(text);
    let plain = |line: &str| line.replace(|c: char| c.is_control() && c != '\t', " ");
    let mut lines = text.split('\n').filter(|line| !line.trim().is_empty());
    let first = plain(lines.next()?).trim_end().to_owned();
    let color = COLORS.iter().find(|(start, _)| first.starts_with(start));
    let mut out = match color.filter(|_| colors) {
        Some((_, color)) => format!("{color}{first}{RESET}\n"),
        None => format!("{first}\n"),
    };
    for line in lines {
        out.push_str("    ");
        out.push_str(plain(line).trim_end());
        out.push('\n');
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_is_indented_below_its_message() {
        let message = b"PHP message: PHP Fatal error:  Uncaught E: x in /a.php:3\nStack trace:\n\
                        #0 {main}\n  thrown in /a.php on line 3";
        assert_eq!(
            lines(message, false).unwrap(),
            "PHP Fatal error:  Uncaught E: x in /a.php:3\n    Stack trace:\n    #0 {main}\n    \
             \x20 thrown in /a.php on line 3\n"
        );
        assert!(lines(message, true).unwrap().starts_with("\x1b[1;31mPHP Fatal error:"));
        assert_eq!(lines(b"\n", true), None);
    }

    #[test]
    fn a_message_controls_no_terminal() {
        let said = lines(b"PHP message: \x1b[31mhello\r\x07", false).unwrap();
        assert_eq!(said, " [31mhello\n");
    }
}
