//! The number of processes of a command that follows the length of a queue. Pure.

use std::collections::VecDeque;

use maitred_config::Scaling;

use crate::limits::{JOB_SCALES_DOWN_AFTER, Moment};

/// The number of processes, and what the last minute asked for.
#[derive(Debug, Clone)]
pub struct Scale {
    wanted: u32,
    began: Moment,
    targets: VecDeque<(Moment, u32)>,
}

impl Scale {
    /// A command that has this many processes.
    pub fn new(wanted: u32, now: Moment) -> Scale {
        Scale { wanted, began: now, targets: VecDeque::new() }
    }

    /// The queue has this length, and there is room for `headroom` more processes (none: that is
    /// not known). Returns how many processes are to run.
    ///
    /// More are started at once, at most as many as there are: a queue that is short again at the
    /// next look needs no twenty. Fewer are left when a minute has asked for fewer: consumers start
    /// slowly, and queues come and go.
    pub fn measured(
        &mut self,
        length: u64,
        scaling: &Scaling,
        headroom: Option<u32>,
        now: Moment,
    ) -> u32 {
        let each = u64::from(scaling.jobs_per_process.max(1));
        let target = u32::try_from(length.div_ceil(each)).unwrap_or(u32::MAX);
        let target = target.min(scaling.max_processes).max(scaling.min_processes);
        let is_old = |at: Moment| now.saturating_sub(at) >= JOB_SCALES_DOWN_AFTER;
        while self.targets.front().is_some_and(|(at, _)| is_old(*at)) {
            self.targets.pop_front();
        }
        self.targets.push_back((now, target));
        if target > self.wanted {
            let more = (target - self.wanted).min(self.wanted.max(1));
            self.wanted += more.min(headroom.unwrap_or(u32::MAX));
        } else if is_old(self.began) {
            let most = self.targets.iter().map(|(_, target)| *target).max().unwrap_or(target);
            self.wanted = self.wanted.min(most);
        }
        self.wanted = self.wanted.min(scaling.max_processes).max(scaling.min_processes);
        self.wanted
    }

    /// Processes that are to run.
    pub fn wanted(&self) -> u32 {
        self.wanted
    }
}

/// The length that a probe has printed: its last line with text.
///
/// # Errors
/// What it has printed instead.
pub fn length_of(lines: &[String]) -> Result<u64, String> {
    let last = lines.iter().map(|line| line.trim()).rfind(|line| !line.is_empty());
    let last = last.ok_or("printed nothing; its last line has to be a number")?;
    last.parse().map_err(|_| {
        let shown: String = last.chars().take(80).collect();
        format!("printed {shown:?}; its last line has to be a number")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const SECOND: Duration = Duration::from_secs(1);

    fn scaling() -> Scaling {
        Scaling { min_processes: 1, max_processes: 10, jobs_per_process: 10, ..Scaling::default() }
    }

    #[test]
    fn the_number_doubles_at_most_and_falls_after_a_minute_of_less() {
        let mut scale = Scale::new(1, Duration::ZERO);
        let mut at =
            |second: u32, length| scale.measured(length, &scaling(), None, second * SECOND);
        assert_eq!([at(1, 0), at(2, 35), at(3, 35), at(4, 35)], [1, 2, 4, 4]);
        assert_eq!([at(5, 1_000_000), at(6, 1_000_000)], [8, 10]);
        // An empty queue that fills again within the minute changes nothing.
        assert_eq!([at(20, 0), at(64, 0), at(65, 0)], [10, 10, 10]);
        assert_eq!([at(66, 61), at(70, 0), at(125, 0), at(126, 0)], [7, 7, 7, 1]);
    }

    #[test]
    fn no_more_are_started_than_there_is_room_for_and_none_is_stopped_for_that() {
        let mut scale = Scale::new(4, Duration::ZERO);
        let mut at = |second: u32, room| scale.measured(99, &scaling(), room, second * SECOND);
        assert_eq!([at(1, Some(1)), at(2, Some(0)), at(200, Some(0))], [5, 5, 5]);
        assert_eq!(at(201, Some(100)), 10);
    }

    #[test]
    fn bounds_hold_at_once() {
        let mut scale = Scale::new(1, Duration::ZERO);
        let more = Scaling { min_processes: 4, max_processes: 6, ..scaling() };
        assert_eq!(scale.measured(0, &more, Some(0), SECOND), 4);
        let none = Scaling { min_processes: 0, ..scaling() };
        assert_eq!(scale.measured(0, &none, None, 30 * SECOND), 4);
        assert_eq!(scale.measured(0, &none, None, 200 * SECOND), 0);
        assert_eq!(scale.measured(1, &none, None, 201 * SECOND), 1);
    }

    #[test]
    fn the_length_is_the_last_line() {
        let of = |lines: &[&str]| {
            length_of(&lines.iter().map(|line| (*line).to_owned()).collect::<Vec<_>>())
        };
        assert_eq!(of(&["Deprecated: x", " 17 ", ""]), Ok(17));
        assert!(of(&[]).unwrap_err().starts_with("printed nothing"));
        assert!(of(&["-1"]).unwrap_err().starts_with("printed \"-1\""));
    }
}
