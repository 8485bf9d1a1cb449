//! Evaluation of expressions (`util_expr_eval.c`).

use std::cmp::Ordering;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Digest as _;
use percent_encoding::percent_decode;

use super::{CompareOrder, Comparison, Condition, Template, Test, Word};
use crate::process::Scope;
use crate::regex::{Captures, TooCostly};
use crate::request::Kind;
use crate::text::{escape_path, integer};

/// Most comparisons of bytes for one shell pattern.
const MAX_GLOB_STEPS: usize = 4 << 20;

/// An evaluation, with the groups of its last match and the request headers it has read.
#[derive(Debug)]
pub struct Evaluation<'s, 'w> {
    scope: &'s Scope<'w>,
    /// The groups of the last match of an expression with groups.
    pub groups: Option<Captures>,
    /// Names of request headers on which the result depends.
    pub vary: Vec<Vec<u8>>,
}

impl<'s, 'w> Evaluation<'s, 'w> {
    /// An evaluation for a request.
    pub fn new(scope: &'s Scope<'w>) -> Evaluation<'s, 'w> {
        Evaluation { scope, groups: None, vary: Vec::new() }
    }

    /// Whether a condition holds.
    ///
    /// # Errors
    /// When a regular expression is too costly.
    pub fn holds(&mut self, condition: &Condition) -> Result<bool, TooCostly> {
        let holds = self.test(&condition.root);
        if let Some(read) = self.scope.vary {
            read.borrow_mut().extend(self.vary.iter().cloned());
        }
        holds
    }

    /// The text of a template.
    ///
    /// # Errors
    /// As [`Evaluation::holds`].
    pub fn text(&mut self, template: &Template) -> Result<Vec<u8>, TooCostly> {
        self.word(&template.root)
    }

    fn test(&mut self, test: &Test) -> Result<bool, TooCostly> {
        Ok(match test {
            Test::Constant(value) => *value,
            Test::Not(inner) => !self.test(inner)?,
            Test::And(tests) => !self.any(tests, false)?,
            Test::Or(tests) => self.any(tests, true)?,
            Test::Compare(comparison, left, right) => {
                let (left, right) = (self.word(left)?, self.word(right)?);
                comparison.holds(&left, &right)
            }
            Test::In(word, words) => {
                let word = self.word(word)?;
                for other in words {
                    if self.word(other)? == word {
                        return Ok(true);
                    }
                }
                false
            }
            Test::Matches { word, regex, negated } => {
                let word = self.word(word)?;
                self.scope.check_time()?;
                let is_match = if regex.has_groups() {
                    self.groups = regex.captures(&word)?;
                    self.groups.is_some()
                } else {
                    regex.is_match(&word)?
                };
                is_match != *negated
            }
            Test::Unary(operator, word) => {
                let word = self.word(word)?;
                self.unary(*operator, &word)
            }
            Test::ClientIn(network) => {
                network.contains(&self.scope.client.remote().ip().to_canonical())
            }
            Test::AddressIn(word, network) => {
                let word = self.word(word)?;
                let address = std::str::from_utf8(&word).ok();
                let address = address.and_then(|text| text.parse::<IpAddr>().ok());
                address.is_some_and(|address| network.contains(&address.to_canonical()))
            }
            Test::Glob(glob, text, pattern) => {
                let (text, pattern) = (self.word(text)?, self.word(pattern)?);
                if text.len().saturating_mul(pattern.len()) > MAX_GLOB_STEPS {
                    return Err(TooCostly);
                }
                glob.matches(&pattern, &text)
            }
        })
    }

    /// Whether one of the tests has this result; those behind it are not evaluated.
    fn any(&mut self, tests: &[Test], result: bool) -> Result<bool, TooCostly> {
        for test in tests {
            self.scope.check_time()?;
            if self.test(test)? == result {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn unary(&mut self, operator: u8, word: &[u8]) -> bool {
        let world = self.scope.world;
        let is = |kind| world.stat(word).is_some_and(|stat| stat.kind == kind);
        match operator {
            b'n' => !word.is_empty(),
            b'z' => word.is_empty(),
            b'T' => is_true(word),
            b'd' => is(Kind::Directory),
            b'f' => is(Kind::File),
            b'e' => world.stat(word).is_some(),
            b's' => world.stat(word).is_some_and(|stat| stat.kind == Kind::File && stat.size > 0),
            b'L' | b'h' => world.is_link(word),
            b'x' => world.stat(word).is_some_and(|stat| stat.is_executable),
            b'U' | b'A' => self.scope.url_status(word).is_some_and(|status| status < 400),
            b'F' => self.scope.is_file_allowed(word),
            _ => false,
        }
    }

    fn word(&mut self, word: &Word) -> Result<Vec<u8>, TooCostly> {
        Ok(match word {
            Word::Text(text) => text.clone(),
            Word::Variable(name) => self.variable(name),
            Word::Group(group) => {
                self.groups.as_ref().map_or_else(Vec::new, |found| found.group(*group).to_vec())
            }
            Word::Call(name, argument) => {
                let argument = self.word(argument)?;
                self.scope.check_text(&argument)?;
                self.call(name, &argument)
            }
            Word::Concat(words) => {
                let mut all = Vec::new();
                for word in words {
                    all.extend(self.word(word)?);
                    self.scope.check_text(&all)?;
                }
                all
            }
        })
    }

    fn variable(&mut self, name: &[u8]) -> Vec<u8> {
        if let Some(header) = crate::rewrite::header_of_variable(name) {
            return self.header(header.as_bytes());
        }
        let request = self.scope.request;
        match name {
            b"CONTENT_TYPE" => request.content_type.clone().unwrap_or_default(),
            b"HANDLER" => request.handler.clone().unwrap_or_default(),
            b"DOCUMENT_URI" => request.uri.clone(),
            b"REQUEST_STATUS" => request.status.to_string().into_bytes(),
            b"HTTP2" => if self.scope.client.is_http2 { &b"on"[..] } else { b"off" }.to_vec(),
            _ => self.scope.variable(name),
        }
    }

    /// A request header. `Host` is never part of `Vary` (RFC 9110 §12.5.5).
    fn header(&mut self, name: &[u8]) -> Vec<u8> {
        if !name.eq_ignore_ascii_case(b"host") {
            self.vary.push(name.to_vec());
        }
        self.scope.request.headers_in.get(name).unwrap_or_default().to_vec()
    }

    fn call(&mut self, name: &[u8], argument: &[u8]) -> Vec<u8> {
        let request = self.scope.request;
        let found = |value: Option<&[u8]>| value.unwrap_or_default().to_vec();
        match name {
            b"req" | b"http" => self.header(argument),
            b"req_novary" => found(request.headers_in.get(argument)),
            b"reqenv" => found(request.env.get(argument)),
            b"env" => self.scope.environment(argument),
            b"osenv" => self.scope.world.variable(argument).unwrap_or_default(),
            b"resp" => found(request.headers_out.get(argument)),
            b"tolower" => argument.to_ascii_lowercase(),
            b"toupper" => argument.to_ascii_uppercase(),
            b"escape" => escape_path(argument),
            b"unescape" => percent_decode(argument).collect(),
            b"base64" => STANDARD.encode(argument).into_bytes(),
            b"unbase64" => STANDARD.decode(argument).unwrap_or_default(),
            b"md5" => hexadecimal(&md5::Md5::digest(argument)),
            b"sha1" => hexadecimal(&sha1::Sha1::digest(argument)),
            _ => Vec::new(),
        }
    }
}

fn hexadecimal(digest: &[u8]) -> Vec<u8> {
    digest.iter().flat_map(|byte| format!("{byte:02x}").into_bytes()).collect()
}

impl Comparison {
    fn holds(self, left: &[u8], right: &[u8]) -> bool {
        let order = match self.is_numeric {
            true => integer(left).cmp(&integer(right)),
            false => left.cmp(right),
        };
        match self.order {
            CompareOrder::Equal => order == Ordering::Equal,
            CompareOrder::Unequal => order != Ordering::Equal,
            CompareOrder::Less => order == Ordering::Less,
            CompareOrder::LessOrEqual => order != Ordering::Greater,
            CompareOrder::Greater => order == Ordering::Greater,
            CompareOrder::GreaterOrEqual => order != Ordering::Less,
        }
    }
}

/// `-T`: anything but an empty text, `0`, `off`, `no` and `false`.
fn is_true(word: &[u8]) -> bool {
    let falsities: [&[u8]; 5] = [b"", b"0", b"off", b"no", b"false"];
    !falsities.iter().any(|falsity| word.eq_ignore_ascii_case(falsity))
}
