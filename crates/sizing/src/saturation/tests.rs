use super::*;

const HERE: PoolCapacity = PoolCapacity { cores: 2.0, memory: None, max_children: 20 };

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Requests that arrive evenly, each with a worker at once.
struct Pool {
    meter: Meter,
    now: Duration,
    /// Processor time and other waiting of a request, in milliseconds.
    cpu: u64,
    blocked: u64,
}

impl Pool {
    fn new(cpu: u64, blocked: u64) -> Pool {
        Pool { meter: Meter::default(), now: Duration::from_secs(1_000), cpu, blocked }
    }

    /// `rate` requests a second, of which workers run `begun`.
    fn run(&mut self, seconds: u64, rate: u64, begun: u64) {
        let spent = Spent { cpu: ms(self.cpu), ready: Some(ms(0)), blocked: ms(self.blocked) };
        let busy = begun as f64 * (self.cpu + self.blocked) as f64 / 1000.0;
        for number in 0..seconds * rate {
            self.now += Duration::from_secs(1) / u32::try_from(rate).unwrap();
            self.meter.arrived(self.now);
            if number % rate < begun {
                self.meter.begun(self.now, Duration::ZERO);
                self.meter.busy(self.now, busy.round() as usize);
                self.meter.ended(self.now, 1, spent);
            }
        }
    }

    fn read(&mut self) -> Saturation {
        self.meter.read(self.now, &HERE)
    }
}

#[track_caller]
fn is_near(found: f64, expected: f64) {
    assert!((found - expected).abs() < 0.06 * expected, "{found}, expected {expected}");
}

#[test]
fn the_number_is_the_part_of_the_nearest_limit() {
    let mut computes = Pool::new(10, 10);
    computes.run(60, 100, 100);
    let found = computes.read();
    is_near(found.value, 0.5);
    assert_eq!(found.nearest, Nearest::Cpu);
    let mut waits = Pool::new(1, 99);
    waits.run(60, 100, 100);
    let found = waits.read();
    is_near(found.value, 0.5);
    assert_eq!(found.nearest, Nearest::MaxChildren);
    let little = PoolCapacity { memory: Some(12), ..HERE };
    let found = waits.meter.read(waits.now, &little);
    is_near(found.value, 10.0 / 12.0);
    assert_eq!(found.nearest, Nearest::Memory);
}

#[test]
fn what_no_worker_can_run_counts_as_well() {
    let mut pool = Pool::new(20, 0);
    pool.run(120, 300, 100);
    is_near(pool.read().value, 3.0);
}

#[test]
fn a_rise_is_seen_within_a_quarter_of_a_minute_and_a_fall_within_a_minute() {
    let mut pool = Pool::new(2, 0);
    pool.run(120, 100, 100);
    is_near(pool.read().value, 0.1);
    pool.run(15, 500, 500);
    let found = pool.read().value;
    assert!((0.44..0.52).contains(&found), "{found}");
    pool.run(60, 100, 100);
    is_near(pool.read().value, 0.1);
    pool.meter.busy(pool.now, 0);
    pool.now += Duration::from_secs(75);
    assert_eq!(pool.read().value, 0.0);
}

#[test]
fn one_long_request_is_no_spike_at_its_end() {
    let mut pool = Pool::new(5, 0);
    pool.run(60, 100, 100);
    let long = Spent { cpu: ms(300_000), ready: Some(ms(0)), blocked: ms(300_000) };
    pool.meter.ended(pool.now, 1, long);
    let found = pool.read().value;
    assert!((0.25..0.52).contains(&found), "{found}: half a processor for ten minutes");
}

#[test]
fn longer_waits_for_a_common_bottleneck_add_little() {
    let mut pool = Pool::new(1, 49);
    pool.run(120, 100, 100);
    is_near(pool.read().value, 0.25);
    // Of 200 a second the database serves 110, and they wait four times as long.
    pool.blocked = 200;
    pool.run(4 * 3600, 200, 110);
    let found = pool.read();
    assert!(found.value < 0.36 && found.waits_downstream, "{found:?}");
    // In the end it is believed.
    pool.run(3 * 3600, 200, 110);
    assert!(pool.read().value > 1.0);
}

#[test]
fn a_kind_that_waits_longer_than_others_is_no_bottleneck() {
    let mut pool = Pool::new(1, 10);
    pool.run(120, 100, 100);
    let spent = Spent { cpu: ms(1), ready: Some(ms(0)), blocked: ms(100) };
    for _ in 0..6000 {
        pool.now += ms(10);
        pool.meter.arrived(pool.now);
        pool.meter.begun(pool.now, Duration::ZERO);
        pool.meter.busy(pool.now, 10);
        pool.meter.ended(pool.now, 2, spent);
    }
    let found = pool.read();
    assert!(!found.waits_downstream && found.value > 0.45, "{found:?}");
}

#[test]
fn the_queue_time_is_that_of_the_last_quarter_of_a_minute() {
    let mut pool = Pool::new(1, 0);
    let later = |pool: &mut Pool, waited: u64| {
        for _ in 0..100 {
            pool.now += ms(10);
            pool.meter.begun(pool.now, ms(waited));
        }
    };
    later(&mut pool, 0);
    assert_eq!(pool.read().queue_wait, Duration::ZERO);
    later(&mut pool, 200);
    let found = pool.read().queue_wait;
    assert!((ms(190)..=ms(240)).contains(&found), "{found:?}");
    pool.now += Duration::from_secs(15);
    assert_eq!(pool.read().queue_wait, Duration::ZERO);
}

#[test]
fn times_that_cannot_be_are_harmless() {
    let mut meter = Meter::default();
    let longest = Spent { cpu: Duration::MAX, ready: None, blocked: Duration::ZERO };
    for now in [Duration::ZERO, ms(1), Duration::from_secs(u64::from(u32::MAX))] {
        meter.arrived(now);
        meter.busy(now, usize::MAX);
        meter.ended(now, 1, longest);
        assert!(meter.read(now, &HERE).value >= 0.0);
    }
    (0..200).for_each(|kind| meter.ended(ms(1), kind, longest));
    assert!(meter.kinds.len() <= KINDS);
}

#[test]
fn a_wait_is_usual_after_fifty_requests_in_ten_seconds() {
    let after = |requests: u64, apart: Duration| {
        let mut usual = Usual::default();
        (0..requests).for_each(|number| usual.add(apart * number as u32, 0.1));
        usual.blocked
    };
    assert_eq!(after(60, ms(100)), None, "too short a time");
    assert_eq!(after(49, ms(1000)), None, "too few");
    assert!(after(50, ms(1000)).is_some() && after(101, ms(100)).is_some());
}
