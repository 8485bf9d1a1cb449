//! What may go wrong while `maitred tune` is at work, and what it does then: all is as it was, and
//! it is said.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Instant;

use maitred_tests::guard::Guarded;
use maitred_tests::outside::text;
use maitred_tests::peer::{Peer, fpm_program};
use maitred_tests::processes::Signal;
use maitred_tests::server::{
    document_root, give_to_web_user, is_root, public_folder, set_mode, user_ids,
};
use maitred_tests::tuned::{self, Fpm, Going};
use maitred_tests::{Target, http, maitred_program, wait};
use tempfile::TempDir;

/// As short as it may be, with a goal that a busy machine still meets.
const SHORT: [&str; 6] = ["--time", "5s", "--goal", "p50<200ms", "--most-workers", "8"];

/// What has other tests, which run meanwhile, count for nothing.
const DESPITE: &str = "--despite-noise";

/// The file that tune writes.
const DROP_IN: &str = "zz-maitred-tune.conf";

/// nginx and php-fpm with two dynamic workers, whose pool reads further files from a folder.
struct Site {
    peer: Peer,
    pools: TempDir,
    root: TempDir,
}

impl Site {
    fn start(script: impl Fn(&Path) -> String) -> Site {
        let pools = public_folder();
        let root = document_root(&[("nap.php", script(pools.path()).as_str())]);
        give_to_web_user(root.path());
        let peer = tuned::peer(root.path(), pools.path()).start();
        Site { peer, pools, root }
    }

    fn arguments(&self, further: &[&str]) -> Vec<String> {
        let config = self.peer.fpm_socket().with_file_name("fpm.conf");
        let page = format!("{}/nap.php", self.peer.base_url());
        let own = ["tune".to_owned(), page, "--php-fpm".to_owned(), config.display().to_string()];
        let rest = SHORT.iter().chain(further).map(|text| (*text).to_owned());
        own.into_iter().chain(rest).collect()
    }

    fn command(&self, further: &[&str]) -> Command {
        let mut command = Command::new(maitred_program());
        command.args(self.arguments(further)).stdin(Stdio::null());
        command
    }

    fn tune(&self, further: &[&str]) -> Output {
        let output = self.command(further).output();
        output.expect("the program can be started")
    }

    /// Nothing of a trial is left, and the page is served.
    fn expect_as_it_was(&self) {
        let left = fs::read_dir(self.pools.path()).expect("it can be listed");
        assert_eq!(left.count(), 0);
        wait::until_true("the page to be served", || {
            http::get(self.peer.address(), "/nap.php").status == 200
        });
    }
}

fn nap(_: &Path) -> String {
    "<?php usleep(20000); echo 'rested';".to_owned()
}

/// A process that computes all the time, on each processor.
fn others() -> Vec<Guarded> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let busy = (0..processors).map(|_| {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]);
        Guarded::spawn(&mut command, Signal::TERM)
    });
    busy.collect()
}

#[test]
fn a_machine_that_others_use_is_not_measured_unless_somebody_wants_it() {
    let site = Site::start(nap);
    let others = others();
    let output = site.tune(&[]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(3), "{said}{}", text(&output.stderr));
    for part in ["other processes use ", "expected at most 10 %", DESPITE] {
        assert!(said.contains(part), "'{part}' is expected of\n{said}");
    }
    assert!(!text(&output.stderr).contains("warming up"), "no question");
    drop(others);
    site.expect_as_it_was();
}

#[test]
fn a_site_that_is_not_served_with_what_was_written_has_its_settings_back() {
    // It is well as long as settings are tried, and not when they are written down.
    let site = Site::start(|pools| {
        format!(
            "<?php usleep(20000); $files = glob('{}/*.conf');\n\
             $text = $files ? @file_get_contents($files[0]) : '';\n\
             http_response_code(strpos($text, 'Made by maitred tune') === false ? 200 : 500);",
            pools.display()
        )
    });
    set_mode(site.pools.path(), 0o755);
    let output = site.tune(&[DESPITE, "--write-unproven"]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}{}", text(&output.stdout));
    for part in [
        "the site is not served with the new setting",
        "500 Internal Server Error",
        "its old settings are restored",
    ] {
        assert!(said.contains(part), "'{part}' is expected of\n{said}");
    }
    assert!(text(&output.stdout).contains("not written: "));
    site.expect_as_it_was();
}

#[test]
fn who_ends_a_tuning_while_a_site_does_not_recover_from_too_much_need_not_wait_for_it() {
    // After an overload it responds to the load only.
    let site = Site::start(|_| {
        "<?php $is_load = str_starts_with($_SERVER['HTTP_USER_AGENT'] ?? '', 'maitred-bench/');
        $had = __DIR__ . '/had';
        if ($is_load && file_exists(__DIR__ . '/overload')) { touch($had); }
        if (!$is_load && file_exists($had)) {
            touch(__DIR__ . '/asked');
            while (file_exists($had)) { usleep(10000); clearstatcache(); }
        }
        usleep(20000); echo 'rested';"
            .to_owned()
    });
    let file = |name: &str| site.root.path().join(name);
    let mut going = Going::start(site.command(&[DESPITE]));
    going.until("overload: ");
    fs::write(file("overload"), "").expect("it is ours");
    wait::until_true("it to be asked whether it has recovered", || file("asked").exists());
    going.signal(Signal::INT);
    let (said, code) = going.end();
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("all settings are restored"), "{said}");
    fs::remove_file(file("had")).expect("it is there");
    site.expect_as_it_was();
}

#[test]
fn without_control_groups_a_pool_does_not_grow_and_it_is_said() {
    if !is_root() {
        return;
    }
    let site = Site::start(nap);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", "umount -l /sys/fs/cgroup && exec \"$@\"", "sh"]);
    command.arg(maitred_program()).args(site.arguments(&[DESPITE]));
    let (said, code) = ended_at(command, "highest rate after");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("static, 2 "), "{said}");
    for more in ["static, 3", "static, 4", "static, 8"] {
        assert!(!said.contains(more), "{said}");
    }
    site.expect_as_it_was();
}

/// A disk without room, where a folder was.
struct Full<'a>(&'a Path);

impl<'a> Full<'a> {
    /// Nothing where this user may mount none.
    fn over(folder: &'a Path) -> Option<Full<'a>> {
        let mut command = Command::new("mount");
        command.args(["-t", "tmpfs", "-o", "size=4k", "none"]).arg(folder);
        let mounted = command.stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then_some(())?;
        let full = Full(folder);
        let _ = fs::write(folder.join("others"), [0; 8192]);
        Some(full)
    }
}

impl Drop for Full<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_disk_that_is_full_when_a_setting_is_to_be_tried_is_said_and_all_is_as_it_was() {
    let site = Site::start(nap);
    let Some(full) = Full::over(site.pools.path()) else {
        eprintln!("NOT TESTED: this user may mount no disk");
        return;
    };
    let output = site.tune(&[DESPITE]);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cannot be written: No space left on device"), "{said}");
    drop(full);
    site.expect_as_it_was();
}

#[test]
fn who_is_not_root_tunes_a_server_of_their_own() {
    if !is_root() {
        // Then all other tests are of that kind.
        return;
    }
    let root = document_root(&[("nap.php", "<?php usleep(20000); echo 'rested';")]);
    give_to_web_user(root.path());
    let folder = public_folder();
    let (user, group) = user_ids("nobody");
    std::os::unix::fs::chown(folder.path(), Some(user), Some(group)).expect("it is ours");
    let lines =
        "pm = dynamic\npm.start_servers = 1\npm.min_spare_servers = 1\npm.max_spare_servers = 2";
    let fpm = Fpm::start(&fpm_program(), folder.path(), lines, Some((user, group)));
    let nginx = fpm.behind_nginx(root.path());
    let mut command = Command::new(maitred_program());
    command
        .arg("tune")
        .arg("--php-fpm")
        .arg(&fpm.config)
        .arg(format!("{}/nap.php", nginx.base_url()));
    command.args(SHORT).arg(DESPITE).uid(user).gid(group);
    let (said, code) = ended_at(command, "highest rate after");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("all settings are restored"), "{said}");
    fpm.expect_no_trial();
}

#[test]
fn a_configuration_that_is_broken_during_a_trial_is_not_reloaded_and_the_site_is_served() {
    // Another pool's file that was there before, and one that was not.
    for is_new in [false, true] {
        // Who measures a trial waits for the fault.
        let site = Site::start(|pools| {
            if !is_new {
                fs::write(pools.join("www.conf"), "; theirs\n").expect("it can be written");
            }
            format!(
                "<?php $is_load = str_starts_with($_SERVER['HTTP_USER_AGENT'] ?? '', \
                 'maitred-bench/');
                if ($is_load && file_exists('{}/{DROP_IN}')) {{
                    touch(__DIR__ . '/tried');
                    while (!file_exists(__DIR__ . '/broken')) {{ usleep(5000); clearstatcache(); }}
                }}
                usleep(20000); echo 'rested';",
                pools.display()
            )
        });
        set_mode(site.pools.path(), 0o755);
        let theirs = site.pools.path().join("www.conf");
        let file = |name: &str| site.root.path().join(name);
        let going = Going::start(site.command(&[DESPITE]));
        wait::until_within("a trial to be in force", wait::DEADLINE * 4, || {
            file("tried").exists().then_some(())
        });
        fs::write(&theirs, "[www]\npm.max_children = ten\n").expect("it can be written");
        fs::write(file("broken"), "").expect("it is ours");
        let (said, code) = going.end();
        assert_eq!(code, Some(1), "{said}");
        for part in [
            "zz-maitred-tune.conf is restored, but php-fpm still runs with the trial (static, ",
            "and was not reloaded: php-fpm -tt rejects the configuration: ",
            "fix that, and reload it",
        ] {
            assert!(said.contains(part), "'{part}' is expected of\n{said}");
        }
        assert_eq!(http::get(site.peer.address(), "/nap.php").status, 200);
        fs::remove_file(&theirs).expect("it is there");
        site.expect_as_it_was();
    }
}

#[test]
fn who_ends_a_tuning_while_a_setting_is_written_is_told_if_the_server_still_runs_with_it() {
    // Who looks whether the page is served with what was written waits for the fault.
    let site = Site::start(|pools| {
        format!(
            "<?php usleep(20000);
            $is_load = str_starts_with($_SERVER['HTTP_USER_AGENT'] ?? '', 'maitred-bench/');
            $text = (string) @file_get_contents('{}/{DROP_IN}');
            if (!$is_load && strpos($text, 'Made by maitred tune') !== false) {{
                touch(__DIR__ . '/written');
                while (!file_exists(__DIR__ . '/broken')) {{ usleep(5000); clearstatcache(); }}
                http_response_code(500);
            }}",
            pools.display()
        )
    });
    set_mode(site.pools.path(), 0o755);
    let theirs = site.pools.path().join("www.conf");
    let file = |name: &str| site.root.path().join(name);
    let mut going = Going::start(site.command(&[DESPITE, "--write-unproven"]));
    wait::until_within("a setting to be in use", wait::DEADLINE * 4, || {
        file("written").exists().then_some(())
    });
    fs::write(&theirs, "[www]\npm.max_children = ten\n").expect("it can be written");
    going.signal(Signal::INT);
    going.until("restoring all settings");
    fs::write(file("broken"), "").expect("it is ours");
    let (said, code) = going.end();
    assert_eq!(code, Some(1), "{said}");
    for part in [
        "zz-maitred-tune.conf is restored, but php-fpm still runs with the trial (static, ",
        "and was not reloaded: php-fpm -tt rejects the configuration: ",
    ] {
        assert!(said.contains(part), "'{part}' is expected of\n{said}");
    }
    assert!(!said.contains("all settings are restored"), "{said}");
    fs::remove_file(&theirs).expect("it is there");
    site.expect_as_it_was();
}

#[test]
fn who_ends_a_tuning_while_pages_are_looked_at_need_not_wait_for_a_site_that_hangs() {
    let site = Site::start(|_| {
        "<?php touch(__DIR__ . '/asked');
        while (!file_exists(__DIR__ . '/enough')) { usleep(5000); clearstatcache(); }
        echo 'rested';"
            .to_owned()
    });
    let file = |name: &str| site.root.path().join(name);
    let going = Going::start(site.command(&[DESPITE]));
    wait::until_true("the page to be asked for", || file("asked").exists());
    let began = Instant::now();
    going.signal(Signal::INT);
    let (said, code) = going.end();
    // Who waits for an answer gives up after 60 s.
    assert!(began.elapsed() < wait::DEADLINE, "{said}");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("all settings are restored"), "{said}");
    fs::write(file("enough"), "").expect("it is ours");
    site.expect_as_it_was();
}

#[test]
fn a_report_that_cannot_be_written_is_told_and_changes_nothing_of_what_it_came_to() {
    let site = Site::start(nap);
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str| folder.path().join(name);
    let (json, html) = (file("tune.json"), file("tune.html"));
    let file_of = |option: &str, file: &Path| format!("--{option}={}", file.display());
    let (to_json, to_html) = (file_of("json", &json), file_of("html", &html));
    let further = [to_json.as_str(), &to_html, DESPITE, "--no-write"];
    let mut going = Going::start(site.command(&further));
    going.until("highest rate before");
    fs::remove_file(&json).expect("it was made to see whether it can be");
    fs::create_dir(&json).expect("it is ours");
    let (said, code) = going.end();
    assert!(matches!(code, Some(0 | 3)), "{code:?} {said}");
    assert!(said.contains("tune.json cannot be written"), "{said}");
    let page = fs::read_to_string(&html).expect("the other one is there");
    assert!(page.contains("<html"), "{page}");
    site.expect_as_it_was();
}

/// Ends a tuning when it says something; what it has said, and its exit code.
fn ended_at(command: Command, part: &str) -> (String, Option<i32>) {
    let mut going = Going::start(command);
    let before = going.until(part);
    going.signal(Signal::INT);
    let (after, code) = going.end();
    (before + &after, code)
}
