//! The client's own deadline: `request_deadline_header`. It can only shorten a request's time, so
//! any client is trusted.

use std::time::Duration;

use maitred_http1::Head;

use crate::http::headers::first_field;

/// Headers of a request.
pub trait Fields: Sync {
    /// The value of a header, if it is text.
    fn field(&self, name: &str) -> Option<String>;
}

impl Fields for Head {
    fn field(&self, name: &str) -> Option<String> {
        first_field(self, name).map(str::to_owned)
    }
}

/// The headers of a request for several waiting clients: no single client's deadline applies.
pub struct SharedDeadline;

impl Fields for SharedDeadline {
    fn field(&self, _name: &str) -> Option<String> {
        None
    }
}

/// The budget in a header's value: the time from now for which the response is wanted, zero if it
/// no longer is. In milliseconds (as Envoy's `X-Envoy-Expected-Rq-Timeout-Ms`), or with the unit
/// `ms` or `s`. A value too large to count is unlimited; an invalid one is ignored.
pub fn budget(value: &str) -> Option<Duration> {
    let value = value.trim_matches([' ', '\t']);
    let (value, is_over) = match value.strip_prefix('-') {
        Some(value) => (value, true),
        None => (value, false),
    };
    let (digits, millis) = match value.strip_suffix("ms") {
        Some(digits) => (digits, 1),
        None => match value.strip_suffix('s') {
            Some(digits) => (digits, 1000),
            None => (value, 1),
        },
    };
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    if is_over {
        return Some(Duration::ZERO);
    }
    let count = digits.parse::<u64>().unwrap_or(u64::MAX);
    Some(Duration::from_millis(count.saturating_mul(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_budget_is_in_milliseconds_or_has_a_unit() {
        let millis = |value| budget(value).map(|budget| budget.as_millis());
        assert_eq!(millis("250"), Some(250));
        assert_eq!(millis(" 250ms\t"), Some(250));
        assert_eq!(millis("3s"), Some(3000));
        assert_eq!(millis("0"), Some(0));
    }

    #[test]
    fn one_that_is_over_is_none_and_one_beyond_all_bounds_is_for_ever() {
        assert_eq!(budget("-1"), Some(Duration::ZERO));
        assert_eq!(budget("-9999999999999999999999s"), Some(Duration::ZERO));
        let forever = Some(Duration::from_millis(u64::MAX));
        assert_eq!(budget("99999999999999999999999999"), forever);
        assert_eq!(budget("18446744073709551615s"), forever);
    }

    #[test]
    fn what_is_no_time_says_nothing() {
        for value in
            ["", "soon", "1.5", "1e3", "+5", "--5", "ms", "s", "5 s", "5m", "-", "0x10", "٣"]
        {
            assert_eq!(budget(value), None, "{value:?}");
        }
    }
}
