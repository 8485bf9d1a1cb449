//! The stack of a running script, as a zygote reports it.

use serde::{Deserialize, Serialize};

/// The value of [`Frame::call`] for the script's main code.
pub const MAIN: &str = "{main}";

/// Most frames of a stack. With the longest names and paths it still fits one message, since a
/// zygote leaves out frames that make it longer than [`STACK_BYTES_MAX`].
pub const STACK_DEPTH_MAX: u32 = 100;

/// Maximum bytes of text in a stack: half a message, since JSON escapes some characters.
pub const STACK_BYTES_MAX: usize = maitred_os::channel::MAX_MESSAGE_BYTES / 2;

/// A stack, the innermost call first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// The script's file; empty in shutdown functions.
    pub script: String,
    /// The requested frames, followed by the frames that show the call site of the last of them.
    pub frames: Vec<Frame>,
    /// Whether the frames form a consistent stack. If not, the script calls and returns too fast to
    /// be read.
    pub is_sound: bool,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// Address of PHP's call frame: distinguishes two calls of the same function.
    pub address: u64,
    /// `function`, `Class::function`, `Class->function`, `[INCLUDE_OR_EVAL]` or [`MAIN`].
    pub call: String,
    /// The file of the called code; none for internal functions.
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
