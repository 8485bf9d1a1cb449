//! How a server begins that was started as php-fpm, and how a pool without workers does.

use std::thread;

use maitred_tests::fpm::{Daemon, OUTSIDE, Params, Place, Which, usual};
use maitred_tests::processes::Signal;
use maitred_tests::server::{document_root, is_root};
use maitred_tests::wait;

#[test]
fn a_start_is_told_once_and_what_is_wrong_with_the_clients_for_each_worker() {
    for which in Which::BOTH {
        let pool = "listen = @PORT1@\nlisten.allowed_clients = nowhere\n\
                    catch_workers_output = yes\npm = static\npm.max_children = 2\n";
        let daemon = Daemon::start(which, &usual(pool));
        let wrong = "[pool www] child # said into stderr: \
                     \"ERROR: Wrong IP address 'nowhere' in listen.allowed_clients\"";
        let no_worker =
            "[pool www] child # said into stderr: \"ERROR: There are no allowed addresses\"";
        let count = |text: &str| {
            let lines = daemon.said(0);
            lines.iter().filter(|line| line.ends_with(text)).count()
        };
        wait::until_true("two workers to have spoken", || count(no_worker) == 2);
        assert_eq!(count(wrong), 2, "{which:?}");
        let lines = daemon.said(0);
        let begin = ["NOTICE: fpm is running, pid #", "NOTICE: ready to handle connections"];
        assert_eq!(lines[..2], begin, "{which:?}: {lines:#?}");
        assert_eq!(count("fpm is running, pid #"), 1, "{which:?}");
        daemon.stop();
    }
}

#[test]
fn a_request_counts_as_accepted_while_it_runs() {
    let root = document_root(&[("count.php", "<?php echo fpm_get_status()['accepted-conn'];")]);
    let folder = root.path().display().to_string();
    let count = |daemon: &Daemon| {
        let answer = daemon.listener().ask(&Params::get(&folder, "/count.php"), b"");
        answer.expect("an answer").body()
    };
    for which in Which::BOTH {
        let daemon = Daemon::start(which, &usual(""));
        assert_eq!(count(&daemon), "1", "{which:?}");
        assert_eq!(count(&daemon), "2", "{which:?}");
        daemon.stop();
    }
}

#[test]
fn a_pool_at_rest_is_pinged_as_its_neighbour_and_counts_the_page_as_its_one_worker() {
    let root = document_root(&[("slow.php", "<?php usleep(1000 * $_GET['ms']); echo 'done';")]);
    let daemon = Daemon::start_with(
        Which::Maitred,
        &format!(
            "{}[resting]\nlisten = @FOLDER@/resting.sock\nping.path = /ping\n\
             pm.status_path = /status\npm = ondemand\npm.max_children = 3\n{}",
            usual(""),
            match is_root() {
                true => "user = www-data\n",
                false => "",
            }
        ),
        Place::default(),
        // Debian's php.ini hides the PHP version.
        &["-n"],
    );
    let listener = daemon.place().listener("resting.sock");
    let page = |target: &str| {
        let mut params = Params::get(&root.path().display().to_string(), target);
        params.set("SCRIPT_FILENAME", target);
        listener.ask(&params, b"").expect("an answer")
    };
    assert_eq!(page("/ping").body(), "pong");
    assert!(page("/ping").text().contains("X-Powered-By: PHP/"));
    let status = page("/status").body();
    let figures = ["idle processes:       0", "active processes:     1", "total processes:      1"];
    for figure in figures {
        assert!(status.contains(figure), "{status}");
    }
    daemon.stop();
}

#[test]
fn a_pool_at_rest_gets_as_many_workers_as_requests_come() {
    let root = document_root(&[("slow.php", "<?php usleep(1000 * $_GET['ms']); echo 'done';")]);
    let pool = "pm = ondemand\npm.max_children = 8\n";
    let daemon = Daemon::start(Which::Maitred, &usual(pool));
    let asked = ["/slow.php?ms=400", "/slow.php?ms=401", "/slow.php?ms=402"].map(|target| {
        let (listener, folder) = (daemon.listener(), root.path().display().to_string());
        thread::spawn(move || listener.ask(&Params::get(&folder, target), b""))
    });
    for asked in asked {
        let answer = asked.join().expect("a thread ends").expect("an answer");
        assert_eq!(answer.body(), "done");
    }
    assert_eq!(daemon.workers("www").len(), 3);
    daemon.stop();
}

#[test]
fn a_name_in_braces_is_looked_for_in_php_ini_and_then_outside() {
    let root = document_root(&[("env.php", "<?php echo getenv($_SERVER['QUERY_STRING']);")]);
    let lines = format!(
        "env[OF_INI] = ${{mine.entry}}\nenv[SWITCH] = ${{mine.switch}}\nenv[FIRST] = ${{{0}}}\n\
         env[SECOND] = ${{PATH}}\nenv[FILE] = ${{error_reporting}}\n",
        OUTSIDE.0
    );
    let in_both = format!("{}=of php.ini", OUTSIDE.0);
    let flags = ["-d", "mine.entry=an entry", "-d", "mine.switch=On", "-d", &in_both];
    let [theirs, ours] = Which::BOTH.map(|which| {
        let mut daemon = Daemon::start_with(which, &usual(&lines), Place::default(), &flags);
        let read = |daemon: &Daemon| {
            ["OF_INI", "SWITCH", "FIRST", "SECOND", "FILE"].map(|name| {
                let folder = root.path().display().to_string();
                let params = Params::get(&folder, &format!("/env.php?{name}"));
                daemon.listener().ask(&params, b"").expect("an answer").body()
            })
        };
        let first = read(&daemon);
        let mark = daemon.log().mark();
        daemon.signal(Signal::USR2);
        daemon.expect_log(mark, "ready to handle connections");
        assert_eq!(read(&daemon), first, "{which:?}");
        daemon.stop();
        first
    });
    assert_eq!(ours, theirs);
    assert_eq!(ours[..3], ["an entry", "1", "of php.ini"]);
}
