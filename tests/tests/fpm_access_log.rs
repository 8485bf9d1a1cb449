//! The access log of a listener beside php-fpm's: the same requests, the same lines; and what
//! becomes of a log that cannot be written. `tests/fpm-directives` has a case for each directive
//! besides.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::process::{Command, Stdio};

use maitred_tests::fpm::{Daemon, Listener, Params, Place, Which, usual};
use maitred_tests::processes::Signal;
use maitred_tests::server::{document_root, give_to_web_user, is_root, set_mode};
use maitred_tests::wait;
use tempfile::TempDir;

/// Every token that shows a request and nothing that is measured.
const EVERY_TOKEN: &str =
    r#"%% %{HTTP_X_ASKED}e %{NO_SUCH}e %f %l %m %n %{X-Of}o %{content-type}o %q %Q %r %R %s %u"#;

/// Every token that is measured, or differs from one run to the next.
const EVERY_FIGURE: &str = "%d %{seconds}d %{milli}d %{mili}d %{micro}d %M %{bytes}M %{kilo}M \
                            %{mega}M %C %{user}C %{system}C %{total}C %p %P %t %T \
                            %{%Y-%m-%dT%H:%M:%S}t %{%s}T";

fn scripts() -> TempDir {
    document_root(&[
        ("hello.php", "<?php header('X-Of: script'); echo 'hello';"),
        ("status.php", "<?php http_response_code((int) $_GET['is']); echo 'status';"),
        ("post.php", "<?php echo strlen(file_get_contents('php://input'));"),
        ("die.php", "<?php exit(1);"),
        ("fatal.php", "<?php nothing();"),
        ("finish.php", "<?php echo 'x'; fastcgi_finish_request(); usleep(50000);"),
        ("info.php", "<?php echo $_SERVER['PATH_INFO'] ?? '-';"),
        (
            "headers.php",
            "<?php header('X-Of: one'); header('X-Of: two', false); header('X-Of: three');",
        ),
        ("gone.php", "<?php unlink(__FILE__); echo 'gone';"),
    ])
}

fn requests(root: &TempDir) -> Vec<(Params, &'static [u8])> {
    let root = root.path().display().to_string();
    let get = |target: &str| Params::get(&root, target);
    let body: &[u8] = b"a=1&b=2";
    let post = |target: &str| {
        get(target)
            .with("REQUEST_METHOD", "POST")
            .with("CONTENT_TYPE", "application/x-www-form-urlencoded")
            .with("CONTENT_LENGTH", "7")
    };
    vec![
        (get("/hello.php"), b""),
        (get("/hello.php?"), b""),
        (get("/hello.php?a=b&c=%20d"), b""),
        (get("/hello.php").with("REQUEST_METHOD", "HEAD"), b""),
        (get("/hello.php").with("REQUEST_METHOD", "PROPFIND"), b""),
        (get("/hello.php").with("HTTP_X_ASKED", "yes, \"quoted\""), b""),
        (get("/hello.php").with("REMOTE_USER", "keeper"), b""),
        // "anna:secret"
        (get("/hello.php").with("HTTP_AUTHORIZATION", "Basic YW5uYTpzZWNyZXQ="), b""),
        (get("/hello.php").with("HTTP_AUTHORIZATION", "Bearer token"), b""),
        (get("/hello.php").with("REMOTE_ADDR", "2001:db8::1"), b""),
        (get("/status.php?is=204"), b""),
        (get("/status.php?is=301"), b""),
        (get("/status.php?is=404"), b""),
        (get("/status.php?is=500"), b""),
        (post("/post.php"), body),
        (post("/hello.php"), body),
        (get("/die.php"), b""),
        (get("/fatal.php"), b""),
        (get("/finish.php"), b""),
        (get("/headers.php"), b""),
        (get("/info.php/more/of?it=1"), b""),
        (get("/nowhere.php"), b""),
        (get("/hello.txt"), b""),
        (get("/ping").with("SCRIPT_FILENAME", "/ping"), b""),
        (get("/status?json").with("SCRIPT_FILENAME", "/status"), b""),
        (get("/caf\u{e9}.php"), b""),
        (get("/hello.php").with("REQUEST_URI", ""), b""),
        (get("/hello.php").with("REQUEST_METHOD", ""), b""),
        (get("/hello.php").with("SCRIPT_FILENAME", ""), b""),
    ]
}

/// The lines that these requests leave, one by one.
fn lines_of(which: Which, format: &str, listener: &str, root: &TempDir) -> Vec<String> {
    let settings = format!(
        "access.log = @FOLDER@/access.log\naccess.format = \"{format}\"\nping.path = /ping\n\
         pm.status_path = /status\nlisten = {listener}\n",
    );
    let daemon = Daemon::start(which, &usual(&settings));
    let reach = match listener {
        "127.0.0.1:@PORT1@" => daemon.place().listener("@PORT1@"),
        _ => daemon.listener(),
    };
    let log = daemon.place().file("access.log");
    let mut lines = Vec::new();
    for (params, body) in requests(root) {
        let _ = reach.ask(&params, body);
        let text = wait::until(&format!("{which:?} to log {params:?}"), || {
            let text = fs::read_to_string(&log).unwrap_or_default();
            (text.ends_with('\n') && text.lines().count() > lines.len()).then_some(text)
        });
        lines = text.lines().map(|line| daemon.place().mask(line)).collect();
    }
    daemon.stop();
    lines
}

#[test]
fn every_token_says_what_php_fpms_says() {
    let root = scripts();
    for listener in ["@FOLDER@/www.sock", "127.0.0.1:@PORT1@"] {
        let format = EVERY_TOKEN.replace('"', "\\\"");
        let [theirs, ours] = Which::BOTH.map(|which| lines_of(which, &format, listener, &root));
        for ((theirs, ours), (params, _)) in theirs.iter().zip(&ours).zip(requests(&root)) {
            assert_eq!(ours, theirs, "{params:?}");
        }
        assert_eq!(ours.len(), requests(&root).len());
    }
}

/// Each run of digits as `#`.
fn without_figures(line: &str) -> String {
    let mut masked = String::new();
    for c in line.chars() {
        match c.is_ascii_digit() {
            true if masked.ends_with('#') => {}
            true => masked.push('#'),
            false => masked.push(c),
        }
    }
    masked
}

#[test]
fn every_figure_has_the_form_of_php_fpms() {
    let root = scripts();
    let form = |which| -> Vec<String> {
        let lines = lines_of(which, EVERY_FIGURE, "@FOLDER@/www.sock", &root);
        lines.iter().map(|line| without_figures(line)).collect()
    };
    let [theirs, ours] = Which::BOTH.map(form);
    assert_eq!(ours, theirs);
}

fn hello(listener: &Listener, root: &TempDir) {
    let params = Params::get(&root.path().display().to_string(), "/hello.php");
    assert_eq!(listener.ask(&params, b"").unwrap().body(), "hello");
}

/// Requests one after the other, each of which has to find its line at once.
const ONE_BY_ONE: usize = 200;

#[test]
fn a_line_is_in_the_log_when_the_end_of_its_answer_comes() {
    let root = scripts();
    for which in Which::BOTH {
        let settings = "access.log = @FOLDER@/access.log\nping.path = /ping\n";
        let daemon = Daemon::start(which, &usual(settings));
        let log = daemon.place().file("access.log");
        let folder = root.path().display().to_string();
        let ping = Params::get(&folder, "/ping").with("SCRIPT_FILENAME", "/ping");
        for count in 1..=ONE_BY_ONE {
            match count % 2 {
                0 => hello(&daemon.listener(), &root),
                _ => assert_eq!(daemon.listener().ask(&ping, b"").unwrap().body(), "pong"),
            }
            let lines = fs::read_to_string(&log).unwrap().lines().count();
            assert_eq!(lines, count, "{which:?}");
        }
        daemon.stop();
    }
}

/// A listener's log once that many lines are in it.
fn wait_for_lines(daemon: &Daemon, name: &str, count: usize) -> String {
    let path = daemon.place().file(name);
    wait::until(&format!("{count} lines in {name}"), || {
        let text = fs::read_to_string(&path).ok()?;
        (text.lines().count() == count).then_some(text)
    })
}

#[test]
fn a_log_that_was_moved_away_is_begun_anew_with_sigusr1_and_nothing_is_lost() {
    let root = scripts();
    for which in Which::BOTH {
        let settings = "access.log = @FOLDER@/access.log\naccess.format = \"%r\"\n";
        let mut daemon = Daemon::start(which, &usual(settings));
        hello(&daemon.listener(), &root);
        wait_for_lines(&daemon, "access.log", 1);
        let (now, aside) = ("access.log", "access.log.1");
        fs::rename(daemon.place().file(now), daemon.place().file(aside)).unwrap();
        hello(&daemon.listener(), &root);
        wait_for_lines(&daemon, aside, 2);
        let mark = daemon.log().mark();
        daemon.signal(Signal::USR1);
        daemon.expect_log(mark, "access log file re-opened");
        // php-fpm's workers get the signal afterwards.
        let is_used = || daemon.place().file(now).metadata().is_ok_and(|m| m.size() > 0);
        wait::until_true("the new file to be used", || {
            hello(&daemon.listener(), &root);
            is_used()
        });
        daemon.stop();
    }
}

#[test]
fn pools_share_a_log_and_its_lines_do_not_mix() {
    let root = scripts();
    let other = if is_root() { "user = www-data\n" } else { "" };
    for which in Which::BOTH {
        let settings = format!(
            "access.log = @FOLDER@/access.log\naccess.format = \"%n %r\"\n[other]\n{other}\
             listen = 127.0.0.1:@PORT1@\npm = static\npm.max_children = 1\n\
             access.log = @FOLDER@/access.log\naccess.format = \"%n %r\"\n"
        );
        let daemon = Daemon::start(which, &usual(&settings));
        let listeners = [daemon.listener(), daemon.place().listener("@PORT1@")];
        std::thread::scope(|scope| {
            for listener in &listeners {
                scope.spawn(|| (0..50).for_each(|_| hello(listener, &root)));
            }
        });
        let text = wait_for_lines(&daemon, "access.log", 100);
        for pool in ["www", "other"] {
            let line = format!("{pool} /hello.php");
            let count = text.lines().filter(|logged| *logged == line).count();
            assert_eq!(count, 50, "{which:?} {text}");
        }
        daemon.stop();
    }
}

#[test]
fn a_disk_that_is_full_costs_lines_and_no_answers() {
    let root = scripts();
    for which in Which::BOTH {
        let settings = "access.log = /dev/full\n";
        let daemon = Daemon::start(which, &usual(settings));
        (0..20).for_each(|_| hello(&daemon.listener(), &root));
        daemon.stop();
    }
}

#[test]
fn a_fifo_that_is_full_costs_lines_and_no_answers() {
    let root = scripts();
    let place = Place::default();
    let fifo = place.file("access.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    set_mode(&fifo, 0o666);
    // A process has it open and reads nothing.
    let _reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let long = "x".repeat(800);
    let settings = format!("access.log = @FOLDER@/access.fifo\naccess.format = \"{long} %r\"\n");
    let mut daemon = Daemon::start_with(Which::Maitred, &usual(&settings), place, &[]);
    (0..300).for_each(|_| hello(&daemon.listener(), &root));
    daemon.expect_log(0, "access log");
    hello(&daemon.listener(), &root);
    daemon.stop();
}

/// What is said by one that must not start with this configuration, and its exit code.
fn refusal(which: Which, place: &Place, settings: &str) -> (String, Option<i32>) {
    let file = place.file("php-fpm.conf");
    fs::write(&file, place.fill_in(&usual(settings))).unwrap();
    let mut command = which.command();
    command.args(["-F", "-O", "-y"]).arg(&file).stdin(Stdio::null());
    let output = command.output().unwrap();
    let text = place.mask(&String::from_utf8_lossy(&output.stderr));
    (text, output.status.code())
}

#[test]
fn a_log_in_a_folder_that_is_not_there_is_refused_as_php_fpm_refuses_it() {
    let settings = "access.log = @FOLDER@/missing/access.log\n";
    for which in Which::BOTH {
        let (text, code) = refusal(which, &Place::default(), settings);
        assert_eq!(code, Some(78), "{which:?}: {text}");
        let said =
            "failed to open access log (@FOLDER@/missing/access.log): No such file or directory";
        assert!(text.contains(said), "{which:?}: {text}");
    }
}

#[test]
fn a_fifo_that_nobody_reads_is_refused_and_not_waited_for() {
    let place = Place::default();
    let fifo = place.file("access.fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let settings = "access.log = @FOLDER@/access.fifo\n";
    let (text, code) = refusal(Which::Maitred, &place, settings);
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("it is a FIFO without a reader"), "{text}");
}

#[test]
fn a_fifo_in_a_folder_of_the_pools_user_is_refused_and_not_opened() {
    if !is_root() {
        return;
    }
    let place = Place::default();
    let folder = place.file("tenant");
    let fifo = folder.join("access.log");
    fs::create_dir(&folder).unwrap();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    give_to_web_user(&folder);
    give_to_web_user(&fifo);
    let _reader = File::options().read(true).write(true).open(&fifo).unwrap();
    let settings = "access.log = @FOLDER@/tenant/access.log\n";
    let (text, code) = refusal(Which::Maitred, &place, settings);
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("it is no regular file"), "{text}");
}

#[test]
fn a_tenants_link_leads_root_nowhere() {
    if !is_root() {
        return;
    }
    let place = Place::default();
    let (folder, target) = (place.file("tenant"), place.file("secret"));
    fs::create_dir(&folder).unwrap();
    fs::write(&target, "secret\n").unwrap();
    set_mode(&target, 0o600);
    std::os::unix::fs::symlink(&target, folder.join("access.log")).unwrap();
    give_to_web_user(&folder);
    let settings = "access.log = @FOLDER@/tenant/access.log\n";
    let (text, code) = refusal(Which::Maitred, &place, settings);
    assert_eq!(code, Some(78), "{text}");
    assert!(text.contains("failed to open access log"), "{text}");
    assert_eq!(fs::read_to_string(&target).unwrap(), "secret\n");
}
