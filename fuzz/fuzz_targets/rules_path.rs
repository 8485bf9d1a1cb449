//! A path means one name, however it is written, and what is encoded of it means the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_rules::path::{clean_path, encode_path, is_dot_name, is_php_source};

fuzz_target!(|input: &[u8]| {
    let text = String::from_utf8_lossy(input);
    let Ok(clean) = clean_path(&text) else {
        return;
    };
    let bytes = clean.as_bytes();
    assert_eq!(bytes.first(), Some(&b'/'));
    assert!(clean.names_end() <= bytes.len());
    assert!(bytes.iter().all(|&byte| byte >= b' ' && byte != 0x7f));
    let names: Vec<&[u8]> = bytes[1..].split(|&byte| byte == b'/').collect();
    for (number, name) in names.iter().enumerate() {
        assert!(!matches!(*name, b"." | b".."));
        assert!(!name.is_empty() || number + 1 == names.len());
    }
    let _ = (is_php_source(bytes), is_dot_name(bytes));
    let encoded = encode_path(bytes);
    assert!(encoded.bytes().all(|byte| byte.is_ascii_graphic()));
    assert!(!encoded.starts_with("//") && !encoded.contains('\\'));
    let again = clean_path(&encoded).expect("what is encoded can be read");
    assert_eq!(again.as_bytes(), bytes);
    assert_eq!(again.ends_with_slash(), clean.ends_with_slash());
});
