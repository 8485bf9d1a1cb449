//! Commands and schedules of a pool: what they run as, their restarts, and what a reload, an
//! upgrade, a stop and a crash do to them.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use maitred_tests::guard::Guarded;
use maitred_tests::processes::{self, Process, Signal};
use maitred_tests::redis::Redis;
use maitred_tests::server::{
    Server, Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, user_ids,
};
use maitred_tests::terminal::Terminal;
use maitred_tests::{Target, maitred_program, ports, wait};
use serde_json::Value;

/// A command that says what it is, and waits.
const WHO: &str = "command = [\"php\", \"-r\", \"echo 'I am ', posix_getuid(), ' in ', getcwd(), \
                   ' with ', ini_get('memory_limit'), ' and ', getenv('QUEUE'), ' of ', \
                   getenv('APP'), PHP_EOL; sleep(1000);\"]";

/// Jobs of the queue.
const JOBS: usize = 10_000;

/// A line of `[[pools.www.commands]]` and what follows it.
fn command(name: &str, lines: &[&str]) -> String {
    format!("\n[[pools.www.commands]]\nname = \"{name}\"\n{}", lines.join("\n"))
}

fn schedule(name: &str, lines: &[&str]) -> String {
    format!("\n[[pools.www.schedules]]\nname = \"{name}\"\n{}", lines.join("\n"))
}

fn maitred(server: &Server, words: &[&str]) -> Output {
    let mut command = Command::new(maitred_program());
    command.args(words).arg("--admin-socket").arg(server.admin_socket());
    command.output().expect("maitred runs")
}

fn reload(server: &Server) {
    let output = maitred(server, &["reload", "www"]);
    assert!(output.status.success(), "{output:?}\n{}", server.log_text());
}

fn upgrade(server: &Server) {
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
}

/// The job of this name, as `maitred commands --json` has it.
fn job(server: &Server, name: &str) -> Value {
    let output = maitred(server, &["commands", "--json"]);
    let jobs: Vec<Value> = serde_json::from_slice(&output.stdout).expect("it is JSON");
    let job = jobs.into_iter().find(|job| job["name"] == name);
    job.unwrap_or_else(|| panic!("there is no job {name}"))
}

fn pids(server: &Server, name: &str) -> Vec<i64> {
    let job = job(server, name);
    let processes = job["processes"].as_array().expect("a list").iter();
    processes.map(|process| process["pid"].as_i64().expect("a pid")).collect()
}

/// The processes of a command, once there are this many and each has become its program.
fn running(server: &Server, name: &str, count: usize) -> Vec<i64> {
    wait::until(&format!("{count} processes of {name}"), || {
        let pids = pids(server, name);
        let is_program = |pid: &i64| {
            let process = Process::read(i32::try_from(*pid).unwrap());
            process.is_some_and(|process| !process.title.contains("maitred"))
        };
        (pids.len() == count && pids.iter().all(is_program)).then_some(pids)
    })
}

#[test]
fn root_runs_the_commands_of_another_users_server_with_that_users_rights_only() {
    if !is_root() {
        return eprintln!("skipped: only root can start a server of another user");
    }
    let folder = public_folder();
    let (configuration, socket) =
        (folder.path().join("maitred.toml"), folder.path().join("admin.sock"));
    let who = "echo posix_getuid(), ' ', posix_getgid(), PHP_EOL, \
               preg_replace('/.*NoNewPrivs:\\s*(\\d).*/s', '$1', \
               file_get_contents('/proc/self/status'));";
    let text = format!(
        "listen = \"{}\"\nadmin_socket = {socket:?}\n[pools.www]\npm = \"ondemand\"\n\
         max_children = 1\n{}\n[[sites]]\nroot = {:?}\npool = \"www\"\n",
        ports::free_address(),
        command("who", &[&format!("command = [\"php\", \"-r\", {who:?}]"), "processes = 0"]),
        folder.path(),
    );
    std::fs::write(&configuration, text).expect("a file can be written");
    give_to_web_user(folder.path());
    let (uid, gid) = user_ids(WEB_USER);
    let mut serve = Command::new(maitred_program());
    serve.args(["serve", "--config"]).arg(&configuration).uid(uid).gid(gid);
    let server = Guarded::spawn(serve.stderr(Stdio::null()), Signal::TERM);
    let run = || {
        let mut run = Command::new(maitred_program());
        run.args(["run", "www/who", "--admin-socket"]).arg(&socket);
        run.output().expect("maitred runs")
    };
    let output =
        wait::until("the server to serve", || Some(run()).filter(|it| it.status.success()));
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{uid} {gid}\n1"));
    drop(server);
}

#[test]
fn a_command_runs_as_its_pool_would_and_its_failures_are_told_once() {
    let root = document_root(&[]);
    let folder = root.path().display();
    let dir = format!("dir = \"{folder}\"");
    let trap = r#"command = ["sh", "-c", "trap '' TERM; sleep 1000 & echo deaf; wait; wait"]"#;
    let server = Setup::new(root.path())
        .pool("php_admin_value = { memory_limit = \"77M\" }")
        .pool("env = { APP = \"shop\" }")
        .pool(&command("who", &[WHO, "processes = 2", "env = { QUEUE = \"mails\" }", &dir]))
        .pool(&command("bad", &[r#"command = ["sh", "-c", "echo no database; exit 3"]"#]))
        .pool(&command("deaf", &[trap, "stop_timeout = \"1s\""]))
        .pool(&command("off", &["command = [\"sh\", \"-c\", \"exit 7\"]", "processes = 0"]))
        .start();
    let owner = |pid: i64| {
        use std::os::unix::fs::MetadataExt;
        std::fs::metadata(format!("/proc/{pid}")).unwrap().uid()
    };
    let user = owner(i64::from(server.workers()[0].pid));
    let said = format!("command who: I am {user} in {folder} with 77M and mails of shop");
    server.expect_log(0, &said);
    server.expect_log(0, "command bad exited with code 3");
    server.expect_log(0, "the last lines of its output: no database");
    let first = running(&server, "who", 2);
    if is_root() {
        assert!(first.iter().all(|pid| owner(*pid) == user && user != 0));
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", first[0])).unwrap();
    let field = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().skip(1).collect::<Vec<_>>().join(" ")
    };
    assert_eq!((field("CapEff:"), field("NoNewPrivs:")), ("0".repeat(16), "1".to_owned()));
    // PHP closes those of its extension as it starts.
    let open = || std::fs::read_dir(format!("/proc/{}/fd", first[0])).unwrap().count();
    wait::until_true("only the standard streams to be open", || open() == 3);

    // A killed process has a successor, and a reload replaces all.
    processes::Process::read(i32::try_from(first[0]).unwrap()).unwrap().signal(Signal::KILL);
    let second = wait::until("a successor", || {
        let now = pids(&server, "who");
        (now.len() == 2 && !now.contains(&first[0])).then_some(now)
    });
    assert!(second.contains(&first[1]));
    let deaf = running(&server, "deaf", 1);
    server.expect_log(0, "command deaf: deaf");
    let sleeper = wait::until("the program of the shell", || {
        let family = processes::family(i32::try_from(deaf[0]).unwrap());
        family.into_iter().find(|process| process.title.starts_with("sleep"))
    });
    reload(&server);
    wait::until_true("other processes", || {
        let now = pids(&server, "who");
        now.len() == 2 && !now.iter().any(|pid| second.contains(pid))
    });
    server.expect_log(0, "does not end, and is killed");
    wait::until_true("the end of what the shell has started", || !sleeper.is_running());
    let told = server.log().lines();
    let told = told.iter().filter(|line| line.contains("command bad exited")).count();
    assert_eq!(told, 1, "{}", server.log_text());
    assert!(job(&server, "bad")["failures"].as_u64().unwrap() > 1);

    let run = maitred(&server, &["run", "www/off"]);
    assert_eq!(run.status.code(), Some(7), "{run:?}");
    let run = maitred(&server, &["run", "www/none"]);
    assert!(String::from_utf8_lossy(&run.stderr).contains("there are www/who, www/bad"), "{run:?}");
    let metrics = maitred(&server, &["status", "--json"]);
    let status: Value = serde_json::from_slice(&metrics.stdout).unwrap();
    assert!(status["pools"][0]["counters"]["command_starts"].as_u64().unwrap() >= 6, "{status}");
    let begun = Instant::now();
    server.stop();
    assert!(begun.elapsed() < Duration::from_secs(20), "the deaf one was killed");
}

#[test]
fn what_a_command_in_the_foreground_leaves_behind_reads_nothing_that_root_types() {
    if !is_root() {
        return eprintln!("skipped: only root runs commands of other users");
    }
    let root = document_root(&[]);
    let folder = root.path().join("seen");
    std::fs::create_dir(&folder).unwrap();
    give_to_web_user(&folder);
    let [input, output, left] = ["input", "output", "left"].map(|name| folder.join(name));
    let nosy = format!(
        "timeout 60 head -n 1 >{}; timeout 60 head -n 1 <&1 >{}; setsid sleep 1000 & \
         echo $! >{}; exit 5",
        input.display(),
        output.display(),
        left.display()
    );
    let line = format!("command = [\"sh\", \"-c\", {nosy:?}]");
    let server = Setup::new(root.path()).pool(&command("nosy", &[&line, "processes = 0"])).start();
    let terminal = Terminal::new();
    terminal.press(b"secret\n");
    let mut run = Command::new(maitred_program());
    run.args(["run", "www/nosy", "--admin-socket"]).arg(server.admin_socket());
    run.stdin(terminal.stdio()).stdout(terminal.stdio()).stderr(terminal.stdio());
    let ended = run.status().expect("maitred runs");
    assert_eq!(ended.code(), Some(5), "{}", terminal.text());
    let left = std::fs::read_to_string(left).unwrap();
    let left = Process::read(left.trim().parse().unwrap());
    assert!(left.is_none_or(|left| !left.is_running()), "what it has left still runs");
    let mut shell = Command::new("timeout");
    shell.args(["60", "head", "-n", "1"]).stdin(terminal.stdio());
    let typed = shell.output().expect("timeout and head are there");
    assert_eq!(String::from_utf8_lossy(&typed.stdout), "secret\n");
    for file in [input, output] {
        assert_eq!(std::fs::read_to_string(&file).unwrap_or_default(), "", "{}", file.display());
    }
}

#[test]
fn an_upgrade_leaves_commands_alone_and_a_crash_of_the_supervisor_ends_them() {
    let root = document_root(&[]);
    let talk = r#"command = ["sh", "-c", "while sleep 0.1; do echo I talk; done"]"#;
    let server = Setup::new(root.path())
        .pool(&command("talk", &[talk, "processes = 2"]))
        .pool(&command("brief", &["command = [\"sleep\", \"1000\"]", "max_runtime = \"2s\""]))
        .pool(&schedule("tick", &["command = [\"echo\", \"a tick\"]", "every = \"1s\""]))
        .start();
    let before = running(&server, "talk", 2);
    let first = running(&server, "brief", 1);
    upgrade(&server);
    assert_eq!(running(&server, "talk", 2), before);
    let mark = server.log().mark();
    server.expect_log(mark, "command talk: I talk");
    server.expect_log(mark, "schedule tick: a tick");
    // The successor is there before the old one ends.
    wait::until_true("the process to be replaced", || {
        let now = pids(&server, "brief");
        !now.contains(&first[0]) && !now.is_empty()
    });
    upgrade(&server);
    assert_eq!(running(&server, "talk", 2), before);
    let talker = Process::read(i32::try_from(before[0]).unwrap()).unwrap();
    server.signal(Signal::KILL);
    wait::until_true("the end of the commands", || !talker.is_running());
    server.expect_killed();
}

#[test]
fn a_schedule_that_overlaps_fails_or_takes_too_long_is_handled_as_configured() {
    let root = document_root(&[]);
    let slow = "command = [\"sleep\", \"3.5\"]";
    let every = "every = \"1s\"";
    let server = Setup::new(root.path())
        .pool(&schedule("skips", &[slow, every]))
        .pool(&schedule("kills", &[slow, every, "overlap = \"kill\""]))
        .pool(&schedule("times-out", &[slow, "every = \"2s\"", "timeout = \"500ms\""]))
        .pool(&schedule("fails", &["command = [\"sh\", \"-c\", \"echo why; exit 4\"]", every]))
        .pool(&schedule("missing", &["command = [\"no-such-program\"]", every]))
        .pool(&schedule("yearly", &["command = [\"true\"]", "cron = \"0 0 1 1 *\""]))
        .start();
    server.expect_log(0, "schedule skips is due while its last run goes on: it is left out");
    server.expect_log(0, "schedule fails exited with code 4");
    server.expect_log(0, "the last lines of its output: why");
    server.expect_log(0, "there is no `no-such-program` in /usr/local/bin:/usr/bin:/bin");
    server.expect_log(0, "schedule times-out was ended by signal 15");
    wait::until_true("killed runs", || job(&server, "kills")["failures"].as_u64() > Some(1));
    let skips = job(&server, "skips");
    assert!(skips["skipped"].as_u64() > Some(0), "{skips}");
    let yearly = job(&server, "yearly");
    assert!(yearly["next_run"].as_str().unwrap().contains("-01-01 00:00"), "{yearly}");
    let text = maitred(&server, &["commands", "www"]);
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("www/yearly") && text.contains("LAST EXIT"), "{text}");
    server.stop();
}

#[test]
fn a_reload_follows_sections_that_are_new_changed_or_gone_and_large_processes_are_replaced() {
    let root = document_root(&[]);
    let sleeps = "command = [\"sleep\", \"1000\"]";
    let grows = "command = [\"php\", \"-d\", \"memory_limit=-1\", \"-r\", \
                 \"$a = str_repeat('x', 200 << 20); sleep(1000);\"]";
    let setup = Setup::new(root.path());
    let server = setup
        .clone()
        .pool(&command("same", &[sleeps]))
        .pool(&command("changed", &[sleeps, "processes = 3"]))
        .pool(&command("gone", &[sleeps]))
        .pool(&command("grows", &[grows, "max_memory = \"150M\""]))
        .start();
    let same = running(&server, "same", 1);
    let changed = running(&server, "changed", 3);
    let gone = running(&server, "gone", 1);
    let large = running(&server, "grows", 1);
    server.configure(
        &setup
            .pool(&command("same", &[sleeps]))
            .pool(&command("changed", &[sleeps, "processes = 2", "env = { A = \"b\" }"]))
            .pool(&command("grows", &[grows, "max_memory = \"150M\""]))
            .pool(&command("new", &[sleeps])),
    );
    assert!(server.reload().contains("reloaded: "), "{}", server.log_text());
    running(&server, "new", 1);
    wait::until_true("the changed one to be replaced", || {
        let now = pids(&server, "changed");
        now.len() == 2 && !now.iter().any(|pid| changed.contains(pid))
    });
    assert_eq!(pids(&server, "same"), same);
    let gone = i32::try_from(gone[0]).unwrap();
    wait::until_true("the end of the one that is gone", || Process::read(gone).is_none());
    wait::until_true("a successor of the large one", || {
        !pids(&server, "grows").contains(&large[0])
    });
    server.stop();
}

#[test]
fn check_says_what_is_wrong_with_a_schedule_and_what_the_clock_does_to_it() {
    let root = document_root(&[]);
    let file = root.path().join("maitred.toml");
    let check = |schedule: &str| {
        let site = format!("[[sites]]\nroot = {:?}\npool = \"www\"\n", root.path());
        let text = format!("[pools.www]\n[[pools.www.schedules]]\n{schedule}\n{site}");
        std::fs::write(&file, text).unwrap();
        let output = Command::new(maitred_program()).arg("check").arg(&file).output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        String::from_utf8(text).unwrap()
    };
    let named = "name = \"nightly\"\ncommand = [\"true\"]";
    let said = check(&format!("{named}\nat = \"02:30\"\ntimezone = \"Europe/Berlin\""));
    assert!(said.contains("schedule www/nightly: on ") && said.contains("runs at 03:00"), "{said}");
    let said = check(named);
    assert!(said.contains("toml:2:1: this schedule has no time; add `every`, `at`"), "{said}");
    let said = check(&format!("{named}\nevery = \"5m\"\nat = \"02:30\""));
    assert!(said.contains("this schedule has both `every` and `at`; leave one out"), "{said}");
    let said = check("name = \"nightly\"\nevery = \"5m\"");
    assert!(said.contains("this schedule has no `command`"), "{said}");
    let twice = format!("{named}\nevery = \"5m\"");
    let said = check(&format!("{twice}\n[[pools.www.schedules]]\n{twice}"));
    assert!(said.contains("pool `www` has another command or schedule `nightly`"), "{said}");
}

/// How often the supervisor has woken up.
fn wake_ups(server: &Server) -> u64 {
    let pid = server.supervisor().pid;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap()
}

#[test]
fn sleeping_commands_and_schedules_that_are_not_due_wake_nobody() {
    const LOOKED_FOR: Duration = Duration::from_secs(5);
    let root = document_root(&[]);
    let without = Setup::new(root.path()).start();
    let sleeper = ["command = [\"sleep\", \"1000\"]", "processes = 20"];
    let mut setup = Setup::new(root.path()).pool(&command("sleepers", &sleeper));
    for number in 0..100 {
        let lines = ["command = [\"true\"]", "cron = \"0 0 29 2 *\""];
        setup = setup.pool(&schedule(&format!("s{number}"), &lines));
    }
    let with = setup.start();
    running(&with, "sleepers", 20);
    let count = || [&without, &with].map(wake_ups);
    let before = count();
    std::thread::sleep(LOOKED_FOR);
    let after = count();
    let [bare, more] = [0, 1].map(|at| after[at] - before[at]);
    // Both check every 2.5 s whether the front is alive, which is up to two wake-ups each.
    assert!(more <= bare + 2, "{more} wake-ups within {LOOKED_FOR:?}, and {bare} without");
    with.stop();
    without.stop();
}

/// A connection to Redis for this test.
struct Queue(UnixStream);

impl Queue {
    fn call(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.write_all(request.as_bytes()).unwrap();
        let mut line = Vec::new();
        let mut byte = [0];
        while !line.ends_with(b"\r\n") {
            self.0.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        let line = String::from_utf8(line).unwrap();
        let rest = line[1..].trim_end();
        if !line.starts_with(['$', '*']) {
            return rest.to_owned();
        }
        let mut items = rest.parse::<i64>().unwrap().max(0);
        if line.starts_with('$') {
            let mut text = vec![0; usize::try_from(items).unwrap() + 2];
            self.0.read_exact(&mut text).unwrap();
            return String::from_utf8(text).unwrap().trim_end().to_owned();
        }
        let mut all = Vec::new();
        while items > 0 {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n") {
                self.0.read_exact(&mut byte).unwrap();
                head.push(byte[0]);
            }
            let length: usize = String::from_utf8_lossy(&head[1..]).trim_end().parse().unwrap();
            let mut text = vec![0; length + 2];
            self.0.read_exact(&mut text).unwrap();
            all.push(String::from_utf8(text).unwrap().trim_end().to_owned());
            items -= 1;
        }
        all.join(" ")
    }

    fn done(&mut self) -> usize {
        self.call(&["HLEN", "runs"]).parse().unwrap()
    }
}

#[test]
fn every_job_of_a_queue_is_done_once_while_consumers_are_killed_reloaded_and_upgraded() {
    let redis = Redis::start();
    let mut queue = Queue(UnixStream::connect(redis.socket()).unwrap());
    for number in 0..JOBS {
        queue.call(&["LPUSH", "queue", &format!("job-{number}")]);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/consumer.php");
    let root = document_root(&[("consumer.php", &std::fs::read_to_string(script).unwrap())]);
    let run = format!(
        "command = [\"php\", \"{}/consumer.php\", {:?}]",
        root.path().display(),
        redis.socket()
    );
    let server = Setup::new(root.path())
        .pool(&command(
            "consumers",
            &[&run, "processes = 4", "restart_delay_max = \"1s\"", "cpu_weight = 100"],
        ))
        .start();
    let (mut kills, mut reloads, mut upgrades) = (0, 0, 0);
    let mut at = Instant::now();
    while queue.done() < JOBS && kills < 200 {
        let alive = pids(&server, "consumers");
        if let Some(victim) = alive.get(kills % 4).and_then(|pid| Process::read(*pid as i32)) {
            victim.signal(Signal::KILL);
            kills += 1;
        }
        if at.elapsed() >= Duration::from_secs(1) {
            reload(&server);
            reloads += 1;
            if reloads % 2 == 0 {
                upgrade(&server);
                upgrades += 1;
            }
            at = Instant::now();
        }
        std::thread::sleep(Duration::from_millis(150));
    }
    wait::until_within("every job to be done", Duration::from_secs(120), || {
        (queue.done() == JOBS).then_some(())
    });
    let runs = queue.call(&["HVALS", "runs"]);
    let twice = runs.split(' ').filter(|runs| *runs != "1").count();
    eprintln!("{JOBS} jobs, {kills} kills, {reloads} reloads, {upgrades} upgrades");
    assert_eq!(twice, 0, "jobs were done twice");
    assert!(kills > 5 && reloads > 1 && upgrades > 0, "{kills} {reloads} {upgrades}");
    server.stop();
}
