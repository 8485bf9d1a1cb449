//! Answers in a coding that takes less room (RFC 9110 §8.4): what is worth it, in which coding, and
//! the coding itself.
//!
//! Whether an answer is coded depends on what it says of itself, never on how it is sent. Where it
//! could have been, `Vary` says so, also to a client that takes no coding.

pub(crate) mod encoder;
pub(crate) mod plan;
pub(crate) mod variants;

use maitred_config::Output;
use maitred_http1::Head;
use maitred_rules::coding::{Accepted, Coding, is_among};

pub use crate::site::compress::encoder::{Effort, Encoder};
pub use crate::site::compress::plan::Plan;
pub use crate::site::compress::variants::{Made, Siblings};

/// What a site says about compression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compression {
    /// What is applied to answers as they are sent; empty: nothing is.
    codings: Vec<Coding>,
    /// The same for what is made once and kept: the smallest first.
    kept: Vec<Coding>,
    /// Files that lie beside others are sent.
    precompressed: bool,
    /// Bytes below which it does not pay.
    min_length: u64,
    types: Vec<String>,
}

impl Compression {
    /// What a site says; nothing if it compresses nothing.
    pub fn of(output: &Output) -> Option<Compression> {
        let Output {
            compression,
            precompressed,
            ..
        } = output;
        (*precompressed || !compression.is_empty()).then(|| Compression {
            codings: compression.clone(),
            kept: {
                let smallest = Coding::SMALLEST.into_iter();
                let used = smallest.filter(|coding| compression.contains(coding));
                used.collect()
            },
            precompressed: *precompressed,
            min_length: output.compression_min_length,
            types: output.compression_types.clone(),
        })
    }

    /// Whether content of this type and length is worth it; a length that is not known is.
    pub fn suits(&self, content_type: &[u8], length: Option<u64>) -> bool {
        length.is_none_or(|length| length >= self.min_length) && is_among(content_type, &self.types)
    }

    /// The codings in which files are made, the first before others.
    pub fn kept(&self) -> &[Coding] {
        &self.kept
    }

    /// The codings that are applied to answers as they are sent, the first before others.
    pub fn codings(&self) -> &[Coding] {
        &self.codings
    }

    /// Whether files are sent that lie beside others.
    pub fn precompressed(&self) -> bool {
        self.precompressed
    }
}

pub(crate) fn accepted(head: &Head) -> Accepted {
    Accepted::of(head.values("accept-encoding"))
}
