//! Certificates by ACME: the supervisor's part. It decides when (`schedule.rs`), keeps what was got
//! (`store.rs`), makes the keys, and has a process of its own talk with the authority, one order at
//! a time. That process has no rights and learns no key; fronts show what the authority looks for.

pub mod hosts;
pub mod schedule;
pub mod store;

use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use maitred_config::{Acme as Settings, Challenge};
use maitred_control::ToFront;
use maitred_control::acme::{
    Cause, FromAcme, MAX_ACCOUNT_BYTES, Order, PATIENCE, Proof, Secret, ToAcme,
};
use maitred_control::admin::CertificateStatus;
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_os::spawn::Program;
use maitred_tls::{Pair, PemFile, Validity, examine};
use tracing::{debug, error, info, warn};

use crate::limits::{ACME_MESSAGES_PER_TURN, Moment};
use crate::logging::text::one_line;
use crate::peer::Peer;
use crate::roomy_name;
use crate::run::Supervisor;
use crate::run::front::THIS_PROGRAM;
use crate::tls::certificates::read_file;

use schedule::{Clocks, OrderFailure, Schedule};
use store::Store;

/// The argument that makes our program the one that gets a certificate.
pub const ACME_ROLE: &str = "acme";

/// How much longer the process may take than it gives itself.
const GRACE: Duration = Duration::from_secs(10);

/// How long fronts may take to show a proof. The authority looks then in any case.
const PUBLISH: Duration = Duration::from_secs(5);

/// Most accounts that are kept during one order: an authority may have forgotten the one there was.
const MAX_ACCOUNTS: usize = 2;

/// Most proofs that one order takes: one for each host of it, and each has one.
const MAX_PROOFS: usize = 4;

/// Longest name and contents of a file for an authority, in bytes: a token, and with it the digest of
/// a key (RFC 8555 §8.1).
const MAX_PROOF_BYTES: usize = 512;

/// Longest sentence about a failure, in characters.
const MAX_WHY_CHARS: usize = 1000;

/// What is decided about certificates by ACME, and the process that gets one.
#[derive(Debug, Default)]
pub struct AcmeManager {
    schedule: Schedule,
    going: Option<RunningOrder>,
    /// The schedule is that of the configuration in use.
    is_set: bool,
    /// When the schedule is looked at next: it may have thousands of hosts.
    look_at: Moment,
    /// The folder of the authority that is asked.
    folder: PathBuf,
    /// Number of the last order to show proofs.
    mark: u64,
}

/// An order that is being carried out.
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
    /// How often an account was kept.
    accounts: usize,
}

impl RunningOrder {
    /// Keeps an account, which takes the disk some time: no more often than an order can need it.
    fn keep_account(&mut self, account: &Secret) {
        if account.0.len() > MAX_ACCOUNT_BYTES || self.accounts >= MAX_ACCOUNTS {
            return;
        }
        self.accounts += 1;
        if let Err(why) = self.store.save_account(account) {
            let folder = self.store.folder().display();
            warn!("the account cannot be kept in {folder}: {why}");
        }
    }
}

/// Fronts have been told a proof.
#[derive(Debug)]
struct Publishing {
    mark: u64,
    /// How many have not said that they show it.
    missing: usize,
    until: Moment,
}

impl AcmeManager {
    /// The certificates in use are others now; `reloaded`: somebody has asked for that.
    pub fn changed(&mut self, reloaded: bool) {
        self.is_set = false;
        self.look_at = Moment::ZERO;
        if reloaded {
            self.schedule.hurry();
        }
    }

    /// What the fronts are to show, if an order is being carried out that needs it.
    pub fn proofs(&self) -> Option<ToFront> {
        let going = self
            .going
            .as_ref()
            .filter(|going| !going.proofs.is_empty())?;
        Some(ToFront::SetAcmeProofs {
            proofs: going.proofs.clone(),
            mark: self.mark,
        })
    }

    /// The process that gets a certificate, if it can have something to say.
    pub fn listening(&self) -> Option<&Peer<ToAcme>> {
        let peer = self.going.as_ref().map(|going| &going.peer);
        peer.filter(|peer| !peer.is_closed())
    }

    /// How the certificates are.
    pub fn status(&self, moment: Moment) -> Vec<CertificateStatus> {
        let now = Clocks {
            moment,
            wall: SystemTime::now(),
        };
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

/// Whether fronts may show this for a host: it is what its process says, which talks with strangers.
fn is_possible(proof: &Proof, host: &str) -> bool {
    match proof {
        Proof::File { token, contents } => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
            let longest = token.len().max(contents.len());
            longest <= MAX_PROOF_BYTES && contents.chars().chain(token.chars()).all(is_plain)
        }
        Proof::Certificate { name, .. } => name == host,
    }
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

impl Supervisor {
    fn clocks(&self) -> Clocks {
        Clocks {
            moment: self.now(),
            wall: SystemTime::now(),
        }
    }

    fn acme_settings(&self) -> Option<&Settings> {
        self.plan.config.tls.as_ref()?.acme.as_ref()
    }

    /// Whether certificates may be asked for: the server serves, and goes on doing so.
    fn may_ask(&self) -> bool {
        self.phase.is_serving() && self.upgrade.is_none() && self.acme_settings().is_some()
    }

    /// When something about certificates by ACME is due.
    pub fn acme_deadline(&self) -> Option<Moment> {
        if let Some(going) = &self.acme.going {
            let publishing = going.publishing.as_ref().map(|publishing| publishing.until);
            return Some(publishing.map_or(going.until, |until| until.min(going.until)));
        }
        if !self.may_ask() {
            return None;
        }
        Some(self.acme.look_at)
    }

    /// Does what is due.
    pub fn keep_acme(&mut self) {
        if !self.may_ask() {
            if self.acme_settings().is_none() {
                self.acme.schedule.set(&[]);
            }
            return self.stop_asking();
        }
        self.set_schedule();
        let now = self.clocks();
        if self.acme.going.is_some() {
            return self.hurry_order(now.moment);
        }
        if now.moment < self.acme.look_at {
            return;
        }
        if let Some(name) = self.acme.schedule.next(now) {
            debug!("a certificate for {name} is asked for");
            match self.begin_asking(name) {
                Ok(going) => self.acme.going = Some(going),
                Err(why) => self.no_certificate(OrderFailure {
                    cause: Cause::Unreachable,
                    why,
                    retry_after: None,
                }),
            }
        } else {
            let deadline = self.acme.schedule.deadline(now);
            self.acme.look_at = deadline.unwrap_or(Moment::MAX);
        }
    }

    /// Has the schedule know the hosts of the configuration in use.
    fn set_schedule(&mut self) {
        if std::mem::replace(&mut self.acme.is_set, true) {
            return;
        }
        let folder = self
            .acme_settings()
            .map(|settings| Store::of(settings).folder().to_owned());
        if let Some(folder) = folder.filter(|folder| *folder != self.acme.folder) {
            // What another authority has said counts no more.
            self.stop_asking();
            self.acme.schedule = Schedule::default();
            self.acme.folder = folder;
        }
        let certificates = self.plan.certificates.as_ref();
        let wanted = certificates.map_or(&[][..], |certificates| certificates.wanted());
        self.acme.schedule.set(wanted);
    }

    /// Sees to it that an order comes to its end.
    fn hurry_order(&mut self, now: Moment) {
        if let Some(going) = &mut self.acme.going {
            if let Some(publishing) = &going.publishing
                && publishing.until <= now
            {
                going.publishing = None;
                going.peer.say(ToAcme::Published, &[]);
            }
            if going.until <= now {
                let seconds = (PATIENCE + GRACE).as_secs();
                self.no_certificate(OrderFailure {
                    cause: Cause::Unreachable,
                    why: format!("the process that gets it has said nothing for {seconds} s"),
                    retry_after: None,
                });
            }
        }
    }

    fn begin_asking(&self, name: String) -> Result<RunningOrder, String> {
        let settings = self.acme_settings().ok_or("`acme` is not set any more")?;
        let store = Store::of(settings);
        store.prove_writable().map_err(|why| {
            let folder = store.folder().display();
            format!(
                "it could not be kept, since {folder} cannot be written: {why}; correct its rights, \
                 or set `folder` of `acme`"
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
            identity: self.plan.front_identity.clone(),
            restricted: self.plan.config.front_sandbox,
            directory: settings.directory.clone(),
            roots: settings.ca.as_deref().map(read).transpose()?,
            email: settings.email.clone(),
            account: store.account(),
            external_account: external.transpose()?,
            by_file: settings.challenge(&self.plan.config) == Challenge::Http01,
            name: name.clone(),
            request: asked.request,
        };
        let file = serde_json::to_vec(&order).map_err(std::io::Error::from);
        let file = file.and_then(|json| shared::file_with("maitred-acme", &json));
        let started = file.and_then(|file| {
            let mut peer = Peer::start(&Program {
                path: Path::new(THIS_PROGRAM),
                name: &roomy_name("maitred: acme"),
                arguments: &[OsStr::new(ACME_ROLE)],
                environment: &self.plan.environment,
                inherit: &[],
                output: None,
                group: None,
            })?;
            peer.say(ToAcme::Get, &[file.as_fd()]);
            Ok(peer)
        });
        let peer = started
            .map_err(|why| format!("the process that gets it could not be started: {why}"))?;
        Ok(RunningOrder {
            peer,
            name,
            store,
            key: Secret(asked.key),
            until: self.now() + PATIENCE + GRACE,
            proofs: Vec::new(),
            publishing: None,
            accounts: 0,
        })
    }

    /// Hears what the process that gets a certificate says, if it has `spoken`.
    pub fn hear_acme(&mut self, spoken: bool) {
        if !spoken {
            return;
        }
        for _ in 0..ACME_MESSAGES_PER_TURN {
            let Some(going) = &mut self.acme.going else {
                return;
            };
            going.peer.flush();
            let Some(report) = going.peer.hear::<FromAcme>() else {
                return;
            };
            match report {
                FromAcme::Account { account } => going.keep_account(&account),
                FromAcme::Prove(proof) => self.publish(proof),
                FromAcme::Issued { chain } => self.issued(&chain),
                FromAcme::Failed {
                    why,
                    cause,
                    retry_after,
                } => self.no_certificate(OrderFailure {
                    cause,
                    why: one_line(&why).chars().take(MAX_WHY_CHARS).collect(),
                    retry_after,
                }),
            }
        }
    }

    /// A child has ended: was it the one that gets a certificate?
    pub fn acme_ended(&mut self, pid: i32, how: HowEnded) -> bool {
        let is_it = |acme: &AcmeManager| {
            acme.going
                .as_ref()
                .is_some_and(|going| going.peer.pid() == pid)
        };
        if !is_it(&self.acme) {
            return false;
        }
        self.hear_acme(true);
        if is_it(&self.acme) {
            self.no_certificate(OrderFailure {
                cause: Cause::Unreachable,
                why: format!("the process that gets it {how}"),
                retry_after: None,
            });
        }
        true
    }

    /// Has all fronts show what the authority is going to look for.
    fn publish(&mut self, proof: Proof) {
        let until = self.now() + PUBLISH;
        let Some(going) = &mut self.acme.going else {
            return;
        };
        if going.proofs.len() >= MAX_PROOFS || !is_possible(&proof, &going.name) {
            return self.no_certificate(OrderFailure {
                cause: Cause::Refused,
                why: "the authority wants a proof that there cannot be".to_owned(),
                retry_after: None,
            });
        }
        going.proofs.push(proof);
        let missing = self.tell_proofs();
        if let Some(going) = &mut self.acme.going {
            let mark = self.acme.mark;
            going.publishing = Some(Publishing {
                mark,
                missing,
                until,
            });
        }
    }

    /// Tells all fronts what to show; how many that are.
    fn tell_proofs(&mut self) -> usize {
        self.acme.mark += 1;
        let mark = self.acme.mark;
        let order = self.acme.proofs().unwrap_or(ToFront::SetAcmeProofs {
            proofs: Vec::new(),
            mark,
        });
        let lines: Vec<u32> = self.fronts().map(|(line, _)| line).collect();
        for &line in &lines {
            if let Some(peer) = self.peer_of_line(line) {
                peer.say(order.clone(), &[]);
            }
        }
        lines.len()
    }

    /// A front shows what it was told to.
    pub fn proofs_taken(&mut self, mark: u64) {
        let Some(going) = &mut self.acme.going else {
            return;
        };
        let Some(publishing) = going.publishing.as_mut().filter(|one| one.mark == mark) else {
            return;
        };
        publishing.missing = publishing.missing.saturating_sub(1);
        if publishing.missing == 0 {
            going.publishing = None;
            going.peer.say(ToAcme::Published, &[]);
        }
    }

    /// Uses and keeps what was issued.
    fn issued(&mut self, chain: &str) {
        let Some(going) = &self.acme.going else {
            return;
        };
        let path = going.store.file(&going.name);
        let both = format!("{}{chain}", going.key.0);
        let file = PemFile::new(path, both.as_bytes());
        let pair = Pair {
            cert: file.clone(),
            key: file,
        };
        let valid = match examine(&pair, &going.name) {
            Ok(valid) if valid.until > SystemTime::now() => valid,
            Ok(_) => return self.unusable("it has expired already; is the clock right?"),
            Err(fault) => return self.unusable(&fault.sentence),
        };
        let Some(going) = self.end_asking() else {
            return;
        };
        if let Err(why) = going.store.save(&going.name, &both) {
            let file = going.store.file(&going.name);
            let file = file.display();
            error!("{file} cannot be written: {why}; the certificate is lost at the next start");
        }
        self.acme.schedule.issued(valid);
        self.acme.look_at = Moment::ZERO;
        self.use_issued(&going.name, pair, valid);
    }

    fn unusable(&mut self, why: &str) {
        self.no_certificate(OrderFailure {
            cause: Cause::Refused,
            why: format!("what the authority issued cannot be used: {why}"),
            retry_after: None,
        });
    }

    fn use_issued(&mut self, name: &str, pair: Pair, valid: Validity) {
        let Some(certificates) = &mut self.plan.certificates else {
            return;
        };
        match certificates.take_issued(name, pair, valid) {
            Ok(false) => debug!("nobody wants the certificate for {name} any more"),
            Ok(true) => {
                let days = valid.until.duration_since(SystemTime::now());
                let days = days.unwrap_or_default().as_secs() / (24 * 3600);
                if let Some(peer) = &mut self.front.peer {
                    certificates.tell(peer);
                }
                info!("{name} has a new certificate, which is valid for {days} days");
            }
            Err(why) => error!("the certificate for {name} cannot be used: {why}"),
        }
    }

    /// There is no certificate this time. That before it, if there is one, stays in use.
    fn no_certificate(&mut self, failed: OrderFailure) {
        self.end_asking();
        self.acme.look_at = Moment::ZERO;
        let now = self.clocks();
        let mut random = [0];
        let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
        let asked = self.acme.schedule.asked().map(str::to_owned);
        let retry = self.acme.schedule.failed(&failed, now, random[0]);
        let (Some(name), Some(retry)) = (asked, retry) else {
            return;
        };
        let wait = in_words(retry.wait);
        let sentence = format!(
            "no certificate for {name}: {}; it is tried again in {wait}",
            failed.why
        );
        match retry.is_news {
            true => error!("{sentence}"),
            false => debug!("{sentence}"),
        }
    }

    /// Nothing is asked for any more.
    pub fn stop_asking(&mut self) {
        if self.end_asking().is_some() {
            self.acme.schedule.given_up();
            self.acme.look_at = Moment::ZERO;
        }
    }

    /// Ends the process, which has nothing more to do, and has fronts show nothing more.
    fn end_asking(&mut self) -> Option<RunningOrder> {
        let going = self.acme.going.take()?;
        going.peer.signal(Signal::SIGKILL);
        if !going.proofs.is_empty() {
            self.tell_proofs();
        }
        Some(going)
    }
}

/// A wait as people say it.
fn in_words(wait: Duration) -> String {
    match wait.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_authorities_can_look_for_is_shown_to_anybody() {
        let file = |token: &str, contents: &str| Proof::File {
            token: token.to_owned(),
            contents: contents.to_owned(),
        };
        assert!(is_possible(&file("a-_9", "a-_9.Zz"), "a.com"));
        assert!(!is_possible(&file("../a", "a.b"), "a.com"));
        assert!(!is_possible(&file("a", "<script>"), "a.com"));
        assert!(!is_possible(&file("a", &"b".repeat(10_000)), "a.com"));
        let of = |name: &str| Proof::Certificate {
            name: name.to_owned(),
            digest: [0; 32],
        };
        assert!(is_possible(&of("a.com"), "a.com"));
        assert!(!is_possible(&of("b.com"), "a.com"));
    }

    #[test]
    fn waits_are_said_in_one_unit() {
        let said = [10, 119, 300, 7199, 7200, 43_200];
        let said = said.map(|seconds| in_words(Duration::from_secs(seconds)));
        assert_eq!(said, ["10 s", "119 s", "5 min", "119 min", "2 h", "12 h"]);
    }
}
