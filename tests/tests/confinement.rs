//! What a pool may use and where it lives, seen from outside and from its own scripts.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::http::{self, Request};
use maitred_tests::processes::Process;
use maitred_tests::server::{
    Setup, WEB_USER, document_root, is_root, public_folder, set_mode, user_ids, write_file,
};
use maitred_tests::{Target, maitred_program, php_version, wait};
use serde_json::json;
use tempfile::TempDir;

/// A second user, who is on every machine.
const OTHER_USER: &str = "nobody";

fn php(script: &str) -> TempDir {
    document_root(&[("index.php", script)])
}

/// Runs maitred until it ends; its exit code and what it said.
fn run(program: &Path, command: &str, config: &Path) -> (Option<i32>, String) {
    let mut run = Command::new(program);
    let output = run.arg(command).arg("--config").arg(config).output();
    let output = output.expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// A configuration file with these settings of pool `www`.
fn config(folder: &Path, root: &Path, pool: &str) -> PathBuf {
    let file = folder.join("maitred.toml");
    let text = format!(
        "listen = [\"127.0.0.1:0\"]\n[pools.www]\npm = \"static\"\nmax_children = 1\n{pool}\n\
         [[sites]]\nroot = {root:?}\n"
    );
    fs::write(&file, text).expect("a configuration can be written");
    file
}

/// A folder to be `/` for scripts, with a site in `/public` that has these files.
fn jail(files: &[(&str, &str)]) -> TempDir {
    let jail = document_root(files);
    // PHP as Debian packages it reads time zones from there.
    write_file(jail.path(), "usr/share/zoneinfo/none", b"");
    write_file(jail.path(), "work/here.txt", b"in the jail");
    jail
}

fn jailed(jail: &TempDir) -> Setup {
    let chroot = format!("chroot = {:?}", jail.path());
    Setup::new(&jail.path().join("public")).pool(&chroot)
}

#[test]
fn scripts_in_a_chroot_see_nothing_outside_of_it() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let jail = jail(&[
        (
            "public/index.php",
            "<?php chdir('/'); chdir('../../../..');
             echo json_encode([__FILE__, $_SERVER['DOCUMENT_ROOT'], $_SERVER['SCRIPT_FILENAME'],
             getcwd(), array_values(array_diff(scandir('/'), ['.', '..'])),
             file_exists('/etc/passwd'), include 'part.php', posix_geteuid(),
             extension_loaded('Zend OPcache')]);",
        ),
        ("public/part.php", "<?php return __DIR__;"),
        ("public/a.txt", "a file"),
    ]);
    let server = jailed(&jail).start();
    let (user, _) = user_ids(WEB_USER);
    for _ in 0..3 {
        assert_eq!(
            http::get(server.address(), "/").json(),
            json!([
                "/public/index.php",
                "/public",
                "/public/index.php",
                "/",
                ["public", "usr", "work"],
                false,
                "/public",
                user,
                true
            ])
        );
    }
    assert_eq!(http::get(server.address(), "/a.txt").text(), "a file");
    for process in server.workers().into_iter().chain(server.zygote()) {
        let root = fs::read_link(format!("/proc/{}/root", process.pid)).expect("it runs");
        assert_eq!(root, jail.path());
        assert_eq!(capabilities(&process), 0, "{process:?}");
    }
    for worker in server.workers() {
        let outside = outside_folders(&worker, jail.path());
        assert_eq!(outside, Vec::<PathBuf>::new(), "open in a worker");
    }
}

/// The capabilities a process has or could take on.
fn capabilities(process: &Process) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.pid)).expect("it runs");
    let sets = status
        .lines()
        .filter_map(|line| line.strip_prefix("CapPrm:").or(line.strip_prefix("CapEff:")));
    sets.map(|set| u64::from_str_radix(set.trim(), 16).expect("a hexadecimal number"))
        .fold(0, |all, set| all | set)
}

/// Folders that a process has open and that do not lie in `jail`: each would be a way out.
fn outside_folders(process: &Process, jail: &Path) -> Vec<PathBuf> {
    let descriptors = fs::read_dir(format!("/proc/{}/fd", process.pid)).expect("it runs");
    let links = descriptors.flatten().map(|entry| entry.path());
    let folders = links.filter(|link| link.is_dir());
    let names = folders.filter_map(|link| fs::read_link(link).ok());
    names.filter(|name| !name.starts_with(jail)).collect()
}

/// What a script of `opcache.preload` notes of its process, and what the worker has.
fn rights_while_preloading(more: &str) -> [String; 2] {
    let jail = jail(&[("public/index.php", "<?php echo file_get_contents('/proc/self/status');")]);
    let seen = jail.path().join("work/seen");
    let script = jail.path().join("preload.php");
    let text =
        format!("<?php file_put_contents({seen:?}, file_get_contents('/proc/self/status'));");
    write_file(jail.path(), "preload.php", text.as_bytes());
    // What the owner of a root puts there decides nothing.
    write_file(jail.path(), "usr/sbin/sendmail", b"");
    std::os::unix::fs::chown(jail.path().join("work"), Some(user_ids(WEB_USER).0), None)
        .expect("root can give a folder away");
    let server = jailed(&jail)
        .pool(&format!("php_admin_value = {{ \"opcache.preload\" = {script:?} }}"))
        .pool(more)
        .start();
    let worker = server.workers().remove(0);
    let status = [
        fs::read_to_string(&seen).expect("the script was preloaded"),
        fs::read_to_string(format!("/proc/{}/status", worker.pid)).expect("the worker runs"),
    ];
    server.stop();
    status
}

#[test]
fn a_preloaded_script_has_no_rights_before_the_change_of_the_root() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    for more in ["", "no_new_privileges = false"] {
        for status in rights_while_preloading(more) {
            let field = |name: &str| {
                let line = status.lines().find_map(|line| line.strip_prefix(name));
                line.expect("the kernel reports it").trim().to_owned()
            };
            assert_eq!(field("CapEff:"), "0".repeat(16), "{more}");
            assert_eq!(field("NoNewPrivs:"), "1", "{more}");
        }
    }
}

#[test]
fn a_worker_in_a_chroot_is_replaced_like_any_other() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let jail = jail(&[("public/index.php", "<?php echo getmypid();")]);
    let server = jailed(&jail).workers(1).pool("max_requests = 1").start();
    let pids = [(); 4].map(|()| http::get(server.address(), "/").text());
    let different: std::collections::HashSet<&String> = pids.iter().collect();
    assert_eq!(different.len(), pids.len(), "{pids:?}");
}

#[test]
fn a_site_that_moves_with_its_chroot_needs_a_restart_and_others_do_not() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let (old, new) = ("<?php echo 'old';", "<?php echo 'new';");
    let (old, new) = (jail(&[("public/index.php", old)]), jail(&[("public/index.php", new)]));
    let server = jailed(&old).start();
    server.configure(&jailed(&new));
    let line = server.reload();
    let outside = format!("`root` is {}/public, which is not below", new.path().display());
    assert!(line.contains(&outside), "{line}");
    assert_eq!(http::get(server.address(), "/").text(), "old", "nothing else would be served");
    let other = php("<?php echo 'other';");
    let other = format!(
        "[[sites]]\nroot = {:?}\npool = \"other\"\nhosts = \"localhost\"\n[pools.other]\n\
         pm = \"static\"\nmax_children = 1\nuser = {WEB_USER:?}\n",
        other.path()
    );
    server.configure(&jailed(&new).site(&other));
    let line = server.reload();
    assert!(line.contains("reloaded: ") && line.contains(&outside), "{line}");
    assert_eq!(http::get(server.address(), "/").text(), "other");
    let moved = || {
        let mut request = Request::get("/");
        request.headers[0].1 = "moved.example".to_owned();
        http::Connection::open(server.address()).ask(&request).expect("a response")
    };
    assert_eq!(moved().status, 503);
    server.stop();
    let server = jailed(&new).start();
    assert_eq!(http::get(server.address(), "/").text(), "new");
}

#[test]
fn a_site_whose_pool_gets_another_user_moves_with_its_chroot() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let (old, new) = ("<?php echo 'old';", "<?php echo 'new ', __FILE__;");
    let (old, new) = (jail(&[("public/index.php", old)]), jail(&[("public/index.php", new)]));
    let server = jailed(&old).start();
    assert_eq!(http::get(server.address(), "/").text(), "old");
    server.configure(&jailed(&new).pool(&format!("user = {OTHER_USER:?}")));
    let line = server.reload();
    assert!(line.contains("reloaded"), "{line}");
    wait::until_true("the new user to be served", || {
        http::get(server.address(), "/").text() == "new /public/index.php"
    });
    assert!(!server.log_text().contains("need a restart"), "{}", server.log_text());
}

#[test]
fn private_memory_is_seen_in_a_chroot_too() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let jail = jail(&[("public/index.php", "<?php echo getmypid();")]);
    let server = jailed(&jail).workers(1).pool("max_private_memory = \"64k\"").start();
    let first = http::get(server.address(), "/").text();
    wait::until("a worker that is too large to be replaced", || {
        (http::get(server.address(), "/").text() != first).then_some(())
    });
}

#[test]
fn a_request_starts_and_ends_in_chdir_and_runs_in_the_scripts_folder() {
    let work = document_root(&[("here.txt", "in the folder")]);
    set_mode(work.path(), 0o755);
    let root = php("<?php register_shutdown_function(function () { echo ' ', getcwd(), ' ',
             file_get_contents('here.txt'); chdir('/'); });
         echo getcwd();");
    let server =
        Setup::new(root.path()).workers(1).pool(&format!("chdir = {:?}", work.path())).start();
    let (root, work) = (root.path().display(), work.path().display());
    for _ in 0..3 {
        assert_eq!(http::get(server.address(), "/").text(), format!("{root} {work} in the folder"));
    }
}

#[test]
fn a_chdir_lies_within_the_chroot() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let jail = jail(&[(
        "public/index.php",
        "<?php register_shutdown_function(fn () => print(getcwd() . \
         file_get_contents('here.txt')));",
    )]);
    let server = jailed(&jail).pool("chdir = \"/work\"").start();
    assert_eq!(http::get(server.address(), "/").text(), "/workin the jail");
}

#[test]
fn limits_hold_in_workers_and_in_what_they_start() {
    let root = php("<?php $limits = posix_getrlimit();
         echo json_encode([$limits['soft openfiles'], $limits['hard openfiles'],
         $limits['hard core'], trim(shell_exec('ulimit -n; nice')),
         trim(file_get_contents('/proc/self/oom_score_adj'))]);");
    let server = Setup::new(root.path())
        .pool("rlimit_files = 321")
        .pool("rlimit_core = 0")
        .pool("process_priority = 7")
        .pool("oom_score_adj = 345")
        .start();
    // The nice value of the tests themselves counts for nothing: it is set, not added.
    assert_eq!(http::get(server.address(), "/").json(), json!([321, 321, 0, "321\n7", "345"]));
    let own = |process: &Process| {
        fs::read_to_string(format!("/proc/{}/oom_score_adj", process.pid)).expect("it runs")
    };
    let front = server.front().expect("the front runs");
    assert_ne!(own(&front).trim(), "345", "the front is limited as well");
}

#[test]
fn a_limit_that_the_system_refuses_ends_the_start_and_is_named() {
    let root = php("<?php");
    let folder = public_folder();
    // Beyond fs.nr_open, which is so for root too.
    let file = config(folder.path(), root.path(), "rlimit_files = 1073741824");
    let (code, said) = run(&maitred_program(), "serve", &file);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("`rlimit_files` cannot be 1073741824: "), "{said}");
}

/// The programs, copied into a folder under these names for `maitred-php`.
fn copies(names: &[&str]) -> TempDir {
    let folder = public_folder();
    let own = maitred_program();
    fs::copy(&own, folder.path().join("maitred")).expect("a program can be copied");
    for name in names {
        fs::copy(own.with_file_name("maitred-php"), folder.path().join(name))
            .expect("a program can be copied");
    }
    folder
}

#[test]
fn pools_of_different_php_versions_run_in_the_programs_of_these() {
    let full = php_version();
    let branch = full.rsplit_once('.').expect("three numbers").0;
    let named = format!("maitred-php{branch}");
    let programs = copies(&["maitred-php", &named]);
    let root = php("<?php echo PHP_VERSION;");
    let server = Setup::new(root.path())
        .program(&programs.path().join("maitred"))
        .pool(&format!("php = {branch:?}"))
        .hosts(&["versioned.test"])
        .site("[pools.plain]\npm = \"static\"\nmax_children = 1\n[[sites]]")
        .site(&format!("root = {:?}\npool = \"plain\"", root.path()))
        .start();
    let ask = |host: &str| {
        let request = Request::new("GET", "/").header("Host", host);
        http::ask(server.address(), &request).text()
    };
    assert!(ask("versioned.test").starts_with(&full));
    assert!(ask("other.test").starts_with(&full));
    let program_of = |title: &str| {
        let processes = server.processes();
        let process = processes.iter().find(|p| p.title.starts_with(title));
        let pid = process.expect("it runs").pid;
        fs::read_link(format!("/proc/{pid}/exe")).expect("it runs")
    };
    assert!(program_of("maitred-php: worker pool www").ends_with(&named));
    assert!(program_of("maitred-php: worker pool plain").ends_with("maitred-php"));
}

#[test]
fn the_plain_program_is_taken_if_its_version_fits() {
    let full = php_version();
    let branch = full.rsplit_once('.').expect("three numbers").0;
    let root = php("<?php echo PHP_VERSION;");
    let server = Setup::new(root.path()).pool(&format!("php = {branch:?}")).start();
    assert!(http::get(server.address(), "/").text().starts_with(&full));
}

#[test]
fn a_php_version_that_is_not_there_is_an_error_that_lists_those_that_are() {
    let full = php_version();
    let named = format!("maitred-php{}", full.rsplit_once('.').expect("numbers").0);
    let programs = copies(&["maitred-php", &named, "maitred-php9.9"]);
    let root = php("<?php");
    let file = config(programs.path(), root.path(), "php = \"9.9\"");
    for command in ["check", "serve"] {
        let (code, said) = run(&programs.path().join("maitred"), command, &file);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("pool `www` asks for PHP 9.9"), "{said}");
        for name in ["maitred-php", &named] {
            let program = programs.path().join(name);
            let there = format!("{} (PHP {full})", program.display());
            assert!(said.contains(&there), "{there} in {said}");
        }
        assert!(said.contains("MAITRED_PHP_VERSION=9.9"), "{said}");
    }
}

/// Where the file system `cgroup2` is mounted.
fn group_mount() -> String {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let mount = mounts.lines().find(|line| line.contains(" cgroup2 "));
    let place = mount.and_then(|line| line.split(' ').nth(1));
    place.expect("control groups are mounted").to_owned()
}

/// Holds on a machine that gives us control groups, and on one that does not.
#[test]
fn limits_of_a_pool_are_kept_by_its_control_group_or_the_log_says_why_not() {
    let root = php("<?php echo file_get_contents('/proc/self/cgroup');");
    let server = Setup::new(root.path())
        .pool("memory_max = \"512M\"")
        .pool("memory_high = \"256M\"")
        .pool("cpu_max = 1.5")
        .pool("pids_max = 50")
        .start();
    let groups = http::get(server.address(), "/").text();
    let lines = server.log().since(0);
    let warnings = lines.iter().filter(|line| line.contains("of pool `www` cannot be kept"));
    let own = groups.lines().find_map(|line| line.strip_prefix("0::"));
    if let Some(own) = own.filter(|group| group.ends_with("/maitred-pool-www")) {
        assert_eq!(warnings.count(), 0);
        let group = PathBuf::from(format!("{}{own}", group_mount()));
        let set = |name: &str| fs::read_to_string(group.join(name)).expect("it is set");
        assert_eq!(set("memory.max").trim(), (512 << 20).to_string());
        assert_eq!(set("memory.high").trim(), (256 << 20).to_string());
        assert_eq!(set("cpu.max").trim(), "150000 100000");
        assert_eq!(set("pids.max").trim(), "50");
        server.stop();
        return assert!(!group.exists(), "{} is left", group.display());
    }
    let warnings: Vec<&String> = warnings.collect();
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    let named = "memory_max, memory_high, cpu_max, pids_max of pool `www`";
    assert!(warnings[0].contains(named), "{warnings:?}");
}

const SPY: &str = "<?php
    $of = '/proc/' . (int) $_GET['pid'];
    $maps = file_get_contents('/proc/self/maps');
    preg_match_all('!^\\S+ (\\S+) .*(/memfd:maitred-\\S+)!m', $maps, $own);
    echo json_encode([
        'user' => posix_geteuid(),
        'memory' => @fopen(\"$of/mem\", 'r') !== false,
        'maps' => @file_get_contents(\"$of/maps\", false, null, 0, 10),
        'environment' => @file_get_contents(\"$of/environ\"),
        'descriptors' => @scandir(\"$of/fd\"),
        'folder' => @readlink(\"$of/cwd\"),
        'mapped' => @scandir(\"$of/map_files\"),
        'signal' => posix_kill((int) $_GET['pid'], 0),
        'opened' => @file_get_contents(\"$of/fd/4\", false, null, 0, 1),
        'shared' => array_combine($own[2], $own[1]),
        'scripts' => array_map('dirname', array_keys(opcache_get_status()['scripts'] ?? [])),
    ]);";

#[test]
fn pools_of_different_users_share_nothing() {
    if !is_root() {
        return eprintln!("skipped: only root can run pools as different users");
    }
    let (first, second) = (php(SPY), php(SPY));
    // OPcache takes no recently changed file, unless the settings say so.
    let ini = "php_admin_value = { \"opcache.file_update_protection\" = 0 }";
    let server = Setup::new(first.path())
        .pool(&format!("user = {WEB_USER:?}"))
        .pool(ini)
        .hosts(&["first.test"])
        .site(&format!(
            "[pools.second]\nuser = {OTHER_USER:?}\npm = \"static\"\nmax_children = 2\n{ini}\n\
             env = {{ KEY = \"secret\" }}"
        ))
        .site(&format!(
            "[[sites]]\nhosts = [\"second.test\"]\npool = \"second\"\n\
                        root = {:?}",
            second.path()
        ))
        .start();
    let shared = format!("the front runs as user `{WEB_USER}`, as these pools do: `www`;");
    let log = server.log_text();
    assert_eq!(log.matches(&shared).count(), 1, "{log}");
    let spy = |host: &str, victim: &Process| {
        let target = format!("/?pid={}", victim.pid);
        let request = Request::new("GET", &target).header("Host", host);
        http::ask(server.address(), &request).json()
    };
    let processes = server.processes();
    let of = |pool: &str| {
        let titles = ["worker", "zygote"].map(|kind| format!("maitred-php: {kind} pool {pool}"));
        let all = processes.clone().into_iter();
        all.filter(|p| titles.iter().any(|title| p.title.starts_with(title))).collect::<Vec<_>>()
    };
    let sides = [
        ("first.test", "www", of("second"), WEB_USER, &first),
        ("second.test", "second", of("www"), OTHER_USER, &second),
    ];
    for (host, pool, victims, user, root) in sides {
        assert!(victims.len() >= 3, "{victims:?}");
        // The front may run as the very user that a pool runs as.
        for victim in victims.iter().chain(&server.front()) {
            let mut seen = spy(host, victim);
            // All workers of a pool know the script once one has run it.
            let scripts = seen["scripts"].take();
            for script in scripts.as_array().expect("a list") {
                assert_eq!(script, root.path().to_str().expect("a path"));
            }
            let by_own_user = seen["signal"].take();
            let may_signal = victim.title.starts_with("maitred: front") && user == WEB_USER;
            assert_eq!(by_own_user, json!(may_signal), "{victim:?}");
            let (user, _) = user_ids(user);
            assert_eq!(
                seen,
                json!({
                    "user": user, "memory": false, "maps": false, "environment": false,
                    "descriptors": false, "folder": false, "mapped": false, "signal": null,
                    "opened": false, "scripts": null,
                    "shared": {
                        (format!("/memfd:maitred-{pool}")): "rw-s",
                        (format!("/memfd:maitred-application-{pool}")): "rw-s",
                        "/memfd:maitred-libphp": "r-xp",
                    },
                }),
                "{victim:?}"
            );
        }
    }
}
