//! The environment of PHP: variables of the server's own that `pass_env` names, and no others.

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::server::{Server, Setup, document_root};
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
