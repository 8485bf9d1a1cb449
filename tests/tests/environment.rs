//! Variables of the server's environment: those that `pass_env` passes to PHP, and no others; and
//! settings in `MAITRED_…`.

use std::process::Command;

use maitred_tests::guard::Guarded;
use maitred_tests::server::{Server, Setup, document_root};
use maitred_tests::{Target, http, maitred_program, ports, wait};
use rustix::process::Signal;
use serde_json::Value;

/// Variables as a container sets them, and two that are for the server.
const VARIABLES: [&str; 6] = [
    "env",
    "DB_HOST=db.internal",
    "DB_PASSWORD=hidden",
    "APP_KEY=key",
    "MAITRED_TEST_OWN=own",
    "NOTIFY_SOCKET=/nowhere",
];

fn server(lines: &[&str]) -> (tempfile::TempDir, Server) {
    let root = document_root(&[(
        "env.php",
        "<?php echo json_encode(['getenv' => getenv(), 'server' => array_keys($_SERVER)]);",
    )]);
    let setup = Setup::new(root.path()).under(&VARIABLES);
    let server = lines.iter().fold(setup, |setup, line| setup.pool(line)).start();
    (root, server)
}

/// What `getenv()` has of the variables above.
fn passed(server: &Server) -> Vec<(String, String)> {
    let seen: Value = http::get(server.address(), "/env.php").json();
    let names = VARIABLES.iter().filter_map(|variable| Some(variable.split_once('=')?.0));
    let values = names.filter_map(|name| {
        let value = seen["getenv"][name].as_str()?;
        let in_server = seen["server"].as_array().expect("names").iter().any(|key| key == name);
        assert!(in_server, "{name} is in $_SERVER, too");
        Some((name.to_owned(), value.to_owned()))
    });
    values.collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn php_gets_nothing_of_the_servers_environment_unless_the_pool_says_so() {
    let (_root, server) = server(&[]);
    assert_eq!(passed(&server), []);
    server.stop();
}

#[test]
fn named_variables_are_passed_and_the_pools_own_take_precedence() {
    let lines = ["pass_env = [\"DB_*\"]", "env = { DB_PASSWORD = \"the pool's\" }"];
    let (_root, server) = server(&lines);
    let expected = [("DB_HOST", "db.internal"), ("DB_PASSWORD", "the pool's")];
    assert_eq!(passed(&server), pairs(&expected));
    server.stop();
}

#[test]
fn all_variables_are_passed_but_those_for_the_server() {
    let (_root, server) = server(&["pass_env = \"all\""]);
    let expected = [("DB_HOST", "db.internal"), ("DB_PASSWORD", "hidden"), ("APP_KEY", "key")];
    assert_eq!(passed(&server), pairs(&expected));
    server.stop();
}

#[test]
fn settings_in_variables_apply_to_a_directory_and_to_a_file() {
    let root = document_root(&[("env.php", "<?php echo getenv('APP_KEY') ?: 'none';")]);
    let variables = ["env", "APP_KEY=key", "MAITRED_POOL_PASS_ENV=APP_*"];
    let server = Setup::new(root.path()).under(&variables).start();
    assert_eq!(http::get(server.address(), "/env.php").text(), "key");
    server.stop();

    let address = ports::free_address();
    let mut served = Command::new(maitred_program());
    served.arg("serve").arg(root.path()).env("APP_KEY", "key").env("MAITRED_POOL_PASS_ENV", "all");
    served.env("MAITRED_LISTEN", address.to_string()).env("MAITRED_POOL_MAX_CHILDREN", "2");
    let socket = root.path().join("admin.sock");
    served.env("MAITRED_ADMIN_SOCKET", &socket);
    let child = Guarded::spawn(&mut served, Signal::TERM);
    wait::until_true("the directory to be served", || ports::is_listening(address));
    assert_eq!(http::get(address, "/env.php").text(), "key");
    let mut status = Command::new(maitred_program());
    let status = status.arg("status").env("MAITRED_ADMIN_SOCKET", &socket).output();
    assert!(status.expect("the program runs").status.success(), "it finds the same socket");
    drop(child);
    wait::until_true("the server to end", || !ports::is_listening(address));
}

#[test]
fn a_wrong_value_in_a_variable_is_an_error_that_names_it() {
    let root = document_root(&[("env.php", "")]);
    let refused = Command::new(maitred_program())
        .arg("serve")
        .arg(root.path())
        .env("MAITRED_POOL_MAX_CHILDREN", "many")
        .output()
        .expect("the program runs");
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("environment variable MAITRED_POOL_MAX_CHILDREN: `max_children`"),
        "{said}"
    );
}
