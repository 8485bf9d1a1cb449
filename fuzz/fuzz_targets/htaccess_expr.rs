//! For any expression (ap_expr): it is parsed or refused, and its evaluation ends.

#![no_main]

mod htaccess_world;

use htaccess_world::{Files, decide};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if input.contains(&b'\n') {
        return;
    }
    let text = [b"Require expr ", input, b"\nHeader set X \"%{env:x}e\" \"expr=", input, b"\"\n"];
    let files = Files { text: &text.concat(), ignores_unknown: true };
    decide(&files, b"/a/page.html?x=1");
});
