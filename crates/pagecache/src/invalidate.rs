//! Invalidation after a request with an unsafe method (RFC 9111 §4.4).

use crate::cache_request::Request;
use crate::canonical_url;
use crate::headers::{self, Field};
use crate::key::{MAX_KEY_BYTES, canonical_query};
use crate::purge::{MAX_OF_HEADER, Purge};
use crate::settings::KeyParts;
use crate::tags;

/// Whether a key could hold this host and target, even if each byte of the target is escaped.
fn has_room(host: &str, target: &str) -> bool {
    host.len() + target.len().div_ceil(3) <= MAX_KEY_BYTES
}

/// Whether a method is safe (RFC 9110 §9.2.1). Unknown methods are unsafe.
pub fn is_safe(method: &str) -> bool {
    matches!(
        method,
        "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY" | "PROPFIND" | "REPORT" | "SEARCH"
    )
}

/// The purges after a request whose response has this status and these headers: its URL, those in
/// the `Location` and `Content-Location` headers if they have the same origin, and the groups that
/// the response names, or all pages, if it names more than [`MAX_OF_HEADER`]. Empty after a safe
/// method or an error.
pub fn after<'f>(
    parts: &KeyParts,
    request: &Request<'_>,
    status: u16,
    response: impl Iterator<Item = Field<'f>> + Clone,
) -> Vec<Purge> {
    if is_safe(request.method) || !(200..400).contains(&status) {
        return Vec::new();
    }
    let groups = tags::invalidated(response.clone());
    if groups.len() > MAX_OF_HEADER {
        return vec![Purge::All];
    }
    let mut targets = vec![target(parts, request.path, request.query)];
    for name in ["location", "content-location"] {
        let address = headers::first(response.clone(), name).map(String::from_utf8_lossy);
        targets.extend(address.and_then(|address| resolve(parts, request, &address)));
    }
    // The client controls these, and the host, too, if the site names none.
    targets.retain(|target| has_room(request.host, target));
    let named = targets.into_iter();
    let urls = named.map(|target| of_target(request.host, target));
    urls.chain(groups.into_iter().map(Purge::Tag)).filter_map(Purge::bounded).collect()
}

fn of_target(host: &str, target: String) -> Purge {
    let host = self::host(host);
    Purge::Url { host, target }
}

/// The purge for a URL that an operator names: that page, or with a `*` at the end all URLs with
/// this prefix.
pub fn purge_of(parts: &KeyParts, host: &str, path: &str, query: Option<&str>) -> Purge {
    let start = match query {
        None => path.strip_suffix('*').map(canonical_url::path),
        Some("*") => Some(format!("{}?", canonical_url::path(path))),
        Some(query) => {
            let start = query.strip_suffix('*');
            start.map(|start| target(parts, path, Some(start)))
        }
    };
    match start {
        None => of_target(host, target(parts, path, query)),
        Some(path) => Purge::Prefix { host: Some(self::host(host)), path },
    }
}

/// The canonical form of a path prefix in a purge.
pub fn prefix(path: &str) -> String {
    match path.split_once('?') {
        Some((path, query)) => {
            format!("{}?{}", canonical_url::path(path), canonical_url::query(query))
        }
        None => canonical_url::path(path),
    }
}

/// The canonical form of a host in a purge: lower case, without a trailing dot.
pub fn host(host: &str) -> String {
    let mut host = host.to_ascii_lowercase();
    let end = host.rfind(':').filter(|_| !host.ends_with(']'));
    let end = end.unwrap_or(host.len());
    if host[..end].ends_with('.') {
        host.remove(end - 1);
    }
    host
}

/// The canonical form of a path and query in a purge: without ignored parameters, and equal for all
/// spellings that an application may treat as equal.
pub fn target(parts: &KeyParts, path: &str, query: Option<&str>) -> String {
    let mut target = canonical_url::path(path);
    let query = query.map(|query| canonical_query(parts, query));
    if let Some(query) = query.filter(|query| !query.is_empty()) {
        target.push('?');
        target.push_str(&canonical_url::query(&query));
    }
    target
}

/// Resolves a URL reference from a response, if it has the request's origin (RFC 3986 §5.2).
fn resolve(parts: &KeyParts, request: &Request<'_>, address: &str) -> Option<String> {
    let address = address.trim().split('#').next().unwrap_or_default();
    let (rest, query) = match address.split_once('?') {
        Some((rest, query)) => (rest, Some(query)),
        None => (address, None),
    };
    let scheme = if request.is_https { "https:" } else { "http:" };
    let is_scheme = |start: &str| start.eq_ignore_ascii_case(scheme);
    let rest = match rest.get(..scheme.len()).filter(|start| is_scheme(start)) {
        Some(start) => &rest[start.len()..],
        None if rest.split('/').next()?.contains(':') => return None,
        None => rest,
    };
    let path = match rest.strip_prefix("//") {
        Some(rest) => {
            let end = rest.find('/').unwrap_or(rest.len());
            let (host, path) = rest.split_at(end);
            if !is_same_host(host, request) {
                return None;
            }
            if path.is_empty() { "/".to_owned() } else { path.to_owned() }
        }
        None if rest.starts_with('/') => rest.to_owned(),
        None if rest.is_empty() => request.path.to_owned(),
        None => {
            let folder = request.path.rfind('/').map_or("/", |end| &request.path[..=end]);
            format!("{folder}{rest}")
        }
    };
    Some(target(parts, &path, query))
}

/// Hosts are equal with and without the scheme's default port (RFC 3986 §6.2.3).
fn is_same_host(host: &str, request: &Request<'_>) -> bool {
    let own = if request.is_https { ":443" } else { ":80" };
    fn bare<'h>(host: &'h str, own: &str) -> &'h str {
        host.strip_suffix(own).unwrap_or(host)
    }
    bare(host, own).eq_ignore_ascii_case(bare(request.host, own))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_request::CacheRequest;
    use crate::key::Key;
    use crate::settings::{Pattern, Settings};

    const POST: Request<'static> = Request {
        method: "POST",
        is_https: true,
        host: "a.example",
        port: None,
        path: "/dir/page",
        query: Some("b=1"),
        has_body: true,
        by_proxy: false,
        by_forwarded: false,
    };

    fn targets(request: &Request<'_>, status: u16, response: &[(&str, &str)]) -> Vec<String> {
        let response = response.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let purges = after(&KeyParts::default(), request, status, response);
        purges.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_was_changed_is_out_of_date_with_what_the_answer_names() {
        let response = [("Location", "other"), ("Content-Location", "/abs?x=1#y")];
        assert_eq!(
            targets(&POST, 201, &response),
            ["a.example/dir/page?b=1", "a.example/dir/other", "a.example/abs?x=1"]
        );
        let groups = [("Cache-Group-Invalidation", "\"news\"")];
        assert_eq!(targets(&POST, 303, &groups), ["a.example/dir/page?b=1", "tag news"]);
    }

    #[test]
    fn groups_are_bounded_in_number_and_length() {
        let of = |count: usize, length: usize| {
            let groups = vec![format!("\"{}\"", "x".repeat(length)); count].join(",");
            targets(&POST, 200, &[("Cache-Group-Invalidation", &groups)])
        };
        assert_eq!(of(MAX_OF_HEADER, 1).len(), 1 + MAX_OF_HEADER);
        assert_eq!(of(MAX_OF_HEADER + 1, 1), ["everything"]);
        assert_eq!(of(1, tags::MAX_TAG_BYTES).len(), 2);
        assert_eq!(of(1, tags::MAX_TAG_BYTES + 1), ["a.example/dir/page?b=1"]);
    }

    #[test]
    fn an_error_and_a_question_change_nothing() {
        assert!(targets(&POST, 400, &[]).is_empty());
        assert!(targets(&POST, 500, &[]).is_empty());
        let get = Request { method: "GET", ..POST };
        assert!(targets(&get, 200, &[("Cache-Group-Invalidation", "\"a\"")]).is_empty());
        let unknown = Request { method: "M-SEARCH", ..POST };
        assert_eq!(targets(&unknown, 200, &[]).len(), 1);
    }

    #[test]
    fn what_is_longer_than_any_page_is_not_noted_down() {
        let named = |host: usize, path: usize| {
            let (host, path) = ("h".repeat(host), "x".repeat(path));
            let request = Request { host: &host, path: &format!("/{path}"), query: None, ..POST };
            let response = [(&b"Location"[..], path.as_bytes())];
            after(&KeyParts::default(), &request, 200, response.into_iter()).len()
        };
        assert_eq!(named(0, 3 * MAX_KEY_BYTES - 1), 2);
        assert_eq!(named(0, 3 * MAX_KEY_BYTES), 0);
        assert_eq!(named(MAX_KEY_BYTES - 1, 2), 2);
        assert_eq!(named(MAX_KEY_BYTES - 1, 3), 0);
        assert_eq!(named(MAX_KEY_BYTES, 0), 0);
        assert_eq!(named(4 * MAX_KEY_BYTES, 0), 0);
    }

    #[test]
    fn all_that_a_pages_key_has_room_for_can_be_purged() {
        let room = MAX_KEY_BYTES - 4 * size_of::<u32>();
        for (host, query) in [(1, room - 32), (room / 2, room / 2 - 32), (room - 32, 1)] {
            let (host, query) = ("h".repeat(host), "+".repeat(query));
            let page =
                Request { method: "GET", host: &host, path: "/", query: Some(&query), ..POST };
            let asked = CacheRequest::survey(page, [].into_iter());
            assert!(Key::primary("site", &Settings::default(), &asked).is_ok());
            let request = Request { method: "POST", ..page };
            let purges = after(&KeyParts::default(), &request, 200, [].into_iter());
            assert_eq!(purges.len(), 1);
        }
    }

    #[test]
    fn only_addresses_of_the_same_origin_count() {
        let location = |location: &str| {
            let found = targets(&POST, 200, &[("Location", location)]);
            found.get(1).cloned()
        };
        let own = Some("a.example/x".to_owned());
        for same in
            ["https://a.example/x", "HTTPS://A.example:443/x", "//a.example/x", "../x", "./../x"]
        {
            assert_eq!(location(same), own, "{same}");
        }
        for other in
            ["http://a.example/x", "https://b.example/x", "https://a.example:8443/x", "mailto:x"]
        {
            assert_eq!(location(other), None, "{other}");
        }
        assert_eq!(location("https://a.example"), Some("a.example/".to_owned()));
        assert_eq!(location("?y"), Some("a.example/dir/page?y".to_owned()));
        assert_eq!(location("/a/../../b/."), Some("a.example/b/".to_owned()));
    }

    #[test]
    fn an_address_is_purged_however_it_is_written() {
        let parts = KeyParts {
            ignore_parameters: vec![Pattern::new("utm_*")],
            sort_parameters: true,
            ..KeyParts::default()
        };
        let of = |host: &str, path: &str, query| purge_of(&parts, host, path, query).to_string();
        let page = of("a.example", "/news/x", Some("a=1&b=2"));
        assert_eq!(page, "a.example/news/x?a=1&b=2");
        for (host, path, query) in [
            ("A.Example.", "/news/x", "a=1&b=2"),
            ("a.example", "/%6eews//./x", "b=2&a=1"),
            ("a.example", "/y/../news%2Fx", "utm_source=z&a=%31&b=2"),
        ] {
            assert_eq!(of(host, path, Some(query)), page, "{path}?{query}");
        }
        assert_eq!(of("a.example:8080", "/é", None), "a.example:8080/%C3%A9");
        assert_eq!(of("[::1]", "/", None), "[::1]/");
        assert_eq!(of("a.example", "/%6e*", None), "a.example/n*");
        assert_eq!(of("a.example", "/n%2a", None), "a.example/n*");
        let exact = purge_of(&parts, "a.example", "/n%2a", None);
        assert!(matches!(exact, Purge::Url { .. }), "{exact:?}");
        assert_eq!(of("a.example", "/n", Some("*")), "a.example/n?*");
        assert_eq!(of("a.example", "/n", Some("a=%62*")), "a.example/n?a=b*");
        assert_eq!(prefix("/%6e/?b=%31"), "/n/?b=1");
    }
}
