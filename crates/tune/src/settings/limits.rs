//! How long a script may take, and how much: never less than it may now, since not all pages were asked for.

use super::resources::{ROOM, as_set, size, up};
use super::{Recommendation, ScriptLimit, Server, SettingInputs, line, megabytes};

/// How much longer than the slowest answer a script may run, and at least, in seconds.
const TIMES: f64 = 10.0;
const LEAST: f64 = 30.0;

/// Steps of the ladder of time limits, in seconds (doctor's D8).
const STEP: f64 = 5.0;

/// php-fpm looks every third of its limit whether somebody has run for too long (`fpm_conf_set_heartbeat`,
/// fpm_conf.c).
const LOOKS: f64 = 1.0 / 3.0;

/// What a script may need by the clock on the wall, as far as was seen.
fn needed(inputs: &SettingInputs) -> f64 {
    let takes = inputs.slowest.or(inputs.pace).unwrap_or(0.0);
    (takes * TIMES).max(LEAST).ceil()
}

/// The limit by the clock on the wall, in seconds.
fn seconds(inputs: &SettingInputs) -> f64 {
    match inputs.wall_limit {
        ScriptLimit::Is(now) => needed(inputs).max(now.ceil()),
        ScriptLimit::Unlimited | ScriptLimit::Unknown if computes_for_ever(inputs) => {
            needed(inputs).max(listens(inputs).unwrap_or(0.0).ceil())
        }
        ScriptLimit::Unlimited | ScriptLimit::Unknown => {
            needed(inputs).max(computing(inputs) + STEP)
        }
    }
}

/// Scripts may compute for as long as they like.
fn computes_for_ever(inputs: &SettingInputs) -> bool {
    inputs.processor_limit == Some(0)
}

/// How long the most patient web server waits as it is set, in seconds: nobody listens after that.
fn listens(inputs: &SettingInputs) -> Option<f64> {
    let (nginx, apache) = inputs.reads;
    nginx.into_iter().chain(apache).reduce(f64::max)
}

/// The limit of processor time, in seconds; 0: there is none.
fn computing(inputs: &SettingInputs) -> f64 {
    let wanted = (inputs.cpu.unwrap_or(0.0) * TIMES).max(LEAST);
    let limit = match inputs.processor_limit {
        Some(0) => return 0.0,
        Some(now) => wanted.max(now as f64),
        None => wanted,
    };
    limit.ceil()
}

/// How long a web server has to wait for an answer, in seconds: longer than any script runs.
fn patience(inputs: &SettingInputs) -> f64 {
    let looks = if inputs.is_php_fpm { LOOKS } else { 0.0 };
    (seconds(inputs) * (1.0 + looks)).ceil() + STEP
}

/// How long a request takes alone, and how that is known.
pub(super) fn slowest(inputs: &SettingInputs) -> String {
    match (inputs.slowest, inputs.pace) {
        (Some(slowest), _) => format!("a request alone takes {:.0} ms", slowest * 1e3),
        (None, Some(pace)) => format!(
            "a request alone takes {:.0} ms on average, by how often one user was served",
            pace * 1e3
        ),
        (None, None) => "how long a request takes alone is not known".to_owned(),
    }
}

/// How long a script may run.
pub(super) fn wall(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let now = match inputs.wall_limit {
        ScriptLimit::Is(now) => format!("it is set to {now:.0} s"),
        ScriptLimit::Unlimited => "there is no limit now".to_owned(),
        ScriptLimit::Unknown => "what it is set to is not known".to_owned(),
    };
    let why = match inputs.wall_limit {
        ScriptLimit::Unlimited => {
            "max_execution_time counts processor time only (W12), so that nothing ends what hangs; scripts that \
             are meant to run for longer, such as exports, need a pool of their own with more"
        }
        _ => "max_execution_time counts processor time only (W12)",
    };
    let formula = match inputs.wall_limit {
        ScriptLimit::Is(_) => {
            "ten times that, at least 30 s, and no less than it is: not all pages were asked for"
        }
        _ if !computes_for_ever(inputs) => {
            "ten times that, at least 30 s, and 5 s more than max_execution_time: not all pages were asked for"
        }
        _ if listens(inputs).is_some() => {
            "ten times that, at least 30 s, and no less than the web server waits for now, since there is no \
             max_execution_time: not all pages were asked for"
        }
        _ => {
            "ten times that, and at least 30 s, since there is no max_execution_time: not all pages were asked \
             for"
        }
    };
    let value = format!("{:.0}s", seconds(inputs));
    line(server, name, value, &["R70", "R71", "R72"])
        .measured(format!("{}; {now}", slowest(inputs)), formula)
        .guide("30 s, beside max_execution_time", why)
}

/// How long a web server waits for a script.
pub(super) fn web_server(
    server: Server,
    name: &'static str,
    unit: &str,
    rules: &[&'static str],
    inputs: &SettingInputs,
) -> Recommendation {
    let set = match server {
        Server::Apache => inputs.reads.1,
        _ => inputs.reads.0,
    };
    let value = patience(inputs).max(set.unwrap_or(0.0).ceil());
    let now = set.map_or(String::new(), |now| {
        format!("; it is {now:.0} s at most now")
    });
    let once = match inputs.wall_limit {
        ScriptLimit::Is(_) => "",
        ScriptLimit::Unlimited | ScriptLimit::Unknown => " once request_terminate_timeout is set",
    };
    let looks = match inputs.is_php_fpm {
        true => {
            "request_terminate_timeout, a third of it, since php-fpm looks no more often, and 5 s, and no \
                 less than it is: who waits gives up last"
        }
        false => "request_terminate_timeout + 5 s, and no less than it is: who waits gives up last",
    };
    line(server, name, format!("{value:.0}{unit}"), rules)
        .measured(
            format!("scripts end after {:.0} s{once}{now}", seconds(inputs)),
            looks,
        )
        .guide(
            "300 s",
            "by then the script has been ended, and clients have left (W26)",
        )
}

/// How long a reload waits for scripts.
pub(super) fn reload(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let now = inputs.control_timeout;
    let value = (needed(inputs) + STEP).max(now.ceil());
    line(server, name, format!("{value:.0}s"), &["R211"])
        .measured(
            format!("{}; it is set to {now:.0} s", slowest(inputs)),
            "ten times that, at least 30 s, and 5 s, and no less than it is",
        )
        .guide(
            "0",
            "with 0 each reload ends the requests that run; the unit's TimeoutStopSec has to be 2 s longer",
        )
}

/// How much memory a script may have.
pub(super) fn memory(server: Server, name: &'static str, inputs: &SettingInputs) -> Recommendation {
    let seen = inputs.peak.map(|peak| up(peak * ROOM));
    let had = format!("a worker had {} of its own at most", megabytes(inputs.peak));
    let line = |value: String| line(server, name, value, &["R21", "R23"]);
    let guide = "128M to 756M";
    let why = "it is a bound for a script that goes wrong, and no size of a worker";
    match inputs.memory_limit {
        ScriptLimit::Unlimited => {
            let twice = seen.map_or("n/a".to_owned(), size);
            line("-1".to_owned())
                .measured(
                    format!("{had}; it is set to -1, which is no limit"),
                    format!(
                        "as it is: not all pages were asked for. WARNING: one script that goes wrong takes all the \
                         memory there is; twice what was seen is {twice}"
                    ),
                )
                .guide(guide, why)
        }
        ScriptLimit::Is(now) => line(size(seen.unwrap_or(now).max(now)))
            .measured(
                format!("{had}; it is set to {}", as_set(now)),
                "twice that, and no less than it is: not all pages were asked for",
            )
            .guide(guide, why),
        ScriptLimit::Unknown => {
            let least = super::DEFAULT_MEMORY_LIMIT;
            line(size(seen.unwrap_or(least).max(least)))
                .measured(
                    format!("{had}; what it is set to is not known"),
                    "twice that, and no less than PHP's own 128M",
                )
                .guide(guide, why)
        }
    }
}

/// How much processor time a script may take, as a value that scripts may raise themselves.
pub(super) fn processor(
    server: Server,
    name: &'static str,
    inputs: &SettingInputs,
) -> Recommendation {
    let value = computing(inputs);
    let now = match inputs.processor_limit {
        Some(0) => "it is set to 0, which is no limit".to_owned(),
        Some(now) => format!("it is set to {now} s"),
        None => "what it is set to is not known".to_owned(),
    };
    let measured = inputs.cpu.map_or(
        "the processor time of a request is not known".to_owned(),
        |cpu| format!("a request alone takes {:.0} ms of a processor", cpu * 1e3),
    );
    line(server, name, format!("{value:.0}"), &["R72", "R74"])
        .measured(
            format!("{measured}; {now}"),
            "ten times that, at least 30 s, and no less than it is: not all pages were asked for",
        )
        .guide(
            "30, below request_terminate_timeout",
            "it ends what computes for ever, and never what waits: the two are other clocks, and none of \
             them has to be below the other (W12); php_admin_value would make set_time_limit() fail",
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: f64 = 1_048_576.0;

    fn with(wall_limit: ScriptLimit, slowest: f64) -> SettingInputs {
        SettingInputs {
            wall_limit,
            slowest: Some(slowest),
            ..super::super::tests::inputs()
        }
    }

    #[test]
    fn nobodys_time_by_the_clock_is_cut_and_web_servers_wait_longer_than_php_fpm_takes_to_look() {
        let wall = |inputs: &SettingInputs| super::wall(Server::PhpFpm, "limit", inputs);
        let reads = |inputs: &SettingInputs| {
            super::web_server(Server::Nginx, "read", "s", &["R70"], inputs)
        };
        let usual = with(ScriptLimit::Is(10.0), 0.05);
        assert_eq!(
            (wall(&usual).value, reads(&usual).value),
            ("30s".into(), "60s".into()),
            "nginx waits for 60 s already"
        );
        let long = with(ScriptLimit::Is(300.0), 0.05);
        assert_eq!(
            (wall(&long).value, reads(&long).value),
            ("300s".into(), "405s".into())
        );
        assert!(wall(&long).measured.contains("it is set to 300 s"));
        let slow = with(ScriptLimit::Is(30.0), 7.0);
        assert_eq!(wall(&slow).value, "70s");
        let none = with(ScriptLimit::Unlimited, 0.05);
        assert_eq!(wall(&none).value, "35s", "beyond max_execution_time");
        assert!(
            wall(&none).measured.contains("no limit now")
                && wall(&none).why.contains("a pool of their own")
        );
        let ours = SettingInputs {
            is_php_fpm: false,
            reads: (None, None),
            ..usual
        };
        assert_eq!(reads(&ours).value, "35s");
    }

    #[test]
    fn no_web_server_waits_less_than_it_does_and_what_it_has_now_is_said() {
        let inputs = SettingInputs {
            reads: (Some(300.0), Some(40.0)),
            ..with(ScriptLimit::Is(30.0), 0.05)
        };
        let nginx = web_server(Server::Nginx, "read", "s", &["R70"], &inputs);
        assert!(
            nginx.value == "300s" && nginx.measured.ends_with("it is 300 s at most now"),
            "{nginx:?}"
        );
        let apache = web_server(Server::Apache, "ProxyTimeout", "", &["R70"], &inputs);
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
        assert_eq!(
            (wall.value.as_str(), computes.value.as_str()),
            ("305s", "300")
        );
        assert!(
            wall.formula.contains("5 s more than max_execution_time"),
            "{wall:?}"
        );
        let nginx = web_server(Server::Nginx, "read", "s", &["R70"], &inputs);
        assert_eq!(
            (nginx.value.as_str(), nginx.measured.as_str()),
            (
                "600s",
                "scripts end after 305 s once request_terminate_timeout is set; it is 600 s at most now"
            )
        );
        let apache = web_server(Server::Apache, "ProxyTimeout", "", &["R70"], &inputs);
        assert_eq!(apache.value, "412", "305 s, a third of them, and 5 s");
        let endless = SettingInputs {
            processor_limit: Some(0),
            ..inputs
        };
        let wall = super::wall(Server::PhpFpm, "limit", &endless);
        assert_eq!(wall.value, "600s", "nobody listens after that");
        assert!(
            wall.formula.contains("there is no max_execution_time")
                && wall.formula.contains("no less than the web server waits"),
            "{wall:?}"
        );
        let unheard = SettingInputs {
            reads: (None, None),
            ..endless
        };
        let wall = super::wall(Server::PhpFpm, "limit", &unheard);
        assert_eq!(wall.value, "30s");
        assert!(!wall.formula.contains("5 s more"), "{wall:?}");
        let computing = SettingInputs {
            processor_limit: Some(30),
            cpu: Some(7.0),
            ..with(ScriptLimit::Unlimited, 7.0)
        };
        assert_eq!(
            super::wall(Server::PhpFpm, "limit", &computing).value,
            "75s"
        );
    }

    #[test]
    fn a_reload_waits_for_what_was_seen_and_not_for_whoever_may_run_for_long() {
        let reload = |control_timeout| {
            let inputs = SettingInputs {
                control_timeout,
                ..with(ScriptLimit::Is(300.0), 0.05)
            };
            reload(Server::PhpFpm, "process_control_timeout", &inputs).value
        };
        assert_eq!((reload(0.0), reload(60.0)), ("35s".into(), "60s".into()));
    }

    #[test]
    fn where_times_break_a_law_limits_follow_how_often_one_user_was_served() {
        let with = |slowest, pace| SettingInputs {
            slowest,
            pace,
            ..with(ScriptLimit::Is(10.0), 0.0)
        };
        let slow = with(None, Some(8.0));
        let wall = super::wall(Server::PhpFpm, "limit", &slow);
        assert_eq!(wall.value, "80s");
        assert!(
            wall.measured
                .contains("takes 8000 ms on average, by how often one user was served"),
            "{wall:?}"
        );
        assert_eq!(
            reload(Server::PhpFpm, "process_control_timeout", &slow).value,
            "85s"
        );
        let both = super::wall(Server::PhpFpm, "limit", &with(Some(9.0), Some(8.0)));
        assert_eq!(both.value, "90s");
        assert!(both.measured.contains("takes 9000 ms;"), "{both:?}");
        let neither = super::wall(Server::PhpFpm, "limit", &with(None, None));
        assert_eq!(neither.value, "30s");
        assert!(neither.measured.contains("is not known"), "{neither:?}");
    }

    #[test]
    fn nobodys_memory_is_cut_and_a_limit_that_there_is_not_is_warned_of() {
        let memory = |memory_limit, peak| {
            let inputs = SettingInputs {
                memory_limit,
                peak: Some(peak),
                ..super::super::tests::inputs()
            };
            memory(Server::PhpFpm, "memory_limit", &inputs)
        };
        let is = |megabytes: f64| ScriptLimit::Is(megabytes * MB);
        assert_eq!(memory(is(128.0), 20.0 * MB).value, "128M");
        assert_eq!(memory(is(512.0), 20.0 * MB).value, "512M");
        assert_eq!(memory(is(128.0), 100.0 * MB).value, "208M");
        let odd = memory(ScriptLimit::Is(250_000.0 * 1_024.0), 20.0 * MB);
        assert!(
            odd.value == "245M" && odd.measured.ends_with("it is set to 244.1M"),
            "{odd:?}"
        );
        assert_eq!(memory(ScriptLimit::Unknown, 20.0 * MB).value, "128M");
        let none = memory(ScriptLimit::Unlimited, 100.0 * MB);
        assert_eq!(none.value, "-1");
        assert!(none.measured.contains("it is set to -1"), "{none:?}");
        assert!(
            none.formula.contains("WARNING") && none.formula.contains("208M"),
            "{none:?}"
        );
    }

    #[test]
    fn no_script_gets_less_processor_time_than_it_may_take_now() {
        let limit = |processor_limit, cpu| {
            let inputs = SettingInputs {
                processor_limit,
                cpu,
                ..super::super::tests::inputs()
            };
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
