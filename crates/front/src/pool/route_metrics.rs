//! Request times by route: `/product/17` and `/product/18` are both `/product/*`. The tables are
//! bounded, whatever paths clients request.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use maitred_scoreboard::RequestTimes;

/// Maximum number of routes of a pool with separate statistics.
pub const MAX_CLASSES: usize = 32;

/// The route for all paths beyond that maximum.
pub const OTHERS: &str = "other";

/// Segments of a path in a route; deeper ones are `/**`.
const MAX_DEPTH: usize = 3;

/// Longest segment that is a name, in bytes.
const MAX_SEGMENT_BYTES: usize = 32;

/// A segment with more dashes is a title.
const MAX_DASHES: usize = 2;

/// Evictions after which all scores are halved, so that old traffic loses its weight.
const FORGETS_AFTER: u32 = 1024;

/// The bounds of the histogram, as powers of two in microseconds: 1 ms to 17 s.
pub const POWERS: [u32; 8] = [10, 12, 14, 16, 18, 20, 22, 24];

/// The parts of a request's time, by name.
pub const PARTS: [&str; 5] = ["queue", "cpu", "core_wait", "blocked", "children_cpu"];

/// The statistics of a route.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RouteStats {
    /// Requests.
    pub requests: u64,
    /// Histogram of script times: the number of scripts in each bucket of [`POWERS`].
    pub below: [u64; POWERS.len()],
    /// Total script time.
    pub script: Duration,
    /// Its parts, in the order of [`PARTS`].
    pub parts: [Duration; PARTS.len()],
    /// Memory of the script with the most, in bytes.
    pub peak_memory: u64,
}

impl RouteStats {
    fn count(&mut self, took: &RequestTimes, script: Duration) {
        let micros = script.as_micros();
        self.requests += 1;
        self.script += script;
        self.peak_memory = self.peak_memory.max(took.peak_memory);
        if let Some(place) = POWERS.iter().position(|power| micros < 1 << power) {
            self.below[place] += 1;
        }
        let known = |time: Option<Duration>| time.unwrap_or_default();
        let (core_wait, blocked) = (known(took.core_wait), known(took.blocked));
        let parts = [took.waited, known(took.cpu), core_wait, blocked, took.children];
        for (sum, part) in self.parts.iter_mut().zip(parts) {
            *sum += part;
        }
    }

    fn add(&mut self, other: &RouteStats) {
        self.requests += other.requests;
        self.peak_memory = self.peak_memory.max(other.peak_memory);
        self.script += other.script;
        for (sum, more) in self.below.iter_mut().zip(other.below) {
            *sum += more;
        }
        for (sum, more) in self.parts.iter_mut().zip(other.parts) {
            *sum += more;
        }
    }
}

/// The routes of a pool. Each thread counts separately, starting with the first
/// [`RouteClasses::read`].
#[derive(Debug)]
pub struct RouteClasses {
    is_wanted: AtomicBool,
    tables: Vec<Mutex<RouteTable>>,
}

#[derive(Debug, Default)]
struct RouteTable {
    classes: HashMap<String, RouteClass>,
    others: RouteStats,
    gone: u32,
}

#[derive(Debug, Default)]
struct RouteClass {
    /// Recent requests.
    score: u32,
    stats: RouteStats,
}

thread_local! {
    /// A buffer for the route of a request, which mostly exists already.
    static NAME: RefCell<String> = const { RefCell::new(String::new()) };
}

impl RouteClasses {
    /// No routes, for a front of `threads` threads.
    pub fn new(threads: u32) -> RouteClasses {
        RouteClasses {
            is_wanted: AtomicBool::new(false),
            tables: (0..threads).map(|_| Mutex::default()).collect(),
        }
    }

    /// Counts a finished request for `target`. Call it on the thread that served it.
    pub fn count(&self, thread: u32, target: &str, took: &RequestTimes) {
        if !self.is_wanted.load(Ordering::Relaxed) {
            return;
        }
        let (Some(table), Some(script)) = (self.tables.get(thread as usize), took.script) else {
            return;
        };
        NAME.with_borrow_mut(|name| {
            name_class(target, name);
            lock(table).stats(name).count(took, script);
        });
    }

    /// The statistics by route, the busiest first. Counting starts with the first call.
    pub fn read(&self) -> Vec<(String, RouteStats)> {
        self.is_wanted.store(true, Ordering::Relaxed);
        self.counted()
    }

    /// The same, without a start of counting.
    pub fn counted(&self) -> Vec<(String, RouteStats)> {
        let mut all: HashMap<String, RouteStats> = HashMap::new();
        let mut others = RouteStats::default();
        for table in &self.tables {
            let table = lock(table);
            others.add(&table.others);
            for (name, class) in &table.classes {
                all.entry(name.clone()).or_default().add(&class.stats);
            }
        }
        let mut all: Vec<(String, RouteStats)> = all.into_iter().collect();
        all.sort_by(|a, b| b.1.requests.cmp(&a.1.requests).then(a.0.cmp(&b.0)));
        for (_, rest) in all.drain(MAX_CLASSES.min(all.len())..) {
            others.add(&rest);
        }
        if others.requests > 0 {
            all.push((OTHERS.to_owned(), others));
        }
        all
    }
}

fn lock(table: &Mutex<RouteTable>) -> MutexGuard<'_, RouteTable> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RouteTable {
    /// The statistics of a route. A new one evicts the least frequent one: in a flood of made-up
    /// paths these evict each other.
    fn stats(&mut self, name: &str) -> &mut RouteStats {
        if !self.classes.contains_key(name) {
            if self.classes.len() == MAX_CLASSES {
                self.make_room();
            }
            self.classes.insert(name.to_owned(), RouteClass::default());
        }
        match self.classes.get_mut(name) {
            Some(class) => {
                class.score = class.score.saturating_add(1);
                &mut class.stats
            }
            None => &mut self.others,
        }
    }

    fn make_room(&mut self) {
        let least = self.classes.iter().min_by_key(|(_, class)| class.score);
        let Some(name) = least.map(|(name, _)| name.clone()) else {
            return;
        };
        if let Some(class) = self.classes.remove(&name) {
            self.others.add(&class.stats);
        }
        self.gone += 1;
        if self.gone.is_multiple_of(FORGETS_AFTER) {
            self.classes.values_mut().for_each(|class| class.score /= 2);
        }
    }
}

/// Writes the route of a request's target: its path without the parts of a single page.
pub(crate) fn name_class(target: &str, name: &mut String) {
    name.clear();
    let path = target.split(['?', '#']).next().unwrap_or(target);
    // The absolute form names the host first (RFC 9112 §3.2.2).
    let path = match path.split_once("://") {
        Some((_, rest)) => rest.find('/').map_or("/", |at| &rest[at..]),
        None => path,
    };
    let mut segments = path.split('/').filter(|segment| !segment.is_empty());
    for segment in segments.by_ref().take(MAX_DEPTH) {
        name.push('/');
        name.push_str(if is_name(segment) { segment } else { "*" });
    }
    if segments.next().is_some() {
        name.push_str("/**");
    } else if name.is_empty() || path.ends_with('/') {
        name.push('/');
    }
}

/// Whether a segment names a part of an application rather than one of many items: no number, no
/// title, no code. Versions of an API (`v2`) are names.
fn is_name(segment: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~-".contains(&byte);
    let is_version = segment.strip_prefix('v').is_some_and(|number| {
        (1..=3).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit())
    });
    let has_digit = segment.bytes().any(|byte| byte.is_ascii_digit());
    let dashes = segment.bytes().filter(|byte| *byte == b'-').count();
    segment.len() <= MAX_SEGMENT_BYTES
        && segment.bytes().all(is_plain)
        && (is_version || !has_digit)
        && dashes <= MAX_DASHES
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn class(target: &str) -> String {
        let mut name = "left over".to_owned();
        name_class(target, &mut name);
        name
    }

    fn took(script: Duration) -> RequestTimes {
        RequestTimes {
            waited: MILLISECOND,
            script: Some(script),
            cpu: Some(script / 2),
            core_wait: Some(Duration::ZERO),
            blocked: Some(script / 2),
            ..RequestTimes::default()
        }
    }

    #[test]
    fn what_only_one_page_has_is_left_out() {
        for (target, expected) in [
            ("/", "/"),
            ("", "/"),
            ("*", "/*"),
            ("/index.php?p=17", "/index.php"),
            ("/product/17", "/product/*"),
            ("/product/17/", "/product/*/"),
            ("/wp-admin/admin-ajax.php", "/wp-admin/admin-ajax.php"),
            ("/api/v2/users/7/orders", "/api/v2/users/**"),
            ("/2026/11/how-to-sell-more-books/", "/*/*/*/"),
            ("/caf%C3%A9", "/*"),
            ("//a//b", "/a/b"),
            ("http://shop.example:81/cart?x=http://y/z", "/cart"),
            ("http://shop.example", "/"),
            ("/a\"}b\n", "/*"),
        ] {
            assert_eq!(class(target), expected, "{target}");
        }
        assert_eq!(class(&format!("/{}", "a".repeat(33))), "/*");
    }

    #[test]
    fn nothing_is_counted_before_somebody_has_asked() {
        let classes = RouteClasses::new(2);
        classes.count(0, "/cart", &took(MILLISECOND));
        assert!(classes.read().is_empty());
        classes.count(0, "/cart", &took(MILLISECOND));
        classes.count(1, "/cart?x", &took(5 * MILLISECOND));
        classes.count(1, "/cart", &RequestTimes::default());
        classes.count(9, "/cart", &took(MILLISECOND));
        let read = classes.read();
        let (name, stats) = &read[0];
        assert_eq!((read.len(), name.as_str()), (1, "/cart"));
        assert_eq!((stats.requests, stats.script), (2, 6 * MILLISECOND));
        assert_eq!(stats.below[..3], [1, 0, 1]);
        assert_eq!(stats.parts[0], 2 * MILLISECOND);
        assert_eq!(stats.parts[1], 3 * MILLISECOND);
    }

    #[test]
    fn a_flood_of_paths_pushes_nothing_out_that_is_asked_for_and_no_request_is_lost() {
        let classes = RouteClasses::new(1);
        classes.read();
        let letters = |number: u32| {
            let letter = |digit: u32| char::from(b'a' + (number / 10_u32.pow(digit) % 10) as u8);
            (0..5).map(letter).collect::<String>()
        };
        for number in 0..20_000 {
            classes.count(0, &format!("/{}", letters(number)), &took(MILLISECOND));
            if number % 10 == 0 {
                classes.count(0, "/cart", &took(MILLISECOND));
            }
        }
        let read = classes.read();
        assert_eq!(read.len(), MAX_CLASSES + 1);
        assert_eq!((read[0].0.as_str(), read[0].1.requests), ("/cart", 2_000));
        let (name, _) = read.last().unwrap();
        assert_eq!(name, OTHERS);
        let all: u64 = read.iter().map(|(_, stats)| stats.requests).sum();
        assert_eq!(all, 22_000);
    }
}
