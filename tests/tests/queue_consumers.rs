//! The consumers of Laravel's queue and of Symfony Messenger, as Debian packages them, while they
//! are killed and reloaded, and maitred is upgraded.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use maitred_tests::jobs::{self, command, maitred, pids};
use maitred_tests::mariadb::MariaDb;
use maitred_tests::processes::{Process, Signal};
use maitred_tests::redis::Redis;
use maitred_tests::server::{Server, Setup, document_root, public_folder};
use maitred_tests::{Target, wait};
use tempfile::TempDir;

/// Jobs, unless `MAITRED_QUEUE_JOBS` has another number.
const JOBS: usize = 1000;

const CONSUMERS: usize = 4;

/// Interval of reloads, and of the looks at the queue: at every one of these a consumer is killed.
const RELOAD_EVERY: Duration = Duration::from_secs(1);
const KILL_EVERY: Duration = Duration::from_millis(300);

/// The reloads after which maitred is upgraded.
const UPGRADE_EVERY: usize = 3;

/// Time within which all jobs are done once nothing is killed any more: the queues give the job of
/// a dead consumer to another one after five seconds.
const REST: Duration = Duration::from_secs(120);

fn count_of_jobs() -> usize {
    let asked = std::env::var("MAITRED_QUEUE_JOBS").ok();
    asked.and_then(|jobs| jobs.parse().ok()).unwrap_or(JOBS)
}

/// A folder with a copy of `from`, where the pool's user can read it.
fn copied(from: &Path) -> TempDir {
    let folder = public_folder();
    let copy = Command::new("cp").arg("-r").arg(from).arg(folder.path()).status();
    assert!(copy.is_ok_and(|status| status.success()), "{} can be copied", from.display());
    folder
}

fn fixtures() -> TempDir {
    copied(&Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/queues"))
}

/// Runs a script of the fixtures by hand.
fn run(script: &Path, arguments: &[&str], env: &[(&str, String)]) {
    let mut php = Command::new("php");
    php.arg(script).args(arguments).envs(env.iter().map(|(name, value)| (*name, value)));
    let output = php.stdin(Stdio::null()).output().expect("php is installed");
    assert!(output.status.success(), "{output:?}");
}

/// A server whose consumers run this script.
fn serve(root: &TempDir, script: &Path, arguments: &str, env: &[(&str, String)]) -> Server {
    let run = format!("command = [\"php\", {script:?}, {arguments}]");
    let env = env.iter().map(|(name, value)| format!("{name} = {value:?}"));
    let env = format!("env = {{ {} }}", env.collect::<Vec<_>>().join(", "));
    let lines = [&run, &env, "processes = 4", "restart_delay_max = \"1s\"", "cpu_weight = 100"];
    Setup::new(root.path()).workers(1).pool(&command("consumers", &lines)).start()
}

/// How often each job has begun, and how many are done.
struct Counts {
    begun: usize,
    done: usize,
    /// Jobs that were done at least once.
    jobs: usize,
}

/// Kills, reloads and upgrades until all jobs are done; and checks how often they were. `fill` adds
/// the jobs from one number to another to the queue, and has been called for the first ones.
fn torment(
    server: Server,
    mut jobs: usize,
    fill: impl Fn(usize, usize),
    mut counts: impl FnMut() -> Counts,
) {
    let (begun, mut reloaded) = (Instant::now(), Instant::now());
    let (mut kills, mut reloads, mut upgrades) = (0, 0, 0);
    loop {
        let done = counts().jobs;
        if done >= jobs && kills > 2 && reloads > 2 && upgrades > 0 {
            break;
        }
        if done >= jobs {
            // On a busy machine they may all be done within a reload or two.
            fill(jobs + 1, jobs + count_of_jobs());
            jobs += count_of_jobs();
        }
        let alive = pids(&server, "consumers");
        if let Some(victim) = alive.get(kills % CONSUMERS).and_then(|pid| Process::read(*pid)) {
            victim.signal(Signal::KILL);
            kills += 1;
        }
        if reloaded.elapsed() >= RELOAD_EVERY {
            reloaded = Instant::now();
            reloads += 1;
            if reloads % UPGRADE_EVERY == 0 {
                let mark = server.log().mark();
                server.signal(Signal::USR2);
                server.expect_log(mark, "upgraded to");
                upgrades += 1;
            } else {
                let output = maitred(&server, &["reload", "www"]);
                assert!(output.status.success(), "{output:?}\n{}", server.log_text());
            }
        }
        assert!(begun.elapsed() < 60 * REST, "{} of {jobs} are done", counts().jobs);
        std::thread::sleep(KILL_EVERY);
    }
    let seconds = begun.elapsed().as_secs();
    wait::until_within("every job to be done", REST, || (counts().jobs == jobs).then_some(()));
    let consumers = jobs::find(&server, "consumers").expect("it is listed");
    let failures = consumers["failures"].as_u64().and_then(|all| usize::try_from(all).ok());
    let Counts { begun, done, .. } = counts();
    eprintln!(
        "{jobs} jobs in {seconds} s: {begun} begun, {done} done; {kills} kills, {reloads} reloads, \
         {upgrades} of them upgrades; {} processes started, {failures:?} failed",
        consumers["starts"]
    );
    // A consumer that is killed has one job, which the queue gives to another.
    let failures = failures.unwrap_or(0);
    assert!(begun - jobs <= failures && done - jobs <= failures, "{}", server.log_text());
    server.stop();
}

#[test]
fn each_job_of_laravels_queue_is_done_while_consumers_are_killed_reloaded_and_upgraded() {
    let redis = Redis::start();
    let (folder, jobs) = (fixtures(), count_of_jobs());
    let script = folder.path().join("queues/artisan");
    let env = [("REDIS", redis.socket().display().to_string())];
    let fill = |first: usize, last: usize| {
        run(&script, &["fill", &first.to_string(), &last.to_string()], &env);
    };
    fill(1, jobs);
    let root = document_root(&[]);
    let server = serve(&root, &script, "\"queue:work\", \"redis\", \"--sleep=1\"", &env);
    let values = |hash: &str| {
        let text = redis.cli(&["HVALS", hash]);
        let values: Vec<usize> = text.lines().filter_map(|line| line.parse().ok()).collect();
        (values.iter().sum::<usize>(), values.len())
    };
    torment(server, jobs, fill, || {
        let ((begun, _), (done, jobs)) = (values("begun"), values("done"));
        Counts { begun, done, jobs }
    });
}

#[test]
fn each_job_of_symfony_messenger_is_done_while_consumers_are_killed_reloaded_and_upgraded() {
    let packages = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/tools/messenger");
    if !packages.is_dir() {
        return eprintln!("skipped: scripts/setup-test fetches Symfony Messenger");
    }
    let database = MariaDb::start();
    database.run(
        "CREATE DATABASE queues; CREATE USER queues@localhost; GRANT ALL ON queues.* TO \
         queues@localhost",
    );
    let (folder, jobs) = (fixtures(), count_of_jobs());
    let (script, packages) = (folder.path().join("queues/console"), copied(&packages));
    let env = [
        ("DATABASE", database.socket().display().to_string()),
        ("DATABASE_USER", "queues".to_owned()),
        ("MESSENGER", packages.path().join("messenger").display().to_string()),
    ];
    let fill = |first: usize, last: usize| {
        run(&script, &["fill", &first.to_string(), &last.to_string()], &env);
    };
    fill(1, jobs);
    let root = document_root(&[]);
    let server = serve(&root, &script, "\"messenger:consume\", \"async\", \"--sleep=0.1\"", &env);
    let count = |what: &str| -> usize {
        let text = database.query(&format!("SELECT {what}"));
        text.trim().parse().expect("a number")
    };
    torment(server, jobs, fill, || Counts {
        begun: count("COUNT(*) FROM queues.counts WHERE what = 'begun'"),
        done: count("COUNT(*) FROM queues.counts WHERE what = 'done'"),
        jobs: count("COUNT(DISTINCT name) FROM queues.counts WHERE what = 'done'"),
    });
}
