//! The stack of a running script, as a zygote reports it.

use serde::{Deserialize, Serialize};

/// The [`Frame::call`] of the script itself.
pub const MAIN: &str = "{main}";

/// Most frames of a stack. With the longest names and paths it still fits one message, since a
/// zygote leaves out frames that make it longer than [`STACK_BYTES_MAX`].
pub const STACK_DEPTH_MAX: u32 = 100;

/// Most bytes of text in a stack: half a message, since JSON escapes some characters.
pub const STACK_BYTES_MAX: usize = maitred_os::channel::MAX_MESSAGE_BYTES / 2;

/// A stack, the innermost call first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The script's file; empty in shutdown functions.
    pub script: String,
    /// The requested frames, and after them those, if any, that show where the last of them was
    /// called from.
    pub frames: Vec<Frame>,
    /// Whether the frames fit together. If not, the script calls and returns too fast to be read.
    pub is_sound: bool,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Address of PHP's record of it, which distinguishes calls of one function.
    pub address: u64,
    /// `function`, `Class::function`, `Class->function`, `[INCLUDE_OR_EVAL]` or [`MAIN`].
    pub call: String,
    /// The file of that code; none for a function that is not written in PHP.
    pub file: Option<String>,
    /// The line in that file; 0: not known.
    pub line: u32,
}

impl Stack {
    /// Drops the outermost frames that make this stack too long for a message.
    pub fn fit(&mut self) {
        let mut bytes = self.script.len();
        let mut fits = |frame: &Frame| {
            bytes += frame.call.len() + frame.file.as_ref().map_or(0, String::len) + FRAME_BYTES;
            bytes <= STACK_BYTES_MAX
        };
        let count = self.frames.iter().take_while(|frame| fits(frame)).count();
        self.frames.truncate(count);
    }
}

/// Most bytes of a frame in a message besides its texts.
const FRAME_BYTES: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stack_fits_a_message() {
        let frame = Frame {
            address: u64::MAX,
            // Quotes are written with two bytes.
            call: "\"".repeat(2 * 255),
            file: Some("\"".repeat(1023)),
            line: u32::MAX,
        };
        let mut stack = Stack {
            script: "\"".repeat(1023),
            frames: vec![frame; STACK_DEPTH_MAX as usize],
            is_sound: true,
        };
        stack.fit();
        assert!(stack.frames.len() > 10);
        let traced = crate::FromZygote::Traced { trace: u64::MAX, stack: Ok(stack) };
        let length = serde_json::to_vec(&traced).unwrap().len();
        assert!(length <= maitred_os::channel::MAX_MESSAGE_BYTES, "{length}");
    }
}
