//! The supervisor's part of ACME. It schedules orders (`schedule.rs`), stores certificates
//! (`store.rs`), creates the keys, and starts a process that talks with the authority, one order at
//! a time. That process has no rights and learns no key; fronts serve the proofs.

mod context;
pub mod hosts;
pub mod schedule;
pub mod shared_process;
mod sharing;
pub mod store;

use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_config::{Challenge, Config};
use maitred_control::ToFront;
use maitred_control::acme::{
    Cause, FromAcme, MAX_ACCOUNT_BYTES, MAX_CHAIN_BYTES, Order, PATIENCE, Proof, Secret, ToAcme,
};
use maitred_control::admin::CertificateStatus;
use maitred_control::front::{CertificateFailure, CertificateFailures, shown};
use maitred_control::shared_certificates::ToShared;
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_tls::{Pair, PemFile, Validity, examine};
use tracing::{debug, error, info, warn};

use crate::fronts::Fronts;
use crate::limits::{ACME_MESSAGES_PER_TURN, Moment};
use crate::logging::text::one_line;
use crate::peer::Peer;
use crate::tls::certificates::read_file;

pub use context::{AcmeContext, AcmeTask};

use context::settings;
use schedule::{Clocks, OrderFailure, Schedule};
use sharing::Sharing;
use store::Store;

/// The argument that makes our program the one that gets a certificate.
pub const ACME_ROLE: &str = "acme";

/// How much longer the process may take than its own timeout.
const GRACE: Duration = Duration::from_secs(10);

/// How long fronts may take to serve a proof. The authority requests it then in any case.
const PUBLISH: Duration = Duration::from_secs(5);

/// Most accounts stored during one order: an authority may have forgotten the first one.
const MAX_ACCOUNTS: usize = 2;

/// Most proofs of one order: one for each of its hosts.
const MAX_PROOFS: usize = 4;

/// Longest name and contents of a proof file, in bytes: a token, and with it the digest of a key
/// (RFC 8555 §8.1).
const MAX_PROOF_BYTES: usize = 512;

/// Longest sentence about a failure, in characters.
const MAX_WHY_CHARS: usize = 1000;

/// The schedule of certificates, and the running order.
#[derive(Debug, Default)]
pub struct AcmeManager {
    schedule: Schedule,
    order: Option<RunningOrder>,
    /// The schedule has the hosts of the configuration in use.
    is_set: bool,
    /// When the schedule is checked next: it may have thousands of hosts.
    check_at: Moment,
    /// The authority's folder.
    folder: PathBuf,
    /// Number of the last order to serve proofs.
    mark: u64,
    /// What is shared with other nodes.
    sharing: Sharing,
}

/// An order that is running.
#[derive(Debug)]
struct RunningOrder {
    peer: Peer<ToAcme>,
    name: String,
    store: Store,
    /// The certificate's key, as PEM.
    key: Secret,
    until: Moment,
    proofs: Vec<Proof>,
    publishing: Option<Publishing>,
    /// How many accounts were stored.
    accounts: usize,
}

impl RunningOrder {
    /// All fronts serve the proofs, or have had the time to.
    fn published(&mut self) {
        self.publishing = None;
        self.peer.say(ToAcme::Published, &[]);
    }

    /// Stores an account, which takes the disk some time: no more often than an order can need it.
    /// False if it is refused.
    fn keep_account(&mut self, account: &Secret) -> bool {
        if account.0.len() > MAX_ACCOUNT_BYTES || self.accounts >= MAX_ACCOUNTS {
            return false;
        }
        self.accounts += 1;
        if let Err(why) = self.store.save_account(account) {
            let folder = self.store.folder().display();
            warn!("the account cannot be kept in {folder}: {why}");
        }
        true
    }
}

/// Fronts have been sent a proof.
#[derive(Debug)]
struct Publishing {
    mark: u64,
    /// How many have not confirmed it.
    missing: usize,
    /// Number of the order to have them served by all nodes, until they are.
    spreading: Option<u64>,
    until: Moment,
}

impl AcmeManager {
    /// Other certificates are in use; `reloaded`: by a reload.
    pub fn changed(&mut self, reloaded: bool) {
        self.is_set = false;
        self.check_at = Moment::ZERO;
        if reloaded {
            self.sharing.process.changed();
            self.schedule.hurry();
        }
    }

    /// The proofs of running orders, here and on another node, if there are any.
    pub fn proofs(&self) -> Option<ToFront> {
        // Of two for one host, fronts serve the last one.
        let own = self.order.iter().flat_map(|order| &order.proofs);
        let proofs: Vec<Proof> = self.sharing.others.proofs.iter().chain(own).cloned().collect();
        (!proofs.is_empty()).then_some(ToFront::SetAcmeProofs { proofs, mark: self.mark })
    }

    /// The process that shares certificates, if it can report.
    pub fn listening_to_shared(&self) -> Option<&Peer<ToShared>> {
        self.sharing.process.listening()
    }

    /// Whether this is the process that shares certificates.
    pub fn is_shared_process(&self, pid: i32) -> bool {
        self.sharing.process.is_process(pid)
    }

    /// The process that gets a certificate, if it can report.
    pub fn listening(&self) -> Option<&Peer<ToAcme>> {
        let peer = self.order.as_ref().map(|order| &order.peer);
        peer.filter(|peer| !peer.is_closed())
    }

    /// The hosts whose certificates could not be got, for the dashboard: first those that have
    /// none, then those whose certificate ends first.
    pub fn failures(&self, moment: Moment) -> CertificateFailures {
        let mut all = self.status(moment);
        all.sort_by_key(|status| status.expires);
        let failed = all.into_iter().filter_map(|status| {
            let error = shown(&status.error?);
            let CertificateStatus { name, failures, next, .. } = status;
            Some(CertificateFailure { name, failures, error, next })
        });
        CertificateFailures::of(failed.collect())
    }

    /// The status of all hosts.
    pub fn status(&self, moment: Moment) -> Vec<CertificateStatus> {
        let now = Clocks { moment, wall: SystemTime::now() };
        let hosts = self.schedule.hosts(now).map(|(name, entry, next)| {
            let expires = entry.valid.map(|valid| seconds(valid.until));
            CertificateStatus {
                name: name.to_owned(),
                expires,
                next: next.map(seconds),
                failures: entry.failures,
                error: entry.error.clone(),
            }
        });
        hosts.collect()
    }
}

/// Whether fronts may serve this for a host: it is reported by a process that talks with strangers.
/// A proof for another host would have another authority issue a certificate for that host.
fn is_possible(proof: &Proof, host: &str) -> bool {
    match proof {
        Proof::File { name, token, contents } => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let longest = token.len().max(contents.len());
            let is_short = longest <= MAX_PROOF_BYTES;
            name == host && is_short && contents.chars().chain(token.chars()).all(is_plain)
        }
        Proof::Certificate { name, .. } => name == host,
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

impl AcmeManager {
    /// When something is due.
    pub fn deadline(&self, config: &Config, is_serving: bool) -> Option<Moment> {
        let is_shared = settings(config).is_some_and(|acme| acme.shared.is_some());
        let sharing = self.sharing.deadline(is_serving && is_shared);
        let own = match &self.order {
            Some(order) => {
                let publishing = order.publishing.as_ref().map(|publishing| publishing.until);
                Some(publishing.map_or(order.until, |until| until.min(order.until)))
            }
            None if self.sharing.is_asking() => None,
            None => (is_serving && settings(config).is_some()).then_some(self.check_at),
        };
        [sharing, own].into_iter().flatten().min()
    }

    /// Does what is due.
    fn keep(&mut self, context: &mut AcmeContext<'_>) {
        self.keep_sharing(context);
        if !context.is_serving || context.settings().is_none() {
            if context.settings().is_none() {
                self.schedule.set(&[]);
            }
            return self.give_up(context.fronts);
        }
        self.set_schedule(context);
        let now = context.clocks();
        if self.order.is_some() {
            return self.keep_order(context);
        }
        if now.moment < self.check_at || self.sharing.is_asking() {
            return;
        }
        let is_shared = context.settings().is_some_and(|acme| acme.shared.is_some());
        if let Some(name) = self.schedule.next(now) {
            if is_shared {
                return self.ask_others(name, context);
            }
            debug!("a certificate for {name} is ordered");
            match start_order(name, None, context) {
                Ok(order) => self.order = Some(order),
                Err(why) => self.failed(OrderFailure::unreachable(why), context),
            }
        } else if !is_shared || !self.compare_next(context) {
            let deadline = self.schedule.deadline(now);
            self.check_at = deadline.unwrap_or(Moment::MAX);
        }
    }

    /// Has the schedule know the hosts of the configuration in use.
    fn set_schedule(&mut self, context: &mut AcmeContext<'_>) {
        if std::mem::replace(&mut self.is_set, true) {
            return;
        }
        let folder = context.settings().map(|acme| Store::of(acme).folder().to_owned());
        if let Some(folder) = folder.filter(|folder| *folder != self.folder) {
            // The errors of another authority do not count any more.
            self.give_up(context.fronts);
            self.schedule = Schedule::default();
            self.forget_others(context.fronts);
            self.sharing.forget_authority();
            self.folder = folder;
        }
        let certificates = context.certificates.as_ref();
        let wanted = certificates.map_or(&[][..], |certificates| certificates.wanted());
        self.schedule.set(wanted);
    }

    /// Bounds how long an order takes.
    fn keep_order(&mut self, context: &mut AcmeContext<'_>) {
        let now = context.now;
        let Some(order) = &mut self.order else {
            return;
        };
        if order.publishing.as_ref().is_some_and(|publishing| publishing.until <= now) {
            order.published();
        }
        if order.until <= now {
            let seconds = (PATIENCE + GRACE).as_secs();
            let why = format!("the process that gets it has said nothing for {seconds} s");
            self.failed(OrderFailure::unreachable(why), context);
        }
    }

    /// Receives the reports of the process that gets a certificate.
    fn receive(&mut self, context: &mut AcmeContext<'_>) {
        for _ in 0..ACME_MESSAGES_PER_TURN {
            let Some(order) = &mut self.order else {
                return;
            };
            order.peer.flush();
            let Some(report) = order.peer.hear::<FromAcme>() else {
                return;
            };
            match report {
                FromAcme::Account { account } => self.keep_account(&account),
                FromAcme::Prove(proof) => self.publish(proof, context),
                FromAcme::Issued { chain } => self.issued(&chain, context),
                FromAcme::Failed { why, cause, retry_after } => {
                    let why = one_line(&why).chars().take(MAX_WHY_CHARS).collect();
                    let failure = OrderFailure { cause, why, retry_after };
                    self.failed(failure, context);
                }
            }
        }
    }

    /// Whether this is the process that gets a certificate.
    pub fn is_process(&self, pid: i32) -> bool {
        self.order.as_ref().is_some_and(|order| order.peer.pid() == pid)
    }

    /// The process that gets a certificate has ended.
    fn process_ended(&mut self, pid: i32, how: HowEnded, context: &mut AcmeContext<'_>) {
        self.receive(context);
        if self.is_process(pid) {
            let why = format!("the process that gets it {how}");
            self.failed(OrderFailure::unreachable(why), context);
        }
    }

    /// Stores the account of the running order, and shares it with other nodes.
    fn keep_account(&mut self, account: &Secret) {
        if self.order.as_mut().is_some_and(|order| order.keep_account(account)) {
            self.sharing.share_account(account);
        }
    }

    /// Has all fronts serve the proof that the authority will request.
    fn publish(&mut self, proof: Proof, context: &mut AcmeContext<'_>) {
        let Some(order) = &mut self.order else {
            return;
        };
        if order.proofs.len() >= MAX_PROOFS || !is_possible(&proof, &order.name) {
            let why = "the authority wants a proof that there cannot be".to_owned();
            return self.failed(OrderFailure::refused(why), context);
        }
        order.proofs.push(proof);
        let spreading = self.sharing.spread(&order.proofs);
        let within = if spreading.is_some() { Sharing::spread_time() } else { PUBLISH };
        let missing = self.tell_proofs(context.fronts);
        if let Some(order) = &mut self.order {
            let until = context.now + within;
            order.publishing = Some(Publishing { mark: self.mark, missing, spreading, until });
        }
    }

    /// Sends the proofs to all fronts. Returns how many there are.
    fn tell_proofs(&mut self, fronts: &mut Fronts) -> usize {
        self.mark += 1;
        let mark = self.mark;
        let order = self.proofs().unwrap_or(ToFront::SetAcmeProofs { proofs: Vec::new(), mark });
        let missing = fronts.tell_all(&order, &[]);
        (self.sharing.others.mark, self.sharing.others.missing) = (mark, missing);
        let running = self.order.as_mut().and_then(|order| order.publishing.as_mut());
        if let Some(publishing) = running {
            (publishing.mark, publishing.missing) = (mark, missing);
        }
        missing
    }

    /// A front serves the proofs of order `mark`.
    pub fn proofs_set(&mut self, mark: u64) {
        self.sharing.proofs_set(mark);
        let Some(order) = &mut self.order else {
            return;
        };
        let Some(publishing) = order.publishing.as_mut().filter(|one| one.mark == mark) else {
            return;
        };
        publishing.missing = publishing.missing.saturating_sub(1);
        if publishing.missing == 0 && publishing.spreading.is_none() {
            order.published();
        }
    }

    /// Uses and stores an issued certificate.
    fn issued(&mut self, chain: &str, context: &mut AcmeContext<'_>) {
        if chain.len() > MAX_CHAIN_BYTES {
            return self.unusable(&format!("it has more than {MAX_CHAIN_BYTES} bytes"), context);
        }
        let Some(order) = &self.order else {
            return;
        };
        let path = order.store.file(&order.name);
        let both = format!("{}{chain}", order.key.0);
        let file = PemFile::new(path, both.as_bytes());
        let pair = Pair::new(file.clone(), file);
        let valid = match examine(&pair, &order.name) {
            Ok(valid) if valid.until > SystemTime::now() => valid,
            Ok(_) => {
                return self.unusable("it has expired already; is the clock right?", context);
            }
            Err(fault) => return self.unusable(&fault.sentence, context),
        };
        let Some(order) = self.end_order(context.fronts) else {
            return;
        };
        if let Err(why) = order.store.save(&order.name, &both) {
            let file = order.store.file(&order.name);
            let file = file.display();
            error!("{file} cannot be written: {why}; the certificate is lost at the next start");
        }
        self.sharing.share_certificate(&order.name, &both, valid);
        self.sharing.release();
        if let Some(wait) = self.schedule.issued(valid, context.clocks()) {
            warn!(
                "the new certificate for {} is due for renewal already; is the clock right? It is \
                 ordered again in {}",
                order.name,
                in_words(wait)
            );
        }
        self.check_at = Moment::ZERO;
        use_issued(&order.name, pair, valid, context);
    }

    fn unusable(&mut self, why: &str, context: &mut AcmeContext<'_>) {
        let why = format!("what the authority issued cannot be used: {why}");
        self.failed(OrderFailure::refused(why), context);
    }

    /// An order has failed. The certificate before it, if there is one, stays in use.
    fn failed(&mut self, failure: OrderFailure, context: &mut AcmeContext<'_>) {
        self.end_order(context.fronts);
        self.check_at = Moment::ZERO;
        let mut random = [0];
        let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        let asked = self.schedule.asked().map(str::to_owned);
        let retry = self.schedule.failed(&failure, context.clocks(), random[0]);
        let (Some(name), Some(retry)) = (asked, retry) else {
            return self.sharing.release();
        };
        if failure.cause != Cause::Unreachable {
            self.sharing.share_failure(&name, &failure, retry.wait);
        }
        self.sharing.release();
        let wait = in_words(retry.wait);
        let sentence =
            format!("no certificate for {name}: {}; it is tried again in {wait}", failure.why);
        if retry.is_news {
            error!("{sentence}");
        } else {
            debug!("{sentence}");
        }
    }

    /// Gives the running order up.
    fn give_up(&mut self, fronts: &mut Fronts) {
        if self.end_order(fronts).is_some() {
            self.sharing.release();
            self.schedule.given_up();
            self.check_at = Moment::ZERO;
        }
    }

    /// Kills the process, which has nothing more to do, and removes its proofs from the fronts.
    fn end_order(&mut self, fronts: &mut Fronts) -> Option<RunningOrder> {
        let order = self.order.take()?;
        order.peer.signal(Signal::SIGKILL);
        if !order.proofs.is_empty() {
            self.tell_proofs(fronts);
        }
        Some(order)
    }
}

fn start_order(
    name: String,
    account: Option<&Secret>,
    context: &AcmeContext<'_>,
) -> Result<RunningOrder, String> {
    let settings = context.settings().ok_or("`acme` is not set any more")?;
    let store = Store::of(settings);
    store.prove_writable().map_err(|why| {
        let folder = store.folder().display();
        format!(
            "it could not be kept, since {folder} cannot be written: {why}; correct its rights, or \
             set `folder` of `acme`"
        )
    })?;
    let asked = maitred_tls::ask_for(&name)?;
    let read = |path: &Path| {
        let file = read_file(path).map_err(|fault| fault.to_string());
        file.map(|file| file.text)
    };
    let external = settings.external_account.as_ref().map(|external| {
        let key = read(&external.key_file)?;
        Ok::<_, String>((external.id.clone(), Secret(key)))
    });
    let order = Order {
        identity: context.identity.cloned(),
        restricted: context.config.front_sandbox,
        directory: settings.directory.clone(),
        roots: settings.ca.as_deref().map(read).transpose()?,
        email: settings.email.clone(),
        account: account.cloned().or_else(|| store.account()),
        external_account: external.transpose()?,
        by_file: settings.challenge(context.config) == Challenge::Http01,
        name: name.clone(),
        request: asked.request,
    };
    let file = serde_json::to_vec(&order).map_err(std::io::Error::from);
    let file = file.and_then(|json| shared::file_with("maitred-acme", &json));
    let started = file.and_then(|file| {
        let mut peer = Peer::start_role("maitred: acme", ACME_ROLE, context.environment)?;
        peer.say(ToAcme::Get, &[file.as_fd()]);
        Ok(peer)
    });
    let peer =
        started.map_err(|why| format!("the process that gets it could not be started: {why}"))?;
    Ok(RunningOrder {
        peer,
        name,
        store,
        key: Secret(asked.key),
        until: context.now + PATIENCE + GRACE,
        proofs: Vec::new(),
        publishing: None,
        accounts: 0,
    })
}

fn use_issued(name: &str, pair: Pair, valid: Validity, context: &mut AcmeContext<'_>) {
    let Some(certificates) = context.certificates else {
        return;
    };
    match certificates.take_issued(name, pair, valid) {
        Ok(false) => debug!("the certificate for {name} is not needed any more"),
        Ok(true) => {
            let days = valid.until.duration_since(SystemTime::now());
            let days = days.unwrap_or_default().as_secs() / (24 * 3600);
            if let Some(peer) = context.fronts.peer() {
                certificates.tell(peer);
            }
            info!("{name} has a new certificate, which is valid for {days} days");
        }
        Err(why) => error!("the certificate for {name} cannot be used: {why}"),
    }
}

/// A wait, for people.
fn in_words(wait: Duration) -> String {
    match wait.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
#[path = "acme_tests.rs"]
mod tests;
