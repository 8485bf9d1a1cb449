//! The port to which peers connect.

use std::net::{SocketAddr, TcpListener};

use maitred_tests::processes::{Process, Signal};
use maitred_tests::wait;

use super::{Cluster, await_everywhere, await_hit, get, purge, purges_process};

/// Whether another program can listen there.
fn is_free(address: SocketAddr) -> bool {
    TcpListener::bind(address).is_ok()
}

#[test]
fn nothing_else_gets_the_port_while_the_process_of_the_log_is_replaced_or_the_program_is() {
    let cluster = Cluster::new(&[false, false]);
    let (server, other) = (cluster.start(0), cluster.start(1));
    let at = cluster.places[0].peer;
    await_everywhere(&server);
    let supervisor = server.supervisor();
    supervisor.signal(Signal::STOP);
    let first = purges_process(&server);
    first.signal(Signal::KILL);
    wait::until_true("the end of the process", || {
        Process::read(first.pid).is_none_or(|process| process.state == 'Z')
    });
    assert!(!is_free(at), "without a process");
    supervisor.signal(Signal::CONT);
    wait::until_true("the next process", || {
        assert!(!is_free(at), "before the next process");
        purges_process(&server) != first
    });
    await_everywhere(&server);

    let mark = server.log().mark();
    server.signal(Signal::USR2);
    wait::until_true("the upgrade", || {
        assert!(!is_free(at), "during an upgrade");
        server.log().since(mark).iter().any(|line| line.contains("upgraded to"))
    });
    assert!(server.reload().contains("reloaded"));
    assert!(!is_free(at), "after a reload");
    await_everywhere(&server);
    await_hit(&server, "/a");
    assert_eq!(purge(&other, "a.example/a").0, Some(0));
    server.stop();
    assert!(is_free(at), "after a stop");
}

#[test]
fn an_address_of_the_log_that_another_program_has_is_said_and_got_when_it_is_free() {
    let cluster = Cluster::new(&[false, false]);
    let at = cluster.places[0].peer;
    let holder = TcpListener::bind(at).expect("it is free");
    let (server, _other) = (cluster.start(0), cluster.start(1));
    let line = server.expect_log(0, "cannot be listened on");
    let said = format!("`purge_log.listen`, {at}, cannot be listened on: Address already in use");
    assert!(line.contains(&said), "{line}");
    assert_eq!(get(&server, "/a"), "1", "the site is served without cached pages");
    drop(holder);
    await_everywhere(&server);
}
