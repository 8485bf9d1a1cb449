//! Who a client is, how often it may ask, and whether it is let in.

use std::fs;
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::rules::{USER, basic, said, serve, serve_with, with_header};
use maitred_tests::server::{Server, Setup, document_root, public_folder, write_file};
use maitred_tests::wait;
use maitred_tests::{Target, run_maitred};
use tempfile::TempDir;

/// A file that was changed a shorter time ago is not cached.
const SETTLED: Duration = Duration::from_millis(100);

fn site() -> TempDir {
    document_root(&[
        ("index.php", "<?php echo json_encode($_SERVER);"),
        ("other.php", "<?php require 'index.php';"),
        ("style.css", "p {}"),
        (
            "wait.php",
            "<?php while (!file_exists(__DIR__ . '/go')) { clearstatcache(); usleep(2000); } \
             echo 'done';",
        ),
    ])
}

/// A server whose site has these lines, and `/index.php` for every path that is no file.
fn serve_application(root: &TempDir, lines: &[&str]) -> Server {
    let setup = Setup::new(root.path());
    lines.iter().fold(setup, |setup, line| setup.site(line)).start()
}

#[test]
fn clients_are_told_apart_by_their_networks() {
    let root = site();
    let server = serve_with(
        &root,
        &["trusted_proxies = \"127.0.0.1\""],
        &["allow = [\"10.0.0.0/8\", \"2001:db8::/32\"]", "deny = \"10.6.0.0/16\""],
    );
    for (client, status) in [
        ("10.1.2.3", 200),
        ("2001:db8::7", 200),
        ("10.6.0.1", 403),
        ("192.0.2.1", 403),
        ("10.1.2.3, 192.0.2.1", 403),
    ] {
        let answer = with_header(server.address(), "/style.css", "X-Forwarded-For", client);
        assert_eq!(answer.status, status, "{client}");
    }
    assert_eq!(http::get(server.address(), "/style.css").status, 403);
}

#[test]
fn only_a_trusted_proxy_is_believed() {
    let root = site();
    let ask = |server: &Server| {
        let request = Request::get("/index.php")
            .header("X-Forwarded-For", "198.51.100.9, 192.0.2.1")
            .header("X-Forwarded-Proto", "https")
            .header("X-Forwarded-Host", "evil.example");
        http::ask(server.address(), &request).json()
    };
    let seen = ask(&serve(&root, &[]));
    assert_eq!((&seen["REMOTE_ADDR"], seen.get("HTTPS")), (&"127.0.0.1".into(), None));
    let seen = ask(&serve_with(&root, &["trusted_proxies = \"127.0.0.0/8\""], &[]));
    assert_eq!(seen["REMOTE_ADDR"], "192.0.2.1");
    assert_eq!(
        (&seen["HTTPS"], &seen["REQUEST_SCHEME"], &seen["SERVER_PORT"]),
        (&"on".into(), &"https".into(), &"443".into())
    );
    assert_ne!(seen["HTTP_HOST"], "evil.example", "X-Forwarded-Host is not among trusted_headers");
    let seen = ask(&serve_with(&root, &["trusted_proxies = \"10.0.0.0/8\""], &[]));
    assert_eq!(seen["REMOTE_ADDR"], "127.0.0.1");
}

#[test]
fn the_proxy_protocol_says_whose_a_connection_is() {
    let root = site();
    let top = ["trusted_proxies = \"127.0.0.1\"", "proxy_protocol = true"];
    let server = serve_with(&root, &top, &[]);
    let request = Request::get("/index.php").to_bytes();
    let mut binary = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    binary.extend_from_slice(&[192, 0, 2, 2, 10, 0, 0, 1, 0x12, 0x67, 0, 80]);
    let text = b"PROXY TCP4 192.0.2.1 10.0.0.1 4711 80\r\n".to_vec();
    for (header, client) in [(text, "192.0.2.1"), (binary, "192.0.2.2")] {
        let mut connection = Connection::open(server.address());
        connection.send(&[&header[..], &request].concat()).expect("it is taken");
        let first = connection.read_response(false).expect("an answer comes").json();
        assert_eq!(
            (&first["REMOTE_ADDR"], &first["REMOTE_PORT"]),
            (&client.into(), &"4711".into())
        );
        connection.send(&request).expect("the connection is kept");
        let second = connection.read_response(false).expect("an answer comes").json();
        assert_eq!(second["REMOTE_ADDR"], client);
    }
    // In two pieces: it is one header all the same.
    let mut connection = Connection::open(server.address());
    connection.send(b"PROXY TCP4 192.0.2.3 10.0.").expect("it is taken");
    connection.send(&[&b"0.1 4711 80\r\n"[..], &request].concat()).expect("it is taken");
    let seen = connection.read_response(false).expect("an answer comes").json();
    assert_eq!(seen["REMOTE_ADDR"], "192.0.2.3");

    let mark = server.log().mark();
    let mut connection = Connection::open(server.address());
    let _ = connection.send(&request);
    assert!(connection.is_closed_by_server(), "without a header nothing is answered");
    server.expect_log(mark, "it did not start with the PROXY protocol");
}

#[test]
fn who_asks_too_often_is_told_when_to_come_back() {
    let root = site();
    let server = serve_with(
        &root,
        &["trusted_proxies = \"127.0.0.1\""],
        &["rate_limit = { path = \"/index.php\", rate = \"1/m\", burst = 2 }"],
    );
    let ask = |client: &str| with_header(server.address(), "/index.php", "X-Forwarded-For", client);
    let statuses: Vec<u16> = (0..5).map(|_| ask("192.0.2.1").status).collect();
    assert_eq!(statuses, [200, 200, 200, 429, 429]);
    let refused = ask("192.0.2.1");
    let wait: u64 = refused.header("Retry-After").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert_eq!(ask("192.0.2.2").status, 200, "another client has its own count");
    assert_eq!(http::get(server.address(), "/style.css").status, 200);
}

#[test]
fn a_limit_of_a_script_holds_whatever_path_leads_to_it() {
    let root = site();
    write_file(root.path(), "login.php", b"<?php echo 'in';");
    write_file(root.path(), "staff/index.php", b"<?php echo 'in';");
    let server = serve(
        &root,
        &[
            "rate_limit = [{ path = \"/login.php\", rate = \"1/h\", burst = 1 }, \
             { path = \"/staff/index.php\", rate = \"1/h\" }]",
            "rewrite = [{ from = \"/enter\", to = \"/login.php\" }]",
        ],
    );
    let status = |target: &str| http::get(server.address(), target).status;
    let paths = ["/login.php/x", "/login.php", "/login.php/", "/enter", "//login.php/%78"];
    let statuses: Vec<u16> = paths.into_iter().map(status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let refused = http::get(server.address(), "/login.php/y");
    assert!(refused.header("Retry-After").is_some(), "{refused:?}");
    assert_eq!([status("/staff/"), status("/staff/")], [200, 429]);
}

#[test]
fn a_limit_of_a_file_holds_whatever_path_leads_to_it_and_counts_a_request_once() {
    let root = site();
    write_file(root.path(), "prices/index.html", b"dear");
    let server = serve(
        &root,
        &[
            "rate_limit = [{ path = \"/prices/index.html\", rate = \"1/h\", burst = 1 }, \
             { path = \"/style.css\", rate = \"1/h\" }, \
             { path = \"~^/(cheap|prices)\", rate = \"1/h\", burst = 3 }]",
            "rewrite = [{ from = \"/cheap\", to = \"/prices/\" }, { from = \"/look\", \
             to = \"/style.css\" }]",
        ],
    );
    let status = |target: &str| http::get(server.address(), target).status;
    // The third limit counts the target and the rewritten path: four requests exhaust it.
    let paths = ["/cheap", "/prices/", "/prices/", "/cheap", "/prices/x"];
    let statuses: Vec<u16> = paths.into_iter().map(status).collect();
    assert_eq!(statuses, [200, 200, 429, 429, 429]);
    let refused = http::get(server.address(), "/prices/y");
    assert!(said(&refused).contains("Too many requests."), "{refused:?}");
    let statuses: Vec<u16> = ["/look", "/look", "/style.css"].into_iter().map(status).collect();
    assert_eq!(statuses, [200, 429, 429]);
}

#[test]
fn a_limit_of_the_front_controller_is_none_of_the_paths_that_it_answers_for() {
    let root = site();
    let limit = "rate_limit = { path = \"/index.php\", rate = \"1/h\" }";
    let rewrite = "rewrite = [{ from = \"/b\", to = \"/index.php?page=b\" }]";
    let server = serve_application(&root, &[limit, rewrite]);
    let status = |target: &str| http::get(server.address(), target).status;
    let statuses: Vec<u16> =
        ["/a", "/b", "/", "/index.php", "/index.php", "/c"].into_iter().map(status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 200]);
}

#[test]
fn what_guards_a_path_guards_it_behind_the_name_of_the_front_controller_too() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "users", USER.as_bytes());
    let users = beside.path().join("users");
    let server = serve_application(
        &root,
        &[
            "deny = [\"/private/*\"]",
            &format!("basic_auth = {{ path = \"/staff/*\", users = {users:?} }}"),
            "rate_limit = { path = \"/login\", rate = \"1/h\" }",
        ],
    );
    let status = |target: &str| http::get(server.address(), target).status;
    for guarded in ["/private/x", "/staff/x"] {
        let refused = status(guarded);
        assert!(matches!(refused, 401 | 403), "{guarded}: {refused}");
        for before in ["/index.php", "//index.php", "/./%69ndex.php"] {
            let target = format!("{before}{guarded}");
            assert_eq!(status(&target), refused, "{target}");
        }
    }
    let staff = "/index.php/staff/x";
    let user = with_header(server.address(), staff, "Authorization", &basic("anna", "secret"));
    assert_eq!(user.json()["REMOTE_USER"], "anna");
    let paths = ["/index.php/login", "/login", "/index.php/login", "/index.php/other"];
    let statuses: Vec<u16> = paths.into_iter().map(status).collect();
    assert_eq!(statuses, [200, 429, 429, 200]);
}

#[test]
fn what_guards_a_path_guards_a_script_that_a_htaccess_file_leads_to_by_it() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "users", USER.as_bytes());
    // Of CodeIgniter, and the same for a script that is not the front controller.
    let rules = "RewriteEngine on\nRewriteCond %{REQUEST_FILENAME} !-f\n\
                 RewriteRule ^other/(.*)$ other.php/$1 [L]\n\
                 RewriteCond %{REQUEST_FILENAME} !-f\nRewriteRule ^(.*)$ index.php/$1 [L]\n";
    write_file(root.path(), ".htaccess", rules.as_bytes());
    let users = beside.path().join("users");
    let server = serve_application(
        &root,
        &[
            "htaccess = true",
            "deny = [\"~^/index\\\\.php/admin(/|$)\", \"/other.php/admin\"]",
            &format!("basic_auth = {{ path = \"/index.php/staff\", users = {users:?} }}"),
        ],
    );
    let status = |target: &str| http::get(server.address(), target).status;
    // Decisions that are cached as well, which those on files changed just now are not.
    let begun = Instant::now();
    while begun.elapsed() < 4 * SETTLED {
        for (target, expected) in [
            ("/admin", 403),
            ("/index.php/admin", 403),
            ("/other/admin", 403),
            ("/staff", 401),
            ("/other/staff", 200),
            // Decoded a second time, it is a line feed behind the path.
            ("/admin/%250A", 400),
            ("/elsewhere", 200),
        ] {
            assert_eq!(status(target), expected, "{target}");
        }
        let user =
            with_header(server.address(), "/staff", "Authorization", &basic("anna", "secret"));
        assert_eq!(user.json()["REMOTE_USER"], "anna");
    }
    let file = server.configuration();
    let explained = |path: &str| {
        run_maitred(&["explain", path, "--config", file.to_str().expect("its name is UTF-8")]).1
    };
    let denied = explained("/admin");
    assert!(denied.contains("response         403"), "{denied}");
    let staff = explained("/staff");
    assert!(staff.contains("basic_auth       /index.php/staff matches: a user of "), "{staff}");
    let unusual = explained("/admin/%250A");
    assert!(unusual.contains("response         400"), "{unusual}");
}

#[test]
fn one_client_has_so_many_requests_at_a_time_and_no_more() {
    let root = site();
    let server = serve(&root, &["connection_limit = 1"]);
    let mut first = Connection::open(server.address());
    first.send(&Request::get("/wait.php").to_bytes()).expect("a request is taken");
    wait::until_true("the first request to run", || {
        http::get(server.address(), "/style.css").status == 429
    });
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(said(&first.read_response(false).expect("an answer comes")), "200 done");
    assert_eq!(http::get(server.address(), "/style.css").status, 200);
}

#[test]
fn the_script_of_an_error_page_counts_for_the_limit_of_its_client() {
    let root = site();
    let lines = ["connection_limit = 1", "error_pages = { 404 = \"/wait.php\" }"];
    let server = serve(&root, &lines);
    let mut first = Connection::open(server.address());
    first.send(&Request::get("/nothing.txt").to_bytes()).expect("a request is taken");
    wait::until_true("the page of the first request to run", || {
        http::get(server.address(), "/style.css").status == 429
    });
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(said(&first.read_response(false).expect("an answer comes")), "404 done");
    assert_eq!(http::get(server.address(), "/style.css").status, 200);
}

#[test]
fn a_user_is_let_in_with_the_password_and_without_it_nobody_is() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "users", USER.as_bytes());
    let auth = format!(
        "basic_auth = [{{ path = \"/index.php\", users = {:?}, realm = \"Staff\" }}]",
        beside.path().join("users")
    );
    let server = serve(&root, &[&auth]);
    for target in ["/index.php", "/index.php/x", "/"] {
        let refused = http::get(server.address(), target);
        assert_eq!(refused.status, 401, "{target}");
        let wanted = "Basic realm=\"Staff\", charset=\"UTF-8\"";
        assert_eq!(refused.header("WWW-Authenticate"), Some(wanted));
    }
    let ask = |token: &str| with_header(server.address(), "/index.php", "Authorization", token);
    for _ in 0..2 {
        assert_eq!(ask(&basic("anna", "secret")).json()["REMOTE_USER"], "anna");
    }
    for token in [
        basic("anna", "Secret"),
        basic("anna", ""),
        basic("ben", "secret"),
        basic("anna", &"a".repeat(10_000)),
        "Basic ???".to_owned(),
        "Bearer abc".to_owned(),
    ] {
        assert_eq!(ask(&token).status, 401, "{token}");
    }
    assert_eq!(http::get(server.address(), "/style.css").status, 200);
    // Who is taken out of the file is out, also where the password was right before.
    write_file(beside.path(), "users", b"# no user\n");
    wait::until_true("the file to be read again", || ask(&basic("anna", "secret")).status == 401);
    // An invalid file leaves the users as they were: none.
    let mark = server.log().mark();
    write_file(beside.path(), "users", b"anna:$apr1$abc$def\n");
    wait::until_true("the file to be read again", || {
        ask(&basic("anna", "secret"));
        server.log().since(mark).iter().any(|line| line.contains("users:1: this line has an MD5"))
    });
    assert_eq!(ask(&basic("anna", "secret")).status, 401);
}

#[test]
fn a_name_that_nobody_has_checked_is_no_user_to_a_script() {
    let (root, beside) = (site(), public_folder());
    write_file(beside.path(), "users", USER.as_bytes());
    let users = beside.path().join("users");
    let auth = format!("basic_auth = {{ path = \"/index.php\", users = {users:?} }}");
    let rewrite = "rewrite = [{ from = \"/staff\", to = \"/index.php\" }]";
    let server = serve(&root, &[&auth, rewrite]);
    let ask = |path: &str, name: &str| {
        with_header(server.address(), path, "Authorization", &basic(name, "secret")).json()
    };
    for path in ["/index.php", "/", "/index.php/x", "/staff"] {
        assert_eq!(ask(path, "anna")["REMOTE_USER"], "anna", "{path}");
    }
    for name in ["anna", "root"] {
        let seen = ask("/other.php", name);
        assert_eq!(seen["REMOTE_USER"], "", "{name}");
        assert_eq!(seen["PHP_AUTH_USER"], name);
    }
    server.stop();
}

#[test]
fn a_client_that_guesses_passwords_leaves_turns_to_others() {
    let (root, beside) = (site(), public_folder());
    // Each guess takes the hash of the first user, which takes long.
    let slow = slow_user(12);
    write_file(beside.path(), "users", format!("{slow}{USER}").as_bytes());
    let users = beside.path().join("users");
    let auth = format!("basic_auth = {{ users = {users:?} }}");
    let server = serve_with(&root, &["trusted_proxies = \"127.0.0.1\""], &[&auth]);
    let request = |client: &str, name: &str, password: &str| {
        Request::get("/style.css")
            .header("X-Forwarded-For", client)
            .header("Authorization", &basic(name, password))
    };
    let mut guesses: Vec<Connection> = Vec::new();
    for guess in 0..50 {
        let mut connection = Connection::open(server.address());
        let guess = request("192.0.2.1", "nobody", &guess.to_string());
        connection.send(&guess.to_bytes()).expect("a request is taken");
        guesses.push(connection);
    }
    // Eight of them wait, the others have their response.
    let last = guesses.last_mut().expect("there are guesses");
    assert_eq!(last.read_response(false).expect("a response comes").status, 503);
    let login = http::ask(server.address(), &request("192.0.2.2", "anna", "secret"));
    assert_eq!(login.status, 200);
    drop(guesses);
    server.stop();
}

/// A line of a user with a hash of bcrypt of this cost.
fn slow_user(cost: u32) -> String {
    format!("slow:$2y${cost}${}\n", ".".repeat(53))
}
