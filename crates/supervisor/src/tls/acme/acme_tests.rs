use maitred_control::shared_certificates::SharedRecord;
use maitred_os::channel::{Channel, Received};

use super::*;
use crate::tls::acme::shared_process::SharedProcess;

#[test]
fn only_what_authorities_can_look_for_is_shown_to_anybody() {
    let file = |token: &str, contents: &str| Proof::File {
        name: "a.com".to_owned(),
        token: token.to_owned(),
        contents: contents.to_owned(),
    };
    assert!(is_possible(&file("a-_9", "a-_9.Zz"), "a.com"));
    assert!(!is_possible(&file("a-_9", "a-_9.Zz"), "b.com"));
    assert!(!is_possible(&file("../a", "a.b"), "a.com"));
    assert!(!is_possible(&file("a", "<script>"), "a.com"));
    assert!(!is_possible(&file("a", &"b".repeat(10_000)), "a.com"));
    let of = |name: &str| Proof::Certificate { name: name.to_owned(), digest: [0; 32] };
    assert!(is_possible(&of("a.com"), "a.com"));
    assert!(!is_possible(&of("b.com"), "a.com"));
}

#[test]
fn an_account_that_is_not_stored_is_not_shared_either() {
    let spawned = std::process::Command::new("sleep").arg("600").spawn();
    let mut child = spawned.unwrap();
    let pid = i32::try_from(child.id()).unwrap();
    let ((acme, _acme), (shared, orders)) = (Channel::pair().unwrap(), Channel::pair().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut manager = AcmeManager {
        order: Some(RunningOrder {
            peer: Peer::over(pid, acme).unwrap(),
            name: "a.com".to_owned(),
            store: Store::at(folder.path()),
            key: Secret(String::new()),
            until: Moment::MAX,
            proofs: Vec::new(),
            publishing: None,
            accounts: 0,
        }),
        ..AcmeManager::default()
    };
    manager.sharing.process = SharedProcess::with_peer(Peer::over(pid, shared).unwrap());
    let long = "x".repeat(MAX_ACCOUNT_BYTES + 1);
    for account in [&long, "first", "second", "third"] {
        manager.keep_account(&Secret(account.to_owned()));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let mut written = 0;
    while let Received::Message(order, _) = orders.receive(false).unwrap() {
        let order: ToShared = serde_json::from_slice(&order).unwrap();
        assert!(matches!(order, ToShared::Write { record: SharedRecord::Account, .. }));
        written += 1;
    }
    assert_eq!(written, MAX_ACCOUNTS);
}

#[test]
fn waits_are_said_in_one_unit() {
    let said = [10, 119, 300, 7199, 7200, 43_200];
    let said = said.map(|seconds| in_words(Duration::from_secs(seconds)));
    assert_eq!(said, ["10 s", "119 s", "5 min", "119 min", "2 h", "12 h"]);
}
