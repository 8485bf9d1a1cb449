//! Log lines of php-fpm, word for word: monitoring looks for them. The file of php-src's
//! `sapi/fpm/fpm` that has the line is named with each.
//!
//! The caller chooses the level: `target: "fpm"` makes `info!` a NOTICE.

use std::time::Duration;

use maitred_os::fork::HowEnded;

/// The server serves (`fpm_events.c`).
pub const READY: &str = "ready to handle connections";

/// SIGTERM, SIGINT (`fpm_events.c`).
pub const TERMINATING: &str = "Terminating ...";

/// SIGQUIT (`fpm_events.c`).
pub const FINISHING: &str = "Finishing ...";

/// SIGUSR2 (`fpm_events.c`).
pub const RELOADING: &str = "Reloading in progress ...";

/// The end (`fpm_process_ctl.c`).
pub const BYE: &str = "exiting, bye-bye!";

/// SIGUSR1 (`fpm_events.c`).
pub const ERROR_LOG_OPENED: &str = "error log file re-opened";

/// SIGUSR1 and no error log any more (`fpm_events.c`).
pub const ERROR_LOG_LOST: &str = "unable to re-opened error log file";

/// SIGUSR1, when a pool has an access log (`fpm_events.c`).
pub const ACCESS_LOG_OPENED: &str = "access log file re-opened";

/// SIGUSR1 and an access log that cannot be opened (`fpm_events.c`).
pub const ACCESS_LOG_LOST: &str = "unable to re-opened access log file";

/// `process.max` keeps a pool from growing (`fpm_children.c`).
pub const PROCESS_MAX: &str = "The maximum number of processes has been reached. Please review \
                               your configuration and consider raising 'process.max'";

/// Most arguments that [`reloading`] names, the program's name not counted.
const NAMED_ARGUMENTS: usize = 10;

/// The server was started, or started again in the same process (`fpm.c`).
pub fn running(pid: u32) -> String {
    format!("fpm is running, pid {pid}")
}

/// The server is about to be restarted with the same arguments (`fpm_process_ctl.c`).
pub fn reloading(program: &str, arguments: &[String]) -> String {
    let named = arguments.iter().take(NAMED_ARGUMENTS);
    let named: String = named.map(|named| format!(", \"{named}\"")).collect();
    format!("reloading: execvp(\"{program}\", {{\"{program}\"{named}}})")
}

/// A worker was started (`fpm_children.c`).
pub fn started(pool: &str, pid: i32) -> String {
    format!("[pool {pool}] child {pid} started")
}

/// A worker has ended, of this age (`fpm_children.c`).
pub fn exited(pool: &str, pid: i32, how: HowEnded, core: bool, age: Duration) -> String {
    let how = match how {
        HowEnded::Exited(code) => format!("with code {code}"),
        HowEnded::Signaled(signal) => {
            let core = if core { " - core dumped" } else { "" };
            format!("on signal {signal} ({}{core})", signal_name(signal))
        }
    };
    format!("[pool {pool}] child {pid} exited {how} after {}", from_start(age))
}

/// An idle worker was dismissed (`fpm_children.c`).
pub fn managed_away(pool: &str, pid: i32, age: Duration) -> String {
    format!(
        "[pool {pool}] child {pid} has been killed by the process management after {}",
        from_start(age)
    )
}

/// Many workers are started at once (`fpm_process_ctl.c`).
pub fn seems_busy(pool: &str, spawning: usize, idle: u64, total: usize) -> String {
    format!(
        "[pool {pool}] seems busy (you may need to increase pm.start_servers, or \
         pm.min/max_spare_servers), spawning {spawning} children, there are {idle} idle, and \
         {total} total children"
    )
}

/// The number of crashes within the interval was reached (`fpm_children.c`).
pub fn crashes(threshold: u32, interval: Duration) -> String {
    format!(
        "failed processes threshold ({threshold} in {} sec) is reached, initiating reload",
        interval.as_secs()
    )
}

/// A script is slow, its stack goes to the slow log (`fpm_request.c`). `request` is its method and
/// its target with the query.
pub fn slow(pool: &str, pid: i32, script: &str, request: &str, ran: Duration) -> String {
    format!("{} executing too slow ({}), logging", runs(pool, pid, script, request), seconds(ran))
}

/// A script has run for too long, and its worker is ended (`fpm_request.c`). `request` as for
/// [`slow`].
pub fn timed_out(pool: &str, pid: i32, script: &str, request: &str, ran: Duration) -> String {
    format!(
        "{} execution timed out ({}), terminating",
        runs(pool, pid, script, request),
        seconds(ran)
    )
}

fn runs(pool: &str, pid: i32, script: &str, request: &str) -> String {
    format!("[pool {pool}] child {pid}, script '{script}' (request: \"{request}\")")
}

fn from_start(age: Duration) -> String {
    format!("{}.{:06} seconds from start", age.as_secs(), age.subsec_micros())
}

fn seconds(time: Duration) -> String {
    format!("{}.{:06} sec", time.as_secs(), time.subsec_micros())
}

/// The name of a signal in `fpm_signals.c`; empty without one.
fn signal_name(signal: i32) -> &'static str {
    maitred_os::signals::Signal::try_from(signal).map_or("", |signal| signal.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    const AGE: Duration = Duration::from_micros(12_000_345);

    #[test]
    fn the_ends_of_workers_are_told_as_php_fpm_tells_them() {
        assert_eq!(
            exited("www", 12, HowEnded::Exited(255), false, AGE),
            "[pool www] child 12 exited with code 255 after 12.000345 seconds from start"
        );
        assert_eq!(
            exited("www", 12, HowEnded::Signaled(11), true, AGE),
            "[pool www] child 12 exited on signal 11 (SIGSEGV - core dumped) after 12.000345 \
             seconds from start"
        );
        assert_eq!(
            exited("www", 12, HowEnded::Signaled(60), false, AGE),
            "[pool www] child 12 exited on signal 60 () after 12.000345 seconds from start"
        );
        assert_eq!(
            managed_away("www", 12, AGE),
            "[pool www] child 12 has been killed by the process management after 12.000345 \
             seconds from start"
        );
    }

    #[test]
    fn a_reload_names_at_most_ten_arguments() {
        assert_eq!(
            reloading("/usr/sbin/php-fpm8.2", &[]),
            "reloading: execvp(\"/usr/sbin/php-fpm8.2\", {\"/usr/sbin/php-fpm8.2\"})"
        );
        let many: Vec<String> = (1..=12).map(|number| number.to_string()).collect();
        let said = reloading("fpm", &many);
        assert!(said.starts_with("reloading: execvp(\"fpm\", {\"fpm\", \"1\", \"2\""));
        assert!(said.ends_with(", \"10\"})"), "{said}");
    }

    #[test]
    fn scripts_are_told_with_their_request() {
        assert_eq!(
            slow("www", 12, "/srv/a.php", "GET /a.php?x=1", AGE),
            "[pool www] child 12, script '/srv/a.php' (request: \"GET /a.php?x=1\") executing too \
             slow (12.000345 sec), logging"
        );
        assert_eq!(
            timed_out("www", 12, "/srv/a.php", "GET /a.php", AGE),
            "[pool www] child 12, script '/srv/a.php' (request: \"GET /a.php\") execution timed \
             out (12.000345 sec), terminating"
        );
    }

    #[test]
    fn limits_are_told_as_php_fpm_tells_them() {
        assert_eq!(
            seems_busy("www", 32, 0, 40),
            "[pool www] seems busy (you may need to increase pm.start_servers, or \
             pm.min/max_spare_servers), spawning 32 children, there are 0 idle, and 40 total \
             children"
        );
        assert_eq!(
            crashes(3, Duration::from_secs(60)),
            "failed processes threshold (3 in 60 sec) is reached, initiating reload"
        );
        assert_eq!(running(7), "fpm is running, pid 7");
    }
}
