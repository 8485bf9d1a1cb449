//! The reports that a zygote may still send. What runs in its process, or in a worker that boots,
//! can write to its pipe: a report of its own accord would cost the supervisor time that the other
//! pools need, again and again, and have no use.

use std::collections::BTreeMap;

use maitred_control::{FromZygote, ToZygote};

use super::traces::TRACES_MAX;

/// Reports of each kind that are due. An order that is given up stays due: its report may be on its
/// way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueReports(BTreeMap<ReportKind, u32>);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum ReportKind {
    Start,
    Fork,
    Boot,
    Trace,
    Profile,
    Scripts,
    PreloadableScripts,
    Opcache,
    Warming,
    SavedFile,
}

impl DueReports {
    /// Those of a zygote that is being started: of its start, and of a saved file of a preloaded
    /// class.
    pub fn of_new() -> DueReports {
        DueReports(BTreeMap::from([(ReportKind::Start, 1), (ReportKind::SavedFile, 1)]))
    }

    /// Those of a zygote with this number of seats that the former program has started, which may
    /// have ordered anything.
    pub fn of_inherited(seats: u32) -> DueReports {
        let traces = u32::try_from(TRACES_MAX).unwrap_or(u32::MAX);
        DueReports(BTreeMap::from([
            (ReportKind::Start, 1),
            (ReportKind::Fork, seats),
            (ReportKind::Boot, seats),
            (ReportKind::Trace, traces),
            (ReportKind::Profile, 1),
            (ReportKind::Scripts, 1),
            (ReportKind::PreloadableScripts, 1),
            (ReportKind::Opcache, 1),
            (ReportKind::Warming, 1),
            (ReportKind::SavedFile, 1),
        ]))
    }

    /// The zygote is sent an order, which it replies to once.
    pub fn ordered(&mut self, order: &ToZygote) {
        let kind = match order {
            ToZygote::Configure(_) => return,
            ToZygote::FillSeat { .. } => {
                // The worker reports itself, if it boots.
                self.add(ReportKind::Boot);
                ReportKind::Fork
            }
            ToZygote::ListScripts => ReportKind::Scripts,
            ToZygote::Warm => ReportKind::Warming,
            ToZygote::ListPreloadable => ReportKind::PreloadableScripts,
            ToZygote::ReportOpcache => ReportKind::Opcache,
            ToZygote::Profile { .. } => ReportKind::Profile,
            ToZygote::Trace { .. } => ReportKind::Trace,
        };
        self.add(kind);
    }

    fn add(&mut self, kind: ReportKind) {
        let due = self.0.entry(kind).or_default();
        *due = due.saturating_add(1);
    }

    /// Takes a report. False if none of its kind is due.
    pub fn take(&mut self, report: &FromZygote) -> bool {
        let kind = match report {
            FromZygote::SeatFilled { .. } | FromZygote::ForkFailed { .. } => ReportKind::Fork,
            FromZygote::Started { .. } | FromZygote::StartFailed { .. } => ReportKind::Start,
            FromZygote::Booted { .. } => ReportKind::Boot,
            FromZygote::Traced { .. } => ReportKind::Trace,
            FromZygote::Profiled { .. } => ReportKind::Profile,
            FromZygote::ScriptsListed { .. } => ReportKind::Scripts,
            FromZygote::PreloadableListed { .. } => ReportKind::PreloadableScripts,
            FromZygote::PreloadedFileChanged { .. } => ReportKind::SavedFile,
            FromZygote::OpcacheReported { .. } => ReportKind::Opcache,
            FromZygote::Warmed { .. } => ReportKind::Warming,
        };
        match self.0.get_mut(&kind) {
            Some(due @ 1..) => {
                *due -= 1;
                true
            }
            Some(0) | None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use maitred_control::WorkerId;

    use super::*;

    const WORKER: WorkerId = WorkerId { seat: 0, incarnation: 1 };

    fn traced(trace: u64) -> FromZygote {
        FromZygote::Traced { trace, stack: Err("none".to_owned()) }
    }

    fn trace(trace: u64) -> ToZygote {
        ToZygote::Trace { trace, worker: WORKER, request: 1, depth: 1 }
    }

    /// Each order with its report.
    fn pairs() -> Vec<(ToZygote, FromZygote)> {
        let profile = ToZygote::Profile { profile: 1, rate: 1, duration: Duration::from_secs(1) };
        vec![
            (ToZygote::ListScripts, FromZygote::ScriptsListed { count: 1 }),
            (ToZygote::Warm, FromZygote::Warmed { compiled: 1 }),
            (ToZygote::ListPreloadable, FromZygote::PreloadableListed { count: 1 }),
            (ToZygote::ReportOpcache, FromZygote::OpcacheReported { figures: None }),
            (profile, FromZygote::Profiled { profile: 1, samples: Err(String::new()) }),
            (trace(1), traced(1)),
        ]
    }

    #[test]
    fn each_order_has_one_report_and_no_report_comes_without_an_order() {
        let mut due = DueReports::of_new();
        for (order, report) in pairs() {
            assert!(!due.take(&report), "{report:?}");
            due.ordered(&order);
            for (_, other) in pairs().iter().filter(|(_, other)| *other != report) {
                assert!(!due.take(other), "{other:?} for {order:?}");
            }
            assert!(due.take(&report) && !due.take(&report), "{report:?}");
        }
    }

    #[test]
    fn a_report_may_come_after_its_order_was_given_up_and_repeated() {
        let mut due = DueReports::of_new();
        due.ordered(&trace(1));
        due.ordered(&trace(2));
        assert!(due.take(&traced(1)) && due.take(&traced(2)));
        assert!(!due.take(&traced(2)));
    }

    #[test]
    fn a_zygote_starts_once_and_a_saved_file_is_reported_once() {
        let mut due = DueReports::of_new();
        let failed = FromZygote::StartFailed { why: String::new() };
        let saved = FromZygote::PreloadedFileChanged { file: "a.php".to_owned() };
        assert!(due.take(&failed) && !due.take(&failed));
        assert!(due.take(&saved) && !due.take(&saved));
    }

    #[test]
    fn of_each_worker_that_is_ordered_the_fork_and_the_boot_are_reported_once() {
        let forked = FromZygote::SeatFilled { worker: WORKER, pid: 2, took: Duration::ZERO };
        let failed = FromZygote::ForkFailed { worker: WORKER, why: String::new() };
        let booted = FromZygote::Booted { worker: WORKER };
        let mut due = DueReports::of_new();
        assert!([&forked, &failed, &booted].iter().all(|report| !due.take(report)));
        due.ordered(&ToZygote::FillSeat { worker: WORKER });
        assert!(due.take(&forked) && !due.take(&failed) && !due.take(&forked));
        assert!(due.take(&booted) && !due.take(&booted));
        let mut due = DueReports::of_inherited(3);
        assert_eq!((0..).take_while(|_| due.take(&failed)).count(), 3);
    }

    #[test]
    fn a_zygote_of_the_former_program_replies_to_what_that_has_ordered() {
        let mut due = DueReports::of_inherited(3);
        for (_, report) in pairs() {
            assert!(due.take(&report), "{report:?}");
        }
        let left = (0..).take_while(|number| due.take(&traced(*number))).count();
        assert_eq!(left, TRACES_MAX - 1);
    }
}
