//! `private_dir`: where users of pools have folders of their own.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The directory in which each user of pools has a folder for temporary files and sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PrivateDir {
    /// The server's own state directory, if pools run as several users; otherwise none.
    #[default]
    Auto,
    /// None: pools use the folders that PHP is configured with.
    Off,
    /// This directory, whatever the number of users.
    At(PathBuf),
}
