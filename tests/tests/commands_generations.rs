//! Commands and the generations of their pool; and what a process of a command finds around it.

use std::path::Path;
use std::process::Command;

use maitred_tests::jobs::{self, command, pids, running, schedule, status_field};
use maitred_tests::processes::{self, Process, Signal};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, set_mode, write_file,
};
use maitred_tests::{Target, maitred_program, wait};

/// The bit of SIGPIPE in the fields of `/proc/PID/status`.
const SIGPIPE: u64 = 1 << 12;

/// Boots when it may.
const BOOTS: &str = "<?php
$folder = dirname(__DIR__);
while (file_exists(\"$folder/held\")) { usleep(10_000); }
if (file_exists(\"$folder/broken\")) { exit('broken'); }
while (frankenphp_handle_request(fn () => print 'served')) { }";

/// Has started, and says so in a file.
fn once(folder: &Path) -> String {
    format!("command = [\"sh\", \"-c\", \"echo run >> {}/runs\"]", folder.display())
}

fn runs(folder: &Path) -> usize {
    std::fs::read_to_string(folder.join("runs")).unwrap_or_default().lines().count()
}

fn reload_begins(server: &Server, setup: &Setup) {
    server.configure(setup);
    server.signal(Signal::HUP);
}

#[test]
fn commands_follow_their_pools_generation_and_a_changed_one_is_replaced_once() {
    let folder = document_root(&[("public/worker.php", BOOTS), ("public/index.php", "")]);
    give_to_web_user(folder.path());
    let script = folder.path().join("public/worker.php");
    let setup = |generation: &str| {
        Setup::new(&folder.path().join("public"))
            .workers(1)
            .pool("mode = \"worker\"")
            .pool(&format!("script = {:?}", script.display().to_string()))
            .pool(&format!("env = {{ GENERATION = \"{generation}\" }}"))
    };
    let (once, held) = (once(folder.path()), folder.path().join("held"));
    let sleeps = "command = [\"sleep\", \"1000\"]";
    let with = |generation: &str| {
        let env = format!("env = {{ OWN = \"{generation}\" }}");
        setup(generation).pool(&command("once", &[&once, "restart = \"never\"", &env]))
    };
    let server = with("1").pool(&command("gone", &[sleeps])).start();
    wait::until_true("the first run", || runs(folder.path()) == 1);
    let gone = running(&server, "gone", 1);

    // As long as the new generation boots, all is as before.
    write_file(folder.path(), "held", b"");
    let mark = server.log().mark();
    reload_begins(&server, &with("2").pool(&command("new", &[sleeps])));
    wait::until_true("the new generation to boot", || server.workers().len() == 2);
    assert!(jobs::find(&server, "new").is_none(), "{}", server.log_text());
    assert_eq!((runs(folder.path()), pids(&server, "gone")), (1, gone.clone()));
    std::fs::remove_file(&held).unwrap();
    server.expect_log(mark, "reloaded: ");
    running(&server, "new", 1);
    wait::until_true("the end of the one that is gone", || Process::read(gone[0]).is_none());
    wait::until_true("the changed one to run", || runs(folder.path()) > 1);
    let once = jobs::find(&server, "once").unwrap();
    assert_eq!((runs(folder.path()), once["starts"].as_u64()), (2, Some(2)), "{once}");

    // A generation that does not boot leaves the commands as they were, and a later one has them.
    write_file(folder.path(), "broken", b"");
    let (new, mark) = (pids(&server, "new"), server.log().mark());
    reload_begins(&server, &with("3").pool(&command("gone", &[sleeps])));
    server.expect_log(mark, "its script does not boot");
    server.expect_log(mark, "reloaded: ");
    assert_eq!((runs(folder.path()), pids(&server, "new")), (2, new.clone()));
    assert!(jobs::find(&server, "gone").is_none());
    std::fs::remove_file(folder.path().join("broken")).unwrap();
    let mark = server.log().mark();
    server.signal(Signal::HUP);
    server.expect_log(mark, "reloaded: ");
    // It was removed once, and is back.
    running(&server, "gone", 1);
    wait::until_true("the end of the one that is gone", || Process::read(new[0]).is_none());
    wait::until_true("the changed one to run", || runs(folder.path()) == 3);
    server.stop();
}

#[test]
fn a_command_ends_with_what_it_has_started_and_a_run_keeps_its_random_delay() {
    let root = document_root(&[]);
    let family = r#"command = ["sh", "-c", "sleep 1000 & echo there; wait"]"#;
    let delayed = ["command = [\"true\"]", "every = \"1d\"", "jitter = \"20h\""];
    let setup = Setup::new(root.path()).pool(&command("family", &[family]));
    let server = setup.clone().pool(&schedule("delayed", &delayed)).start();
    let first = running(&server, "family", 1)[0];
    let ignored = u64::from_str_radix(&status_field(first, "SigIgn"), 16).unwrap();
    assert_eq!(ignored & SIGPIPE, 0, "the end of a pipe ends a program");
    server.expect_log(0, "command family: there");
    let begins = || {
        let job = jobs::find(&server, "delayed").unwrap();
        job["next_in_seconds"].as_f64().unwrap()
    };
    let drawn = begins();
    // Another program than the one that has started it knows its user.
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
    let sleeper = wait::until("the program of the shell", || {
        let family = processes::family(first);
        family.into_iter().find(|process| process.title.starts_with("sleep"))
    });
    let again = begins();
    let mark = server.log().mark();
    reload_begins(&server, &setup.clone().pool(&schedule("delayed", &delayed)).pool("env = {}"));
    server.expect_log(mark, "reloaded: ");
    assert!((again - begins()).abs() < 60.0 && drawn > 0.0, "{drawn} {again} {}", begins());
    Process::read(first).inspect(|shell| shell.signal(Signal::KILL));
    wait::until_true("the end of what the shell has started", || !sleeper.is_running());
    server.stop();
}

#[test]
fn a_command_starts_again_although_its_user_can_no_longer_be_looked_up() {
    if !is_root() {
        return eprintln!("skipped: only root has a list of users of its own");
    }
    let root = document_root(&[]);
    let folder = document_root(&[]);
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let list = folder.path().join("passwd");
    let with = format!("{users}maitred-shop:x:33:33::/:/usr/sbin/nologin\n");
    std::fs::write(&list, with).unwrap();
    set_mode(&list, 0o644);
    let mount = format!("mount --bind {} /etc/passwd && exec \"$@\"", list.display());
    let server = Setup::new(root.path())
        .pool("user = \"maitred-shop\"")
        .pool(&command("sleeps", &["command = [\"sleep\", \"1000\"]"]))
        .under(&["unshare", "--mount", "sh", "-c", &mount, "sh"])
        .start();
    let first = running(&server, "sleeps", 1)[0];
    // The same file, without that user.
    std::fs::write(&list, &users).unwrap();
    Process::read(first).inspect(|process| process.signal(Signal::KILL));
    wait::until_true("a successor", || {
        let now = pids(&server, "sleeps");
        now.len() == 1 && now[0] != first && Process::read(now[0]).is_some()
    });
    assert_eq!(status_field(running(&server, "sleeps", 1)[0], "Uid"), "33 33 33 33");
    server.stop();
}

#[test]
fn a_machine_without_phps_command_line_is_told_which_package_lacks() {
    if !is_root() {
        return eprintln!("skipped: only root can hide a program");
    }
    let root = document_root(&[]);
    let file = root.path().join("maitred.toml");
    let text = format!(
        "[pools.www]\n[[pools.www.commands]]\nname = \"mails\"\ncommand = [\"php\", \"x\"]\n\
         [[sites]]\nroot = {:?}\npool = \"www\"\n",
        root.path()
    );
    std::fs::write(&file, text).unwrap();
    let hide = "for file in /usr/bin/php*; do mount --bind /dev/null \"$(realpath $file)\"; done
                exec \"$@\"";
    let mut check = Command::new("unshare");
    check.args(["--mount", "sh", "-c", hide, "sh"]).arg(maitred_program()).arg("check").arg(&file);
    let output = check.output().unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(said.contains("pool `www`, command `mails`: PHP ") && !output.status.success());
    assert!(said.contains("apt-get install php"), "{said}");
}

/// Copies a program, and the libraries that it needs, into a folder that is to be `/`.
fn install(program: &str, root: &Path) {
    let libraries = Command::new("ldd").arg(program).output().expect("ldd runs");
    let libraries = String::from_utf8(libraries.stdout).expect("its output is UTF-8");
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for path in libraries.chain([program]) {
        write_file(root, &path[1..], &std::fs::read(path).expect("the library is there"));
        set_mode(&root.join(&path[1..]), 0o755);
    }
}

#[test]
fn a_command_of_a_pool_with_a_chroot_is_inside_of_it() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let jail = document_root(&[("public/index.php", ""), ("work/here.txt", "")]);
    write_file(jail.path(), "usr/share/zoneinfo/none", b"");
    install("/bin/sh", jail.path());
    let says = r#"command = ["/bin/sh", "-c", "echo there is $(echo *) in $PWD; [ ! -e /etc ]"]"#;
    let server = Setup::new(&jail.path().join("public"))
        .pool(&format!("chroot = {:?}", jail.path()))
        .pool(&command("jailed", &[says, "dir = \"/work\"", "restart = \"never\""]))
        .start();
    server.expect_log(0, "command jailed: there is here.txt in /work");
    wait::until_true("its end", || {
        let job = jobs::find(&server, "jailed").unwrap();
        job["last_exit"] == "exited with code 0"
    });
    server.stop();
}
