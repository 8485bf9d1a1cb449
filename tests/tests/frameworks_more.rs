//! Further frameworks in worker and snapshot mode, where copies also go back, beside a classic
//! pool: Symfony's Runtime component with the entry file of its recipe, and the parts of Slim 4
//! that Debian has. What one request sends, no other request sees.

use std::fs;
use std::path::{Path, PathBuf};

use maitred_tests::Target;
use maitred_tests::applications::{application, booted, classic, expect_the_same_pages, public};
use maitred_tests::http::{self, Request};
use maitred_tests::server::Server;

/// Symfony's Runtime component as Debian has it.
const RUNTIME: &str = "/usr/share/php/Symfony/Component/Runtime";

/// The application in a classic pool, then booted by `script` in each other mode.
fn in_each_mode(script: &Path, lines: &[&str]) -> Vec<(&'static str, Server)> {
    let public = script.parent().expect("it is in the document root");
    let with = |more: &[&'static str]| [lines, more].concat();
    let warm = "warm_requests = [\"/nowhere\"]";
    vec![
        ("classic", classic(public)),
        ("worker", booted("worker", script, lines)),
        ("copied", booted("snapshot", script, &with(&[warm]))),
        ("going back", booted("snapshot", script, &with(&[warm, "rewinds_per_child = 100"]))),
    ]
}

fn stop(servers: Vec<(&'static str, Server)>) {
    servers.into_iter().rev().for_each(|(_, server)| server.stop());
}

/// Requests that say in every way who sends them, each followed by one of a stranger.
fn of_someone_then_of_a_stranger() -> Vec<Request> {
    let upload = "--x\r\nContent-Disposition: form-data; name=\"note\"; filename=\"n.txt\"\r\n\r\n\
                  Ann's note\r\n--x--\r\n";
    let multipart = "multipart/form-data; boundary=x";
    let form = "application/x-www-form-urlencoded";
    vec![
        Request::get("/me?name=Ann&all[]=1")
            .header("Cookie", "visitor=ann; basket=7")
            .header("Authorization", "Basic YW5uOnNlY3JldA==")
            .header("X-Tenant", "ann's"),
        Request::get("/me"),
        Request::post("/me", form, b"name=Ann&password=secret"),
        Request::get("/me"),
        Request::post("/me", multipart, upload.as_bytes()),
        Request::get("/me"),
        Request::post("/me", "application/json", b"{\"name\":\"Ann\"}"),
        Request::get("/me"),
    ]
}

#[test]
fn an_application_of_slim_4s_parts_serves_as_in_a_classic_pool() {
    let folder = application("slim-parts");
    let servers = in_each_mode(&public(&folder).join("worker.php"), &[]);
    let mut requests = of_someone_then_of_a_stranger();
    requests.extend(["/goods/7", "/goods/99", "/nowhere", "/fails", "/long"].map(Request::get));
    requests.push(Request::post("/goods/7", "text/plain", b"x"));
    expect_the_same_pages(&servers, &requests);
    for (name, server) in &servers {
        let stranger = http::get(server.address(), "/me");
        let text = stranger.text();
        assert!(
            text.contains(r#""visitor":"a stranger","query":[],"body":null"#),
            "{name}: {text}"
        );
        assert_eq!(stranger.header("Set-Cookie"), Some("seen=a stranger"), "{name}");
    }
    stop(servers);
}

#[test]
fn a_loop_that_ends_after_some_requests_loses_none() {
    let folder = application("slim-parts");
    let script = public(&folder).join("worker.php");
    let server = booted("worker", &script, &["env = { MAX_REQUESTS = \"3\" }"]);
    for _ in 0..12 {
        assert_eq!(http::get(server.address(), "/goods/7").text(), r#"{"name":"thing <7>"}"#);
    }
    server.stop();
}

/// Makes `vendor/autoload_runtime.php` as the Runtime component's plugin for Composer does, of the
/// component's own template.
fn install_runtime(folder: &Path) -> PathBuf {
    let template = fs::read_to_string(format!("{RUNTIME}/Internal/autoload_runtime.template"));
    let options = "['project_dir' => dirname(__DIR__), 'disable_dotenv' => true]";
    let runtime = template
        .expect("php-symfony-runtime is installed")
        .replace("%runtime_class%", r"'Symfony\\Component\\Runtime\\SymfonyRuntime'")
        .replace("%runtime_options%", options);
    let autoload = format!(
        "<?php require_once '{RUNTIME}/autoload.php';
        require_once dirname(__DIR__).'/bootstrap.php';"
    );
    let vendor = folder.join("vendor");
    fs::create_dir(&vendor).expect("a folder can be made");
    fs::write(vendor.join("autoload_runtime.php"), runtime).expect("a file can be written");
    fs::write(vendor.join("autoload.php"), autoload).expect("a file can be written");
    folder.join("public/runtime.php")
}

/// From Symfony 7.4 on the component has a runner for worker mode.
fn has_runner() -> bool {
    Path::new(&format!("{RUNTIME}/Runner/FrankenPhpWorkerRunner.php")).exists()
}

#[test]
fn symfonys_runtime_boots_an_application_that_serves_as_in_a_classic_pool() {
    let folder = application("symfony");
    let script = install_runtime(folder.path());
    let env = match has_runner() {
        true => r#"env = { APP_ENV = "prod", APP_DEBUG = "0" }"#,
        false => {
            r#"env = { APP_ENV = "prod", APP_DEBUG = "0", APP_RUNTIME = 'App\WorkerRuntime' }"#
        }
    };
    let servers = in_each_mode(&script, &[env]);
    let targets = ["/?name=Ann", "/", "/goods/7", "/goods/99", "/nowhere", "/fails"];
    expect_the_same_pages(&servers, &targets.map(Request::get));
    stop(servers);
}
