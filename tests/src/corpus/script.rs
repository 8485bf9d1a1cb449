//! A script's comment block, read.

use std::fs;
use std::path::Path;

use super::HOST;
use crate::http::Request;

/// One request of a script and what is known of its answer.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// What is sent.
    pub request: Request,
    /// Whether the cookies that earlier answers of this script set are sent along.
    pub send_cookies: bool,
    /// The status every server must answer with; nothing if each may have its own.
    pub status: Option<u16>,
    /// Texts that every server's body must contain.
    pub expect: Vec<String>,
    /// Texts that every server's log must contain soon after.
    pub log: Vec<String>,
    /// Headers, in small letters, whose values are not compared.
    pub ignored_headers: Vec<String>,
    /// Headers, in small letters, that are compared although they are framing.
    pub compared_headers: Vec<String>,
}

/// A script of the corpus.
#[derive(Debug, Clone)]
pub struct Script {
    /// Its path beneath the corpus, e.g. `post.php`.
    pub name: String,
    /// Its requests, in order.
    pub exchanges: Vec<Exchange>,
}

/// Reads every `.php` file of the corpus, in the order of their names.
///
/// # Panics
/// When a script has no request, or a line of its block is not understood.
pub fn load(corpus: &Path) -> Vec<Script> {
    let mut names = Vec::new();
    list(corpus, "", &mut names);
    names.sort();
    let read = |name: String| {
        let bytes = fs::read(corpus.join(&name)).expect("a script can be read");
        let exchanges = parse(&name, &String::from_utf8_lossy(&bytes));
        assert!(!exchanges.is_empty(), "{name} has no `// request:` line");
        Script { name, exchanges }
    };
    names.into_iter().map(read).collect()
}

fn list(corpus: &Path, below: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(corpus.join(below)).expect("the corpus can be listed").flatten() {
        let name = entry.file_name().into_string().expect("names in the corpus are text");
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.path().is_dir() {
            list(corpus, &name, names);
        } else if name.ends_with(".php") {
            names.push(name);
        }
    }
}

fn parse(name: &str, text: &str) -> Vec<Exchange> {
    let mut exchanges: Vec<Exchange> = Vec::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("// ")) {
        let Some((key, value)) = line.split_once(':') else {
            continue;
        };
        let value = value.strip_prefix(' ').unwrap_or(value);
        if key == "request" {
            exchanges.push(begin(name, value));
        } else if let Some(exchange) = exchanges.last_mut() {
            apply(name, exchange, key, value);
        }
    }
    exchanges
}

fn begin(name: &str, value: &str) -> Exchange {
    let (method, target) = value.split_once(' ').unwrap_or((value, "{self}"));
    let target = unescape(&target.replace("{self}", &format!("/{name}")));
    Exchange {
        request: Request::new(method, &target).header("Host", HOST),
        send_cookies: false,
        status: Some(200),
        expect: Vec::new(),
        log: Vec::new(),
        ignored_headers: Vec::new(),
        compared_headers: Vec::new(),
    }
}

fn apply(name: &str, exchange: &mut Exchange, key: &str, value: &str) {
    let request = &mut exchange.request;
    let number = || value.parse().unwrap_or_else(|_| panic!("{name}: {key} takes a number"));
    match key {
        "header" => {
            let (header, value) = value.split_once(": ").unwrap_or_else(|| {
                panic!("{name}: a header line reads `header: Name: value`, not {value:?}")
            });
            request.headers.retain(|(known, _)| header != "Host" || known != "Host");
            request.headers.push((header.into(), unescape(value)));
        }
        "body" => request.body.extend(unescape(value).chars().map(|c| c as u8)),
        "fill" => {
            let (count, text) = value.split_once(' ').expect("fill takes a count and a text");
            let count = count.parse().expect("fill takes a count and a text");
            request.body.extend(text.as_bytes().repeat(count));
        }
        "chunked" => request.chunk_size = Some(number()),
        "version" => request.version = value.into(),
        "cookies" => exchange.send_cookies = value == "keep",
        "status" => exchange.status = (value != "any").then(|| number() as u16),
        "expect" => exchange.expect.push(unescape(value)),
        "log" => exchange.log.push(value.into()),
        "ignore-header" => exchange.ignored_headers.push(value.to_ascii_lowercase()),
        "compare-header" => exchange.compared_headers.push(value.to_ascii_lowercase()),
        _ => panic!("{name}: `{key}` is not a word of the comment block (corpus/README.md)"),
    }
}

/// Resolves `\r`, `\n`, `\t`, `\\` and `\xHH`; any other backslash stands for itself, and text
/// becomes its UTF-8 bytes, one character each.
fn unescape(text: &str) -> String {
    let bytes: String = text.bytes().map(char::from).collect();
    let mut plain = String::new();
    let mut rest = bytes.as_str();
    while let Some((before, after)) = rest.split_once('\\') {
        plain.push_str(before);
        let mut letters = after.chars();
        plain.push(match letters.next() {
            Some('r') => '\r',
            Some('n') => '\n',
            Some('t') => '\t',
            Some('x') => {
                let digits: String = letters.by_ref().take(2).collect();
                char::from(u8::from_str_radix(&digits, 16).expect("\\x takes two hex digits"))
            }
            Some('\\') => '\\',
            _ => {
                letters = after.chars();
                '\\'
            }
        });
        rest = letters.as_str();
    }
    plain + rest
}
