//! Redirects to HTTPS, and the names that have TLS.

use super::server_block::ServerBlock;

/// The requested path in a target, the longest first.
const PATHS: [&str; 3] = ["$request_uri", "$uri$is_args$args", "$uri"];

/// The names of all servers with TLS.
pub(super) struct TlsNames {
    names: Vec<String>,
    /// Whether a server without a name serves unknown ones over TLS.
    has_unknown: bool,
}

impl TlsNames {
    pub(super) fn of(servers: &[ServerBlock<'_>]) -> TlsNames {
        let tls = || servers.iter().filter(|one| one.has_tls());
        TlsNames {
            names: tls().flat_map(|one| one.names.clone()).collect(),
            has_unknown: tls().any(|one| one.is_nameless() && !one.refuses()),
        }
    }

    /// Whether a server with TLS has a name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.has_unknown && !name.contains(['$', '/', ':']) || covers(&self.names, name)
    }

    /// Whether a target is the same address over HTTPS, perhaps with another name that has TLS
    /// where all names have it.
    pub(super) fn has_target(&self, to: &str, server: &ServerBlock<'_>) -> bool {
        let names = &server.names;
        let have_tls = || !names.is_empty() && names.iter().all(|name| self.has(name));
        let is_known = |host: String| {
            let host = if host == "$server_name" { server.server_name() } else { &host };
            !host.is_empty() && self.has(host) && have_tls()
        };
        is_same_over_https(to, names) || https_host(to).is_some_and(is_known)
    }
}

/// Whether a name is one of some names, or below a wildcard of them.
pub(super) fn covers(names: &[String], name: &str) -> bool {
    let is_below = |wildcard: &str| {
        let begin = name.strip_suffix(wildcard).filter(|_| wildcard.starts_with('.'));
        begin.is_some_and(|begin| !begin.is_empty())
    };
    names.iter().any(|one| one == name || one.strip_prefix('*').is_some_and(is_below))
}

/// The host of a target that is the requested path over HTTPS.
pub(super) fn https_host(to: &str) -> Option<String> {
    let rest = to.strip_prefix("https://")?.replace("${", "$").replace('}', "");
    PATHS.iter().find_map(|path| rest.strip_suffix(path)).map(str::to_owned)
}

/// Whether a target is the same address over HTTPS.
pub(super) fn is_same_over_https(to: &str, names: &[String]) -> bool {
    https_host(to).is_some_and(|host| {
        ["$host", "$http_host"].contains(&host.as_str())
            || names == std::slice::from_ref(&host)
            || host == "$server_name" && names.len() == 1
    })
}
