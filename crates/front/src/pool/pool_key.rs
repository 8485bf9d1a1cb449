//! What tells pools apart.

use std::sync::Arc;

use maitred_config::{Pool as Settings, PoolUser};

/// A pool whose user has changed is another one: requests that have begun before keep to its
/// workers, no others reach them, and its scripts purge no page of the new tenant.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PoolKey {
    /// Its name, which all its generations share.
    pub name: Arc<str>,
    /// Its user, which they share as well.
    pub user: PoolUser,
}

impl PoolKey {
    /// That of the pool with these settings.
    pub fn of(settings: &Settings) -> PoolKey {
        PoolKey { name: settings.name.as_str().into(), user: settings.runs_as }
    }
}
