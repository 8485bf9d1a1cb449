//! `maitred tune`: php-fpm behind nginx and maitred are tuned, proven, undone; and whatever goes
//! wrong meanwhile leaves them as they were.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use maitred_tests::browser::assert_readable;
use maitred_tests::outside::text;
use maitred_tests::peer::Peer;
use maitred_tests::processes::{self, Signal};
use maitred_tests::server::{
    Setup, document_root, give_to_web_user, is_root, public_folder, set_mode, user_ids,
};
use maitred_tests::tuned::{self, Fpm, Going};
use maitred_tests::{Target, http, maitred_program, wait};
use serde_json::Value;
use tempfile::TempDir;

/// As short as it may be, with a goal that a busy machine still meets.
const SHORT: [&str; 7] = [
    "--time",
    "5s",
    "--goal",
    "p50<400ms",
    "--most-workers",
    "12",
    // Other tests run meanwhile.
    "--despite-noise",
];

/// The file that tune writes.
const DROP_IN: &str = "zz-maitred-tune.conf";

/// nginx and php-fpm with two dynamic workers, whose pool reads further files from a folder.
struct Site {
    peer: Peer,
    pools: TempDir,
    root: TempDir,
}

impl Site {
    fn start() -> Site {
        let root = document_root(&[
            ("nap.php", "<?php usleep(100000); echo 'rested';"),
            ("bad.php", "<?php http_response_code(502);"),
            ("login.php", "<form><input type=\"password\" name=\"p\"></form>"),
            ("moved.php", "<?php header('Location: /login.php', true, 302);"),
            ("index.php", "<a href=\"/nap.php?n=1\">1</a> <a href=\"/bad.php\">2</a>"),
        ]);
        give_to_web_user(root.path());
        let pools = public_folder();
        let peer = tuned::peer(root.path(), pools.path()).start();
        Site { peer, pools, root }
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.peer.base_url())
    }

    /// php-fpm's main file.
    fn config(&self) -> PathBuf {
        self.peer.fpm_socket().with_file_name("fpm.conf")
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(maitred_program());
        command.arg("tune").arg("--php-fpm").arg(self.config()).args(arguments);
        command.stdin(Stdio::null());
        command
    }

    fn tune(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the program can be started")
    }

    fn nap(&self, further: &[&str]) -> Output {
        let url = self.url("/nap.php");
        self.tune(&[&[url.as_str()], &SHORT[..], further].concat())
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.pools.path()).expect("it can be listed").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The workers there are.
    fn workers(&self) -> usize {
        let family = processes::family(self.peer.fpm_pid());
        family.iter().filter(|process| process.title.starts_with("php-fpm: pool www")).count()
    }

    /// Nothing of a trial is left, and the pool serves with the two workers that it had.
    fn expect_as_it_was(&self) {
        assert_eq!(self.files(), [""; 0]);
        wait::until_true("php-fpm to have no more than its two workers", || {
            (1..=2).contains(&self.workers())
        });
        let answer = http::get(self.peer.address(), "/nap.php");
        assert_eq!(answer.status, 200);
    }
}

#[track_caller]
fn expect_refused(output: &Output, parts: &[&str]) {
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stdout));
    for part in parts {
        assert!(said.contains(part), "'{part}' is expected of\n{said}");
    }
}

#[test]
fn a_pool_with_too_few_workers_is_given_enough_of_them_and_has_its_own_back_when_told() {
    let site = Site::start();
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("tune.html");
    let other = site.url("/nap.php?n=2");
    let further = [
        other.as_str(),
        "--json",
        "--html",
        page.to_str().expect("a path"),
        "--for",
        "php-fpm,nginx",
    ];
    // A machine that does ten other things may hide a gain.
    let (output, report) = wait::until_within("a gain", wait::DEADLINE * 4, || {
        let output = site.nap(&further);
        let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (report["verdict"] == "gain").then_some((output, report))
    });
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(report["schema"], "maitred-tune/1");
    assert_eq!(report["indicative"], true);
    let workers = report["choice"]["workers"].as_u64().expect("a number");
    assert!((4..=12).contains(&workers), "{workers}");
    let settings = report["settings"].as_array().expect("settings");
    let value = |name: &str| {
        let found = settings.iter().find(|line| line["name"] == name);
        found.unwrap_or_else(|| panic!("{name}"))["value"].clone()
    };
    assert_eq!(value("pm.max_children"), workers.to_string());
    assert!(value("fastcgi_read_timeout").is_string());
    let count = |name: &str| report[name].as_array().map(Vec::len);
    assert_eq!((count("routes"), count("overload")), (Some(2), Some(2)));
    assert!(report["routes"][1]["seen"]["cpu"].as_f64().is_some());
    let why = report["not_counted"].as_str().expect("a sentence");
    assert!(why.contains("pm.status_path"), "{why}");
    let html = fs::read_to_string(&page).expect("a page");
    assert!(html.contains("Requests a second by busy workers") && html.contains("<polyline"));
    assert!(html.contains("<h2>Each route</h2>") && html.contains("<td>GET /nap.php?n=2<td>"));
    let has_pressure = fs::exists("/proc/pressure/memory").unwrap_or(false);
    assert_eq!(
        html.contains("Memory pressure over time"),
        has_pressure,
        "what the kernel does not tell is no chart"
    );
    assert_readable(&page, "tune");
    assert!(html.contains("- pm = dynamic\n- pm.max_children = 2\n+ "), "what changes");
    let written = fs::read_to_string(site.pools.path().join(DROP_IN)).expect("a file");
    let line = format!("\npm.max_children = {workers}\n");
    assert!(written.contains("[www]\n") && written.contains(&line), "{written}");
    wait::until_true("the workers to be there", || site.workers() as u64 == workers);
    let theirs = format!("{written}; mine\n");
    fs::write(site.pools.path().join(DROP_IN), theirs).expect("it can be written");
    expect_refused(&site.tune(&["--undo"]), &[DROP_IN, "another program"]);
    fs::write(site.pools.path().join(DROP_IN), written).expect("it can be written");
    let undone = site.tune(&["--undo"]);
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    site.expect_as_it_was();
    expect_refused(&site.tune(&["--undo"]), &["there is nothing to undo"]);
}

#[test]
fn a_tuning_that_is_ended_puts_everything_back_and_two_at_once_are_refused() {
    let site = Site::start();
    let url = site.url("/nap.php");
    let arguments = [&[url.as_str()], &SHORT[..]].concat();
    let mut going = Going::start(site.command(&arguments));
    going.until("static, 12");
    expect_refused(&site.tune(&arguments), &["another `maitred tune` is running on"]);
    going.signal(Signal::INT);
    let (said, code) = going.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("all settings are restored"), "{said}");
    site.expect_as_it_was();
}

#[test]
fn a_configuration_that_another_hand_changes_meanwhile_ends_it() {
    let site = Site::start();
    let url = site.url("/nap.php");
    let mut going = Going::start(site.command(&[&[url.as_str()], &SHORT[..]].concat()));
    going.until("noise floor");
    let mut text = fs::read_to_string(site.config()).expect("a file");
    text.push_str("; mine\n");
    fs::write(site.config(), &text).expect("it can be written");
    let (said, code) = going.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("fpm.conf was changed by another program"), "{said}");
    assert_eq!(fs::read_to_string(site.config()).expect("a file"), text);
    site.expect_as_it_was();
}

#[test]
fn what_cannot_be_measured_is_said_before_anything_is_changed() {
    let site = Site::start();
    let refused = |arguments: &[&str], parts: &[&str]| {
        expect_refused(&site.tune(&[arguments, &SHORT[..]].concat()), parts);
    };
    let [bad, login, moved, nap, index] =
        ["/bad.php", "/login.php", "/moved.php", "/nap.php", "/index.php"]
            .map(|path| site.url(path));
    refused(&[&bad], &["502 Bad Gateway; fix the site first", "0 % of the requests"]);
    refused(&[&login], &["looks like a login page", "--contains"]);
    refused(&[&moved], &["302 Found", "name the page it leads to"]);
    refused(&[&index, "--crawl"], &["502 Bad Gateway", "66 % of the requests"]);
    refused(&[&nap, "--contains", "Cart"], &["the body lacks the text"]);
    let file = |name: &str, text: &str| {
        let path = site.root.path().join(name);
        fs::write(&path, text).expect("it can be written");
        path.display().to_string()
    };
    let log = file("other.log", "{\"ts\": 1, \"path\": \"/nap.php\"}\n");
    refused(
        &[&nap, "--access-log", &log],
        &["is no access log with requests to send", "found '{\"ts\""],
    );
    let list = file("urls.txt", &format!("{nap} POST a=1\n"));
    refused(&["--urls-file", &list], &["may change something", "--allow-write"]);
    refused(&[&nap, "--pool", "shop"], &["no pool 'shop' runs here", "www of php-fpm"]);
    // Slower than asked: no number of workers helps.
    let slow = ["--time", "5s", "--despite-noise", "--goal", "p99<20ms"];
    let slow = site.tune(&[&[nap.as_str()], &slow[..]].concat());
    let said = text(&slow.stdout);
    assert_eq!(slow.status.code(), Some(3), "{said}{}", text(&slow.stderr));
    assert!(said.contains("the goal cannot be met: one request alone takes"), "{said}");
    let usage = site.tune(&[&nap, "--goal", "error<1%"]);
    assert_eq!(usage.status.code(), Some(2));
    site.expect_as_it_was();
}

#[test]
fn who_may_not_change_the_server_or_cannot_write_leaves_it_as_it_is() {
    let site = Site::start();
    let url = site.url("/nap.php");
    if is_root() {
        set_mode(site.peer.fpm_socket().parent().expect("a folder"), 0o755);
        let (user, group) = user_ids("nobody");
        let mut command = site.command(&[&[url.as_str()], &SHORT[..]].concat());
        let output = command.uid(user).gid(group).output().expect("the program can be started");
        expect_refused(&output, &["may not reload php-fpm", "run the command as root"]);
    }
    // No file may have a byte, as on a disk that is full.
    let mut full = Command::new("sh");
    full.args(["-c", "ulimit -f 0; exec \"$@\"", "sh"]);
    full.arg(maitred_program()).arg("tune").arg("--php-fpm").arg(site.config());
    let output = full.arg(&url).args(SHORT).output().expect("sh can be started");
    expect_refused(&output, &[DROP_IN, "cannot be written: File too large"]);
    site.expect_as_it_was();
}

#[test]
fn a_server_that_does_not_come_back_after_a_reload_has_its_settings_back_and_it_is_said() {
    let root = document_root(&[("nap.php", "<?php usleep(20000); echo 'rested';")]);
    let folder = public_folder();
    let program = folder.path().join("php-fpm-copy");
    fs::copy(maitred_tests::peer::fpm_program(), &program).expect("a copy");
    let lines = match is_root() {
        true => "user = www-data\ngroup = www-data\npm = static",
        false => "pm = static",
    };
    let fpm = Fpm::start(&program, folder.path(), lines, None);
    let nginx = fpm.behind_nginx(root.path());
    let url = format!("{}/nap.php", nginx.base_url());
    let mut command = Command::new(maitred_program());
    command.arg("tune").arg("--php-fpm").arg(&fpm.config).arg(&url).args(SHORT);
    let mut going = Going::start(command);
    going.until("noise floor");
    // What is to be executed at the reload is gone.
    fs::remove_file(&program).expect("it is ours");
    let (said, code) = going.end();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("php-fpm exited at the reload"), "{said}");
    assert!(said.contains("its settings are restored, but it does not serve: start it"), "{said}");
    fpm.expect_no_trial();
}

#[test]
fn maitred_that_finds_its_number_itself_has_nothing_to_gain_and_its_file_is_as_it_was() {
    let root = document_root(&[("nap.php", "<?php usleep(20000); echo 'rested';")]);
    let server = Setup::new(root.path()).pm("auto").workers(16).start();
    let before = fs::read(server.configuration()).expect("a file");
    let mut command = Command::new(maitred_program());
    command.arg("tune").arg("--config").arg(server.configuration());
    command.arg(format!("{}/nap.php", server.base_url()));
    let output = command.args(SHORT).arg("--json").output();
    let output = output.expect("the program can be started");
    let said = text(&output.stderr);
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|why| panic!("{why}: {said}"));
    let verdict = report["verdict"].as_str().expect("a word");
    assert!(matches!(verdict, "nothing_to_gain" | "gain"), "{report}");
    assert!(report["counted"].as_f64() > Some(0.0), "{report}");
    assert!(said.contains("highest rate after") && said.contains("proof in pairs"), "{said}");
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    let folder = server.configuration();
    let folder = folder.parent().expect("a folder");
    let names =
        fs::read_dir(folder).expect("it can be listed").flatten().map(|entry| entry.file_name());
    let left: Vec<_> = names.filter(|name| name.to_string_lossy().contains("tune")).collect();
    assert!(left.is_empty(), "{left:?}");
    server.stop();
}

#[test]
fn maitred_behind_a_link_is_tuned_by_one_at_a_time_and_what_a_killed_one_tried_is_undone() {
    let root = document_root(&[("nap.php", "<?php usleep(20000); echo 'rested';")]);
    let server = Setup::new(root.path()).workers(2).start();
    let folder = public_folder();
    let (config, file) = (server.configuration(), folder.path().join("real.toml"));
    fs::copy(&config, &file).expect("a copy");
    fs::remove_file(&config).expect("it is ours");
    std::os::unix::fs::symlink(&file, &config).expect("a link");
    let before = fs::read(&file).expect("a file");
    let url = format!("{}/nap.php", server.base_url());
    let tune = |arguments: &[&str]| {
        let mut command = Command::new(maitred_program());
        command.arg("tune").arg("--config").arg(&config);
        command.args(arguments).stdin(Stdio::null());
        command
    };
    let said_by = |arguments: &[&str]| {
        let output = tune(arguments).output();
        output.expect("the program can be started")
    };
    // How long a rate is kept up grows with the goal.
    let goal = ["--time", "5s", "--goal", "p50<200ms", "--most-workers", "12", "--despite-noise"];
    let arguments = [&[url.as_str()], &goal[..]].concat();
    let start = || {
        let mut going = Going::start(tune(&arguments));
        going.until("static, ");
        wait::until_true("a trial to be in the file", || {
            let text = fs::read_to_string(&file).unwrap_or_default();
            text.contains("`maitred tune` is trying this")
        });
        going
    };
    let expect_as_it_was = || {
        assert!(config.is_symlink());
        assert_eq!(fs::read(&file).expect("a file"), before);
        let names = fs::read_dir(folder.path()).expect("it can be listed");
        assert_eq!(names.count(), 1, "nothing lies beside it");
    };
    let going = start();
    expect_refused(&said_by(&arguments), &["another `maitred tune` is running on"]);
    going.signal(Signal::QUIT);
    let (said, code) = going.end();
    assert_eq!(code, Some(130), "{said}");
    expect_as_it_was();
    let going = start();
    going.signal(Signal::KILL);
    going.end();
    expect_refused(
        &said_by(&arguments),
        &["still holds a trial of an earlier", "run maitred tune --undo"],
    );
    let undone = said_by(&["--undo"]);
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    expect_as_it_was();
    server.stop();
}

#[test]
fn a_trial_in_an_included_file_is_undone_after_a_killed_tuning() {
    let root = document_root(&[("nap.php", "<?php usleep(20000); echo 'rested';")]);
    let server = Setup::new(root.path()).workers(2).start();
    let config = server.configuration();
    let file = config.with_file_name("pool.toml");
    let text_before = fs::read_to_string(&config).expect("a file");
    let (main, pool) = text_before.split_at(text_before.find("[pools.").expect("a pool"));
    fs::write(&file, pool).expect("a file can be written");
    fs::write(&config, format!("include = [\"pool.toml\"]\n{main}")).expect("a file");
    server.reload();
    let tune = |arguments: &[&str]| {
        let mut command = Command::new(maitred_program());
        command.arg("tune").arg("--config").arg(&config);
        command.args(arguments).stdin(Stdio::null());
        command
    };
    let url = format!("{}/nap.php", server.base_url());
    let goal = ["--time", "5s", "--goal", "p50<200ms", "--most-workers", "12", "--despite-noise"];
    let going = Going::start(tune(&[&[url.as_str()], &goal[..]].concat()));
    wait::until_true("a trial to be in the file", || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        text.contains("`maitred tune` is trying this")
    });
    going.signal(Signal::KILL);
    going.end();
    let undone = tune(&["--undo"]).output().expect("the program can be started");
    assert!(undone.status.success(), "{}", text(&undone.stderr));
    let shown = format!("{} is restored", file.display());
    assert!(text(&undone.stdout).starts_with(&shown), "{}", text(&undone.stdout));
    assert_eq!(fs::read_to_string(&file).expect("a file"), pool);
    server.stop();
}

#[test]
fn a_number_that_a_variable_of_the_server_replaces_is_not_tuned() {
    let root = document_root(&[("nap.php", "<?php usleep(20000); echo 'rested';")]);
    let variable = ["env", "MAITRED_POOL_MAX_CHILDREN=2"];
    let server = Setup::new(root.path()).workers(2).under(&variable).start();
    let before = fs::read(server.configuration()).expect("a file");
    let mut command = Command::new(maitred_program());
    command.arg("tune").arg("--config").arg(server.configuration());
    command.arg(format!("{}/nap.php", server.base_url())).args(SHORT);
    let output = command.stdin(Stdio::null()).output().expect("the program can be started");
    let parts = ["pool www has 2 workers after the reload, not ", "its settings are restored"];
    expect_refused(&output, &parts);
    assert_eq!(fs::read(server.configuration()).expect("a file"), before);
    server.stop();
}
