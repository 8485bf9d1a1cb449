//! The lexemes of a line of php-fpm's configuration: php.ini's scanner in its normal mode
//! (`Zend/zend_ini_scanner.l`).
//!
//! The rule of a state with the longest match wins, and of equal ones the first. php-fpm scans each
//! line alone, so a line always ends in its only line break.

/// A lexeme of a line. Its text has no quotes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Lexeme {
    /// `[` of a section.
    Section,
    /// The name of a setting.
    Label(String),
    /// The name of a setting before `[KEY]`.
    Offset(String),
    /// Literal text: in single quotes, a number, blanks, or anything else.
    Text(String),
    /// A bare word, which may be the name of a constant.
    Constant(String),
    /// A part of a text in double quotes.
    Quoted(String),
    /// `true`, `on`, `yes`.
    Yes,
    /// `false`, `off`, `no`, `none`, `null`.
    No,
    /// `${`.
    Dollar,
    /// The name between `${` and `}`.
    Variable(String),
    /// The end of a value or of the line.
    EndOfLine,
    /// A literal character.
    Sign(u8),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Initial,
    Value,
    Offset,
    SectionValue,
    VariableName,
    DoubleQuotes,
}

/// The result of a rule.
type Match = (usize, Rule);

#[derive(Debug, Clone, Copy)]
enum Rule {
    Section,
    Offset,
    Yes,
    No,
    Label,
    Assign,
    Sign,
    Skip,
    EndOfLine,
    Raw,
    Dollar,
    Constant,
    Text,
    /// An `=` within a value, which is left for the next lexeme.
    Unread,
    OpenQuote,
    CloseQuote,
    Quoted,
    CloseBracket,
    Variable,
    CloseVariable,
}

/// The lexemes of `line`, which includes its line break. Ends early where the scanner detects the
/// end of the text.
pub(super) fn words(line: &str) -> Vec<Lexeme> {
    let mut scanner =
        Scanner { bytes: line.as_bytes(), at: 0, state: State::Initial, outer: Vec::new() };
    std::iter::from_fn(|| scanner.next_word()).collect()
}

struct Scanner<'a> {
    bytes: &'a [u8],
    at: usize,
    state: State,
    /// States to return to after `"` and `}`.
    outer: Vec<State>,
}

impl Scanner<'_> {
    fn next_word(&mut self) -> Option<Lexeme> {
        loop {
            if self.at >= self.bytes.len() {
                let unfinished = self.state == State::Value;
                self.state = State::Initial;
                // Nothing follows, so this happens once.
                return unfinished.then_some(Lexeme::EndOfLine);
            }
            let rest = &self.bytes[self.at..];
            if self.at == 0 && rest.len() > 3 && rest.starts_with(b"\xef\xbb\xbf") {
                self.at = 3;
                continue;
            }
            // A text in single quotes without an end.
            let quotable = matches!(self.state, State::Value | State::Offset | State::SectionValue);
            if quotable && rest[0] == b'\'' && !rest[1..].contains(&b'\'') {
                return None;
            }
            let (length, rule) = match self.state {
                State::Initial => initial(rest)?,
                State::Value => value(rest),
                State::Offset => offset(rest)?,
                State::SectionValue => section(rest)?,
                State::VariableName => variable_name(rest)?,
                State::DoubleQuotes => double_quotes(rest),
            };
            let text = &rest[..length];
            if !matches!(rule, Rule::Unread) {
                self.at += length;
            }
            if let Some(token) = self.apply(rule, text) {
                return Some(token);
            }
        }
    }

    fn apply(&mut self, rule: Rule, text: &[u8]) -> Option<Lexeme> {
        let (state, token) = match rule {
            Rule::Skip => return None,
            Rule::Section => (State::SectionValue, Lexeme::Section),
            Rule::Offset => {
                let name = trim_end(trim_start(text), b"[\n\r\t ");
                (State::Offset, Lexeme::Offset(owned(name)))
            }
            Rule::Label => {
                let name = trim_end(trim_start(text), b"\n\r\t ");
                (self.state, Lexeme::Label(owned(name)))
            }
            Rule::Variable => {
                let name = trim_end(trim_start(text), b"\n\r\t ");
                (self.state, Lexeme::Variable(owned(name)))
            }
            Rule::Yes => (self.state, Lexeme::Yes),
            Rule::No => (self.state, Lexeme::No),
            Rule::Assign => (State::Value, Lexeme::Sign(b'=')),
            Rule::Sign => (self.state, Lexeme::Sign(text[0])),
            Rule::EndOfLine | Rule::Unread => (State::Initial, Lexeme::EndOfLine),
            Rule::Raw => (self.state, Lexeme::Text(owned(&text[1..text.len() - 1]))),
            Rule::Constant => (self.state, Lexeme::Constant(owned(text))),
            Rule::Text => (self.state, Lexeme::Text(owned(text))),
            Rule::Quoted => (self.state, Lexeme::Quoted(unescaped(text))),
            Rule::CloseBracket => (State::Initial, Lexeme::Sign(b']')),
            Rule::Dollar => {
                self.outer.push(self.state);
                (State::VariableName, Lexeme::Dollar)
            }
            Rule::OpenQuote => {
                self.outer.push(self.state);
                (State::DoubleQuotes, Lexeme::Sign(b'"'))
            }
            Rule::CloseVariable => (self.pop(), Lexeme::Sign(b'}')),
            Rule::CloseQuote => (self.pop(), Lexeme::Sign(b'"')),
        };
        self.state = state;
        Some(token)
    }

    fn pop(&mut self) -> State {
        self.outer.pop().unwrap_or(State::Initial)
    }
}

/// The longest match, and of equal ones the first.
fn longest(rules: &[(usize, Rule)]) -> Option<Match> {
    let mut best: Option<Match> = None;
    for (length, rule) in rules {
        if *length > best.map_or(0, |(length, _)| length) {
            best = Some((*length, *rule));
        }
    }
    best
}

fn initial(rest: &[u8]) -> Option<Match> {
    let label = run(rest, is_label);
    let (yes, no) = switch_words(rest);
    let blanks = run(rest, is_blank);
    let offset = match rest.get(label) {
        Some(b'[') if label > 0 => label + 1 + run(&rest[label + 1..], is_blank),
        _ => 0,
    };
    let assign = match rest.get(blanks) {
        Some(b'=') => blanks + 1 + run(&rest[blanks + 1..], is_blank),
        _ => 0,
    };
    longest(&[
        (usize::from(rest[0] == b'['), Rule::Section),
        (offset, Rule::Offset),
        (yes, Rule::Yes),
        (no, Rule::No),
        (label, Rule::Label),
        (assign, Rule::Assign),
        (usize::from(b"&|^$~(){}!\"".contains(&rest[0])), Rule::Sign),
        (blanks, Rule::Skip),
        (line_break(rest), Rule::EndOfLine),
        (comment(rest), Rule::EndOfLine),
    ])
}

fn value(rest: &[u8]) -> Match {
    let (yes, no) = switch_words(rest);
    let operator = match rest[0] {
        b'&' | b'|' | b'^' | b'~' | b'(' | b')' | b'!' => 1 + run(&rest[1..], is_blank),
        _ => 0,
    };
    longest(&[
        (raw(rest), Rule::Raw),
        (variable(rest), Rule::Dollar),
        (yes, Rule::Yes),
        (no, Rule::No),
        (line_break(rest), Rule::EndOfLine),
        (constant(rest), Rule::Constant),
        (operator, Rule::Sign),
        (usize::from(rest[0] == b'='), Rule::Unread),
        (dollars_and(rest, is_value), Rule::Text),
        (quote(rest), Rule::OpenQuote),
        (run(rest, is_blank), Rule::Text),
        (comment(rest), Rule::EndOfLine),
    ])
    .unwrap_or((1, Rule::EndOfLine))
}

fn offset(rest: &[u8]) -> Option<Match> {
    let blanks = run(rest, is_blank);
    let close = match rest.get(blanks) {
        Some(b']') => blanks + 1,
        _ => 0,
    };
    bracketed(rest, (close, Rule::CloseBracket))
}

fn section(rest: &[u8]) -> Option<Match> {
    let close = match rest[0] {
        b']' => {
            let blanks = 1 + run(&rest[1..], is_blank);
            blanks + newline(&rest[blanks..])
        }
        _ => 0,
    };
    bracketed(rest, (close, Rule::CloseBracket))
}

fn bracketed(rest: &[u8], close: Match) -> Option<Match> {
    longest(&[
        (raw(rest), Rule::Raw),
        close,
        (variable(rest), Rule::Dollar),
        (constant(rest), Rule::Constant),
        (dollars_and(rest, is_section), Rule::Text),
        (quote(rest), Rule::OpenQuote),
        (run(rest, is_blank), Rule::Text),
    ])
}

fn variable_name(rest: &[u8]) -> Option<Match> {
    longest(&[
        (run(rest, is_label), Rule::Variable),
        (usize::from(rest[0] == b'}'), Rule::CloseVariable),
    ])
}

fn double_quotes(rest: &[u8]) -> Match {
    if rest[0] == b'"' {
        return (1 + run(&rest[1..], is_blank), Rule::CloseQuote);
    }
    if variable(rest) > 0 {
        return (2, Rule::Dollar);
    }
    (quoted_part(rest), Rule::Quoted)
}

/// The length of the text up to the closing quote or a variable.
fn quoted_part(rest: &[u8]) -> usize {
    let mut at = 0;
    while at < rest.len() {
        match rest[at] {
            b'"' => return at,
            b'$' if rest.get(at + 1) == Some(&b'{') => return at,
            b'\\' => {
                let ends_line = matches!(rest.get(at + 2), None | Some(b'\n' | b'\r'));
                // A Windows path that ends in a backslash: key="C:\path\"
                if rest.get(at + 1) == Some(&b'"') && ends_line {
                    return at + 1;
                }
                at += 2;
            }
            _ => at += 1,
        }
    }
    rest.len()
}

/// `zend_ini_escape_string` for double quotes.
fn unescaped(text: &[u8]) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next() {
                Some(escaped @ (b'"' | b'\\' | b'$')) => out.push(escaped),
                Some(other) => out.extend([b'\\', other]),
                None => out.push(b'\\'),
            },
            _ => out.push(byte),
        }
    }
    owned(&out)
}

fn run(rest: &[u8], good: fn(u8) -> bool) -> usize {
    rest.iter().take_while(|byte| good(**byte)).count()
}

fn is_blank(byte: u8) -> bool {
    byte == b' ' || byte == b'\t'
}

fn is_label(byte: u8) -> bool {
    !b"=\n\r\t;&|^$~(){}!\"[".contains(&byte)
}

fn is_value(byte: u8) -> bool {
    !b"$= \t\n\r;&|^~()!\"'\0".contains(&byte)
}

fn is_section(byte: u8) -> bool {
    !b"$\n\r;\"']\\".contains(&byte)
}

/// `VALUE_CHARS+` and `SECTION_VALUE_CHARS+`: bytes accepted by `good`, a dollar that starts no
/// variable with the next byte, and in a section a backslash with the next byte.
fn dollars_and(rest: &[u8], good: fn(u8) -> bool) -> usize {
    let mut at = 0;
    while at < rest.len() {
        let byte = rest[at];
        if good(byte) {
            at += 1;
        } else if byte == b'$' && rest.get(at + 1) == Some(&b'\\') && at + 2 < rest.len() {
            at += 3;
        } else if byte == b'$' && !matches!(rest.get(at + 1), None | Some(b'{' | 0)) {
            at += 2;
        } else if byte == b'\\' && at + 1 < rest.len() {
            // Only in a section: in a value a backslash is an ordinary byte.
            at += 2;
        } else {
            break;
        }
    }
    at
}

fn newline(rest: &[u8]) -> usize {
    match rest {
        [b'\r', b'\n', ..] => 2,
        [b'\r' | b'\n', ..] => 1,
        _ => 0,
    }
}

fn line_break(rest: &[u8]) -> usize {
    let blanks = run(rest, is_blank);
    match newline(&rest[blanks..]) {
        0 => 0,
        length => blanks + length,
    }
}

fn comment(rest: &[u8]) -> usize {
    let blanks = run(rest, is_blank);
    if rest.get(blanks) != Some(&b';') {
        return 0;
    }
    let length = blanks + run(&rest[blanks..], |byte| byte != b'\r' && byte != b'\n');
    match newline(&rest[length..]) {
        0 => 0,
        end => length + end,
    }
}

/// A non-empty text in single quotes.
fn raw(rest: &[u8]) -> usize {
    if rest[0] != b'\'' {
        return 0;
    }
    let inside = run(&rest[1..], |byte| byte != b'\'');
    if inside > 0 && 1 + inside < rest.len() { inside + 2 } else { 0 }
}

fn variable(rest: &[u8]) -> usize {
    if rest.starts_with(b"${") { 2 } else { 0 }
}

fn constant(rest: &[u8]) -> usize {
    if rest[0].is_ascii_alphabetic() || rest[0] == b'_' {
        run(rest, |byte| byte.is_ascii_alphanumeric() || byte == b'_')
    } else {
        0
    }
}

fn quote(rest: &[u8]) -> usize {
    let blanks = run(rest, is_blank);
    if rest.get(blanks) == Some(&b'"') { blanks + 1 } else { 0 }
}

/// The length of a word for true, or for false, with the blanks after it.
fn switch_words(rest: &[u8]) -> (usize, usize) {
    let taken = |words: &[&str]| {
        let words = words.iter().filter(|word| {
            let start = rest.get(..word.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
        });
        let ends = words.map(|word| word.len() + run(&rest[word.len()..], is_blank));
        ends.max().unwrap_or(0)
    };
    let yes = taken(&["true", "on", "yes"]);
    let no = taken(&["false", "off", "no", "none", "null"]);
    (yes, no)
}

fn trim_start(text: &[u8]) -> &[u8] {
    &text[run(text, is_blank)..]
}

fn trim_end<'t>(mut text: &'t [u8], chars: &[u8]) -> &'t [u8] {
    while let [rest @ .., last] = text
        && chars.contains(last)
    {
        text = rest;
    }
    text
}

fn owned(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
