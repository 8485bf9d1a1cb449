//! The place of what is shared. Every operation has a limit of time.

use std::time::Duration;

use maitred_control::shared_certificates::{SharedAccess, SharedRecord, SharedSettings};
use tokio::time::timeout;

use super::folder_place::FolderPlace;
use super::redis_place::RedisPlace;
use super::witnesses::Registrations;

/// Longest time for one operation.
const OPERATION: Duration = Duration::from_secs(3);

/// The place of what is shared.
pub enum Store {
    Redis(RedisPlace),
    Folder(FolderPlace),
}

/// Has a place carry an operation out.
macro_rules! on_place {
    ($self:expr, $place:ident => $operation:expr) => {{
        let done = match $self {
            Store::Redis($place) => timeout(OPERATION, $operation).await,
            Store::Folder($place) => timeout(OPERATION, $operation).await,
        };
        done.unwrap_or_else(|_| Err(too_slow()))
    }};
}

impl Store {
    /// The place of these settings, for the node `own`.
    ///
    /// # Errors
    /// One sentence, when there are no root certificates.
    pub fn new(settings: &SharedSettings, own: &str) -> Result<Store, String> {
        let authority = &settings.authority;
        Ok(match &settings.place {
            SharedAccess::Redis(access, prefix) => {
                let prefix = format!("{prefix}:acme:{authority}:");
                Store::Redis(RedisPlace::new(access.clone(), prefix, own)?)
            }
            SharedAccess::Folder(folder) => Store::Folder(FolderPlace::new(folder, authority, own)),
        })
    }

    /// Whether it is a folder. A file system that is mounted later can only be reached by another
    /// process (Landlock).
    pub fn is_folder(&self) -> bool {
        matches!(self, Store::Folder(_))
    }

    /// Begins from the start after a failure.
    pub fn disconnect(&mut self) {
        if let Store::Redis(redis) = self {
            redis.disconnect();
        }
    }

    /// Reads a record.
    ///
    /// # Errors
    /// One sentence, as for all operations.
    pub async fn read(&mut self, record: &SharedRecord) -> Result<Option<String>, String> {
        let name = record.name();
        on_place!(self, place => place.read(&name))
    }

    /// Writes or removes a record, which is of use for the time `life`.
    pub async fn write(
        &mut self,
        record: &SharedRecord,
        text: Option<&str>,
        life: Duration,
    ) -> Result<(), String> {
        let name = record.name();
        on_place!(self, place => place.write(&name, text, life))
    }

    /// Gets the lock for orders, unless another node has it.
    pub async fn lock(&mut self) -> Result<bool, String> {
        on_place!(self, place => place.lock())
    }

    /// Whether this node has the lock.
    pub async fn has_lock(&mut self) -> Result<bool, String> {
        on_place!(self, place => place.has_lock())
    }

    /// Gives the lock back, if this node has it.
    pub async fn unlock(&mut self) -> Result<(), String> {
        on_place!(self, place => place.unlock())
    }

    /// Registers this node.
    pub async fn register(&mut self, text: &str) -> Result<(), String> {
        on_place!(self, place => place.register(text))
    }

    /// The registrations of all nodes.
    pub async fn nodes(&mut self) -> Result<Registrations, String> {
        on_place!(self, place => place.nodes())
    }

    /// Removes the registration of a node.
    pub async fn forget(&mut self, node: &str) -> Result<(), String> {
        on_place!(self, place => place.forget(node))
    }
}

fn too_slow() -> String {
    format!("it has not replied within {} s", OPERATION.as_secs())
}
