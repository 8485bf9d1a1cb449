//! A request to the admin address that Octane expects, and what it asks for. No I/O.

/// Caddy's path of FrankenPHP's configuration.
const CONFIG_PATH: &str = "/config/apps/frankenphp";

/// FrankenPHP's own path to restart workers.
const RESTART_PATH: &str = "/frankenphp/workers/restart";

/// Most header fields of a request.
const MAX_HEADERS: usize = 64;

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum AdminOrder {
    /// The configuration, as a sign that the server runs.
    Show,
    /// Restart the workers with the code on disk.
    Reload,
    /// Stop the server.
    Stop,
    /// Nothing that is done here: a status and one sentence.
    Refused(u16, String),
}

/// The head of a request.
#[derive(Debug, PartialEq, Eq)]
pub struct AdminRequest {
    /// What it asks for.
    pub order: AdminOrder,
    /// Bytes of its body, which come after the head.
    pub body: u64,
}

/// Parses a head that ends with an empty line, for the server at this host and port.
pub fn parse(head: &[u8], host: &str, port: u16) -> AdminRequest {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if !matches!(request.parse(head), Ok(httparse::Status::Complete(_))) {
        let order = AdminOrder::Refused(400, "the request is no HTTP/1.1".to_owned());
        return AdminRequest { order, body: 0 };
    }
    let value = |name: &str| {
        let mut found = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case(name));
        found.next().map(|one| String::from_utf8_lossy(one.value).trim().to_owned())
    };
    let body = value("Content-Length").and_then(|text| text.parse().ok()).unwrap_or(0);
    let is_ours = |authority: &str| is_ours(authority, host, port);
    // A page in a browser of this machine may not reach it, not even by a name of its own.
    let is_foreign = value("Origin")
        .is_some_and(|origin| !is_ours(origin.strip_prefix("http://").unwrap_or(&origin)));
    let hosts = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case("Host")).count();
    let order = match value("Host") {
        Some(named) if hosts == 1 && is_ours(&named) && !is_foreign => order(&request),
        _ => AdminOrder::Refused(
            403,
            format!("the Host or Origin is not {host}:{port}, which is all that is served here"),
        ),
    };
    AdminRequest { order, body }
}

fn order(request: &httparse::Request<'_, '_>) -> AdminOrder {
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let path = target.split('?').next().unwrap_or_default();
    let path = path.strip_suffix('/').unwrap_or(path);
    match (method, path) {
        ("GET", CONFIG_PATH) => AdminOrder::Show,
        ("PATCH" | "PUT" | "POST", CONFIG_PATH) | ("POST", RESTART_PATH) => AdminOrder::Reload,
        ("POST", "/stop") => AdminOrder::Stop,
        _ => AdminOrder::Refused(
            404,
            format!(
                "{method} {target} is none of the requests of Octane: GET and PATCH \
                 {CONFIG_PATH}, POST {RESTART_PATH}, POST /stop"
            ),
        ),
    }
}

/// Whether an authority is that of the admin address, as every client writes it.
fn is_ours(authority: &str, host: &str, port: u16) -> bool {
    let Some((name, digits)) = authority.rsplit_once(':') else { return false };
    digits == port.to_string()
        && [host, "localhost", "127.0.0.1", "[::1]"]
            .iter()
            .any(|one| one.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str, fields: &str) -> AdminRequest {
        parse(format!("{line} HTTP/1.1\r\n{fields}\r\n").as_bytes(), "localhost", 2019)
    }

    const HOST: &str = "Host: localhost:2019\r\n";

    #[test]
    fn the_requests_of_octane_are_known() {
        let order = |line| asked(line, HOST).order;
        assert_eq!(order("GET /config/apps/frankenphp"), AdminOrder::Show);
        assert_eq!(order("PATCH /config/apps/frankenphp"), AdminOrder::Reload);
        assert_eq!(order("POST /config/apps/frankenphp/"), AdminOrder::Reload);
        assert_eq!(order("POST /frankenphp/workers/restart"), AdminOrder::Reload);
        assert_eq!(order("POST /stop"), AdminOrder::Stop);
        for line in ["GET /stop", "DELETE /config/apps/frankenphp", "POST /load", "GET /"] {
            assert!(matches!(order(line), AdminOrder::Refused(404, _)), "{line}");
        }
        let with_body =
            asked("PATCH /config/apps/frankenphp", "Host: [::1]:2019\r\ncontent-length: 7\r\n");
        assert_eq!(with_body, AdminRequest { order: AdminOrder::Reload, body: 7 });
    }

    #[test]
    fn another_host_or_the_page_of_another_site_is_refused() {
        for fields in [
            "",
            "Host: localhost\r\n",
            "Host: localhost:2020\r\n",
            "Host: localhost:02019\r\n",
            "Host: localhost:+2019\r\n",
            "Host: [::1]\r\n",
            "Host: evil.example:2019\r\n",
            "Host: localhost:2019\r\nHost: evil.example:2019\r\n",
            "Host: localhost:2019\r\nOrigin: http://evil.example\r\n",
            "Host: localhost:2019\r\nOrigin: null\r\n",
        ] {
            let order = asked("POST /stop", fields).order;
            assert!(matches!(order, AdminOrder::Refused(403, _)), "{fields}");
        }
        let same = asked("POST /stop", "Host: 127.0.0.1:2019\r\nOrigin: http://localhost:2019\r\n");
        assert_eq!(same.order, AdminOrder::Stop);
    }

    #[test]
    fn what_is_no_http_is_refused() {
        let refused = parse(b"\x16\x03\x01 nonsense\r\n\r\n", "localhost", 2019);
        assert!(matches!(refused.order, AdminOrder::Refused(400, _)));
    }
}
