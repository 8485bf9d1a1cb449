//! For any Caddyfile: the import ends, with an error or with a configuration that has no syntax
//! error of TOML.

#![no_main]

mod one_file;

use libfuzzer_sys::fuzz_target;
use maitred_import::caddy::CaddySource;
use one_file::{OneFile, check};

const MAIN: &str = "/etc/caddy/Caddyfile";

fuzz_target!(|text: &str| {
    check(maitred_import::caddy::import(&CaddySource {
        files: &OneFile { path: MAIN, text },
        main: MAIN,
        php_fpm: &[],
        environment: &|name| (name == "A").then(|| "a.example".to_owned()),
    }));
});
