//! How fast requests for scripts come, by an access log: the common and the combined format, and every other with a
//! time in brackets and a request line in quotes.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::UNIX_EPOCH;

use super::world::World;
use crate::facts::{Arrivals, Known, Unknown};

/// The end of a log that is read, in bytes: an hour of a busy site, in a tenth of a second.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Fewer requests tell nothing of how they come.
const FEWEST: usize = 20;

/// An hour, in seconds.
const HOUR: u64 = 3_600;

/// The share of the gaps between requests that is looked at.
const MOST_GAPS: f64 = 0.95;

/// The months, as logs have them, from March on.
const MONTHS: [&str; 12] = [
    "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec", "Jan", "Feb",
];

/// What no script makes.
const FILES: [&str; 17] = [
    "css", "js", "map", "png", "jpg", "jpeg", "gif", "svg", "ico", "webp", "avif", "woff", "woff2",
    "ttf", "pdf", "zip", "txt",
];

/// What the end of a log says.
pub(super) fn arrivals(world: &World, file: &Path) -> Known<Arrivals> {
    let shown = file.display();
    let text =
        end_of(world, file).map_err(|why| Unknown(format!("{shown} cannot be read ({why})")))?;
    let seconds: Vec<u64> = text.lines().filter_map(second).collect();
    if seconds.len() < FEWEST {
        return Unknown::because(format!(
            "{shown} has {} requests for scripts that are understood; expected {FEWEST} or more lines such as \
             '192.0.2.1 - - [22/Nov/2026:07:00:00 +0000] \"GET / HTTP/1.1\" 200 5'",
            seconds.len()
        ));
    }
    Ok(of(&seconds))
}

fn end_of(world: &World, file: &Path) -> std::io::Result<String> {
    let path = world.path(&file.to_string_lossy());
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    file.seek(SeekFrom::Start(size.saturating_sub(MAX_BYTES)))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn of(seconds: &[u64]) -> Arrivals {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    let mut hours: BTreeMap<u64, u32> = BTreeMap::new();
    for second in seconds {
        *counts.entry(*second).or_default() += 1;
        *hours.entry(*second / HOUR).or_default() += 1;
    }
    // Nobody came in a second that the log does not have.
    let rise = counts.iter().skip(1).map(|(second, count)| {
        let before = counts.get(&(second - 1)).copied().unwrap_or(0);
        (count.saturating_sub(before), *second)
    });
    let (rise, at) = rise.max().unwrap_or_default();
    let mut sorted = seconds.to_vec();
    sorted.sort_unstable();
    let gaps = sorted.windows(2).map(|pair| (pair[1] - pair[0]) as f64);
    let span = (sorted.last().zip(sorted.first())).map_or(0, |(last, first)| last - first);
    let busiest = hours.values().max().copied().unwrap_or(0);
    Arrivals {
        requests: seconds.len() as u64,
        rise: f64::from(rise),
        rise_at: httpdate::fmt_http_date(UNIX_EPOCH + std::time::Duration::from_secs(at)),
        // A log of less than an hour has no more than its own time.
        busiest_rate: f64::from(busiest) / span.clamp(1, HOUR) as f64,
        gap_p95: crate::words::quantile(gaps.collect(), MOST_GAPS).unwrap_or(0.0),
    }
}

/// When a request for a script came, in seconds since 1970.
fn second(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once('[')?;
    let (time, _) = rest.split_once(']')?;
    let (_, rest) = line.split_once('"')?;
    let path = rest.split('"').next()?.split(' ').nth(1)?;
    if is_file(path) {
        return None;
    }
    moment(time)
}

/// `22/Nov/2026:07:00:00 +0000` in seconds since 1970.
fn moment(time: &str) -> Option<u64> {
    let (date, zone) = time.split_once(' ').unwrap_or((time, "+0000"));
    let mut parts = date.split(['/', ':']);
    let day: i64 = parts
        .next()?
        .parse()
        .ok()
        .filter(|day| (1..=31).contains(day))?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|name| *name == month)?;
    let mut number = |most: i64| {
        let number: i64 = parts.next()?.parse().ok()?;
        (0..=most).contains(&number).then_some(number)
    };
    let (year, hour, minute, second) = (number(9_999)?, number(23)?, number(59)?, number(60)?);
    // Years that begin in March have the leap day at their end: MONTHS begins there.
    let year = if month >= 10 { year - 1 } else { year };
    let of_year = (153 * i64::try_from(month).ok()? + 2) / 5 + day - 1;
    let days = year * 365 + year / 4 - year / 100 + year / 400 + of_year - 719_468;
    let local = days * 86_400 + hour * 3_600 + minute * 60 + second;
    u64::try_from(local - offset(zone)?).ok()
}

/// What a zone such as `+0130` is ahead, in seconds.
fn offset(zone: &str) -> Option<i64> {
    let number: i64 = zone.parse().ok()?;
    Some(number / 100 * 3_600 + number % 100 * 60)
}

fn is_file(path: &str) -> bool {
    let path = path.split('?').next().unwrap_or_default();
    let name = path.rsplit('/').next().unwrap_or_default();
    let end = name
        .rsplit_once('.')
        .map(|(_, end)| end.to_ascii_lowercase());
    end.is_some_and(|end| FILES.contains(&end.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn line(second: u32, path: &str) -> String {
        format!(
            "192.0.2.1 - - [22/Nov/2026:07:{:02}:{:02} +0100] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"-\"\n",
            second / 60,
            second % 60
        )
    }

    fn read(text: &str) -> Known<Arrivals> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("access.log");
        std::fs::write(&file, text).unwrap();
        arrivals(&World::new(None, Duration::from_secs(60)), &file)
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
        assert_eq!(found.rise_at, "Sun, 22 Nov 2026 06:02:00 GMT");
        assert!((found.busiest_rate - 140.0 / 120.0).abs() < 1e-9);
        assert_eq!(found.gap_p95, 1.0);
    }

    #[test]
    fn moments_are_those_of_the_calendar() {
        assert_eq!(moment("01/Jan/1970:00:00:01 +0000"), Some(1));
        assert_eq!(moment("29/Feb/2024:12:00:00 -0130"), Some(1_709_213_400));
        assert_eq!(moment("01/Mar/2024:00:00:00 +0000"), Some(1_709_251_200));
        assert_eq!(moment("32/Mar/2024:00:00:00 +0000"), None);
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
