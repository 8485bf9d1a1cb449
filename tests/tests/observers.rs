//! Extensions that observe scripts: Xdebug, pcov and excimer, each in a classic, a worker and a
//! snapshot pool whose copies go back; and step debugging.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};

use maitred_tests::http::{self, Response};
use maitred_tests::server::{Server, Setup, document_root, set_mode};
use maitred_tests::{Target, php_version, project_root, wait};
use tempfile::TempDir;

/// The modes, with the lines of a pool in each.
const MODES: [(&str, &[&str]); 3] =
    [("classic", &[]), ("worker", &[]), ("snapshot", &["rewinds_per_child = 100"])];

/// Requests for each page.
const ROUNDS: usize = 4;

/// A page for all modes. `OBSERVED` is the body of a function that runs `$page`.
const SCRIPT: &str = r"<?php
function total(): int {
    $total = 0;
    for ($i = 1; $i <= 100; $i++) {
        $total += $i;
    }
    return $total;
}
function observed(callable $page): string { OBSERVED }
$handle = function (): void { echo observed('total'); };
if (function_exists('frankenphp_handle_request')) {
    while (frankenphp_handle_request($handle)) { }
} else {
    $handle();
}
";

/// The line of `SCRIPT` with `return $total`.
const BREAKPOINT: u32 = 7;

/// An extension, its line in an INI file, further lines, and what its page does.
struct Observer {
    name: &'static str,
    kind: &'static str,
    ini: String,
    observed: &'static str,
}

/// A page with the extension, and the folder of INI files that loads it beside PHP's own.
struct Observed {
    root: TempDir,
    ini: TempDir,
}

impl Observed {
    fn new(observer: &Observer) -> Observed {
        let script = SCRIPT.replace("OBSERVED", observer.observed);
        let root = document_root(&[("index.php", &script)]);
        let ini = tempfile::tempdir().expect("a folder can be made");
        let version = php_version();
        let branch: Vec<&str> = version.split('.').take(2).collect();
        let theirs = format!("/etc/php/{}/fpm/conf.d", branch.join("."));
        for file in fs::read_dir(theirs).expect("PHP's own INI files can be listed") {
            let file = file.expect("they can be listed");
            fs::copy(file.path(), ini.path().join(file.file_name())).expect("they can be copied");
        }
        let (name, kind) = (observer.name, observer.kind);
        let object = ini.path().join(format!("{name}.so"));
        fs::copy(project_root().join(format!("target/tools/{name}.so")), &object)
            .expect("scripts/setup-test fetches it");
        let lines = format!("{kind}={}\n{}\n", object.display(), observer.ini);
        fs::write(ini.path().join(format!("99-{name}.ini")), lines).expect("it can be written");
        set_mode(ini.path(), 0o755);
        Observed { root, ini }
    }

    fn script(&self) -> PathBuf {
        self.root.path().join("index.php")
    }

    fn start(&self, mode: &str, lines: &[&str]) -> Server {
        let ini: &Path = self.ini.path();
        let setup = Setup::new(self.root.path()).workers(1);
        let setup = setup.pool(&format!("php_ini_scan_dir = {ini:?}"));
        let setup = match mode {
            "classic" => setup,
            _ => setup
                .pool(&format!("mode = {mode:?}"))
                .pool(&format!("script = {:?}", self.script())),
        };
        lines.iter().fold(setup, |setup, line| setup.pool(line)).start()
    }
}

fn page(response: &Response) -> (u16, String) {
    (response.status, response.text())
}

#[test]
fn each_observer_does_its_work_in_each_mode_and_leaves_the_page_as_it_is() {
    let observers = [
        Observer {
            name: "pcov",
            kind: "extension",
            ini: "pcov.enabled=1\npcov.directory=/tmp".to_owned(),
            observed: r"\pcov\start(); $total = $page(); \pcov\stop();
                $lines = \pcov\collect(\pcov\inclusive, [__FILE__])[__FILE__] ?? [];
                \pcov\clear();
                return $total . (in_array(1, $lines) ? ' covered' : ' not covered');",
        },
        Observer {
            name: "excimer",
            kind: "extension",
            ini: String::new(),
            observed: r"$profiler = new ExcimerProfiler(); $profiler->setEventType(EXCIMER_REAL);
                $profiler->setPeriod(0.001); $profiler->start();
                $end = hrtime(true) + 30e6;
                while (hrtime(true) < $end) { $total = $page(); }
                $profiler->stop();
                return $total . ($profiler->getLog()->count() > 0 ? ' covered' : ' not covered');",
        },
        Observer {
            name: "xdebug",
            kind: "zend_extension",
            ini: "xdebug.mode=develop,coverage".to_owned(),
            observed: r"xdebug_start_code_coverage(); $total = $page();
                $lines = xdebug_get_code_coverage()[__FILE__] ?? [];
                xdebug_stop_code_coverage();
                return $total . (in_array(1, $lines) ? ' covered' : ' not covered');",
        },
    ];
    for observer in observers {
        let observed = Observed::new(&observer);
        for (mode, lines) in MODES {
            let server = observed.start(mode, lines);
            for _ in 0..ROUNDS {
                let found = page(&http::get(server.address(), "/"));
                let expected = (200, "5050 covered".to_owned());
                assert_eq!(found, expected, "{} in {mode}", observer.name);
            }
            server.stop();
        }
    }
}

/// A client of Xdebug's protocol DBGp: an editor that has a breakpoint.
struct Debugger(TcpListener);

impl Debugger {
    fn new() -> Debugger {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        listener.set_nonblocking(true).expect("it need not wait");
        Debugger(listener)
    }

    fn port(&self) -> u16 {
        self.0.local_addr().expect("it has an address").port()
    }

    /// Takes the next script to the breakpoint, returns what `$total` is there, and lets it go on.
    fn look(&self, script: &Path) -> String {
        let (mut stream, _) = wait::until("Xdebug to connect", || self.0.accept().ok());
        stream.set_nonblocking(false).expect("it can wait");
        stream.set_read_timeout(Some(wait::DEADLINE)).expect("a timeout can be set");
        assert!(packet(&mut stream).contains("<init "));
        let breakpoint =
            format!("breakpoint_set -i 1 -t line -f file://{} -n {BREAKPOINT}", script.display());
        ask(&mut stream, &breakpoint);
        let stopped = ask(&mut stream, "run -i 2");
        assert!(stopped.contains("status=\"break\""), "{stopped}");
        let value = ask(&mut stream, "property_get -i 3 -n $total");
        ask(&mut stream, "breakpoint_remove -i 4 -d 1");
        stream.write_all(b"detach -i 5\0").expect("Xdebug reads");
        value
    }
}

fn ask(stream: &mut TcpStream, command: &str) -> String {
    stream.write_all(format!("{command}\0").as_bytes()).expect("Xdebug reads");
    packet(stream)
}

/// A packet: its length, a zero, the XML, a zero.
fn packet(stream: &mut TcpStream) -> String {
    let mut length = String::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).expect("Xdebug writes");
        match byte[0] {
            0 => break,
            digit => length.push(char::from(digit)),
        }
    }
    let length: usize = length.parse().expect("a length");
    let mut text = vec![0; length + 1];
    stream.read_exact(&mut text).expect("Xdebug writes");
    String::from_utf8_lossy(&text).into_owned()
}

#[test]
fn an_editor_steps_into_the_script_of_a_request() {
    let debugger = Debugger::new();
    let port = debugger.port();
    let observed = Observed::new(&Observer {
        name: "xdebug",
        kind: "zend_extension",
        ini: format!("xdebug.mode=debug\nxdebug.start_with_request=yes\nxdebug.client_port={port}"),
        observed: "return $page() . '';",
    });
    let server = observed.start("classic", &[]);
    for _ in 0..2 {
        let address = server.address();
        let request = std::thread::spawn(move || page(&http::get(address, "/")));
        let value = debugger.look(&observed.script());
        assert!(value.contains("type=\"int\"") && value.contains("[5050]"), "{value}");
        assert_eq!(request.join().expect("it ends"), (200, "5050".to_owned()));
    }
    server.stop();
}
