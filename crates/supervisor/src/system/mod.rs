//! What the machine has: users, programs, control groups.

pub mod cgroups;
pub mod confinement;
pub mod deferred_close;
pub mod faults;
pub mod folder_owner;
pub mod identity;
pub mod path_trust;
pub mod peer_secret;
pub mod pool_files;
pub mod private_folders;
pub mod programs;
pub mod redis_files;
pub mod site_folders;
pub mod upload_folders;
