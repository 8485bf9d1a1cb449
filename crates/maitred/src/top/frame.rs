//! The picture of `maitred top`: pools and other tables above, running scripts below.

use maitred_control::admin::ServerStatus;
use maitred_text::humanize::{plural, shorten};

use crate::view::{self, PoolOrder, PoolView, RunningScripts};

/// Most running scripts that are shown.
const MAX_SCRIPTS: usize = 100;

/// What the keys have chosen.
#[derive(Debug, Clone, Copy)]
pub struct Choices {
    /// The order of the pools.
    pub order: PoolOrder,
    /// Whether each idle pool has a line.
    pub all: bool,
    /// Whether the picture is no longer refreshed.
    pub is_paused: bool,
    /// Lines of the tables above the screen.
    pub scrolled: usize,
}

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
        lines.extend(self.tables(choices, columns));
        let scripts = RunningScripts::of(&self.server, MAX_SCRIPTS, columns);
        lines.extend(scripts.show(usize::MAX));
        lines
    }

    /// The lines of a screen. Running scripts have half of it, or what the tables leave if that is
    /// more. `choices.scrolled` becomes at most the number of lines that do not fit.
    pub fn screen(&self, choices: &mut Choices, size: Size) -> Vec<String> {
        let Size { columns, rows } = size;
        let mut lines = self.head(columns);
        let tables = self.tables(choices, columns);
        let scripts = RunningScripts::of(&self.server, MAX_SCRIPTS, columns);
        let space = rows.saturating_sub(lines.len() + 1);
        let for_scripts = scripts.lines().min((space / 2).max(space.saturating_sub(tables.len())));
        let for_tables = space - for_scripts;
        let hidden = tables.len().saturating_sub(for_tables);
        choices.scrolled = choices.scrolled.min(hidden);
        let below = hidden - choices.scrolled;
        lines.extend(tables.into_iter().skip(choices.scrolled).take(for_tables));
        lines.resize(rows.saturating_sub(1 + for_scripts).max(lines.len()), String::new());
        lines.extend(scripts.show(for_scripts));
        lines.resize(rows.saturating_sub(1).max(lines.len()), String::new());
        lines.push(shorten(&footer(choices, below), columns));
        lines.truncate(rows);
        lines
    }

    fn head(&self, columns: usize) -> Vec<String> {
        let server = view::server_line(&self.server, columns);
        vec![server, format!("{:.1} requests/s", self.rate)]
    }

    fn tables(&self, choices: &Choices, columns: usize) -> Vec<String> {
        let server = &self.server;
        let pools = PoolView { columns, order: choices.order, all: choices.all };
        let mut lines = view::pool_table(server, &pools);
        lines.extend(view::fitting(view::faults(server), columns));
        lines.extend(view::split(server, columns));
        lines.extend(view::copies(server, columns));
        lines.extend(view::page_cache(server, columns));
        lines.extend(view::proxies(server, columns));
        lines
    }
}

/// The keys, the order, and how much is out of sight.
fn footer(choices: &Choices, below: usize) -> String {
    let order = choices.order.name();
    let all = if choices.all { "folds idle pools" } else { "all pools" };
    let paused = if choices.is_paused { "p goes on" } else { "p pauses" };
    let scroll = match (choices.scrolled, below) {
        (0, 0) => String::new(),
        (_, below) => format!(", ↑↓ scroll ({} below)", plural(below as u64, "line")),
    };
    format!("q quits, {paused}, s sorts (by {order}), a {all}{scroll}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::{PoolStatus, Running, Workers};

    const SCREEN: Size = Size { columns: 80, rows: 24 };

    fn choices() -> Choices {
        Choices { order: PoolOrder::Load, all: false, is_paused: false, scrolled: 0 }
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
        let footer = "q quits, p pauses, s sorts (by load), a all pools";
        assert_eq!(lines[23], footer);
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
        assert!(lines[23].ends_with("↑↓ scroll (45 lines below)"), "{}", lines[23]);
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
    fn a_screen_of_any_size_is_filled_and_not_exceeded() {
        let sample = sample(50);
        for rows in 0..40 {
            let lines = sample.screen(&mut choices(), Size { columns: 80, rows });
            assert_eq!(lines.len(), rows);
        }
    }
}
