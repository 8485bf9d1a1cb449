//! D17: do running requests survive a reload and a stop?

use std::time::Duration;

use super::common::setting_time;
use crate::facts::LONGEST;
use crate::facts::{Facts, PhpServer, Service, Unit};
use crate::finding::Sheet;
use maitred_text::humanize::duration;

/// systemd's timeout if a unit sets none (`DefaultTimeoutStopSec`, systemd-system.conf(5)).
const DEFAULT_STOP: Duration = Duration::from_secs(90);

/// Time of a stop in addition to the drain.
const LEAST_GRACE: Duration = Duration::from_secs(2);

/// D17.
pub(super) fn stopping(facts: &Facts, sheet: &mut Sheet) {
    for service in &facts.services {
        if service.kind == PhpServer::ModPhp {
            continue;
        }
        let before = sheet.findings.len();
        let drain = service.control_timeout;
        if drain.is_zero() {
            let seen = "process_control_timeout = 0";
            sheet.report("stopping.no-drain", &service.name, seen);
        } else {
            slowest(service, drain, sheet);
        }
        match &service.unit {
            Ok(Some(unit)) => by_unit(service, unit, sheet),
            Ok(None) => {
                sheet.report("stopping.no-unit", &service.name, "no unit of systemd's starts it");
            }
            Err(why) => sheet.cannot_tell(&service.name, "how systemd stops it", why),
        }
        if sheet.findings.len() == before {
            sheet.ok(&service.name, format!("a reload and a stop wait {}", setting_time(drain)));
        }
    }
}

fn slowest(service: &Service, drain: Duration, sheet: &mut Sheet) {
    for pool in &service.pools {
        let slow = pool.stat(|live| &live.script_p99).ok();
        let Some(slow) = slow.filter(|slow| *slow > drain.as_secs_f64()) else {
            continue;
        };
        let seen = format!(
            "process_control_timeout = {}, and one script in a hundred takes {} or longer",
            setting_time(drain),
            duration(slow)
        );
        sheet
            .report("stopping.short-drain", &pool.name, seen)
            .fix(format!("process_control_timeout = {:.0}s", (slow * 1.5).ceil()));
    }
}

fn by_unit(service: &Service, unit: &Unit, sheet: &mut Sheet) {
    let about = unit.name.as_str();
    let get = |name: &str| unit.settings.get(name).map(String::as_str);
    // php-fpm takes SIGTERM for an immediate stop and SIGQUIT for a graceful one (fpm_signals.c).
    // maitred drains with either.
    let signal = get("KillSignal").unwrap_or("SIGTERM");
    let is_graceful = signal.trim_start_matches("SIG") == "QUIT" || get("ExecStop").is_some();
    if service.kind != PhpServer::Maitred && !is_graceful {
        let seen = format!("systemd stops php-fpm with {signal}");
        sheet.report("stopping.immediate-signal", about, seen);
    }
    let grace = match get("TimeoutStopSec").or(get("TimeoutSec")) {
        None => Some(DEFAULT_STOP),
        Some("infinity") => None,
        Some(text) => match time_span(text) {
            // systemd takes 0 for no limit here (`config_parse_sec_fix_0`,
            // `config_parse_service_timeout`).
            Some(span) => Some(span).filter(|span| !span.is_zero()),
            None => {
                let why = crate::facts::Unknown(format!("TimeoutStopSec={text} is not understood"));
                return sheet.cannot_tell(about, "how long systemd waits", &why);
            }
        },
    };
    let Some(grace) = grace else { return };
    let stop = service.control_timeout.saturating_add(service.stop_delay);
    if grace < stop.saturating_add(LEAST_GRACE) {
        let delay = match service.stop_delay {
            Duration::ZERO => String::new(),
            delay => format!("; stop_delay of {} comes first", setting_time(delay)),
        };
        let seen = format!(
            "systemd kills after {}, and requests may take {} to end{delay}",
            setting_time(grace),
            setting_time(service.control_timeout)
        );
        let enough = stop.saturating_add(5 * LEAST_GRACE).as_secs_f64();
        sheet
            .report("stopping.short-stop-timeout", about, seen)
            .fix(format!("TimeoutStopSec={enough:.0}"));
    }
}

/// A time span of systemd (systemd.time(7)), as far as units use it: `90`, `1min 30s`, `500ms`.
fn time_span(text: &str) -> Option<Duration> {
    text.split_whitespace().try_fold(Duration::ZERO, |sum, part| {
        let end = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
        let number: f64 = part[..end].parse().ok()?;
        let factor = match &part[end..] {
            "" | "s" | "sec" | "second" | "seconds" => 1.0,
            "ms" | "msec" => 1e-3,
            "m" | "min" | "minute" | "minutes" => 60.0,
            "h" | "hr" | "hour" | "hours" => 3600.0,
            _ => return None,
        };
        let further = Duration::try_from_secs_f64(number * factor).ok()?;
        Some((sum + further.min(LONGEST)).min(LONGEST))
    })
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use super::*;
    use crate::finding::Severity::*;

    fn unit(facts: &mut Facts) -> &mut Unit {
        facts.services[0].unit.as_mut().unwrap().as_mut().unwrap()
    }

    #[test]
    fn a_reload_and_a_stop_that_end_requests_are_found() {
        expect_ok("D17", &php_fpm());
        expect_ok("D17", &maitred());
        let mut facts = php_fpm();
        reported(&mut facts).script_p99 = Ok(45.0);
        expect("D17", &facts, Warn, "takes 45 s or longer");
        facts.services[0].control_timeout = Duration::ZERO;
        expect("D17", &facts, Fail, "process_control_timeout = 0");
        unit(&mut facts).settings.remove("KillSignal");
        expect("D17", &facts, Fail, "with SIGTERM");
        facts.services[0].control_timeout = Duration::from_secs(90);
        unit(&mut facts).settings.remove("TimeoutStopSec");
        expect("D17", &facts, Fail, "systemd kills after 90 s");
    }

    #[test]
    fn a_unit_that_has_no_time_for_the_delay_of_a_stop_is_found() {
        let mut facts = maitred();
        facts.services[0].stop_delay = Duration::from_secs(50);
        expect_ok("D17", &facts);
        facts.services[0].stop_delay = Duration::from_secs(60);
        expect("D17", &facts, Fail, "stop_delay of 60 s comes first");
    }

    #[test]
    fn a_unit_that_cannot_be_read_is_named() {
        let mut facts = php_fpm();
        facts.services[0].unit = unknown();
        expect("D17", &facts, CannotTell, "how systemd stops it");
        let mut facts = php_fpm();
        unit(&mut facts).settings.insert("TimeoutStopSec".to_owned(), "a while".to_owned());
        expect("D17", &facts, CannotTell, "a while");
        facts.services[0].unit = Ok(None);
        expect("D17", &facts, Info, "no unit");
    }

    #[test]
    fn a_unit_without_a_limit_of_time_waits_for_whatever_runs() {
        for (name, text) in [
            ("TimeoutStopSec", "0"),
            ("TimeoutStopSec", "0s"),
            ("TimeoutStopSec", "infinity"),
            ("TimeoutSec", "0"),
        ] {
            let mut facts = php_fpm();
            unit(&mut facts).settings.remove("TimeoutStopSec");
            let settings = &mut unit(&mut facts).settings;
            settings.insert(name.to_owned(), text.to_owned());
            expect_ok("D17", &facts);
        }
        let mut facts = php_fpm();
        let settings = &mut unit(&mut facts).settings;
        settings.insert("TimeoutStopSec".to_owned(), "1ms".to_owned());
        expect("D17", &facts, Fail, "systemd kills after");
    }

    #[test]
    fn systemds_times_are_understood() {
        assert_eq!(time_span("1min 30s"), Some(Duration::from_secs(90)));
        assert_eq!(time_span("500ms"), Some(Duration::from_millis(500)));
        assert_eq!(time_span("5 apples"), None);
        let much = "18446744073709549568s 18446744073709549568s";
        assert_eq!(time_span(much), Some(LONGEST));
    }
}
