//! Routes as text.

use maitred_control::admin::{RouteFigures, ServerStatus};
use maitred_text::humanize::{bytes, compact_count, compact_time};

use super::aligned_table::{Table, limited};

/// Most routes that are shown.
const MAX_ROUTE_LINES: usize = 100;

/// Columns of the routes.
const ROUTES: &str = "ROUTE -40 | POOL -14 | REQUESTS 8 | TIME 9 | AVERAGE 9 | CPU 9? | \
                      BLOCKED 9 | \
                      MEMORY 9?";

/// The routes with the most script time, or why there are none.
pub fn routes(server: &ServerStatus, columns: usize) -> Vec<String> {
    if server.routes.is_empty() {
        let why = "no routes are counted: they are from the first reading of /metrics or the \
                   dashboard on (admin)";
        return vec![String::new(), why.to_owned()];
    }
    let names = server.routes.iter().map(|route| &*route.route);
    let table = Table::new(ROUTES, names, columns);
    let mut lines = Vec::from(table.head());
    let row = |route: &RouteFigures| vec![table.row(row(route))];
    lines.extend(limited(&server.routes, MAX_ROUTE_LINES, row));
    lines
}

fn row(route: &RouteFigures) -> [String; 8] {
    let each = |seconds: f64| compact_time(seconds / route.requests.max(1) as f64);
    [
        route.route.clone(),
        format!("{:<14}", route.pool),
        compact_count(route.requests, 8),
        compact_time(route.script_seconds),
        each(route.script_seconds),
        each(route.cpu_seconds),
        each(route.blocked_seconds),
        bytes(route.peak_memory_bytes as f64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_has_its_time_in_all_and_on_average() {
        let mut server = ServerStatus::default();
        assert!(routes(&server, 100)[1].starts_with("no routes are counted"));
        server.routes.push(RouteFigures {
            pool: "www".to_owned(),
            route: "/product/*".to_owned(),
            requests: 200,
            script_seconds: 20.0,
            blocked_seconds: 10.0,
            ..RouteFigures::default()
        });
        let lines = routes(&server, 100);
        assert!(lines[1].starts_with("ROUTE      POOL"), "{lines:#?}");
        assert!(lines[2].starts_with("/product/* www"), "{lines:#?}");
        assert!(lines[2].contains("100ms") && lines[2].contains(" 50ms"), "{lines:#?}");
    }
}
