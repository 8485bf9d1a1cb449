//! The process that shares certificates with other nodes (crate `acme`, module `shared`): it is
//! started while the server serves, and again with growing waits when it ends. Only this side has
//! the key.

use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use maitred_config::{AcmeShared, SharedPlace};
use maitred_control::acme::Secret;
use maitred_control::shared_certificates::{
    FromShared, Sealed, SharedAccess, SharedRecord, SharedSettings, ToShared,
};
use maitred_os::fork::HowEnded;
use maitred_os::shared;
use maitred_os::signals::Signal;
use maitred_tls::{MAX_KEY_BYTES, SharedKey};
use tracing::{error, warn};

use super::AcmeContext;
use super::store::Store;
use crate::limits::Moment;
use crate::peer::Peer;
use crate::processes::backoff::Backoff;
use crate::system::redis_files::redis_access;
use crate::tls::certificates::read_file;

/// The argument that makes our program the one that shares certificates.
pub const SHARED_ROLE: &str = "shared-certificates";

/// Longest wait before it is started again.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// The text of the key's file.
///
/// # Errors
/// One sentence, when it cannot be read or is too short.
pub fn key_text(shared: &AcmeShared) -> Result<Secret, String> {
    let file = read_file(&shared.key_file).map_err(|fault| fault.to_string())?;
    let text = file.text;
    let path = shared.key_file.display();
    if text.len() > MAX_KEY_BYTES + 2 {
        return Err(format!("{path} has more than {MAX_KEY_BYTES} bytes; expected a random key"));
    }
    SharedKey::of(&text).map_err(|why| format!("{path} {why}"))?;
    Ok(Secret(text))
}

/// A warning about the key's file, if every user may read or write it.
pub fn key_note(shared: &AcmeShared) -> Option<String> {
    const OTHERS: u32 = 0o007;
    let path = &shared.key_file;
    let mode = std::fs::metadata(path).ok()?.permissions().mode();
    let path = path.display();
    (mode & OTHERS != 0).then(|| {
        format!(
            "every user may use {path}, the key of all shared certificates: run `chmod 600 {path}`"
        )
    })
}

/// What the process was started with.
#[derive(Debug, PartialEq, Eq)]
struct Started {
    shared: AcmeShared,
    authority: String,
    key: Secret,
}

/// The process that shares certificates.
#[derive(Debug, Default)]
pub struct SharedProcess {
    peer: Option<Peer<ToShared>>,
    started: Option<Started>,
    key: Option<SharedKey>,
    backoff: Backoff,
    /// When it is started next.
    start_at: Moment,
    /// Whether the settings are to be compared with those that it was started with.
    is_outdated: bool,
    /// Why it is not of use, if that was logged.
    trouble: Option<String>,
    /// A record that cannot be opened was logged.
    has_complained: bool,
}

#[cfg(test)]
impl SharedProcess {
    /// One that does not run, with a key.
    pub fn with_key(text: &str) -> SharedProcess {
        let place = SharedPlace::Folder("/nonexistent".into());
        let shared = AcmeShared { place, key_file: "/nonexistent".into() };
        let (key, authority) = (Secret(text.to_owned()), "ca".to_owned());
        SharedProcess {
            started: Some(Started { shared, authority, key }),
            key: Some(SharedKey::of(text).unwrap()),
            ..SharedProcess::default()
        }
    }

    /// One that runs, with a key.
    pub fn with_peer(peer: Peer<ToShared>) -> SharedProcess {
        let key = "0Zr1kq1ZbC6q2H0m2gJ3X0qk3b2yV9r5mJ7yqf6nX4c=";
        SharedProcess { peer: Some(peer), ..SharedProcess::with_key(key) }
    }
}

impl SharedProcess {
    /// The process, if it can report.
    pub fn listening(&self) -> Option<&Peer<ToShared>> {
        self.peer.as_ref().filter(|peer| !peer.is_closed())
    }

    /// Its process id, if it runs.
    pub fn pid(&self) -> Option<i32> {
        self.peer.as_ref().map(Peer::pid)
    }

    /// Whether this is the process.
    pub fn is_process(&self, pid: i32) -> bool {
        self.peer.as_ref().is_some_and(|peer| peer.pid() == pid)
    }

    /// Another configuration is in use.
    pub fn changed(&mut self) {
        self.is_outdated = true;
        self.start_at = Moment::ZERO;
    }

    /// When it is to be started.
    pub fn deadline(&self) -> Option<Moment> {
        let is_due = self.peer.is_none() || self.is_outdated;
        is_due.then_some(if self.is_outdated { Moment::ZERO } else { self.start_at })
    }

    /// Starts the process if it is wanted, and ends it if it is not, or not with these settings.
    pub fn keep(&mut self, wanted: Option<&AcmeShared>, context: &AcmeContext<'_>) {
        let Some(shared) = wanted else {
            self.stop();
            return;
        };
        if self.peer.is_some() && !self.is_outdated {
            return;
        }
        if self.peer.is_none() && self.start_at > context.now {
            return;
        }
        let done = match wanted_start(shared, context) {
            Ok(start) if self.peer.is_some() && self.started.as_ref() == Some(&start) => {
                self.is_outdated = false;
                return;
            }
            Ok(start) => self.start(start, context),
            Err(why) => Err(why),
        };
        self.is_outdated = false;
        if let Err(why) = done {
            self.stop();
            self.retry_later(why, context.now);
        }
    }

    /// It does not work any more. Another one is started after a wait.
    pub fn kill(&mut self, why: String, now: Moment) {
        if let Some(peer) = &self.peer {
            peer.signal(Signal::SIGKILL);
        }
        self.stop();
        self.retry_later(why, now);
    }

    fn retry_later(&mut self, why: String, now: Moment) {
        self.in_trouble(why);
        self.start_at = self.backoff.failed_within(now, LONGEST_WAIT);
    }

    fn start(&mut self, start: Started, context: &AcmeContext<'_>) -> Result<(), String> {
        self.stop();
        let place = match &start.shared.place {
            SharedPlace::Folder(folder) => SharedAccess::Folder(folder.clone()),
            SharedPlace::Redis { redis, prefix } => {
                SharedAccess::Redis(redis_access(redis)?, prefix.clone())
            }
        };
        let settings = SharedSettings {
            identity: context.identity.cloned(),
            restricted: context.config.front_sandbox,
            place,
            authority: start.authority.clone(),
        };
        let json = serde_json::to_vec(&settings).map_err(|why| why.to_string())?;
        let file = shared::file_with("maitred-shared-certificates", &json);
        let started = file.and_then(|file| {
            let mut peer =
                Peer::start_role("maitred: certificates", SHARED_ROLE, context.environment)?;
            peer.say(ToShared::Begin, &[file.as_fd()]);
            Ok(peer)
        });
        self.peer = Some(started.map_err(|why| format!("its process cannot be started: {why}"))?);
        self.key = Some(SharedKey::of(&start.key.0)?);
        self.started = Some(start);
        Ok(())
    }

    /// It ends when its channel is closed, and gives a lock back before.
    fn stop(&mut self) {
        (self.peer, self.started, self.key) = (None, None, None);
    }

    /// Logs once why certificates cannot be shared.
    pub fn in_trouble(&mut self, why: String) {
        if self.trouble.is_none() {
            error!(
                "certificates cannot be shared with other nodes: {why}; this node serves those \
                 that it has, and none is ordered until then"
            );
        }
        self.trouble = Some(why);
    }

    /// The place is reached.
    pub fn reached(&mut self) {
        self.backoff.succeeded();
        self.has_complained = false;
        if self.trouble.take().is_some() {
            tracing::info!("certificates are shared with other nodes again");
        }
    }

    /// Why certificates cannot be shared, if they cannot.
    pub fn trouble(&self) -> Option<&str> {
        match &self.peer {
            None => Some(self.trouble.as_deref().unwrap_or("its process does not run")),
            Some(_) => self.trouble.as_deref(),
        }
    }

    /// Sends an order.
    pub fn say(&mut self, order: ToShared) {
        if let Some(peer) = &mut self.peer {
            peer.say(order, &[]);
        }
    }

    /// Receives the next report.
    pub fn hear(&mut self) -> Option<FromShared> {
        let peer = self.peer.as_mut()?;
        peer.flush();
        peer.hear::<FromShared>()
    }

    /// The process has ended.
    pub fn ended(&mut self, how: HowEnded, now: Moment) {
        (self.peer, self.started, self.key) = (None, None, None);
        self.start_at = self.backoff.failed_within(now, LONGEST_WAIT);
        // A process ends by itself when another one may reach what it cannot.
        if how != HowEnded::Exited(0) {
            self.in_trouble(format!("the process that shares them {how}"));
        }
    }

    /// Seals a record.
    pub fn seal(&self, record: &SharedRecord, text: &str) -> Option<Sealed> {
        let (key, started) = (self.key.as_ref()?, self.started.as_ref()?);
        key.seal(&bound_name(started, record), text).map(Sealed)
    }

    /// Opens a record. What does not open was written by others, or with another key.
    pub fn open(&mut self, record: &SharedRecord, Sealed(text): &Sealed) -> Option<String> {
        let (key, started) = (self.key.as_ref()?, self.started.as_ref()?);
        let opened = key.open(&bound_name(started, record), text);
        if opened.is_none() && !std::mem::replace(&mut self.has_complained, true) {
            warn!(
                "{} among the shared certificates cannot be opened with {}, and is ignored; all \
                 nodes need the same key",
                record.name(),
                started.shared.key_file.display()
            );
        }
        opened
    }
}

/// What a sealed text is bound to: no record of another authority is taken.
fn bound_name(started: &Started, record: &SharedRecord) -> String {
    format!("{}/{}", started.authority, record.name())
}

fn wanted_start(shared: &AcmeShared, context: &AcmeContext<'_>) -> Result<Started, String> {
    let acme = context.settings().ok_or("`acme` is not set any more")?;
    let folder = Store::of(acme).folder().to_owned();
    let authority = folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(Started { shared: shared.clone(), authority, key: key_text(shared)? })
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, set_permissions};

    use super::*;

    #[test]
    fn a_key_that_every_user_may_read_is_warned_of() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let place = SharedPlace::Folder("/nonexistent".into());
        let shared = AcmeShared { place, key_file: file.path().to_owned() };
        for (mode, is_warned) in [(0o600, false), (0o640, false), (0o644, true)] {
            set_permissions(file.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(key_note(&shared).is_some(), is_warned, "{mode:o}");
        }
    }
}
