//! What programs that a pool's scripts start may gain: `no_new_privileges`.

use std::fs;
use std::path::Path;
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::processes::Process;
use maitred_tests::server::{Server, Setup, document_root, is_root, public_folder, set_mode};
use tempfile::TempDir;

/// The group that the program of [`Gains`] gains.
const GAINED: &str = "mail";

/// A program that says its group, which is not that of who starts it.
struct Gains(TempDir);

impl Gains {
    fn new() -> Gains {
        let gains = Gains(public_folder());
        let program = gains.program();
        fs::copy("/usr/bin/id", &program).expect("a program can be copied");
        let owned = Command::new("chgrp").arg(GAINED).arg(&program).status();
        assert!(owned.expect("chgrp runs").success());
        set_mode(Path::new(&program), 0o2755);
        gains
    }

    fn program(&self) -> String {
        self.0.path().join("gains").display().to_string()
    }

    /// A script that starts it, and one server for it with these settings of the pool.
    fn server(&self, pool: &[String]) -> (TempDir, Server) {
        let script = format!("<?php passthru('{} -gn');", self.program());
        let root = document_root(&[("gain.php", &script)]);
        let setup = Setup::new(root.path()).workers(1);
        let setup = pool.iter().fold(setup, |setup, line| setup.pool(line));
        (root, setup.start())
    }
}

/// A field of `/proc/PID/status`.
fn status(process: &Process, field: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.expect("the field is there").trim_start_matches(':').trim().to_owned()
}

/// Whether all of a pool's processes forbid programs to gain rights.
fn forbids(server: &Server) -> bool {
    let processes = server.workers().into_iter().chain(server.zygote());
    let all: Vec<String> = processes.map(|process| status(&process, "NoNewPrivs")).collect();
    assert!(all.len() >= 2, "{all:?}");
    assert!(all.iter().all(|one| *one == all[0]), "{all:?}");
    all[0] == "1"
}

#[test]
fn a_pool_whose_programs_may_gain_nothing_starts_them_without_the_rights_of_their_owners() {
    if !is_root() {
        return eprintln!("skipped: only root can give a program away");
    }
    let gains = Gains::new();
    let (_root, server) = gains.server(&["no_new_privileges = true".to_owned()]);
    let said = http::get(server.address(), "/gain.php").text();
    assert_ne!(said.trim(), GAINED);
    assert!(forbids(&server));
    for worker in server.workers() {
        let bounds = status(&worker, "CapBnd");
        assert_eq!(u64::from_str_radix(&bounds, 16), Ok(0), "{bounds}");
    }
    server.stop();
    let (_root, server) = gains.server(&["no_new_privileges = false".to_owned()]);
    let said = http::get(server.address(), "/gain.php").text();
    assert_eq!(said.trim(), GAINED);
    assert!(!forbids(&server));
    server.stop();
}

#[test]
fn unless_it_is_said_programs_may_gain_rights_only_where_a_mailer_or_sudo_is() {
    let gains = Gains(public_folder());
    let mailer = gains.0.path().join("mailer");
    let line = format!("php_admin_value = {{ sendmail_path = \"{} -t\" }}", mailer.display());
    let has_some =
        ["/usr/sbin/sendmail", "/usr/bin/sudo"].iter().any(|path| Path::new(path).exists());
    let root = document_root(&[("a.php", "<?php echo 'a';")]);
    let server = Setup::new(root.path()).pool(&line).start();
    assert_eq!(forbids(&server), !has_some);
    fs::write(&mailer, "#!/bin/sh\n").expect("a file can be written");
    // PHP starts again.
    let reload = Command::new(maitred_tests::maitred_program())
        .args(["reload", "www", "--admin-socket"])
        .arg(server.admin_socket())
        .status();
    assert!(reload.expect("it runs").success());
    maitred_tests::wait::until_true("the pool's new processes", || {
        let zygote = server.zygote();
        zygote.is_some_and(|zygote| status(&zygote, "NoNewPrivs") == "0")
    });
    server.stop();
}
