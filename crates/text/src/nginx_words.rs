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
                match next {
                    '\\' => word.extend(letters.next()),
                    next => word.push(next),
                }
            }
            letters.next();
        } else {
            word.push(letter);
            let mut before = letter;
            // `${name}` is part of a word.
            while let Some(next) = letters.next_if(|next| {
                let ends = next.is_whitespace() || matches!(next, ';' | '{' | '}');
                !ends
                    || (*next == '{' && before == '$')
                    || (*next == '}' && word.contains("${"))
                    || (before == '\\' && !next.is_whitespace())
            }) {
                word.push(next);
                before = next;
            }
        }
        words.push(Token { kind: sign.unwrap_or(TokenKind::Text), text: word, line: begins });
    }
    words
}
