//! One log line for each worker that failed: how it ended, which the kernel reports, and the script
//! it ran, which the front reports. The two arrive in either order, and the line waits a moment for
//! both. When many workers fail in a row, the first get a line each and the others are summarized.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use maitred_control::episode::{Account, LogThrottle, News};
use maitred_control::{Generation, WorkerId};
use tracing::{error, info};

use crate::limits::{Moment, SCRIPT_NAMED, TROUBLE_CALM};
use crate::logging::repeated_errors::seconds;

/// Failures of an episode that get a line each.
const TOLD_ONE_BY_ONE: u64 = 3;

/// Most different ways of ending that are counted in one episode; all others count as `OTHERWISE`.
const MAX_WAYS: usize = 8;

/// The name for all further ways of ending.
const OTHERWISE: &str = "ended otherwise";

/// Most script names kept for workers whose end is not known yet. They are dropped after
/// [`SCRIPT_NAMED`].
const MAX_SCRIPTS: usize = 1024;

/// Which worker a report is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerLabel {
    /// Name of its pool.
    pub pool: String,
    /// Its generation of the pool.
    pub generation: Generation,
    /// The worker.
    pub worker: WorkerId,
}

/// Failures and script names that wait for each other.
#[derive(Debug, Default)]
pub struct ExitReports {
    deaths: Vec<ExitReport>,
    scripts: Vec<(WorkerLabel, String, Moment)>,
    /// One episode for each pool in which workers have failed lately.
    episodes: HashMap<String, LogThrottle<ExitCounts>>,
}

/// The failures of an episode, counted by how the workers ended, and the last script.
#[derive(Debug, Clone, Default)]
struct ExitCounts {
    ways: BTreeMap<String, u64>,
    script: Option<String>,
}

#[derive(Debug)]
struct ExitReport {
    who: WorkerLabel,
    pid: i32,
    how: String,
    retry: Duration,
    at: Moment,
}

impl ExitReports {
    /// A worker failed. `how` is the end of a sentence. Its seat is filled again after `retry`.
    pub fn died(&mut self, who: WorkerLabel, pid: i32, how: String, retry: Duration, now: Moment) {
        self.deaths.push(ExitReport { who, pid, how, retry, at: now });
    }

    /// The front reports which script a worker ran when it failed.
    pub fn ran(&mut self, who: WorkerLabel, script: String, now: Moment) {
        if self.scripts.len() < MAX_SCRIPTS {
            self.scripts.push((who, script, now));
        }
    }

    /// The lines that are complete, or have waited long enough.
    pub fn due(&mut self, now: Moment) -> Vec<String> {
        let mut lines = Vec::new();
        let (scripts, episodes) = (&mut self.scripts, &mut self.episodes);
        self.deaths.retain(|death| {
            let script = scripts.iter().position(|(who, _, _)| *who == death.who);
            let script = script.map(|index| scripts.swap_remove(index).1);
            let ready = script.is_some() || now >= death.at + SCRIPT_NAMED;
            if ready {
                let line = death.line(script.as_deref());
                let episode = episodes.entry(death.who.pool.clone());
                let episode = episode.or_insert_with(|| LogThrottle::new(TROUBLE_CALM));
                let times = episode.happened(now, |deaths| deaths.count(&death.how, script));
                if times < TOLD_ONE_BY_ONE {
                    lines.push(line);
                } else if times == TOLD_ONE_BY_ONE {
                    lines.push(format!("{line}; further deaths are counted"));
                }
            }
            !ready
        });
        scripts.retain(|(_, _, at)| now < *at + SCRIPT_NAMED);
        episodes.retain(|pool, episode| {
            let news = episode.due(now).and_then(|news| summary(pool, &news));
            lines.extend(news);
            !episode.is_quiet()
        });
        lines
    }

    /// All remaining lines, for the end of the server.
    pub fn last_words(&mut self, now: Moment) -> Vec<String> {
        let named = now + SCRIPT_NAMED;
        let mut lines = self.due(named);
        lines.extend(self.due(named + TROUBLE_CALM));
        lines
    }

    /// When the next incomplete line is due.
    pub fn deadline(&self) -> Option<Moment> {
        let deaths = self.deaths.iter().map(|death| death.at + SCRIPT_NAMED);
        let episodes = self.episodes.values().filter_map(LogThrottle::deadline);
        deaths.chain(episodes).min()
    }
}

/// Logs how workers have ended. php-fpm logs less, and its lines have been logged already.
pub fn log_exits(lines: &[String], is_fpm: bool) {
    for line in lines {
        if is_fpm {
            info!("{line}");
        } else {
            error!("{line}");
        }
    }
}

impl ExitCounts {
    fn count(&mut self, how: &str, script: Option<String>) {
        let known = self.ways.contains_key(how) || self.ways.len() < MAX_WAYS;
        let way = if known { how } else { OTHERWISE };
        *self.ways.entry(way.to_owned()).or_default() += 1;
        if script.is_some() {
            self.script = script;
        }
    }
}

/// How a number of workers ended, such as `2 were killed`; `how` is in the singular.
fn ended(how: &str, count: u64) -> String {
    match how.strip_prefix("was ").filter(|_| count != 1) {
        Some(what) => format!("{count} were {what}"),
        None => format!("{count} {how}"),
    }
}

/// The summary of many failures. A few have been logged one by one.
fn summary(pool: &str, news: &News<ExitCounts>) -> Option<String> {
    let (account, still) = match news {
        News::GoesOn(account) => (account, ", and no end is seen"),
        News::Over(account) => (account, ""),
    };
    let Account { lasted, times, total } = account;
    if *times <= TOLD_ONE_BY_ONE {
        return None;
    }
    let ways = total.ways.iter();
    let ways: Vec<String> = ways.map(|(how, count)| ended(how, *count)).collect();
    let (lasted, ways) = (seconds(*lasted), ways.join(", "));
    let mut line = format!("pool {pool}: {times} workers died in {lasted}{still}: {ways}");
    if let Some(script) = &total.script {
        line.push_str(&format!("; the last known script was {script}"));
    }
    Some(line)
}

impl ExitReport {
    fn line(&self, script: Option<&str>) -> String {
        let (pool, seat) = (&self.who.pool, self.who.worker.seat);
        let mut line = format!("pool {pool} seat {seat}: worker {} {}", self.pid, self.how);
        if let Some(script) = script {
            line.push_str(&format!(" while it ran {script}"));
        }
        if self.retry.is_zero() {
            line.push_str("; a new one takes its seat");
        } else {
            line.push_str(&format!(
                "; workers of this pool die early, the next one comes in {} ms",
                self.retry.as_millis()
            ));
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Moment = Duration::from_secs(1);

    fn who(incarnation: u32) -> WorkerLabel {
        WorkerLabel {
            pool: "www".to_owned(),
            generation: 1,
            worker: WorkerId { seat: 3, incarnation },
        }
    }

    #[test]
    fn the_line_names_the_script_whichever_news_comes_first() {
        let expected = "pool www seat 3: worker 77 was ended by signal 11 (SIGSEGV) while it ran \
                        /srv/a.php; a new one takes its seat";
        let how = || "was ended by signal 11 (SIGSEGV)".to_owned();
        let mut late = ExitReports::default();
        late.died(who(1), 77, how(), Duration::ZERO, NOW);
        assert!(late.due(NOW).is_empty());
        late.ran(who(1), "/srv/a.php".to_owned(), NOW);
        assert_eq!(late.due(NOW), [expected]);
        let mut early = ExitReports::default();
        early.ran(who(1), "/srv/a.php".to_owned(), NOW);
        assert!(early.due(NOW).is_empty());
        early.died(who(1), 77, how(), Duration::ZERO, NOW);
        assert_eq!(early.due(NOW), [expected]);
        assert_eq!(early.deadline(), Some(NOW + TROUBLE_CALM));
        assert!(early.due(NOW + TROUBLE_CALM).is_empty(), "all is said");
        assert_eq!(early.deadline(), None);
    }

    #[test]
    fn a_death_without_a_script_is_reported_after_a_moment_with_its_wait() {
        let mut deaths = ExitReports::default();
        deaths.ran(who(1), "/srv/old.php".to_owned(), NOW);
        deaths.died(who(2), 78, "exited with code 9".to_owned(), Duration::from_millis(200), NOW);
        assert!(deaths.due(NOW).is_empty());
        let due = deaths.deadline().unwrap();
        assert_eq!(
            deaths.due(due),
            ["pool www seat 3: worker 78 exited with code 9; workers of \
              this pool die early, the next one comes in 200 ms"]
        );
        assert!(deaths.scripts.is_empty(), "names that were not needed are forgotten");
    }

    #[test]
    fn of_many_deaths_the_first_are_told_and_the_others_counted() {
        let mut deaths = ExitReports::default();
        let mut lines = Vec::new();
        for number in 0..200 {
            let now = NOW + Duration::from_millis(number * 10);
            let how = if number % 4 == 0 { "exited with code 9" } else { "was killed" };
            let who = who(u32::try_from(number).unwrap());
            deaths.ran(who.clone(), format!("/srv/{number}.php"), now);
            deaths.died(who, 77, how.to_owned(), Duration::ZERO, now);
            lines.extend(deaths.due(now));
        }
        assert_eq!(lines.len(), 3);
        assert!(lines[2].ends_with("further deaths are counted"), "{lines:?}");
        let over = deaths.deadline().unwrap();
        assert_eq!(
            deaths.due(over),
            ["pool www: 200 workers died in 1.99 s: 50 exited with code 9, 150 were killed; the \
              last known script was /srv/199.php"]
        );
        assert_eq!(deaths.deadline(), None);
    }

    #[test]
    fn endless_ways_to_end_fill_no_memory() {
        let mut deaths = ExitCounts::default();
        for code in 0..100 {
            deaths.count(&format!("exited with code {code}"), None);
        }
        assert_eq!(deaths.ways.len(), MAX_WAYS + 1);
        assert_eq!(deaths.ways[OTHERWISE], 92);
    }

    #[test]
    fn a_front_that_names_scripts_without_end_fills_no_memory() {
        let mut deaths = ExitReports::default();
        for incarnation in 0..5000 {
            deaths.ran(who(incarnation), "/srv/a.php".to_owned(), NOW);
        }
        assert_eq!(deaths.scripts.len(), MAX_SCRIPTS);
    }
}
