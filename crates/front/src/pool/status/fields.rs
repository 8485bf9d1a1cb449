//! The fields of a status page: php-fpm's, with its names, in its order.

use std::borrow::Cow;
use std::fmt;

use maitred_seat::WorkerState;

use crate::pool::status::Status;
use crate::runtime::clock::common_log_time;

/// The field with the path and the query of a worker's request.
pub const REQUEST_URI: &str = "request uri";

/// The value of a field.
#[derive(Debug, PartialEq)]
pub enum StatusValue<'s> {
    /// Text from any source, without characters that one of the formats cannot represent.
    Text(Cow<'s, str>),
    /// A number.
    Number(u64),
    /// A time in seconds since 1970: a date in text and HTML, a number in the other formats.
    Time(u64),
    /// A share in per cent.
    Share(f64),
}

/// A field: its name in text and HTML, and its value.
pub type StatusField<'s> = (&'static str, StatusValue<'s>);

impl StatusValue<'_> {
    /// The value in text and HTML: a time is a local date, as in php-fpm.
    pub fn for_people(&self) -> String {
        match self {
            StatusValue::Time(second) => common_log_time(*second),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for StatusValue<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusValue::Text(text) => out.write_str(text),
            StatusValue::Number(number) | StatusValue::Time(number) => number.fmt(out),
            StatusValue::Share(share) => write!(out, "{share:.2}"),
        }
    }
}

/// The pool's fields.
pub fn of_pool(status: &Status) -> Vec<StatusField<'_>> {
    let figures = &status.figures;
    let total = u64::from(figures.idle) + u64::from(figures.active);
    let number = |number: u32| StatusValue::Number(number.into());
    let mut fields = vec![
        ("pool", text(&status.pool)),
        ("process manager", text(status.process_manager)),
        ("start time", StatusValue::Time(figures.start_time)),
        ("start since", StatusValue::Number(figures.start_since)),
        ("accepted conn", StatusValue::Number(figures.accepted)),
        ("listen queue", number(figures.queued)),
        ("max listen queue", number(figures.max_queued)),
        ("listen queue len", number(figures.queue_limit)),
        ("idle processes", number(figures.idle)),
        ("active processes", number(figures.active)),
        ("total processes", StatusValue::Number(total)),
        ("max active processes", number(figures.max_active)),
        ("max children reached", number(figures.max_children_reached)),
        ("slow requests", StatusValue::Number(figures.slow)),
    ];
    if status.shows_memory_peak {
        fields.push(("memory peak", StatusValue::Number(figures.memory_peak)));
    }
    fields
}

/// A worker's fields.
pub fn of_worker(process: &WorkerState) -> [StatusField<'_>; 13] {
    let state = if process.running { "Running" } else { "Idle" };
    [
        ("pid", StatusValue::Number(process.pid.into())),
        ("state", text(state)),
        ("start time", StatusValue::Time(process.start_time)),
        ("start since", StatusValue::Number(process.start_since)),
        ("requests", StatusValue::Number(process.requests)),
        ("request duration", StatusValue::Number(process.duration)),
        ("request method", text(&process.method)),
        (REQUEST_URI, target(process)),
        ("content length", StatusValue::Number(process.content_length)),
        ("user", text(&process.user)),
        ("script", text(&process.script)),
        // Measured only if the page is in use: it costs each request system calls.
        ("last request cpu", StatusValue::Share(process.cpu_share())),
        ("last request memory", StatusValue::Number(process.memory_peak)),
    ]
}

fn target(process: &WorkerState) -> StatusValue<'_> {
    if process.uri.is_empty() || process.query.is_empty() {
        return text(&process.uri);
    }
    let target = format!("{}?{}", process.uri, process.query);
    StatusValue::Text(Cow::Owned(text(&target).to_string()))
}

/// Text that every format can carry: without line ends, terminal control codes, and characters that
/// XML 1.0 §2.2 excludes. An empty text is a dash.
fn text(text: &str) -> StatusValue<'_> {
    let is_unfit = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    StatusValue::Text(if text.is_empty() {
        Cow::Borrowed("-")
    } else if text.contains(is_unfit) {
        Cow::Owned(text.replace(is_unfit, "?"))
    } else {
        Cow::Borrowed(text)
    })
}
