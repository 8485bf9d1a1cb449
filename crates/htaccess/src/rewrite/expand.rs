//! Expansion of substitutions and tested strings (`do_expand`), in a single pass: a value never
//! becomes part of a pattern.

use super::Flags;
use super::braces::Braces;
use super::variables::header_of_variable;
use crate::process::Scope;
use crate::regex::{Captures, TooCostly};

/// The groups of the rule and of its last matching condition, and what has been read.
#[derive(Debug, Default)]
pub struct Context {
    /// `$0` to `$9`.
    pub rule: Option<Captures>,
    /// `%0` to `%9`.
    pub condition: Option<Captures>,
    /// The request headers that were read since the last reset.
    pub vary: Vec<Vec<u8>>,
    /// The path that the pattern has matched.
    pub path: Vec<u8>,
}

/// An expanded text.
#[derive(Debug, Default)]
pub struct Expanded {
    /// The text.
    pub text: Vec<u8>,
    /// Whether the question mark that splits off the query comes from a value.
    pub has_unsafe_mark: bool,
}

/// Expands a text.
///
/// # Errors
/// When it becomes too long.
pub fn expand(text: &[u8], context: &mut Context, scope: &Scope<'_>) -> Result<Vec<u8>, TooCostly> {
    Ok(expand_with(text, context, scope, None)?.text)
}

/// Expands a substitution; its flags say how groups are escaped.
///
/// # Errors
/// As [`expand`].
pub fn expand_with(
    text: &[u8],
    context: &mut Context,
    scope: &Scope<'_>,
    flags: Option<&Flags>,
) -> Result<Expanded, TooCostly> {
    let mut out = Expanded::default();
    let mut mark =
        Mark { wants_last: flags.is_some_and(|flags| flags.splits_at_last), found: None };
    scope.check_text(text)?;
    let braces = Braces::of(text);
    let mut at = 0;
    while let Some(&byte) = text.get(at) {
        let next = text.get(at + 1).copied();
        scope.check_text(&out.text)?;
        match (byte, next) {
            (b'\\', None) => {
                out.text.push(byte);
                at += 1;
            }
            (b'\\', Some(escaped)) => {
                out.text.push(escaped);
                at += 2;
            }
            (b'%', Some(b'{')) => match braces.after(at + 1) {
                Some(braced) => {
                    at = braced.inner.end + 1;
                    let value = lookup(&text[braced.inner], context, scope);
                    mark.expanded(&value);
                    out.text.extend(value);
                }
                None => {
                    out.text.extend(b"%{");
                    at += 2;
                }
            },
            (b'$' | b'%', Some(digit @ b'0'..=b'9')) => {
                let groups = if byte == b'$' { &context.rule } else { &context.condition };
                let number = usize::from(digit - b'0');
                let group = groups.as_ref().map_or(&b""[..], |groups| groups.group(number));
                let value = match flags {
                    Some(flags) if flags.escapes_groups => escape_group(group, flags),
                    _ => group.to_vec(),
                };
                mark.expanded(&value);
                out.text.extend(value);
                at += 2;
            }
            _ => {
                if byte == b'?' {
                    mark.literal();
                }
                out.text.push(byte);
                at += 1;
            }
        }
    }
    out.has_unsafe_mark = mark.found == Some(Origin::Value);
    Ok(out)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Literal,
    Value,
}

/// Where the first question mark comes from, or the last one.
struct Mark {
    wants_last: bool,
    found: Option<Origin>,
}

impl Mark {
    fn note(&mut self, origin: Origin) {
        if self.found.is_none() || self.wants_last {
            self.found = Some(origin);
        }
    }

    fn literal(&mut self) {
        self.note(Origin::Literal);
    }

    fn expanded(&mut self, value: &[u8]) {
        if value.contains(&b'?') {
            self.note(Origin::Value);
        }
    }
}

/// The first lookup of a map, `${…:…}`, of which there is none here.
pub fn map_lookup(text: &[u8]) -> Option<&[u8]> {
    let braces = Braces::of(text);
    let mut at = 0;
    while at < text.len() {
        let braced = match text[at] {
            b'$' | b'%' => braces.after(at + 1),
            _ => None,
        };
        at = match (text[at], braced) {
            (b'$', Some(braced)) if braced.has_colon => {
                return Some(&text[at..=braced.inner.end]);
            }
            (b'%', Some(braced)) => braced.inner.end + 1,
            (b'\\', _) => at + 2,
            _ => at + 1,
        };
    }
    None
}

/// Escapes a group for a query (`escape_backref`).
fn escape_group(group: &[u8], flags: &Flags) -> Vec<u8> {
    let mut out = Vec::with_capacity(group.len());
    for &byte in group {
        let is_visible = byte.is_ascii_graphic() || byte >= 0x80;
        let by_default = if flags.escapes_controls { !is_visible } else { flags.escaped.is_none() };
        let listed = flags.escaped.as_ref().is_some_and(|list| list.contains(&byte));
        let spared = flags.not_escaped.as_ref().is_some_and(|list| list.contains(&byte));
        match byte {
            _ if !(by_default || listed) || spared => out.push(byte),
            b'_' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => out.push(byte),
            b' ' if !flags.escapes_without_plus => out.push(b'+'),
            _ => out.extend(format!("%{byte:02x}").bytes()),
        }
    }
    out
}

/// The value of `%{…}`.
fn lookup(name: &[u8], context: &mut Context, scope: &Scope<'_>) -> Vec<u8> {
    if name.len() < 4 {
        return Vec::new();
    }
    let prefix =
        memchr::memchr(b':', name).map(|at| (name[..at].to_ascii_uppercase(), &name[at + 1..]));
    if let Some((prefix, rest)) = prefix
        && (prefix.len() == 3 || prefix.len() == 4)
    {
        return match &prefix[..] {
            _ if rest.is_empty() => Vec::new(),
            b"ENV" => scope.environment(rest),
            b"HTTP" => header(rest, context, scope),
            b"LA-U" | b"LA-F" => lookahead(rest, context, scope),
            _ => Vec::new(),
        };
    }
    let name = name.to_ascii_uppercase();
    match header_of_variable(&name) {
        Some(name) => header(name.as_bytes(), context, scope),
        None => scope.variable(&name),
    }
}

/// A request header; the response depends on it (`lookup_header`).
fn header(name: &[u8], context: &mut Context, scope: &Scope<'_>) -> Vec<u8> {
    match scope.request.headers_in.get(name) {
        Some(value) => {
            if !name.eq_ignore_ascii_case(b"host") {
                context.vary.push(name.to_vec());
            }
            value.to_vec()
        }
        None => Vec::new(),
    }
}

/// A variable after the request has been mapped to its file and user.
fn lookahead(name: &[u8], context: &mut Context, scope: &Scope<'_>) -> Vec<u8> {
    let uri = scope.lookahead_uri(&context.path);
    match scope.may_look_up().then(|| scope.lookup(&uri)).flatten() {
        Some(request) => {
            let seen = Scope { request: &request, ..*scope };
            lookup(name, context, &seen)
        }
        None => Vec::new(),
    }
}
