//! The statements of a line of php-fpm's configuration: php.ini's grammar
//! (`Zend/zend_ini_parser.y`).

use super::constants;
use super::lexer::{Lexeme, words};

/// Deepest nesting of `(`, `!` and `~`; the parser is recursive.
const MAX_DEPTH: usize = 50;

/// A statement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// `[NAME]`.
    Section(String),
    /// `NAME = VALUE`, or `NAME` alone.
    Entry {
        /// The name, as written.
        name: String,
        /// The value; none if there is no `=`.
        value: Option<String>,
    },
    /// `NAME[KEY] = VALUE`.
    Item {
        /// The name, as written.
        name: String,
        /// The key, which may be empty.
        key: String,
        /// The value.
        value: String,
    },
}

/// The statements of `line`, which has no line break, and the unexpected word if it has a syntax
/// error. `variable` returns the value of `${NAME}`; an unknown one is empty.
pub fn read_line(
    line: &str,
    variable: &dyn Fn(&str) -> Option<String>,
) -> (Vec<Statement>, Option<String>) {
    // The scanner's text ends with the first NUL.
    let line = line.split('\0').next().unwrap_or_default();
    let mut parser = Parser { words: words(&format!("{line}\n")), at: 0, variable };
    let mut statements = Vec::new();
    loop {
        match parser.statement(&mut statements) {
            Ok(true) => {}
            Ok(false) => return (statements, None),
            Err(Unexpected) => return (statements, Some(parser.found())),
        }
    }
}

/// The next word is unexpected.
struct Unexpected;

struct Parser<'a> {
    words: Vec<Lexeme>,
    at: usize,
    variable: &'a dyn Fn(&str) -> Option<String>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Lexeme> {
        self.words.get(self.at)
    }

    fn found(&self) -> String {
        match self.peek() {
            None | Some(Lexeme::EndOfLine) => "end of line".to_owned(),
            Some(Lexeme::Section) => "'['".to_owned(),
            Some(Lexeme::Dollar) => "'${'".to_owned(),
            Some(Lexeme::Yes | Lexeme::No) => "a word for yes or no".to_owned(),
            Some(Lexeme::Sign(sign)) => format!("'{}'", char::from(*sign)),
            Some(
                Lexeme::Label(text)
                | Lexeme::Offset(text)
                | Lexeme::Text(text)
                | Lexeme::Constant(text)
                | Lexeme::Quoted(text)
                | Lexeme::Variable(text),
            ) => format!("'{}'", crate::mistakes::quoted(text)),
        }
    }

    fn take(&mut self, sign: u8) -> Result<(), Unexpected> {
        if self.peek() == Some(&Lexeme::Sign(sign)) {
            self.at += 1;
            Ok(())
        } else {
            Err(Unexpected)
        }
    }

    /// Reads a statement; false at the end of the line. A complete one stays even if a syntax error
    /// follows.
    fn statement(&mut self, into: &mut Vec<Statement>) -> Result<bool, Unexpected> {
        let Some(word) = self.peek().cloned() else {
            return Ok(false);
        };
        self.at += 1;
        match word {
            Lexeme::EndOfLine => {}
            Lexeme::Section => {
                let name = self.joined(true)?.unwrap_or_default();
                self.take(b']')?;
                into.push(Statement::Section(name));
            }
            Lexeme::Label(name) => {
                let value = match self.take(b'=') {
                    Ok(()) => Some(self.value()?),
                    Err(Unexpected) => None,
                };
                into.push(Statement::Entry { name, value });
            }
            Lexeme::Offset(name) => {
                let key = self.joined(false)?.unwrap_or_default();
                self.take(b']')?;
                self.take(b'=')?;
                let value = self.value()?;
                into.push(Statement::Item { name, key, value });
            }
            _ => {
                self.at -= 1;
                return Err(Unexpected);
            }
        }
        Ok(true)
    }

    fn value(&mut self) -> Result<String, Unexpected> {
        let word = match self.peek() {
            Some(Lexeme::Yes) => "1",
            Some(Lexeme::No | Lexeme::EndOfLine) => "",
            _ => return self.expression(MAX_DEPTH),
        };
        self.at += 1;
        Ok(word.to_owned())
    }

    /// `|`, `&` and `^` have the same precedence, and are evaluated from left to right.
    fn expression(&mut self, depth: usize) -> Result<String, Unexpected> {
        let mut left = self.operand(depth)?;
        loop {
            let operator: fn(i32, i32) -> i32 = match self.peek() {
                Some(Lexeme::Sign(b'|')) => |a, b| a | b,
                Some(Lexeme::Sign(b'&')) => |a, b| a & b,
                Some(Lexeme::Sign(b'^')) => |a, b| a ^ b,
                _ => return Ok(left),
            };
            self.at += 1;
            let right = self.operand(depth)?;
            left = operator(atoi(&left), atoi(&right)).to_string();
        }
    }

    fn operand(&mut self, depth: usize) -> Result<String, Unexpected> {
        let depth = depth.checked_sub(1).ok_or(Unexpected)?;
        match self.peek() {
            Some(Lexeme::Sign(b'~')) => {
                self.at += 1;
                Ok((!atoi(&self.operand(depth)?)).to_string())
            }
            Some(Lexeme::Sign(b'!')) => {
                self.at += 1;
                let is_zero = atoi(&self.operand(depth)?) == 0;
                Ok(i32::from(is_zero).to_string())
            }
            Some(Lexeme::Sign(b'(')) => {
                self.at += 1;
                let value = self.expression(depth)?;
                self.take(b')')?;
                Ok(value)
            }
            _ => self.joined(false)?.ok_or(Unexpected),
        }
    }

    /// Adjacent texts are joined. In a section a word is never a constant.
    fn joined(&mut self, in_section: bool) -> Result<Option<String>, Unexpected> {
        let mut joined: Option<String> = None;
        loop {
            let part = match self.peek() {
                Some(Lexeme::Text(text)) => text.clone(),
                Some(Lexeme::Constant(name)) if !in_section => {
                    constants::value(name).unwrap_or_else(|| name.clone())
                }
                Some(Lexeme::Constant(name)) => name.clone(),
                Some(Lexeme::Dollar) => {
                    self.at += 1;
                    let part = self.variable_value()?;
                    joined.get_or_insert_default().push_str(&part);
                    continue;
                }
                Some(Lexeme::Sign(b'"')) => {
                    self.at += 1;
                    let part = self.in_quotes()?;
                    joined.get_or_insert_default().push_str(&part);
                    continue;
                }
                _ => return Ok(joined),
            };
            self.at += 1;
            joined.get_or_insert_default().push_str(&part);
        }
    }

    fn in_quotes(&mut self) -> Result<String, Unexpected> {
        let mut text = String::new();
        loop {
            match self.peek() {
                Some(Lexeme::Quoted(part)) => {
                    text.push_str(part);
                    self.at += 1;
                }
                Some(Lexeme::Dollar) => {
                    self.at += 1;
                    text.push_str(&self.variable_value()?);
                }
                _ => {
                    self.take(b'"')?;
                    return Ok(text);
                }
            }
        }
    }

    fn variable_value(&mut self) -> Result<String, Unexpected> {
        let Some(Lexeme::Variable(name)) = self.peek().cloned() else {
            return Err(Unexpected);
        };
        self.at += 1;
        self.take(b'}')?;
        Ok((self.variable)(&name).unwrap_or_default())
    }
}

/// C's `atoi`, which stops at the first non-digit; saturates.
pub(super) fn atoi(text: &str) -> i32 {
    let text = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    let (negative, digits) = match text.as_bytes() {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        all => (false, all),
    };
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0i32, |number, digit| {
        let digit = i32::from(digit - b'0');
        let grown = number.saturating_mul(10);
        if negative { grown.saturating_sub(digit) } else { grown.saturating_add(digit) }
    })
}
