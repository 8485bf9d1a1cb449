//! Lines and words of a configuration file, as Apache reads them (`ap_cfg_getline`,
//! `ap_getword_conf` and `parseargline`).

/// A logical line: continuation lines are joined.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogicalLine {
    /// The number of its last physical line, from 1, which is what Apache reports.
    pub number: usize,
    /// Its text without white space around it.
    pub text: Vec<u8>,
}

/// The logical lines of a file without comments and empty lines. A backslash at the end of a line
/// joins it with the next one, also in a comment.
pub fn lines(text: &[u8]) -> Vec<LogicalLine> {
    let mut lines = Vec::new();
    let mut joined: Vec<u8> = Vec::new();
    let mut physical = text.split(|byte| *byte == b'\n').enumerate().peekable();
    while let Some((index, line)) = physical.next() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if let Some(continued) = line.strip_suffix(b"\\")
            && physical.peek().is_some()
        {
            joined.extend_from_slice(continued);
            continue;
        }
        joined.extend_from_slice(line);
        let trimmed = joined.trim_ascii();
        if !trimmed.is_empty() && trimmed[0] != b'#' {
            lines.push(LogicalLine { number: index + 1, text: trimmed.to_vec() });
        }
        joined.clear();
    }
    lines
}

/// The words of a directive that are left.
#[derive(Debug, Clone)]
pub struct Words<'a>(&'a [u8]);

impl<'a> Words<'a> {
    /// The words of a text.
    pub fn of(text: &'a [u8]) -> Words<'a> {
        Words(text.trim_ascii_start())
    }

    /// The text that is left.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// The next word; empty at the end (`ap_getword_conf`).
    pub fn word(&mut self) -> Vec<u8> {
        let text = self.0.trim_ascii_start();
        let (inner, end, quote) = match text.first() {
            None => (&text[..0], 0, None),
            Some(&quote @ (b'"' | b'\'')) => {
                let end = end_of_quoted(&text[1..], quote);
                (&text[1..=end], (end + 2).min(text.len()), Some(quote))
            }
            Some(_) => {
                let end = text.iter().position(u8::is_ascii_whitespace).unwrap_or(text.len());
                (&text[..end], end, None)
            }
        };
        self.0 = text[end..].trim_ascii_start();
        unescaped(inner, quote)
    }

    /// The next word if there is one.
    pub fn next_word(&mut self) -> Option<Vec<u8>> {
        (!self.0.is_empty()).then(|| self.word())
    }
}

impl Iterator for Words<'_> {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        self.next_word()
    }
}

/// The length of a quoted text up to its closing quote, or all of it without one.
fn end_of_quoted(text: &[u8], quote: u8) -> usize {
    let mut at = 0;
    while at < text.len() && text[at] != quote {
        let is_escape = text[at] == b'\\'
            && text.get(at + 1).is_some_and(|next| *next == quote || *next == b'\\');
        at += 1 + usize::from(is_escape);
    }
    at.min(text.len())
}

/// `\\` is `\`, and so is the quote behind a backslash (`substring_conf`).
fn unescaped(text: &[u8], quote: Option<u8>) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let next = bytes.peek().copied();
        if byte == b'\\' && (next == Some(b'\\') || (quote.is_some() && next == quote)) {
            out.extend(bytes.next());
        } else {
            out.push(byte);
        }
    }
    out
}

/// The arguments of RewriteRule and RewriteCond, which split their line themselves: nothing is
/// unescaped, and an escaped space belongs to its word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RewriteArguments {
    /// The pattern, or the tested string.
    pub first: Vec<u8>,
    /// The substitution, or the condition.
    pub second: Vec<u8>,
    /// The flags.
    pub flags: Option<Vec<u8>>,
}

impl RewriteArguments {
    /// Splits a line; none with fewer than two arguments.
    pub fn split(text: &[u8]) -> Option<RewriteArguments> {
        let (first, rest) = raw_word(text.trim_ascii_start());
        let rest = rest?.trim_ascii_start();
        let (second, rest) = raw_word(rest);
        let rest = rest.unwrap_or_default().trim_ascii_start();
        let flags = (!rest.is_empty()).then(|| raw_word(rest).0.to_vec());
        Some(RewriteArguments { first: first.to_vec(), second: second.to_vec(), flags })
    }
}

/// A word, and what follows its end; none at the end of the line.
fn raw_word(text: &[u8]) -> (&[u8], Option<&[u8]>) {
    let quote = text.first().copied().filter(|byte| matches!(byte, b'"' | b'\''));
    let text = &text[usize::from(quote.is_some())..];
    let mut at = 0;
    while at < text.len() {
        let byte = text[at];
        let ends = match quote {
            Some(quote) => byte == quote,
            None => byte.is_ascii_whitespace(),
        };
        if ends {
            return (&text[..at], Some(&text[at + 1..]));
        }
        let escapes = byte == b'\\' && text.get(at + 1).is_some_and(u8::is_ascii_whitespace);
        at += 1 + usize::from(escapes);
    }
    (text, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        Words::of(text.as_bytes()).map(|word| String::from_utf8(word).unwrap()).collect()
    }

    #[test]
    fn lines_are_joined_at_a_backslash_and_comments_are_left_out() {
        let text = b"# no \\\n still no\n A \\\n  b\r\n\n#c\nD";
        let found: Vec<(usize, Vec<u8>)> =
            lines(text).into_iter().map(|line| (line.number, line.text)).collect();
        assert_eq!(found, [(4, b"A   b".to_vec()), (7, b"D".to_vec())]);
    }

    #[test]
    fn words_end_at_spaces_outside_of_quotes() {
        assert_eq!(words(r#"a "b c" 'd "e' f\\g"#), ["a", "b c", "d \"e", r"f\g"]);
        assert_eq!(words(r#""a\"b" "" c"#), ["a\"b", "", "c"]);
        assert_eq!(words("\"open end"), ["open end"]);
    }

    #[test]
    fn arguments_of_rewrites_keep_their_backslashes() {
        let split = RewriteArguments::split(br#"^a\ b\\.c$ "x y" [L,R]"#).unwrap();
        assert_eq!(split.first, br"^a\ b\\.c$");
        assert_eq!(split.second, b"x y");
        assert_eq!(split.flags.unwrap(), b"[L,R]");
        assert!(RewriteArguments::split(b"one").is_none());
    }
}
