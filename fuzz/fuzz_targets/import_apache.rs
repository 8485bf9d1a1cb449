//! For any configuration of Apache: the import ends, with an error or with a configuration that
//! has no syntax error of TOML.

#![no_main]

mod one_file;

use libfuzzer_sys::fuzz_target;
use one_file::{OneFile, check};

const MAIN: &str = "/etc/apache2/apache2.conf";

fuzz_target!(|text: &str| {
    check(maitred_import::apache::import(&OneFile { path: MAIN, text }, MAIN, &[]));
});
