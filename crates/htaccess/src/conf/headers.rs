//! Header and RequestHeader (mod_headers).

use std::sync::Arc;

use crate::expr::{Condition, Evaluation, Template};
use crate::process::Scope;
use crate::regex::{Regex, TooCostly};
use crate::table::Table;
use crate::weight::{Shared, Weight, weight_of};
use crate::words::Words;

/// The configuration of mod_headers.
#[derive(Debug, Clone, Default)]
pub struct HeadersConf {
    /// `RequestHeader`.
    pub request: Vec<Arc<HeaderRule>>,
    /// `Header`, for responses without an error.
    pub success: Vec<Arc<HeaderRule>>,
    /// `Header always`.
    pub always: Vec<Arc<HeaderRule>>,
}

/// Which headers a directive changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderTable {
    /// Those of the request.
    Request,
    /// Those of responses without an error.
    Success,
    /// Those of all responses.
    Always,
}

/// A directive.
#[derive(Debug, Clone)]
pub struct HeaderRule {
    action: Action,
    /// The header.
    pub name: Vec<u8>,
    value: Vec<Piece>,
    expression: Option<Template>,
    when: When,
}

#[derive(Debug, Clone)]
enum Action {
    Set,
    SetIfEmpty,
    Add,
    Append,
    Merge,
    Unset,
    /// A note for other modules: nothing reads it here.
    Note,
    Echo(Regex),
    Edit {
        regex: Regex,
        is_global: bool,
    },
}

#[derive(Debug, Clone)]
enum Piece {
    Text(Vec<u8>),
    /// `%{NAME}e`.
    Variable(Vec<u8>),
    /// `%t`, `%D` and those about load: not supported, sent as `(null)`.
    Unknown,
}

#[derive(Debug, Clone)]
enum When {
    Any,
    /// `early`: only in the configuration of a server.
    Never,
    Variable {
        name: Vec<u8>,
        is_set: bool,
    },
    Expression(Arc<Condition>),
}

impl HeadersConf {
    /// The configuration below another one.
    pub fn below(&self, base: &HeadersConf) -> HeadersConf {
        HeadersConf {
            request: [&base.request[..], &self.request].concat(),
            success: [&base.success[..], &self.success].concat(),
            always: [&base.always[..], &self.always].concat(),
        }
    }

    /// Whether the headers of a response depend on an expression.
    pub fn have_expressions(&self) -> bool {
        self.success
            .iter()
            .chain(&self.always)
            .any(|rule| rule.expression.is_some() || matches!(rule.when, When::Expression(_)))
    }

    /// Adds a directive.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, mut words: Words<'_>, mut target: HeaderTable) -> Result<(), String> {
        let mut action = words.word();
        if target == HeaderTable::Success {
            let is_always = action.eq_ignore_ascii_case(b"always");
            if is_always || action.eq_ignore_ascii_case(b"onsuccess") {
                target = if is_always { HeaderTable::Always } else { target };
                action = words.word();
            }
        }
        let name = words.word();
        let arguments: Vec<Vec<u8>> = words.collect();
        if arguments.len() > 3 {
            return Err("Header has too many arguments".to_owned());
        }
        let rule = Arc::new(HeaderRule::parse(&action, &name, arguments, target)?);
        match target {
            HeaderTable::Request => self.request.push(rule),
            HeaderTable::Success => self.success.push(rule),
            HeaderTable::Always => self.always.push(rule),
        }
        Ok(())
    }
}

impl HeaderRule {
    fn parse(
        action: &[u8],
        name: &[u8],
        mut arguments: Vec<Vec<u8>>,
        target: HeaderTable,
    ) -> Result<HeaderRule, String> {
        let name = name.split(|byte| *byte == b':').next().unwrap_or_default().to_vec();
        let mut take = || match arguments.is_empty() {
            true => None,
            false => Some(arguments.remove(0)),
        };
        let needs = || "Header requires three arguments".to_owned();
        let lower = action.to_ascii_lowercase();
        let (action, value) = match &lower[..] {
            b"set" => (Action::Set, take().ok_or_else(needs)?),
            b"setifempty" => (Action::SetIfEmpty, take().ok_or_else(needs)?),
            b"add" => (Action::Add, take().ok_or_else(needs)?),
            b"append" => (Action::Append, take().ok_or_else(needs)?),
            b"merge" => (Action::Merge, take().ok_or_else(needs)?),
            b"unset" => (Action::Unset, Vec::new()),
            b"echo" if target != HeaderTable::Request => {
                (Action::Echo(Regex::new(&name, false)?), Vec::new())
            }
            b"note" if target != HeaderTable::Request => (Action::Note, take().ok_or_else(needs)?),
            b"edit" | b"edit*" => {
                let edit = || "Header edit requires a match and a substitution".to_owned();
                let regex = Regex::new(&take().ok_or_else(edit)?, false)?;
                let is_global = lower.ends_with(b"*");
                (Action::Edit { regex, is_global }, take().ok_or_else(edit)?)
            }
            _ => {
                let why = "first argument must be 'add', 'set', 'setifempty', 'append', 'merge', \
                           'unset', 'echo', 'note', 'edit', or 'edit*'.";
                return Err(why.to_owned());
            }
        };
        let when = take().map_or(Ok(When::Any), |clause| When::parse(&clause))?;
        if take().is_some() {
            return Err("Too many arguments to directive".to_owned());
        }
        let (value, expression) = match value.strip_prefix(b"expr=") {
            Some(text) => (Vec::new(), Some(Template::parse(text)?)),
            None => (pieces(&value)?, None),
        };
        Ok(HeaderRule { action, name, value, expression, when })
    }

    /// Applies the directive to headers.
    ///
    /// # Errors
    /// When its expressions are too costly, or the evaluation has taken too long: the headers may
    /// lack what it says.
    pub fn apply(&self, scope: &Scope<'_>, headers: &mut Table) -> Result<(), TooCostly> {
        scope.check_time()?;
        if !self.when.holds(scope)? {
            return Ok(());
        }
        match &self.action {
            Action::Set => headers.set(&self.name, self.text(scope)?),
            Action::SetIfEmpty => {
                if headers.get(&self.name).is_none() {
                    headers.set(&self.name, self.text(scope)?);
                }
            }
            Action::Add => headers.add(&self.name, self.text(scope)?),
            Action::Append => {
                let text = self.text(scope)?;
                self.append(scope, headers, &text)?;
            }
            Action::Merge => {
                let text = self.text(scope)?;
                let has = |value: &[u8]| {
                    value.split(|byte| *byte == b',').any(|own| own.trim_ascii() == text)
                };
                if !headers.get(&self.name).is_some_and(has) {
                    self.append(scope, headers, &text)?;
                }
            }
            Action::Unset => headers.unset(&self.name),
            Action::Note => {}
            Action::Echo(regex) => {
                for (name, value) in scope.request.headers_in.iter() {
                    scope.check_time()?;
                    if regex.is_match(name)? {
                        headers.add(name, value);
                    }
                }
            }
            Action::Edit { regex, is_global } => {
                let text = self.text(scope)?;
                let edit = HeaderEdit { regex, text: &text, is_global: *is_global };
                let mut result = Ok(());
                headers.edit(&self.name, |value| {
                    edit.apply(value, scope).unwrap_or_else(|costly| {
                        result = Err(costly);
                        Vec::new()
                    })
                });
                result?;
            }
        }
        Ok(())
    }

    fn append(&self, scope: &Scope<'_>, headers: &mut Table, text: &[u8]) -> Result<(), TooCostly> {
        headers.append(&self.name, text);
        scope.check_text(headers.get(&self.name).unwrap_or_default())
    }

    fn text(&self, scope: &Scope<'_>) -> Result<Vec<u8>, TooCostly> {
        if let Some(template) = &self.expression {
            return Evaluation::new(scope).text(template);
        }
        let mut text = Vec::new();
        for piece in &self.value {
            scope.check_text(&text)?;
            match piece {
                Piece::Text(own) => text.extend_from_slice(own),
                Piece::Variable(name) => {
                    text.extend_from_slice(scope.request.env.get(name).unwrap_or(b"(null)"));
                }
                Piece::Unknown => text.extend_from_slice(b"(null)"),
            }
        }
        // No line end gets into a header.
        text.retain(|byte| !matches!(byte, b'\r' | b'\n' | 0));
        scope.check_text(&text)?;
        Ok(text)
    }
}

/// `Header edit` and `Header edit*`.
struct HeaderEdit<'e> {
    regex: &'e Regex,
    text: &'e [u8],
    is_global: bool,
}

impl HeaderEdit<'_> {
    /// The first match replaced, or all of them (`process_regexp`).
    fn apply(&self, value: &[u8], scope: &Scope<'_>) -> Result<Vec<u8>, TooCostly> {
        let (mut out, mut rest) = (Vec::new(), value);
        while let Some(found) = self.regex.captures(rest)? {
            out.extend_from_slice(&rest[..found.start()]);
            out.extend(found.expand(self.text)?);
            rest = &rest[found.end()..];
            scope.check_text(&out)?;
            scope.check_time()?;
            if !self.is_global || found.end() == found.start() {
                break;
            }
        }
        out.extend_from_slice(rest);
        Ok(out)
    }
}

impl When {
    fn parse(clause: &[u8]) -> Result<When, String> {
        let lower = clause.to_ascii_lowercase();
        if lower == b"early" {
            return Ok(When::Never);
        }
        if lower.starts_with(b"env=") {
            let is_set = clause.get(4) != Some(&b'!');
            let name = clause[if is_set { 4 } else { 5 }..].to_vec();
            if name.is_empty() {
                return Err("error: missing environment variable name.".to_owned());
            }
            return Ok(When::Variable { name, is_set });
        }
        if lower.starts_with(b"expr=") {
            return Ok(When::Expression(Arc::new(Condition::parse(&clause[5..])?)));
        }
        Err(format!("Unknown parameter: {}", String::from_utf8_lossy(clause)))
    }

    fn holds(&self, scope: &Scope<'_>) -> Result<bool, TooCostly> {
        match self {
            When::Any => Ok(true),
            When::Never => Ok(false),
            When::Variable { name, is_set } => Ok(scope.request.env.get(name).is_some() == *is_set),
            // Apache ignores an expression that it cannot evaluate, and applies the directive. But
            // clients choose how long one takes.
            When::Expression(condition) => Evaluation::new(scope).holds(condition),
        }
    }
}

/// Splits a value into text and `%…` (`parse_format_tag`).
fn pieces(value: &[u8]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = Vec::new();
    let mut at = 0;
    while let Some(&byte) = value.get(at) {
        let next = value.get(at + 1).copied();
        match (byte, next) {
            (b'%', None) => text.push(b'%'),
            (b'%', Some(b'%')) => {
                text.push(b'%');
                at += 1;
            }
            (b'%', Some(_)) => {
                let mut argument = Vec::new();
                at += 1;
                if value[at] == b'{' {
                    let end = memchr::memchr(b'}', &value[at..]).ok_or("`%{` without `}`")?;
                    argument = value[at + 1..at + end].to_vec();
                    at += end + 1;
                }
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(match value.get(at) {
                    Some(b'e') => Piece::Variable(argument),
                    Some(b's' | b't' | b'D' | b'l' | b'i' | b'b') => Piece::Unknown,
                    other => {
                        let other = other.copied().map_or(' ', char::from);
                        return Err(format!("Unrecognized header format %{other}"));
                    }
                });
            }
            (b'\\', Some(escape @ (b'\\' | b'r' | b'n' | b't'))) => {
                text.push(match escape {
                    b'r' => b'\r',
                    b'n' => b'\n',
                    b't' => b'\t',
                    other => other,
                });
                at += 1;
            }
            _ => text.push(byte),
        }
        at += 1;
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

weight_of!(HeadersConf: request, success, always);
weight_of!(HeaderRule: action, name, value, expression, when);

impl Weight for Action {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Action::Echo(regex) | Action::Edit { regex, .. } => regex.heap(shared),
            _ => 0,
        }
    }
}

impl Weight for Piece {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Piece::Text(text) | Piece::Variable(text) => text.heap(shared),
            Piece::Unknown => 0,
        }
    }
}

impl Weight for When {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            When::Any | When::Never => 0,
            When::Variable { name, .. } => name.heap(shared),
            When::Expression(condition) => condition.heap(shared),
        }
    }
}
