//! The cost of a request: processor time, waiting for a processor, children.
//!
//! All of it is read once per request, when its response is complete, and the increase since the
//! previous request is the request's cost: an idle worker uses almost nothing. A request during
//! which the worker has not lost its processor has used it all the time: then the clock is
//! sufficient, except for the cost of the sleep before ([`SleepCost`]). Only after other
//! interruptions the kernel is queried, which takes 0.8 µs, and about as much again in slower code
//! afterwards.

mod sleep_cost;

use std::fs::File;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use maitred_os::clock::monotonic_nanos;
use maitred_os::cpu;
use maitred_os::fork::OwnProc;
use maitred_os::preemption::PreemptionProbe;
use maitred_os::schedstat::Schedstat;
use maitred_seat::Spent;
use maitred_seat::board::{SeatBoard, UNKNOWN};

use self::sleep_cost::{SleepCost, WakeUp};

/// Longest time that a worker's steps between two requests take, unless it loses its processor, in
/// nanoseconds.
const UNDISTURBED_NANOS: u64 = 20_000;

/// A worker that starts a request this much later than its assignment had no processor, in
/// nanoseconds. Waking up takes less.
const WAKES_IN_NANOS: u64 = 100_000;

/// How many numbers it [keeps](Meter::kept).
pub const KEPT: usize = 5;

/// Measures this process from one request to the next.
#[derive(Debug)]
pub struct Meter {
    /// Kept open: opening costs more than reading.
    schedstat: Option<File>,
    /// Detects whether it has lost its processor since `last`, or since it woke up after that, if
    /// the system supports it.
    unbroken: Option<PreemptionProbe>,
    naps: SleepCost,
    last: Reading,
    begun: Beginning,
}

/// The start of a request.
#[derive(Debug, Clone, Copy, Default)]
struct Beginning {
    /// Time that it had waited for a processor by then, in nanoseconds, by the clock; the kernel
    /// may not count it.
    late: u64,
    /// How often the worker has slept waiting for a request so far.
    sleeps: u64,
}

/// Resources that this process has used.
#[derive(Debug, Clone, Copy, Default)]
struct Reading {
    /// The time of the reading, in nanoseconds of the monotonic clock.
    at: u64,
    /// Its processor time in nanoseconds, including its threads'.
    cpu: u64,
    /// Time that it was runnable without a processor, in nanoseconds, if the kernel reports it.
    core_wait: Option<u64>,
    /// Processor time of its children, in microseconds.
    children: u64,
    /// Peak memory of a program that it has run, in bytes, if above its own.
    program: u64,
    /// How often it has given up its processor, except while waiting for a request.
    waits: u64,
}

impl Meter {
    /// Starts measuring.
    pub fn new(proc: &OwnProc) -> Meter {
        let mut meter = Meter {
            schedstat: proc.file("schedstat").ok(),
            unbroken: PreemptionProbe::of_this_thread(),
            naps: SleepCost::default(),
            last: Reading::default(),
            begun: Beginning::default(),
        };
        meter.last = meter.read();
        meter
    }

    /// The cost since the last call, of a request that was assigned to this worker at
    /// `assigned_at`: nanoseconds of the monotonic clock.
    pub fn spent(&mut self, assigned_at: u64, peak_memory: u64) -> Spent {
        let now = self.now();
        let before = std::mem::replace(&mut self.last, now);
        let late = std::mem::take(&mut self.begun.late);
        Spent { peak_memory, ..between(&before, &now, assigned_at, late) }
    }

    /// The resources used by the end of a request: from the clock, or else from the kernel.
    fn now(&mut self) -> Reading {
        // In this order: an interruption after reading the clock does no harm.
        let at = monotonic_nanos();
        let is_unbroken = self.unbroken.as_ref().is_some_and(PreemptionProbe::ran_through);
        match self.naps.woke() {
            None if is_unbroken => {
                Reading { at, cpu: self.last.cpu + at.saturating_sub(self.last.at), ..self.last }
            }
            Some(woke) if is_unbroken => match woke.cost {
                Some(cost) => {
                    self.naps.guess(cost);
                    // It has not waited since, and before that only for a processor.
                    Reading { at, cpu: self.last.cpu + woke.used_by(at), ..self.last }
                }
                None => self.read_after_a_sleep(&woke),
            },
            _ => {
                self.naps.ask(None);
                self.read()
            }
        }
    }

    /// Queries the kernel, and learns the cost of a sleep: the counted time that no clock has
    /// shown.
    fn read_after_a_sleep(&mut self, woke: &WakeUp) -> Reading {
        let now = self.read();
        let known = self.last.cpu + woke.used_by(now.at);
        let is_unbroken = self.unbroken.as_ref().is_some_and(PreemptionProbe::ran_through);
        self.naps.ask(is_unbroken.then_some((now.cpu, known)));
        now
    }

    /// The process has ended a request, and either has no other one or one that was assigned at
    /// `assigned_at`. Its waiting for a processor since then is not part of that request, except
    /// after the assignment. Usually this only reads the clock, whose time it returns.
    pub fn goes_on(&mut self, assigned_at: Option<u64>) -> u64 {
        let now = monotonic_nanos();
        self.naps.none();
        if now.saturating_sub(self.last.at) <= UNDISTURBED_NANOS {
            if assigned_at.is_none()
                && self.unbroken.as_ref().is_some_and(PreemptionProbe::ran_through)
            {
                self.naps.begin(now);
            }
            return now;
        }
        let waited = self.schedstat.as_ref().and_then(Schedstat::read);
        let waited = waited.map(|figures| figures.waited);
        let waits = self.last.core_wait.zip(waited);
        let with_it =
            assigned_at.map_or(0, |assigned_at| now.saturating_sub(assigned_at.max(self.last.at)));
        self.last.core_wait = waits.map(|(before, now)| before_the_next(before, now, with_it));
        now
    }

    /// The process starts a request at `now` that was assigned at `assigned_at`, and has slept
    /// `sleeps` times so far waiting for one.
    pub fn begins(&mut self, now: u64, assigned_at: u64, sleeps: u64) {
        self.begun = Beginning { late: 0, sleeps };
        let late = now.saturating_sub(assigned_at.max(self.last.at));
        let unbroken = self.unbroken.as_ref();
        if assigned_at == 0 || unbroken.is_some_and(PreemptionProbe::ran_through) {
            return self.naps.none();
        }
        let is_known = self.naps.end(now, self.last.at);
        unbroken.filter(|_| is_known).inspect(|unbroken| unbroken.begin());
        let until_now = if late > WAKES_IN_NANOS {
            self.schedstat.as_ref().and_then(Schedstat::read)
        } else {
            None
        };
        // A wait by the clock is not added to the kernel's count, which may not include it.
        let unasked = self.last.core_wait.filter(|_| is_known);
        let until_now = until_now.map(|figures| figures.waited).or(unasked);
        if let (Some(waited), Some(until_now)) = (&mut self.last.core_wait, until_now) {
            *waited = until_now;
            self.begun.late = late;
        }
    }

    /// Its state after the last request, for [`go_on`](Self::go_on) in a process that has not slept
    /// since waiting for one.
    pub fn kept(&self) -> [u64; KEPT] {
        let Reading { at, cpu, core_wait, children, waits, .. } = self.last;
        let core_wait = core_wait.unwrap_or(UNKNOWN);
        let waits = waits.saturating_add(self.begun.sleeps);
        [at, cpu, core_wait, children, waits]
    }

    /// Restores the state after a rewind of the process.
    pub fn go_on(&mut self, kept: [u64; KEPT]) {
        let [at, cpu, core_wait, children, waits] = kept;
        self.begun = Beginning::default();
        self.last = Reading {
            at,
            cpu,
            core_wait: (core_wait != UNKNOWN).then_some(core_wait),
            children,
            program: self.last.program,
            waits,
        };
        self.naps = SleepCost::default();
        if let Some(unbroken) = &self.unbroken {
            unbroken.forget();
        }
    }

    /// Writes the resources used so far to the board, so that readers can compute the increase.
    pub fn show(&self, board: &SeatBoard) {
        let waited = self.last.core_wait.unwrap_or(UNKNOWN);
        board.used_cpu.store(self.last.cpu / 1_000, Relaxed);
        board.used_core_wait.store(waited, Relaxed);
        board.program_most.store(self.last.program, Relaxed);
    }

    fn read(&self) -> Reading {
        if let Some(unbroken) = &self.unbroken {
            unbroken.begin();
        }
        let schedstat = self.schedstat.as_ref().and_then(Schedstat::read);
        let (children, program) = cpu::of_children_with_most();
        // Last, and together: the time of the reading itself must not be lost between them.
        let ((cpu, waits), at) = (cpu::of_this_process_with_waits(), monotonic_nanos());
        Reading {
            at,
            cpu: cpu.saturating_mul(1_000),
            core_wait: schedstat.map(|figures| figures.waited),
            children,
            program: program.max(self.last.program),
            waits: waits.saturating_sub(self.begun.sleeps),
        }
    }
}

/// Time that a process had waited for a processor when it was assigned a request, if it was
/// `before` at the end of the previous request, and is `now` after having had this one for
/// `with_it`.
fn before_the_next(before: u64, now: u64, with_it: u64) -> u64 {
    now - now.saturating_sub(before).min(with_it).min(now)
}

/// The cost between two readings, of a request that caused all of it since its assignment, and that
/// was started this late.
fn between(before: &Reading, now: &Reading, assigned_at: u64, late: u64) -> Spent {
    // It may have been queued behind another request.
    let began = assigned_at.clamp(before.at, now.at);
    let held = Duration::from_nanos(now.at - began);
    let cpu = Duration::from_nanos(now.cpu.saturating_sub(before.cpu));
    let no_work = held.saturating_sub(cpu);
    let waited = now.core_wait.zip(before.core_wait).map(|(counted, until)| {
        let counted = counted.saturating_sub(until).saturating_add(late);
        if now.waits <= before.waits {
            // It has waited for nothing else.
            no_work
        } else {
            // At most the available time.
            no_work.min(Duration::from_nanos(counted))
        }
    });
    Spent {
        held,
        cpu,
        core_wait: waited,
        children: Duration::from_micros(now.children.saturating_sub(before.children)),
        peak_memory: 0,
    }
}

#[cfg(test)]
mod tests {
    use maitred_seat::Boards;

    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    /// How often something is tried that other tests of this process may spoil.
    const TRIES: usize = 5_000;

    fn reading(at_millis: u64, cpu_millis: u64, waited_millis: u64) -> Reading {
        Reading {
            at: at_millis * 1_000_000,
            cpu: cpu_millis * 1_000_000,
            core_wait: Some(waited_millis * 1_000_000),
            children: 0,
            program: 0,
            // As all do that wait for anything else than a processor.
            waits: at_millis,
        }
    }

    #[test]
    fn a_request_has_the_time_since_its_worker_was_given_it() {
        let (before, now) = (reading(100, 10, 1), reading(200, 13, 3));
        let spent = between(&before, &now, 150_000_000, 0);
        assert_eq!(spent.held, 50 * MILLISECOND);
        assert_eq!(spent.cpu, 3 * MILLISECOND);
        assert_eq!(spent.core_wait, Some(2 * MILLISECOND));
        assert_eq!(spent.blocked(), Some(45 * MILLISECOND));
    }

    #[test]
    fn one_that_waited_behind_another_has_the_time_since_that_one_ended() {
        let (before, now) = (reading(100, 10, 1), reading(200, 10, 1));
        assert_eq!(between(&before, &now, 0, 0).held, 100 * MILLISECOND);
        let future = between(&before, &now, u64::MAX, 0);
        assert_eq!(future.held, Duration::ZERO);
    }

    #[test]
    fn a_request_has_waited_for_a_processor_no_longer_than_its_worker_had_it() {
        assert_eq!(before_the_next(10, 10, 0), 10);
        assert_eq!(before_the_next(10, 90, 0), 90, "all of it came before");
        assert_eq!(before_the_next(10, 90, 30), 60, "a part did");
        assert_eq!(before_the_next(10, 90, 500), 10, "none did");
        let (before, now) = (reading(100, 10, 1), reading(200, 13, 90));
        let spent = between(&before, &now, 150_000_000, 0);
        assert_eq!(spent.core_wait, Some(47 * MILLISECOND));
        assert_eq!(spent.blocked(), Some(Duration::ZERO));
    }

    #[test]
    fn a_wait_that_the_kernel_did_not_count_is_the_requests_all_the_same() {
        let (before, now) = (reading(100, 10, 1), reading(200, 13, 3));
        let spent = between(&before, &now, 150_000_000, 40_000_000);
        assert_eq!(spent.core_wait, Some(42 * MILLISECOND));
        assert_eq!(spent.blocked(), Some(5 * MILLISECOND));
        let longer = between(&before, &now, 150_000_000, u64::MAX);
        assert_eq!(longer.core_wait, Some(47 * MILLISECOND));
    }

    #[test]
    fn who_never_gave_its_processor_up_has_waited_for_nothing_else() {
        let before = reading(100, 10, 1);
        let now = Reading { waits: before.waits, ..reading(200, 13, 3) };
        let spent = between(&before, &now, 0, 0);
        assert_eq!(spent.core_wait, Some(97 * MILLISECOND));
        assert_eq!(spent.blocked(), Some(Duration::ZERO));
    }

    #[test]
    fn what_the_largest_program_has_had_is_shown_and_stays() {
        let memory = maitred_seat::create("www", 1, 1).unwrap();
        let boards = Boards::map(&memory).unwrap();
        let board = boards.seat(0).unwrap();
        let mut meter = Meter::new(&OwnProc::open().unwrap());
        meter.show(board);
        let bytes: u64 = 100 << 20;
        // Other tests of this process start programs as well.
        assert!(board.program_most.load(Relaxed) < bytes);
        let runs = format!("head -c {bytes} /dev/zero | tail -c {bytes} >/dev/null; :");
        for script in [&runs, "true"] {
            let ended = std::process::Command::new("sh").args(["-c", script]).status();
            assert!(ended.is_ok_and(|ended| ended.success()));
            meter.spent(0, 0);
            meter.go_on(meter.kept());
            meter.show(board);
            let shown = board.program_most.load(Relaxed);
            assert!((bytes..2 * bytes).contains(&shown), "{shown}");
        }
    }

    #[test]
    fn who_begins_late_has_waited_for_a_processor() {
        let mut meter = Meter::new(&OwnProc::open().unwrap());
        let assigned_at = monotonic_nanos();
        std::thread::sleep(20 * MILLISECOND);
        meter.begins(monotonic_nanos(), assigned_at, 0);
        std::thread::sleep(20 * MILLISECOND);
        let spent = meter.spent(assigned_at, 0);
        // What other tests of this process compute meanwhile is no wait.
        let most = spent.held.saturating_sub(spent.cpu);
        if meter.last.core_wait.is_some() {
            let least = most.min(20 * MILLISECOND);
            assert!(spent.core_wait >= Some(least), "{spent:?}");
        }
        assert!(spent.held >= 40 * MILLISECOND);
        assert_eq!(meter.begun.late, 0, "the next has a beginning of its own");
    }

    #[test]
    fn who_sleeps_before_each_request_need_not_ask_the_kernel_each_time() {
        let mut meter = Meter::new(&OwnProc::open().unwrap());
        if meter.unbroken.is_none() {
            eprintln!("not tested: this system has no restartable sequences");
            return;
        }
        let mut spared = 0;
        // If the processor is lost, or other tests of this process use it, the kernel is queried.
        for _ in 0..TRIES {
            if spared == 20 {
                return;
            }
            let before = meter.last;
            meter.goes_on(None);
            std::thread::sleep(MILLISECOND);
            let assigned_at = monotonic_nanos();
            meter.begins(assigned_at, assigned_at, 0);
            let spent = meter.spent(assigned_at, 0);
            // Each sleep is one more for the kernel, since nothing is said here of what it was for.
            if meter.last.waits == before.waits {
                spared += 1;
                assert_eq!(spent.blocked(), spent.core_wait.map(|_| Duration::ZERO));
            }
        }
        let costs = what_a_nap_costs();
        assert!(costs > sleep_cost::MOST_NANOS, "{spared} spared of {TRIES}");
        eprintln!("not tested: here a nap costs {costs} ns, which is queried each time");
    }

    /// Processor time in nanoseconds, on average over some.
    fn what_a_nap_costs() -> u64 {
        const NAPS: u64 = 50;
        let before = cpu::of_this_process();
        (0..NAPS).for_each(|_| std::thread::sleep(MILLISECOND));
        (cpu::of_this_process() - before) * 1_000 / NAPS
    }

    #[test]
    fn what_the_clock_says_of_a_beginning_is_not_taken_for_what_the_kernel_has_counted() {
        let mut meter = Meter::new(&OwnProc::open().unwrap());
        let (is_known, late) = (meter.last.core_wait.is_some(), WAKES_IN_NANOS / 2);
        if meter.unbroken.is_none() || !is_known {
            eprintln!(
                "not tested: this system has no restartable sequences, or does not count waits"
            );
            return;
        }
        // Where the processor is lost before it lies down, nothing is known of the nap.
        let was_late = (0..TRIES).any(|_| {
            meter.goes_on(None);
            std::thread::sleep(MILLISECOND);
            let (now, counted) = (monotonic_nanos(), meter.last.core_wait);
            meter.begins(now, now - late, 0);
            assert_eq!(meter.last.core_wait, counted);
            let was_late = meter.begun.late == late;
            meter.spent(now - late, 0);
            was_late
        });
        assert!(was_late);
    }

    #[test]
    fn a_kernel_that_does_not_count_is_noticed() {
        let before = Reading { core_wait: None, ..reading(100, 10, 1) };
        let spent = between(&before, &reading(200, 13, 3), 0, 0);
        assert_eq!((spent.core_wait, spent.blocked()), (None, None));
    }

    #[test]
    fn without_the_kernels_word_only_processor_time_is_told() {
        let mut meter = Meter {
            schedstat: None,
            unbroken: None,
            naps: SleepCost::default(),
            last: Reading::default(),
            begun: Beginning::default(),
        };
        std::thread::sleep(MILLISECOND);
        meter.goes_on(None);
        let spent = meter.spent(1, 0);
        assert!(spent.cpu > Duration::ZERO && spent.held > spent.cpu);
        assert_eq!((spent.core_wait, spent.blocked()), (None, None));
    }

    /// Works for 20 ms, by the clock as well: other tests use processors of this process, too.
    fn compute() {
        let (before, since) = (cpu::of_this_process(), monotonic_nanos());
        while cpu::of_this_process() < before + 20_000 || monotonic_nanos() < since + 20_000_000 {}
    }

    #[test]
    fn who_goes_back_measures_from_where_it_was() {
        let mut meter = Meter::new(&OwnProc::open().unwrap());
        let first = meter.kept();
        compute();
        meter.spent(1, 0);
        let kept = meter.kept();
        assert!(kept[1] >= first[1] + 20_000_000);
        meter.go_on(first);
        meter.go_on(kept);
        assert_eq!(meter.kept(), kept);
        assert!(meter.spent(1, 0).cpu < MILLISECOND * 15);
    }

    #[test]
    fn who_sleeps_is_blocked_and_who_computes_uses_a_processor() {
        let mut meter = Meter::new(&OwnProc::open().unwrap());
        let assigned_at = monotonic_nanos();
        std::thread::sleep(50 * MILLISECOND);
        let slept = meter.spent(assigned_at, 7);
        assert!(slept.held >= 50 * MILLISECOND && slept.peak_memory == 7);
        let assigned_at = monotonic_nanos();
        compute();
        let computed = meter.spent(assigned_at, 0);
        assert!(computed.cpu >= 20 * MILLISECOND);
    }
}
