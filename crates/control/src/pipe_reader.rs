//! Messages between the supervisor and the process that reads and closes the pipes that code of
//! pools can write to.

use maitred_os::users::Identity;
use serde::{Deserialize, Serialize};

/// Most bytes that are read for one order: a report has up to six for each of them (`\u0000`).
pub const PIPE_READ_BYTES: usize = 8 * 1024;

/// Most descriptors of one [`ToPipeReader::Take`].
pub const PIPES_TAKEN_AT_ONCE: usize = 32;

/// Orders to the process that reads pipes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToPipeReader {
    /// The first order. Reply: [`FromPipeReader::Ready`].
    Begin {
        /// The process with which it ends.
        supervisor: i32,
        /// Its user; none: it stays the one that it is.
        identity: Option<Identity>,
        /// Whether it is sandboxed, like the front.
        restricted: bool,
    },
    /// Read once from the pipe that comes along. Reply: [`FromPipeReader::Read`].
    Read,
    /// Have the pipes that come along open until [`ToPipeReader::Close`]. No reply.
    Take,
    /// Close the pipes that were taken: the supervisor has closed its own descriptors, so this is
    /// the last close. Reply: [`FromPipeReader::Closed`].
    Close,
}

/// Reports of the process that reads pipes: one for each order, in the order of those.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromPipeReader {
    /// It takes orders.
    Ready,
    /// A pipe was read.
    Read {
        /// The outcome.
        outcome: PipeOutcome,
    },
    /// What was taken is closed.
    Closed,
}

/// The outcome of one read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum PipeOutcome {
    /// Bytes, [`PIPE_READ_BYTES`] at most.
    Bytes(PipeText),
    /// The pipe is empty.
    Nothing,
    /// No process can write to it any more.
    End,
    /// An error that is no end of the pipe's data.
    Failed {
        /// The error.
        why: String,
    },
}

/// Bytes as characters of the same number (ISO 8859-1), for JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipeText(String);

impl PipeText {
    /// The text of these bytes.
    pub fn of(bytes: &[u8]) -> PipeText {
        PipeText(bytes.iter().copied().map(char::from).collect())
    }

    /// The bytes of this text. Other characters are left out.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.chars().filter_map(|one| u8::try_from(u32::from(one)).ok()).collect()
    }
}

#[cfg(test)]
mod tests {
    use maitred_os::channel::MAX_MESSAGE_BYTES;

    use super::*;

    #[test]
    fn all_bytes_arrive_and_the_longest_report_fits_into_a_message() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(PipeText::of(&all).bytes(), all);
        let zeros = PipeText::of(&[0; PIPE_READ_BYTES]);
        let longest = FromPipeReader::Read { outcome: PipeOutcome::Bytes(zeros) };
        assert!(serde_json::to_vec(&longest).unwrap().len() <= MAX_MESSAGE_BYTES);
    }
}
