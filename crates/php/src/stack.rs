//! The stack of a script that runs in another process, read while it runs.

use std::fmt;

use crate::raw;

/// Most frames of one stack.
pub const STACK_DEPTH_MAX: u32 = 100;

/// Most attempts until two consecutive walks agree. The script keeps running meanwhile: a waiting
/// script agrees at once, a computing one may never.
const READINGS_MAX: usize = 8;

/// The memory of another process.
pub trait Memory {
    /// Reads from `address`; false when not all of it can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// What stands for code that is included or evaluated, and for the script itself.
pub(crate) const INCLUDE: &str = "[INCLUDE_OR_EVAL]";
pub(crate) const MAIN: &str = "{main}";

/// The call of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A function.
    Function(String),
    /// A method without an object.
    Static {
        /// The class it is defined in.
        class: String,
        /// Its name.
        function: String,
    },
    /// A method of an object.
    Method {
        /// The class it is defined in.
        class: String,
        /// Its name.
        function: String,
    },
    /// A file that is included, or code that is evaluated.
    Include,
    /// The script itself.
    Main,
}

impl fmt::Display for Call {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Function(function) => out.write_str(function),
            Call::Static { class, function } => write!(out, "{class}::{function}"),
            Call::Method { class, function } => write!(out, "{class}->{function}"),
            Call::Include => out.write_str(INCLUDE),
            Call::Main => out.write_str(MAIN),
        }
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address of the engine's record of the call (`zend_execute_data`).
    pub address: u64,
    /// The call.
    pub call: Call,
    /// The file of its code; `None` for functions that are not written in PHP.
    pub file: Option<String>,
    /// The current line in that file, which PHP saves before each call; 0: unknown.
    pub line: u32,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The script's file; empty in shutdown functions.
    pub script: String,
    /// The requested frames, innermost first, followed by those, if any, that show the caller of
    /// the last one. Empty while PHP starts or ends a request.
    pub frames: Vec<Frame>,
    /// Whether the frames are consistent. If not, they are the best reading of a script that calls
    /// and returns too fast.
    pub is_sound: bool,
}

/// One walk over a stack.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Requests that the process has started; 0: its memory cannot be read.
    pub request: u64,
    /// Whether the last of them is running.
    pub is_running: bool,
    pub script: String,
    pub frames: Vec<Frame>,
    pub is_sound: bool,
}

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// The process has exited.
    ProcessEnded,
    /// The request is over; the process has started another, or waits for one.
    RequestOver,
}

impl fmt::Display for NoStack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            NoStack::ProcessEnded => "the worker exited before its stack could be read",
            NoStack::RequestOver => "the script ended before its stack could be read",
        })
    }
}

impl std::error::Error for NoStack {}

/// Reads the stack of request number `request` (from 1) of a process that was forked from this one,
/// at most [`STACK_DEPTH_MAX`] frames. The process keeps running and is not modified.
///
/// # Errors
/// When the request is over.
pub fn read_stack(memory: &dyn Memory, request: u64, depth: u32) -> Result<Stack, NoStack> {
    let wanted = depth.clamp(1, STACK_DEPTH_MAX) as usize;
    let mut last: Option<Reading> = None;
    for _ in 0..READINGS_MAX {
        let reading = raw::stack::read_stack(memory, wanted);
        if reading.request == 0 {
            return Err(NoStack::ProcessEnded);
        }
        if reading.request != request || !reading.is_running {
            return Err(NoStack::RequestOver);
        }
        let agrees = last.as_ref().is_some_and(|last| last.agrees(&reading));
        if agrees || reading.is_better(last.as_ref()) {
            last = Some(reading);
        }
        if agrees {
            break;
        }
    }
    let reading = last.ok_or(NoStack::RequestOver)?;
    Ok(Stack { script: reading.script, frames: reading.frames, is_sound: reading.is_sound })
}

impl Reading {
    /// Whether both saw the same calls. Lines may differ, since the innermost code keeps running.
    fn agrees(&self, other: &Reading) -> bool {
        let same = |(a, b): (&Frame, &Frame)| a.address == b.address && a.call == b.call;
        self.is_sound
            && other.is_sound
            && self.frames.len() == other.frames.len()
            && self.frames.iter().zip(&other.frames).all(same)
    }

    /// Whether this reading is better than `last`.
    fn is_better(&self, last: Option<&Reading>) -> bool {
        let Some(last) = last else { return true };
        match (self.is_sound, last.is_sound) {
            (true, _) => true,
            (false, true) => false,
            (false, false) => self.frames.len() >= last.frames.len(),
        }
    }
}

#[cfg(test)]
mod tests;
