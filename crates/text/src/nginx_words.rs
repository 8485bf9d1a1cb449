//! The words of nginx's configuration, by nginx's rules.

/// What a token is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenKind {
    /// A word.
    Text,
    /// `{`.
    Open,
    /// `}`.
    Close,
    /// `;`.
    End,
}

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// What it is.
    pub kind: TokenKind,
    /// The word, without quotes.
    pub text: String,
    /// Its line, from 1 on.
    pub line: usize,
}

/// The tokens of a file: `;`, `{` and `}` end one, quotes and backslashes keep them together.
pub fn words(text: &str) -> Vec<Token> {
    let mut words: Vec<Token> = Vec::new();
    let mut line = 1;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        let sign = match letter {
            '\n' => {
                line += 1;
                continue;
            }
            letter if letter.is_whitespace() => continue,
            '#' => {
                while letters.next_if(|letter| *letter != '\n').is_some() {}
                continue;
            }
            ';' => Some(TokenKind::End),
            '{' => Some(TokenKind::Open),
            '}' => Some(TokenKind::Close),
            _ => None,
        };
        let begins = line;
        let mut word = String::new();
        if sign.is_some() {
            word.push(letter);
        } else if matches!(letter, '"' | '\'') {
            while let Some(next) = letters.next_if(|next| *next != letter) {
                line += usize::from(next == '\n');
                word.push(next);
                if next == '\\' {
                    word.extend(letters.next());
                }
            }
            letters.next();
        } else {
            word.push(letter);
            let (mut is_escaped, mut is_variable) = (letter == '\\', letter == '$');
            // `${name}` is part of a word, and so is `}` after any letter.
            while let Some(next) = letters.next_if(|next| {
                let ends = next.is_whitespace() || matches!(next, ';' | '{');
                is_escaped || !ends || (*next == '{' && is_variable)
            }) {
                line += usize::from(next == '\n');
                word.push(next);
                is_variable = next == '$' && !is_escaped;
                is_escaped = next == '\\' && !is_escaped;
            }
        }
        let text = unescaped(&word);
        words.push(Token { kind: sign.unwrap_or(TokenKind::Text), text, line: begins });
    }
    words
}

/// A word without the backslashes that nginx removes, in quotes or not: all others stay
/// (`ngx_conf_read_token`).
fn unescaped(word: &str) -> String {
    let mut text = String::new();
    let mut letters = word.chars().peekable();
    while let Some(letter) = letters.next() {
        let meant = match letters.peek().filter(|_| letter == '\\') {
            Some(sign @ ('"' | '\'' | '\\')) => Some(*sign),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some('n') => Some('\n'),
            _ => None,
        };
        match meant {
            Some(meant) => {
                letters.next();
                text.push(meant);
            }
            None => text.push(letter),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backslashes_stay_but_before_quotes_backslashes_and_letters_of_control_characters() {
        let texts = |text| words(text).into_iter().map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(texts(r"location ~ '\.php$' {}"), ["location", "~", r"\.php$", "{", "}"]);
        assert_eq!(texts(r#"a "x\ny\"z" \\d\.e;"#), ["a", "x\ny\"z", r"\d\.e", ";"]);
    }

    #[test]
    fn a_backslash_keeps_the_next_letter_alone_in_a_word() {
        let texts = |text| words(text).into_iter().map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(texts(r"a b\\; c d;"), ["a", r"b\", ";", "c", "d", ";"]);
        assert_eq!(texts(r"a b\; c;"), ["a", r"b\;", "c", ";"]);
        assert_eq!(texts(r"~ ^/a\ b {"), ["~", r"^/a\ b", "{"]);
        assert_eq!(texts(r"a \${b} c"), ["a", r"\$", "{", "b}", "c"]);
    }

    #[test]
    fn a_brace_closes_a_block_at_the_begin_of_a_word_alone() {
        let texts = |text| words(text).into_iter().map(|word| word.text).collect::<Vec<_>>();
        assert_eq!(texts("a b}c;"), ["a", "b}c", ";"]);
        assert_eq!(texts("a { b; } c ${d}e;}"), ["a", "{", "b", ";", "}", "c", "${d}e", ";", "}"]);
    }
}
