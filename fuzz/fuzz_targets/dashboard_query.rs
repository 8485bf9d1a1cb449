//! A query of the dashboard has one value under its name, as it was encoded, or none.

#![no_main]

use libfuzzer_sys::fuzz_target;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

#[path = "../../crates/front/src/admin/dashboard/dashboard_queries.rs"]
mod dashboard_queries;

fuzz_target!(|query: &str| {
    if let Some(url) = dashboard_queries::purged_url(query) {
        assert!(url.len() <= query.len());
        let encoded = format!("url={}", utf8_percent_encode(&url, NON_ALPHANUMERIC));
        assert_eq!(dashboard_queries::purged_url(&encoded).as_deref(), Some(url.as_str()));
    }
    if let Some(number) = dashboard_queries::request_number(query) {
        assert_eq!(dashboard_queries::request_number(&format!("n={number}")), Some(number));
    }
    if let Some(pool) = dashboard_queries::chosen_pool(query) {
        assert_eq!(format!("pool={pool}"), query);
    }
});
