//! A booting script learns where it first reads its request, and its copies are made there.

use std::fs;

use maitred_tests::booted::{application, snapshot};
use maitred_tests::cached::{self, is_hit};
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::server::{Setup, give_to_web_user};
use maitred_tests::{Target, wait};
use serde_json::json;

/// Everything that reads a request, or what differs from one to the next, and some that does not.
const READS: &str = r#"
    $seen = [];
    maitred_before_request_read(function ($what, $key) use (&$seen) {
        $seen[] = $key === null ? $what : "$what.$key";
        $_SERVER['REQUEST_URI'];
        return true;
    });
    function of_the_request($key) {
        $a = [$_GET['a'] ?? '', isset($_COOKIE['b']), empty($_POST), $_SERVER['HTTP_HOST']];
        foreach ($_SERVER as $name => $value) { break; }
        return [$a, array_key_exists('d', $_REQUEST), $_GET[$key] ?? '', count($_FILES)];
    }
    of_the_request(strrev("c"));
    $_GET['mine'] = 1;
    filter_input(INPUT_GET, 'a'); getenv('HTTP_HOST'); getenv('PATH'); getallheaders();
    file_get_contents('php://input'); file_get_contents(__FILE__);
    md5_file('php://input'); md5_file(__FILE__); file('php://filter/resource=PHP://input');
    new SplFileObject('php://input'); new SplFileObject(__FILE__);
    time(); date('Y', 0); date('Y'); new DateTime(); new DateTimeImmutable('2026-01-01');
    @gmstrftime('%Y', 0); @gmstrftime('%Y'); DateTime::createFromFormat('H:i', '00:00');
    if ($seen) { class Day extends DateTimeImmutable {} }
    Day::createFromFormat('H:i', '00:00');
    getmypid();
    random_int(1, 2); mt_rand(); uniqid(); new Random\Randomizer(); session_create_id();
    (new Random\Engine\Secure)->generate();
    strlen('a'); $local = ['a' => 1]; $local['a'];
"#;

#[test]
fn a_boot_learns_of_every_read_of_its_request() {
    let serve = "$_GET['a']; time(); $year = Day::createFromFormat('Y', '2026')->format('Y');
        echo json_encode([...$seen, (new Day(\"$year-01-01\"))->format('Y')]);";
    let root = application(READS, serve);
    let server = snapshot(root.path()).workers(1).start();
    let expected = json!([
        "_GET.a",
        "_COOKIE.b",
        "_POST",
        "_SERVER.HTTP_HOST",
        "_SERVER",
        "_REQUEST",
        "_GET",
        "_FILES",
        "_GET",
        "filter_input",
        "getenv",
        "getallheaders",
        "file_get_contents",
        "md5_file",
        "file",
        "SplFileObject",
        "time",
        "date",
        "DateTime",
        "DateTimeImmutable",
        "gmstrftime",
        "DateTime::createFromFormat",
        "DateTimeImmutable::createFromFormat",
        "getmypid",
        "random_int",
        "mt_rand",
        "uniqid",
        "Random\\Randomizer",
        "session_create_id",
        "Random\\Engine\\Secure::generate",
        "2026",
    ]);
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/").json(), expected);
    }
    server.stop();
}

#[test]
fn copies_are_made_in_the_middle_of_an_expression_that_reads_the_request() {
    let root = application("", "");
    let script = r#"<?php
        file_put_contents(__DIR__ . '/boots', 'x', FILE_APPEND);
        $ready = maitred_before_request_read(function ($what, $key) use (&$where) {
            $where = "$what.$key";
            maitred_snapshot();
            return false;
        });
        function asked($prefix) { return $prefix . ($_GET['n'] ?? 'none') . '!'; }
        $said = asked('request ');
        $also = asked('again ');
        echo json_encode([$ready, $where, $said, $also]);"#;
    fs::write(root.path().join("index.php"), script).unwrap();
    let server = snapshot(root.path()).workers(2).pool("rewinds_per_child = 10").start();
    for n in 0..12 {
        let seen = http::get(server.address(), &format!("/?n={n}")).json();
        let said = [format!("request {n}!"), format!("again {n}!")];
        assert_eq!(seen, json!([true, "_GET.n", said[0], said[1]]));
    }
    assert_eq!(fs::read(root.path().join("boots")).unwrap(), b"x");
    server.stop();
}

#[test]
fn an_exception_before_a_read_is_thrown_where_the_script_reads() {
    let root = application(
        "maitred_before_request_read(function ($what) { throw new Exception($what); });
         $caught = [];
         try { $_GET['a'] ?? ''; } catch (Exception $e) { $caught[] = $e->getMessage(); }
         try { time(); } catch (Exception $e) { $caught[] = $e->getMessage(); }",
        "$caught[] = $_GET['n']; echo json_encode($caught);",
    );
    let server = snapshot(root.path()).workers(1).start();
    assert_eq!(http::get(server.address(), "/?n=1").json(), json!(["_GET", "time", "1"]));
    server.stop();
}

#[test]
fn a_request_that_a_copy_leaves_to_the_classic_pool_is_served_there_with_its_body() {
    let root = application(
        "",
        "if (isset($_GET['other'])) { header('X-Accel-Redirect: @classic'); echo 'no'; exit; }
         echo 'of a copy';",
    );
    let classic = "<?php echo json_encode([$_SERVER['REQUEST_METHOD'], $_SERVER['REQUEST_URI'],
        $_POST, function_exists('maitred_snapshot')]);";
    fs::write(root.path().join("page.php"), classic).unwrap();
    let server = snapshot(root.path())
        .workers(1)
        .pool("[pools.classic]\npm = \"static\"\nmax_children = 1")
        .site("classic_paths = [\"/nowhere/\"]")
        .site("classic_pool = \"classic\"")
        .start();
    let form = "application/x-www-form-urlencoded";
    for n in 0..3 {
        let body = format!("a={n}");
        let request = Request::post("/page.php?other=1", form, body.as_bytes());
        let response = http::ask(server.address(), &request);
        let expected = json!(["POST", "/page.php?other=1", {"a": n.to_string()}, false]);
        assert_eq!(response.json(), expected);
        assert_eq!(response.header("X-Accel-Redirect"), None);
        assert_eq!(http::get(server.address(), "/page.php").text(), "of a copy");
    }
    server.stop();
}

#[test]
fn the_cache_learns_from_the_classic_pool_what_it_learns_from_every_script() {
    let root = application(
        "",
        "if ($_SERVER['REQUEST_METHOD'] === 'POST' || isset($_GET['login'])) {
             header('X-Accel-Redirect: @classic'); exit;
         }
         echo file_get_contents(__DIR__ . '/data'), ' for ', $_COOKIE['mp_auth'] ?? 'all';",
    );
    let classic = "<?php
        if (isset($_GET['login'])) { setcookie('mp_auth', 'alice'); exit('logged in'); }
        touch(__DIR__ . '/begun');
        while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); }
        file_put_contents(__DIR__ . '/data', 'new');
        echo 'changed';";
    let path = |name: &str| root.path().join(name);
    fs::write(path("page.php"), classic).unwrap();
    fs::write(path("data"), "old").unwrap();
    give_to_web_user(root.path());
    give_to_web_user(&path("data"));
    let server = snapshot(root.path())
        .workers(1)
        .pool("[pools.classic]\npm = \"static\"\nmax_children = 1")
        .site("classic_paths = [\"/nowhere/\"]\nclassic_pool = \"classic\"")
        .site("[sites.cache]\nvalid = \"10m\"")
        .start();
    // A page that is made while the request that changes it runs is of before the change.
    let mut changing = Connection::open(server.address());
    let post = Request::post("/page.php", "text/plain", b"x");
    changing.send(&post.to_bytes()).unwrap();
    wait::until_true("the change to begin", || path("begun").exists());
    assert_eq!(cached::get(&server, "/page.php").text(), "old for all");
    assert!(is_hit(&cached::get(&server, "/page.php")));
    fs::write(path("go"), "").unwrap();
    assert_eq!(changing.read_response(false).unwrap().text(), "changed");
    assert_eq!(cached::get(&server, "/page.php").text(), "new for all");
    // The page of a visitor who is logged in is no page for all.
    let login = cached::get(&server, "/page.php?login=1");
    assert!(login.header("Set-Cookie").is_some() && login.text() == "logged in");
    let hers = cached::with(&server, "/page.php?other=1", &[("Cookie", "mp_auth=alice")]);
    assert_eq!(hers.text(), "new for alice");
    assert_eq!(cached::get(&server, "/page.php?other=1").text(), "new for all");
    server.stop();
}

#[test]
fn a_reload_that_changes_the_mode_of_a_pool_alone_gives_its_site_the_classic_pool() {
    let root = application("", "header('X-Accel-Redirect: @classic');");
    fs::write(root.path().join("page.php"), "<?php echo 'of the classic pool';").unwrap();
    let with_classic = |setup: Setup| {
        let setup = setup.pool("[pools.classic]\npm = \"static\"\nmax_children = 1");
        setup.site("classic_paths = [\"/nowhere/\"]\nclassic_pool = \"classic\"")
    };
    let classic = Setup::new(root.path()).workers(1).site("front_controller = \"/index.php\"");
    let server = with_classic(classic).start();
    assert_eq!(http::get(server.address(), "/page.php").text(), "of the classic pool");
    server.configure(&with_classic(snapshot(root.path()).workers(1)));
    assert!(server.reload().contains("reloaded"));
    assert_eq!(http::get(server.address(), "/page.php").text(), "of the classic pool");
    server.stop();
}

#[test]
fn closures_that_a_boot_makes_of_functions_call_them_in_its_copies() {
    let boot = "maitred_before_request_read(fn () => true);
        $now = time(...); $bytes = Closure::fromCallable('random_bytes');";
    let serve = "echo json_encode([is_int($now()), strlen((string) $bytes(8))]);";
    let root = application(boot, serve);
    let server = snapshot(root.path()).workers(1).start();
    for _ in 0..2 {
        assert_eq!(http::get(server.address(), "/").text(), "[true,8]");
    }
}
