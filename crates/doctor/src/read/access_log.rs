//! The rate of requests for scripts, from an access log in the common or combined format, or any
//! other with a time in brackets and a request line in quotes.

use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_os::clock::local_iso_8601;
use maitred_os::walk::{self, Rule};
use maitred_text::access_log::Entry;

use super::world::World;
use crate::facts::{Arrivals, Fact, Unknown};

/// Bytes read from the end of a log: an hour of a busy site, in a tenth of a second.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Fewer requests show no rate.
const FEWEST: usize = 20;

/// An hour, in seconds.
const HOUR: u64 = 3_600;

/// A log may come from another machine with another clock; a time after tomorrow is invalid, in
/// seconds.
const DAY: u64 = 86_400;

/// Extensions of static files. `xml` is not among them: site maps and feeds come from scripts
/// mostly.
const FILES: [&str; 21] = [
    "css", "js", "mjs", "map", "png", "jpg", "jpeg", "gif", "svg", "ico", "webp", "avif", "mp4",
    "webm", "woff", "woff2", "ttf", "eot", "pdf", "zip", "txt",
];

/// The rate by the end of a log.
pub(super) fn arrivals(world: &World, file: &Path) -> Fact<Arrivals> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    arrivals_until(world, file, now.map_or(0, |now| now.as_secs()) + DAY)
}

/// The same up to a second since 1970.
fn arrivals_until(world: &World, file: &Path, last: u64) -> Fact<Arrivals> {
    let shown = file.display();
    let text =
        end_of(world, file).map_err(|why| Unknown(format!("{shown} cannot be read ({why})")))?;
    let mut seconds: Vec<u64> = text.lines().filter_map(second).collect();
    seconds.retain(|second| *second <= last);
    if seconds.len() < FEWEST {
        return Unknown::because(format!(
            "{shown} has {} requests for scripts that are understood; expected {FEWEST} or more \
             lines such as '192.0.2.1 - - [22/Nov/2026:07:00:00 +0000] \"GET / HTTP/1.1\" 200 5'",
            seconds.len()
        ));
    }
    Ok(of(&seconds))
}

fn end_of(world: &World, file: &Path) -> std::io::Result<String> {
    let path = world.path(&file.to_string_lossy());
    let mut file = walk::open_to_read(&path, Rule::of_reader())?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn of(seconds: &[u64]) -> Arrivals {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for second in seconds {
        *counts.entry(*second).or_default() += 1;
    }
    // A second that the log does not have had no request.
    let rise = counts.iter().skip(1).map(|(second, count)| {
        let before = counts.get(&(second - 1)).copied().unwrap_or(0);
        (count.saturating_sub(before), *second)
    });
    let (rise, at) = rise.max().unwrap_or_default();
    let mut sorted = seconds.to_vec();
    sorted.sort_unstable();
    let gaps = sorted.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let span = (sorted.last().zip(sorted.first())).map_or(0, |(last, first)| last - first);
    Arrivals {
        requests: seconds.len() as u64,
        rise: f64::from(rise),
        rise_at: local_iso_8601(at.cast_signed()),
        // A log of less than an hour covers its own time only.
        busiest_rate: busiest_hour(&sorted) as f64 / span.clamp(1, HOUR) as f64,
        gaps: gaps.collect(),
    }
}

/// The most of sorted seconds within any hour.
fn busiest_hour(sorted: &[u64]) -> usize {
    let mut first = 0;
    let within = sorted.iter().enumerate().map(|(last, second)| {
        while second - sorted[first] >= HOUR {
            first += 1;
        }
        last + 1 - first
    });
    within.max().unwrap_or(0)
}

/// The time of a request for a script, in seconds since 1970.
fn second(line: &str) -> Option<u64> {
    let entry = Entry::parse(line).filter(|entry| !is_file(entry.path))?;
    u64::try_from(entry.second).ok()
}

/// Whether a path has the file extension of a static file.
pub fn is_file(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name.rsplit_once('.').map(|(_, end)| end.to_ascii_lowercase());
    end.is_some_and(|end| FILES.contains(&end.as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The end of the day of [`line`].
    const LAST: u64 = 1_795_392_000;

    fn line(second: u32, path: &str) -> String {
        format!(
            "192.0.2.1 - - [22/Nov/2026:07:{:02}:{:02} +0100] \"GET {path} HTTP/1.1\" 200 5 \"-\" \
             \"-\"\n",
            second / 60,
            second % 60
        )
    }

    fn read(text: &str) -> Fact<Arrivals> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        std::fs::write(&file, text).unwrap();
        arrivals_until(&World::new(None, Duration::from_secs(60)), &file, LAST)
    }

    #[test]
    fn a_burst_and_the_busiest_time_are_found_and_files_are_no_requests_for_scripts() {
        let mut text = String::new();
        for second in 0..100 {
            text += &line(second, "/");
            text += &line(second, "/style.css?v=2");
        }
        for _ in 0..40 {
            text += &line(120, "/goods/7");
        }
        let found = read(&text).unwrap();
        assert_eq!((found.requests, found.rise), (140, 40.0));
        assert!(found.rise_at.starts_with("2026-11-2"), "{}", found.rise_at);
        assert!((found.busiest_rate - 140.0 / 120.0).abs() < 1e-9);
        assert_eq!(found.gap_p95(), 1.0);
    }

    #[test]
    fn what_is_to_come_yet_is_left_out() {
        let mut text: String = (0..30).map(|second| line(second, "/")).collect();
        let expected = read(&text).unwrap();
        text += &line(31, "/").repeat(20).replace("/Nov/2026:", "/Dec/9999:");
        assert_eq!(read(&text), Ok(expected));
    }

    #[test]
    fn the_busiest_hour_begins_when_requests_do_and_not_when_the_clock_strikes() {
        let around: Vec<u64> = (0..3_600).map(|second| HOUR / 2 + second).collect();
        assert_eq!(busiest_hour(&around), 3_600);
        let rare: Vec<u64> = (0..10).map(|hour| hour * HOUR).collect();
        assert_eq!((busiest_hour(&rare), busiest_hour(&[])), (1, 0));
    }

    #[test]
    fn files_are_told_from_scripts() {
        for file in ["/a/b.PNG?x=1", "/a.mp4", "/a/module.mjs", "/robots.txt"] {
            assert!(is_file(file), "{file}");
        }
        for script in ["/a.b/c", "/index.php", "/wp-sitemap.xml", "/feed.xml?x=a.css"] {
            assert!(!is_file(script), "{script}");
        }
    }

    #[test]
    fn a_log_of_another_format_and_one_that_is_not_there_tell_nothing_and_why() {
        let other = read("{\"ts\": 1, \"path\": \"/\"}\n").unwrap_err();
        assert!(other.0.contains("has 0 requests for scripts"), "{other:?}");
        let world = World::new(None, Duration::from_secs(60));
        let none = arrivals(&world, Path::new("/no/such/log")).unwrap_err();
        assert!(none.0.contains("cannot be read"), "{none:?}");
    }
}
