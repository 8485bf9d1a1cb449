//! testssl.sh, which knows what is wrong with TLS on servers, finds nothing with ours.

use std::process::Command;

use maitred_tests::server::{Setup, document_root};
use maitred_tests::tls::{Authority, ECDSA, RSA};
use maitred_tests::{ports, wait};
use serde_json::Value;

/// How much a finding weighs that is not to be there.
const TOO_MUCH: [&str; 4] = ["MEDIUM", "HIGH", "CRITICAL", "FATAL"];

/// What is said of any certificate that no public authority has issued, and of any server whose
/// answers may be compressed: which of them hold secrets is the application's to know (BREACH).
const NOT_OURS: [&str; 4] = ["cert_revocation", "cert_chain_of_trust", "cert_ocsp", "BREACH"];

#[test]
fn testssl_finds_nothing_that_weighs_more_than_little() {
    let root = document_root(&[(
        "index.php",
        "<?php header('X-Frame-Options: DENY'); header('X-Content-Type-Options: nosniff');
         header(\"Content-Security-Policy: default-src 'self'\"); echo 'hello';",
    )]);
    let authority = Authority::default();
    let certificates = [
        authority.issue_as("ecdsa", &["localhost"], ECDSA, 90),
        authority.issue_as("rsa", &["localhost"], RSA, 90),
    ];
    let items: Vec<_> = certificates.iter().map(|one| one.toml()).collect();
    let lines = [format!("certificates = [{}]", items.join(", ")), "hsts = \"365d\"".to_owned()];
    let address = ports::free_address();
    let _server = Setup::new(root.path()).tls(address, &lines).start();
    let found = authority.folder().join("found.json");
    let output = Command::new("testssl")
        .args(["--quiet", "--color", "0", "--warnings", "batch", "--add-ca"])
        .arg(authority.ca())
        .arg("--jsonfile")
        .arg(&found)
        .arg(format!("localhost:{}", address.port()))
        .output();
    let output = output.expect("testssl runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let found = wait::until("its findings", || std::fs::read(&found).ok());
    let found: Vec<Value> = serde_json::from_slice(&found).expect("findings are JSON");
    let id = |finding: &Value| finding["id"].as_str().unwrap_or_default().to_owned();
    let is_much = |finding: &&Value| {
        let severity = finding["severity"].as_str().unwrap_or_default();
        let excused = NOT_OURS.iter().any(|known| id(finding).contains(known));
        TOO_MUCH.contains(&severity) && !excused
    };
    let much: Vec<&Value> = found.iter().filter(is_much).collect();
    assert!(much.is_empty(), "{much:#?}\n{said}");
    for looked_at in ["TLS1_3", "cipher_order", "secure_renego", "ROBOT", "heartbleed"] {
        let seen = found.iter().any(|finding| id(finding) == looked_at);
        assert!(seen, "{looked_at} was not looked at:\n{said}");
    }
}
