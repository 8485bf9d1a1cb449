//! What the machine has: users, programs, control groups.

pub mod confinement;
pub mod groups;
pub mod identity;
pub mod programs;
pub mod trust;
pub mod upload_folders;
