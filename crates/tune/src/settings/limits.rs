//! Limits on a script's time and memory. They are never below the current ones, since not all pages
//! were requested.

use super::resources::{RESERVE, as_set, round_up, size};
use super::{
    DEFAULT_MEMORY_LIMIT, Recommendation, ScriptLimit, Server, SettingInputs, megabytes, setting,
};

/// How much longer than the slowest response a script may run, as a factor, and at least, in
/// seconds.
const TIMES: f64 = 10.0;
const LEAST: f64 = 30.0;

/// Steps of the ladder of time limits, in seconds (doctor's D8).
const STEP: f64 = 5.0;

/// php-fpm checks for scripts over their limit every third of it (`fpm_conf_set_heartbeat`,
/// fpm_conf.c).
const CHECKS: f64 = 1.0 / 3.0;

/// The running time that a script may need by the measurements.
fn needed(inputs: &SettingInputs) -> f64 {
    let takes = inputs.slowest.or(inputs.pace).unwrap_or(0.0);
    (takes * TIMES).max(LEAST).ceil()
}

/// The limit of the running time, in seconds.
fn seconds(inputs: &SettingInputs) -> f64 {
    let needed = needed(inputs);
    match inputs.wall_limit {
        ScriptLimit::Is(now) => needed.max(now.ceil()),
        _ if computes_for_ever(inputs) => {
            needed.max(longest_read_timeout(inputs).unwrap_or(0.0).ceil())
        }
        _ => needed.max(computing(inputs) + STEP),
    }
}

/// Whether there is no limit of processor time.
fn computes_for_ever(inputs: &SettingInputs) -> bool {
    inputs.processor_limit == Some(0)
}

/// How long the most patient web server waits now, in seconds. No response is read after that.
fn longest_read_timeout(inputs: &SettingInputs) -> Option<f64> {
    let (nginx, apache) = inputs.reads;
    nginx.into_iter().chain(apache).reduce(f64::max)
}

/// The limit of processor time, in seconds; 0 is no limit.
fn computing(inputs: &SettingInputs) -> f64 {
    let wanted = (inputs.cpu.unwrap_or(0.0) * TIMES).max(LEAST);
    match inputs.processor_limit {
        Some(0) => 0.0,
        Some(now) => wanted.max(now as f64).ceil(),
        None => wanted.ceil(),
    }
}

/// The read timeout that a web server needs, in seconds: longer than any script runs.
fn read_timeout(inputs: &SettingInputs) -> f64 {
    let checks = if inputs.is_php_fpm { CHECKS } else { 0.0 };
    (seconds(inputs) * (1.0 + checks)).ceil() + STEP
}

/// How long a request takes alone, and how that is known.
fn slowest(inputs: &SettingInputs) -> String {
    let request = "a request alone takes";
    match (inputs.slowest, inputs.pace) {
        (Some(slowest), _) => format!("{request} {:.0} ms", slowest * 1e3),
        (None, Some(pace)) => {
            format!("{request} {:.0} ms on average, by how often one user was served", pace * 1e3)
        }
        (None, None) => "the time of a request alone is not known".to_owned(),
    }
}

/// The limit of a script's running time.
pub(super) fn wall(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let now = match inputs.wall_limit {
        ScriptLimit::Is(now) => format!("it is set to {now:.0} s"),
        ScriptLimit::Unlimited => "there is no limit now".to_owned(),
        ScriptLimit::Unknown => "its current value is not known".to_owned(),
    };
    let at_least = match inputs.wall_limit {
        ScriptLimit::Is(_) => ", and not below the current value",
        _ if !computes_for_ever(inputs) => ", and 5 s more than max_execution_time",
        _ if longest_read_timeout(inputs).is_some() => {
            ", and no less than the web server waits now, since there is no max_execution_time"
        }
        _ => ", since there is no max_execution_time",
    };
    let value = format!("{:.0}s", seconds(inputs));
    let measured = format!("{}; {now}", slowest(inputs));
    let mut found = setting(server, name, "wall_limit", value, measured);
    found.formula =
        format!("ten times that, at least 30 s{at_least}: not all pages were requested");
    if inputs.wall_limit == ScriptLimit::Unlimited {
        found.why += ", so that nothing ends a script that hangs; scripts that are meant to run \
                      longer, such as exports, need a pool of their own with a higher limit";
    }
    found
}

/// How long a web server waits for a script.
pub(super) fn web_server(
    server: Server,
    name: &'static str,
    unit: &str,
    inputs: &SettingInputs,
) -> Recommendation {
    let (set, key) = match server {
        Server::Apache => (inputs.reads.1, "proxy_timeout"),
        _ => (inputs.reads.0, "fastcgi_read_timeout"),
    };
    let value = read_timeout(inputs).max(set.unwrap_or(0.0).ceil());
    let now = set.map_or(String::new(), |now| format!("; it is {now:.0} s at most now"));
    let once = match inputs.wall_limit {
        ScriptLimit::Is(_) => "",
        _ => " once request_terminate_timeout is set",
    };
    let checks =
        if inputs.is_php_fpm { " + a third of it (php-fpm checks no more often)" } else { "" };
    let measured = format!("scripts end after {:.0} s{once}{now}", seconds(inputs));
    Recommendation {
        formula: format!(
            "request_terminate_timeout{checks} + 5 s, and not below the current value: the waiting \
             side gives up last"
        ),
        ..setting(server, name, key, format!("{value:.0}{unit}"), measured)
    }
}

/// How long a reload waits for scripts.
pub(super) fn reload(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let now = inputs.control_timeout;
    let value = format!("{:.0}s", (needed(inputs) + STEP).max(now.ceil()));
    let measured = format!("{}; it is set to {now:.0} s", slowest(inputs));
    setting(server, name, "reload", value, measured)
}

/// How much memory a script may have.
pub(super) fn memory(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let seen = inputs.peak.map(|peak| round_up(peak * RESERVE));
    let had = format!("a worker had {} of its own at most", megabytes(inputs.peak));
    let at_least = |least: f64| size(seen.unwrap_or(least).max(least));
    let (value, now, formula) = match inputs.memory_limit {
        ScriptLimit::Unlimited => {
            let twice = seen.map_or("n/a".to_owned(), size);
            let formula = format!(
                "unchanged: not all pages were requested. WARNING: one script that goes wrong \
                 takes all memory; twice the largest worker is {twice}"
            );
            ("-1".to_owned(), "it is set to -1, which is no limit".to_owned(), formula)
        }
        ScriptLimit::Is(now) => (
            at_least(now),
            format!("it is set to {}", as_set(now)),
            "twice that, and not below the current value: not all pages were requested".to_owned(),
        ),
        ScriptLimit::Unknown => (
            at_least(DEFAULT_MEMORY_LIMIT),
            "its current value is not known".to_owned(),
            "twice that, and not below PHP's own 128M".to_owned(),
        ),
    };
    Recommendation {
        formula,
        ..setting(server, name, "memory_limit", value, format!("{had}; {now}"))
    }
}

/// How much processor time a script may take. Scripts may raise this value themselves.
pub(super) fn processor(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let now = match inputs.processor_limit {
        Some(0) => "it is set to 0, which is no limit".to_owned(),
        Some(now) => format!("it is set to {now} s"),
        None => "its current value is not known".to_owned(),
    };
    let measured = match inputs.cpu {
        Some(cpu) => format!("a request alone takes {:.0} ms of a processor", cpu * 1e3),
        None => "the processor time of a request is not known".to_owned(),
    };
    let value = format!("{:.0}", computing(inputs));
    setting(server, name, "processor_limit", value, format!("{measured}; {now}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    fn with(wall_limit: ScriptLimit, slowest: f64) -> SettingInputs {
        SettingInputs { wall_limit, slowest: Some(slowest), ..super::super::tests::inputs() }
    }

    #[test]
    fn running_times_are_never_cut_and_web_servers_wait_longer_than_php_fpm() {
        let wall = |inputs: &SettingInputs| super::wall(Server::PhpFpm, "limit", inputs);
        let reads = |inputs: &SettingInputs| {
            super::web_server(Server::Nginx, "fastcgi_read_timeout", "s", inputs)
        };
        let usual = with(ScriptLimit::Is(10.0), 0.05);
        assert_eq!(
            (wall(&usual).value, reads(&usual).value),
            ("30s".into(), "60s".into()),
            "nginx waits for 60 s already"
        );
        let long = with(ScriptLimit::Is(300.0), 0.05);
        assert_eq!((wall(&long).value, reads(&long).value), ("300s".into(), "405s".into()));
        assert!(wall(&long).measured.contains("it is set to 300 s"));
        let slow = with(ScriptLimit::Is(30.0), 7.0);
        assert_eq!(wall(&slow).value, "70s");
        let none = with(ScriptLimit::Unlimited, 0.05);
        assert_eq!(wall(&none).value, "35s", "beyond max_execution_time");
        assert!(
            wall(&none).measured.contains("no limit now")
                && wall(&none).why.contains("a pool of their own")
        );
        let ours = SettingInputs { is_php_fpm: false, reads: (None, None), ..usual };
        assert_eq!(reads(&ours).value, "35s");
    }

    #[test]
    fn no_web_server_waits_less_than_it_does_and_what_it_has_now_is_said() {
        let inputs =
            SettingInputs { reads: (Some(300.0), Some(40.0)), ..with(ScriptLimit::Is(30.0), 0.05) };
        let nginx = web_server(Server::Nginx, "fastcgi_read_timeout", "s", &inputs);
        assert!(
            nginx.value == "300s" && nginx.measured.ends_with("it is 300 s at most now"),
            "{nginx:?}"
        );
        let apache = web_server(Server::Apache, "ProxyTimeout", "", &inputs);
        assert!(
            apache.value == "45" && apache.measured.ends_with("it is 40 s at most now"),
            "{apache:?}"
        );
    }

    #[test]
    fn who_has_set_no_limit_by_the_clock_keeps_what_scripts_may_compute_and_web_servers_wait() {
        let inputs = SettingInputs {
            processor_limit: Some(300),
            reads: (Some(600.0), Some(60.0)),
            ..with(ScriptLimit::Unlimited, 0.05)
        };
        let wall = super::wall(Server::PhpFpm, "limit", &inputs);
        let computes = super::processor(Server::PhpFpm, "limit", &inputs);
        assert_eq!((wall.value.as_str(), computes.value.as_str()), ("305s", "300"));
        assert!(wall.formula.contains("5 s more than max_execution_time"), "{wall:?}");
        let nginx = web_server(Server::Nginx, "fastcgi_read_timeout", "s", &inputs);
        assert_eq!(
            (nginx.value.as_str(), nginx.measured.as_str()),
            (
                "600s",
                "scripts end after 305 s once request_terminate_timeout is set; it is 600 s at \
                 most now"
            )
        );
        let apache = web_server(Server::Apache, "ProxyTimeout", "", &inputs);
        assert_eq!(apache.value, "412", "305 s, a third of them, and 5 s");
        let endless = SettingInputs { processor_limit: Some(0), ..inputs };
        let wall = super::wall(Server::PhpFpm, "limit", &endless);
        assert_eq!(wall.value, "600s", "no response is read after that");
        assert!(
            wall.formula.contains("there is no max_execution_time")
                && wall.formula.contains("no less than the web server waits"),
            "{wall:?}"
        );
        let unheard = SettingInputs { reads: (None, None), ..endless };
        let wall = super::wall(Server::PhpFpm, "limit", &unheard);
        assert_eq!(wall.value, "30s");
        assert!(!wall.formula.contains("5 s more"), "{wall:?}");
        let computing = SettingInputs {
            processor_limit: Some(30),
            cpu: Some(7.0),
            ..with(ScriptLimit::Unlimited, 7.0)
        };
        assert_eq!(super::wall(Server::PhpFpm, "limit", &computing).value, "75s");
    }

    #[test]
    fn a_reload_waits_for_measured_scripts_and_not_for_the_limit() {
        let reload = |control_timeout| {
            let inputs = SettingInputs { control_timeout, ..with(ScriptLimit::Is(300.0), 0.05) };
            reload(Server::PhpFpm, "process_control_timeout", &inputs).value
        };
        assert_eq!((reload(0.0), reload(60.0)), ("35s".into(), "60s".into()));
    }

    #[test]
    fn where_times_break_a_law_limits_follow_how_often_one_user_was_served() {
        let with =
            |slowest, pace| SettingInputs { slowest, pace, ..with(ScriptLimit::Is(10.0), 0.0) };
        let slow = with(None, Some(8.0));
        let wall = super::wall(Server::PhpFpm, "limit", &slow);
        assert_eq!(wall.value, "80s");
        assert!(
            wall.measured.contains("takes 8000 ms on average, by how often one user was served"),
            "{wall:?}"
        );
        assert_eq!(reload(Server::PhpFpm, "process_control_timeout", &slow).value, "85s");
        let both = super::wall(Server::PhpFpm, "limit", &with(Some(9.0), Some(8.0)));
        assert_eq!(both.value, "90s");
        assert!(both.measured.contains("takes 9000 ms;"), "{both:?}");
        let neither = super::wall(Server::PhpFpm, "limit", &with(None, None));
        assert_eq!(neither.value, "30s");
        assert!(neither.measured.contains("is not known"), "{neither:?}");
    }

    #[test]
    fn memory_is_never_cut_and_a_missing_limit_causes_a_warning() {
        let memory = |memory_limit, peak| {
            let inputs =
                SettingInputs { memory_limit, peak: Some(peak), ..super::super::tests::inputs() };
            memory(Server::PhpFpm, "memory_limit", &inputs)
        };
        let is = |megabytes: f64| ScriptLimit::Is(megabytes * MB);
        assert_eq!(memory(is(128.0), 20.0 * MB).value, "128M");
        assert_eq!(memory(is(512.0), 20.0 * MB).value, "512M");
        assert_eq!(memory(is(128.0), 100.0 * MB).value, "208M");
        let odd = memory(ScriptLimit::Is(250_000.0 * 1_024.0), 20.0 * MB);
        assert!(odd.value == "245M" && odd.measured.ends_with("it is set to 244.1M"), "{odd:?}");
        assert_eq!(memory(ScriptLimit::Unknown, 20.0 * MB).value, "128M");
        let none = memory(ScriptLimit::Unlimited, 100.0 * MB);
        assert_eq!(none.value, "-1");
        assert!(none.measured.contains("it is set to -1"), "{none:?}");
        assert!(none.formula.contains("WARNING") && none.formula.contains("208M"), "{none:?}");
    }

    #[test]
    fn no_script_gets_less_processor_time_than_it_may_take_now() {
        let limit = |processor_limit, cpu| {
            let inputs = SettingInputs { processor_limit, cpu, ..super::super::tests::inputs() };
            super::processor(Server::PhpFpm, "limit", &inputs).value
        };
        assert_eq!(limit(Some(30), Some(0.01)), "30");
        assert_eq!(limit(Some(300), Some(0.01)), "300");
        assert_eq!(limit(Some(5), Some(0.01)), "30");
        assert_eq!(limit(Some(30), Some(7.0)), "70");
        assert_eq!(limit(Some(0), Some(7.0)), "0", "there is no limit now");
        assert_eq!(limit(None, None), "30");
    }

    #[test]
    fn scripts_may_still_raise_how_much_processor_time_and_memory_they_take() {
        for server in [Server::PhpFpm, Server::Maitred] {
            let lines = super::super::lines(server, &super::super::tests::inputs());
            for name in ["max_execution_time", "memory_limit"] {
                let is_limit = |line: &&Recommendation| line.name.contains(name);
                let found: Vec<&Recommendation> = lines.iter().filter(is_limit).collect();
                assert!(
                    matches!(found[..], [line] if line.name.starts_with("php_value")),
                    "{found:?}"
                );
            }
        }
    }
}
