//! Expressions of Apache (`ap_expr`): `<If>`, `Require expr`, `SetEnvIfExpr` and others.

mod eval;
mod expr_parser;
mod lex;

pub use eval::Evaluation;
pub use lex::shown;

use ipnet::IpNet;

use crate::regex::Regex;
use crate::weight::{Shared, Weight};

/// A parsed condition.
#[derive(Debug, Clone)]
pub struct Condition {
    root: Test,
    /// The text of the expression.
    pub text: Vec<u8>,
}

/// A parsed text with variables.
#[derive(Debug, Clone)]
pub struct Template {
    root: Word,
    /// The length of its text.
    bytes: usize,
}

/// A node with a truth value.
#[derive(Debug, Clone)]
enum Test {
    Constant(bool),
    Not(Box<Test>),
    /// All of them: there can be thousands in a row.
    And(Vec<Test>),
    /// One of them.
    Or(Vec<Test>),
    Compare(Comparison, Word, Word),
    In(Word, Vec<Word>),
    Matches {
        word: Word,
        regex: Regex,
        negated: bool,
    },
    Unary(u8, Word),
    ClientIn(IpNet),
    AddressIn(Word, IpNet),
    Glob(crate::text::Glob, Word, Word),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Comparison {
    is_numeric: bool,
    order: CompareOrder,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CompareOrder {
    Equal,
    Unequal,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// A node with a text.
#[derive(Debug, Clone)]
enum Word {
    Text(Vec<u8>),
    Variable(Vec<u8>),
    Group(usize),
    Call(Vec<u8>, Box<Word>),
    Concat(Vec<Word>),
}

impl Condition {
    /// Parses a condition.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Condition, String> {
        let root = expr_parser::condition(text)?;
        Ok(Condition { root, text: text.to_vec() })
    }
}

impl Template {
    /// Parses a text with `%{VARIABLE}` and `%{function:argument}`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &[u8]) -> Result<Template, String> {
        Ok(Template { root: expr_parser::template(text)?, bytes: text.len() })
    }
}

/// Bytes of the nodes for a byte of an expression: `!!!a` has a node for each.
const BYTES_OF_BYTE: usize = 64;

impl Weight for Condition {
    fn heap(&self, _: Shared) -> usize {
        self.text.len() * BYTES_OF_BYTE
    }
}

impl Weight for Template {
    fn heap(&self, _: Shared) -> usize {
        self.bytes * BYTES_OF_BYTE
    }
}
