//! Specifications of requests, their encodings, and lists of requests.

use std::fmt::Write as _;
use std::path::Path;

use bytes::Bytes;
use maitred_fastcgi::{RequestWriter, write_stdin, write_stdin_end};

use crate::url::Url;

/// Most URLs in a list.
pub const MAX_REQUESTS: usize = 100_000;

/// The largest request body, in bytes.
const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;

/// The specification of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestSpec {
    /// Its URL.
    pub url: Url,
    /// Its method.
    pub method: String,
    /// Headers in addition to those that HTTP requires.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// How often it is chosen, relative to the others.
    pub weight: f64,
}

/// An encoded request.
#[derive(Debug, Clone)]
pub enum EncodedRequest {
    /// All bytes of HTTP/1.1 or FastCGI.
    Bytes(Bytes),
    /// The headers and the body of HTTP/2.
    Http2(Box<http::Request<Bytes>>),
}

/// Connection-specific headers, which HTTP/2 does not allow (RFC 9113, 8.2.2).
const NOT_IN_HTTP2: [&str; 5] =
    ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];

impl RequestSpec {
    /// A GET.
    pub fn get(url: Url) -> RequestSpec {
        RequestSpec {
            url,
            method: "GET".to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
            weight: 1.0,
        }
    }

    /// Its name in tables.
    pub fn label(&self) -> String {
        format!("{} {}", self.method, self.url.path)
    }

    /// Encodes it for HTTP/1.1, with the URL's path or another one, and with cookies, if any.
    pub fn http1(&self, path: Option<&str>, cookies: Option<&str>, keep: bool) -> Bytes {
        let has = |name: &str| self.field(name).is_some();
        let path = path.unwrap_or(&self.url.path);
        let mut head = format!("{} {path} HTTP/1.1\r\n", self.method);
        // Writing to a string cannot fail.
        if !has("host") {
            let _ = write!(head, "Host: {}\r\n", self.url.authority);
        }
        if !has("user-agent") {
            let _ = write!(head, "User-Agent: {AGENT}\r\n");
        }
        if !has("accept") {
            head.push_str("Accept: */*\r\n");
        }
        if !keep {
            head.push_str("Connection: close\r\n");
        }
        for (name, value) in &self.headers {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        if let Some(cookies) = cookies.filter(|cookies| !cookies.is_empty()) {
            let _ = write!(head, "Cookie: {cookies}\r\n");
        }
        if self.has_body() {
            if !has("content-type") {
                let _ = write!(head, "Content-Type: {FORM}\r\n");
            }
            let _ = write!(head, "Content-Length: {}\r\n", self.body.len());
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes.into()
    }

    /// Encodes it for HTTP/2, with the URL's path or another one, and with cookies, if any.
    ///
    /// # Errors
    /// A message, when HTTP/2 cannot express it.
    pub fn http2(
        &self,
        path: Option<&str>,
        cookies: Option<&str>,
    ) -> Result<EncodedRequest, String> {
        let host = self.field("host").unwrap_or(&self.url.authority);
        let scheme = if self.url.tls { "https" } else { "http" };
        let path = path.unwrap_or(&self.url.path);
        let length = self.body.len().to_string();
        let of_body = [("content-type", FORM), ("content-length", &length)];
        let usual = [("user-agent", AGENT), ("accept", "*/*")].into_iter();
        let usual = usual.chain(of_body.into_iter().filter(|_| self.has_body()));
        let unsaid = usual.filter(|(name, _)| self.field(name).is_none());
        let given = self.headers.iter();
        let given = given.map(|(name, value)| (name.as_str(), value.as_str()));
        let cookies = cookies.filter(|cookies| !cookies.is_empty());
        let cookies = cookies.map(|cookies| ("cookie", cookies));
        let mut request = http::Request::builder()
            .version(http::Version::HTTP_2)
            .method(self.method.as_str())
            .uri(format!("{scheme}://{host}{path}"));
        for (name, value) in given.chain(unsaid).chain(cookies) {
            let is = |known: &str| name.eq_ignore_ascii_case(known);
            if NOT_IN_HTTP2.iter().any(|known| is(known)) {
                return Err(format!("HTTP/2 has no header '{name}'; leave it out"));
            }
            if !is("host") {
                request = request.header(name, value);
            }
        }
        let request = request.body(self.body.clone().into());
        let request =
            request.map_err(|why| format!("{} cannot be sent over HTTP/2: {why}", self.label()))?;
        Ok(EncodedRequest::Http2(Box::new(request)))
    }

    fn has_body(&self) -> bool {
        !self.body.is_empty() || matches!(self.method.as_str(), "POST" | "PUT" | "PATCH")
    }

    fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.headers.iter();
        let found = fields.find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    /// Encodes it for FastCGI, for scripts below `root`.
    ///
    /// # Errors
    /// A message, when FastCGI cannot express it.
    pub fn fastcgi(
        &self,
        root: &str,
        path: Option<&str>,
        cookies: Option<&str>,
        keep: bool,
    ) -> Result<Bytes, String> {
        let path = path.unwrap_or(&self.url.path);
        let (script, query) = path.split_once('?').unwrap_or((path, ""));
        let root = root.trim_end_matches('/');
        let length = self.body.len().to_string();
        let file = format!("{root}{script}");
        let port = self.url.port.to_string();
        let mut params: Vec<(String, &str)> = [
            ("GATEWAY_INTERFACE", "CGI/1.1"),
            ("SERVER_PROTOCOL", "HTTP/1.1"),
            ("SERVER_SOFTWARE", AGENT),
            ("SERVER_NAME", &self.url.host),
            ("SERVER_PORT", &port),
            ("SERVER_ADDR", "127.0.0.1"),
            ("REMOTE_ADDR", "127.0.0.1"),
            ("REMOTE_PORT", "0"),
            ("REQUEST_METHOD", &self.method),
            ("REQUEST_URI", path),
            ("SCRIPT_NAME", script),
            ("SCRIPT_FILENAME", &file),
            ("DOCUMENT_ROOT", root),
            ("QUERY_STRING", query),
            ("CONTENT_LENGTH", if self.body.is_empty() { "" } else { &length }),
            ("HTTP_HOST", &self.url.authority),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        for (name, value) in &self.headers {
            let name = name.to_ascii_uppercase().replace('-', "_");
            match name.as_str() {
                "CONTENT_TYPE" => params.push((name, value)),
                _ => params.push((format!("HTTP_{name}"), value)),
            }
        }
        if let Some(cookies) = cookies {
            params.push(("HTTP_COOKIE".to_owned(), cookies));
        }
        let mut bytes = Vec::new();
        let mut writer = RequestWriter::new(&mut bytes, FASTCGI_ID, keep);
        for (name, value) in &params {
            let written = writer.param(name.as_bytes(), value.as_bytes());
            written.map_err(|_| format!("{name} is too long for FastCGI"))?;
        }
        writer.finish();
        if !self.body.is_empty() {
            write_stdin(&mut bytes, FASTCGI_ID, &self.body);
        }
        write_stdin_end(&mut bytes, FASTCGI_ID);
        Ok(bytes.into())
    }
}

/// Our User-Agent.
const AGENT: &str = concat!("maitred-bench/", env!("CARGO_PKG_VERSION"));

/// The default type of a request body: form fields.
const FORM: &str = "application/x-www-form-urlencoded";

/// The id of every FastCGI request: a connection carries one at a time.
pub const FASTCGI_ID: u16 = 1;

/// Parses a header of the command line, `Name: value`.
///
/// # Errors
/// A message that says what is expected.
pub fn read_header(text: &str) -> Result<(String, String), String> {
    let wrong = || format!("'{text}' is no header; expected one such as 'Accept: text/html'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let (name, value) = (name.trim(), value.trim());
    let named: Result<http::HeaderName, _> = name.parse();
    let valued: Result<http::HeaderValue, _> = value.parse();
    match (named, valued) {
        (Ok(_), Ok(_)) => Ok((name.to_owned(), value.to_owned())),
        _ => Err(wrong()),
    }
}

/// Parses a body of the command line: a text, or `@FILE`.
///
/// # Errors
/// When the file cannot be read.
pub fn read_body(text: &str) -> Result<Vec<u8>, String> {
    match text.strip_prefix('@') {
        Some(file) => read_file(Path::new(file)),
        None => Ok(text.as_bytes().to_vec()),
    }
}

fn read_file(file: &Path) -> Result<Vec<u8>, String> {
    let shown = file.display();
    let body = std::fs::read(file).map_err(|why| format!("{shown} cannot be read: {why}"))?;
    match body.len() {
        0..=MAX_BODY_BYTES => Ok(body),
        _ => Err(format!("{shown} is longer than 256 MiB")),
    }
}

/// Reads a list of URLs in siege's format: one a line, `URL POST body` or `URL POST <file`,
/// variables (`HOST = example.org`, `$(HOST)`), comments after `#`. A number before a URL is its
/// weight. A path without a host belongs to `base`.
///
/// # Errors
/// A message with file and line.
pub fn read_list(file: &Path, base: Option<&Url>) -> Result<Vec<RequestSpec>, String> {
    let shown = file.display();
    let text = read_file(file)?;
    let text = String::from_utf8(text).map_err(|_| format!("{shown} is no text in UTF-8"))?;
    let mut variables: Vec<(String, String)> = Vec::new();
    let mut specs = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let at = |why: String| format!("{shown}:{}: {why}", number + 1);
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some((name, value)) = variable(line) {
            variables.push((format!("$({name})"), value.to_owned()));
            continue;
        }
        let known = variables.iter().rev();
        let line = known.fold(line.to_owned(), |line, (name, value)| line.replace(name, value));
        specs.push(list_line(&line, file, base).map_err(at)?);
        if specs.len() > MAX_REQUESTS {
            return Err(at(format!("more than {MAX_REQUESTS} URLs")));
        }
    }
    if specs.is_empty() {
        return Err(format!("{shown} holds no URL; expected one a line"));
    }
    Ok(specs)
}

fn variable(line: &str) -> Option<(&str, &str)> {
    let (name, value) = line.split_once('=')?;
    let name = name.trim();
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    (!name.is_empty() && name.bytes().all(is_name)).then_some((name, value.trim()))
}

fn list_line(line: &str, file: &Path, base: Option<&Url>) -> Result<RequestSpec, String> {
    let mut words = line.split_whitespace();
    let mut word = words.next().unwrap_or_default();
    let mut weight = 1.0;
    if let Ok(number) = word.parse::<f64>() {
        if !(number > 0.0 && number.is_finite()) {
            return Err(format!("'{word}' is no weight; expected one above 0"));
        }
        weight = number;
        word = words.next().unwrap_or_default();
    }
    let mut spec = RequestSpec { weight, ..RequestSpec::get(Url::read(word, base)?) };
    if let Some(method) = words.next() {
        let method = method.to_ascii_uppercase();
        if !matches!(
            method.as_str(),
            "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS"
        ) {
            return Err(format!("'{method}' is no known method; a space in a URL is %20"));
        }
        spec.method = method;
        let rest = words.collect::<Vec<_>>().join(" ");
        spec.body = match rest.strip_prefix('<') {
            Some(name) => {
                let folder = file.parent().unwrap_or(Path::new("."));
                read_file(&folder.join(name.trim()))?
            }
            None => rest.into_bytes(),
        };
    }
    Ok(spec)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn get(url: &str) -> RequestSpec {
        RequestSpec::get(Url::read(url, None).expect("a URL"))
    }

    #[test]
    fn a_request_says_what_http_needs_and_no_field_twice() {
        let bytes = get("http://a:81/b?c").http1(None, Some("x=1"), true);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("GET /b?c HTTP/1.1\r\nHost: a:81\r\n"), "{text}");
        assert!(text.ends_with("Cookie: x=1\r\n\r\n"), "{text}");
        let mut spec = get("http://a/");
        spec.method = "POST".into();
        spec.headers.push(("Host".into(), "other".into()));
        spec.body = b"a=1".to_vec();
        let bytes = spec.http1(Some("/d"), None, false);
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("POST /d HTTP/1.1\r\n"), "{text}");
        assert_eq!(text.matches("Host: ").count(), 1);
        assert!(text.contains("Connection: close\r\n"));
        assert!(text.ends_with("Content-Length: 3\r\n\r\na=1"), "{text}");
    }

    #[test]
    fn a_request_says_the_same_in_http2() {
        let mut spec = get("https://a:81/b?c");
        spec.method = "POST".into();
        spec.headers.push(("HOST".into(), "other".into()));
        spec.headers.push(("X-A".into(), "1".into()));
        spec.body = b"a=1".to_vec();
        let Ok(EncodedRequest::Http2(request)) = spec.http2(Some("/d"), Some("x=1")) else {
            panic!("no request of HTTP/2");
        };
        assert_eq!(request.uri(), "https://other/d");
        let names: Vec<_> = request.headers().keys().map(|name| name.as_str()).collect();
        let wanted = ["x-a", "user-agent", "accept", "content-type", "content-length", "cookie"];
        assert_eq!(names, wanted);
        assert_eq!(&request.body()[..], b"a=1");
        spec.headers.push(("Connection".into(), "close".into()));
        let why = spec.http2(None, None).expect_err("no such field");
        assert!(why.contains("HTTP/2 has no header 'Connection'"), "{why}");
    }

    #[test]
    fn a_list_of_siege_works_as_it_is() {
        let folder = std::env::temp_dir().join(format!("maitred-list-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("body"), "b=2").expect("a file");
        let list = folder.join("urls.txt");
        let text = "# shop\nHOST = shop.example\n\nhttp://$(HOST)/\nshop.example/a?x=1\n\
                    http://$(HOST)/cart POST a=1&b=2\n3 /c POST <body\n";
        std::fs::write(&list, text).expect("a file");
        let base = Url::read("http://127.0.0.1:8080/", None).expect("a URL");
        let specs = read_list(&list, Some(&base)).expect("a list");
        let shown: Vec<String> = specs
            .iter()
            .map(|spec| {
                let body = String::from_utf8_lossy(&spec.body);
                format!("{} {} {} {body}", spec.weight, spec.method, spec.url)
            })
            .collect();
        assert_eq!(
            shown,
            [
                "1 GET http://shop.example/ ",
                "1 GET http://shop.example/a?x=1 ",
                "1 POST http://shop.example/cart a=1&b=2",
                "3 POST http://127.0.0.1:8080/c b=2",
            ]
        );
        std::fs::write(&list, "http://a/\nhttp://a/ b c\n").expect("a file");
        let why = read_list(&list, None).expect_err("a space");
        assert!(why.contains("urls.txt:2: 'B' is no known method"), "{why}");
        std::fs::remove_dir_all(&folder).expect("a folder of ours");
    }

    #[test]
    fn header_fields_are_checked() {
        assert_eq!(read_header("A:  b:c "), Ok(("A".into(), "b:c".into())));
        for text in ["a", "a b: c", ": c", "a: b\r\nc: d"] {
            assert!(read_header(text).is_err(), "{text}");
        }
    }
}
