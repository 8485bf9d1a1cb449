//! `maitred serve DIR` on a terminal is a development server; without one it is as in production.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, document_root, public_folder};
use maitred_tests::terminal::Terminal;
use maitred_tests::{Target, maitred_program, ports, wait};

/// A server whose standard error is a terminal.
struct Developed {
    server: Guarded,
    terminal: Terminal,
    folder: tempfile::TempDir,
}

fn start(flags: &[&str], variables: &[(&str, &str)]) -> Developed {
    let folder = public_folder();
    let terminal = Terminal::new();
    let mut command = Command::new(maitred_program());
    command.arg("serve").args(flags).arg("--admin-socket").arg(folder.path().join("admin.sock"));
    command.envs(variables.iter().copied()).env_remove("NO_COLOR");
    command.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
    let server = Guarded::spawn(&mut command, Signal::TERM);
    let started = Developed { server, terminal, folder };
    wait::until_true("it to serve", || started.terminal.shows("maitred: serving "));
    started
}

impl Developed {
    fn status(&self) -> String {
        let mut command = Command::new(maitred_program());
        let socket = self.folder.path().join("admin.sock");
        command.args(["status", "--json", "--admin-socket"]).arg(socket);
        String::from_utf8(command.output().expect("it runs").stdout).expect("UTF-8")
    }

    fn expect(&self, text: &str) {
        wait::until_true(text, || self.terminal.shows(text));
    }
}

fn path(folder: &Path) -> &str {
    folder.to_str().expect("UTF-8")
}

#[test]
fn a_folder_on_a_terminal_is_served_for_development() {
    let root = document_root(&[
        ("index.php", "<?php echo getenv('COLOR_OF_SHELL'), 1;"),
        ("boom.php", "<?php\n\nfunction f() { throw new LogicException('a <b>'); }\nf();"),
        ("env.php", "<?php echo getenv('COLOR_OF_SHELL'), ini_get('memory_limit'), getenv('A');"),
    ]);
    let address = ports::free_address();
    let port = address.port().to_string();
    let flags =
        [path(root.path()), "--listen", &port, "-d", "memory_limit=77M", "--env", "A=given"];
    let server = start(&flags, &[("COLOR_OF_SHELL", "blue")]);
    server.expect(&format!(" on http://localhost:{port} ("));
    assert_eq!(http::get(address, "/env.php").text(), "blue77Mgiven");
    server.expect("GET /env.php \x1b[32m200\x1b[0m ");

    let response = http::get(address, "/boom.php");
    assert_eq!(response.status, 500);
    let page = response.text();
    let script = root.path().join("boom.php");
    assert!(page.contains("Uncaught LogicException: a &lt;b&gt; in "), "{page}");
    assert!(page.contains(&format!("<p>{}:3</p>", script.display())), "{page}");
    assert!(page.contains("    4  f();") && page.contains("#0 "), "{page}");
    server.expect("\x1b[1;31mPHP Fatal error:  Uncaught LogicException: a <b> in ");
    server.expect("\n    #0 ");
    assert!(!server.terminal.text().contains("PHP message: "), "{}", server.terminal.text());
    let forwarded = Request::get("/boom.php").header("X-Forwarded-For", "192.0.2.1");
    assert_eq!(http::ask(address, &forwarded).text(), "", "another machine asks");

    // A changed script is seen at once, though OPcache holds the old one.
    fs::write(root.path().join("env.php"), "<?php echo 'changed';").expect("a file is written");
    assert_eq!(http::get(address, "/env.php").text(), "changed");
}

#[test]
fn without_a_terminal_a_folder_is_served_as_in_production() {
    let root = document_root(&[
        ("env.php", "<?php echo getenv('PATH') === false ? 'none' : 'passed';"),
        ("boom.php", "<?php throw new LogicException('secret');"),
    ]);
    let server = Server::serve(root.path(), &[]);
    assert_eq!(http::get(server.address(), "/env.php").text(), "none");
    let response = http::get(server.address(), "/boom.php");
    assert_eq!((response.status, response.text().as_str()), (500, ""));
    server.expect_log(0, "secret");
    let log = server.log_text();
    assert!(!log.contains("GET /env.php"), "{log}");
}

#[test]
fn ctrl_c_says_what_runs_and_ends_it_soon() {
    let root = document_root(&[("sleep.php", "<?php sleep(300);")]);
    let address = ports::free_address();
    let mut server = start(&[path(root.path()), "--listen", &address.to_string()], &[]);
    let mut running = Connection::open(address);
    running.send(&Request::get("/sleep.php").to_bytes()).expect("it takes a request");
    wait::until_true("the script to run", || server.status().contains("/sleep.php"));
    let stopped = Instant::now();
    Process::read(server.server.pid()).expect("it runs").signal(Signal::INT);
    server.expect("SIGINT: stopping; 1 request runs (GET /sleep.php, ");
    server.expect("Ctrl-C again ends it");
    let ended = server.server.wait(wait::DEADLINE).expect("it ends");
    assert!(ended.success(), "{ended}");
    // Production waits for a minute.
    assert!(stopped.elapsed() < Duration::from_secs(20), "{:?}", stopped.elapsed());
}

#[test]
fn a_folder_without_an_address_takes_the_next_free_port() {
    let root = document_root(&[("index.html", "here")]);
    // If another process has the port, it is in use as well.
    let _taken = TcpListener::bind("127.0.0.1:8080");
    let server = start(&[path(root.path())], &[]);
    server.expect("port 8080 is in use; ");
    let text = server.terminal.text();
    let (_, after) = text.split_once("http://localhost:").expect("a URL");
    let port: u16 = after.split(' ').next().and_then(|port| port.parse().ok()).expect("a port");
    assert!(port > 8080, "{text}");
    assert_eq!(http::get(SocketAddr::from(([127, 0, 0, 1], port)), "/").text(), "here");
}

#[test]
fn of_a_project_only_its_public_folder_is_served() {
    let project = document_root(&[
        ("composer.json", "{}"),
        ("storage/logs/app.log", "secret"),
        ("public/index.php", "<?php echo 'public';"),
    ]);
    let server = Server::serve(project.path(), &[]);
    server.expect_log(0, "is a project; its public folder ");
    let response = http::get(server.address(), "/storage/logs/app.log");
    assert_eq!(response.text(), "public");
}

#[test]
fn a_folder_without_an_index_is_remarked_upon() {
    let root = document_root(&[]);
    let server = Server::serve(root.path(), &[]);
    server.expect_log(0, "is empty: every request gets a 404 until there is a file");
}

#[test]
fn a_watched_configuration_is_reloaded_when_it_changes() {
    let root = document_root(&[("old/index.html", "old"), ("new/index.html", "new")]);
    let address = ports::free_address();
    let file = root.path().join("maitred.toml");
    let write = |site: &str| {
        let text = format!("listen = \"{address}\"\n[[sites]]\nroot = {site:?}\n");
        fs::write(&file, text).expect("a file is written");
    };
    write("old");
    let server = start(&["--config", path(&file), "--watch"], &[]);
    assert_eq!(http::get(address, "/").text(), "old");
    write("new");
    server.expect("maitred.toml has changed: reloading");
    wait::until_true("the new site", || http::get(address, "/").text() == "new");
    assert!(!server.terminal.shows("GET / "), "a file is served as in production");
    fs::write(&file, "lisen = 1").expect("a file is written");
    server.expect("the reload is refused, all is as before: ");
    assert_eq!(http::get(address, "/").text(), "new");
}
