//! What the less trusted processes report to the supervisor, which runs as root: each report means
//! the same when it is written and read again.

#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::fuzz_target;
use maitred_control::acme::FromAcme;
use maitred_control::purge_log::FromPurgeLog;
use maitred_control::shared_certificates::FromShared;
use maitred_control::{FromFront, FromZygote};
use serde::Serialize;
use serde::de::DeserializeOwned;

fn check<R: Serialize + DeserializeOwned + Debug>(bytes: &[u8]) {
    let Ok(report) = serde_json::from_slice::<R>(bytes) else { return };
    let text = serde_json::to_string(&report).expect("a report can be written");
    let again: R = serde_json::from_str(&text).expect("and read");
    assert_eq!(serde_json::to_string(&again).expect("again"), text);
}

fuzz_target!(|bytes: &[u8]| {
    check::<FromFront>(bytes);
    check::<FromZygote>(bytes);
    check::<FromAcme>(bytes);
    check::<FromPurgeLog>(bytes);
    check::<FromShared>(bytes);
});
