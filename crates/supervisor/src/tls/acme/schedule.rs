//! The schedule of certificate orders. Pure: names, times and outcomes in; the next name and the
//! next time out.
//!
//! ```text
//!   missing ──────────▶ due ──▶ asked ──▶ issued ──▶ (two thirds of its life) ──▶ due
//!                        ▲        │ failed
//!                        ╰─ wait ─╯  doubling; the certificate before stays
//! ```
//!
//! Validity is by the wall clock, waits are by the monotonic one: a clock that is set back must not
//! delay a retry.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use maitred_control::acme::Cause;
use maitred_tls::Validity;

use crate::limits::Moment;

/// First and longest wait after a failure that the authority has not counted. All hosts wait: the
/// cause is the same for all.
const UNREACHABLE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));

/// First and longest wait after a refusal. Let's Encrypt allows five of a host an hour: these are
/// four in the first.
const REFUSED: (Duration, Duration) = (Duration::from_secs(300), Duration::from_secs(12 * 3600));

/// Least and longest wait after a rate limit of the authority.
const LIMITED: (Duration, Duration) = (Duration::from_secs(3600), Duration::from_secs(24 * 3600));

/// How long all other hosts wait then.
const LIMITED_ALL: Duration = Duration::from_secs(60);

/// First and longest wait after an order whose certificate is due for renewal at once: the clock is
/// wrong, or the authority gives it little life. Further orders would use up the authority's
/// limits.
const DUE_AT_ISSUE: (Duration, Duration) =
    (Duration::from_secs(3600), Duration::from_secs(24 * 3600));

/// Longest wait that an authority can request.
pub const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

/// How soon after a try a reload may cause the next one.
const HURRY: Duration = Duration::from_secs(10);

/// Longest sleep: the wall clock may be set meanwhile.
const LOOK_AT_CLOCK: Duration = Duration::from_secs(3600);

/// Part of a certificate's life over which renewals are spread.
const SPREAD: u32 = 20;

/// The present time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub struct Clocks {
    /// By the monotonic one.
    pub moment: Moment,
    /// By the wall clock.
    pub wall: SystemTime,
}

/// A host with a certificate by ACME.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcmeHost {
    /// The host.
    pub name: String,
    /// Validity of its certificate, if it has one.
    pub valid: Option<Validity>,
}

/// The state of a host.
#[derive(Debug, Clone, Default)]
pub struct HostState {
    /// Validity of its certificate, if it has one.
    pub valid: Option<Validity>,
    /// Failures in a row.
    pub failures: u32,
    /// Why it failed last.
    pub error: Option<String>,
    /// When it was tried last.
    tried: Option<Moment>,
    /// Not tried before this.
    not_before: Moment,
    /// A reload does not shorten a wait that an authority has requested.
    limited: bool,
    /// A reload has shortened its wait, and it has not been tried since.
    hurried: bool,
    /// Certificates in a row that were due for renewal when they were issued.
    due_at_issue: u32,
}

/// The schedule.
#[derive(Debug, Default)]
pub struct Schedule {
    entries: BTreeMap<String, HostState>,
    /// The host of the running order.
    asked: Option<String>,
    /// No order before this.
    pause: Moment,
    /// The authority was not reached.
    unreached: Option<Unreached>,
}

/// The authority was not reached, for whatever host.
#[derive(Debug, Clone)]
struct Unreached {
    /// How often in a row.
    times: u32,
    /// When it was tried last.
    tried: Moment,
    /// Why it failed last.
    why: String,
}

/// What follows from a failure.
#[derive(Debug, PartialEq, Eq)]
pub struct Retry {
    /// How long until the next try.
    pub wait: Duration,
    /// It is another failure than the one before.
    pub is_news: bool,
}

impl Schedule {
    /// Sets the hosts. The state of known hosts stays.
    pub fn set(&mut self, wanted: &[AcmeHost]) {
        let mut before = std::mem::take(&mut self.entries);
        for AcmeHost { name, valid } in wanted {
            let mut entry = before.remove(name).unwrap_or_default();
            entry.valid = *valid;
            self.entries.insert(name.clone(), entry);
        }
    }

    /// A reload may have corrected the cause: waiting hosts are tried soon.
    pub fn hurry(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| !entry.limited) {
            let soon = entry.tried.map_or(Moment::ZERO, |tried| tried + HURRY);
            entry.not_before = entry.not_before.min(soon);
            entry.hurried = entry.error.is_some();
        }
        if let Some(unreached) = &self.unreached {
            self.pause = self.pause.min(unreached.tried + HURRY);
        }
    }

    /// The host to order a certificate for now. Its order counts as started.
    pub fn next(&mut self, now: Clocks) -> Option<String> {
        if self.asked.is_some() || now.moment < self.pause {
            return None;
        }
        let due = self.entries.iter().filter(|(name, entry)| {
            entry.not_before <= now.moment && renewal(name, entry).is_none_or(|at| at <= now.wall)
        });
        // Hosts without a certificate first, then the one that expires first; but never twice in a
        // row before others that are due.
        let first = due.min_by_key(|(_, entry)| {
            let until = entry.valid.map(|valid| valid.until);
            (entry.failures, until)
        });
        let name = first?.0.clone();
        self.asked = Some(name.clone());
        Some(name)
    }

    /// When [`Schedule::next`] returns a host, without another event.
    pub fn deadline(&self, now: Clocks) -> Option<Moment> {
        if self.asked.is_some() {
            return None;
        }
        let due = self.entries.iter().map(|(name, entry)| {
            let renewal = renewal(name, entry).unwrap_or(SystemTime::UNIX_EPOCH);
            let left = renewal.duration_since(now.wall).unwrap_or_default();
            (now.moment + left.min(LOOK_AT_CLOCK)).max(entry.not_before)
        });
        due.min().map(|due| due.max(self.pause))
    }

    /// The host of the running order.
    pub fn asked(&self) -> Option<&str> {
        self.asked.as_deref()
    }

    /// Whether the running order is due to a reload: failures before it, here or on another node,
    /// do not delay it.
    pub fn is_hurried(&self) -> bool {
        let entry = self.asked.as_ref().and_then(|name| self.entries.get(name));
        entry.is_some_and(|entry| entry.hurried)
    }

    /// The running order has succeeded. How long the next one waits, if the certificate is due for
    /// renewal already.
    pub fn issued(&mut self, valid: Validity, now: Clocks) -> Option<Duration> {
        self.unreached = None;
        let name = self.asked.take()?;
        let entry = self.entries.get_mut(&name)?;
        let before = entry.due_at_issue;
        *entry = HostState { valid: Some(valid), ..HostState::default() };
        if renewal_of(&name, &valid) > now.wall {
            return None;
        }
        let (first, longest) = DUE_AT_ISSUE;
        let wait = (first * 2u32.saturating_pow(before.min(16))).min(longest);
        entry.due_at_issue = before.saturating_add(1);
        (entry.tried, entry.not_before) = (Some(now.moment), now.moment + wait);
        entry.limited = true;
        Some(wait)
    }

    /// The running order has failed. `random` spreads the retries of several servers.
    pub fn failed(&mut self, failure: &OrderFailure, now: Clocks, random: u8) -> Option<Retry> {
        let name = self.asked.take()?;
        let before = match failure.cause {
            Cause::Unreachable => self.unreached.take(),
            Cause::Refused | Cause::Limited => {
                self.unreached = None;
                None
            }
        };
        let in_a_row = before.as_ref().map_or(0, |before| before.times);
        let entry = self.entries.get_mut(&name)?;
        let (first, longest) = match failure.cause {
            Cause::Unreachable => UNREACHABLE,
            Cause::Refused => REFUSED,
            Cause::Limited => LIMITED,
        };
        let asked = failure.retry_after.unwrap_or_default().min(LONGEST);
        let after = |failures: u32| {
            let wait = (first * 2u32.saturating_pow(failures.min(16))).min(longest);
            // Up to a quarter longer.
            (wait + wait / 1024 * u32::from(random)).max(asked)
        };
        let wait = after(entry.failures.max(in_a_row));
        let said = before.map_or(entry.error.take(), |before| Some(before.why));
        let is_news = said.as_deref().map(gist) != Some(gist(&failure.why));
        entry.failures = entry.failures.saturating_add(1);
        entry.error = Some(failure.why.clone());
        entry.tried = Some(now.moment);
        entry.not_before = now.moment + wait;
        entry.limited = failure.cause == Cause::Limited;
        entry.hurried = false;
        match failure.cause {
            Cause::Unreachable => {
                self.pause = now.moment + after(in_a_row);
                self.unreached = Some(Unreached {
                    times: in_a_row.saturating_add(1),
                    tried: now.moment,
                    why: failure.why.clone(),
                });
            }
            Cause::Refused => {}
            Cause::Limited => self.pause = now.moment + LIMITED_ALL,
        }
        Some(Retry { wait, is_news })
    }

    /// Nothing can be ordered now: no host is tried before `wait` has passed. That is no failure.
    pub fn postponed(&mut self, wait: Duration, why: Option<String>, now: Moment) {
        self.pause = self.pause.max(now + wait);
        let name = self.asked.take();
        let entry = name.and_then(|name| self.entries.get_mut(&name));
        if let (Some(entry), Some(why)) = (entry, why) {
            entry.error = Some(why);
        }
    }

    /// The host of the running order waits, since another node has tried.
    pub fn put_off(&mut self, PutOff { wait, why, is_limited }: PutOff, now: Moment) {
        let name = self.asked.take();
        if let Some(entry) = name.and_then(|name| self.entries.get_mut(&name)) {
            (entry.not_before, entry.error) = (now + wait, Some(why));
            (entry.limited, entry.hurried) = (is_limited, false);
        }
    }

    /// Another node has the certificate of the running order, which is not made.
    pub fn adopted(&mut self, valid: Validity) {
        self.unreached = None;
        if let Some(name) = self.asked.take() {
            self.renewed(&name, valid);
        }
    }

    /// A host has another certificate, without an order.
    pub fn renewed(&mut self, name: &str, valid: Validity) {
        if let Some(entry) = self.entries.get_mut(name) {
            *entry = HostState { valid: Some(valid), ..HostState::default() };
        }
    }

    /// Validity of a host's certificate.
    pub fn valid_of(&self, name: &str) -> Option<Validity> {
        self.entries.get(name)?.valid
    }

    /// The running order was given up without a result.
    pub fn given_up(&mut self) {
        self.asked = None;
    }

    /// All hosts, sorted, each with the time of its next order; none: it is running.
    pub fn hosts(
        &self,
        now: Clocks,
    ) -> impl Iterator<Item = (&str, &HostState, Option<SystemTime>)> {
        self.entries.iter().map(move |(name, entry)| {
            let wait = entry.not_before.max(self.pause);
            let allowed = now.wall + wait.saturating_sub(now.moment);
            let renewal = renewal(name, entry).unwrap_or(SystemTime::UNIX_EPOCH);
            let is_asked = self.asked.as_deref() == Some(name);
            let next = (!is_asked).then(|| allowed.max(renewal));
            (name.as_str(), entry, next)
        })
    }
}

/// The order of another node has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutOff {
    /// How long no node tries.
    pub wait: Duration,
    /// One sentence.
    pub why: String,
    /// The authority requires the wait.
    pub is_limited: bool,
}

/// Why an order failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OrderFailure {
    /// The kind of failure.
    pub cause: Cause,
    /// One sentence.
    pub why: String,
    /// How long the authority asks to wait.
    pub retry_after: Option<Duration>,
}

impl OrderFailure {
    /// The authority was not reached.
    pub fn unreachable(why: String) -> OrderFailure {
        OrderFailure { cause: Cause::Unreachable, why, retry_after: None }
    }

    /// The authority refused, or its response is of no use.
    pub fn refused(why: String) -> OrderFailure {
        OrderFailure { cause: Cause::Refused, ..OrderFailure::unreachable(why) }
    }
}

/// What failures of a kind have in common: the first words, and the kind at the end. In between
/// authorities put tokens and times.
fn gist(why: &str) -> (&str, &str) {
    let first = why.split(": ").next().unwrap_or_default();
    let kind = why.rsplit_once(" (").map_or("", |(_, kind)| kind);
    (first, kind)
}

fn renewal(name: &str, entry: &HostState) -> Option<SystemTime> {
    Some(renewal_of(name, &entry.valid?))
}

/// When a certificate is renewed: after two thirds of its life, or a little earlier, so that
/// certificates that were issued together are not renewed together.
pub fn renewal_of(name: &str, valid: &Validity) -> SystemTime {
    let life = valid.until.duration_since(valid.from).unwrap_or_default();
    // FNV-1a: the same at every start.
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let earlier = life / SPREAD / 256 * (hash % 256);
    valid.from + (life / 3 * 2).saturating_sub(earlier)
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
