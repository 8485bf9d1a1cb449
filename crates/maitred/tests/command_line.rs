//! The command from outside: messages and exit codes for wrong usage.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::net::TcpListener;
use std::path::Path;
use std::process::{Command, Output};

fn maitred(arguments: &[&str], folder: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_maitred"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("MAITRED_LOG")
        .output()
        .unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// A folder that holds a site.
fn site() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("index.php"), "<?php echo 'hello';").unwrap();
    folder
}

#[test]
fn help_and_version_exit_with_0_and_show_examples() {
    let folder = site();
    for (arguments, expected) in [
        (&["--help"][..], "maitred serve public/"),
        (&["serve", "--help"], "maitred serve --config maitred.toml"),
        (&["check", "--help"], "maitred check maitred.toml"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = maitred(arguments, folder.path());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.contains(expected), "{arguments:?}: {text}");
        assert!(!text.contains("front "), "the front's role is not for people: {text}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_was_expected() {
    let folder = site();
    for (arguments, expected) in [
        (&[][..], "Usage: maitred"),
        (&["sevre"], "unrecognized subcommand 'sevre'"),
        (&["start"], "maitred: there is no command `start`; write `maitred serve`\n"),
        (&["serve", "--port", "81"], "write `maitred serve --listen 81`\n"),
        (&["serve", ".", "--watch"], "--watch is for a configuration file"),
        (&["serve", "-d", "=1"], "it has no name; expected NAME=VALUE"),
        (&["serve", "--listen", "nowhere:80"], "expected an IP address and a port"),
        (&["serve", "--listen", "unix:/run/a.sock"], "names a Unix socket"),
        (&["serve", "--workers", "0"], "0 is not in 1..=10000"),
        (&["serve", ".", "--config", "maitred.toml"], "cannot be used with"),
        (&["serve", "--log-level", "loud"], "the log level `loud` is unknown"),
        (&["front"], "is started by `maitred serve`"),
    ] {
        let output = maitred(arguments, folder.path());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {text}");
        assert!(text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn a_document_root_that_does_not_exist_exits_with_2_and_is_named() {
    let folder = site();
    let output = maitred(&["serve", "no-such-folder"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let text = said(&output);
    assert!(text.contains("no-such-folder"), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn a_wrong_configuration_exits_with_2_with_file_line_and_column() {
    let folder = site();
    let file = folder.path().join("maitred.toml");
    std::fs::write(&file, "lisen = \"127.0.0.1:0\"\n[[sites]]\nhosts = [\"*\"]\nroot = \".\"\n")
        .unwrap();
    for command in ["serve", "check"] {
        let output = maitred(&[command, "--config", "maitred.toml"], folder.path());
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("maitred.toml:1:1:") && text.contains("listen"), "{text}");
    }
}

#[test]
fn what_this_machine_does_not_have_is_named_with_file_line_and_column() {
    let folder = site();
    let file = folder.path().join("maitred.toml");
    let site = "[[sites]]\nhosts = [\"*\"]\nroot = \".\"\n";
    for (text, place) in [
        ("[pools.www]\nuser = \"no-user-of-this-name\"\n", ":2:8:"),
        ("[pools.www]\nuser = \"nobody\"\ngroup = \"no-such-group\"\n", ":3:9:"),
        ("error_log = \"/no-such-folder/log\"\n", ":1:13:"),
        ("[pools.www]\nslowlog = \"/no-such-folder/log\"\n", ":2:11:"),
        ("[pools.www]\nphp = \"9.9\"\n", ":2:7:"),
    ] {
        std::fs::write(&file, [text, site].concat()).unwrap();
        // A log of a pool or a site is no reason not to serve it.
        let strict = ["serve", "--strict", "--config", "maitred.toml"];
        for command in [&strict[..], &["check", "--config", "maitred.toml"]] {
            let output = maitred(command, folder.path());
            let text = said(&output);
            assert_eq!(output.status.code(), Some(2), "{text}");
            assert!(text.contains(&format!("maitred: maitred.toml{place} ")), "{text}");
        }
    }
}

#[test]
fn a_log_of_a_site_without_a_folder_is_named_with_the_sites_line() {
    let folder = site();
    let file = folder.path().join("maitred.toml");
    let site = "[[sites]]\nhosts = [\"*\"]\nroot = \".\"\naccess_log = \"/no-such-folder/log\"\n";
    std::fs::write(&file, site).unwrap();
    let output = maitred(&["check", "--config", "maitred.toml"], folder.path());
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert_eq!(
        text,
        "maitred: maitred.toml:4:14: access_log /no-such-folder/log cannot be written: its folder \
         does not exist; make it, or correct access_log\n"
    );
}

#[test]
fn a_right_configuration_is_said_to_be_right() {
    let folder = site();
    let file = folder.path().join("maitred.toml");
    std::fs::write(&file, "[[sites]]\nhosts = [\"*\"]\nroot = \".\"\n").unwrap();
    let output = maitred(&["check", "--config", "maitred.toml"], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "maitred.toml is right: 1 site, 1 pool\n"
    );
}

#[test]
fn check_takes_the_file_by_itself_and_counts_the_files_that_it_includes() {
    let folder = site();
    std::fs::create_dir(folder.path().join("sites.d")).unwrap();
    for name in ["a", "b"] {
        let text = format!("[[sites]]\nhosts = \"{name}.test\"\nroot = \"..\"\n");
        std::fs::write(folder.path().join(format!("sites.d/{name}.toml")), text).unwrap();
    }
    std::fs::write(folder.path().join("m.toml"), "include = \"sites.d/*.toml\"\n").unwrap();
    let output = maitred(&["check", "m.toml"], folder.path());
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "m.toml is right: 3 files, 2 sites, 1 pool\n");
    std::fs::write(folder.path().join("sites.d/b.toml"), "[[sites]]\nroot = \"no\"\n").unwrap();
    let output = maitred(&["check", "m.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let start = "maitred: sites.d/b.toml:2:8: `root` is ";
    assert!(said(&output).starts_with(start), "{}", said(&output));
}

#[test]
fn a_port_in_use_exits_with_1_and_names_the_address_and_who_has_it() {
    let folder = site();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = maitred(&["serve", ".", "--listen", &address], folder.path());
    let text = said(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("{address} cannot be listened on")), "{text}");
    assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn check_warns_of_a_port_that_another_program_uses_and_refuses_it_before_a_start() {
    let folder = site();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let text = format!("listen = {address:?}\n[[sites]]\nroot = \".\"\n");
    std::fs::write(folder.path().join("m.toml"), text).unwrap();
    let output = maitred(&["check", "m.toml"], folder.path());
    let text = said(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    let holder = format!("(process {}) listens on {address} now", std::process::id());
    assert!(text.starts_with("maitred: warning: ") && text.contains(&holder), "{text}");
    let output = maitred(&["check", "--free-ports", "m.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    drop(taken);
    let output = maitred(&["check", "m.toml"], folder.path());
    assert_eq!(said(&output), "", "no program listens there");
}

#[test]
fn a_pool_of_a_user_who_does_not_exist_exits_with_2() {
    let folder = site();
    let file = folder.path().join("maitred.toml");
    let text = "listen = \"127.0.0.1:0\"\n[pools.www]\nuser = \"no-user-of-this-name\"\n\
                [[sites]]\nhosts = [\"*\"]\nroot = \".\"\n";
    std::fs::write(&file, text).unwrap();
    let output = maitred(&["serve", "--config", "maitred.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    assert!(said(&output).contains("`no-user-of-this-name` does not exist"), "{}", said(&output));
}

#[test]
fn check_says_what_this_machine_lacks() {
    let folder = site();
    let text = "access_log = \"/nonexistent/a.log\"\n[pools.www]\nuser = \"nobodyx\"\n\
                [[sites]]\nroot = \".\"\n";
    std::fs::write(folder.path().join("maitred.toml"), text).expect("a file can be written");
    let output = maitred(&["check", "--config", "maitred.toml"], folder.path());
    assert_eq!(output.status.code(), Some(2));
    let said = said(&output);
    assert!(said.contains("user `nobodyx` does not exist"), "{said}");
    assert!(said.contains("access_log /nonexistent/a.log cannot be written"), "{said}");
}

#[test]
fn a_program_without_its_php_host_exits_with_2_and_says_which_file_is_missing() {
    let folder = site();
    let alone = folder.path().join("maitred");
    // By another process: one that this test forks meanwhile would hold the file open for writing,
    // and what is being written cannot be executed.
    let mut copy = Command::new("cp");
    let copy = copy.arg(env!("CARGO_BIN_EXE_maitred"));
    assert!(copy.arg(&alone).status().unwrap().success());
    let output = Command::new(&alone)
        .args(["serve", ".", "--listen", "127.0.0.1:0"])
        // Another server may have the usual one, which would be said.
        .args(["--admin-socket", "admin.sock"])
        .current_dir(folder.path())
        .output()
        .unwrap();
    let text = said(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("pool `www` needs maitred-php, which is not in "), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn nobody_reading_standard_error_changes_no_exit_code() {
    let folder = site();
    std::fs::write(folder.path().join("maitred.toml"), "nothing = 1\n").unwrap();
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
    drop(ours);
    // It logs which configuration it reads before it finds the mistake in it.
    let status = Command::new(env!("CARGO_BIN_EXE_maitred"))
        .args(["serve", "--config", "maitred.toml"])
        .current_dir(folder.path())
        .env_remove("MAITRED_LOG")
        .stderr(std::os::fd::OwnedFd::from(theirs))
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(2));
}

#[test]
fn the_completions_load_in_a_shell_and_know_commands_and_options() {
    let folder = site();
    for (words, expected) in [
        ("maitred tru", "trust"),
        ("maitred serve --ht", "--https"),
        ("maitred trust --store b", "browsers"),
    ] {
        let script = format!(
            "source completions; COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); \
             cur=${{COMP_WORDS[COMP_CWORD]}}; _maitred maitred \"$cur\" \
             \"${{COMP_WORDS[COMP_CWORD - 1]}}\"; complete -p maitred >&2; echo ${{COMPREPLY[@]}}"
        );
        let completions = maitred(&["completions", "bash"], folder.path()).stdout;
        std::fs::write(folder.path().join("completions"), completions).unwrap();
        let mut bash = Command::new("bash");
        let output = bash.args(["-c", &script]).current_dir(folder.path()).output().unwrap();
        let completed = String::from_utf8(output.stdout.clone()).unwrap();
        assert_eq!(completed.trim(), expected, "{words}: {}", said(&output));
        assert!(said(&output).contains("_maitred"), "{}", said(&output));
    }
    // Other shells check the syntax, where they are installed.
    for shell in ["zsh", "fish"] {
        let completions = maitred(&["completions", shell], folder.path()).stdout;
        let file = folder.path().join(shell);
        std::fs::write(&file, completions).unwrap();
        if let Ok(output) = Command::new(shell).arg("-n").arg(&file).output() {
            assert!(output.status.success(), "{shell}: {}", said(&output));
        }
    }
}
