//! Who may read what over the admin listener: what the scripts of one pool learn there of
//! another's.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use maitred_tests::dashboard_events::Events;
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, give_to_web_user, is_root, set_mode};
use maitred_tests::{Target, ports, wait};
use serde_json::{Value, json};
use tempfile::TempDir;

const TOKEN: &str = "uHqUJ3tnW6rQ0T1kVbcz";

/// `reset.php` waits until there is a file `go`; `spy.php` is another tenant's and asks the admin
/// listener for what the first is busy with.
fn scripts() -> TempDir {
    let root = document_root(&[
        (
            "reset.php",
            "<?php maitred_metric_add('orders'); touch(__DIR__ . '/began');
            for ($i = 0; $i < 5000 && !file_exists(__DIR__ . '/go'); $i++) {
                clearstatcache(); usleep(2000); } echo 'over';",
        ),
        (
            "spy.php",
            "<?php $context = stream_context_create(['http' => ['ignore_errors' => true]]);
             echo file_get_contents($_GET['url'], false, $context);",
        ),
    ]);
    give_to_web_user(root.path());
    root
}

/// A server with the pool `www` and one of another tenant's, who is another user if there can be
/// one.
fn setup(root: &Path, several_users: bool) -> Setup {
    let user = match several_users {
        true => "user = \"nobody\"",
        false => "",
    };
    Setup::new(root)
        .pool(&format!("[pools.spy]\npm = \"static\"\nmax_children = 1\n{user}"))
        .site("classic_paths = [\"/spy.php\"]\nclassic_pool = \"spy\"")
}

/// What another tenant's script sees of the pool `www` at `url` during a request with a secret.
fn spied(server: &Server, root: &Path, url: &str) -> String {
    let address = server.address();
    let asks = std::thread::spawn(move || http::get(address, "/reset.php?reset_token=SECRET"));
    wait::until_true("the request to run", || root.join("began").exists());
    let seen = http::get(address, &format!("/spy.php?url={url}")).text();
    fs::write(root.join("go"), "").unwrap();
    assert_eq!(asks.join().unwrap().text(), "over");
    fs::remove_file(root.join("go")).unwrap();
    fs::remove_file(root.join("began")).unwrap();
    seen
}

#[test]
fn no_script_reads_the_query_strings_of_other_pools() {
    let (root, listener) = (scripts(), ports::free_address());
    let server = setup(root.path(), false).top(&format!("admin = \"{listener}\"")).start();
    for form in ["full", "json%26full", "html%26full", "xml%26full"] {
        let seen = spied(&server, root.path(), &format!("http://{listener}/status/www?{form}"));
        assert!(seen.contains("reset.php?***"), "{seen}");
        assert!(!seen.contains("SECRET"), "{seen}");
    }
    server.stop();
}

#[test]
fn no_tenant_reads_what_requests_of_another_ask_for() {
    if !is_root() {
        eprintln!("skipped: pools of several users need root");
        return;
    }
    let (root, listener) = (scripts(), ports::free_address());
    let upstream = ports::free_address();
    let server = setup(root.path(), true)
        .top(&format!("admin = \"{listener}\""))
        .site(&format!("proxy = {{ path = \"/app/*\", to = \"http://{upstream}\" }}"))
        .site("[sites.cache]\nvalid = \"1m\"")
        .start();
    server.expect_log(0, "pools run as several users");
    assert_eq!(http::get(listener, "/metrics").status, 200);
    let seen = spied(&server, root.path(), &format!("http://{listener}/status/www?full"));
    assert!(seen.contains("Running"), "{seen}");
    assert!(!seen.contains("SECRET") && !seen.contains("reset.php"), "{seen}");
    let metrics = http::get(listener, "/metrics").text();
    assert!(metrics.contains("maitred_cache_pages{tier=\"memory\"} "), "{metrics}");
    assert!(!metrics.contains(&upstream.to_string()), "{metrics}");
    for of_tenants in ["reset.php", "site=", "server=", "\napp_"] {
        assert!(!metrics.contains(of_tenants), "{of_tenants} in {metrics}");
    }
    let state = Events::open(listener, "", "").next("state");
    assert!(state["cache"]["memory"].is_object(), "{state}");
    assert_eq!((&state["cache"]["sites"], &state["proxies"]), (&json!([]), &Value::Null));
    server.stop();
}

fn with_token(listener: SocketAddr, path: &str, token: &str) -> Response {
    let request = Request::get(path).header("Authorization", &format!("Bearer {token}"));
    http::ask(listener, &request)
}

#[test]
fn whoever_has_the_token_reads_everything_and_nobody_else_anything() {
    let (root, listener) = (scripts(), ports::free_address());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, format!("{TOKEN}\n")).unwrap();
    set_mode(&file, 0o600);
    let server = setup(root.path(), false)
        .top(&format!("admin = \"{listener}\"\nadmin_token_file = {file:?}"))
        .start();
    for path in ["/", "/metrics", "/status/www?full", "/ping/www", "/none"] {
        let refused = http::get(listener, path);
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header("WWW-Authenticate").unwrap().starts_with("Bearer"));
        assert_eq!(with_token(listener, path, "uHqUJ3tnW6rQ0T1kVbcx").status, 401, "{path}");
    }
    assert_eq!(with_token(listener, "/metrics", TOKEN).status, 200);
    let seen = spied(&server, root.path(), &format!("http://{listener}/status/www?full"));
    assert!(seen.contains("A token is needed here"), "{seen}");
    let address = server.address();
    let asks = std::thread::spawn(move || http::get(address, "/reset.php?reset_token=SECRET"));
    wait::until_true("the request to be seen", || {
        let page = with_token(listener, "/status/www?full", TOKEN);
        page.text().contains("reset.php?reset_token=SECRET")
    });
    fs::write(root.path().join("go"), "").unwrap();
    asks.join().unwrap();

    // Another token after the next reload; neither is logged.
    fs::write(&file, "anotherTokenOfEnoughLetters").unwrap();
    server.reload();
    assert_eq!(with_token(listener, "/metrics", TOKEN).status, 401);
    assert_eq!(with_token(listener, "/metrics", "anotherTokenOfEnoughLetters").status, 200);
    let log = server.log().since(0).join("\n");
    assert!(!log.contains(TOKEN) && !log.contains("anotherToken"), "{log}");
    server.stop();
}

#[test]
fn a_reload_that_changes_what_a_client_may_see_ends_its_stream() {
    let (root, listener) = (scripts(), ports::free_address());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    set_mode(&file, 0o600);
    let admin = format!("admin = \"{listener}\"");
    let server = setup(root.path(), false).top(&admin).start();
    let mut events = Events::open(listener, "", "");
    assert_eq!(events.next("state")["server"]["view"], "without queries");
    if is_root() {
        // A reload that changes none of its rights leaves it alone.
        server.reload();
        events.next("sample");
        server.configure(&setup(root.path(), true).top(&admin));
        assert!(server.reload().contains("reloaded"));
        events.wait_for_end();
        events = Events::open(listener, "", "");
        assert_eq!(events.next("state")["server"]["view"], "without requests");
    }
    let with_token = setup(root.path(), false).top(&admin);
    server.configure(&with_token.top(&format!("admin_token_file = {file:?}")));
    assert!(server.reload().contains("reloaded"));
    events.wait_for_end();
    assert_eq!(http::get(listener, "/dashboard/events").status, 401);

    let token = format!("Authorization: Bearer {TOKEN}\r\n");
    let mut events = Events::open(listener, "", &token);
    fs::write(&file, "anotherTokenOfEnoughLetters").unwrap();
    server.reload();
    events.wait_for_end();

    // Connections of before outlive the listener.
    let asked =
        Request::get("/metrics").header("Authorization", "Bearer anotherTokenOfEnoughLetters");
    let mut connection = Connection::open(listener);
    assert_eq!(connection.ask(&asked).unwrap().status, 200);
    let token = "Authorization: Bearer anotherTokenOfEnoughLetters\r\n";
    let mut events = Events::open(listener, "", token);
    server.configure(&setup(root.path(), false));
    assert!(server.reload().contains("reloaded"));
    events.wait_for_end();
    assert_eq!(connection.ask(&asked).unwrap().status, 421);
    server.stop();
}

/// What is answered over the Unix socket at `path`.
fn ask_socket(path: &Path, target: &str) -> String {
    let mut stream = UnixStream::connect(path).unwrap();
    let request =
        format!("GET {target} HTTP/1.1\r\nHost: any.example\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn over_a_unix_socket_the_system_says_who_may_read() {
    let root = scripts();
    let folder = tempfile::tempdir().unwrap();
    set_mode(folder.path(), 0o755);
    let path: PathBuf = folder.path().join("admin.sock");
    let on_socket = |path: &Path| {
        let lines = format!("admin = \"unix:{}\"\nadmin_mode = \"0666\"", path.display());
        setup(root.path(), false).top(&lines)
    };
    let server = on_socket(&path).start();
    let page = ask_socket(&path, "/metrics");
    assert!(page.starts_with("HTTP/1.1 200 ") && page.contains("maitred_info"), "{page}");
    if is_root() {
        let spy = "<?php $socket = stream_socket_client('unix://' . $_GET['path']);
            fwrite($socket, \"GET /status/www?full HTTP/1.0\\r\\n\\r\\n\");
            echo stream_get_contents($socket);";
        fs::write(root.path().join("spy.php"), spy).unwrap();
        let target = format!("/spy.php?path={}", path.display());
        let seen = http::get(server.address(), &target).text();
        assert!(seen.starts_with("HTTP/1.1 403 "), "{seen}");
        assert!(seen.contains("This user may not read what is here (admin_users)."), "{seen}");
        server.configure(&on_socket(&path).top("admin_users = [\"www-data\"]"));
        assert!(server.reload().contains("reloaded"));
        let seen = http::get(server.address(), &target).text();
        assert!(seen.starts_with("HTTP/1.1 200 "), "{seen}");
    }
    server.stop();
    assert!(!path.exists());
}
