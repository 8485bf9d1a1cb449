//! What a site says about how its answers leave: compressed, or as files that its scripts name.

use std::path::PathBuf;

use maitred_rules::content_encoding::ContentEncoding;
use serde::{Deserialize, Serialize};

/// Below this, what is saved is lost again in the fields that say so and in a packet's own bytes.
const DEFAULT_MIN_LENGTH_BYTES: u64 = 1024;

/// What text is, by other names, too; not what is compressed by its own format.
const DEFAULT_TYPES: [&str; 14] = [
    "text/",
    "+json",
    "+xml",
    "application/javascript",
    "application/json",
    "application/xml",
    "application/wasm",
    "application/x-javascript",
    "application/vnd.ms-fontobject",
    "font/otf",
    "font/ttf",
    "image/bmp",
    "image/vnd.microsoft.icon",
    "image/x-icon",
];

/// How the answers of a site leave.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Folders whose files its scripts may have sent in place of their own answers.
    pub sendfile_roots: Vec<SendfileRoot>,
    /// The codings in which answers are sent to whoever takes them; the first goes before others.
    pub compression: Vec<ContentEncoding>,
    /// Whether files are sent that lie beside others, compressed.
    pub precompressed: bool,
    /// Bytes below which nothing is compressed.
    pub compression_min_length: u64,
    /// What is compressed: media types, a kind with its slash, or an ending that begins with a plus.
    pub compression_types: Vec<String>,
}

impl Default for Output {
    fn default() -> Output {
        Output {
            sendfile_roots: Vec::new(),
            compression: ContentEncoding::ALL.to_vec(),
            precompressed: true,
            compression_min_length: DEFAULT_MIN_LENGTH_BYTES,
            compression_types: DEFAULT_TYPES.map(str::to_owned).to_vec(),
        }
    }
}

/// A folder whose files scripts may have sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendfileRoot {
    /// What the paths of `X-Accel-Redirect` begin with: begins and ends with a slash.
    pub path: String,
    /// The folder, as an absolute path.
    pub folder: PathBuf,
}
