//! The part of `/metrics` that is about servers behind (`proxy`).

use maitred_control::admin::ProxyServer;

use crate::admin::metrics::Text;

/// Writes all families.
pub fn write(out: &mut Text, servers: &[ProxyServer]) {
    // A path of a Unix socket may have any character in it.
    let escape = |name: &str| name.replace('\\', "\\\\").replace('"', "\\\"");
    let named: Vec<(String, &ProxyServer)> = servers
        .iter()
        .map(|server| (escape(&server.server), server))
        .collect();
    let name = "maitred_proxy_requests_total";
    let help = "Requests that another HTTP server was asked to answer, by what came of them.";
    out.family(name, "counter", help);
    for (server, figures) in &named {
        for (result, count) in &figures.requests {
            out.value(name, &[("server", server), ("result", result)], count);
        }
    }
    let name = "maitred_proxy_seconds_total";
    let help = "Time that these took, without WebSockets.";
    out.family(name, "counter", help);
    for (server, figures) in &named {
        out.value(name, &[("server", server)], figures.seconds);
    }
    let name = "maitred_proxy_active";
    let help = "Requests that are on their way now, with WebSockets.";
    out.family(name, "gauge", help);
    for (server, figures) in &named {
        out.value(name, &[("server", server)], figures.active);
    }
    let name = "maitred_proxy_connections_total";
    let help = "Connections that were opened to it.";
    out.family(name, "counter", help);
    for (server, figures) in &named {
        out.value(name, &[("server", server)], figures.connections);
    }
}
