//! The counters of a pool, as one table. A row is all that a counter needs: its word on the page,
//! its metric, its JSON and its line of `maitred status POOL` are derived from it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! counters {
    ($($counter:ident: $unit:ident = $name:literal, $label:literal, $help:literal;)+) => {
        /// A counter of a pool. It only grows, from the server's start to its shutdown.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Counter { $(#[doc = $help] $counter,)+ }

        impl Counter {
            /// All counters, in the order of their words.
            pub const ALL: [Counter; Self::NAMES.len()] = [$(Counter::$counter,)+];

            /// Their names, in the same order.
            pub const NAMES: &[&str] = &[$($name,)+];

            /// Its name in JSON; its metric is `maitred_pool_NAME_total`.
            pub fn name(self) -> &'static str {
                Self::NAMES[self as usize]
            }

            /// The name of its metric.
            pub fn metric(self) -> &'static str {
                [$(concat!("maitred_pool_", $name, "_total")),+][self as usize]
            }

            /// Its label in `maitred status POOL`, 14 characters at most.
            pub fn label(self) -> &'static str {
                [$($label),+][self as usize]
            }

            /// One sentence of documentation.
            pub fn help(self) -> &'static str {
                [$($help),+][self as usize]
            }

            fn unit(self) -> Unit {
                [$(Unit::$unit),+][self as usize]
            }
        }
    };
}

/// What a counter's word counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Events,
    /// Time: the word counts microseconds, everything else shows seconds.
    Time,
}

counters! {
    WorkersStarted: Events = "workers_started", "started",
        "Workers that were started.";
    ForksFailed: Events = "forks_failed", "forks failed",
        "Workers that could not be started.";
    LimitReached: Events = "limit_reached", "limit reached",
        "Requests that found all workers busy and max_children reached.";
    LifoTime: Time = "lifo_seconds", "LIFO time",
        "Time in which overload had the newest request served first.";
    ChildrenCpu: Time = "children_cpu_seconds", "children CPU",
        "CPU time of child processes that scripts started and waited for.";
    CommandStarts: Events = "command_starts", "commands run",
        "Processes of commands that were started.";
    CommandFailures: Events = "command_failures", "commands fail",
        "Processes of commands that failed, or could not be started.";
    ScheduleRuns: Events = "schedule_runs", "schedules run",
        "Runs of schedules that have begun.";
    ScheduleRunsFailed: Events = "schedule_runs_failed", "runs failed",
        "Runs of schedules that failed, or could not begin.";
    ScheduleRunsSkipped: Events = "schedule_runs_skipped", "runs left out",
        "Runs of schedules that were left out, since the last one went on.";
    BootWait: Time = "boot_wait_seconds", "boot wait",
        "Part of the time in the queue in which the worker was starting that then ran the request.";
    SpoolWaits: Events = "spool_waits", "spool waits",
        "Responses whose script waited for a slow client, without space left in spool_dir.";
    BodiesRefused: Events = "bodies_refused", "bodies refused",
        "Requests that were refused with a 503, without space for their body in spool_dir.";
}

/// The values of all counters of a pool.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters([u64; Counter::ALL.len()]);

/// The value of a counter, as metrics and JSON show it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum CounterValue {
    /// A number of events.
    Events(u64),
    /// A time in seconds.
    Seconds(f64),
}

impl Counters {
    /// The number of events, or of microseconds.
    pub fn count(&self, counter: Counter) -> u64 {
        self.0[counter as usize]
    }

    /// The value with its unit.
    pub fn value(&self, counter: Counter) -> CounterValue {
        let count = self.count(counter);
        match counter.unit() {
            Unit::Events => CounterValue::Events(count),
            Unit::Time => CounterValue::Seconds(Duration::from_micros(count).as_secs_f64()),
        }
    }

    pub(crate) fn add_words(&mut self, words: impl Iterator<Item = u64>) {
        for (sum, word) in self.0.iter_mut().zip(words) {
            *sum = sum.wrapping_add(word);
        }
    }
}

impl fmt::Display for CounterValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CounterValue::Events(count) => count.fmt(f),
            CounterValue::Seconds(seconds) => seconds.fmt(f),
        }
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let all = Counter::ALL.into_iter();
        serializer.collect_map(all.map(|counter| (counter.name(), self.value(counter))))
    }
}

impl<'de> Deserialize<'de> for Counters {
    /// Another version's counters may be others: a missing one is 0, an unknown one is skipped.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Counters, D::Error> {
        let values = BTreeMap::<String, CounterValue>::deserialize(deserializer)?;
        let word = |counter: Counter| match (counter.unit(), values.get(counter.name())) {
            (Unit::Events, Some(CounterValue::Events(count))) => *count,
            (Unit::Time, Some(CounterValue::Events(seconds))) => seconds.saturating_mul(1_000_000),
            (Unit::Time, Some(CounterValue::Seconds(seconds))) => (seconds * 1e6).round() as u64,
            (Unit::Events, Some(CounterValue::Seconds(_))) | (_, None) => 0,
        };
        Ok(Counters(Counter::ALL.map(word)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_back_from_json_as_they_were() {
        let mut words = [7; Counter::ALL.len()];
        words[Counter::LimitReached as usize] = 3;
        words[Counter::LifoTime as usize] = 1_500_000;
        let mut counters = Counters::default();
        counters.add_words(words.into_iter());
        let json = serde_json::to_string(&counters).unwrap();
        for part in [r#""limit_reached":3"#, r#""lifo_seconds":1.5"#] {
            assert!(json.contains(part), "{json}");
        }
        assert_eq!(serde_json::from_str::<Counters>(&json).unwrap(), counters);
        let other = r#"{"limit_reached":4,"of_a_later_version":1,"lifo_seconds":2}"#;
        let read: Counters = serde_json::from_str(other).unwrap();
        assert_eq!(read.count(Counter::LimitReached), 4);
        assert_eq!(read.value(Counter::LifoTime), CounterValue::Seconds(2.0));
    }

    #[test]
    fn names_are_prometheus_names_and_labels_fit_their_column() {
        for counter in Counter::ALL {
            let metric = counter.metric();
            assert!(metric.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'));
            assert_eq!(metric.contains("_seconds_"), counter.unit() == Unit::Time);
            assert!(counter.label().len() <= 14, "{}", counter.label());
            assert!(counter.help().ends_with('.'), "{}", counter.help());
        }
    }
}
