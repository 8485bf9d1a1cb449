//! Visitors who request the same from two servers of one site, and what differs.

use std::net::SocketAddr;

use crate::http::{Request, Response};
use crate::session::{Session, encode};

/// Headers that two responses of one server do not share.
const OF_THE_RESPONSE: [&str; 5] =
    ["content-length", "date", "expires", "transfer-encoding", "x-token"];

/// What precedes digits that differ: the time in WordPress' script `utils`, and a random number of
/// Akismet.
const BEFORE_DIGITS: [&str; 2] = ["\"time\":\"", "name=\"ak_js\" value=\""];

/// What a visitor requests.
#[derive(Debug, Clone)]
pub enum Step {
    /// A GET of this target.
    Get(String),
    /// A form, posted to this target.
    Post(String, Vec<(String, String)>),
}

impl Step {
    /// A GET.
    pub fn get(target: &str) -> Self {
        Self::Get(target.to_owned())
    }

    /// A form.
    pub fn post(target: &str, fields: &[(&str, &str)]) -> Self {
        let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        Self::Post(target.to_owned(), fields.iter().map(owned).collect())
    }

    fn request(&self) -> Request {
        match self {
            Self::Get(target) => Request::get(target),
            Self::Post(target, fields) => {
                let pairs: Vec<_> = fields
                    .iter()
                    .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
                    .collect();
                let form = "application/x-www-form-urlencoded";
                Request::post(target, form, pairs.join("&").as_bytes())
            }
        }
    }
}

/// One visitor at both servers, with a cookie jar for each.
#[derive(Debug, Clone)]
pub struct Visitor {
    name: &'static str,
    headers: Vec<(&'static str, &'static str)>,
    sessions: [Session; 2],
    /// The values of a response header that must never be the same, of the second server.
    pub tokens: Vec<String>,
}

impl Visitor {
    /// A visitor with the cookies of `session` at its server and at the one at `other`.
    pub fn new(name: &'static str, session: &Session, other: SocketAddr) -> Self {
        let sessions = [session.clone(), session.at(other)];
        Self { name, headers: Vec::new(), sessions, tokens: Vec::new() }
    }

    /// Sends this header with each request.
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// The difference between the responses of both servers; none: there is none.
    pub fn difference(&mut self, step: &Step) -> Option<String> {
        let headers = &self.headers;
        let responses = self.sessions.each_mut().map(|session| {
            let request = headers
                .iter()
                .fold(step.request(), |request, (name, value)| request.header(name, value));
            session.send(request)
        });
        self.tokens.extend(responses[1].header("X-Token").map(str::to_owned));
        let [expected, found] = responses.each_ref().map(seen);
        let at = expected.iter().zip(&found).find(|(expected, found)| expected != found);
        let pair = match at {
            Some((expected, found)) => (expected.as_str(), found.as_str()),
            None if expected.len() == found.len() => return None,
            None => ("", "more or fewer lines"),
        };
        let (name, expected, found) = (self.name, pair.0, pair.1);
        Some(format!("{name}: {step:?}:\n    expected {expected}\n    found    {found}"))
    }
}

/// The lines of a response, without what differs from one response of a server to the next.
fn seen(response: &Response) -> Vec<String> {
    let mut headers: Vec<_> = response
        .headers
        .iter()
        .filter(|(name, _)| !OF_THE_RESPONSE.contains(&name.to_ascii_lowercase().as_str()))
        .map(|(name, value)| format!("{}: {}", name.to_ascii_lowercase(), without_id(value)))
        .collect();
    headers.sort();
    let text = response.text_without_id();
    let lines = text.lines().map(without_digits);
    [response.status.to_string()].into_iter().chain(headers).chain(lines).collect()
}

/// The id of a session of PHP is the server's own.
fn without_id(value: &str) -> String {
    match value.strip_prefix("shop_session=").and_then(|rest| rest.split_once(';')) {
        Some((_, attributes)) => format!("shop_session=…;{attributes}"),
        None => value.to_owned(),
    }
}

/// A line without digits that differ.
fn without_digits(line: &str) -> String {
    let mut line = line.to_owned();
    for start in BEFORE_DIGITS {
        if let Some((before, rest)) = line.split_once(start) {
            let rest = rest.trim_start_matches(|character: char| character.is_ascii_digit());
            line = format!("{before}{start}{rest}");
        }
    }
    line
}
