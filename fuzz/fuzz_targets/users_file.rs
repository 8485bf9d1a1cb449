//! A file of users is read, or refused with a line that it has; the names in it are as many as its
//! lines at most, and its hashes are those of the text.
#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_rules::htpasswd::Users;

fuzz_target!(|text: &str| {
    for parsed in [Users::parse(text), Users::parse_as_apache(text)] {
        match parsed {
            Ok(users) => {
                assert!(users.len() <= text.lines().count());
                for name in text.lines().filter_map(|line| line.split(':').next()) {
                    if let Some(attempt) = users.attempt(name, b"secret") {
                        let _ = attempt.hash().len();
                    }
                }
            }
            Err((line, why)) => assert!(line <= text.lines().count() + 1 && !why.is_empty()),
        }
    }
});
