//! The commands of Laravel Octane with maitred in place of FrankenPHP, in a Laravel application of
//! Debian's packages (`fixtures/laravel`). Octane is in no distribution: the commands and the
//! worker script are reduced to the same calls of the server, unless `MAITRED_OCTANE` names a
//! folder with an unchanged laravel/octane 2, such as `vendor/laravel/octane` of an application.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use maitred_tests::guard::Guarded;
use maitred_tests::http::{self, Request};
use maitred_tests::processes::{self, Process, Signal};
use maitred_tests::server::{give_to_web_user, set_mode};
use maitred_tests::{maitred_program, ports, project_root, run_maitred, wait};
use tempfile::TempDir;

/// Requests after which Octane replaces a worker here.
const MAX_REQUESTS: u64 = 20;

/// Requests in a row.
const MANY: usize = 70;

/// An application, and the ports that Octane is to use.
struct Application {
    folder: TempDir,
    address: SocketAddr,
    admin: SocketAddr,
}

impl Application {
    fn new() -> Application {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let fixtures = project_root().join("tests/fixtures");
        copy(&fixtures.join("laravel"), folder.path());
        if let Some(given) = std::env::var_os("MAITRED_OCTANE") {
            let octane = folder.path().join("vendor/laravel/octane");
            fs::create_dir_all(&octane).expect("folders can be made");
            copy(Path::new(&given), &octane);
        }
        let storage = ["app", "logs", "framework/sessions", "framework/views", "framework/cache"];
        for name in storage.map(|name| format!("storage/{name}")) {
            let made = folder.path().join(name);
            fs::create_dir_all(&made).expect("folders can be made");
            give_to_web_user(&made);
        }
        fs::create_dir_all(folder.path().join("bootstrap/cache")).expect("folders can be made");
        set_mode(folder.path(), 0o755);
        let (installed, said) = run_maitred(&["octane", "install", path(folder.path())]);
        assert!(installed, "{said}");
        Application { folder, address: ports::free_address(), admin: ports::free_address() }
    }

    /// In place of the link, a copy of the program, beside its PHP.
    fn has_copy(&self) {
        let copy = self.folder.path().join("frankenphp");
        fs::remove_file(&copy).expect("the link can be removed");
        fs::copy(maitred_program(), &copy).expect("the program can be copied");
        let php = "maitred-php";
        let link = self.folder.path().join(php);
        std::os::unix::fs::symlink(maitred_program().with_file_name(php), link).expect("a link");
    }

    fn artisan(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("php");
        command.arg("artisan").args(arguments).current_dir(self.folder.path());
        command.env("NODE_PATH", "/usr/share/nodejs").env_remove("MAITRED_BIN");
        command.env("XDG_DATA_HOME", self.folder.path().join(".data"));
        command
    }

    fn run(&self, command: &str) -> (bool, String) {
        let output = self.artisan(&[command, "--server=frankenphp"]).output().expect("php runs");
        (output.status.success(), said(&output))
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("octane.out")
    }

    fn start(&self, options: &[&str]) -> Octane {
        let output = File::create(self.log()).expect("a file can be made");
        let mut arguments = vec!["octane:start", "--server=frankenphp", "--env=local"];
        let (port, admin) = (self.address.port(), self.admin.port());
        let ports = [format!("--port={port}"), format!("--admin-port={admin}")];
        arguments.extend(ports.iter().map(String::as_str));
        arguments.extend(options);
        let mut command = self.artisan(&arguments);
        command.stdin(Stdio::null()).stderr(output.try_clone().expect("a descriptor"));
        let octane = Guarded::spawn(command.stdout(output), Signal::TERM);
        wait::until_true("Octane to serve", || is_serving(self.address));
        Octane(octane)
    }

    fn output(&self) -> String {
        fs::read_to_string(self.log()).expect("the output can be read")
    }

    fn shows(&self, text: &str) {
        let what = format!("{text:?} in the output of Octane");
        wait::until_true(&what, || self.output().contains(text));
    }

    fn page(&self) -> String {
        http::get(self.address, "/").text()
    }

    fn greets(&self, greeting: &str) {
        let class = format!("class Greeting {{ public const TEXT = '{greeting}'; }}");
        let script = format!("<?php\n\nnamespace App;\n\n{class}\n");
        fs::write(self.folder.path().join("app/Greeting.php"), script).expect("it can be written");
    }

    /// Stops the server as another terminal would.
    fn stop(&self, mut octane: Octane) {
        let processes = octane.processes();
        let (is_stopped, said) = self.run("octane:stop");
        assert!(is_stopped, "{said}");
        self.is_gone(&mut octane, &processes);
    }

    /// Neither a process nor a listening socket is left.
    fn is_gone(&self, octane: &mut Octane, processes: &[Process]) {
        octane.0.wait(wait::DEADLINE).expect("Octane ends");
        assert!(processes.len() > 4, "{processes:?}");
        wait::until_true("all processes to end", || !processes.iter().any(Process::is_running));
        assert!(![self.address, self.admin].into_iter().any(is_serving));
    }
}

/// `php artisan octane:start`.
struct Octane(Guarded);

impl Octane {
    /// It, and all processes below it.
    fn processes(&self) -> Vec<Process> {
        processes::family(self.0.pid())
    }
}

fn is_serving(address: SocketAddr) -> bool {
    TcpStream::connect(address).is_ok()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn copy(from: &Path, to: &Path) {
    let status = Command::new("cp").arg("-r").arg(from.join(".")).arg(to).status();
    assert!(status.expect("cp runs").success());
}

fn said(output: &Output) -> String {
    let all = [output.stdout.as_slice(), output.stderr.as_slice()].concat();
    String::from_utf8_lossy(&all).into_owned()
}

#[test]
fn octane_starts_shows_reloads_and_stops_the_server() {
    let application = Application::new();
    assert!(!application.run("octane:status").0);
    let options = ["--workers=2", &format!("--max-requests={MAX_REQUESTS}")];
    let octane = application.start(&options);
    assert_eq!(application.page(), "Hello, you");
    application.shows("200    GET / ");
    let (is_running, said) = application.run("octane:status");
    assert!(is_running && said.contains("Octane server is running."), "{said}");

    application.greets("Good day");
    assert_eq!(application.page(), "Hello, you", "workers have the code of their start");
    let (is_reloaded, said) = application.run("octane:reload");
    assert!(is_reloaded, "{said}");
    assert_eq!(application.page(), "Good day, you", "{}", application.output());

    for _ in 0..MANY {
        let page = http::get(application.address, "/worker");
        assert_eq!(page.status, 200, "{}", page.text());
        let found = page.json();
        assert!(found["requests"].as_u64().is_some_and(|one| one <= MAX_REQUESTS), "{found}");
        assert_eq!(found["octane"].as_str(), Some("1"));
    }
    assert_eq!(http::get(application.address, "/fails").status, 500);
    application.shows("WARN  pool worker: ");
    application.shows("this page fails");

    application.stop(octane);
    let (is_running, said) = application.run("octane:status");
    assert!(!is_running && said.contains("Octane server is not running."), "{said}");
}

#[test]
fn octane_restarts_the_workers_when_a_watched_file_changes() {
    let application = Application::new();
    let octane = application.start(&["--watch", "--workers=1"]);
    assert_eq!(application.page(), "Hello, you");
    application.greets("Good day");
    wait::until_true("the new code", || application.page() == "Good day, you");
    application.stop(octane);
}

#[test]
fn ctrl_c_ends_octane_when_running_requests_have_their_responses() {
    let application = Application::new();
    let mut octane = application.start(&["--workers=1"]);
    let address = application.address;
    let slow = std::thread::spawn(move || http::get(address, "/slow"));
    let marker = application.folder.path().join("storage/app/slow");
    wait::until_true("the request to run", || marker.exists());
    let processes = octane.processes();
    processes::signal_group(octane.0.pid(), Signal::INT);
    let response = slow.join().expect("a thread ends");
    assert_eq!((response.status, response.text()), (200, "slow".to_owned()));
    application.is_gone(&mut octane, &processes);
}

#[test]
fn a_server_whose_octane_is_killed_stops() {
    let application = Application::new();
    let mut octane = application.start(&["--workers=1"]);
    assert_eq!(application.page(), "Hello, you");
    let processes = octane.processes();
    let name = format!("{}/frankenphp", path(application.folder.path()));
    let program = processes.iter().find(|one| one.title.starts_with(&name));
    program.expect("the program runs").signal(Signal::KILL);
    application.is_gone(&mut octane, &processes);
}

#[test]
fn octane_serves_https_with_a_certificate_of_the_users_own_authority() {
    let application = Application::new();
    let octane = application.start(&["--https", "--workers=1"]);
    let authority = application.folder.path().join(".data/maitred/authority/ca.pem");
    let mut curl = Command::new("curl");
    curl.args(["-sS", "--max-time", "20", "--cacert"]).arg(authority);
    let output = curl.arg(format!("https://{}/?name=Ann", application.address)).output();
    assert_eq!(said(&output.expect("curl runs")), "Hello, Ann");
    application.stop(octane);
}

#[test]
fn the_admin_address_is_not_for_the_pages_of_other_sites() {
    let application = Application::new();
    application.has_copy();
    let octane = application.start(&["--workers=1"]);
    assert_eq!(application.page(), "Hello, you");
    let host = format!("localhost:{}", application.admin.port());
    let request = |method: &str, target: &str| Request::new(method, target).header("Host", &host);
    let status = |request: &Request| http::ask(application.admin, request).status;
    let evil = request("POST", "/stop").header("Origin", "http://shop.example");
    assert_eq!(status(&evil), 403);
    assert_eq!(status(&Request::new("POST", "/stop").header("Host", "shop.example")), 403);
    assert_eq!(status(&request("GET", "/config/")), 404);
    let config = http::ask(application.admin, &request("GET", "/config/apps/frankenphp"));
    assert_eq!(config.json()["workers"][0]["num"].as_i64(), Some(1));
    assert_eq!(status(&request("POST", "/frankenphp/workers/restart")), 200);
    assert_eq!(application.page(), "Hello, you");
    application.stop(octane);
}

/// Starts the program as FrankenPHP, and returns whether it succeeded and its output.
fn frankenphp(arguments: &[&str], variables: &[(&str, &str)]) -> (bool, String) {
    let mut command = Command::new(maitred_program());
    command.arg0("frankenphp").args(arguments).envs(variables.iter().copied());
    let output = command.output().expect("it runs");
    (output.status.success(), said(&output))
}

#[test]
fn what_is_not_octanes_is_one_clear_error() {
    let (is_known, said) = frankenphp(&["build-info"], &[]);
    assert!(is_known && said.contains("\ndep\tgithub.com/dunglas/frankenphp\tv1."), "{said}");
    let (is_known, said) = frankenphp(&["php-cli", "-r", "echo PHP_SAPI;"], &[]);
    assert_eq!((is_known, said.as_str()), (true, "cli"));
    let stub = project_root().join("tests/fixtures/laravel/Caddyfile");
    let run = ["run", "-c", path(&stub)];
    let octane = ("LARAVEL_OCTANE", "1");
    let folder = ("APP_PUBLIC_PATH", "/srv/shop/public");
    let mercure = ("CADDY_SERVER_EXTRA_DIRECTIVES", "mercure {\n anonymous\n }");
    let name = ("CADDY_SERVER_SERVER_NAME", "http://:8000");
    for (arguments, variables, expected) in [
        (&["php-server"][..], &[][..], "`php-server` is not one of them"),
        (&run, &[], "LARAVEL_OCTANE is not set"),
        (&run, &[octane, folder, name, mercure], "mercure"),
        (&["run", "-c", "/nowhere"], &[octane], "/nowhere cannot be read"),
    ] {
        let (is_done, said) = frankenphp(arguments, variables);
        assert!(!is_done && said.contains(expected), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}
