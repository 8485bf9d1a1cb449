//! The fields of a status page: php-fpm's, with its names, in its order.

use std::borrow::Cow;
use std::fmt;

use maitred_seat::Process;

use crate::pool::status::Status;
use crate::runtime::clock::local_log_time;

/// The field with the path and the query that a worker was asked for.
pub const REQUEST_URI: &str = "request uri";

/// What a field may hold.
#[derive(Debug, PartialEq)]
pub enum Value<'s> {
    /// Text, of anybody's making but without what no format can carry.
    Text(Cow<'s, str>),
    /// A number.
    Number(u64),
    /// A moment in seconds since 1970: a date for people, a number for programs.
    Time(u64),
    /// A share in per cent.
    Share(f64),
}

/// A field: its name as text and HTML have it, and its value.
pub type Field<'s> = (&'static str, Value<'s>);

impl Value<'_> {
    /// The value for people: a moment is a date where the machine is, as in php-fpm.
    pub fn for_people(&self) -> String {
        match self {
            Value::Time(second) => local_log_time(*second),
            other => other.to_string(),
        }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => out.write_str(text),
            Value::Number(number) | Value::Time(number) => number.fmt(out),
            Value::Share(share) => write!(out, "{share:.2}"),
        }
    }
}

/// The pool's fields.
pub fn of_pool(status: &Status) -> [Field<'_>; 14] {
    let figures = &status.figures;
    let total = u64::from(figures.idle) + u64::from(figures.active);
    let number = |number: u32| Value::Number(number.into());
    [
        ("pool", text(&status.pool)),
        ("process manager", text(status.process_manager)),
        ("start time", Value::Time(figures.start_time)),
        ("start since", Value::Number(figures.start_since)),
        ("accepted conn", Value::Number(figures.accepted)),
        ("listen queue", number(figures.queued)),
        ("max listen queue", number(figures.max_queued)),
        ("listen queue len", number(figures.queue_limit)),
        ("idle processes", number(figures.idle)),
        ("active processes", number(figures.active)),
        ("total processes", Value::Number(total)),
        ("max active processes", number(figures.max_active)),
        ("max children reached", number(figures.max_children_reached)),
        ("slow requests", Value::Number(figures.slow)),
    ]
}

/// A worker's fields.
pub fn of_worker(process: &Process) -> [Field<'_>; 13] {
    let state = if process.running { "Running" } else { "Idle" };
    [
        ("pid", Value::Number(process.pid.into())),
        ("state", text(state)),
        ("start time", Value::Time(process.start_time)),
        ("start since", Value::Number(process.start_since)),
        ("requests", Value::Number(process.requests)),
        ("request duration", Value::Number(process.duration)),
        ("request method", text(&process.method)),
        (REQUEST_URI, target(process)),
        ("content length", Value::Number(process.content_length)),
        ("user", text(&process.user)),
        ("script", text(&process.script)),
        // Measured where somebody is shown it: that costs each request system calls.
        ("last request cpu", Value::Share(process.cpu_share())),
        ("last request memory", Value::Number(process.memory_peak)),
    ]
}

fn target(process: &Process) -> Value<'_> {
    if process.uri.is_empty() || process.query.is_empty() {
        return text(&process.uri);
    }
    let target = format!("{}?{}", process.uri, process.query);
    Value::Text(Cow::Owned(text(&target).to_string()))
}

/// Text as every format can carry it: nothing in it ends a line, moves a terminal's cursor, or is
/// a character that XML 1.0 §2.2 excludes. What there is none of is a dash.
fn text(text: &str) -> Value<'_> {
    let is_unfit = |c: char| c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    Value::Text(if text.is_empty() {
        Cow::Borrowed("-")
    } else if text.contains(is_unfit) {
        Cow::Owned(text.replace(is_unfit, "?"))
    } else {
        Cow::Borrowed(text)
    })
}
