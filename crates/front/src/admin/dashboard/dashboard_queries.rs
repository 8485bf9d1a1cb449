//! The queries of the dashboard's paths. Strangers write them, so they are fuzzed by themselves
//! (`fuzz/fuzz_targets/dashboard_query.rs`).

use percent_encoding::percent_decode_str;

/// The address of the pages to purge; none: it is no text.
pub fn purged_url(query: &str) -> Option<String> {
    let url = query.strip_prefix("url=")?;
    Some(percent_decode_str(url).decode_utf8().ok()?.into_owned())
}

/// The number of a request.
pub fn request_number(query: &str) -> Option<u64> {
    query.strip_prefix("n=")?.parse().ok()
}

/// The pool whose details are wanted.
pub fn chosen_pool(query: &str) -> Option<&str> {
    query.strip_prefix("pool=").filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_one_value_under_its_name() {
        assert_eq!(purged_url("url=a.example/%C3%A4?n=1"), Some("a.example/ä?n=1".to_owned()));
        assert_eq!((purged_url("url=%ff"), purged_url("x=1")), (None, None));
        assert_eq!((request_number("n=7"), request_number("n=-1")), (Some(7), None));
        assert_eq!((chosen_pool("pool=www"), chosen_pool("pool=")), (Some("www"), None));
    }
}
