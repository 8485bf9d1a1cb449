//! What may go wrong while `maitred tune` is at work, and what it does then: all is as it was, and it is said.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use maitred_tests::guard::Guarded;
use maitred_tests::outside::text;
use maitred_tests::peer::{Peer, PeerSetup, fpm_program};
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{
    document_root, give_to_web_user, is_root, public_folder, set_mode, user_ids,
};
use maitred_tests::{Target, http, maitred_program, wait};
use tempfile::TempDir;

/// As short as it may be, with a goal that a busy machine still meets.
const SHORT: [&str; 6] = ["--time", "5s", "--goal", "p50<200ms", "--most-workers", "8"];

/// What has other tests, which run meanwhile, count for nothing.
const DESPITE: &str = "--despite-noise";

/// nginx and php-fpm with two dynamic workers, whose pool reads further files from a folder.
struct Site {
    peer: Peer,
    pools: TempDir,
    _root: TempDir,
}

impl Site {
    fn start(script: impl Fn(&Path) -> String) -> Site {
        let pools = public_folder();
        let root = document_root(&[("nap.php", script(pools.path()).as_str())]);
        give_to_web_user(root.path());
        let peer = PeerSetup::new(root.path())
            .workers(2)
            .pool("pm = dynamic\npm.min_spare_servers = 1\npm.max_spare_servers = 2")
            .pool(&format!("include = {}/*.conf", pools.path().display()))
            .start();
        Site {
            peer,
            pools,
            _root: root,
        }
    }

    fn arguments(&self, further: &[&str]) -> Vec<String> {
        let config = self.peer.fpm_socket().with_file_name("fpm.conf");
        let page = format!("{}/nap.php", self.peer.base_url());
        let own = [
            "tune".to_owned(),
            page,
            "--php-fpm".to_owned(),
            config.display().to_string(),
        ];
        let rest = SHORT.iter().chain(further).map(|text| (*text).to_owned());
        own.into_iter().chain(rest).collect()
    }

    fn tune(&self, further: &[&str]) -> Output {
        let mut command = Command::new(maitred_program());
        command.args(self.arguments(further)).stdin(Stdio::null());
        command.output().expect("the program can be started")
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

/// Somebody who computes all the time, on each processor.
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
    assert_eq!(
        output.status.code(),
        Some(3),
        "{said}{}",
        text(&output.stderr)
    );
    for part in ["others use ", "expected 10 % at most", DESPITE] {
        assert!(said.contains(part), "'{part}' is expected of\n{said}");
    }
    assert!(
        !text(&output.stderr).contains("warming up"),
        "nobody is asked"
    );
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
    assert_eq!(
        output.status.code(),
        Some(1),
        "{said}{}",
        text(&output.stdout)
    );
    for part in [
        "with the new setting the site is not served",
        "500 Internal Server Error",
        "its settings are as they were again",
    ] {
        assert!(said.contains(part), "'{part}' is expected of\n{said}");
    }
    assert!(text(&output.stdout).contains("not written: "));
    site.expect_as_it_was();
}

#[test]
fn without_control_groups_a_pool_does_not_grow_and_it_is_said() {
    if !is_root() {
        return;
    }
    let site = Site::start(nap);
    let mut command = Command::new("unshare");
    command.args([
        "-m",
        "sh",
        "-c",
        "umount -l /sys/fs/cgroup && exec \"$@\"",
        "sh",
    ]);
    command
        .arg(maitred_program())
        .args(site.arguments(&[DESPITE]));
    let (said, code) = ended_at(command, "rates as proposed");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("static, 2 "), "{said}");
    for more in ["static, 3", "static, 4", "static, 8"] {
        assert!(!said.contains(more), "{said}");
    }
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
    let fpm = Own::start(folder.path(), user, group);
    let server = format!(
        "root {}; location / {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{}; }}",
        root.path().display(),
        fpm.socket.display()
    );
    let nginx = maitred_tests::web::Web::nginx("", &server);
    let mut command = Command::new(maitred_program());
    command
        .arg("tune")
        .arg("--php-fpm")
        .arg(&fpm.config)
        .arg(format!("{}/nap.php", nginx.base_url()));
    command.args(SHORT).arg(DESPITE).uid(user).gid(group);
    let (said, code) = ended_at(command, "rates as proposed");
    assert_eq!(code, Some(130), "{said}");
    assert!(said.contains("all is as it was"), "{said}");
    let left = fs::read_dir(folder.path().join("pools")).expect("it can be listed");
    assert_eq!(left.count(), 0);
}

/// Ends a tuning when it says something; what it has said, and its exit code.
fn ended_at(mut command: Command, part: &str) -> (String, Option<i32>) {
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn();
    let mut child = child.expect("the program can be started");
    let mut lines = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
    let mut said = String::new();
    while !said.contains(part) {
        let read = lines.read_line(&mut said).expect("it says something");
        assert!(read > 0, "'{part}' is expected of\n{said}");
    }
    let pid = i32::try_from(child.id()).expect("a pid");
    Process::read(pid).expect("it runs").signal(Signal::INT);
    lines.read_to_string(&mut said).expect("it ends");
    (said, child.wait().expect("it ends").code())
}

/// php-fpm of a user who is not root.
struct Own {
    _process: Guarded,
    config: PathBuf,
    socket: PathBuf,
}

impl Own {
    fn start(folder: &Path, user: u32, group: u32) -> Own {
        let pools = folder.join("pools");
        fs::create_dir(&pools).expect("a folder");
        let owned = |path: &Path| {
            std::os::unix::fs::chown(path, Some(user), Some(group)).expect("it is ours");
        };
        owned(&pools);
        let (config, socket) = (folder.join("fpm.conf"), folder.join("fpm.sock"));
        let conf = format!(
            "[global]\nerror_log = {}/fpm.log\ndaemonize = no\n[www]\nlisten = {}\nlisten.mode = 0666\n\
             pm = dynamic\npm.max_children = 2\npm.start_servers = 1\npm.min_spare_servers = 1\n\
             pm.max_spare_servers = 2\ninclude = {}/*.conf\n",
            folder.display(),
            socket.display(),
            pools.display()
        );
        fs::write(&config, conf).expect("it can be written");
        owned(&config);
        let mut command = Command::new(fpm_program());
        command.args(["--nodaemonize", "--fpm-config"]).arg(&config);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .uid(user)
            .gid(group);
        let process = Guarded::spawn(&mut command, Signal::TERM);
        wait::until_true("php-fpm to listen", || {
            std::os::unix::net::UnixStream::connect(&socket).is_ok()
        });
        Own {
            _process: process,
            config,
            socket,
        }
    }
}
