//! The user that runs the scripts of a pool.

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

/// The user of a pool. Two pools of one name and of different users have nothing in common.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub enum PoolUser {
    /// That of the server.
    #[default]
    OfServer,
    /// This one.
    Known {
        /// User id.
        uid: u32,
        /// Primary group id.
        gid: u32,
    },
    /// It cannot be looked up: the pool cannot be started.
    Unknown,
}

impl PoolUser {
    /// The user with this identity; none: that of the server.
    pub fn of(identity: Option<&Identity>) -> PoolUser {
        let known = |user: &Identity| PoolUser::Known { uid: user.uid, gid: user.gid };
        identity.map_or(PoolUser::OfServer, known)
    }
}
