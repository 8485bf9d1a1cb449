//! `mode = "snapshot"` and boots that connect to a database: the log names the peer and the line,
//! or the connection is closed and opened again on demand. The reaction is the library's: phpredis,
//! Predis, Laravel's and Doctrine's are tried.

use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::thread;

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::mariadb::MariaDb;
use maitred_tests::project_root;
use maitred_tests::redis::Redis;
use maitred_tests::server::{Setup, document_root, give_to_web_user};
use maitred_tests::wait;
use serde_json::Value;

/// Connects in its fourth line, and again where the server has gone away, as Laravel and Doctrine
/// do.
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
echo json_encode(['boot' => $boot, 'gone' => $gone, 'own' => $first === id($database, $gone) ?
    $first : 0]);
"#;

/// A client of Redis that connects when it has no connection, or has lost it, as phpredis does.
const STORE: &str = r#"<?php
class Store {
    private $stream = null; public int $connected = 0;
    function increment(string $name): int {
        $sent = $this->stream && @fwrite($this->stream, "INCR $name\r\n");
        if ($sent && ($line = fgets($this->stream))) {
            return (int) substr($line, 1); }
        $this->connected++;
        $this->stream = stream_socket_client('unix://SOCKET');
        return $this->increment($name);
    }
}
$store = new Store;
$boot = $store->increment('boots');
maitred_snapshot();
echo json_encode(['boot' => $boot, 'gone' => $store->connected,
    'own' => $store->increment('requests') + $store->increment('others') * 1000,
    'connected' => $store->connected]);
"#;

/// What copies say of phpredis, which the boot has used.
const PHPREDIS: &str = r#"<?php
$redis = new Redis();
$redis->connect('SOCKET');
$boot = $redis->incr('boots');
maitred_snapshot();
echo json_encode(['boot' => $boot, 'count' => $redis->incr('requests'),
    'own' => $redis->rawCommand('CLIENT', 'ID')]);
"#;

/// What copies say of a database or store: which number their connection has there, at the first
/// and at the second question, and what the first of them has thrown.
const ASKS: &str = r#"
$boot = $ask();
LET_GO
maitred_snapshot();
$thrown = null;
try { $first = $ask(); } catch (Throwable $why) { $thrown = get_class($why); AGAIN;
$first = $ask(); }
echo json_encode(['boot' => $boot, 'thrown' => $thrown, 'own' => $first === $ask() ? $first : 0]);
"#;

const PREDIS: &str = r#"<?php
require '/usr/share/php/Predis/Autoloader.php';
Predis\Autoloader::register();
$redis = new Predis\Client(['scheme' => 'unix', 'path' => 'SOCKET']);
$ask = fn () => (int) $redis->executeRaw(['CLIENT', 'ID']);
"#;

/// Laravel's database, without the rest of it.
const ILLUMINATE: &str = r#"<?php
require '/usr/share/php/Illuminate/Database/autoload.php';
$capsule = new Illuminate\Database\Capsule\Manager;
$capsule->addConnection(['driver' => 'mysql', 'unix_socket' => 'SOCKET', 'database' => 'mysql',
    'username' => 'root', 'password' => '']);
$ask = fn () => (int) $capsule->getConnection()->select('SELECT CONNECTION_ID() AS id')[0]->id;
"#;

/// The same, within a transaction of its own.
const IN_A_TRANSACTION: &str = "
$query = $ask;
$ask = fn () => $capsule->getConnection()->transaction($query);
";

const DOCTRINE: &str = r#"<?php
require '/usr/share/php/Doctrine/DBAL/autoload.php';
$connection = Doctrine\DBAL\DriverManager::getConnection(['driver' => 'pdo_mysql', 'user' => 'root',
    'unix_socket' => 'SOCKET']);
$ask = fn () => (int) $connection->fetchOne('SELECT CONNECTION_ID()');
"#;

/// The number of its worker, and that of its persistent connection to a store.
const PERSISTENT: &str = r#"<?php
$store = pfsockopen('unix://SOCKET', -1);
fwrite($store, "CLIENT ID\r\n");
$id = trim(fgets($store));
if (PHP_SAPI !== 'cli' && isset($_SERVER['REQUEST_METHOD'])) {
    usleep(100_000);
    echo getmypid(), ' ', $id;
}
"#;

/// One pool that refuses what `script` has open, and one that closes it. Both have `lines`.
fn both(root: &Path, script: &str, lines: &[&str]) -> Setup {
    let script = format!("script = {:?}", root.join(script));
    let closes = ["mode = \"snapshot\"\nboot_connections = \"close\"", &script];
    let strict =
        ["[pools.strict]\npm = \"static\"\nmax_children = 1\nmode = \"snapshot\"", &script];
    let setup = Setup::new(root).workers(1).site("front_controller = \"/index.php\"");
    let all = [&closes[..], lines, &strict, lines].concat();
    all.iter().fold(setup, |setup, line| setup.pool(line))
}

/// The responses of four copies whose boot has connected to `socket`, in the line that the log
/// names with `kind`.
fn four_copies(
    root: &Path,
    lines: &[&str],
    (socket, kind): (&Path, &str),
    opened_at: &str,
) -> Vec<Value> {
    give_to_web_user(root);
    let server = both(root, "index.php", lines).start();
    let refused = server.expect_log(0, "PHP could not start for pool `strict`");
    let socket = socket.display();
    let opened = format!("a connection to {socket} ({kind}) ({opened_at}");
    assert!(refused.contains(&opened) && refused.contains(") is open"), "{opened} in {refused}");
    server.expect_log(0, &format!("connection to {socket} ({kind}) ("));
    let answers = (0..4).map(|_| {
        let answer = http::get(server.address(), "/");
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    });
    let answers = answers.collect();
    server.stop();
    answers
}

/// Each copy has a connection of its own, and not the boot's.
#[track_caller]
fn expect_connections_of_their_own(answers: &[Value]) {
    let mut connections = HashSet::new();
    for seen in answers {
        assert!(connections.insert(seen["own"].to_string()), "{seen}");
        assert!(seen["own"] != seen["boot"] && seen["own"] != 0, "{seen} has its own");
    }
}

#[test]
fn a_database_that_the_boot_has_asked_is_named_or_every_copy_connects_anew() {
    let database = MariaDb::start();
    let socket = database.socket();
    let script = DATABASE.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    let at = format!("{}:4", root.path().join("index.php").display());
    let answers = four_copies(root.path(), &[], (&socket, "MySQL"), &at);
    assert!(answers.iter().all(|seen| seen["gone"] == true));
    expect_connections_of_their_own(&answers);
}

#[test]
fn a_store_that_the_boot_has_used_is_named_or_every_copy_connects_anew() {
    let store = Redis::start();
    let socket = store.socket();
    let script = STORE.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    let at = format!("{}:9", root.path().join("index.php").display());
    let answers = four_copies(root.path(), &[], (&socket, "Redis"), &at);
    for (request, seen) in (1..).zip(answers) {
        assert_eq!((&seen["gone"], &seen["connected"]), (&1.into(), &2.into()));
        assert_eq!(seen["own"], request * 1001, "{seen}");
    }
}

#[test]
fn phpredis_connects_again_by_itself_in_every_copy() {
    let store = Redis::start();
    let socket = store.socket();
    let script = PHPREDIS.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    let extensions = root.path().join("extensions");
    std::fs::create_dir(&extensions).unwrap();
    // By name: phpredis as Debian builds it needs the first.
    for name in ["igbinary", "redis"] {
        let object = extensions.join(format!("{name}.so"));
        std::fs::copy(project_root().join(format!("target/tools/{name}.so")), &object)
            .expect("scripts/setup-test fetches it");
        let line = format!("extension={}\n", object.display());
        std::fs::write(extensions.join(format!("{name}.ini")), line).unwrap();
    }
    let lines = format!("php_ini_scan_dir = {extensions:?}");
    let at = format!("{}:3", root.path().join("index.php").display());
    let answers = four_copies(root.path(), &[&lines], (&socket, "Redis"), &at);
    for (request, seen) in (1..).zip(&answers) {
        assert_eq!(seen["count"], request, "{seen}");
    }
    let mut connections = HashSet::new();
    assert!(answers.iter().all(|seen| connections.insert(seen["own"].to_string())));
}

/// What copies say of a library in a folder of PHP's, which the boot has asked with.
fn copies_with(library: &str, script: &str, socket: (&Path, &str)) -> Vec<Value> {
    let script = [script, ASKS].concat();
    let script = script.replace("LET_GO", "").replace("AGAIN", "");
    copies_of(library, &script, socket)
}

/// What they say of themselves.
fn copies_of(library: &str, script: &str, (socket, kind): (&Path, &str)) -> Vec<Value> {
    let script = script.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    let library = format!("/usr/share/php/{library}/");
    let answers = four_copies(root.path(), &[], (socket, kind), &library);
    expect_connections_of_their_own(&answers);
    answers
}

#[test]
fn predis_tells_every_copy_that_its_connection_is_lost_and_connects_for_the_next_command() {
    let store = Redis::start();
    for seen in copies_with("Predis/Connection", PREDIS, (&store.socket(), "Redis")) {
        let thrown = "Predis\\Connection\\ConnectionException";
        assert_eq!(seen["thrown"], thrown, "{seen}");
    }
}

#[test]
fn laravels_database_connects_again_by_itself_in_every_copy() {
    let database = MariaDb::start();
    let library = "Illuminate/Database/Connectors";
    let in_a_transaction = [ILLUMINATE, IN_A_TRANSACTION].concat();
    for script in [ILLUMINATE, &in_a_transaction] {
        for seen in copies_with(library, script, (&database.socket(), "MySQL")) {
            assert_eq!(seen["thrown"], Value::Null, "{seen}");
        }
    }
}

#[test]
fn laravels_database_throws_in_every_copy_of_a_transaction_that_the_boot_has_begun() {
    let database = MariaDb::start();
    let asks = ASKS.replace("LET_GO", "$capsule->getConnection()->beginTransaction();");
    let asks = asks.replace("AGAIN", "$capsule->getConnection()->reconnect()");
    let (library, script) = ("Illuminate/Database/Connectors", [ILLUMINATE, &asks]);
    for seen in copies_of(library, &script.concat(), (&database.socket(), "MySQL")) {
        let thrown = "Illuminate\\Database\\QueryException";
        assert_eq!(seen["thrown"], thrown, "{seen}");
    }
}

#[test]
fn doctrine_tells_every_copy_that_its_connection_is_lost_and_connects_for_the_next_query() {
    let database = MariaDb::start();
    let socket = database.socket();
    for seen in copies_with("Doctrine/DBAL/Driver", DOCTRINE, (&socket, "MySQL")) {
        let thrown = "Doctrine\\DBAL\\Exception\\ConnectionLost";
        assert_eq!(seen["thrown"], thrown, "{seen}");
    }
}

/// A boot that has asked with a library and then closed its connection is copied.
#[track_caller]
fn expect_no_loss(script: &str, closes: &str, socket: &Path) {
    let script = [script, &ASKS.replace("LET_GO", closes)].concat();
    let script = script.replace("AGAIN", "");
    let script = script.replace("SOCKET", &socket.display().to_string());
    let root = document_root(&[("index.php", &script)]);
    give_to_web_user(root.path());
    let script = root.path().join("index.php");
    let server = Setup::new(root.path())
        .workers(1)
        .pool("mode = \"snapshot\"")
        .pool(&format!("script = {script:?}"))
        .start();
    let ask = || http::get(server.address(), "/").json();
    let answers: Vec<_> = std::iter::repeat_with(ask).take(4).collect();
    assert!(answers.iter().all(|seen| seen["thrown"].is_null()), "{answers:?}");
    expect_connections_of_their_own(&answers);
    server.stop();
}

#[test]
fn what_is_closed_before_the_snapshot_connects_in_every_copy_as_if_it_were_the_first_time() {
    let (database, store) = (MariaDb::start(), Redis::start());
    expect_no_loss(DOCTRINE, "$connection->close();", &database.socket());
    expect_no_loss(PREDIS, "$redis->disconnect();", &store.socket());
}

#[test]
fn workers_share_no_persistent_connection_that_preloading_has_opened() {
    let store = Redis::start();
    let script = PERSISTENT.replace("SOCKET", &store.socket().display().to_string());
    let root = document_root(&[("index.php", &script), ("preload.php", &script)]);
    give_to_web_user(root.path());
    let preload = format!("\"opcache.preload\" = {:?}", root.path().join("preload.php"));
    let server = Setup::new(root.path())
        .workers(2)
        .pool(&format!("php_admin_value = {{ {preload} }}"))
        .start();
    let mut connections: HashMap<String, HashSet<String>> = HashMap::new();
    wait::until_true("requests to both workers", || {
        let request = || http::get(server.address(), "/").text();
        let both = thread::scope(|scope| {
            let [first, second] = [(); 2].map(|()| scope.spawn(request));
            [first.join().expect("a response"), second.join().expect("a response")]
        });
        for text in both {
            let (worker, id) = text.split_once(' ').expect("two numbers");
            connections.entry(id.to_owned()).or_default().insert(worker.to_owned());
        }
        let workers: HashSet<&String> = connections.values().flatten().collect();
        workers.len() == 2
    });
    assert_eq!(connections.len(), 2, "{connections:?}");
    server.stop();
}
