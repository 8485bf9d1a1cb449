//! `mode = "snapshot"`: a session of the boot is no visitor's.

use maitred_tests::Target;
use maitred_tests::booted::{application, snapshot};
use maitred_tests::http::{self, Request, Response};
use maitred_tests::server::Server;
use serde_json::{Value, json};

/// Has a session at boot, in all the ways in which its id could reach a visitor.
const BOOT: &str =
    "ini_set('session.save_path', __DIR__); ini_set('session.use_only_cookies', '0');
    ini_set('session.use_trans_sid', '1');
    session_start(); $_SESSION['boot'] = 1; session_write_close(); header('X-Boot: 1');";

/// Has a session if it is to.
const SERVE: &str = "$before = [session_id(), isset($_SESSION), defined('SID') ? SID : ''];
    if (isset($_GET['session'])) { session_start(); $_SESSION['n'] = ($_SESSION['n'] ?? 0) + 1; }
    echo json_encode(['before' => $before, 'id' => session_id(), 'session' => $_SESSION ?? null]),
        '<form action=\"/page\"></form>';";

/// The page of a visitor with these cookies, and what the script says in it.
fn visit(server: &Server, target: &str, cookie: &str) -> (Response, Value) {
    let response = http::ask(server.address(), &Request::get(target).header("Cookie", cookie));
    let text = response.text();
    assert_eq!((response.status, response.header("X-Boot")), (200, Some("1")), "{text}");
    let (seen, _) = text.split_once('<').expect("a form");
    let seen: Value = serde_json::from_str(seen).expect("JSON");
    assert_eq!(seen["before"], json!(["", false, ""]));
    (response, seen)
}

#[test]
fn a_session_that_the_boot_has_closed_is_no_visitors() {
    for rewinds in [0, 100] {
        let root = application(BOOT, SERVE);
        let rewinds = format!("rewinds_per_child = {rewinds}");
        let server = snapshot(root.path()).workers(1).pool(&rewinds).start();
        let mut ids = vec!["mine".to_owned()];
        for _ in 0..3 {
            let (response, seen) = visit(&server, "/", "a=b");
            assert_eq!((response.header("Set-Cookie"), &seen["session"]), (None, &Value::Null));
            assert!(response.text().ends_with("<form action=\"/page\"></form>"), "{response:?}");

            let (response, seen) = visit(&server, "/?session", "a=b");
            let id = seen["id"].as_str().expect("an id").to_owned();
            let cookie = response.header("Set-Cookie").expect("a cookie");
            assert!(cookie.starts_with(&format!("PHPSESSID={id};")), "{id}: {cookie}");
            assert_eq!(response.all("Set-Cookie").count(), 1);
            assert_eq!(seen["session"], json!({"n": 1}));
            assert!(!ids.contains(&id), "{id} of {ids:?}");
            ids.push(id);
        }
        for n in 1..4 {
            let (response, seen) = visit(&server, "/?session", "PHPSESSID=mine");
            assert_eq!(seen["id"], "mine");
            assert_eq!((response.header("Set-Cookie"), &seen["session"]), (None, &json!({"n": n})));
        }
        server.stop();
    }
}
