//! Templates for the target of a redirect or a rewrite, with groups of the matched path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::path::encode_path;
use crate::pattern_table::Captures;

/// Longest expanded target, in bytes.
const MAX_EXPANDED_BYTES: usize = 8 * 1024;

/// Bytes that could end a value in a query or change its meaning.
const IN_QUERY: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A template. Values from the request are encoded for their position, so that they can neither end
/// the path nor add a header line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    path: Vec<Piece>,
    /// After the first `?`, if there is one.
    query: Option<Vec<Piece>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Group(usize),
    Host,
    Scheme,
}

/// The parts of a request that a template can use, beside the path.
#[derive(Debug, Clone, Copy)]
pub struct TemplateVars<'a> {
    /// `http` or `https`.
    pub scheme: &'a str,
    /// The host, without its port.
    pub host: &'a str,
    /// The query, if there is one.
    pub query: Option<&'a str>,
}

/// A target: a path or an absolute URL, and a query.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expanded {
    /// Encoded.
    pub path: String,
    /// Without the `?`; `None`: no query.
    pub query: Option<String>,
}

impl Template {
    /// Parses a template whose pattern has this many `groups`.
    ///
    /// # Errors
    /// What is wrong with `text`, as the end of a sentence that begins with it.
    pub fn parse(text: &str, groups: usize) -> Result<Template, String> {
        if text.contains(|c: char| c.is_control() || c == ' ' || !c.is_ascii()) {
            return Err("has a blank, a control character or one beyond ASCII; encode it".into());
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(pieces(query, groups)?)),
            None => (text, None),
        };
        let path = pieces(path, groups)?;
        Ok(Template { path, query })
    }

    /// The target for one request. The request's query is appended, unless the template ends with
    /// `?`. `None` if the target would be too long.
    pub fn expand(&self, captures: &Captures<'_>, vars: &TemplateVars<'_>) -> Option<Expanded> {
        let mut path = String::new();
        write(&mut path, &self.path, captures, vars, encode_path);
        // A group behind a slash must not become a host: `//host`, and `/\host` for browsers.
        if path.starts_with("//") || path.starts_with("/\\") {
            let start = path.find(|c| c != '/' && c != '\\').unwrap_or(path.len());
            path.replace_range(..start, "/");
        }
        let mut query = String::new();
        if let Some(pieces) = &self.query {
            let encode = |bytes: &[u8]| percent_encode(bytes, IN_QUERY).to_string();
            write(&mut query, pieces, captures, vars, encode);
        }
        let drops_query = self.query.as_ref().is_some_and(Vec::is_empty)
            || matches!(self.query.as_ref().and_then(|all| all.last()),
                        Some(Piece::Text(text)) if text.ends_with('?'));
        let own = query.trim_end_matches('?').len();
        query.truncate(own);
        if let Some(asked) = vars.query.filter(|asked| !drops_query && !asked.is_empty()) {
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str(asked);
        }
        let query = Some(query).filter(|query| !query.is_empty());
        let length = path.len() + query.as_ref().map_or(0, String::len);
        (length <= MAX_EXPANDED_BYTES).then_some(Expanded { path, query })
    }
}

impl Expanded {
    /// The value of the `Location` header.
    pub fn location(&self) -> String {
        let encode = |query: &str| {
            percent_encoding::utf8_percent_encode(query, percent_encoding::CONTROLS).to_string()
        };
        match &self.query {
            Some(query) => format!("{}?{}", self.path, encode(query)),
            None => self.path.clone(),
        }
    }
}

fn write(
    out: &mut String,
    pieces: &[Piece],
    captures: &Captures<'_>,
    vars: &TemplateVars<'_>,
    encode: impl Fn(&[u8]) -> String,
) {
    for piece in pieces {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Group(number) => out.push_str(&encode(captures.group(*number))),
            Piece::Host => out.push_str(vars.host),
            Piece::Scheme => out.push_str(vars.scheme),
        }
    }
}

fn pieces(text: &str, groups: usize) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        literal.push_str(before);
        let named = [("host", Piece::Host), ("scheme", Piece::Scheme)];
        let name = named.into_iter().find(|(name, _)| after.starts_with(name));
        rest = if let Some(after) = after.strip_prefix('$') {
            literal.push('$');
            after
        } else {
            let (piece, length) = match name {
                Some((name, piece)) => (piece, name.len()),
                None => (Piece::Group(group(after, groups)?), 1),
            };
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal)));
            }
            pieces.push(piece);
            &after[length..]
        };
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        pieces.push(Piece::Text(literal));
    }
    Ok(pieces)
}

fn group(after: &str, groups: usize) -> Result<usize, String> {
    let digit = after.chars().next().and_then(|c| c.to_digit(10));
    let Some(number) = digit.and_then(|digit| usize::try_from(digit).ok()) else {
        return Err("has a `$` that starts no variable; expected `$1` to `$9`, `$0`, `$host`, \
             `$scheme`, or `$$` for the sign itself"
            .to_owned());
    };
    if number > groups {
        let found = match groups {
            0 => "none".to_owned(),
            1 => "only `$1`".to_owned(),
            _ => format!("`$1` to `${groups}`"),
        };
        return Err(format!("has `${number}`, but the groups of its pattern are {found}"));
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(template: &str, rest: &str, query: Option<&str>) -> String {
        let path = format!("/x/{rest}");
        let captures = Captures::Rest(path.as_bytes(), rest.as_bytes());
        let vars = TemplateVars { scheme: "https", host: "a.example", query };
        let template = Template::parse(template, 1).unwrap();
        template.expand(&captures, &vars).unwrap().location()
    }

    #[test]
    fn groups_are_encoded_for_their_place() {
        assert_eq!(expand("/new/$1", "a b?c", None), "/new/a%20b%3Fc");
        assert_eq!(expand("/i.php?p=$1", "a b&c=d", None), "/i.php?p=a%20b%26c%3Dd");
        assert_eq!(expand("/new/$1", "a\r\nX: y", None), "/new/a%0D%0AX:%20y");
        assert_eq!(expand("$scheme://$host$0", "b", None), "https://a.example/x/b");
        assert_eq!(expand("/$$5", "b", None), "/$5");
    }

    #[test]
    fn a_query_is_carried_along_unless_the_template_ends_in_a_question_mark() {
        assert_eq!(expand("/n", "", Some("a=1")), "/n?a=1");
        assert_eq!(expand("/n?b=2", "", Some("a=1")), "/n?b=2&a=1");
        assert_eq!(expand("/n?", "", Some("a=1")), "/n");
        assert_eq!(expand("/n?b=2?", "", Some("a=1")), "/n?b=2");
    }

    #[test]
    fn a_group_cannot_make_another_host_of_a_path() {
        assert_eq!(expand("/$1", "/evil.example/", None), "/evil.example/");
        assert_eq!(expand("/$1", "\\evil.example", None), "/%5Cevil.example");
        assert_eq!(expand("/\\$1", "evil.example", None), "/evil.example");
        assert_eq!(expand("/\\/$1", "/evil.example", None), "/evil.example");
    }

    #[test]
    fn a_template_has_only_groups_of_its_pattern() {
        assert!(Template::parse("/$2", 1).unwrap_err().contains("`$2`"));
        assert!(Template::parse("/$x", 1).unwrap_err().contains("no variable"));
        assert!(Template::parse("/a b", 1).is_err());
    }
}
