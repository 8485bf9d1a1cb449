//! RewriteRule and RewriteCond (`cmd_rewriterule`, `cmd_rewritecond`).

use std::sync::Arc;

use super::expand::map_lookup;
use super::{CondTest, Flags, MAX_ROUNDS, Rule, RuleCondition, TextOrder};
use crate::conf::status::is_known_status;
use crate::expr;
use crate::expr_shown as shown;
use crate::limits::{self, MAX_VARIABLES};
use crate::regex::Regex;
use crate::text::integer;
use crate::words::RewriteArguments;

/// The status of R and of implicit redirects.
const FOUND: u16 = 302;

/// Parses a rule, which takes the conditions before it.
///
/// # Errors
/// What is wrong with it.
pub fn parse_rule(
    text: &[u8],
    line: usize,
    conditions: Vec<RuleCondition>,
) -> Result<Rule, String> {
    let bad = || format!("RewriteRule: bad argument line '{}'", shown(text));
    let arguments = RewriteArguments::split(text).ok_or_else(bad)?;
    let mut flags = Flags::default();
    if let Some(field) = &arguments.flags {
        each_flag(field, |key, value| set_rule_flag(&mut flags, key, value))
            .map_err(|why| format!("RewriteRule: {why}"))?;
        let set = flags.variables.len() + flags.cookies.len();
        limits::check(set, MAX_VARIABLES, "variables and cookies of a rule")?;
    }
    let (is_negated, pattern) = match arguments.first.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, &arguments.first[..]),
    };
    let compiled = Regex::new(pattern, flags.ignores_case);
    let pattern = compiled.map_err(|why| {
        format!("RewriteRule: cannot compile regular expression '{}': {why}", shown(pattern))
    })?;
    let mut substitution = arguments.second;
    if substitution.ends_with(b"?") {
        // A question mark at the end removes the query.
        if flags.appends_query {
            flags.splits_at_last = true;
        } else {
            flags.has_no_query = true;
            substitution.pop();
        }
    } else if flags.discards_query && !substitution.contains(&b'?') {
        flags.has_no_query = true;
    }
    let has_none = substitution == b"-" || flags.status.is_some();
    let substitution = Some(substitution).filter(|_| !has_none);
    let values = flags.variables.iter().chain(&flags.cookies).chain(&flags.handler);
    let mut expanded = values.chain(&flags.media_type).chain(&substitution);
    expanded.try_for_each(|text| without_map(text))?;
    Ok(Rule { pattern, is_negated, substitution, conditions, flags, line })
}

/// Whether the flags of a rule refuse the requests that it matches; one that is wrong may.
pub fn refuses(text: &[u8]) -> bool {
    let Some(arguments) = RewriteArguments::split(text) else { return true };
    let mut flags = Flags::default();
    let set = |key: &[u8], value: &[u8]| set_rule_flag(&mut flags, key, value);
    let read = arguments.flags.map_or(Ok(()), |field| each_flag(&field, set));
    read.is_err() || flags.status.is_some_and(|status| status >= 400)
}

/// Rejects the lookup of a map: without its value, a rule that denies may let clients in.
fn without_map(text: &[u8]) -> Result<(), String> {
    match map_lookup(text) {
        Some(lookup) => {
            let lookup = shown(lookup);
            Err(format!("there is no RewriteMap here for '{lookup}': write its values as rules"))
        }
        None => Ok(()),
    }
}

/// Calls `set` with each flag of `[A,B=c]`.
fn each_flag(
    field: &[u8],
    mut set: impl FnMut(&[u8], &[u8]) -> Result<(), String>,
) -> Result<(), String> {
    let inner = field.strip_prefix(b"[").and_then(|rest| rest.strip_suffix(b"]"));
    let inner = inner.ok_or("bad flag delimiters")?;
    for flag in inner.split(|byte| *byte == b',') {
        let flag = flag.trim_ascii();
        if flag.is_empty() {
            continue;
        }
        let (key, value) = match memchr::memchr(b'=', flag) {
            Some(at) => (&flag[..at], &flag[at + 1..]),
            None => (flag, &b""[..]),
        };
        set(key, value)?;
    }
    Ok(())
}

fn set_rule_flag(flags: &mut Flags, key: &[u8], value: &[u8]) -> Result<(), String> {
    let given = || Some(value.to_vec()).filter(|value| !value.is_empty());
    match &key.to_ascii_lowercase()[..] {
        b"b" | b"backrefescaping" => {
            flags.escapes_groups = true;
            flags.escaped = given().or(flags.escaped.take());
        }
        b"bne" => {
            let list = given().ok_or("flag 'BNE' wants a list of characters (i.e. [BNE=...])")?;
            flags.not_escaped = Some(list);
        }
        b"bnp" | b"backrefernoplus" => flags.escapes_without_plus = true,
        b"bctls" => (flags.escapes_controls, flags.escapes_groups) = (true, true),
        b"c" | b"chain" => flags.is_chained = true,
        b"co" | b"cookie" => flags.cookies.push(value.to_vec()),
        b"dpi" | b"discardpath" => flags.discards_path_info = true,
        b"e" | b"env" => flags.variables.push(value.to_vec()),
        b"end" => flags.is_end = true,
        b"f" | b"forbidden" => flags.status = Some(403),
        b"g" | b"gone" => flags.status = Some(410),
        b"h" | b"handler" => flags.handler = Some(value.to_vec()),
        b"l" | b"last" => flags.is_last = true,
        b"n" | b"next" => flags.next_rounds = Some(given().map_or(MAX_ROUNDS, |n| integer(&n))),
        b"ne" | b"noescape" => flags.does_not_escape = true,
        b"nc" | b"nocase" => flags.ignores_case = true,
        b"ns" | b"nosubreq" => flags.skips_subrequests = true,
        b"p" | b"proxy" => flags.is_proxy = true,
        // Meant for the context of a server.
        b"pt" | b"passthrough" => flags.is_last = true,
        b"qsa" | b"qsappend" => flags.appends_query = true,
        b"qsd" | b"qsdiscard" => flags.discards_query = true,
        b"qsl" | b"qslast" => flags.splits_at_last = true,
        b"r" | b"redirect" => set_redirect(flags, value)?,
        b"s" | b"skip" => flags.skip = usize::try_from(integer(value)).unwrap_or(0),
        b"t" | b"type" => flags.media_type = Some(value.to_vec()),
        b"unsafeallow3f" => flags.allows_3f = true,
        b"unsafeprefixstat" => {}
        b"unc" => flags.keeps_slashes = true,
        // Apache does not look at the rest of names that begin with D.
        _ if key.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'd')) => {}
        _ => return Err(format!("unknown flag '{}'", shown(key))),
    }
    Ok(())
}

fn set_redirect(flags: &mut Flags, value: &[u8]) -> Result<(), String> {
    let status = match &value.to_ascii_lowercase()[..] {
        b"" => FOUND,
        b"permanent" => 301,
        b"temp" => FOUND,
        b"seeother" => 303,
        digits if digits[0].is_ascii_digit() => {
            let status = u16::try_from(integer(digits)).unwrap_or(0);
            if !is_known_status(status) {
                let said = shown(value);
                return Err(format!("invalid HTTP response code '{said}' for flag 'R'"));
            }
            status
        }
        // `R=word` sets no status, which then is that of a redirect.
        _ => FOUND,
    };
    flags.redirects = Some(status);
    if !(300..400).contains(&status) {
        flags.status = Some(status);
    }
    Ok(())
}

/// Parses a condition.
///
/// # Errors
/// What is wrong with it.
pub fn parse_condition(text: &[u8]) -> Result<RuleCondition, String> {
    let bad = || format!("RewriteCond: bad argument line '{}'", shown(text));
    let arguments = RewriteArguments::split(text).ok_or_else(bad)?;
    let (mut ignores_case, mut is_or, mut does_not_vary) = (false, false, false);
    if let Some(field) = &arguments.flags {
        each_flag(field, |key, _| {
            match &key.to_ascii_lowercase()[..] {
                b"nc" | b"nocase" => ignores_case = true,
                b"or" | b"ornext" => is_or = true,
                b"nv" | b"novary" => does_not_vary = true,
                _ => return Err(format!("unknown flag '{}'", shown(key))),
            }
            Ok(())
        })
        .map_err(|why| format!("RewriteCond: {why}"))?;
    }
    let (mut is_negated, pattern) = match arguments.second.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, &arguments.second[..]),
    };
    without_map(&arguments.first)?;
    let is_expression = arguments.first.eq_ignore_ascii_case(b"expr");
    let test = match is_expression {
        true => CondTest::Expression(Arc::new(expr::Condition::parse(pattern)?)),
        false => match special_test(pattern, ignores_case) {
            Some(special) => {
                is_negated ^= special.is_inverted;
                special.test
            }
            None => CondTest::Matches(Regex::new(pattern, ignores_case).map_err(|why| {
                let pattern = shown(pattern);
                format!("RewriteCond: cannot compile regular expression '{pattern}': {why}")
            })?),
        },
    };
    Ok(RuleCondition { input: arguments.first, test, is_negated, is_or, does_not_vary })
}

struct SpecialTest {
    test: CondTest,
    /// `-ne` is an inverted `-eq`.
    is_inverted: bool,
}

/// Tests other than a regular expression; they take at least two characters.
fn special_test(pattern: &[u8], ignores_case: bool) -> Option<SpecialTest> {
    let plain = |test| Some(SpecialTest { test, is_inverted: false });
    let text = |order, pattern: &[u8]| {
        plain(CondTest::Text { order, pattern: pattern.to_vec(), ignores_case })
    };
    let number = |order, is_inverted| {
        let test = CondTest::Number { order, pattern: pattern[3..].to_vec() };
        Some(SpecialTest { test, is_inverted })
    };
    if pattern.len() < 2 {
        return None;
    }
    match pattern {
        [b'-', test @ (b'f' | b's' | b'd' | b'x' | b'U' | b'F')] => plain(CondTest::File(*test)),
        [b'-', b'h' | b'L' | b'l'] => plain(CondTest::File(b'l')),
        [b'-', b'l', b't', _, ..] => number(TextOrder::Less, false),
        [b'-', b'l', b'e', _, ..] => number(TextOrder::LessOrEqual, false),
        [b'-', b'g', b't', _, ..] => number(TextOrder::Greater, false),
        [b'-', b'g', b'e', _, ..] => number(TextOrder::GreaterOrEqual, false),
        [b'-', b'e', b'q', _, ..] => number(TextOrder::Equal, false),
        [b'-', b'n', b'e', _, ..] => number(TextOrder::Equal, true),
        [b'-', ..] => None,
        [b'>', b'=', rest @ ..] => text(TextOrder::GreaterOrEqual, rest),
        [b'>', rest @ ..] => text(TextOrder::Greater, rest),
        [b'<', b'=', rest @ ..] => text(TextOrder::LessOrEqual, rest),
        [b'<', rest @ ..] => text(TextOrder::Less, rest),
        [b'=', b'"', b'"'] => text(TextOrder::Equal, b""),
        [b'=', rest @ ..] => text(TextOrder::Equal, rest),
        _ => None,
    }
}
