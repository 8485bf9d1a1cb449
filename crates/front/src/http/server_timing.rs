//! The `Server-Timing` header (W3C Server Timing §3.1): the parts of a request's time, for the
//! developer tools of browsers. Durations are in milliseconds.

use std::fmt::Write;
use std::time::Duration;

use maitred_seat::Spent;

/// The header's name.
pub const NAME: &[u8] = b"Server-Timing";

/// The header value for a request that waited `queued` for a worker and has the cost `spent`.
/// Unknown parts are left out.
pub fn value(queued: Duration, spent: &Spent) -> String {
    let children = Some(spent.children).filter(|time| !time.is_zero());
    let all = [
        ("queue", Some(queued)),
        ("script", Some(spent.held)),
        ("cpu", Some(spent.cpu)),
        ("core_wait", spent.core_wait),
        ("blocked", spent.blocked()),
        ("children_cpu", children),
    ];
    let mut value = String::with_capacity(128);
    for (name, time) in all {
        let Some(time) = time else { continue };
        let comma = if value.is_empty() { "" } else { ", " };
        let micros = time.as_micros();
        // Writing to memory cannot fail.
        let _ = write!(value, "{comma}{name};dur={}.{:03}", micros / 1000, micros % 1000);
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_in_milliseconds() {
        let spent = Spent {
            held: Duration::from_micros(105_020),
            cpu: Duration::from_micros(4_993),
            core_wait: Some(Duration::ZERO),
            ..Spent::default()
        };
        assert_eq!(
            value(Duration::from_micros(12), &spent),
            "queue;dur=0.012, script;dur=105.020, cpu;dur=4.993, core_wait;dur=0.000, \
             blocked;dur=100.027"
        );
        let spent = Spent { core_wait: None, children: Duration::from_millis(2), ..spent };
        assert_eq!(
            value(Duration::ZERO, &spent),
            "queue;dur=0.000, script;dur=105.020, cpu;dur=4.993, children_cpu;dur=2.000"
        );
    }
}
