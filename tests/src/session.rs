//! A browser's side of a site: cookies kept, redirects followed on request, forms posted.

use std::fmt::Write as _;
use std::net::SocketAddr;

use crate::http::{Request, Response, ask};

/// How many redirects in a row are followed.
const REDIRECT_LIMIT: usize = 10;

/// A visitor with a cookie jar.
#[derive(Debug, Clone)]
pub struct Session {
    address: SocketAddr,
    host: String,
    cookies: Vec<(String, String)>,
}

impl Session {
    /// A visitor without cookies.
    pub fn new(address: SocketAddr) -> Self {
        Self { address, host: address.to_string(), cookies: Vec::new() }
    }

    /// This visitor, with the same cookies, at another server of the same site.
    pub fn at(&self, address: SocketAddr) -> Self {
        Self { address, ..self.clone() }
    }

    /// Whether the visitor has a cookie whose name starts so.
    pub fn has_cookie(&self, start: &str) -> bool {
        self.cookies.iter().any(|(name, _)| name.starts_with(start))
    }

    /// Sends a request with the visitor's cookies and keeps the ones it is given.
    pub fn send(&mut self, request: Request) -> Response {
        let mut request = request.header("Connection", "close");
        request.headers.retain(|(name, _)| !name.eq_ignore_ascii_case("Host"));
        request = request.header("Host", &self.host);
        if !self.cookies.is_empty() {
            let pairs: Vec<_> = self.cookies.iter().map(|(n, v)| format!("{n}={v}")).collect();
            request = request.header("Cookie", &pairs.join("; "));
        }
        let response = ask(self.address, &request);
        for cookie in response.all("Set-Cookie") {
            self.keep(cookie);
        }
        response
    }

    fn keep(&mut self, cookie: &str) {
        let pair = cookie.split(';').next().unwrap_or_default();
        let Some((name, value)) = pair.split_once('=') else {
            return;
        };
        self.cookies.retain(|(known, _)| known != name.trim());
        let expired = cookie.to_ascii_lowercase().contains("max-age=0");
        if !expired && !value.is_empty() {
            self.cookies.push((name.trim().to_owned(), value.to_owned()));
        }
    }

    /// GETs a target or a URL of this site.
    pub fn get(&mut self, target: &str) -> Response {
        let target = self.target(target);
        self.send(Request::get(&target))
    }

    /// GETs and follows redirects within the site.
    ///
    /// # Panics
    /// When they go round.
    pub fn follow(&mut self, target: &str) -> Response {
        let mut target = self.target(target);
        for _ in 0..REDIRECT_LIMIT {
            let response = self.get(&target);
            match response.header("Location") {
                Some(location) if response.status / 100 == 3 => target = self.target(location),
                _ => return response,
            }
        }
        panic!("{target} is still a redirect after {REDIRECT_LIMIT}")
    }

    /// POSTs a form.
    pub fn post_form(&mut self, target: &str, fields: &[(&str, &str)]) -> Response {
        let pairs: Vec<_> =
            fields.iter().map(|(n, v)| format!("{}={}", encode(n), encode(v))).collect();
        let form = "application/x-www-form-urlencoded";
        self.send(Request::post(&self.target(target), form, pairs.join("&").as_bytes()))
    }

    /// The request target of a URL of this site; a target stays as it is.
    ///
    /// # Panics
    /// When the URL is another site's.
    pub fn target(&self, url: &str) -> String {
        let base = format!("http://{}", self.host);
        match url.strip_prefix(&base) {
            Some("") => "/".to_owned(),
            Some(target) => target.to_owned(),
            None => {
                assert!(!url.starts_with("http"), "{url} is not on {base}");
                url.to_owned()
            }
        }
    }
}

/// Percent-encodes everything but unreserved characters (RFC 3986 section 2.3).
pub fn encode(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// A multipart/form-data body (RFC 7578): content type and bytes.
pub fn multipart(fields: &[(&str, &str)], file: (&str, &str, &str, &[u8])) -> (String, Vec<u8>) {
    const BOUNDARY: &str = "----testbed-boundary-7d4a1c";
    let mut body = Vec::new();
    for (name, value) in fields {
        let head =
            format!("--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n");
        body.extend(head.bytes().chain(value.bytes()).chain(*b"\r\n"));
    }
    let (name, file_name, content_type, bytes) = file;
    body.extend(
        format!(
            "--{BOUNDARY}\r\nContent-Disposition: form-data; name=\"{name}\"; \
             filename=\"{file_name}\"\r\nContent-Type: {content_type}\r\n\r\n"
        )
        .bytes(),
    );
    body.extend(bytes);
    body.extend(format!("\r\n--{BOUNDARY}--\r\n").bytes());
    (format!("multipart/form-data; boundary={BOUNDARY}"), body)
}

/// The value of a hidden form field of that name in a page.
///
/// # Panics
/// When the page has none.
pub fn hidden_field(page: &str, name: &str) -> String {
    let wanted = format!("name=\"{name}\"");
    let tags = page.split("<input").skip(1).filter_map(|rest| rest.split('>').next());
    let tag = tags.into_iter().find(|tag| tag.contains(&wanted));
    let tag = tag.unwrap_or_else(|| panic!("the page has no field {name}: {page}"));
    let value = tag.split("value=\"").nth(1).and_then(|rest| rest.split('"').next());
    value.unwrap_or_else(|| panic!("the field {name} has no value: {tag}")).to_owned()
}
