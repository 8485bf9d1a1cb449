//! What a site says about how its answers leave: files that its scripts name.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// How the answers of a site leave.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Folders whose files its scripts may have sent in place of their own answers.
    pub sendfile_roots: Vec<SendfileRoot>,
}

/// A folder whose files scripts may have sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendfileRoot {
    /// What the paths of `X-Accel-Redirect` begin with: begins and ends with a slash.
    pub path: String,
    /// The folder, as an absolute path.
    pub folder: PathBuf,
}
