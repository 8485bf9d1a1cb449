//! Words of a Caddyfile, by Caddy's rules of quotes, comments and heredocs.

/// A word, or a brace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    /// Without quotes.
    pub text: String,
    /// The line of its begin, from 1.
    pub line: usize,
    /// The line of its end.
    pub end_line: usize,
    /// Whether it was quoted: a brace in quotes is a word.
    pub is_quoted: bool,
}

impl Token {
    /// Whether it begins a block.
    pub fn opens(&self) -> bool {
        !self.is_quoted && self.text == "{"
    }

    /// Whether it ends a block.
    pub fn closes(&self) -> bool {
        !self.is_quoted && self.text == "}"
    }
}

/// The words of a text.
///
/// # Errors
/// The line of a quote or a heredoc without an end, and what it is.
pub(super) fn tokens(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let mut lexer = Lexer { rest: text.trim_start_matches('\u{feff}'), line: 1 };
    let mut found = Vec::new();
    while let Some(token) = lexer.token()? {
        found.push(token);
    }
    Ok(found)
}

struct Lexer<'t> {
    rest: &'t str,
    line: usize,
}

impl Lexer<'_> {
    fn next(&mut self) -> Option<char> {
        let letter = self.rest.chars().next()?;
        self.rest = &self.rest[letter.len_utf8()..];
        self.line += usize::from(letter == '\n');
        Some(letter)
    }

    fn token(&mut self) -> Result<Option<Token>, (usize, String)> {
        self.skip_blanks();
        let line = self.line;
        let Some(first) = self.rest.chars().next() else { return Ok(None) };
        let (text, is_quoted) = match first {
            '"' | '`' => (self.quoted(first)?, true),
            _ if self.rest.starts_with("<<") && self.heredoc_marker().is_some() => {
                (self.heredoc()?, true)
            }
            _ => (self.word(), false),
        };
        Ok(Some(Token { text, line, end_line: self.line, is_quoted }))
    }

    fn skip_blanks(&mut self) {
        while let Some(letter) = self.rest.chars().next() {
            // A line that ends in `\` goes on with the next one, which counts as the same.
            if let Some(rest) = continued(self.rest) {
                self.rest = rest;
            } else if letter == '#' {
                let end = self.rest.find('\n').unwrap_or(self.rest.len());
                self.rest = &self.rest[end..];
            } else if letter.is_whitespace() {
                self.next();
            } else {
                return;
            }
        }
    }

    fn word(&mut self) -> String {
        let mut text = String::new();
        while let Some(letter) = self.rest.chars().next() {
            if letter.is_whitespace() || continued(self.rest).is_some() {
                break;
            }
            text.push(letter);
            self.next();
        }
        text
    }

    fn quoted(&mut self, quote: char) -> Result<String, (usize, String)> {
        let line = self.line;
        self.next();
        let mut text = String::new();
        while let Some(letter) = self.next() {
            match letter {
                '\\' if quote == '"' && self.rest.starts_with('"') => {
                    text.extend(self.next());
                }
                letter if letter == quote => return Ok(text),
                letter => text.push(letter),
            }
        }
        Err((line, format!("`{quote}` has no end")))
    }

    fn heredoc_marker(&self) -> Option<String> {
        let first = self.rest[2..].split('\n').next()?.trim_end_matches('\r');
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        (!first.is_empty() && first.chars().all(is_plain)).then(|| first.to_owned())
    }

    fn heredoc(&mut self) -> Result<String, (usize, String)> {
        let line = self.line;
        let marker = self.heredoc_marker().unwrap_or_default();
        while self.next().is_some_and(|letter| letter != '\n') {}
        let mut lines: Vec<String> = Vec::new();
        loop {
            if self.rest.is_empty() {
                return Err((line, format!("`<<{marker}` has no end")));
            }
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            let (one, after) = self.rest.split_at(end);
            let indent = one.len() - one.trim_start().len();
            if let Some(behind) = one.trim_start().strip_prefix(&marker)
                && !behind.starts_with(|c: char| c.is_ascii_alphanumeric())
            {
                self.rest = &self.rest[indent + marker.len()..];
                let pad = &one[..indent];
                let stripped = lines.iter().map(|line| line.strip_prefix(pad).unwrap_or(line));
                return Ok(stripped.collect::<Vec<_>>().join("\n"));
            }
            lines.push(one.trim_end_matches('\r').to_owned());
            self.rest = after;
            self.next();
        }
    }
}

/// What follows a `\` at the end of a line.
fn continued(text: &str) -> Option<&str> {
    text.strip_prefix("\\\n").or_else(|| text.strip_prefix("\\\r\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(text: &str) -> Vec<String> {
        tokens(text).expect("it has an end").into_iter().map(|one| one.text).collect()
    }

    #[test]
    fn quotes_comments_and_continued_lines_are_those_of_caddy() {
        let text = "a \"b \\\"c\\n\" `d \"e\"` # f\n\\.php$ x#y \\\n z {\n}";
        let expected = ["a", "b \"c\\n", "d \"e\"", "\\.php$", "x#y", "z", "{", "}"];
        assert_eq!(texts(text), expected);
        let lines = tokens("a \\\nb\nc").expect("it has an end");
        assert_eq!((lines[1].line, lines[2].line), (1, 2));
    }

    #[test]
    fn a_heredoc_is_one_word_without_its_indentation() {
        assert_eq!(texts("respond <<END\n  a\n   b\n  END 200"), ["respond", "a\n b", "200"]);
        assert_eq!(tokens("\n<<END\nx").err().map(|(line, _)| line), Some(2));
        assert_eq!(tokens("a \"b").err().map(|(line, _)| line), Some(1));
    }
}
