//! The commands of the page cache: the sites they reach, their arguments, what they
//! say.

use std::fs;
use std::process::{Command, Output};

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::maitred_program;
use maitred_tests::outside::{command, text};
use maitred_tests::server::{Server, Setup, document_root};

fn serve() -> (tempfile::TempDir, Server) {
    let root = document_root(&[("index.php", "<?php echo 'page';")]);
    let setup = Setup::new(root.path()).hosts(&["shop.example"]);
    let setup = setup.site("[sites.cache]\nvalid = \"1d\"\npurge_from = \"127.0.0.1\"");
    let server = setup.start();
    (root, server)
}

fn run(arguments: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    command.args(arguments).output().expect("maitred can be run")
}

fn status(server: &Server, target: &str, fields: &[(&str, &str)]) -> String {
    let request = Request::new("GET", target).header("Host", "shop.example");
    let request = fields.iter().fold(request, |request, (name, value)| request.header(name, value));
    let answer = http::ask(server.address(), &request.header("Connection", "close"));
    answer.header("Cache-Status").unwrap_or_default().to_owned()
}

#[test]
fn a_server_is_found_by_its_configuration_and_says_what_it_has_dropped_to_programs() {
    let (_root, server) = serve();
    let config = server.configuration().display().to_string();
    assert!(status(&server, "/a", &[]).contains("; stored;"));
    let purged = run(&["purge", "shop.example/a", "--tag", "t", "--json", "--config", &config]);
    let said: serde_json::Value = serde_json::from_slice(&purged.stdout).expect("JSON");
    let what = serde_json::json!(["shop.example/a", "tag t of shop.example"]);
    assert_eq!(said, serde_json::json!({ "purged": what, "soft": false }));
    assert!(status(&server, "/a", &[]).contains("; stored;"));
    assert_eq!(run(&["status", "--config", &config]).status.code(), Some(0));
    let missing = run(&["status", "--config", "/nowhere.toml"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("/nowhere.toml"));
}

#[test]
fn what_is_no_name_and_no_field_is_refused() {
    for arguments in [
        &["purge", "--tag", ""][..],
        &["purge", "--prefix", " "],
        &["purge", "--host", ""],
        &["purge", ""],
        &["explain", "/a", "--header", "Cookie"],
        &["explain", "/a", "--header", "a b: c"],
        &["warm", "http://shop.example/", "--header", "nothing"],
    ] {
        let refused = run(arguments);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        let why = text(&refused.stderr);
        let is_said = why.contains("it is empty") || why.contains("is no header;");
        assert!(is_said, "{arguments:?}: {why}");
    }
}

#[test]
fn explain_says_of_purge_and_of_passwords_what_is_done() {
    let (_root, server) = serve();
    let config = server.configuration().display().to_string();
    let explain = |arguments: &[&str]| {
        let explained = run(&[&["explain", "--config", &config], arguments].concat());
        text(&explained.stdout)
    };
    let said = explain(&["/x//%79", "--method", "PURGE"]);
    assert!(said.contains("drops shop.example/x/y\n"), "{said}");
    assert!(said.contains("200, and no script runs"), "{said}");
    let stranger = explain(&["/x", "--method", "PURGE", "--client", "192.0.2.1"]);
    assert!(stranger.contains("403: purge_from does not name"), "{stranger}");
    let password = [("Authorization", "Basic YTpi")];
    let said = explain(&["/x", "--header", "Authorization: Basic YTpi"]);
    assert!(said.contains("what says public, must-revalidate or s-maxage"), "{said}");
    assert!(status(&server, "/x", &password).ends_with("detail=authorization"));
}

#[test]
fn a_reload_says_which_settings_wait_for_a_restart() {
    let (_root, server) = serve();
    let text_of = fs::read_to_string(server.configuration()).expect("it can be read");
    server.configure_as(&format!("cache_memory = \"32M\"\nfront_threads = 3\n{text_of}"));
    let reloaded = command(&server, &["reload"]);
    let said = text(&reloaded.stdout);
    assert!(said.starts_with("reloaded: "), "{said}");
    let stays = "front_threads and cache_memory have changed, which needs a restart; \
                 they stay as they were";
    assert!(said.contains(stays), "{said}");
    server.configure_as(&text_of);
    let said = text(&command(&server, &["reload"]).stdout);
    assert!(!said.contains("needs a restart"), "{said}");
}
