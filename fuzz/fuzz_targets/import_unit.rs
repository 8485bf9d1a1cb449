//! For any configuration of Unit: the import ends, with an error or with a configuration that has
//! no syntax error of TOML.

#![no_main]

mod one_file;

use libfuzzer_sys::fuzz_target;
use one_file::{OneFile, check};

const MAIN: &str = "/var/lib/unit/conf.json";

fuzz_target!(|text: &str| {
    check(maitred_import::unit::import(&OneFile { path: MAIN, text }, MAIN));
});
