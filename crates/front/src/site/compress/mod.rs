//! Compression of responses (RFC 9110 §8.4): which responses, with which content encoding, and the
//! encoders.
//!
//! Whether a response is compressed depends on its headers, never on how it is sent. `Vary` is set
//! wherever it could be, also for a client without the `Accept-Encoding` header.

pub(crate) mod encoder;
pub(crate) mod passing;
pub(crate) mod plan;
pub(crate) mod variants;

use maitred_config::Output;
use maitred_http1::Head;
use maitred_rules::content_encoding::{Accepted, ContentEncoding, is_among};

pub use crate::site::compress::encoder::{Effort, Encoder};
pub use crate::site::compress::passing::PassingEncoder;
pub use crate::site::compress::plan::Plan;
pub use crate::site::compress::variants::{Made, Siblings};

/// The compression settings of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    /// Encodings for responses as they are sent; empty: none.
    codings: Vec<ContentEncoding>,
    /// Encodings for cached variants: the smallest first.
    kept: Vec<ContentEncoding>,
    /// Precompressed files are sent.
    precompressed: bool,
    /// Least bytes of a body.
    min_length: u64,
    types: Vec<String>,
}

impl Compression {
    /// The settings of a site; none if it compresses nothing.
    pub fn of(output: &Output) -> Option<Compression> {
        let Output { compression, precompressed, .. } = output;
        (*precompressed || !compression.is_empty()).then(|| Compression {
            codings: compression.clone(),
            kept: {
                let smallest = ContentEncoding::SMALLEST.into_iter();
                let used = smallest.filter(|coding| compression.contains(coding));
                used.collect()
            },
            precompressed: *precompressed,
            min_length: output.compression_min_length,
            types: output.compression_types.clone(),
        })
    }

    /// Whether content of this type and length is compressed. Unknown values count as suitable.
    pub fn suits(&self, content_type: &[u8], length: Option<u64>) -> bool {
        length.is_none_or(|length| length >= self.min_length) && is_among(content_type, &self.types)
    }

    /// The encodings for cached variants, in order of preference.
    pub fn kept(&self) -> &[ContentEncoding] {
        &self.kept
    }

    /// The encodings for responses that are compressed while they are sent, in order of preference.
    pub fn codings(&self) -> &[ContentEncoding] {
        &self.codings
    }

    /// Whether precompressed files are sent.
    pub fn precompressed(&self) -> bool {
        self.precompressed
    }
}

pub(crate) fn accepted(head: &Head) -> Accepted {
    Accepted::of(head.values("accept-encoding"))
}
