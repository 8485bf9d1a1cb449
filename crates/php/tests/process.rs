//! What a script may do to its process: change folders, run too long.

mod php;

use std::time::Duration;

use php::Php;

#[test]
fn every_script_starts_in_its_own_folder() {
    let php = Php::new()
        .file("a/t.php", "<?php echo basename(getcwd());")
        .file("b/t.php", "<?php echo basename(getcwd());");
    let run = php.serve(&["a/t.php", "a/t.php", "b/t.php", "a/t.php"]);
    assert_eq!(run.bodies(), ["a", "a", "b", "a"]);
}

#[test]
fn a_script_that_leaves_its_folder_does_not_take_the_next_one_along() {
    let php = Php::new()
        .file("a/go.php", "<?php chdir('/'); echo getcwd();")
        .file("a/t.php", "<?php echo basename(getcwd());");
    let run = php.serve(&["a/t.php", "a/go.php", "a/t.php"]);
    assert_eq!(run.bodies(), ["a", "/", "a"]);
}

#[test]
fn relative_includes_are_found_beside_the_script() {
    let php = Php::new().file("a/t.php", "<?php include './i.inc';").file("a/i.inc", "included");
    assert_eq!(php.serve(&["a/t.php"]).one().body(), "included");
}

/// Uses `$limit` seconds of CPU.
const SPIN: &str = "$cpu = function () { $r = getrusage();
        return $r['ru_utime.tv_sec'] + $r['ru_stime.tv_sec']
            + ($r['ru_utime.tv_usec'] + $r['ru_stime.tv_usec']) / 1e6; };
    $start = $cpu(); while ($cpu() - $start < $limit) for ($i = 0; $i < 10000; $i++);";

#[test]
fn a_script_that_runs_too_long_is_stopped() {
    for options in [&[][..], &["--fork"]] {
        let php = Php::new()
            .ini("max_execution_time=1\ndisplay_errors=0\nlog_errors=1")
            .with(options)
            .file("t.php", "<?php while (true);");
        let request = php.serve(&["t.php"]).one();
        assert!(
            request.log().contains("Maximum execution time of 1 second exceeded"),
            "{}",
            request.log()
        );
        assert_eq!(request.served, "Fatal status=500 gone=false");
    }
}

/// For the limit the kernel counts at its ticks, and charges the whole tick to the running process;
/// a script reads exact times. On a busy processor the two differ, so the scripts stop well before
/// their limit. A limit that is too short by one of our ticks of half a second is still detected:
/// the third script starts at 1.4 s, and would be ended at 2.0 s, after 0.6 s.
#[test]
fn a_script_is_never_stopped_early() {
    let script = format!("<?php $limit = 0.7; {SPIN} echo 'done';");
    let php = Php::new().ini("max_execution_time=1").file("t.php", &script);
    let bodies = php.serve(&["t.php", "t.php", "t.php"]).bodies();
    assert_eq!(bodies, ["done", "done", "done"]);
}

#[test]
fn a_script_can_ask_for_more_time_and_for_less() {
    let script = format!(
        "<?php set_time_limit(5); $limit = 1.7; {SPIN} echo 'more'; flush();
        set_time_limit(1); while (true);"
    );
    let php = Php::new()
        .ini("max_execution_time=1\ndisplay_errors=0\nlog_errors=1")
        .file("t.php", &script);
    let request = php.serve(&["t.php"]).one();
    assert_eq!(request.body(), "more");
    assert!(request.log().contains("Maximum execution time of 1 second exceeded"));
}

#[test]
fn a_script_without_a_limit_is_not_stopped_by_the_last_ones() {
    let script = format!("<?php set_time_limit(0); $limit = 1.7; {SPIN} echo 'done';");
    let php = Php::new().ini("max_execution_time=1").file("a.php", "a").file("t.php", &script);
    assert_eq!(php.serve(&["a.php", "t.php"]).bodies(), ["a", "done"]);
}

#[test]
fn a_script_that_cannot_be_interrupted_ends_by_the_hard_timeout() {
    let php = Php::new()
        .ini("max_execution_time=1\nhard_timeout=1")
        .file("t.php", "<?php hash_pbkdf2('sha512', 'a', 'b', 1000000000);");
    let output = php.serve(&["t.php"]).output;
    assert_eq!(output.status.code(), Some(124), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("1+1 seconds exceeded (terminated)"));
}

#[test]
fn the_limit_does_not_interrupt_what_waits() {
    let php = Php::new().ini("max_execution_time=1").file(
        "t.php",
        "<?php $p = stream_socket_pair(STREAM_PF_UNIX, STREAM_SOCK_STREAM, 0);
        stream_set_timeout($p[0], 0, 1200000);
        var_dump(fread($p[0], 1)); echo 'done';",
    );
    let started = std::time::Instant::now();
    let body = php.serve(&["t.php"]).one().body();
    assert!(body.ends_with("done"), "{body}");
    assert!(started.elapsed() >= Duration::from_secs(1));
}

/// PHP's FFI looks into the C library first; the program's own scope is what libphp calls.
const TIMERS: &str = "$c = FFI::cdef('struct tv { long s; long us; };
    struct it { struct tv every; struct tv first; };
    void *dlopen(char *, int);
    void *dlsym(void *, char *); int getitimer(int, struct it *);');
    $set = $c->new('struct it'); $old = $c->new('struct it'); $now = $c->new('struct it');
    $setitimer = $c->cast('int (*)(int, struct it *, struct it *)',
        $c->dlsym($c->dlopen(null, 1), 'setitimer'));";

fn with_timers(code: &str) -> Php {
    let php = Php::new().ini("extension=ffi\nffi.enable=1\nmax_execution_time=30");
    php.file("t.php", &format!("<?php {TIMERS} {code}"))
}

#[test]
fn timers_php_does_not_use_are_passed_on() {
    let php = with_timers(
        "$set->first->s = 1000; echo $setitimer(0, FFI::addr($set), FFI::addr($old));
        $c->getitimer(0, FFI::addr($now)); echo $now->first->s > 900 ? ' runs' : ' stands';",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "0 runs");
}

#[test]
fn a_repeating_profile_timer_is_passed_on_and_given_back() {
    let php = with_timers(
        "$set->every->s = 1000; $set->first->s = 1000;
        echo $setitimer(2, FFI::addr($set), FFI::addr($old));
        $c->getitimer(2, FFI::addr($now)); echo ' ', $now->every->s;
        set_time_limit(1); $c->getitimer(2, FFI::addr($now)); echo ' ', $now->every->us;",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "0 1000 500000");
}

#[test]
fn a_timer_that_is_replaced_tells_what_was_left() {
    let php = with_timers(
        "echo $setitimer(2, FFI::addr($set), FFI::addr($old)), ' ', $old->first->s;
        $setitimer(2, FFI::addr($set), FFI::addr($old)); echo ' ', $old->first->s;",
    );
    assert_eq!(php.serve(&["t.php"]).one().body(), "0 30 0");
}

#[test]
fn a_folder_that_was_exchanged_is_entered_within_a_second() {
    let php = Php::new()
        .file("one/t.php", "<?php echo basename(getcwd());")
        .file("two/t.php", "<?php echo basename(getcwd());")
        .file(
            "change.php",
            "<?php unlink('now'); symlink('two', 'now'); $t = time();
            while (time() === $t) usleep(1000);",
        );
    std::os::unix::fs::symlink("one", php.path("now")).expect("the link is made");
    let run = php.serve(&["now/t.php", "change.php", "now/t.php"]);
    assert_eq!(run.bodies(), ["one", "", "two"]);
}

#[test]
fn a_request_makes_no_system_calls_but_opcaches_two_and_none_with_its_lock_in_shared_memory() {
    for (options, most) in [(&["--fork"][..], 2.5), (&["--fork", "--share-lock"], 0.5)] {
        let each = system_calls_of_a_request(options);
        assert!(each < most, "{options:?}: {each} system calls per request");
    }
}

fn system_calls_of_a_request(options: &[&str]) -> f64 {
    let php = Php::new()
        .with(options)
        .opcache()
        .ini("opcache.file_update_protection=0\nmax_execution_time=30")
        .file("t.php", "<?php echo 'hello';");
    let few = system_calls(&php, "100");
    let many = system_calls(&php, "1100");
    (many - few) / 1000.0
}

fn system_calls(php: &Php, repeat: &str) -> f64 {
    let inner = php.command(&["t.php"]);
    let summary = php.path("calls");
    let mut command = std::process::Command::new("strace");
    command
        .args(["-c", "-f"])
        // The allocator of PHP 8.4 asks which process it is in.
        .args(["-e", "trace=!getpid"])
        .arg("-o")
        .arg(&summary)
        .arg(inner.get_program())
        .args(inner.get_args());
    let status =
        command.args(["--quiet", "--repeat", repeat]).output().expect("strace runs").status;
    assert!(status.success());
    let summary = std::fs::read_to_string(summary).expect("strace wrote its summary");
    let total = summary.lines().find(|line| line.ends_with(" total")).expect("a total");
    total.split_whitespace().nth(3).and_then(|calls| calls.parse().ok()).expect("a number")
}
