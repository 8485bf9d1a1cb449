//! Certificates and keys of an administrator or an authority, the certificate of a client, and what
//! other nodes share: each is used or refused, in one line and without a word of a key.

#![no_main]

use std::path::PathBuf;
use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use maitred_tls::{Pair, PemFile, SharedKey, host_names, variables};

static KEY: LazyLock<SharedKey> =
    LazyLock::new(|| SharedKey::of("0123456789abcdef0123456789abcdef").expect("a key"));

fuzz_target!(|input: &[u8]| {
    let file = |name: &str| PemFile::new(PathBuf::from(name), input);
    if let Err(fault) = host_names(&Pair::new(file("cert.pem"), file("key.pem"))) {
        let sentence = fault.to_string();
        assert!(!sentence.is_empty() && !sentence.contains(['\r', '\n']), "{sentence:?}");
    }
    for (name, value) in variables(Some(&input.to_vec().into())) {
        assert!(name.starts_with("SSL_CLIENT_") && !value.contains('\0'), "{name}: {value:?}");
    }
    let text = String::from_utf8_lossy(input);
    assert_eq!(KEY.open("certificate.a.example", &text), None);
    let sealed = KEY.seal("account", &text).expect("it can be sealed");
    assert_eq!(KEY.open("account", &sealed).as_deref(), Some(&*text));
    assert_eq!(KEY.open("proofs", &sealed), None);
});
