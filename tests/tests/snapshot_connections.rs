//! `mode = "snapshot"` and boots that connect to a database: they are told who is at the other end and
//! which line has done it, or have the connection closed and connect again where they need it.

use std::collections::HashSet;
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::mariadb::MariaDb;
use maitred_tests::redis::Redis;
use maitred_tests::server::{Setup, document_root, give_to_web_user};
use serde_json::Value;

/// Connects in its fourth line, and again where the server has gone away, as Laravel and Doctrine do.
const DATABASE: &str = r#"<?php
mysqli_report(MYSQLI_REPORT_ERROR | MYSQLI_REPORT_STRICT);
function connect() {
    return new mysqli('localhost', 'root', '', '', 0, 'SOCKET');
}
function id(mysqli &$database, bool &$gone) {
    try {
        return (int) $database->query('SELECT CONNECTION_ID()')->fetch_row()[0];
    } catch (mysqli_sql_exception $why) {
        if ($gone || !in_array($why->getCode(), [2006, 2013])) { throw $why; }
        $gone = true;
        $database = connect();
        return id($database, $gone);
    }
}
$gone = false; $database = connect(); $boot = id($database, $gone);
maitred_snapshot();
$first = id($database, $gone);
echo json_encode(['boot' => $boot, 'gone' => $gone, 'own' => $first === id($database, $gone) ? $first : 0]);
"#;

/// A client of Redis that connects when it has no connection, or has lost it, as phpredis does.
const STORE: &str = r#"<?php
class Store {
    private $stream = null; public int $connected = 0;
    function increment(string $name): int {
        if ($this->stream && @fwrite($this->stream, "INCR $name\r\n") && ($line = fgets($this->stream))) {
            return (int) substr($line, 1);
        }
        $this->connected++;
        $this->stream = stream_socket_client('unix://SOCKET');
        return $this->increment($name);
    }
}
$store = new Store;
$boot = $store->increment('boots');
maitred_snapshot();
echo json_encode(['boot' => $boot, 'gone' => $store->connected, 'own' => $store->increment('requests')
    + $store->increment('others') * 1000, 'connected' => $store->connected]);
"#;

/// One pool that refuses what `script` has open, and one that closes it.
fn both(root: &Path, script: &str) -> Setup {
    let file = root.join(script);
    Setup::new(root)
        .workers(1)
        .pool("mode = \"snapshot\"\nboot_connections = \"close\"")
        .pool(&format!("script = {file:?}"))
        .pool("[pools.strict]\nmax_children = 1\nmode = \"snapshot\"")
        .pool(&format!("script = {file:?}"))
        .site("front_controller = \"/index.php\"")
}

/// What four copies say, whose boot was in the line that is told in the log with `kind`.
fn four_copies(root: &Path, socket: &Path, kind: &str, line: u32) -> Vec<Value> {
    give_to_web_user(root);
    let server = both(root, "index.php").start();
    let refused = server.expect_log(0, "PHP could not start for pool `strict`");
    let (socket, script) = (socket.display(), root.join("index.php"));
    let opened = format!(
        "a connection to {socket} ({kind}) ({}:{line}) is open",
        script.display()
    );
    assert!(refused.contains(&opened), "{opened} in {refused}");
    server.expect_log(0, &format!("the connection to {socket} ({kind}) ("));
    let answers = (0..4).map(|_| {
        let answer = http::get(server.address(), "/");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    });
    let answers = answers.collect();
    server.stop();
    answers
}

#[test]
fn a_database_that_the_boot_has_asked_is_named_or_every_copy_connects_anew() {
    let database = MariaDb::start();
    let socket = database.socket();
    let script = DATABASE.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    let mut connections = HashSet::new();
    for seen in four_copies(root.path(), &socket, "MySQL", 4) {
        assert_eq!(seen["gone"], true, "{seen}");
        assert!(connections.insert(seen["own"].to_string()), "{seen}");
        assert_ne!(seen["own"], seen["boot"], "{seen}");
    }
}

#[test]
fn a_store_that_the_boot_has_used_is_named_or_every_copy_connects_anew() {
    let store = Redis::start();
    let socket = store.socket();
    let script = STORE.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    for (request, seen) in (1..).zip(four_copies(root.path(), &socket, "Redis", 9)) {
        assert_eq!((&seen["gone"], &seen["connected"]), (&1.into(), &2.into()));
        assert_eq!(seen["own"], request * 1001, "{seen}");
    }
}
