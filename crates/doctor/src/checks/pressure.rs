//! D6 and D7: is memory short now?

use crate::facts::Facts;
use crate::finding::Sheet;
use maitred_text::humanize::{bytes, duration, percent};

/// Pages that come back from swap for longer are more than a moment, in seconds.
const LASTING_SECONDS: f64 = 10.0;

/// D6.
pub(super) fn paging(facts: &Facts, sheet: &mut Sheet) {
    let machine = &facts.machine;
    let about = "the machine";
    match &machine.memory {
        Ok(memory) if memory.swap == 0.0 => {
            return sheet.ok(about, "there is no swap");
        }
        Ok(_) => {}
        Err(why) => return sheet.cannot_tell(about, "whether there is swap", why),
    }
    workers(facts, sheet);
    match &machine.swapped_in {
        Err(why) => sheet.cannot_tell(about, "whether pages come back from swap", why),
        Ok(swapped) if swapped.pages == 0 => {
            sheet.ok(about, format!("nothing came from swap in {}", duration(swapped.seconds)));
        }
        Ok(swapped) => {
            let seen =
                format!("{} pages came from swap in {}", swapped.pages, duration(swapped.seconds));
            let lasts = swapped.seconds >= LASTING_SECONDS;
            let keys = ["pressure.swap-in", "pressure.swap-in-lasts"];
            sheet.report(keys[usize::from(lasts)], about, seen);
        }
    }
    slow_swap(facts, sheet);
}

fn workers(facts: &Facts, sheet: &mut Sheet) {
    for (_, pool) in facts.pools() {
        let workers = match pool.workers() {
            Ok(workers) => workers,
            Err(why) => {
                sheet.cannot_tell(&pool.name, "whether its workers are swapped out", &why);
                continue;
            }
        };
        let swapped = workers.iter().filter_map(|worker| worker.swapped.as_ref().ok());
        let (before, after) = swapped.fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let seen = format!("{} of its workers' memory is swapped out", bytes(after));
        if after > before {
            sheet.report("pressure.workers-swapped", &pool.name, seen);
        } else {
            sheet.ok(&pool.name, seen);
        }
    }
}

fn slow_swap(facts: &Facts, sheet: &mut Sheet) {
    let machine = &facts.machine;
    let about = "the machine";
    let (swappiness, swaps, memory) = match (&machine.swappiness, &machine.swaps, &machine.memory) {
        (Ok(swappiness), Ok(swaps), Ok(memory)) => (*swappiness, swaps, memory),
        (Err(why), _, _) | (_, Err(why), _) | (_, _, Err(why)) => {
            return sheet.cannot_tell(about, "what is swapped to", why);
        }
    };
    let left = memory.available / memory.total;
    for (name, slow) in swaps {
        let seen = format!(
            "swappiness {swappiness}, {} of the memory is left, swap on {name}{}",
            percent(left),
            slow.as_ref().map(|why| format!(", {why}")).unwrap_or_default()
        );
        if slow.is_some() && swappiness > 10 && left < 0.1 {
            sheet.report("pressure.slow-swap", about, seen);
        } else {
            sheet.ok(about, seen);
        }
    }
}

/// D7.
pub(super) fn pressure(facts: &Facts, sheet: &mut Sheet) {
    let about = "the machine";
    let pressure = match &facts.machine.pressure {
        Ok(pressure) => pressure,
        Err(why) => {
            return sheet.cannot_tell(about, "memory pressure (PSI)", why);
        }
    };
    let (some, full) = (pressure.some, pressure.full);
    let seen = format!(
        "for lack of memory, some task stood still for {} of the last minute, all for {}",
        percent(some),
        percent(full)
    );
    if some >= 0.05 || full >= 0.01 {
        sheet.report("pressure.high", about, seen);
    } else if some >= 0.01 || full >= 0.001 {
        sheet.report("pressure.raised", about, seen);
    } else {
        sheet.ok(about, seen);
    }
    if !pressure.can_watch {
        let seen = "/proc/pressure/memory cannot be written by this user";
        sheet.report("pressure.no-trigger", about, seen);
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::facts::{Pressure, SwappedIn};
    use crate::finding::Severity::*;

    #[test]
    fn paging_is_found_and_a_machine_without_swap_is_well() {
        let mut facts = php_fpm();
        expect_ok("D6", &facts);
        facts.machine.swapped_in = Ok(SwappedIn { pages: 80, seconds: 0.5 });
        expect("D6", &facts, Warn, "80 pages came from swap");
        facts.machine.swapped_in = Ok(SwappedIn { pages: 80, seconds: 10.0 });
        expect("D6", &facts, Fail, "80 pages came from swap");
        facts.machine.swapped_in = unknown();
        expect("D6", &facts, CannotTell, "pages");
        reported(&mut facts).workers.as_mut().unwrap()[0].swapped = Ok((MB, 3.0 * MB));
        expect("D6", &facts, Fail, "3 MiB of its workers' memory");
        facts.machine.memory.as_mut().unwrap().available = 0.2 * GB;
        facts.machine.swaps =
            Ok(vec![("/dev/sda2".to_owned(), Some("a rotating disk".to_owned()))]);
        expect("D6", &facts, Warn, "/dev/sda2, a rotating disk");
        facts.machine.memory.as_mut().unwrap().swap = 0.0;
        expect_ok("D6", &facts);
        facts.machine.memory = unknown();
        expect("D6", &facts, CannotTell, "whether there is swap");
    }

    #[test]
    fn pressure_counts_from_one_in_a_hundred() {
        let mut facts = php_fpm();
        expect_ok("D7", &facts);
        let mut pressure = Pressure { some: 0.02, full: 0.0, can_watch: true };
        facts.machine.pressure = Ok(pressure);
        expect("D7", &facts, Warn, "2.0 %");
        pressure.full = 0.02;
        pressure.can_watch = false;
        facts.machine.pressure = Ok(pressure);
        expect("D7", &facts, Fail, "2.0 %");
        expect("D7", &facts, Info, "cannot be written");
        facts.machine.pressure = unknown();
        expect("D7", &facts, CannotTell, "PSI");
    }
}
