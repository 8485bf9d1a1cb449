//! Applications of `tests/fixtures` that are made of Debian's packages, in each mode.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::http::{self, Request, Response};
use crate::server::{Server, Setup, give_to_web_user, set_mode};
use crate::{Target, project_root};

/// Where Laravel writes.
const WRITABLE: [&str; 5] = [
    "bootstrap/cache",
    "storage/logs",
    "storage/framework/sessions",
    "storage/framework/views",
    "storage/framework/cache",
];

/// The source of Debian's Laravel that has its version.
const LARAVEL: &str = "/usr/share/php/Illuminate/Foundation/Application.php";

/// From this version on, an application's structure is another, and `fixtures/laravel-11` has what
/// differs.
const LARAVEL_RESTRUCTURED: u32 = 11;

/// The version of the installed Laravel, as `13.4.0`.
pub fn laravel_version() -> String {
    let source = std::fs::read_to_string(LARAVEL).expect("php-laravel-framework is installed");
    let version = source.split("VERSION = '").nth(1).and_then(|rest| rest.split('\'').next());
    version.expect("Laravel's application has its version").to_owned()
}

/// Whether the installed Laravel has the structure of before [`LARAVEL_RESTRUCTURED`].
fn laravel_is_old() -> bool {
    let version = laravel_version();
    let major = version.split('.').next().and_then(|major| major.parse::<u32>().ok());
    major.expect("a version starts with a number") < LARAVEL_RESTRUCTURED
}

fn copy(name: &str, folder: &Path) {
    let source = project_root().join("tests/fixtures").join(name);
    run(Command::new("cp").arg("-r").arg(format!("{}/.", source.display())).arg(folder));
}

/// A copy of an application, with its database, in a folder where it may write. Laravel's has the
/// structure of the installed version.
pub fn application(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder can be made");
    copy(name, folder.path());
    if name == "laravel" && !laravel_is_old() {
        copy("laravel-11", folder.path());
    }
    let var = folder.path().join("var");
    std::fs::create_dir(&var).expect("a folder can be made");
    let make = "$d = new PDO('sqlite:' . $argv[1]);
        $d->exec('CREATE TABLE goods (id INTEGER PRIMARY KEY, name TEXT)');
        for ($i = 1; $i <= 20; $i++) { $d->exec(\"INSERT INTO goods VALUES ($i, 'thing <$i>')\");
        }";
    let database = var.join("goods.sqlite");
    run(Command::new("php").args(["-r", make]).arg(&database));
    set_mode(folder.path(), 0o755);
    for name in WRITABLE {
        let storage = folder.path().join(name);
        std::fs::create_dir_all(&storage).expect("folders can be made");
        give_to_web_user(&storage);
    }
    give_to_web_user(&var);
    give_to_web_user(&database);
    folder
}

fn run(command: &mut Command) {
    let status = command.status().expect("a program can be run");
    assert!(status.success(), "{command:?}: {status}");
}

/// Its document root.
pub fn public(folder: &TempDir) -> PathBuf {
    folder.path().join("public")
}

/// The application in a classic pool.
pub fn classic(public: &Path) -> Server {
    Setup::new(public).workers(1).start()
}

/// The application booted once, by a script of its document root, with further lines of the pool.
pub fn booted(mode: &str, script: &Path, lines: &[&str]) -> Server {
    let public = script.parent().expect("it is in the document root");
    let setup = Setup::new(public).workers(1).pool(&format!("mode = {mode:?}"));
    let setup = setup.pool(&format!("script = {:?}", script.display().to_string()));
    lines.iter().fold(setup, |setup, line| setup.pool(line)).start()
}

/// What must be the same however an application is run: status, type and body.
pub fn page(response: &Response) -> (u16, Option<String>, String) {
    let kind = response.header("Content-Type").map(str::to_owned);
    (response.status, kind, response.text())
}

/// Sends the requests to each server in turn, three times: each page is that of the first server,
/// where the first page is no error.
#[track_caller]
pub fn expect_the_same_pages(servers: &[(&str, Server)], requests: &[Request]) {
    let [(_, first), others @ ..] = servers else { panic!("at least one server") };
    assert_eq!(http::ask(first.address(), &requests[0]).status, 200, "the first page");
    for round in 0..3 {
        for request in requests {
            let expected = page(&http::ask(first.address(), request));
            for (name, server) in others {
                let found = page(&http::ask(server.address(), request));
                let target = &request.target;
                assert_eq!(found, expected, "{target}, {name}, round {round}");
            }
        }
    }
}
