//! Any line of php-fpm's configuration is read or refused, and what is read holds no line break
//! that it did not have.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_config::fpm::{Statement, access_format::AccessFormat, read_line};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let line = text.lines().next().unwrap_or_default();
    let variable = |name: &str| (name.len() % 2 == 0).then(|| name.to_owned());
    let (statements, _) = read_line(line, &variable);
    assert_eq!(statements, read_line(line, &variable).0);
    // A statement takes a character at least, and an `=` or a bracket more.
    assert!(statements.len() <= line.len());
    for statement in &statements {
        if let Statement::Item { value, .. } = statement {
            let _ = AccessFormat::parse(value);
        }
    }
});
