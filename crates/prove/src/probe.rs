//! A request that both servers get, and their responses.

/// Why an address is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AddressSource {
    /// The first page of a site.
    Start,
    /// The user names it.
    Named,
    /// A rule of the old server matches it.
    Rule,
    /// It is near the paths of a rule, and the rule does not match it.
    BesideRule,
    /// Hidden files, and sources of scripts, which no server must show.
    Secret,
    /// It is a file below the document root.
    File,
    /// The robots.txt or a sitemap has it.
    Sitemap,
    /// Clients have requested it.
    AccessLog,
    /// A page links to it.
    Link,
}

/// The form of a request.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProbeForm {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// GET of the first bytes.
    Range,
    /// GET with the validators of the server's own response.
    Conditional,
    /// GET that accepts gzip.
    Gzip,
    /// POST with a form that changes nothing, as the user says.
    Post(String),
}

impl ProbeForm {
    /// The method and the form, for people.
    pub fn label(&self) -> &'static str {
        match self {
            ProbeForm::Get => "GET",
            ProbeForm::Head => "HEAD",
            ProbeForm::Range => "GET with Range",
            ProbeForm::Conditional => "GET with If-None-Match or If-Modified-Since",
            ProbeForm::Gzip => "GET with Accept-Encoding: gzip",
            ProbeForm::Post(_) => "POST",
        }
    }

    /// The method.
    pub fn method(&self) -> &'static str {
        match self {
            ProbeForm::Head => "HEAD",
            ProbeForm::Post(_) => "POST",
            _ => "GET",
        }
    }
}

/// A response, up to the limit of its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerResponse {
    /// The status; 0 if there was no response.
    pub status: u16,
    /// The headers, in their order, with names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body, decompressed.
    pub body: Vec<u8>,
    /// Whether the body is longer than the limit.
    pub is_cut: bool,
}

impl ServerResponse {
    /// The first value of a header. The name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The media type, without its parameters.
    pub fn media_type(&self) -> &str {
        let value = self.header("content-type").unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim()
    }

    /// Whether the response shows something, instead of an error or a redirect.
    pub fn shows(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// The responses of both servers to one request: the old one responds before and after the new one.
#[derive(Debug, Clone)]
pub struct Responses {
    /// Those of the old server.
    pub old: [ServerResponse; 2],
    /// That of the new server.
    pub new: ServerResponse,
}
