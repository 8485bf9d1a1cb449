//! One site with its pool in a file of its own, which comes and goes while the server runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::outside;
use maitred_tests::server::{Server, Setup, document_root, write_file};

const SCRIPT: &str = "<?php echo getenv('NAME'), ' ', ini_get('memory_limit');";

/// Adds the site NAME.test with its pool.
fn add(folder: &Path, name: &str, more: &str) {
    let text = format!(
        "[pools.{name}]\nenv = {{ NAME = \"{name}\" }}\n{more}\n\n\
         [[sites]]\nhosts = [\"{name}.test\"]\nroot = \"../{name}\"\npool = \"{name}\"\n"
    );
    write_file(folder, &format!("{name}/index.php"), SCRIPT.as_bytes());
    write_file(folder, &format!("sites.d/{name}.toml"), text.as_bytes());
}

fn get(server: &Server, host: &str) -> http::Response {
    http::ask(server.address(), &Request::new("GET", "/").header("Host", host))
}

#[test]
fn a_site_with_its_pool_in_one_file_comes_and_goes_with_a_reload() {
    let folder = document_root(&[("www/index.php", SCRIPT)]);
    let include = format!("include = \"{}/sites.d/*.toml\"", folder.path().display());
    let defaults = "\n[pool_defaults]\npm = \"ondemand\"\nmax_children = 2\n\
                    php_admin_value = { memory_limit = \"77M\" }";
    let setup = Setup::new(&folder.path().join("www")).hosts(&["www.test"]);
    let server = setup.top(&include).top(defaults).pool("env = { NAME = \"www\" }").start();
    let old = server.workers();
    assert_eq!(get(&server, "www.test").text(), "www 77M", "a glob may match no file");

    add(folder.path(), "anna", "");
    add(folder.path(), "ben", "php_value = { memory_limit = \"88M\" }");
    let line = server.reload();
    assert!(line.contains("1 unchanged"), "{line}");
    assert_eq!(get(&server, "anna.test").text(), "anna 77M", "the default of all pools");
    assert_eq!(get(&server, "ben.test").text(), "ben 88M", "the pool's own");

    let wrong = folder.path().join("sites.d/wrong.toml");
    fs::write(&wrong, "[pools.wrong]\nmax_childern = 2\n").unwrap();
    let mark = server.log().mark();
    assert!(server.reload().contains("reload is refused"));
    server.expect_log(mark, "sites.d/wrong.toml:2:1: unknown setting `max_childern`");
    assert_eq!(get(&server, "anna.test").text(), "anna 77M");
    fs::remove_file(&wrong).unwrap();

    fs::remove_file(folder.path().join("sites.d/anna.toml")).unwrap();
    let line = server.reload();
    assert!(line.contains("2 unchanged, pool anna removed"), "{line}");
    assert_eq!(get(&server, "anna.test").status, 404);
    assert_eq!(get(&server, "ben.test").text(), "ben 88M");
    assert_eq!(server.workers().iter().filter(|worker| old.contains(worker)).count(), old.len());
}

#[test]
fn commands_find_the_server_of_a_configuration_with_a_mistake() {
    let folder = document_root(&[("index.php", SCRIPT)]);
    let mut server = Setup::new(folder.path()).start();
    let file = server.configuration();
    let good = fs::read_to_string(&file).unwrap();
    let file = file.to_str().unwrap();
    for mistake in ["max_childern = 5\n", "root = /srv\n", "[[[\n"] {
        server.configure_as(&format!("{good}{mistake}"));
        let output = outside::maitred(&["status", "--config", file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{mistake}: {said}");
        let warning = format!(
            "maitred: warning: {file} has mistakes, which `maitred check {file}` lists; its \
             `admin_socket` is used all the same\n"
        );
        assert_eq!(said, warning, "{mistake}");
        let output = outside::maitred(&["top", "--once", "--config", file]);
        let shown = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && shown.contains(" requests/s"), "{mistake}: {shown}");
        let output = outside::maitred(&["reload", "--config", file]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{mistake}: {said}");
    }
    let output = outside::maitred(&["status", "--config", "/nowhere/m.toml"]);
    assert_eq!(output.status.code(), Some(1), "a file that is not there has no socket");
    let output = outside::maitred(&["stop", "--config", file]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(server.wait_for_end().code(), Some(0));
}

#[test]
fn files_are_included_whatever_the_configuration_is_called() {
    let folder = document_root(&[
        ("conf/maitred.toml", "include = \"sites.d/*.toml\"\n"),
        ("conf/sites.d/wrong.toml", "[pools.wrong]\nmax_childern = 2\n"),
    ]);
    for (from, name) in [
        ("conf", "maitred.toml"),
        ("conf", "./maitred.toml"),
        ("conf", "../conf/maitred.toml"),
        ("", "conf/maitred.toml"),
        ("", "./conf/./maitred.toml"),
    ] {
        let mut check = Command::new(maitred_tests::maitred_program());
        let check = check.args(["check", name]).current_dir(folder.path().join(from));
        let output = check.output().expect("maitred runs");
        let said = outside::text(&output.stderr) + &outside::text(&output.stdout);
        assert!(said.contains("unknown setting `max_childern`"), "{name}: {said}");
    }
}
