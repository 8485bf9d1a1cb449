//! Settings of a site's responses: compression, and files named by scripts.

use std::path::PathBuf;

use maitred_rules::content_encoding::ContentEncoding;
use serde::{Deserialize, Serialize};

use crate::model::with_defaults::with_defaults;

/// Text under its other names, and formats without compression of their own.
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

with_defaults! {
/// Compression, and files named by scripts, in a site's responses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Output {
    /// Directories with files that scripts may name in the `X-Accel-Redirect` or `X-Sendfile`
    /// header.
    pub sendfile_roots: Vec<SendfileRoot> = Vec::new(),
    /// The content encodings of responses, in the order of preference.
    pub compression: Vec<ContentEncoding> = ContentEncoding::ALL.to_vec(),
    /// Whether precompressed files next to the originals are sent (nginx's `gzip_static`).
    pub precompressed: bool = true,
    /// Minimum size in bytes of a compressed response. Below the default, the extra headers and the
    /// packet overhead outweigh the savings.
    pub compression_min_length: u64 = 1024,
    /// The media types to compress: a whole type, a prefix that ends with a slash, or a suffix that
    /// starts with a plus.
    pub compression_types: Vec<String> = DEFAULT_TYPES.map(str::to_owned).to_vec(),
}
}

/// A directory with files that scripts may name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SendfileRoot {
    /// The prefix of paths in the `X-Accel-Redirect` header: starts and ends with a slash.
    pub path: String,
    /// The directory, as an absolute path.
    pub folder: PathBuf,
}
