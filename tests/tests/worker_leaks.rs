//! `maitred leaks`: what an application in worker mode leaves behind for the next request.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use maitred_tests::processes::{Process, family};
use maitred_tests::server::{
    WEB_USER, document_root, give_to_web_user, is_root, public_folder, user_ids, write_file,
};
use maitred_tests::{maitred_program, ports, wait};
use rustix::process::Signal;
use tempfile::TempDir;

const WORKER: &str = "<?php
final class Kept { public static array $seen = []; public static ?string $once = null; }
function counts() { static $times = 0; $times++; }
$state = new stdClass();
$closure = function () { static $calls = 0; $calls++; };
$handle = function () use ($state, $closure) {
    require __DIR__ . strtok($_SERVER['REQUEST_URI'], '?') . '.inc';
};
while (frankenphp_handle_request($handle)) { }
";

fn application(handlers: &[(&str, &str)]) -> TempDir {
    let root = document_root(&[("index.php", "<?php"), ("worker.php", WORKER)]);
    for (name, source) in handlers {
        write_file(root.path(), &format!("{name}.inc"), source.as_bytes());
    }
    let config = format!(
        "[pools.www]\nmode = \"worker\"\nscript = \"worker.php\"\n[[sites]]\nroot = {:?}\n",
        root.path()
    );
    write_file(root.path(), "maitred.toml", config.as_bytes());
    root
}

fn leaks(root: &Path, words: &[&str]) -> Output {
    let config = root.join("maitred.toml");
    let mut command = Command::new(maitred_program());
    command.arg("leaks").arg("--config").arg(config).args(words);
    command.output().expect("it can be run")
}

/// A handler that is in the middle of a request from when there is a file `state/runs` on.
const LINGERS: &str = "<?php touch(__DIR__ . '/state/runs'); while (true) { sleep(1); }";

/// `maitred leaks`, in the middle of a request to a handler that lingers.
struct Lingering {
    command: Child,
    /// Where its server listens.
    address: SocketAddr,
    /// All its processes.
    processes: Vec<Process>,
}

impl Lingering {
    fn start(root: &Path) -> Lingering {
        let state = root.join("state");
        std::fs::create_dir(&state).expect("a folder can be made");
        give_to_web_user(&state);
        let mut command = Command::new(maitred_program());
        command.arg("leaks").arg("--config").arg(root.join("maitred.toml")).arg("/lingers");
        let command = command.env("TMPDIR", root).stdin(Stdio::null()).spawn().expect("it runs");
        wait::until_true("the handler runs", || state.join("runs").exists());
        let folder = Self::folder(root).expect("its server has one");
        let log = std::fs::read_to_string(folder.join("log")).expect("its server has one");
        let (_, serving) = log.split_once("on http://").expect("its server listens");
        let address = serving.split_whitespace().next().expect("an address");
        let processes = family(command.id().cast_signed());
        assert!(processes.len() > 2, "{processes:?}");
        Lingering { command, address: address.parse().expect("an address"), processes }
    }

    /// The folder of the server's files.
    fn folder(root: &Path) -> Option<std::path::PathBuf> {
        let entries = std::fs::read_dir(root).expect("it is there").flatten();
        let mut paths = entries.map(|entry| entry.path());
        paths.find(|path| path.to_string_lossy().contains("/maitred-leaks-"))
    }

    /// The response to a client that is not the command.
    fn response(&self, start: &str, target: &str) -> String {
        let mut client = TcpStream::connect(self.address).expect("it listens");
        let request =
            format!("{start}GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        client.write_all(request.as_bytes()).expect("it reads");
        let mut response = Vec::new();
        // A connection may be reset in place of a response.
        let _ = client.read_to_end(&mut response);
        String::from_utf8_lossy(&response).into_owned()
    }

    /// Sends the command a signal; nothing of it is left then. Returns its exit code.
    fn end(mut self, signal: Signal) -> Option<i32> {
        Process::read(self.command.id().cast_signed()).expect("it runs").signal(signal);
        let code = self.command.wait().expect("it has been started").code();
        wait::until_true("the listener is gone", || !ports::is_listening(self.address));
        wait::until_true("no process is left", || {
            self.processes.iter().all(|process| !process.is_running())
        });
        code
    }
}

#[test]
fn no_other_user_of_the_machine_gets_anything_of_the_site() {
    let root = application(&[("lingers", LINGERS)]);
    std::fs::create_dir(root.path().join("private")).expect("a folder can be made");
    write_file(root.path(), "private/dump.sql", b"the secret");
    let config = root.path().join("maitred.toml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    std::fs::write(&config, text + "deny = [\"/private/*\"]\n").expect("it can be written");
    let leaks = Lingering::start(root.path());
    let forwarded = "PROXY TCP4 127.0.0.1 127.0.0.1 1 80\r\n";
    let other = "PROXY TCP6 fd00::7 ::1 1 80\r\n";
    // The connection is the proxy's own (version 2, §2.2).
    let own = "\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for start in ["", forwarded, other, own] {
        for target in ["/private/dump.sql", "/index.php"] {
            let response = leaks.response(start, target);
            let is_refused = response.is_empty() || response.starts_with("HTTP/1.1 403 ");
            assert!(is_refused, "{start}{target}: {response}");
        }
    }
    assert_eq!(leaks.end(Signal::TERM), Some(130));
    assert_eq!(Lingering::folder(root.path()), None, "its configuration has secrets");
}

#[test]
fn its_server_ends_with_it() {
    let root = application(&[("lingers", LINGERS)]);
    // A script without end has a minute by default.
    let config = root.path().join("maitred.toml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let text = text.replace("[[sites]]", "request_terminate_timeout = \"20s\"\n[[sites]]");
    std::fs::write(&config, text).expect("it can be written");
    let leaks = Lingering::start(root.path());
    assert_eq!(leaks.end(Signal::KILL), None);
}

#[test]
fn settings_in_variables_are_those_of_the_real_server() {
    let root = application(&[("tidy", "<?php echo 'tidy';")]);
    let taken = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().expect("it has one").to_string();
    let mut command = Command::new(maitred_program());
    command.arg("leaks").arg("--config").arg(root.path().join("maitred.toml"));
    command.env("MAITRED_LISTEN", taken).env("MAITRED_POOL_MAX_CHILDREN", "4");
    let output = command.args(["--rounds", "2", "/tidy"]).output().expect("it can be run");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn what_requests_leave_behind_is_named_and_what_the_first_has_set_is_not() {
    let root = application(&[
        ("tidy", "<?php Kept::$once ??= 'cached'; $local = 1; echo 'tidy';"),
        (
            "untidy",
            "<?php Kept::$seen[] = 'secret'; counts(); $closure();
             $GLOBALS['last'] = microtime(true);
             ini_set('precision', (string) random_int(1, 1000000));
             $state->files[] = fopen(__FILE__, 'r');
             ini_set('user_agent', \"\\e]0;ini secret\\x07\" . random_int(1, PHP_INT_MAX));
             $GLOBALS['odd'][\"\\e[2Jkey secret\"] = random_int(1, PHP_INT_MAX);
             define('ONE_' . random_int(1, PHP_INT_MAX), 1);",
        ),
        ("exits", "<?php echo 'bye'; exit;"),
    ]);
    let tidy = leaks(root.path(), &["/tidy?a=b", "http://any.example/tidy"]);
    assert_eq!(tidy.status.code(), Some(0), "{tidy:?}");
    assert!(said(&tidy).contains("no leak was seen in 8 requests"), "{tidy:?}");
    assert!(said(&tidy).contains("were set by the first requests"), "{tidy:?}");

    let untidy = leaks(root.path(), &["--rounds", "4", "/untidy"]);
    assert_eq!(untidy.status.code(), Some(3), "{untidy:?}");
    let text = said(&untidy);
    for expected in [
        "static Kept::$seen grows (3 of 3 requests)",
        "static $times in counts() changes (3 of 3 requests)",
        "global $last changes",
        "global $closure changes (3 of 3 requests), such as global $closure->{$calls}: ",
        "ini precision changes",
        "ini user_agent changes",
        "global $odd changes",
        "global $state grows",
        "open descriptor",
        "constant ONE_",
        "after /untidy",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(!text.contains("secret"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
    let json = leaks(root.path(), &["--json", "/untidy"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(json["requests"], 4);
    assert_eq!(json["changes"][0]["grows"], true);

    let exits = leaks(root.path(), &["--rounds", "2", "/exits"]);
    assert_eq!(exits.status.code(), Some(3), "{exits:?}");
    assert!(said(&exits).contains("/exits ends its worker"), "{exits:?}");
}

#[test]
fn an_error_handler_that_throws_hears_of_nothing_that_is_looked_at() {
    let root = application(&[("tidy", "<?php echo 'tidy';")]);
    let strict = WORKER.replace(
        "$handle =",
        "set_error_handler(fn ($level, $said) => throw new ErrorException($said));\n$handle =",
    );
    write_file(root.path(), "worker.php", strict.as_bytes());
    let tidy = leaks(root.path(), &["--rounds", "2", "/tidy"]);
    assert_eq!(tidy.status.code(), Some(0), "{tidy:?}");
}

/// Writes what its process may do into a file of the site, as JSON.
const FACTS: &str = "<?php
$status = file_get_contents('/proc/self/status');
preg_match_all('/^(NoNewPrivs|CapBnd):\\s*(\\S+)/m', $status, $found);
$limits = posix_getrlimit();
file_put_contents(__DIR__ . '/facts/is.json', json_encode(array_combine($found[1], $found[2]) + [
    'files' => $limits['hard openfiles'], 'core' => $limits['hard core'],
    'nice' => pcntl_getpriority(), 'oom' => (int) file_get_contents('/proc/self/oom_score_adj'),
    'basedir' => ini_get('open_basedir'), 'outside' => @file_get_contents('/etc/hostname')]));
";

#[test]
fn the_application_is_confined_as_its_pool_is() {
    let root = application(&[("facts", FACTS)]);
    let folder = root.path().join("facts");
    std::fs::create_dir(&folder).expect("a folder can be made");
    give_to_web_user(&folder);
    let basedir = format!("{}/:/proc/", root.path().display());
    let config = format!(
        "[pools.www]\nmode = \"worker\"\nscript = \"worker.php\"\nno_new_privileges = true\n\
         rlimit_files = 321\nrlimit_core = 0\nprocess_priority = 7\noom_score_adj = 500\n\
         php_admin_value = {{ open_basedir = {basedir:?} }}\n[[sites]]\nroot = {:?}\n",
        root.path()
    );
    write_file(root.path(), "maitred.toml", config.as_bytes());
    let output = leaks(root.path(), &["--rounds", "2", "/facts"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let facts = std::fs::read(folder.join("is.json")).expect("it has run");
    let facts: serde_json::Value = serde_json::from_slice(&facts).expect("JSON");
    assert_eq!(facts["NoNewPrivs"], "1", "{facts}");
    if is_root() {
        assert_eq!(facts["CapBnd"], "0".repeat(16), "{facts}");
    }
    let limits = ["files", "core", "nice", "oom"].map(|name| facts[name].as_i64());
    assert_eq!(limits, [Some(321), Some(0), Some(7), Some(500)], "{facts}");
    let within = facts["basedir"].as_str().expect("a list");
    let added = within.strip_prefix(&format!("{basedir}:")).expect("the pool's own, and more");
    assert!(added.contains("/maitred-leaks-") && !added.contains(':'), "{within}");
    assert_eq!(facts["outside"], false, "{facts}");
}

#[test]
fn a_pool_beside_those_of_other_users_has_its_private_folders() {
    if !is_root() {
        return eprintln!("skipped: only root can run pools as several users");
    }
    let write = "<?php file_put_contents(__DIR__ . '/facts/is.json',
        json_encode([sys_get_temp_dir(), session_save_path()]));";
    let root = application(&[("facts", write)]);
    let folder = root.path().join("facts");
    std::fs::create_dir(&folder).expect("a folder can be made");
    give_to_web_user(&folder);
    let config = root.path().join("maitred.toml");
    let text = std::fs::read_to_string(&config).expect("it is there");
    let text = format!("{text}pool = \"www\"\n[pools.other]\nuser = \"nobody\"\n");
    std::fs::write(&config, text).expect("a file can be written");
    let state = public_folder();
    let mut command = Command::new(maitred_program());
    command.arg("leaks").arg("--config").arg(config).args(["--rounds", "2", "/facts"]);
    let output = command.env("STATE_DIRECTORY", state.path().join("state")).output().expect("run");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let users = state.path().join("state/users");
    let own = users.join(user_ids(WEB_USER).0.to_string());
    let facts = std::fs::read(folder.join("is.json")).expect("it has run");
    let facts: serde_json::Value = serde_json::from_slice(&facts).expect("JSON");
    assert_eq!(facts, serde_json::json!([own.join("tmp"), own.join("sessions")]));
    assert_eq!(std::fs::metadata(users).expect("made").permissions().mode() & 0o777, 0o711);
}

#[test]
fn responses_and_inspections_have_limits() {
    let report = "foreach (get_included_files() as $file) {
        if (str_contains($file, 'maitred-leaks-')) { $report = dirname($file) . '/report'; } }";
    let root = application(&[
        ("endless", "<?php while (true) { echo str_repeat('x', 1 << 20); }"),
        (
            "talks",
            &format!("<?php {report} file_put_contents($report, str_repeat('x', 65 << 20), 8);"),
        ),
    ]);
    for (target, expected) in [
        ("/endless", "the response to /endless: it has more than 268435456 bytes"),
        ("/talks", "scripts have written more than 67108864 bytes to "),
    ] {
        let output = leaks(root.path(), &[target]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn what_cannot_be_watched_is_said() {
    let root = application(&[]);
    write_file(root.path(), "worker.php", b"<?php exit('no database');");
    let broken = leaks(root.path(), &["/"]);
    assert_eq!(broken.status.code(), Some(1), "{broken:?}");
    let why = String::from_utf8_lossy(&broken.stderr);
    assert!(why.contains("it printed: no database"), "{why}");
    let config = format!("[[sites]]\nroot = {:?}\n", root.path());
    write_file(root.path(), "maitred.toml", config.as_bytes());
    let classic = leaks(root.path(), &["/"]);
    assert_eq!(classic.status.code(), Some(2), "{classic:?}");
}
