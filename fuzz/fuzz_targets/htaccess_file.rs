//! For any `.htaccess` file and any request: the evaluation ends, by a decision, and what a file
//! above denies to all is not served by one that the server cannot understand.

#![no_main]

mod htaccess_world;

use htaccess_world::{Files, decide};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    // The first line is the target of the request.
    let end = input.iter().position(|byte| *byte == b'\n').unwrap_or(0);
    let (target, text) = input.split_at(end);
    for ignores_unknown in [false, true] {
        let files = Files { text, ignores_unknown };
        let outcome = decide(&files, target);
        if ignores_unknown && text.starts_with(b"\nOrder nonsense\n") {
            htaccess_world::check_denied(&outcome);
        }
    }
});
