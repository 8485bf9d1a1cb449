//! One order for all nodes: what is shared is looked at before a certificate is ordered, the lock
//! is held meanwhile, and the proofs of an order are served by all nodes.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_control::acme::{Cause, Proof, Secret};
use maitred_control::shared_certificates::{
    FromShared, SPREAD_TIME, Sealed, SharedRecord, ToShared,
};
use maitred_os::fork::HowEnded;
use maitred_tls::{Pair, PemFile, Validity, examine};
use serde::{Deserialize, Serialize};
use tracing::{debug, error, warn};

use super::schedule::{LONGEST, OrderFailure, PutOff};
use super::shared_process::SharedProcess;
use super::store::Store;
use super::{
    AcmeContext, AcmeManager, MAX_PROOFS, MAX_WHY_CHARS, is_possible, start_order, use_issued,
};
use crate::fronts::Fronts;
use crate::limits::{ACME_MESSAGES_PER_TURN, Moment};
use crate::logging::text::one_line;

/// How long the process may take to say what there is of a host.
const FOUND_WITHIN: Duration = Duration::from_secs(15);

/// How long until a lock that another node has is tried again.
const LOCKED_WAIT: Duration = Duration::from_secs(3);

/// How long until a host is tried again when nothing can be shared.
const LOST_WAIT: Duration = Duration::from_secs(10);

/// How long fronts of other nodes may take longer than the process waits for them.
const SPREAD_GRACE: Duration = Duration::from_secs(2);

/// How long an account is of use.
const ACCOUNT_LIFE: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// How much longer than it is valid a certificate is shared.
const CERTIFICATE_GRACE: Duration = Duration::from_secs(24 * 3600);

/// What is shared, and the question to its process.
#[derive(Debug, Default)]
pub struct Sharing {
    /// The process.
    pub process: SharedProcess,
    asking: Option<Asking>,
    /// The number of the last question.
    number: u64,
    /// Hosts whose certificates are still to be compared with the shared ones.
    unchecked: BTreeSet<String>,
    /// The account that is shared.
    account: Option<Secret>,
    /// The proofs of another node.
    pub others: OtherProofs,
}

/// What there is of a host was asked for.
#[derive(Debug)]
struct Asking {
    number: u64,
    host: String,
    /// For an order; otherwise to compare.
    locks: bool,
    until: Moment,
    /// The process that the question went to.
    pid: Option<i32>,
}

/// The proofs of another node's order.
#[derive(Debug, Default)]
pub struct OtherProofs {
    /// The proofs.
    pub proofs: Vec<Proof>,
    /// Their id, until this node has said that it serves them.
    pub unconfirmed: Option<u64>,
    /// The order to fronts that set them.
    pub mark: u64,
    /// How many fronts have not confirmed that.
    pub missing: usize,
}

/// Why a host has no new certificate, for other nodes.
#[derive(Debug, Serialize, Deserialize)]
struct SharedFailure {
    why: String,
    /// Seconds since 1970.
    until: u64,
    /// The authority requires the wait.
    #[serde(default)]
    is_limited: bool,
}

/// A certificate that is of more use than that of this node.
struct Newer {
    /// Key and chain.
    text: String,
    valid: Validity,
}

/// What there is of a host.
struct FoundRecords {
    certificate: Option<Sealed>,
    failure: Option<Sealed>,
    is_locked: bool,
}

impl Sharing {
    /// When something is due.
    pub fn deadline(&self, is_wanted: bool) -> Option<Moment> {
        let asking = self.asking.as_ref().map(|asking| asking.until);
        let start = self.process.deadline().filter(|_| is_wanted);
        [asking, start].into_iter().flatten().min()
    }

    /// Whether a reply is waited for.
    pub fn is_asking(&self) -> bool {
        self.asking.is_some()
    }

    fn ask(&mut self, host: String, locks: bool, now: Moment) {
        self.number += 1;
        let number = self.number;
        self.process.say(ToShared::Take { number, host: host.clone(), locks });
        let (until, pid) = (now + FOUND_WITHIN, self.process.pid());
        self.asking = Some(Asking { number, host, locks, until, pid });
    }

    fn write(&mut self, record: SharedRecord, text: &str, life: Duration) {
        if let Some(text) = self.process.seal(&record, text) {
            self.process.say(ToShared::Write { record, text: Some(text), life });
        }
    }

    /// The order has ended, and what came of it is written.
    pub fn release(&mut self) {
        self.process.say(ToShared::Release);
    }

    /// There is a new account.
    pub fn share_account(&mut self, account: &Secret) {
        self.account = Some(account.clone());
        self.write(SharedRecord::Account, &account.0, ACCOUNT_LIFE);
    }

    /// There is a new certificate.
    pub fn share_certificate(&mut self, host: &str, text: &str, valid: Validity) {
        let life = valid.until.duration_since(SystemTime::now()).unwrap_or_default();
        let host = host.to_owned();
        self.write(SharedRecord::Certificate(host.clone()), text, life + CERTIFICATE_GRACE);
        let record = SharedRecord::Failure(host);
        self.process.say(ToShared::Write { record, text: None, life: Duration::ZERO });
    }

    /// No node is to order a certificate for a host meanwhile.
    pub fn share_failure(&mut self, host: &str, failure: &OrderFailure, wait: Duration) {
        let until = SystemTime::now() + wait;
        let until = until.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let is_limited = failure.cause == Cause::Limited;
        let failure = SharedFailure { why: failure.why.clone(), until, is_limited };
        if let Ok(text) = serde_json::to_string(&failure) {
            self.write(SharedRecord::Failure(host.to_owned()), &text, wait);
        }
    }

    /// Has all nodes serve proofs. Returns the number of the order to do so.
    pub fn spread(&mut self, proofs: &[Proof]) -> Option<u64> {
        let text = serde_json::to_string(proofs).ok()?;
        let text = self.process.seal(&SharedRecord::Proofs, &text)?;
        self.number += 1;
        let number = self.number;
        self.process.say(ToShared::Spread { number, text });
        Some(number)
    }

    /// How long the proofs may take to be on all nodes.
    pub fn spread_time() -> Duration {
        SPREAD_TIME + SPREAD_GRACE
    }

    /// Fronts have confirmed order `mark`.
    pub fn proofs_set(&mut self, mark: u64) {
        if self.others.mark == mark {
            self.others.missing = self.others.missing.saturating_sub(1);
            self.confirm();
        }
    }

    /// Says that this node serves the proofs of another one, if it does.
    pub fn confirm(&mut self) {
        if self.others.missing == 0
            && let Some(id) = self.others.unconfirmed.take()
        {
            self.process.say(ToShared::Serving { id });
        }
    }

    /// Another authority is in use: nothing that is known of the one before counts for it.
    pub fn forget_authority(&mut self) {
        (self.asking, self.account) = (None, None);
        self.unchecked.clear();
        self.forget_others();
    }

    /// The process has ended: the next one reports the proofs that there are. Returns whether there
    /// were any.
    fn forget_others(&mut self) -> bool {
        self.others.unconfirmed = None;
        !std::mem::take(&mut self.others.proofs).is_empty()
    }

    /// Another node needs these proofs served; none: no more. What does not open or names no host
    /// cannot be served, and is not confirmed.
    fn take_proofs(&mut self, id: u64, text: Option<&Sealed>) {
        let opened = match text {
            Some(text) => self.open_proofs(text),
            None => Some(Vec::new()),
        };
        self.others.unconfirmed = opened.is_some().then_some(id);
        self.others.proofs = opened.unwrap_or_default();
    }

    fn open_proofs(&mut self, text: &Sealed) -> Option<Vec<Proof>> {
        let opened = self.process.open(&SharedRecord::Proofs, text)?;
        let mut proofs = serde_json::from_str::<Vec<Proof>>(&opened).ok()?;
        // A node with a former program names no host. Its file would be served for every host, so
        // it is not served, which the node hears: its order may fail, and is repeated later.
        let is_named = |proof: &Proof| {
            let (Proof::File { name, .. } | Proof::Certificate { name, .. }) = proof;
            is_plain_name(name) && is_possible(proof, name)
        };
        proofs.truncate(MAX_PROOFS);
        proofs.iter().all(is_named).then_some(proofs)
    }
}

impl AcmeManager {
    /// Starts or ends the process, and gives a question up that it does not reply to.
    pub(super) fn keep_sharing(&mut self, context: &mut AcmeContext<'_>) {
        let before = self.sharing.process.pid();
        let wanted = context.settings().and_then(|acme| acme.shared.as_ref());
        let wanted = wanted.filter(|_| context.is_serving);
        self.sharing.process.keep(wanted, context);
        let is_late = |asking: &Asking| asking.until <= context.now;
        if self.sharing.asking.as_ref().is_some_and(is_late) {
            // A process that does not reply to this may never report anything again.
            let why = "what there is cannot be read in time".to_owned();
            self.sharing.process.kill(why, context.now);
        }
        let pid = self.sharing.process.pid();
        if before.is_some() && before != pid {
            // It gives the lock back: another node may order.
            self.forget_others(context.fronts);
            self.give_up(context.fronts);
        }
        // Another process, after a reload, knows nothing of it.
        if let Some(asking) = self.sharing.asking.take_if(|asking| asking.pid != pid) {
            self.cannot_ask(&asking, context);
        }
    }

    /// The proofs of another node are not known any more, and not served.
    pub(super) fn forget_others(&mut self, fronts: &mut Fronts) {
        if self.sharing.forget_others() {
            self.tell_proofs(fronts);
        }
    }

    fn cannot_ask(&mut self, asking: &Asking, context: &AcmeContext<'_>) {
        if asking.locks {
            let why = self.sharing.process.trouble().map(str::to_owned);
            self.schedule.postponed(LOST_WAIT, why, context.now);
        }
        self.check_at = Moment::ZERO;
    }

    /// Looks at what is shared before a certificate is ordered.
    pub(super) fn ask_others(&mut self, host: String, context: &AcmeContext<'_>) {
        if let Some(why) = self.sharing.process.trouble() {
            let why = format!("certificates cannot be shared with other nodes: {why}");
            self.schedule.postponed(LOST_WAIT, Some(why), context.now);
            return;
        }
        self.sharing.ask(host, true, context.now);
    }

    /// Compares a certificate with the shared one, if there is one to be compared.
    pub(super) fn compare_next(&mut self, context: &AcmeContext<'_>) -> bool {
        if self.sharing.process.trouble().is_some() {
            return false;
        }
        let Some(host) = self.sharing.unchecked.pop_first() else {
            return false;
        };
        self.sharing.ask(host, false, context.now);
        true
    }

    /// Receives the reports of the process that shares certificates.
    pub(super) fn receive_shared(&mut self, context: &mut AcmeContext<'_>) {
        for _ in 0..ACME_MESSAGES_PER_TURN {
            match self.sharing.process.hear() {
                None => return,
                Some(FromShared::Reached) => {
                    self.sharing.process.reached();
                    let hosts = self.schedule.hosts(context.clocks());
                    let named = hosts.filter(|(_, state, _)| state.valid.is_some());
                    let named = named.map(|(name, ..)| name.to_owned()).collect();
                    self.sharing.unchecked = named;
                    self.check_at = Moment::ZERO;
                }
                Some(FromShared::Lost { why }) => {
                    self.sharing.process.in_trouble(one_line(&why));
                    if let Some(asking) = self.sharing.asking.take() {
                        self.cannot_ask(&asking, context);
                    }
                }
                Some(FromShared::Account { text }) => {
                    let opened = self.sharing.process.open(&SharedRecord::Account, &text);
                    self.sharing.account = opened.map(Secret);
                }
                Some(FromShared::Found { number, certificate, failure, is_locked }) => {
                    // Whatever it was in trouble for before, it has read this.
                    self.sharing.process.reached();
                    self.found(number, FoundRecords { certificate, failure, is_locked }, context);
                }
                Some(FromShared::Proofs { id, text }) => {
                    self.sharing.take_proofs(id, text.as_ref());
                    self.tell_proofs(context.fronts);
                    self.sharing.confirm();
                }
                Some(FromShared::Spread { number, missing }) => {
                    self.spread_came_to(number, missing)
                }
            }
        }
    }

    /// The process that shares certificates has ended.
    pub(super) fn shared_process_ended(&mut self, how: HowEnded, context: &mut AcmeContext<'_>) {
        self.sharing.process.ended(how, context.now);
        self.forget_others(context.fronts);
        if let Some(asking) = self.sharing.asking.take() {
            self.cannot_ask(&asking, context);
        }
    }

    fn spread_came_to(&mut self, number: u64, missing: usize) {
        let Some(order) = &mut self.order else {
            return;
        };
        let Some(publishing) = &mut order.publishing else {
            return;
        };
        if publishing.spreading != Some(number) {
            return;
        }
        if missing > 0 {
            warn!("{missing} nodes may not serve the challenge for {}", order.name);
        }
        publishing.spreading = None;
        if publishing.missing == 0 {
            order.published();
        }
    }

    /// What there is of a host is known.
    fn found(&mut self, number: u64, found: FoundRecords, context: &mut AcmeContext<'_>) {
        let is_it = |asking: &mut Asking| asking.number == number;
        let Some(asking) = self.sharing.asking.take_if(is_it) else {
            // It came too late.
            if found.is_locked {
                self.sharing.release();
            }
            return;
        };
        self.check_at = Moment::ZERO;
        let host = asking.host.clone();
        let certificate = found.certificate.as_ref();
        let newer = certificate.and_then(|sealed| self.newer(&host, sealed, context));
        match newer {
            Some(newer) => {
                self.adopt(&host, &newer, context);
                if found.is_locked {
                    self.sharing.release();
                }
            }
            None if asking.locks => self.order_for_all(host, &found, context),
            None => self.offer(&host, certificate, context),
        }
    }

    /// The shared certificate of a host, if it is of more use than that of this node.
    fn newer(&mut self, host: &str, sealed: &Sealed, context: &AcmeContext<'_>) -> Option<Newer> {
        let record = SharedRecord::Certificate(host.to_owned());
        let text = self.sharing.process.open(&record, sealed)?;
        let store = Store::of(context.settings()?);
        let valid = examine(&pair_of(&store, host, &text), host).ok()?;
        let own = self.schedule.valid_of(host).map(|valid| valid.until);
        let is_newer = own.is_none_or(|own| own < valid.until);
        (is_newer && valid.until > SystemTime::now()).then_some(Newer { text, valid })
    }

    /// Uses and stores the certificate that another node has got.
    fn adopt(&mut self, host: &str, Newer { text, valid }: &Newer, context: &mut AcmeContext<'_>) {
        let valid = *valid;
        let Some(store) = context.settings().map(Store::of) else {
            return;
        };
        if let Err(why) = store.save(host, text) {
            let file = store.file(host);
            error!("{} cannot be written: {why}; it is read again later", file.display());
        }
        if self.schedule.asked() == Some(host) {
            self.schedule.adopted(valid);
        } else {
            self.schedule.renewed(host, valid);
        }
        use_issued(host, pair_of(&store, host, text), valid, context);
    }

    /// Orders a certificate, if no other node does and none has just failed.
    fn order_for_all(&mut self, host: String, found: &FoundRecords, context: &mut AcmeContext<'_>) {
        let failure = found.failure.as_ref().and_then(|sealed| {
            let record = SharedRecord::Failure(host.clone());
            let text = self.sharing.process.open(&record, sealed)?;
            serde_json::from_str::<SharedFailure>(&text).ok()
        });
        // A reload may have corrected the cause.
        let is_hurried = self.schedule.is_hurried();
        let failure = failure.filter(|failure| failure.is_limited || !is_hurried);
        let waits = failure.and_then(|SharedFailure { why, until, is_limited }| {
            let until = UNIX_EPOCH.checked_add(Duration::from_secs(until))?;
            let left = until.duration_since(SystemTime::now()).ok()?.min(LONGEST);
            let why = one_line(&why).chars().take(MAX_WHY_CHARS).collect::<String>();
            let why = format!("another node has tried: {why}");
            Some(PutOff { wait: left, why, is_limited })
        });
        if let Some(put_off) = waits {
            self.schedule.put_off(put_off, context.now);
            if found.is_locked {
                self.sharing.release();
            }
        } else if found.is_locked {
            debug!("a certificate for {host} is ordered for all nodes");
            let own = context.settings().and_then(|acme| Store::of(acme).account());
            if let Some(own) = own.filter(|_| self.sharing.account.is_none()) {
                self.sharing.share_account(&own);
            }
            match start_order(host, self.sharing.account.as_ref(), context) {
                Ok(order) => self.order = Some(order),
                Err(why) => self.failed(OrderFailure::unreachable(why), context),
            }
        } else {
            self.schedule.postponed(LOCKED_WAIT, None, context.now);
        }
    }

    /// Shares the certificate of this node, if there is none, or an older one.
    fn offer(&mut self, host: &str, shared: Option<&Sealed>, context: &AcmeContext<'_>) {
        let (Some(valid), Some(acme)) = (self.schedule.valid_of(host), context.settings()) else {
            return;
        };
        let store = Store::of(acme);
        let record = SharedRecord::Certificate(host.to_owned());
        let shared = shared.and_then(|sealed| self.sharing.process.open(&record, sealed));
        let shared = shared.and_then(|text| examine(&pair_of(&store, host, &text), host).ok());
        if shared.is_some_and(|shared| shared.until >= valid.until) {
            return;
        }
        if let Ok(Some(pair)) = store.load(host) {
            self.sharing.share_certificate(host, &pair.cert.text, valid);
        }
    }
}

/// Whether it can be the name of a host.
fn is_plain_name(name: &str) -> bool {
    const MAX_NAME_BYTES: usize = 253;
    let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-_".contains(c);
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && name.chars().all(good)
}

/// Key and chain in one text.
fn pair_of(store: &Store, host: &str, text: &str) -> Pair {
    let file = PemFile::new(store.file(host), text.as_bytes());
    Pair::new(file.clone(), file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "0Zr1kq1ZbC6q2H0m2gJ3X0qk3b2yV9r5mJ7yqf6nX4c=";
    const OTHER: &str = "1Zr1kq1ZbC6q2H0m2gJ3X0qk3b2yV9r5mJ7yqf6nX4c=";

    fn with_key(key: &str) -> Sharing {
        Sharing { process: SharedProcess::with_key(key), ..Sharing::default() }
    }

    fn sealed(key: &str, text: &str) -> Sealed {
        with_key(key).process.seal(&SharedRecord::Proofs, text).unwrap()
    }

    fn proof() -> Proof {
        Proof::File {
            name: "a.com".to_owned(),
            token: "token".to_owned(),
            contents: "token.key".to_owned(),
        }
    }

    #[test]
    fn only_proofs_that_open_are_confirmed() {
        let text = serde_json::to_string(&[proof()]).unwrap();
        let mut sharing = with_key(KEY);
        sharing.take_proofs(7, Some(&sealed(KEY, &text)));
        assert_eq!(
            (sharing.others.unconfirmed, &sharing.others.proofs[..]),
            (Some(7), &[proof()][..])
        );
        let unnamed = r#"[{"File":{"token":"token","contents":"token.key"}}]"#;
        let unusable = [sealed(OTHER, &text), sealed(KEY, "?"), sealed(KEY, unnamed)];
        for unusable in unusable.into_iter().chain([Sealed("?".to_owned())]) {
            sharing.take_proofs(8, Some(&unusable));
            assert_eq!((sharing.others.unconfirmed, sharing.others.proofs.len()), (None, 0));
        }
        sharing.take_proofs(0, None);
        assert_eq!(sharing.others.unconfirmed, Some(0), "no proofs are served");
    }

    #[test]
    fn nothing_of_another_authority_is_remembered() {
        let mut sharing = with_key(KEY);
        sharing.share_account(&Secret("account".to_owned()));
        sharing.ask("a.com".to_owned(), true, Moment::ZERO);
        sharing.unchecked.insert("a.com".to_owned());
        let text = serde_json::to_string(&[proof()]).unwrap();
        sharing.take_proofs(7, Some(&sealed(KEY, &text)));
        sharing.forget_authority();
        assert_eq!(sharing.account, None);
        assert!(!sharing.is_asking() && sharing.unchecked.is_empty());
        assert!(sharing.others.proofs.is_empty() && sharing.others.unconfirmed.is_none());
    }

    #[test]
    fn failures_of_a_former_program_do_not_count_as_limits() {
        let failure: SharedFailure = serde_json::from_str(r#"{"why":"no","until":1}"#).unwrap();
        assert!(!failure.is_limited);
    }
}
