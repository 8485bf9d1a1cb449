//! The machine and its PHP, for the report.

use std::fs;

use maitred_os::proc;
use serde::Serialize;

use crate::course::IdleSample;
use crate::site::Site;
use crate::timeline::Stalls;

/// The processors' frequency governor (Documentation/admin-guide/pm/cpufreq.rst).
const GOVERNOR: &str = "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";

/// The governor with a constant frequency.
const STEADY: &str = "performance";

/// The machine. Memory is in bytes, shares are of 1; `None` for unknown values.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct Machine {
    pub cores: f64,
    /// A quota of the server's control group, and where it is set.
    pub quota: Option<String>,
    pub processors: u32,
    /// The processor's name.
    pub model: Option<String>,
    /// Whether it is a virtual machine.
    pub is_virtual: bool,
    /// The frequency governor.
    pub governor: Option<String>,
    pub memory: Option<f64>,
    pub memory_from: String,
    pub kernel: Option<String>,
    pub php: Option<String>,
    /// The state of OPcache.
    pub opcache: String,
    /// The share of the processors that other processes used without load.
    pub background: Option<f64>,
    /// What tasks waited for, and the memory in use, without load.
    pub stalls: Stalls,
    pub in_use: Option<f64>,
}

impl Machine {
    /// The machine of a site, with its state without load.
    pub fn of(site: &Site, rest: &IdleSample) -> Machine {
        let (memory, memory_from) = match &site.memory.budget {
            Ok((bytes, whose)) => (Some(*bytes), whose.clone()),
            Err(why) => (None, format!("unknown: {why}")),
        };
        let quota = site.service.group.cores.as_ref().ok();
        let quota = quota.and_then(|quota| quota.as_ref());
        let processor = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let governor = fs::read_to_string(GOVERNOR).ok();
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").ok();
        let trimmed = |text: String| text.trim().to_owned();
        let version = site.pool.ini.as_ref().ok().and_then(|ini| ini.version);
        Machine {
            cores: site.cores,
            quota: quota.map(|(cores, place)| format!("{cores} ({place})")),
            processors: site.processors,
            model: proc::value(&processor, "model name").map(str::to_owned),
            is_virtual: proc::value(&processor, "flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            governor: governor.map(trimmed),
            memory,
            memory_from,
            kernel: kernel.map(trimmed),
            php: version.map(|(major, minor)| format!("{major}.{minor}")),
            opcache: opcache(site),
            background: rest.outside,
            stalls: rest.stalls,
            in_use: rest.memory,
        }
    }

    /// What makes measurements on this machine less certain, as messages.
    pub fn doubts(&self) -> Vec<String> {
        let mut doubts = Vec::new();
        if let Some(governor) = self.governor.as_ref().filter(|name| *name != STEADY) {
            doubts.push(format!(
                "the processors' frequency changes (governor {governor}): the first seconds of a \
                 load differ from those after"
            ));
        }
        if self.stalls.memory.is_none() {
            doubts.push(
                "how long tasks wait for memory is not known (there is no /proc/pressure/memory)"
                    .to_owned(),
            );
        }
        if self.is_virtual {
            doubts.push(
                "this is a virtual machine: processor time that its host gives to others shows as \
                 slowness"
                    .to_owned(),
            );
        }
        doubts
    }
}

fn opcache(site: &Site) -> String {
    let live = site.pool.live.as_ref().ok();
    match live.and_then(|live| live.opcache.as_ref().ok()) {
        Some(Some(cache)) => format!(
            "OPcache {:.0} of {:.0} MB in use",
            cache.used / 1_048_576.0,
            cache.size() / 1_048_576.0
        ),
        Some(None) => "no OPcache".to_owned(),
        None => match site.pool.ini.as_ref().map(|ini| ini.get("opcache.enable", "1")) {
            Ok("1" | "on" | "On" | "yes" | "true") => "OPcache on by php.ini".to_owned(),
            Ok(_) => "OPcache off".to_owned(),
            Err(_) => "OPcache unknown".to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frequency_that_changes_and_a_host_that_others_use_are_said() {
        let machine = Machine {
            cores: 2.0,
            quota: None,
            processors: 2,
            model: None,
            is_virtual: false,
            governor: Some(STEADY.to_owned()),
            memory: None,
            memory_from: String::new(),
            kernel: None,
            php: None,
            opcache: String::new(),
            background: None,
            stalls: Stalls { memory: Some(0.0), ..Stalls::default() },
            in_use: None,
        };
        assert_eq!(machine.doubts(), [""; 0]);
        let other = Machine {
            is_virtual: true,
            stalls: Stalls::default(),
            governor: Some("powersave".to_owned()),
            ..machine
        };
        let doubts = other.doubts();
        let expected = ["governor powersave", "wait for memory is not known", "virtual"];
        assert_eq!(doubts.len(), expected.len());
        let mut both = doubts.iter().zip(expected);
        assert!(both.all(|(doubt, part)| doubt.contains(part)), "{doubts:?}");
    }
}
