//! Whatever a node with the secret sends: it is read within its limits, and the logs act on it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_purgelog::fuzzing::{is_written_as_read, read_messages};

fuzz_target!(|bytes: &[u8]| {
    assert!(is_written_as_read(bytes));
    read_messages(bytes);
});
