//! One line for a worker that failed: how it ended, which the kernel tells us, and the script it
//! ran, which the front tells. Either may come first; the line waits a moment for both.

use std::time::Duration;

use maitred_control::{Generation, Incarnation, Seat};

use crate::limits::{Moment, SCRIPT_NAMED};

/// Most script names kept for deaths not seen yet. They are dropped after [`SCRIPT_NAMED`].
const MAX_SCRIPTS: usize = 1024;

/// Which worker is spoken of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Who {
    /// Name of its pool.
    pub pool: String,
    /// Its generation of the pool.
    pub generation: Generation,
    /// Its seat.
    pub seat: Seat,
    /// Which worker of that seat.
    pub incarnation: Incarnation,
}

/// Deaths and scripts that wait for each other.
#[derive(Debug, Default)]
pub struct Obituaries {
    deaths: Vec<Death>,
    scripts: Vec<(Who, String, Moment)>,
}

#[derive(Debug)]
struct Death {
    who: Who,
    pid: i32,
    how: String,
    retry: Duration,
    at: Moment,
}

impl Obituaries {
    /// A worker failed. `how` is the end of a sentence; its seat is filled again after `retry`.
    pub fn died(&mut self, who: Who, pid: i32, how: String, retry: Duration, now: Moment) {
        self.deaths.push(Death {
            who,
            pid,
            how,
            retry,
            at: now,
        });
    }

    /// The front says what a worker ran when it died.
    pub fn ran(&mut self, who: Who, script: String, now: Moment) {
        if self.scripts.len() < MAX_SCRIPTS {
            self.scripts.push((who, script, now));
        }
    }

    /// The lines that are ready, or have waited long enough.
    pub fn due(&mut self, now: Moment) -> Vec<String> {
        let mut lines = Vec::new();
        let scripts = &mut self.scripts;
        self.deaths.retain(|death| {
            let script = scripts.iter().position(|(who, _, _)| *who == death.who);
            let script = script.map(|index| scripts.swap_remove(index).1);
            let ready = script.is_some() || now >= death.at + SCRIPT_NAMED;
            if ready {
                lines.push(death.line(script.as_deref()));
            }
            !ready
        });
        scripts.retain(|(_, _, at)| now < *at + SCRIPT_NAMED);
        lines
    }

    /// When a line is due that nothing completes before.
    pub fn deadline(&self) -> Option<Moment> {
        self.deaths
            .iter()
            .map(|death| death.at + SCRIPT_NAMED)
            .min()
    }
}

impl Death {
    fn line(&self, script: Option<&str>) -> String {
        let Who { pool, seat, .. } = &self.who;
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

    fn who(incarnation: Incarnation) -> Who {
        Who {
            pool: "www".to_owned(),
            generation: 1,
            seat: 3,
            incarnation,
        }
    }

    #[test]
    fn the_line_names_the_script_whichever_news_comes_first() {
        let expected = "pool www seat 3: worker 77 was ended by signal 11 (SIGSEGV) while it ran \
                        /srv/a.php; a new one takes its seat";
        let how = || "was ended by signal 11 (SIGSEGV)".to_owned();
        let mut late = Obituaries::default();
        late.died(who(1), 77, how(), Duration::ZERO, NOW);
        assert!(late.due(NOW).is_empty());
        late.ran(who(1), "/srv/a.php".to_owned(), NOW);
        assert_eq!(late.due(NOW), [expected]);
        let mut early = Obituaries::default();
        early.ran(who(1), "/srv/a.php".to_owned(), NOW);
        assert!(early.due(NOW).is_empty());
        early.died(who(1), 77, how(), Duration::ZERO, NOW);
        assert_eq!(early.due(NOW), [expected]);
        assert_eq!(early.deadline(), None);
    }

    #[test]
    fn a_death_without_a_script_is_reported_after_a_moment_with_its_wait() {
        let mut deaths = Obituaries::default();
        deaths.ran(who(1), "/srv/old.php".to_owned(), NOW);
        deaths.died(
            who(2),
            78,
            "exited with code 9".to_owned(),
            Duration::from_millis(200),
            NOW,
        );
        assert!(deaths.due(NOW).is_empty());
        let due = deaths.deadline().unwrap();
        assert_eq!(
            deaths.due(due),
            ["pool www seat 3: worker 78 exited with code 9; workers of \
              this pool die early, the next one comes in 200 ms"]
        );
        assert!(
            deaths.scripts.is_empty(),
            "names nobody asked for are forgotten"
        );
    }

    #[test]
    fn a_front_that_names_scripts_without_end_fills_no_memory() {
        let mut deaths = Obituaries::default();
        for incarnation in 0..5000 {
            deaths.ran(who(incarnation), "/srv/a.php".to_owned(), NOW);
        }
        assert_eq!(deaths.scripts.len(), MAX_SCRIPTS);
    }
}
