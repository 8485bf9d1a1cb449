//! Running scripts as text.

use maitred_control::admin::{Running, ServerStatus};
use maitred_text::humanize::{duration, plural, shorten};

use super::aligned_table::Table;
use super::split;

/// Columns of running scripts. The pool's name is cut to the width of its column.
const RUNNING: &str = "RUNNING 9 | PID 7 | POOL -14 | REQUEST 0";

/// Widest name of a pool, in characters.
const POOL_COLUMNS: usize = 14;

/// Columns before the details of a script.
const INDENTATION: usize = 18;

/// The longest-running scripts of all pools, and where they are.
#[derive(Debug, Default)]
pub struct RunningScripts {
    /// An empty line and the titles.
    head: Vec<String>,
    groups: Vec<Group>,
    /// Scripts that are not listed.
    more: u64,
}

/// Scripts of a pool with the same stack.
#[derive(Debug)]
struct Group {
    /// A line for each.
    requests: Vec<String>,
    /// Their stack, and how a single script's time was spent.
    details: Vec<String>,
}

impl RunningScripts {
    /// The longest-running scripts, at most `most`, for a screen of `columns`.
    pub fn of(server: &ServerStatus, most: usize, columns: usize) -> RunningScripts {
        let scripts = server.pools.iter().flat_map(|pool| {
            let scripts = pool.running.iter();
            scripts.map(|script| (pool.name.as_str(), script))
        });
        let mut scripts: Vec<(&str, &Running)> = scripts.collect();
        scripts.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
        scripts.truncate(most);
        let Some(listed) = (!scripts.is_empty()).then_some(scripts.len() as u64) else {
            return RunningScripts::default();
        };
        let all: u64 = server.pools.iter().map(|pool| pool.scripts).sum();
        let table = Table::new(RUNNING, std::iter::empty(), columns);
        let groups = grouped(&scripts).into_iter();
        RunningScripts {
            head: Vec::from(table.head()),
            groups: groups.map(|group| Group::of(&group, &table, columns)).collect(),
            more: all.saturating_sub(listed),
        }
    }

    /// Number of lines that show everything.
    pub fn lines(&self) -> usize {
        let groups = self.groups.iter().map(|group| group.requests.len() + group.details.len());
        self.head.len() + groups.sum::<usize>() + usize::from(self.more > 0)
    }

    /// At most `rows` lines: as many requests as fit, then the details of the longest-running ones.
    pub fn show(&self, rows: usize) -> Vec<String> {
        if self.groups.is_empty() || rows <= self.head.len() {
            return Vec::new();
        }
        let space = rows - self.head.len();
        let all: usize = self.groups.iter().map(|group| group.requests.len()).sum();
        let is_complete = self.more == 0 && all <= space;
        let fitting = if is_complete { all } else { all.min(space - 1) };
        let mut requests = fitting;
        let mut details = space - fitting - usize::from(!is_complete);
        let mut lines = self.head.clone();
        for group in &self.groups {
            let shown = group.requests.len().min(requests);
            lines.extend(group.requests.iter().take(shown).cloned());
            requests -= shown;
            if shown == group.requests.len() {
                let shown = group.details.len().min(details);
                lines.extend(group.details.iter().take(shown).cloned());
                details -= shown;
            }
        }
        let more = self.more + (all - fitting) as u64;
        lines.extend((more > 0).then(|| format!("and {more} more")));
        lines
    }
}

impl Group {
    fn of(scripts: &[(&str, &Running)], table: &Table, columns: usize) -> Group {
        let request = |(pool, script): &(&str, &Running)| {
            table.row([
                duration(script.seconds),
                script.pid.to_string(),
                shorten(pool, POOL_COLUMNS),
                request_of(script),
            ])
        };
        let mut details = match scripts {
            [(_, script)] => Vec::from_iter(split::so_far(script)),
            _ => vec![format!("{} are here:", plural(scripts.len() as u64, "request"))],
        };
        details.extend(scripts.iter().take(1).flat_map(|(_, script)| script.stack.clone()));
        let indented = details.iter().map(|line| format!("{:INDENTATION$}{line}", ""));
        Group {
            requests: scripts.iter().map(request).collect(),
            details: indented.map(|line| shorten(&line, columns)).collect(),
        }
    }
}

/// Scripts of a pool with the same stack together, in the order of their first.
fn grouped<'a>(scripts: &[(&'a str, &'a Running)]) -> Vec<Vec<(&'a str, &'a Running)>> {
    let mut groups: Vec<Vec<(&str, &Running)>> = Vec::new();
    for &(pool, script) in scripts {
        let is_same = |group: &&mut Vec<(&str, &Running)>| {
            let first = group.first();
            !script.stack.is_empty()
                && first.is_some_and(|(of, first)| *of == pool && first.stack == script.stack)
        };
        match groups.iter_mut().find(is_same) {
            Some(group) => group.push((pool, script)),
            None => groups.push(vec![(pool, script)]),
        }
    }
    groups
}

fn request_of(script: &Running) -> String {
    let Running { method, uri, query, .. } = script;
    let mark = if query.is_empty() { "" } else { "?" };
    // Before the request, which may be wider than the screen.
    let left = if script.client_left { "[client has left] " } else { "" };
    if *uri == script.script || script.script.ends_with(uri) {
        format!("{left}{method} {uri}{mark}{query}")
    } else {
        format!("{left}{method} {uri}{mark}{query} ({})", script.script)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use maitred_control::admin::PoolStatus;

    fn script(seconds: f64, stack: &[&str]) -> Running {
        Running {
            pid: 4720,
            seconds,
            method: "GET".to_owned(),
            uri: "/".to_owned(),
            query: "p=…".to_owned(),
            script: "/srv/www/index.php".to_owned(),
            cpu_seconds: Some(0.0),
            core_wait_seconds: Some(0.0),
            blocked_seconds: Some(9.2),
            stack: stack.iter().map(|frame| (*frame).to_owned()).collect(),
            ..Running::default()
        }
    }

    fn server(scripts: u64, running: Vec<Running>) -> ServerStatus {
        let pool = PoolStatus { name: "www".to_owned(), scripts, running, ..PoolStatus::default() };
        ServerStatus { pools: vec![pool], ..ServerStatus::default() }
    }

    #[test]
    fn equal_stacks_are_one_and_the_rest_is_counted() {
        let same = ["sleep() /srv/www/a.php:3", "{main} /srv/www/index.php:9"];
        let running =
            vec![script(9.2, &same), script(3.0, &["other() /b.php:1"]), script(2.0, &same)];
        let scripts = RunningScripts::of(&server(5, running), 10, 80);
        let expected = "
  RUNNING     PID POOL           REQUEST
    9.2 s    4720 www            GET /?p=… (/srv/www/index.php)
      2 s    4720 www            GET /?p=… (/srv/www/index.php)
                  2 requests are here:
                  sleep() /srv/www/a.php:3
                  {main} /srv/www/index.php:9
      3 s    4720 www            GET /?p=… (/srv/www/index.php)
                  cpu 0 s, core wait 0 s, blocked 9.2 s
                  other() /b.php:1
and 2 more";
        assert_eq!(scripts.show(usize::MAX).join("\n"), expected);
        assert_eq!(scripts.lines(), 11);
        for rows in 0..14 {
            assert!(scripts.show(rows).len() <= rows, "{rows}");
        }
        assert_eq!(scripts.show(7).join("\n").lines().last(), Some("and 2 more"));
        assert_eq!(scripts.show(5).last().map(String::as_str), Some("and 3 more"));
        assert!(RunningScripts::of(&server(0, vec![]), 10, 80).show(50).is_empty());
    }

    #[test]
    fn a_request_whose_client_has_left_says_so_whatever_its_length() {
        let left = Running { client_left: true, uri: "/x".repeat(128), ..script(2.0, &[]) };
        let lines = RunningScripts::of(&server(1, vec![left]), 10, 80).show(usize::MAX);
        assert!(lines[2].contains(" [client has left] GET /x/x"), "{lines:#?}");
        assert_eq!(lines[2].chars().count(), 80, "{lines:#?}");
    }

    #[test]
    fn nothing_makes_a_line_too_wide() {
        let wide = Running {
            pid: i32::MAX,
            uri: "/x".repeat(128),
            script: "/y".repeat(128),
            ..script(1e9, &[&"z".repeat(300)])
        };
        for line in RunningScripts::of(&server(1, vec![wide]), 10, 80).show(usize::MAX) {
            assert!(line.chars().count() <= 80, "{line}");
        }
    }
}
