//! The owner of a pool's document root, who is the default user of the pool.

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

/// What a lookup of the document root has found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RootOwner {
    /// The owner.
    Known(Identity),
    /// It is no usable directory: the end of a sentence that starts with it.
    NoDirectory(String),
    /// Its owner cannot be the user, and why.
    Unusable(String),
}
