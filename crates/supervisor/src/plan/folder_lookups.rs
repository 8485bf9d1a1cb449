//! The process that looks up names in folders of tenants for a reload, and for the checks of sites
//! with a fault. A tenant can hold the lock of such a folder in the kernel without end: the
//! supervisor goes on meanwhile. A lookup that takes too long has a reload refused, since the
//! front would wait as well; for the faults, a second process makes the others.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use maitred_os::folder_lookups::{self, LookupNotes, RefusedLookups};
use maitred_os::fork::HowEnded;
use maitred_os::forked_task::fork_task;
use maitred_os::signals::{self, Signal};
use maitred_os::{capabilities, shared, title};
use serde::{Deserialize, Serialize};

use crate::limits::{
    FAULT_LOOKUPS_STUCK, LOOKUP_RESULT_BYTES, LOOKUP_TIMEOUT, LOOKUPS_KILLED, LOOKUPS_STUCK,
    LOOKUPS_TIMEOUT, Moment,
};
use crate::plan::Plan;
use crate::plan::examined_config::{Examination, ExaminedConfig};
use crate::reload::{ReloadScope, Ticket};

/// The title of the process.
const TITLE: &str = "maitred: lookups";

/// Its exit code if it cannot write what it has found.
const UNWRITTEN: i32 = 1;

/// The lookups that are made.
#[derive(Debug, Default)]
pub struct Lookups {
    current: Option<LookupProcess>,
    stuck: Vec<StuckLookup>,
}

/// What they are for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LookupOrder {
    /// A reload.
    Reload {
        /// Its number.
        ticket: Ticket,
        /// Its scope.
        scope: ReloadScope,
    },
    /// A check whether the faults of sites and pools are mended.
    Faults,
}

/// An order that was carried out, or was not.
#[derive(Debug)]
pub struct FinishedLookups {
    /// The order.
    pub order: LookupOrder,
    /// What was found, or why nothing was, as one sentence or more.
    pub outcome: Result<ExaminedConfig, String>,
}

#[derive(Debug)]
struct LookupProcess {
    pid: i32,
    pidfd: OwnedFd,
    order: LookupOrder,
    result: File,
    notes: LookupNotes,
    /// Lookups that took too long in processes before.
    late: Vec<PathBuf>,
    timer: LookupTimer,
    ended: Option<HowEnded>,
}

/// A process that was killed and has not ended: it may wait for a lock in the kernel, and ends when
/// it gets that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckLookup {
    pid: i32,
    path: Option<PathBuf>,
    /// It took too long. Another one need not wait for a lock: another reload came.
    #[serde(default)]
    is_late: bool,
}

/// When a process is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct LookupTimer {
    /// The last note at the start of the wait.
    count: u64,
    due: Moment,
    /// The end of all waits for the order.
    until: Moment,
}

impl LookupTimer {
    fn new(now: Moment, until: Moment) -> LookupTimer {
        LookupTimer { count: 0, due: now + LOOKUP_TIMEOUT, until }
    }

    fn deadline(&self) -> Moment {
        self.due.min(self.until)
    }

    /// Whether it is late. `count`: the number of the last note.
    fn is_late(&mut self, count: u64, now: Moment) -> bool {
        if now < self.deadline() {
            return false;
        }
        let goes_on = count != self.count && now < self.until;
        if goes_on {
            (self.count, self.due) = (count, now + LOOKUP_TIMEOUT);
        }
        !goes_on
    }
}

impl Lookups {
    /// No lookups. `stuck`: the processes of the program before an upgrade.
    pub fn new(stuck: Vec<StuckLookup>) -> Lookups {
        Lookups { current: None, stuck }
    }

    /// The processes that have not ended, for the program after an upgrade.
    pub fn stuck(&self) -> &[StuckLookup] {
        &self.stuck
    }

    /// Whether some are being made.
    pub fn are_made(&self) -> bool {
        self.current.is_some()
    }

    /// Whether this is a process of theirs.
    pub fn is_process(&self, pid: i32) -> bool {
        let current = self.current.iter().map(|current| current.pid);
        current.chain(self.stuck.iter().map(|stuck| stuck.pid)).any(|known| known == pid)
    }

    /// A process of theirs has ended.
    pub fn process_ended(&mut self, pid: i32, how: HowEnded) {
        self.stuck.retain(|stuck| stuck.pid != pid);
        if let Some(current) = self.current.as_mut().filter(|current| current.pid == pid) {
            current.ended = Some(how);
        }
    }

    /// When something is due.
    pub fn deadline(&self) -> Option<Moment> {
        let current = self.current.as_ref()?;
        Some(current.ended.map_or(current.timer.deadline(), |_| Moment::ZERO))
    }

    /// What the lookups that are being made are for.
    pub fn order(&self) -> Option<&LookupOrder> {
        self.current.as_ref().map(|current| &current.order)
    }

    /// Starts lookups. Others that are being made are given up then. Returns what those were for.
    ///
    /// # Errors
    /// One sentence, if no process can be started: the others go on.
    pub fn start(
        &mut self,
        order: LookupOrder,
        plan: &Plan,
        now: Moment,
    ) -> Result<Option<LookupOrder>, String> {
        let late = self.stuck.iter().filter_map(|stuck| stuck.path.clone()).collect();
        let timer = LookupTimer::new(now, now + LOOKUPS_TIMEOUT);
        let started = self.start_process(order, plan, late, timer)?;
        let before = self.give_up();
        self.current = Some(started);
        Ok(before)
    }

    /// Gives up the lookups that are being made. Returns what they were for.
    pub fn give_up(&mut self) -> Option<LookupOrder> {
        let current = self.current.take()?;
        let order = current.order.clone();
        self.abandon(current, |pid| StuckLookup { pid, path: None, is_late: false });
        Some(order)
    }

    /// Takes the result of lookups that have ended, and gives up those that are late.
    pub fn keep(&mut self, plan: &Plan, now: Moment) -> Option<FinishedLookups> {
        let current = self.current.as_mut()?;
        if let Some(how) = current.ended {
            let mut ended = self.current.take()?;
            let outcome = ended.outcome(how);
            return Some(FinishedLookups { order: ended.order, outcome });
        }
        let note = current.notes.last().unwrap_or_default();
        if !current.timer.is_late(note.count, now) {
            return None;
        }
        let mut late = self.current.take()?;
        let (order, until) = (late.order.clone(), late.timer.until);
        let mut paths = std::mem::take(&mut late.late);
        let path = note.path.clone();
        self.abandon(late, |pid| StuckLookup { pid, path, is_late: true });
        let refused = |why| Some(FinishedLookups { order: order.clone(), outcome: Err(why) });
        let Some(path) = note.path.filter(|_| now < until) else {
            let limit = if now < until { LOOKUP_TIMEOUT } else { LOOKUPS_TIMEOUT };
            return refused(format!(
                "looking up the users and folders of the configuration takes longer than {} s, as \
                 if a program held the lock of a folder; end that program",
                limit.as_secs()
            ));
        };
        if order != LookupOrder::Faults {
            return refused(late_lookup(&path));
        }
        paths.push(path);
        match self.start_process(order.clone(), plan, paths, LookupTimer::new(now, until)) {
            Ok(again) => {
                self.current = Some(again);
                None
            }
            Err(why) => refused(why),
        }
    }

    /// Checks whether a process may be started for this order.
    fn has_room(&self, order: &LookupOrder) -> Result<(), String> {
        let limit = match order {
            LookupOrder::Faults => FAULT_LOOKUPS_STUCK,
            LookupOrder::Reload { .. } => LOOKUPS_STUCK,
        };
        let late = self.stuck.iter().filter(|stuck| stuck.is_late).count();
        if late < limit && self.stuck.len() < LOOKUPS_KILLED {
            return Ok(());
        }
        let path = self.stuck.iter().rev().find_map(|stuck| stuck.path.as_ref());
        let path = path.map(|path| format!(", one of them for {}", path.display()));
        Err(format!(
            "{} processes that look names up wait for the locks of folders{}; end the programs \
             that hold them",
            self.stuck.len(),
            path.unwrap_or_default()
        ))
    }

    fn start_process(
        &self,
        order: LookupOrder,
        plan: &Plan,
        late: Vec<PathBuf>,
        timer: LookupTimer,
    ) -> Result<LookupProcess, String> {
        self.has_room(&order)?;
        let start = || -> io::Result<LookupProcess> {
            let (result, notes) = (shared::writable_file("examined")?, LookupNotes::new()?);
            let refused = RefusedLookups { paths: late.clone(), why: refusal() };
            let pid = fork_task(&[result.as_fd(), notes.as_fd()], || {
                title::set(TITLE);
                let recorded =
                    notes.try_clone().map(|notes| folder_lookups::record(notes, refused));
                let made = recorded.and_then(|()| make(&order, plan, &result));
                made.map_or(UNWRITTEN, |()| 0)
            })?;
            let pidfd = signals::pidfd(pid)?;
            Ok(LookupProcess { pid, pidfd, order, result, notes, late, timer, ended: None })
        };
        start().map_err(|why| {
            format!("no process can be started that looks up names in folders: {why}")
        })
    }

    /// Kills a process, unless it has ended. `stuck`: what is known of it by its pid.
    fn abandon(&mut self, process: LookupProcess, stuck: impl FnOnce(i32) -> StuckLookup) {
        if process.ended.is_some() {
            return;
        }
        let _ = signals::send_to(process.pidfd.as_fd(), Signal::SIGKILL);
        self.stuck.push(stuck(process.pid));
    }
}

impl LookupProcess {
    fn outcome(&mut self, how: HowEnded) -> Result<ExaminedConfig, String> {
        let failed =
            |why: String| format!("the process that looks up names in folders has failed: {why}");
        if how != HowEnded::Exited(0) {
            return Err(failed(format!("it {how}")));
        }
        let mut json = Vec::new();
        let read = self.result.rewind().and_then(|()| {
            let limit = u64::try_from(LOOKUP_RESULT_BYTES).unwrap_or(u64::MAX);
            (&self.result).take(limit).read_to_end(&mut json)
        });
        read.map_err(|why| failed(why.to_string()))?;
        serde_json::from_slice(&json).map_err(|why| failed(why.to_string()))?
    }
}

/// Why a reload is refused.
fn late_lookup(path: &Path) -> String {
    format!(
        "a lookup of {} takes longer than {} s, as if a program held the lock of a folder on that \
         path; end that program, and reload again",
        path.display(),
        LOOKUP_TIMEOUT.as_secs()
    )
}

/// Why a lookup is not made again.
fn refusal() -> String {
    format!(
        "a lookup of it takes longer than {} s, as if a program held the lock of a folder on its \
         path; end that program",
        LOOKUP_TIMEOUT.as_secs()
    )
}

/// Makes the lookups, in a process of their own, and writes what they have found.
fn make(order: &LookupOrder, plan: &Plan, result: &File) -> io::Result<()> {
    capabilities::keep_only_lookups()?;
    let examination = match order {
        LookupOrder::Faults => Examination::Faults,
        LookupOrder::Reload { scope: ReloadScope::Mended, .. } => Examination::InUse,
        LookupOrder::Reload { .. } => Examination::New,
    };
    let found = ExaminedConfig::find(examination, plan);
    let refused = folder_lookups::first_refused().filter(|_| examination != Examination::Faults);
    let found = refused.map_or(found, |path| Err(late_lookup(path)));
    let mut out = BufWriter::new(result);
    serde_json::to_writer(&mut out, &found)?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookups_are_late_once_none_has_ended_for_a_while_or_all_take_too_long() {
        let mut timer = LookupTimer::new(Moment::ZERO, LOOKUPS_TIMEOUT);
        assert!(!timer.is_late(0, LOOKUP_TIMEOUT / 2));
        assert!(!timer.is_late(7, LOOKUP_TIMEOUT), "others have ended meanwhile");
        assert_eq!(timer.deadline(), 2 * LOOKUP_TIMEOUT);
        assert!(timer.is_late(7, 2 * LOOKUP_TIMEOUT));
        let mut timer = LookupTimer::new(LOOKUPS_TIMEOUT - LOOKUP_TIMEOUT / 2, LOOKUPS_TIMEOUT);
        assert_eq!(timer.deadline(), LOOKUPS_TIMEOUT);
        assert!(timer.is_late(7, LOOKUPS_TIMEOUT));
    }

    fn reload() -> LookupOrder {
        LookupOrder::Reload { ticket: 1, scope: ReloadScope::Changed }
    }

    fn late(count: usize) -> Lookups {
        let path = Some(PathBuf::from("/srv/locked/root"));
        let stuck = |pid| StuckLookup { pid, path: path.clone(), is_late: true };
        Lookups::new((1..=i32::try_from(count).unwrap()).map(stuck).collect())
    }

    #[test]
    fn no_process_looks_names_up_while_too_many_wait_for_locks() {
        let mut lookups = late(LOOKUPS_STUCK);
        let refused = lookups.has_room(&reload()).unwrap_err();
        assert!(refused.contains("one of them for /srv/locked/root; end"), "{refused}");
        assert!(lookups.is_process(1));
        lookups.process_ended(1, HowEnded::Signaled(9));
        assert!(!lookups.is_process(1) && lookups.has_room(&reload()).is_ok());
    }

    #[test]
    fn lookups_of_faults_that_wait_for_locks_leave_room_to_a_reload() {
        let lookups = late(FAULT_LOOKUPS_STUCK);
        assert!(lookups.has_room(&LookupOrder::Faults).is_err());
        assert!(lookups.has_room(&reload()).is_ok());
    }

    #[test]
    fn processes_that_were_killed_and_were_not_late_have_a_limit_of_their_own() {
        let killed = |pid| StuckLookup { pid, path: None, is_late: false };
        let most = i32::try_from(LOOKUPS_KILLED).unwrap();
        let mut lookups = Lookups::new((1..most).map(killed).collect());
        assert!(lookups.has_room(&reload()).is_ok());
        lookups.stuck.push(killed(most));
        assert!(lookups.has_room(&reload()).is_err());
    }
}
