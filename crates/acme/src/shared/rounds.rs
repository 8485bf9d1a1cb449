//! What the process does in its rounds: what the supervisor has ordered, and what other nodes have
//! written.

use std::collections::BTreeMap;
use std::time::Duration;

use maitred_control::shared_certificates::{
    FromShared, LOCK_TIME, MAX_FAILURE_BYTES, MAX_SEALED_BYTES, SPREAD_TIME, Sealed, SharedRecord,
    SharedSettings, ToShared,
};
use maitred_os::clock::since_boot_millis;
use tokio::time::{sleep, timeout};

use super::Millis;
use super::link::SharedLink;
use super::store::Store;
use super::witnesses::{Witnesses, registration};

/// Time between two rounds, in milliseconds.
const ROUND: Millis = 1000;

/// The same while this node waits for others, which have rounds of their own.
const SPREAD_ROUND: Millis = 200;

/// Least and longest time between two attempts while the place cannot be reached.
const RETRY: (Millis, Millis) = (1000, 10_000);

/// How long this process takes to give a lock back before it ends. A server that stops kills it
/// sooner.
const LEAVE: Duration = Duration::from_secs(3);

/// How long nodes may take to be started, all at once.
const START: Millis = 60_000;

/// How long a folder is not reached before another process is to try.
const REMOUNT: Millis = 60_000;

/// Most records that wait to be written.
const MAX_WAITING: usize = 8192;

/// The proofs of this node's order, on their way to the others.
struct Spreading {
    number: u64,
    text: String,
    id: u64,
    witnesses: Option<Witnesses>,
    is_done: bool,
}

/// What the supervisor wants to have of a host.
struct Taking {
    number: u64,
    host: String,
    locks: bool,
}

struct Waiting {
    text: Option<String>,
    life: Duration,
}

/// The process at work.
pub struct Session {
    store: Store,
    link: SharedLink,
    /// This process among those of all nodes.
    own: String,
    begun: Millis,
    round: u64,
    next: Millis,
    retry: Millis,
    /// Since when the place is not reached; none before the first attempt has come to something.
    reached: Option<bool>,
    lost_since: Millis,
    /// Records to be written.
    waiting: BTreeMap<SharedRecord, Waiting>,
    releases: bool,
    taking: Option<Taking>,
    spreading: Option<Spreading>,
    /// The proofs of another node that the supervisor knows.
    known: u64,
    /// Those that the fronts serve.
    serving: u64,
}

fn random() -> Result<u64, String> {
    let mut bytes = [0; 8];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| format!("the system has no random numbers: {error}"))?;
    Ok(u64::from_ne_bytes(bytes).max(1))
}

impl Session {
    /// A session that has not connected.
    ///
    /// # Errors
    /// One sentence, when there are no root certificates or random numbers.
    pub fn new(settings: &SharedSettings, link: SharedLink) -> Result<Session, String> {
        let own = format!("{:016x}", random()?);
        let now = since_boot_millis();
        Ok(Session {
            store: Store::new(settings, &own)?,
            link,
            own,
            begun: now,
            round: 0,
            next: now,
            retry: RETRY.0,
            reached: None,
            lost_since: now,
            waiting: BTreeMap::new(),
            releases: false,
            taking: None,
            spreading: None,
            known: 0,
            serving: 0,
        })
    }

    /// Runs until the supervisor has exited, or another process is to try.
    ///
    /// # Errors
    /// One sentence, when it cannot work.
    pub async fn run(mut self) -> Result<(), String> {
        let mut orders = self.link.orders()?;
        loop {
            let wait = self.next.saturating_sub(since_boot_millis());
            tokio::select! {
                order = orders.recv() => match order {
                    None => {
                        self.leave().await;
                        return Ok(());
                    }
                    Some(order) => self.obey(order)?,
                },
                () = sleep(Duration::from_millis(wait)) => {}
            }
            let now = since_boot_millis();
            if self.reached == Some(false) && now < self.next {
                continue;
            }
            let done = self.work().await;
            self.came_to(done)?;
            let is_lost = self.reached == Some(false);
            let lost_for = since_boot_millis().saturating_sub(self.lost_since);
            if is_lost && self.store.is_folder() && lost_for > REMOUNT {
                return Ok(());
            }
        }
    }

    /// Gives the lock back, and removes the registration, for which others would wait.
    async fn leave(&mut self) {
        if self.reached != Some(true) {
            return;
        }
        self.releases = true;
        self.taking = None;
        self.spreading = None;
        self.next = Millis::MAX;
        let own = self.own.clone();
        let left = timeout(LEAVE, async {
            self.work().await?;
            self.store.forget(&own).await
        });
        if let Ok(Err(why)) = left.await {
            tracing::debug!("the shared certificates were not left: {why}");
        }
    }

    fn obey(&mut self, order: ToShared) -> Result<(), String> {
        match order {
            ToShared::Begin => {}
            ToShared::Take { number, host, locks } => {
                self.taking = Some(Taking { number, host, locks });
            }
            ToShared::Write { record, text, life } => {
                let has_room = self.waiting.len() < MAX_WAITING;
                if has_room || self.waiting.contains_key(&record) {
                    let text = text.map(|Sealed(text)| text);
                    self.waiting.insert(record, Waiting { text, life });
                }
            }
            ToShared::Spread { number, text: Sealed(text) } => {
                let id = random()?;
                self.spreading =
                    Some(Spreading { number, text, id, witnesses: None, is_done: false });
            }
            ToShared::Serving { id } => {
                self.serving = id;
                // Another node waits for it.
                self.next = since_boot_millis();
            }
            ToShared::Release => {
                self.spreading = None;
                self.releases = true;
            }
        }
        Ok(())
    }

    fn came_to(&mut self, done: Result<(), String>) -> Result<(), String> {
        let now = since_boot_millis();
        match done {
            Ok(()) => {
                self.retry = RETRY.0;
                if self.reached.replace(true) != Some(true) {
                    self.link.say(&FromShared::Reached)?;
                }
            }
            Err(why) => {
                self.store.disconnect();
                self.next = now.saturating_add(self.retry);
                self.retry = (self.retry * 2).min(RETRY.1);
                self.taking = None;
                if self.reached.replace(false) != Some(false) {
                    self.lost_since = now;
                    self.link.say(&FromShared::Lost { why })?;
                }
            }
        }
        Ok(())
    }

    /// Does what is to be done.
    async fn work(&mut self) -> Result<(), String> {
        if since_boot_millis() >= self.next {
            self.round().await?;
        }
        while let Some((record, waiting)) = self.waiting.first_key_value() {
            let (record, life) = (record.clone(), waiting.life);
            self.store.write(&record, waiting.text.as_deref(), life).await?;
            self.waiting.remove(&record);
        }
        if self.releases {
            // Without the lock, they are those of another node's order. It may have got the lock
            // while the place was not reached from here.
            if self.store.has_lock().await? {
                self.store.write(&SharedRecord::Proofs, None, LOCK_TIME).await?;
                self.store.unlock().await?;
            }
            self.releases = false;
        }
        if let Some(taking) = &self.taking {
            let Taking { number, host, locks } = taking;
            let (number, host, locks) = (*number, host.clone(), *locks);
            self.take(number, &host, locks).await?;
            self.taking = None;
        }
        self.spread().await
    }

    /// Registers this node, and looks for the proofs of another one.
    async fn round(&mut self) -> Result<(), String> {
        let pause = if self.spreading.is_some() { SPREAD_ROUND } else { ROUND };
        self.next = since_boot_millis().saturating_add(pause);
        self.round += 1;
        self.store.register(&registration(self.round, self.serving)).await?;
        let proofs = self.store.read(&SharedRecord::Proofs).await?;
        let parsed = proofs.as_deref().and_then(|text| {
            let (id, sealed) = text.split_once(' ')?;
            let id = u64::from_str_radix(id, 16).ok().filter(|id| *id > 0)?;
            (sealed.len() <= MAX_SEALED_BYTES).then(|| (id, sealed.to_owned()))
        });
        let own = self.spreading.as_ref().map(|one| one.id);
        let (id, text) = match parsed {
            Some((id, sealed)) if own != Some(id) => (id, Some(Sealed(sealed))),
            _ => (0, None),
        };
        if id != self.known {
            self.known = id;
            self.link.say(&FromShared::Proofs { id, text })?;
        }
        Ok(())
    }

    /// Reads what there is of a host. The lock comes first: what its former holder has written is
    /// seen then.
    async fn take(&mut self, number: u64, host: &str, locks: bool) -> Result<(), String> {
        let is_locked = locks && self.store.lock().await?;
        let mut read = [None, None, None];
        let records = [
            (SharedRecord::Account, MAX_SEALED_BYTES),
            (SharedRecord::Certificate(host.to_owned()), MAX_SEALED_BYTES),
            (SharedRecord::Failure(host.to_owned()), MAX_FAILURE_BYTES),
        ];
        for ((record, most), into) in records.into_iter().zip(&mut read) {
            let text = self.store.read(&record).await?;
            *into = text.filter(|text| text.len() <= most).map(Sealed);
        }
        let [account, certificate, failure] = read;
        if let Some(text) = account {
            self.link.say(&FromShared::Account { text })?;
        }
        self.link.say(&FromShared::Found { number, certificate, failure, is_locked })
    }

    /// Brings the proofs of this node's order to the others.
    async fn spread(&mut self) -> Result<(), String> {
        let spreading = self.spreading.as_mut().filter(|spreading| !spreading.is_done);
        let Some(spreading) = spreading else { return Ok(()) };
        let now = since_boot_millis();
        let witnesses = match &mut spreading.witnesses {
            Some(witnesses) => witnesses,
            none => {
                let text = format!("{:x} {}", spreading.id, spreading.text);
                self.store.write(&SharedRecord::Proofs, Some(&text), LOCK_TIME).await?;
                self.next = now.saturating_add(SPREAD_ROUND);
                let is_patient = now.saturating_sub(self.begun) < START;
                let most = Millis::try_from(SPREAD_TIME.as_millis()).unwrap_or(Millis::MAX);
                let new = Witnesses::new(spreading.id, &self.own, now).within(most, is_patient);
                none.insert(new)
            }
        };
        let nodes = self.store.nodes().await?;
        let Some(verdict) = witnesses.look(&nodes, now) else { return Ok(()) };
        let number = spreading.number;
        // Its proofs stay until the order has ended.
        spreading.is_done = true;
        for node in &verdict.gone {
            self.store.forget(node).await?;
        }
        self.link.say(&FromShared::Spread { number, missing: verdict.missing })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use maitred_control::shared_certificates::SharedAccess;
    use maitred_os::channel::{Channel, SupervisorEnd};

    use super::*;

    /// A node with its certificates in this folder, and the supervisor's end of its channel.
    fn node(folder: &Path) -> (Session, SupervisorEnd) {
        let place = SharedAccess::Folder(folder.to_owned());
        let settings =
            SharedSettings { identity: None, restricted: false, place, authority: "ca".to_owned() };
        let (ours, theirs) = Channel::pair().unwrap();
        (Session::new(&settings, SharedLink::new(theirs)).unwrap(), ours)
    }

    async fn obeys(node: &mut Session, order: ToShared) {
        node.obey(order).unwrap();
        node.work().await.unwrap();
    }

    async fn orders(node: &mut Session) {
        let host = "a.example".to_owned();
        obeys(node, ToShared::Take { number: 1, host, locks: true }).await;
        obeys(node, ToShared::Spread { number: 2, text: Sealed("proofs".to_owned()) }).await;
    }

    #[tokio::test]
    async fn a_node_whose_lock_has_run_out_leaves_the_proofs_of_the_next_order() {
        let folder = tempfile::tempdir().unwrap();
        let proofs = folder.path().join("ca/proofs");
        let ((mut a, _a), (mut b, _b)) = (node(folder.path()), node(folder.path()));
        orders(&mut a).await;
        // As the other node does when the time of the lock is over.
        fs::remove_file(folder.path().join("ca/lock.0")).unwrap();
        orders(&mut b).await;
        let of_b = fs::read_to_string(&proofs).unwrap();
        obeys(&mut a, ToShared::Release).await;
        assert_eq!(fs::read_to_string(&proofs).unwrap(), of_b);
        obeys(&mut b, ToShared::Release).await;
        assert!(!proofs.exists(), "its own are removed");
    }
}
