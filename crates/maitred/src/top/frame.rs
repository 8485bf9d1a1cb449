//! The picture of `maitred top`: a tab with tables above; with the pools, running scripts below; or
//! the end of the log.

use maitred_control::admin::{PoolStatus, ServerStatus};
use maitred_text::humanize::{plural, shorten};

use crate::top::choices::{Choices, Tab};
use crate::view::{self, PoolView, RunningScripts};

/// Most running scripts that are shown.
const MAX_SCRIPTS: usize = 100;

/// Size of the screen.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Characters in a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// A server at a moment.
#[derive(Debug)]
pub struct Sample {
    /// Its status.
    pub server: ServerStatus,
    /// Requests per second.
    pub rate: f64,
}

impl Sample {
    /// All lines, for an output that is no screen.
    pub fn lines(&self, choices: &Choices, columns: usize) -> Vec<String> {
        let mut lines = self.head(columns);
        lines.extend(pools(&self.server, choices, columns));
        let scripts = RunningScripts::of(&self.server, MAX_SCRIPTS, columns);
        lines.extend(scripts.show(usize::MAX));
        lines
    }

    /// The server in a few words.
    pub fn summary(&self) -> String {
        let pools = &self.server.pools;
        let sum = |of: fn(&PoolStatus) -> u64| pools.iter().map(of).sum::<u64>();
        let (busy, limit) = (sum(|pool| pool.workers.busy), sum(|pool| pool.workers.limit));
        let queued = sum(|pool| pool.queue.now);
        format!(
            "{}, {:.1} requests/s, {busy}/{limit} workers busy, {queued} queued",
            self.server.phase, self.rate
        )
    }

    /// The lines of a screen. Running scripts have half of it, or what the tables leave if that is
    /// more. `choices.scrolled` becomes at most the number of lines that do not fit.
    pub fn screen(&self, choices: &mut Choices, size: Size) -> Vec<String> {
        let Size { columns, rows } = size;
        let mut lines = self.head(columns);
        lines[1] = shorten(&format!("{}   {}", lines[1], tabs(choices)), columns);
        let server = filtered(&self.server, &choices.filter);
        let scripts = RunningScripts::of(&server, MAX_SCRIPTS, columns);
        let tables = match choices.tab {
            Tab::Pools => pools(&server, choices, columns),
            Tab::Workers => scripts.show(usize::MAX),
            Tab::Routes => view::routes(&server, columns),
            Tab::Logs => Vec::new(),
            Tab::Nodes => view::nodes(&server, columns),
            Tab::Cache => {
                let mut lines = view::page_cache(&server, columns);
                lines.extend(view::proxies(&server, columns));
                lines
            }
        };
        let space = rows.saturating_sub(lines.len() + 1);
        let for_scripts = match choices.tab {
            Tab::Pools => scripts.lines().min((space / 2).max(space.saturating_sub(tables.len()))),
            _ => 0,
        };
        let for_tables = space - for_scripts;
        let hidden = tables.len().saturating_sub(for_tables);
        choices.scrolled = choices.scrolled.min(hidden);
        let below = hidden - choices.scrolled;
        if tables.is_empty() {
            lines.extend([String::new(), format!("nothing to show in {}", choices.tab.name())]);
        }
        lines.extend(tables.into_iter().skip(choices.scrolled).take(for_tables));
        lines.resize(rows.saturating_sub(1 + for_scripts).max(lines.len()), String::new());
        lines.extend(scripts.show(for_scripts));
        lines.resize(rows.saturating_sub(1).max(lines.len()), String::new());
        lines.truncate(rows.saturating_sub(1));
        lines.push(shorten(&footer(choices, below), columns));
        lines.truncate(rows);
        lines
    }

    /// The lines above a table.
    pub fn head(&self, columns: usize) -> Vec<String> {
        let server = view::server_line(&self.server, columns);
        vec![server, format!("{:.1} requests/s", self.rate)]
    }
}

/// The lines of a screen with the log below these lines. `choices.scrolled` becomes at most the
/// number of lines that do not fit.
pub fn log_screen(
    mut lines: Vec<String>,
    log: &[String],
    choices: &mut Choices,
    size: Size,
) -> Vec<String> {
    let Size { columns, rows } = size;
    lines.truncate(rows.saturating_sub(1));
    if let Some(last) = lines.last_mut() {
        *last = shorten(&format!("{last}   {}", tabs(choices)), columns);
    }
    let space = rows.saturating_sub(lines.len() + 1);
    let hidden = log.len().saturating_sub(space);
    choices.scrolled = choices.scrolled.min(hidden);
    let below = choices.scrolled;
    let end = log.len() - below;
    lines.extend(log[end.saturating_sub(space)..end].iter().cloned());
    if log.is_empty() && space > 0 {
        lines.push(format!("nothing to show in {}", choices.tab.name()));
    }
    lines.resize(rows.saturating_sub(1).max(lines.len()), String::new());
    lines.push(shorten(&footer(choices, below), columns));
    lines.truncate(rows);
    lines
}

fn pools(server: &ServerStatus, choices: &Choices, columns: usize) -> Vec<String> {
    let pools = PoolView { columns, order: choices.order, all: choices.all };
    let mut lines = view::pool_table(server, &pools);
    lines.extend(view::fitting(view::faults(server), columns));
    lines.extend(view::split(server, columns));
    lines.extend(view::copies(server, columns));
    lines.extend(view::page_cache(server, columns));
    lines.extend(view::proxies(server, columns));
    lines
}

/// The names of the tabs, the open one in brackets: no colours are used.
fn tabs(choices: &Choices) -> String {
    let name = |(number, tab): (usize, &Tab)| match *tab == choices.tab {
        true => format!("[{number} {}]", tab.name()),
        false => format!("{number} {}", tab.name()),
    };
    (1..).zip(Tab::ALL.iter()).map(name).collect::<Vec<_>>().join(" ")
}

/// The server with what has this text in its name: pools with all their scripts, single scripts,
/// routes, cached sites, proxied servers and nodes.
fn filtered(server: &ServerStatus, filter: &str) -> ServerStatus {
    let mut server = server.clone();
    if filter.is_empty() {
        return server;
    }
    let filter = filter.to_lowercase();
    let has = |text: &str| text.to_lowercase().contains(&filter);
    server.pools.retain_mut(|pool| {
        if !has(&pool.name) {
            pool.running.retain(|script| has(&script.uri) || has(&script.script));
            pool.scripts = pool.running.len() as u64;
        }
        has(&pool.name) || !pool.running.is_empty()
    });
    server.routes.retain(|route| has(&route.route) || has(&route.pool));
    if let Some(cache) = &mut server.page_cache {
        cache.sites.retain(|site| has(&site.site));
    }
    server.proxies.retain(|proxy| has(&proxy.server));
    if let Some(nodes) = &mut server.nodes {
        nodes.list.retain(|node| has(&node.name));
    }
    server
}

/// The keys, the order, and how much is out of sight.
fn footer(choices: &Choices, below: usize) -> String {
    if choices.is_typing {
        return format!("filter: {}_ (Enter applies, Esc clears)", choices.filter);
    }
    let paused = if choices.is_paused { "p goes on" } else { "p pauses" };
    let of_pools = match choices.tab {
        Tab::Pools => {
            let all = if choices.all { "folds idle pools" } else { "all pools" };
            format!(", s sorts (by {}), a {all}", choices.order.name())
        }
        _ => String::new(),
    };
    let filter = match choices.filter.as_str() {
        "" => String::new(),
        filter => format!(", only {filter:?} (Esc)"),
    };
    let scroll = match (choices.scrolled, below) {
        (0, 0) => String::new(),
        (_, below) if choices.tab == Tab::Logs => {
            format!(", {} below (End follows them)", plural(below as u64, "line"))
        }
        (_, below) => format!(", ↑↓ {} below", plural(below as u64, "line")),
    };
    format!("q quits, {paused}{of_pools}, / filters{filter}{scroll}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::PoolOrder;
    use maitred_control::admin::{RouteFigures, Running, Workers};

    const SCREEN: Size = Size { columns: 80, rows: 24 };

    fn choices() -> Choices {
        Choices { order: PoolOrder::Load, ..Choices::default() }
    }

    fn script(seconds: f64) -> Running {
        Running {
            seconds,
            method: "GET".to_owned(),
            uri: "/hangs.php".to_owned(),
            script: "/srv/hangs.php".to_owned(),
            stack: (0..8).map(|n| format!("call() /srv/lib/{n}.php:3")).collect(),
            ..Running::default()
        }
    }

    /// Sixty pools, of which `busy` run a script each and the last one three.
    fn sample(busy: usize) -> Sample {
        let pool = |number: usize| {
            let scripts = match number {
                59 => 3,
                number => u64::from(number < busy),
            };
            PoolStatus {
                name: format!("t{number:03}"),
                workers: Workers { busy: scripts, limit: 4, ..Workers::default() },
                scripts,
                running: (0..scripts).map(|more| script(9.0 + more as f64)).collect(),
                ..PoolStatus::default()
            }
        };
        let pools = (0..60).map(pool).collect();
        Sample { server: ServerStatus { pools, ..ServerStatus::default() }, rate: 12.34 }
    }

    #[test]
    fn one_busy_pool_of_sixty_and_its_scripts_are_on_the_screen() {
        let lines = sample(0).screen(&mut choices(), SCREEN);
        assert_eq!(lines.len(), SCREEN.rows, "{lines:#?}");
        assert!(lines.iter().all(|line| line.chars().count() <= SCREEN.columns), "{lines:#?}");
        assert!(lines[4].starts_with("t059") && lines[5].starts_with("59 pools idle"), "{lines:?}");
        let hanging = lines.iter().filter(|line| line.contains("GET /hangs.php"));
        assert_eq!(hanging.count(), 3, "{lines:#?}");
        assert!(lines.iter().any(|line| line.ends_with("3 requests are here:")), "{lines:#?}");
        let footer = "q quits, p pauses, s sorts (by load), a all pools, / filters";
        assert_eq!(lines[23], footer);
        assert_eq!(
            lines[1],
            "12.3 requests/s   [1 pools] 2 workers 3 routes 4 cache 5 logs 6 nodes"
        );
    }

    #[test]
    fn running_scripts_keep_half_of_the_screen_and_the_pools_can_be_scrolled() {
        let sample = sample(50);
        let mut choices = choices();
        let lines = sample.screen(&mut choices, SCREEN);
        let titles = lines.iter().position(|line| line.trim_start().starts_with("RUNNING"));
        assert_eq!((lines.len(), titles), (24, Some(14)), "{lines:#?}");
        assert!(lines[4].starts_with("t059") && lines[5].starts_with("t000"), "{lines:#?}");
        assert!(lines[22].starts_with("and 46 more"), "{lines:#?}");
        assert!(lines[23].ends_with("↑↓ 45 lines below"), "{}", lines[23]);
        choices.scrolled = 3;
        let lines = sample.screen(&mut choices, SCREEN);
        assert!(lines[2].starts_with("t000"), "{lines:#?}");
        assert!(lines[15].trim_start().starts_with("11 s"), "{lines:#?}");
        choices.scrolled = usize::MAX;
        let lines = sample.screen(&mut choices, SCREEN);
        assert_eq!(choices.scrolled, 45, "no further than the end");
        assert!(lines[12].starts_with("BUSY now/limit"), "{lines:#?}");
    }

    #[test]
    fn a_filter_leaves_pools_scripts_and_routes_with_its_text() {
        let mut sample = sample(50);
        let route = |pool: &str, route: &str| RouteFigures {
            pool: pool.to_owned(),
            route: route.to_owned(),
            ..RouteFigures::default()
        };
        sample.server.routes = vec![route("t001", "/cart"), route("t002", "/product/*")];
        let mut choices = Choices { filter: "T007".to_owned(), ..choices() };
        let lines = sample.screen(&mut choices, SCREEN);
        assert!(lines[4].starts_with("t007"), "{lines:#?}");
        let hanging = lines.iter().filter(|line| line.contains("GET /hangs.php"));
        assert_eq!(hanging.count(), 1, "{lines:#?}");
        assert!(lines[23].contains("only \"T007\" (Esc)"), "{}", lines[23]);
        (choices.tab, choices.filter) = (Tab::Routes, "cart".to_owned());
        let lines = sample.screen(&mut choices, SCREEN);
        assert!(lines[4].starts_with("/cart") && lines[5].is_empty(), "{lines:#?}");
        (choices.tab, choices.is_typing) = (Tab::Cache, true);
        let lines = sample.screen(&mut choices, SCREEN);
        assert_eq!(lines[3], "nothing to show in cache");
        assert_eq!(lines[23], "filter: cart_ (Enter applies, Esc clears)");
        choices.tab = Tab::Workers;
        choices.filter.clear();
        let lines = sample.screen(&mut choices, SCREEN);
        assert!(lines[3].trim_start().starts_with("RUNNING"), "{lines:#?}");
    }

    #[test]
    fn a_screen_of_any_size_is_filled_and_not_exceeded() {
        let sample = sample(50);
        for rows in 0..40 {
            let lines = sample.screen(&mut choices(), Size { columns: 80, rows });
            assert_eq!(lines.len(), rows);
            let log: Vec<String> = (0..rows % 7 * 5).map(|number| number.to_string()).collect();
            let size = Size { columns: 80, rows };
            let lines = log_screen(sample.head(80), &log, &mut choices(), size);
            assert_eq!(lines.len(), rows);
        }
    }

    #[test]
    fn the_end_of_the_log_is_shown_until_it_is_scrolled() {
        let log: Vec<String> = (0..100).map(|number| format!("line {number}")).collect();
        let mut choices = Choices { tab: Tab::Logs, ..choices() };
        let lines = log_screen(sample(0).head(80), &log, &mut choices, SCREEN);
        assert!(lines[1].ends_with("4 cache [5 logs] 6 nodes"), "{lines:#?}");
        assert_eq!((lines[2].as_str(), lines[22].as_str()), ("line 79", "line 99"));
        assert_eq!(lines[23], "q quits, p pauses, / filters");
        choices.scrolled = 10;
        let lines = log_screen(sample(0).head(80), &log, &mut choices, SCREEN);
        assert_eq!((lines[2].as_str(), lines[22].as_str()), ("line 69", "line 89"));
        assert!(lines[23].ends_with(", 10 lines below (End follows them)"), "{}", lines[23]);
        choices.scrolled = usize::MAX;
        let lines = log_screen(sample(0).head(80), &log, &mut choices, SCREEN);
        assert_eq!((lines[2].as_str(), choices.scrolled), ("line 0", 79));
        let lines = log_screen(sample(0).head(80), &[], &mut choices, SCREEN);
        assert_eq!((lines[2].as_str(), choices.scrolled), ("nothing to show in logs", 0));
    }
}
