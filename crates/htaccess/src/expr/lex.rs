//! The tokens of an expression (`util_expr_scan.l`).

use super::expr_parser::MAX_DEPTH;

/// A token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Token {
    /// `"…"` or `'…'`, with its parts.
    Quoted(Vec<Part>),
    /// `%{NAME}` or `%{name:argument}`.
    Variable(Variable),
    /// `$0` to `$9`.
    Group(usize),
    /// A number.
    Digits(Vec<u8>),
    /// A name of a function or a word such as `true`.
    Name(Vec<u8>),
    /// `-f` or `-ipmatch`, without the dash.
    Operator(Vec<u8>),
    /// `/…/` or `m#…#`.
    Regex { pattern: Vec<u8>, ignores_case: bool },
    /// Any other sign: `==`, `&&`, `(` …
    Sign(&'static str),
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Literal bytes.
    Text(Vec<u8>),
    /// A variable.
    Variable(Variable),
    /// A group of the last match.
    Group(usize),
}

/// A variable, or a function with its argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// The name.
    pub name: Vec<u8>,
    /// The argument of a function.
    pub argument: Option<Vec<Part>>,
}

/// Signs, those with more characters first.
const SIGNS: [&str; 18] = [
    "==", "!=", "<=", ">=", "=~", "!~", "&&", "||", "=", "<", ">", "!", ".", "(", ")", "{", "}",
    ",",
];

/// Delimiters of `m…`.
const DELIMITERS: &[u8] = b"/#$%^,;:_?|-!.'\"";

/// Splits an expression into tokens.
///
/// # Errors
/// What cannot be read.
pub fn tokens(text: &[u8]) -> Result<Vec<Token>, String> {
    let mut lexer = Lexer { text, at: 0, depth: 0 };
    let mut tokens = Vec::new();
    while let Some(token) = lexer.token()? {
        tokens.push(token);
    }
    Ok(tokens)
}

/// Splits a text with variables into its parts.
///
/// # Errors
/// What cannot be read.
pub fn parts(text: &[u8]) -> Result<Vec<Part>, String> {
    Lexer { text, at: 0, depth: 0 }.parts(End::Text)
}

struct Lexer<'a> {
    text: &'a [u8],
    at: usize,
    /// How many arguments of functions are open.
    depth: usize,
}

/// What ends a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// The end of the input.
    Text,
    /// A quote.
    Quote(u8),
    /// The brace of a function's argument.
    Brace,
}

impl Lexer<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn token(&mut self) -> Result<Option<Token>, String> {
        while self.peek(0).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b'\n')) {
            self.at += 1;
        }
        let Some(byte) = self.peek(0) else { return Ok(None) };
        let next = self.peek(1);
        let token = match (byte, next) {
            (b'"' | b'\'', _) => {
                self.at += 1;
                Token::Quoted(self.parts(End::Quote(byte))?)
            }
            (b'%', Some(b'{')) => Token::Variable(self.variable()?),
            (b'$', Some(digit @ b'0'..=b'9')) => {
                self.at += 2;
                Token::Group(usize::from(digit - b'0'))
            }
            (b'm', Some(delimiter)) if DELIMITERS.contains(&delimiter) => {
                self.at += 2;
                self.regex(delimiter)?
            }
            (b'/', _) => {
                self.at += 1;
                self.regex(b'/')?
            }
            (b'-', Some(digit)) if digit.is_ascii_digit() => self.digits(),
            (b'0'..=b'9', _) => self.digits(),
            (b'-', Some(letter)) if letter.is_ascii_alphabetic() || letter == b'_' => {
                self.at += 1;
                Token::Operator(self.name())
            }
            (letter, _) if letter.is_ascii_alphabetic() => Token::Name(self.name()),
            _ => self.sign()?,
        };
        Ok(Some(token))
    }

    fn sign(&mut self) -> Result<Token, String> {
        let rest = &self.text[self.at..];
        let sign = SIGNS.iter().find(|sign| rest.starts_with(sign.as_bytes()));
        let sign = sign.ok_or_else(|| format!("it cannot be read at `{}`", shown(rest)))?;
        self.at += sign.len();
        Ok(Token::Sign(sign))
    }

    fn name(&mut self) -> Vec<u8> {
        let rest = &self.text[self.at..];
        let is_part = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        let length = rest.iter().position(|byte| !is_part(byte)).unwrap_or(rest.len());
        self.at += length;
        rest[..length].to_vec()
    }

    fn digits(&mut self) -> Token {
        let rest = &self.text[self.at..];
        let length = rest[1..].iter().position(|byte| !byte.is_ascii_digit());
        let length = 1 + length.unwrap_or(rest.len() - 1);
        self.at += length;
        Token::Digits(rest[..length].to_vec())
    }

    fn regex(&mut self, delimiter: u8) -> Result<Token, String> {
        let rest = &self.text[self.at..];
        let end = memchr::memchr(delimiter, rest).ok_or("a regular expression has no end")?;
        self.at += end + 1;
        let ignores_case = self.peek(0) == Some(b'i');
        self.at += usize::from(ignores_case);
        Ok(Token::Regex { pattern: rest[..end].to_vec(), ignores_case })
    }

    fn variable(&mut self) -> Result<Variable, String> {
        self.at += 2;
        let name = self.name();
        if name.is_empty() {
            return Err("a variable has no name".to_owned());
        }
        let argument = match self.peek(0) {
            Some(b'}') => {
                self.at += 1;
                None
            }
            Some(b':') => {
                self.at += 1;
                self.depth += 1;
                if self.depth > MAX_DEPTH {
                    return Err(format!("more than {MAX_DEPTH} functions within each other"));
                }
                let argument = self.parts(End::Brace)?;
                self.depth -= 1;
                Some(argument)
            }
            _ => return Err(format!("the variable `%{{{}` has no end", shown(&name))),
        };
        Ok(Variable { name, argument })
    }

    fn parts(&mut self, end: End) -> Result<Vec<Part>, String> {
        let (mut parts, mut literal) = (Vec::new(), Vec::new());
        loop {
            let Some(byte) = self.peek(0) else {
                if end != End::Text {
                    return Err("a text or variable has no end".to_owned());
                }
                break;
            };
            let is_end = match end {
                End::Text => false,
                End::Quote(quote) => byte == quote,
                End::Brace => byte == b'}',
            };
            if is_end {
                self.at += 1;
                break;
            }
            let special = match (byte, self.peek(1)) {
                (b'%', Some(b'{')) => Some(Part::Variable(self.variable()?)),
                (b'$', Some(digit @ b'0'..=b'9')) => {
                    self.at += 2;
                    Some(Part::Group(usize::from(digit - b'0')))
                }
                (b'\\', Some(_)) => {
                    literal.push(self.escape()?);
                    continue;
                }
                _ => None,
            };
            match special {
                Some(part) => {
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(part);
                }
                None => {
                    literal.push(byte);
                    self.at += 1;
                }
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(parts)
    }

    fn escape(&mut self) -> Result<u8, String> {
        let rest = &self.text[self.at + 1..];
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let octal = rest.iter().take(3).take_while(|byte| matches!(byte, b'0'..=b'7')).count();
        if octal > 0 {
            let value =
                rest[..octal].iter().fold(0, |value, digit| value * 8 + (digit - b'0') as u32);
            self.at += 1 + octal;
            return u8::try_from(value).map_err(|_| "an escape is out of range".to_owned());
        }
        if digits > 0 {
            return Err("an escape is not octal".to_owned());
        }
        self.at += 2;
        Ok(match rest[0] {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'f' => 12,
            other => other,
        })
    }
}

/// Bytes for a message.
pub fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 80;
    String::from_utf8_lossy(&bytes[..bytes.len().min(LONGEST)]).escape_debug().to_string()
}
