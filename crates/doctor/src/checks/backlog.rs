//! D9 and D10: the queue before a pool, its length and its waiting time.

use std::time::Duration;

use super::common::{passes_to, setting_time};
use crate::facts::{Facts, Listen, Pool, Unknown};
use crate::finding::Sheet;
use maitred_text::humanize::duration;

/// `net.core.somaxconn` since Linux 5.4.
const MODERN_SOMAXCONN: u64 = 4096;

/// Longest wait for a worker that clients bear, in seconds.
const BEARABLE_WAIT: f64 = 2.0;

/// The same with maitred's queue, which drops requests of disconnected clients and responds 503 in
/// time.
const BEARABLE_OWN_WAIT: Duration = Duration::from_secs(10);

/// Few applications' scripts are quicker than this, in seconds.
const QUICK_SCRIPT: f64 = 0.01;

/// The backlog in force: the kernel caps it.
fn effective(listen: &Listen, somaxconn: u64) -> u64 {
    u64::try_from(listen.backlog).map_or(somaxconn, |asked| asked.min(somaxconn))
}

/// D9.
pub(super) fn cut(facts: &Facts, sheet: &mut Sheet) {
    let pools: Vec<(&Pool, &Listen)> =
        facts.pools().filter_map(|(_, pool)| Some((pool, pool.listen.as_ref()?))).collect();
    if pools.is_empty() {
        return;
    }
    let somaxconn = match &facts.machine.somaxconn {
        Ok(somaxconn) => *somaxconn,
        Err(why) => return sheet.cannot_tell("the machine", "net.core.somaxconn", why),
    };
    if somaxconn < MODERN_SOMAXCONN
        && facts.machine.kernel.as_ref().is_ok_and(|kernel| *kernel >= (5, 4))
    {
        let seen = format!("net.core.somaxconn = {somaxconn}, where the kernel's default is 4096");
        sheet.report("backlog.somaxconn-lowered", "the machine", seen);
    }
    for (pool, listen) in &pools {
        socket(facts, pool, listen, somaxconn, sheet);
    }
    let all_unix = pools.iter().all(|(_, listen)| listen.is_unix());
    if let (Some(file), true) = (&facts.machine.syn_backlog_set_in, all_unix) {
        sheet.report(
            "backlog.syn-backlog-without-tcp",
            file,
            "net.ipv4.tcp_max_syn_backlog is set, and all pools listen on Unix sockets",
        );
    }
}

fn socket(facts: &Facts, pool: &Pool, listen: &Listen, somaxconn: u64, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let effective = effective(listen, somaxconn);
    if u64::try_from(listen.backlog).is_ok_and(|asked| asked > somaxconn) {
        let seen = format!(
            "listen.backlog = {}, of which net.core.somaxconn leaves {effective}",
            listen.backlog
        );
        sheet.report("backlog.above-somaxconn", about, seen).fix(format!(
            "listen.backlog = {effective} is what applies; a larger somaxconn only makes waits \
                 longer"
        ));
        return;
    }
    let sockets = match &facts.machine.sockets {
        Ok(sockets) => sockets,
        Err(why) => return sheet.cannot_tell(about, "the backlog of the socket as it is", why),
    };
    match sockets.iter().find(|socket| socket.address == listen.address) {
        None => sheet.cannot_tell(
            about,
            "the backlog of the socket as it is",
            &Unknown(format!("no process listens on {}", listen.address)),
        ),
        Some(socket) if socket.limit != effective => {
            let seen = format!(
                "{} has a backlog of {}, and {effective} is configured",
                listen.address, socket.limit
            );
            sheet.report("backlog.not-in-effect", about, seen);
        }
        Some(socket) => {
            sheet.ok(about, format!("{} wait of {} that may", socket.waiting, socket.limit))
        }
    }
}

/// D10.
pub(super) fn too_deep(facts: &Facts, sheet: &mut Sheet) {
    for (_, pool) in facts.pools() {
        match (&pool.queue, &pool.listen) {
            (Some((length, wait)), _) => own(pool, *length, *wait, sheet),
            (None, Some(listen)) => kernels(facts, pool, listen, sheet),
            (None, None) => {}
        }
    }
}

/// maitred's queue has two bounds.
fn own(pool: &Pool, length: u64, wait: Duration, sheet: &mut Sheet) {
    let seen = format!(
        "at most {length} requests wait, for {} at most, and none whose client has gone",
        setting_time(wait)
    );
    if wait > BEARABLE_OWN_WAIT {
        sheet.report("backlog.long-queue-timeout", &pool.name, seen);
    } else {
        sheet.ok(&pool.name, seen);
    }
}

fn kernels(facts: &Facts, pool: &Pool, listen: &Listen, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let depth = match &facts.machine.somaxconn {
        Ok(somaxconn) => effective(listen, *somaxconn),
        Err(_) if listen.backlog >= 0 => listen.backlog.unsigned_abs(),
        Err(why) => return sheet.cannot_tell(about, "how deep its queue is", why),
    } as f64;
    let web = passes_to(facts, pool);
    let web = web.iter().map(|pass| pass.read_timeout.as_secs_f64() / 4.0);
    let bearable = web.fold(BEARABLE_WAIT, f64::min);
    let workers = f64::from(pool.max_children.max(1));
    let (script, is_measured) = match pool.stat(|live| &live.script_p50) {
        Ok(script) => (script, true),
        Err(_) => (QUICK_SCRIPT, false),
    };
    let wait = depth * script / workers;
    let seen = format!(
        "{depth:.0} requests may wait for {workers:.0} workers: {} with scripts of {}{}",
        duration(wait),
        duration(script),
        if is_measured { "" } else { " (not measured; few are quicker)" }
    );
    if wait > bearable {
        let enough = (bearable * workers / script).floor().max(workers);
        let finding = sheet.report("backlog.long-wait", about, seen);
        finding.condition =
            format!("backlog x time of a script / workers > {}", duration(bearable));
        finding.fix(format!("listen.backlog = {enough:.0}"));
    } else if is_measured {
        sheet.ok(about, seen);
    } else {
        let enough = bearable * workers / depth.max(1.0);
        let why = format!(
            "how long scripts take is not known; {} holds up to {} each",
            duration(bearable),
            duration(enough)
        );
        sheet.cannot_tell(
            about,
            &format!("{depth:.0} requests may wait for {workers:.0} workers"),
            &Unknown(why),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::finding::Severity::*;
    use std::time::Duration;

    #[test]
    fn a_backlog_that_is_cut_or_not_yet_in_use_is_found() {
        expect_ok("D9", &php_fpm());
        let mut facts = php_fpm();
        facts.machine.sockets.as_mut().unwrap()[0].limit = 511;
        expect("D9", &facts, Warn, "/run/php/www.sock has a backlog of 511, and 128");
        pool(&mut facts).listen.as_mut().unwrap().backlog = 8192;
        expect("D9", &facts, Warn, "somaxconn leaves 4096");
        facts.machine.somaxconn = Ok(128);
        expect("D9", &facts, Info, "somaxconn = 128");
        facts.machine.syn_backlog_set_in = Some("/etc/sysctl.d/99-php-fpm.conf".to_owned());
        expect("D9", &facts, Info, "tcp_max_syn_backlog is set");
        facts.machine.somaxconn = unknown();
        expect("D9", &facts, CannotTell, "somaxconn");
    }

    #[test]
    fn the_socket_may_be_missing_or_nobody_can_list_them() {
        let mut facts = php_fpm();
        facts.machine.sockets = Ok(Vec::new());
        expect("D9", &facts, CannotTell, "no process listens on");
        facts.machine.sockets = unknown();
        expect("D9", &facts, CannotTell, "not given");
    }

    #[test]
    fn a_queue_that_takes_long_to_drain_is_found() {
        expect_ok("D10", &php_fpm());
        let mut facts = php_fpm();
        // The article's example: 22 workers, 50 ms, 8192 waiting.
        facts.machine.somaxconn = Ok(8192);
        pool(&mut facts).listen.as_mut().unwrap().backlog = 8192;
        pool(&mut facts).max_children = 22;
        reported(&mut facts).script_p50 = Ok(0.05);
        expect("D10", &facts, Warn, "8192 requests may wait for 22 workers: 18.6 s");
        reported(&mut facts).script_p50 = unknown();
        expect("D10", &facts, Warn, "few are quicker");
        pool(&mut facts).listen.as_mut().unwrap().backlog = 511;
        expect("D10", &facts, CannotTell, "511 requests may wait");
    }

    #[test]
    fn a_queue_of_ours_is_bounded_by_time() {
        expect_ok("D10", &maitred());
        let mut facts = maitred();
        pool(&mut facts).queue = Some((1000, Duration::from_secs(60)));
        expect("D10", &facts, Warn, "for 60 s at most");
    }
}
