//! The page about a fatal error, which a development server shows to a client on this machine:
//! message, stack, and the lines around the error.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;

use maitred_php::Params;

/// The messages of PHP that end a script, as it logs them.
const FATAL: [&str; 3] = [
    "PHP message: PHP Fatal error:  ",
    "PHP message: PHP Parse error:  ",
    "PHP message: PHP Recoverable fatal error:  ",
];

/// Headers of a client that another machine may be behind.
const FORWARDED: [&[u8]; 7] = [
    b"HTTP_X_FORWARDED_FOR",
    b"HTTP_X_FORWARDED_HOST",
    b"HTTP_X_FORWARDED_PROTO",
    b"HTTP_X_REAL_IP",
    b"HTTP_CF_CONNECTING_IP",
    b"HTTP_FORWARDED",
    b"HTTP_VIA",
];

/// Lines before and after the error.
const CONTEXT_LINES: usize = 5;

/// Most bytes that are read of a file for its lines.
const FILE_BYTES: u64 = 1 << 20;

/// Most bytes of a message.
const MESSAGE_BYTES: usize = 32 * 1024;

/// The end of a page of the script's own, in which its end is searched, in bytes.
const TAIL_BYTES: usize = 256;

/// What becomes of a response.
#[derive(Debug, Default)]
pub struct ErrorPage {
    /// The first fatal error.
    message: Option<String>,
    /// The response can take a page; none: its header is not sent yet.
    takes_page: Option<bool>,
    /// The end of the body.
    tail: Vec<u8>,
}

impl ErrorPage {
    /// The page for a request, if its client is on this machine.
    pub fn of(params: &Params) -> Option<ErrorPage> {
        let address = params.get(b"REMOTE_ADDR")?;
        let address: IpAddr = std::str::from_utf8(address).ok()?.parse().ok()?;
        let is_forwarded = FORWARDED.iter().any(|name| params.get(name).is_some());
        let is_local = address.to_canonical().is_loopback() && !is_forwarded;
        is_local.then(ErrorPage::default)
    }

    /// Takes a message that the script logs.
    pub fn log(&mut self, message: &[u8]) {
        let message = &message[..message.len().min(MESSAGE_BYTES)];
        let text = String::from_utf8_lossy(message);
        if self.message.is_none() && FATAL.iter().any(|start| text.starts_with(start)) {
            let start = "PHP message: PHP ".len();
            self.message = text.get(start..).map(str::to_owned);
        }
    }

    /// Takes bytes of the response: its whole header first, then its body.
    pub fn send(&mut self, bytes: &[u8]) {
        if self.takes_page.is_none() {
            self.takes_page = Some(takes_page(bytes));
            return;
        }
        let start = bytes.len().saturating_sub(TAIL_BYTES);
        self.tail.extend_from_slice(&bytes[start..]);
        let excess = self.tail.len().saturating_sub(TAIL_BYTES);
        self.tail.drain(..excess);
    }

    /// The end of the response, if the script has ended with a fatal error. A page that is complete
    /// already is the script's own.
    pub fn end(self) -> Option<String> {
        let tail = self.tail.to_ascii_lowercase();
        let is_complete = tail.windows(6).any(|bytes| bytes == b"</html");
        let message = self.message.filter(|_| self.takes_page == Some(true) && !is_complete)?;
        Some(page(&message))
    }
}

/// Whether a response with this header is a page whose length is open.
fn takes_page(head: &[u8]) -> bool {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let is_html = |line: &str| line.starts_with("content-type:") && line.contains("text/html");
    let is_fixed =
        |line: &str| line.starts_with("content-length:") || line.starts_with("content-encoding:");
    head.lines().any(is_html) && !head.lines().any(is_fixed)
}

fn page(message: &str) -> String {
    let (first, rest) = message.split_once('\n').unwrap_or((message, ""));
    let mut html = String::from(
        "\n<!-- maitred: an error of the development server -->\n<div style=\"all:initial;\
         display:block;margin:1em;padding:1em;border:2px solid #b00;background:#fff;color:#222;\
         font:15px/1.4 sans-serif\">",
    );
    let _ = write!(html, "<b style=\"color:#b00\">{}</b>", escaped(first));
    if let Some((file, line)) = place(message) {
        let _ = write!(html, "<p>{}:{line}</p>", escaped(file));
        if let Some(excerpt) = excerpt(file, line) {
            let _ = write!(html, "<pre style=\"background:#f4f4f4;padding:.5em\">{excerpt}</pre>");
        }
    }
    if !rest.trim().is_empty() {
        let _ = write!(html, "<pre>{}</pre>", escaped(rest.trim_end()));
    }
    html.push_str("<small>Shown to clients on this machine only.</small></div>\n");
    html
}

/// The file and the line at the end of a message: `… in FILE on line N`.
fn place(message: &str) -> Option<(&str, usize)> {
    let (before, line) = message.trim_end().rsplit_once(" on line ")?;
    let last = before.rsplit('\n').next()?;
    let (_, file) = last.rsplit_once(" in ")?;
    Some((file, line.parse().ok()?))
}

/// The lines around an error, numbered, as HTML. None if the file cannot be read.
fn excerpt(file: &str, line: usize) -> Option<String> {
    let mut text = Vec::new();
    let file = File::open(file).ok().filter(|file| file.metadata().is_ok_and(|of| of.is_file()))?;
    file.take(FILE_BYTES).read_to_end(&mut text).ok()?;
    let text = String::from_utf8_lossy(&text);
    let first = line.saturating_sub(CONTEXT_LINES).max(1);
    let lines = (1..).zip(text.lines()).skip(first - 1).take(line + CONTEXT_LINES + 1 - first);
    let mut html = String::new();
    for (number, text) in lines {
        let text = escaped(text);
        let _ = match number == line {
            true => writeln!(html, "<b style=\"color:#b00\">{number:>5}  {text}</b>"),
            false => writeln!(html, "{number:>5}  {text}"),
        };
    }
    (!html.is_empty()).then_some(html)
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNCAUGHT: &[u8] = b"PHP message: PHP Fatal error:  Uncaught Exception: <b> in \
                              /nonexistent/a.php:3\nStack trace:\n#0 {main}\n  thrown in \
                              /nonexistent/a.php on line 3";
    const HTML: &[u8] = b"Status: 500\r\nContent-type: text/html; charset=UTF-8\r\n\r\n";

    fn end(head: &[u8], message: &[u8], body: &[u8]) -> Option<String> {
        let mut page = ErrorPage::default();
        page.log(message);
        page.send(head);
        page.send(body);
        page.end()
    }

    #[test]
    fn a_fatal_error_ends_the_page_with_its_message_and_stack() {
        let page = end(HTML, UNCAUGHT, b"<p>half a page").unwrap();
        assert!(page.contains("Fatal error:  Uncaught Exception: &lt;b&gt; in"), "{page}");
        assert!(page.contains("<p>/nonexistent/a.php:3</p>"), "{page}");
        assert!(page.contains("#0 {main}"), "{page}");
    }

    #[test]
    fn a_complete_page_and_anything_but_a_page_stay_as_they_are() {
        assert_eq!(end(HTML, UNCAUGHT, b"<html>My own error page</HTML>\n"), None);
        assert_eq!(end(HTML, b"PHP message: PHP Warning:  x in /a.php on line 3", b""), None);
        assert_eq!(end(b"Content-type: application/json\r\n\r\n", UNCAUGHT, b""), None);
        let fixed = [&b"Content-Length: 5\r\n"[..], HTML].concat();
        assert_eq!(end(&fixed, UNCAUGHT, b""), None);
    }

    #[test]
    fn only_a_client_on_this_machine_gets_it() {
        for (address, forwarded, is_shown) in [
            ("127.0.0.1", None, true),
            ("::1", None, true),
            ("::ffff:127.0.0.1", None, true),
            ("192.0.2.1", None, false),
            ("127.0.0.1", Some("192.0.2.1"), false),
        ] {
            let mut params = Params::new();
            params.push(b"REMOTE_ADDR", address.as_bytes()).unwrap();
            if let Some(forwarded) = forwarded {
                params.push(b"HTTP_X_FORWARDED_FOR", forwarded.as_bytes()).unwrap();
            }
            assert_eq!(ErrorPage::of(&params).is_some(), is_shown, "{address} {forwarded:?}");
        }
    }

    #[test]
    fn the_lines_around_an_error_are_numbered() {
        let file = std::env::temp_dir().join(format!("excerpt-{}.php", std::process::id()));
        let text: String = (1..=20).map(|line| format!("line {line};\n")).collect();
        std::fs::write(&file, text).unwrap();
        let shown = excerpt(file.to_str().unwrap(), 7).unwrap();
        std::fs::remove_file(&file).unwrap();
        assert_eq!(shown.lines().count(), 2 * CONTEXT_LINES + 1, "{shown}");
        assert!(shown.starts_with("    2  line 2;") && shown.contains(">    7  line 7;</b>"));
    }
}
