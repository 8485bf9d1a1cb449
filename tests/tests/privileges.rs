//! What programs that a pool's scripts start may gain: `no_new_privileges`, the capabilities and
//! the keys of the server.

use std::fs;
use std::path::Path;
use std::process::Command;

use maitred_tests::http;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::server::{Server, Setup, document_root, is_root, public_folder, set_mode};
use maitred_tests::{Target, maitred_program, wait};
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
    let reload = Command::new(maitred_program())
        .args(["reload", "www", "--admin-socket"])
        .arg(server.admin_socket())
        .status();
    assert!(reload.expect("it runs").success());
    wait::until_true("the pool's new processes", || {
        let zygote = server.zygote();
        zygote.is_some_and(|zygote| status(&zygote, "NoNewPrivs") == "0")
    });
    server.stop();
}

/// Starts the server as the web user, with the right to listen on low ports, as systemd does with
/// `AmbientCapabilities`. The folder of its configuration is its own.
const WITH_LOW_PORTS: &str = "chown www-data \"${4%/*}\" && exec setpriv --reuid=www-data \
    --regid=www-data --clear-groups --inh-caps=+net_bind_service \
    --ambient-caps=+net_bind_service \"$@\"";

/// The capabilities of a process and of a program that it starts.
const CAPABILITIES: &str = "<?php echo file_get_contents('/proc/self/status'),
    shell_exec('cat /proc/self/status');";

#[test]
fn a_server_that_is_not_root_leaves_its_capabilities_to_no_script_and_to_no_program() {
    let program = maitred_program();
    let may_be_run = Command::new("setpriv")
        .args(["--reuid=www-data", "--regid=www-data", "--clear-groups"])
        .arg(&program)
        .arg("--version")
        .output();
    if !is_root() || !may_be_run.is_ok_and(|output| output.status.success()) {
        return eprintln!("skipped: only root can become a user with some capabilities");
    }
    let root = document_root(&[("status.php", CAPABILITIES)]);
    let server = Setup::new(root.path())
        .pool("[[pools.www.commands]]\nname = \"status\"")
        .pool("command = [\"sh\", \"-c\", \"cat /proc/self/status; exec sleep 1000\"]")
        .under(&["sh", "-c", WITH_LOW_PORTS, "sh"])
        .start();
    assert_ne!(status(&server.supervisor(), "CapAmb"), "0000000000000000");
    let of_script = http::get(server.address(), "/status.php").text();
    server.expect_log(0, "CapAmb:");
    let of_command = server.log_text();
    for (said, count) in [(&of_script, 2), (&of_command, 1)] {
        for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
            let rest = said.split(set).skip(1);
            // The log has no tabs.
            let values = rest.filter_map(|rest| rest.trim_start_matches(['\t', '?']).get(..16));
            let values: Vec<&str> = values.collect();
            assert_eq!(values, vec!["0000000000000000"; count], "{set} {said}");
        }
    }
    server.stop();
}

/// A user that no other test has, so that none lacks keys.
const WITHOUT_KEYS: &str = "3999999997";

/// Starts the server in a session keyring with a key (keyrings(7)).
const WITH_A_KEY: &str = "my @key = ('user', 'maitred-of-root', 'secret');
    my $name = 'maitred-test';
    syscall(250, 1, $name) > 0 && syscall(248, @key, 6, -3) > 0 or exit 1;
    exec @ARGV;";

/// The pool's user in the namespace of [`AS_ROOT_WITHOUT_KEYS`].
const BESIDE_ROOT: &str = "3999999995";

/// Starts the server in a user namespace whose root has used up its keys, as in a container
/// without privileges. The other users are the front's and the pool's.
const AS_ROOT_WITHOUT_KEYS: &str = "my ($root, $pool) = (3999999996, 3999999995);
    chown $root, $root, $ENV{STATE_DIRECTORY} =~ s|/[^/]*$||r or exit 1;
    pipe(my $is_ready, my $ready);
    my $child = fork;
    if (!$child) {
        close $ready;
        <$is_ready>;
        for my $kind ('uid', 'gid') {
            open(my $map, '>', '/proc/' . getppid . qq(/${kind}_map)) or exit 1;
            syswrite $map, qq(0 $root 1\n33 33 1\n$pool $pool 1\n) or exit 1;
        }
        exit 0;
    }
    syscall(272, 0x10000000) == 0 or exit 1;
    close $ready;
    waitpid $child, 0;
    $? == 0 or exit 1;
    $) = '0 0'; $( = 0; ($<, $>) = (0, 0);
    my @key = ('user', '', 'x');
    my $number = 0;
    do { $key[1] = 'maitred-' . $number++ } while syscall(248, @key, 1, -4) > 0;
    $! == 122 or exit 1;
    exec @ARGV;";

/// Adds keys to the keyring of its user until the system refuses it, removes them, adds one to its
/// session keyring, links that into the keyring of its user, or looks up the server's key in it.
const KEYS: &str = r#"<?php
$add = FFI::cdef('long syscall(long, const char *, const char *, const char *, size_t, long);');
$link = FFI::cdef('long syscall(long, long, long, long);');
$ask = FFI::cdef('long syscall(long, long, long, const char *, const char *, long);
    int *__errno_location(void);');
switch ($_GET['do']) {
    case 'fill':
        for ($n = 0; $add->syscall(248, 'user', "maitred-$n", 'x', 1, -4) > 0; $n++) {
        }
        exit('refused with ' . $ask->__errno_location()[0]);
    case 'clear':
        exit($ask->syscall(250, 7, -4, '', '', 0) === 0 ? 'cleared' : 'not cleared');
    case 'own':
        exit($add->syscall(248, 'user', 'maitred-own', 'x', 1, -3) > 0 ? 'added' : 'not added');
    case 'link':
        exit($link->syscall(250, 8, -3, -4) === 0 ? 'linked' : 'not linked');
    case 'find':
        exit($ask->syscall(250, 10, -3, 'user', 'maitred-of-root', 0) > 0 ? 'found' : 'not found');
}"#;

#[test]
fn a_user_that_has_used_up_its_keys_gets_a_session_keyring_of_its_own_all_the_same() {
    let runs = Command::new("perl").args(["-e", WITH_A_KEY, "true"]).status();
    if !is_root() || !runs.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: root may use keys here only with keyctl(2) and perl");
    }
    let root = document_root(&[("keys.php", KEYS)]);
    let server = Setup::new(root.path())
        .workers(1)
        .pool(&format!("user = {WITHOUT_KEYS:?}\ngroup = {WITHOUT_KEYS:?}"))
        .pool("php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }")
        .under(&["perl", "-e", WITH_A_KEY])
        .start();
    let ask = |what: &str| http::get(server.address(), &format!("/keys.php?do={what}")).text();
    assert_eq!(ask("find"), "not found");
    // EDQUOT
    assert_eq!(ask("fill"), "refused with 122");
    let (zygote, workers) = (server.zygote().expect("a zygote runs"), server.workers());
    zygote.signal(Signal::KILL);
    // The worker has the keyring of the first zygote meanwhile.
    wait::until_true("the next zygote", || server.zygote().is_some_and(|next| next != zygote));
    workers[0].signal(Signal::KILL);
    wait::until_true("the next worker", || {
        server.workers().first().is_some_and(|next| *next != workers[0])
    });
    assert_eq!(ask("find"), "not found");
    assert_eq!(ask("clear"), "cleared");
    // Others are removed in the background.
    wait::until_true("a key of its own", || ask("own") == "added");
    assert_eq!(ask("link"), "not linked", "it would stay, at the cost of root's keys");
    server.stop();
}

#[test]
fn a_pool_has_a_session_keyring_of_its_own_where_root_has_used_up_its_keys() {
    let under = ["perl", "-e", WITH_A_KEY, "perl", "-e", AS_ROOT_WITHOUT_KEYS];
    let runs =
        Command::new("perl").args(["-e", WITH_A_KEY]).args(["unshare", "--user", "true"]).status();
    if !is_root() || !runs.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: it needs root, perl, keyctl(2) and user namespaces");
    }
    let root = document_root(&[("keys.php", KEYS)]);
    let server = Setup::new(root.path())
        .workers(1)
        .pool(&format!("user = {BESIDE_ROOT:?}\ngroup = {BESIDE_ROOT:?}"))
        .pool("php_admin_value = { \"ffi.enable\" = \"1\", extension = \"ffi\" }")
        .under(&under)
        .start();
    let ask = |what: &str| http::get(server.address(), &format!("/keys.php?do={what}")).text();
    assert_eq!(ask("find"), "not found");
    assert_eq!(ask("own"), "added");
    server.stop();
}
