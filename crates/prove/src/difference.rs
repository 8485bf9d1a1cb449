//! The differences between the responses of two servers, without what varies by itself.

use std::collections::BTreeSet;

use crate::probe::{ProbeForm, Responses, ServerResponse};
use crate::varying::Template;

/// Headers that describe the server, the connection or the moment, or that follow from the body.
const NOT_COMPARED: [&str; 16] = [
    "date",
    "server",
    "connection",
    "keep-alive",
    "transfer-encoding",
    "content-length",
    "accept-ranges",
    "age",
    "alt-svc",
    "cache-status",
    "etag",
    "expires",
    "server-timing",
    "vary",
    "x-request-id",
    "last-modified",
];

/// Longest value in a report, in characters.
const MAX_SHOWN: usize = 300;

/// What differs.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aspect {
    /// One of them sends no response.
    Exchange,
    /// The status.
    Status,
    /// A header, in lower case.
    Header(String),
    /// The body.
    Body,
}

impl std::fmt::Display for Aspect {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Aspect::Exchange => out.write_str("response"),
            Aspect::Status => out.write_str("status"),
            Aspect::Header(name) => out.write_str(name),
            Aspect::Body => out.write_str("body"),
        }
    }
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    /// What differs.
    pub aspect: Aspect,
    /// The value of the old server.
    pub old: String,
    /// The value of the new server.
    pub new: String,
}

/// The result of a comparison.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// What differs.
    pub differences: Vec<Difference>,
    /// Whether the old server's responses differ from each other.
    pub varies: bool,
}

/// The address of a site at both servers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ComparedSite {
    /// The `Host` that clients send.
    pub authority: String,
    /// Whether it is requested over TLS.
    pub is_tls: bool,
    /// The ports of the old server.
    pub old_ports: Vec<u16>,
    /// The port of the new server in place of each.
    pub new_ports: Vec<u16>,
}

impl ComparedSite {
    /// A text of the new server with the ports of the old one.
    fn with_old_ports(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (old, new) in self.old_ports.iter().zip(&self.new_ports) {
            let instead = match old {
                80 | 443 => String::new(),
                other => format!(":{other}"),
            };
            text = text.replace(&format!(":{new}"), &instead);
        }
        text
    }

    /// A `Location` without what does not matter: the own scheme, host and port.
    fn location(&self, text: &str) -> String {
        let text = self.with_old_ports(text);
        let scheme = if self.is_tls { "https" } else { "http" };
        let host = self.authority.split(':').next().unwrap_or_default();
        let starts = [self.authority.as_str(), host].map(|name| format!("{scheme}://{name}"));
        let own = starts.iter().find_map(|start| text.strip_prefix(start.as_str()));
        match own.filter(|rest| rest.is_empty() || rest.starts_with(['/', '?'])) {
            Some("") => "/".to_owned(),
            Some(path) => path.to_owned(),
            None => text,
        }
    }
}

/// Compares the responses to one request.
pub fn compare(responses: &Responses, form: &ProbeForm, site: &ComparedSite) -> Comparison {
    let [first, second] = &responses.old;
    let new = &responses.new;
    let mut found = Comparison::default();
    if first.status != second.status {
        found.varies = true;
        if ![first.status, second.status].contains(&new.status) {
            let either = format!("{} or {}", shown(first), shown(second));
            found.differences.push(difference(new.status_aspect(), &either, &shown(new)));
        }
        return found;
    }
    if first.status != new.status {
        found.differences.push(difference(new.status_aspect(), &shown(first), &shown(new)));
        return found;
    }
    // A request that cannot be read is no request of the site.
    if first.status == 400 {
        return found;
    }
    headers(responses, form, site, &mut found);
    if *form != ProbeForm::Head && !is_own_page(first) && !(300..400).contains(&first.status) {
        body(responses, site, &mut found);
    }
    found
}

impl ServerResponse {
    /// What differs in another status than this one's.
    fn status_aspect(&self) -> Aspect {
        if self.status == 0 { Aspect::Exchange } else { Aspect::Status }
    }
}

/// The status, and where it leads.
fn shown(response: &ServerResponse) -> String {
    match (response.status, response.header("location")) {
        (0, _) => String::from_utf8_lossy(&response.body).into_owned(),
        (status, Some(location)) => format!("{status} to {location}"),
        (status, None) => status.to_string(),
    }
}

fn difference(aspect: Aspect, old: &str, new: &str) -> Difference {
    let short = |text: &str| match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    };
    Difference { aspect, old: short(old), new: short(new) }
}

/// Whether a body is a page of Apache itself: a document type of HTML 2.0 or 4.01, and the status
/// as the title.
fn is_page_of_apache(body: &str, status: u16) -> bool {
    let Some((start, rest)) = body.split_once("\n<html><head>\n<title>") else { return false };
    let title = rest.strip_prefix(&status.to_string());
    start.starts_with("<!DOCTYPE HTML PUBLIC \"-//")
        && !start[1..].contains('<')
        && title.is_some_and(|rest| rest.starts_with(' '))
}

/// Whether a response is a page of nginx, Apache or php-fpm itself: every server has its own.
pub fn is_own_page(response: &ServerResponse) -> bool {
    let body = String::from_utf8_lossy(&response.body);
    let is_short = response.body.len() < 4096;
    is_short
        && response.status >= 300
        && (body.contains("<hr><center>nginx")
            || body.contains("<center>openresty")
            || body.contains("<address>Apache/")
            || is_page_of_apache(&body, response.status)
            || ["File not found.\n", "Access denied.\n", "No input file specified.\n"]
                .contains(&body.as_ref()))
}

/// The values of a header as one text. Cookies are sorted by their names.
fn value(response: &ServerResponse, name: &str, site: &ComparedSite) -> Option<String> {
    let all = response.headers.iter().filter(|(known, _)| known == name);
    let mut all: Vec<String> = all.map(|(_, value)| value.trim().to_owned()).collect();
    match name {
        "set-cookie" => all.sort(),
        "location" | "content-location" => {
            all = all.iter().map(|value| site.location(value)).collect();
        }
        "content-type" => {
            all = all.iter().map(|value| media_type(value)).collect();
        }
        "cache-control" | "www-authenticate" => {
            all = all.iter().map(|value| value.replace(", ", ",")).collect();
            all = vec![all.join(",")].into_iter().filter(|value| !value.is_empty()).collect();
        }
        _ => {}
    }
    (!all.is_empty()).then(|| all.join("\n"))
}

/// A media type in one spelling.
fn media_type(value: &str) -> String {
    value.to_ascii_lowercase().replace("; ", ";").replace('"', "")
}

fn headers(responses: &Responses, form: &ProbeForm, site: &ComparedSite, found: &mut Comparison) {
    let [first, second] = &responses.old;
    let new = &responses.new;
    let all = first.headers.iter().chain(&second.headers).chain(&new.headers);
    let mut names: BTreeSet<&str> = all.map(|(name, _)| name.as_str()).collect();
    names.retain(|name| !NOT_COMPARED.contains(name));
    if *form != ProbeForm::Gzip {
        names.remove("content-encoding");
    }
    if is_own_page(first) || *form == ProbeForm::Head && first.status >= 300 {
        // The type of a server's own page is its own; HEAD does not show whether it is one.
        names.remove("content-type");
    }
    for name in names {
        let [one, other] = [first, second].map(|response| value(response, name, site));
        let new = value(new, name, site).map(|value| site.with_old_ports(&value));
        let (Some(one), Some(other)) = (&one, &other) else {
            match one.is_some() || other.is_some() {
                true => found.varies = true,
                false => {
                    let aspect = Aspect::Header(name.to_owned());
                    found.differences.push(difference(aspect, "", &new.unwrap_or_default()));
                }
            }
            continue;
        };
        let template = Template::of(one, other);
        found.varies |= !template.is_fixed();
        let fits = new.as_ref().is_some_and(|new| template.fits(new).is_ok());
        if !fits {
            let aspect = Aspect::Header(name.to_owned());
            found.differences.push(difference(aspect, one, &new.unwrap_or_default()));
        }
    }
    validators(first, new, found);
}

/// Validators have another form for each server; what counts is that they are there.
fn validators(old: &ServerResponse, new: &ServerResponse, found: &mut Comparison) {
    for name in ["etag", "last-modified"] {
        let (theirs, ours) = (old.header(name), new.header(name));
        let is_date = name == "last-modified";
        let differs = match (theirs, ours) {
            (Some(theirs), Some(ours)) => is_date && theirs != ours,
            (Some(_), None) => true,
            (None, _) => false,
        };
        if differs {
            let aspect = Aspect::Header(name.to_owned());
            let (old, new) = (theirs.unwrap_or_default(), ours.unwrap_or_default());
            found.differences.push(difference(aspect, old, new));
        }
    }
}

fn body(responses: &Responses, site: &ComparedSite, found: &mut Comparison) {
    let [first, second] = &responses.old;
    let new = &responses.new;
    if first.body == new.body && second.body == first.body {
        return;
    }
    let texts = [&first.body, &second.body, &new.body].map(|body| std::str::from_utf8(body).ok());
    let [Some(one), Some(other), Some(text)] = texts else {
        found.varies |= first.body != second.body;
        if first.body == second.body {
            let [old, new] = [first, new].map(|response| format!("{} bytes", response.body.len()));
            found.differences.push(difference(Aspect::Body, &old, &new));
        }
        return;
    };
    let template = Template::of(one, other);
    found.varies |= !template.is_fixed();
    if first.is_cut && !template.is_fixed() {
        return;
    }
    if let Err(wrong) = template.fits(&site.with_old_ports(text)) {
        found.differences.push(difference(Aspect::Body, &wrong.expected, &wrong.found));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: u16, headers: &[(&str, &str)], body: &str) -> ServerResponse {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let body = body.as_bytes().to_vec();
        ServerResponse { status, headers: headers.collect(), body, is_cut: false }
    }

    fn site() -> ComparedSite {
        ComparedSite {
            authority: "a.example".to_owned(),
            is_tls: true,
            old_ports: vec![80, 443],
            new_ports: vec![40_080, 40_443],
        }
    }

    fn compared(old: [ServerResponse; 2], new: ServerResponse) -> Vec<String> {
        let found = compare(&Responses { old, new }, &ProbeForm::Get, &site());
        found.differences.iter().map(|one| one.aspect.to_string()).collect()
    }

    #[test]
    fn what_the_old_server_varies_may_differ_and_the_rest_may_not() {
        let page = |id: &str, csp: &str| {
            let cookie = format!("PHPSESSID={id}; path=/");
            let headers = [("set-cookie", cookie.as_str()), ("content-security-policy", csp)];
            response(200, &headers, &format!("<p>{id}</p><b>text</b>"))
        };
        let old = [page("aaa1", "default"), page("bbb2", "default")];
        assert_eq!(compared(old.clone(), page("ccc3", "default")), [""; 0]);
        assert_eq!(compared(old.clone(), page("c", "none")), ["content-security-policy"]);
        let missing = response(200, &[("set-cookie", "PHPSESSID=c; path=/")], "<p>c</p>");
        let all = ["content-security-policy", "body"];
        assert_eq!(compared(old.clone(), missing), all);
        let secure = response(
            200,
            &[
                ("set-cookie", "PHPSESSID=c; path=/; secure"),
                ("content-security-policy", "default"),
            ],
            "<p>c</p><b>text</b>",
        );
        assert_eq!(compared(old, secure), ["set-cookie"]);
    }

    #[test]
    fn a_status_that_differs_is_all_that_is_reported_and_one_that_varies_is_nothing() {
        let [ok, denied] = [200, 403].map(|status| response(status, &[], "x"));
        assert_eq!(compared([ok.clone(), ok.clone()], denied.clone()), ["status"]);
        assert_eq!(compared([ok.clone(), denied.clone()], ok.clone()), [""; 0]);
        assert_eq!(compared([ok, denied], response(500, &[], "x")), ["status"]);
    }

    #[test]
    fn the_own_address_and_ports_of_a_server_do_not_matter() {
        let to = |location: &str| response(301, &[("location", location)], "");
        let old = to("https://a.example/x/");
        for same in ["/x/", "https://a.example:40443/x/"] {
            assert_eq!(compared([old.clone(), old.clone()], to(same)), [""; 0], "{same}");
        }
        for other in ["http://a.example/x/", "/x", "https://a.example.org/x/"] {
            assert_eq!(compared([old.clone(), old.clone()], to(other)), ["location"], "{other}");
        }
    }

    #[test]
    fn error_pages_of_the_servers_themselves_are_not_compared_and_those_of_sites_are() {
        let own = response(404, &[], "<h1>404</h1><hr><center>nginx/1.22.1</center>");
        assert_eq!(compared([own.clone(), own], response(404, &[], "Not found")), [""; 0]);
        let html = "<!DOCTYPE HTML PUBLIC \"-//IETF//DTD HTML 2.0//EN\">\n<html><head>\n<title>";
        let page = |title: &str| response(404, &[], &format!("{html}{title}</title>"));
        let own = page("404 Not Found");
        assert_eq!(compared([own.clone(), own], response(404, &[], "Not found")), [""; 0]);
        let own = response(404, &[], "<address>Apache/2.4.62 (Debian) Server</address>");
        assert_eq!(compared([own.clone(), own], response(404, &[], "Not found")), [""; 0]);
        let other = page("4040 pages");
        assert_eq!(compared([other.clone(), other], response(404, &[], "Not found")), ["body"]);
        let page = response(404, &[], "<h1>Our page</h1>");
        assert_eq!(compared([page.clone(), page], response(404, &[], "Not found")), ["body"]);
    }
}
