//! The grammar of expressions (`util_expr_parse.y`).

use ipnet::IpNet;

use super::lex::{self, Part, Token, Variable, shown};
use super::{CompareOrder, Comparison, Test, Word};
use crate::conf::access_compat::parse_network;
use crate::regex::Regex;
use crate::text::Glob;

/// Most nested parentheses and negations.
pub const MAX_DEPTH: usize = 20;

/// Names of variables, in capital letters.
const VARIABLES: [&str; 52] = [
    "TIME_YEAR",
    "TIME_MON",
    "TIME_DAY",
    "TIME_HOUR",
    "TIME_MIN",
    "TIME_SEC",
    "TIME_WDAY",
    "TIME",
    "SERVER_SOFTWARE",
    "API_VERSION",
    "HTTP_USER_AGENT",
    "HTTP_PROXY_CONNECTION",
    "HTTP_REFERER",
    "HTTP_COOKIE",
    "HTTP_FORWARDED",
    "HTTP_HOST",
    "HTTP_ACCEPT",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "REQUEST_FILENAME",
    "REMOTE_HOST",
    "REMOTE_IDENT",
    "REMOTE_USER",
    "SERVER_ADMIN",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SCRIPT_FILENAME",
    "PATH_INFO",
    "QUERY_STRING",
    "IS_SUBREQ",
    "DOCUMENT_ROOT",
    "AUTH_TYPE",
    "THE_REQUEST",
    "CONTENT_TYPE",
    "HANDLER",
    "REQUEST_LOG_ID",
    "SCRIPT_USER",
    "SCRIPT_GROUP",
    "DOCUMENT_URI",
    "LAST_MODIFIED",
    "CONTEXT_PREFIX",
    "CONTEXT_DOCUMENT_ROOT",
    "REQUEST_STATUS",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "HTTPS",
    "IPV6",
    "CONN_LOG_ID",
    "CONN_REMOTE_ADDR",
    "HTTP2",
];

/// Functions of a text. Those that read files are refused, as in Apache's `.htaccess`.
const FUNCTIONS: [&str; 17] = [
    "osenv",
    "env",
    "resp",
    "req",
    "http",
    "note",
    "reqenv",
    "req_novary",
    "tolower",
    "toupper",
    "escape",
    "unescape",
    "base64",
    "unbase64",
    "ldap",
    "sha1",
    "md5",
];

/// Parses a condition.
///
/// # Errors
/// What is wrong with it.
pub fn condition(text: &[u8]) -> Result<Test, String> {
    let mut parser = Parser { tokens: lex::tokens(text)?, at: 0, depth: 0 };
    let test = parser.or()?;
    match parser.peek() {
        None => Ok(test),
        Some(token) => Err(format!("{token:?} is not expected there")),
    }
}

/// Parses a text with variables.
///
/// # Errors
/// What is wrong with it.
pub fn template(text: &[u8]) -> Result<Word, String> {
    word_of(lex::parts(text)?)
}

fn word_of(parts: Vec<Part>) -> Result<Word, String> {
    let mut words = Vec::with_capacity(parts.len());
    for part in parts {
        words.push(match part {
            Part::Text(text) => Word::Text(text),
            Part::Group(group) => Word::Group(group),
            Part::Variable(variable) => variable_word(variable)?,
        });
    }
    Ok(match words.len() {
        1 => words.remove(0),
        _ => Word::Concat(words),
    })
}

fn variable_word(variable: Variable) -> Result<Word, String> {
    match variable.argument {
        Some(argument) => call(&variable.name, word_of(argument)?),
        None => {
            let name = variable.name.to_ascii_uppercase();
            let is_known = VARIABLES.iter().any(|known| known.as_bytes() == name);
            match is_known {
                true => Ok(Word::Variable(name)),
                false => Err(format!("there is no variable `{}`", shown(&variable.name))),
            }
        }
    }
}

fn call(name: &[u8], argument: Word) -> Result<Word, String> {
    let name = name.to_ascii_lowercase();
    match FUNCTIONS.iter().any(|known| known.as_bytes() == name) {
        true => Ok(Word::Call(name, Box::new(argument))),
        false => Err(format!("there is no function `{}`, or not in .htaccess", shown(&name))),
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at)
    }

    fn take(&mut self) -> Result<Token, String> {
        let token = self.tokens.get(self.at).cloned();
        self.at += 1;
        token.ok_or_else(|| "it ends too early".to_owned())
    }

    fn accepts(&mut self, signs: &[&str]) -> bool {
        let found = match self.peek() {
            Some(Token::Sign(sign)) => signs.contains(sign),
            Some(Token::Name(name)) => signs.iter().any(|sign| sign.as_bytes() == name),
            _ => false,
        };
        self.at += usize::from(found);
        found
    }

    fn expects(&mut self, sign: &'static str) -> Result<(), String> {
        match self.accepts(&[sign]) {
            true => Ok(()),
            false => Err(format!("`{sign}` is missing")),
        }
    }

    /// `&&` binds more tightly than `||` (`%left T_OP_OR`, then `%left T_OP_AND`).
    fn or(&mut self) -> Result<Test, String> {
        let mut tests = vec![self.and()?];
        while self.accepts(&["||", "or"]) {
            tests.push(self.and()?);
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { Test::Or(tests) })
    }

    fn and(&mut self) -> Result<Test, String> {
        let mut tests = vec![self.not()?];
        while self.accepts(&["&&", "and"]) {
            tests.push(self.not()?);
        }
        Ok(if tests.len() == 1 { tests.remove(0) } else { Test::And(tests) })
    }

    fn not(&mut self) -> Result<Test, String> {
        self.descend()?;
        let test = match self.accepts(&["!", "not"]) {
            true => Test::Not(Box::new(self.not()?)),
            false => self.primary()?,
        };
        self.depth -= 1;
        Ok(test)
    }

    fn descend(&mut self) -> Result<(), String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("more than {MAX_DEPTH} levels"));
        }
        Ok(())
    }

    fn primary(&mut self) -> Result<Test, String> {
        match self.peek() {
            Some(Token::Sign("(")) => {
                self.at += 1;
                let inner = self.or()?;
                self.expects(")")?;
                Ok(inner)
            }
            Some(Token::Name(name)) if name == b"true" || name == b"false" => {
                let value = name == b"true";
                self.at += 1;
                Ok(Test::Constant(value))
            }
            Some(Token::Operator(name)) if name.len() == 1 => {
                let operator = name[0];
                self.at += 1;
                self.unary(operator)
            }
            _ => self.comparison(),
        }
    }

    fn unary(&mut self, operator: u8) -> Result<Test, String> {
        let word = self.word()?;
        match operator {
            b'n' | b'z' | b'T' | b'F' | b'U' | b'A' | b'd' | b'e' | b'f' | b's' | b'L' | b'h'
            | b'x' => Ok(Test::Unary(operator, word)),
            b'R' => Ok(Test::ClientIn(constant_network(&word)?)),
            _ => Err(format!("there is no operator -{}", char::from(operator))),
        }
    }

    fn comparison(&mut self) -> Result<Test, String> {
        let left = self.word()?;
        let token = self.take()?;
        let order = |is_numeric, order| Comparison { is_numeric, order };
        let comparison = match &token {
            Token::Sign("=" | "==") => order(false, CompareOrder::Equal),
            Token::Sign("!=") => order(false, CompareOrder::Unequal),
            Token::Sign("<") => order(false, CompareOrder::Less),
            Token::Sign("<=") => order(false, CompareOrder::LessOrEqual),
            Token::Sign(">") => order(false, CompareOrder::Greater),
            Token::Sign(">=") => order(false, CompareOrder::GreaterOrEqual),
            Token::Sign(sign @ ("=~" | "!~")) => return self.matches(left, *sign == "!~"),
            Token::Operator(name) | Token::Name(name) => match &name[..] {
                b"eq" => order(true, CompareOrder::Equal),
                b"ne" => order(true, CompareOrder::Unequal),
                b"lt" => order(true, CompareOrder::Less),
                b"le" => order(true, CompareOrder::LessOrEqual),
                b"gt" => order(true, CompareOrder::Greater),
                b"ge" => order(true, CompareOrder::GreaterOrEqual),
                b"in" => return self.list(left),
                b"ipmatch" => {
                    let network = self.word()?;
                    return Ok(Test::AddressIn(left, constant_network(&network)?));
                }
                b"fnmatch" => return Ok(Test::Glob(Glob::Path, left, self.word()?)),
                b"strmatch" => return Ok(Test::Glob(Glob::Text, left, self.word()?)),
                b"strcmatch" => return Ok(Test::Glob(Glob::CaseBlind, left, self.word()?)),
                other => return Err(format!("there is no operator `{}`", shown(other))),
            },
            _ => return Err("a comparison is missing".to_owned()),
        };
        Ok(Test::Compare(comparison, left, self.word()?))
    }

    fn matches(&mut self, word: Word, negated: bool) -> Result<Test, String> {
        match self.take()? {
            Token::Regex { pattern, ignores_case } => {
                let regex = Regex::new(&pattern, ignores_case)?;
                Ok(Test::Matches { word, regex, negated })
            }
            _ => Err("a regular expression is missing".to_owned()),
        }
    }

    fn list(&mut self, word: Word) -> Result<Test, String> {
        self.expects("{")?;
        let mut words = vec![self.word()?];
        while self.accepts(&[","]) {
            words.push(self.word()?);
        }
        self.expects("}")?;
        Ok(Test::In(word, words))
    }

    fn word(&mut self) -> Result<Word, String> {
        let first = self.simple_word()?;
        let mut words = vec![first];
        while self.accepts(&["."]) {
            words.push(self.simple_word()?);
        }
        Ok(match words.len() {
            1 => words.remove(0),
            _ => Word::Concat(words),
        })
    }

    fn simple_word(&mut self) -> Result<Word, String> {
        match self.take()? {
            Token::Quoted(parts) => word_of(parts),
            Token::Variable(variable) => variable_word(variable),
            Token::Group(group) => Ok(Word::Group(group)),
            Token::Digits(digits) => Ok(Word::Text(digits)),
            Token::Name(name) => {
                self.expects("(")?;
                self.descend()?;
                let argument = self.word()?;
                self.depth -= 1;
                self.expects(")")?;
                call(&name, argument)
            }
            Token::Operator(_) | Token::Regex { .. } | Token::Sign(_) => {
                Err("a word is missing".to_owned())
            }
        }
    }
}

fn constant_network(word: &Word) -> Result<IpNet, String> {
    match word {
        Word::Text(text) => {
            parse_network(text).ok_or_else(|| format!("`{}` is no network", shown(text)))
        }
        _ => Err("a network has to be a constant".to_owned()),
    }
}
