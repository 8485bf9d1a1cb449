//! The stack of a script that runs in another process, read while it runs.

use std::fmt;

use crate::raw;

/// Most frames that can be asked for.
pub const STACK_DEPTH_MAX: u32 = 100;

/// How often a stack is read until two readings in a row agree. The script runs on meanwhile: one
/// that waits agrees at once, one that computes may never.
const READINGS_MAX: usize = 8;

/// The memory of another process.
pub trait Memory {
    /// Reads what is at `address`; false when not all of it can be read.
    fn read(&self, address: u64, into: &mut [u8]) -> bool;
}

/// What is called in a frame.
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
    /// A file that is included, or a text that is evaluated.
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
            Call::Include => out.write_str("[INCLUDE_OR_EVAL]"),
            Call::Main => out.write_str("{main}"),
        }
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Address of the engine's record of it (`zend_execute_data`).
    pub address: u64,
    /// What is called.
    pub call: Call,
    /// The file of that code; none for what is not written in PHP.
    pub file: Option<String>,
    /// The line where it is in that file, which PHP notes down before each call; 0: not known.
    pub line: u32,
}

/// A stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The script's file; empty in shutdown functions.
    pub script: String,
    /// The frames that were asked for, the innermost first, and after them those, if any, that
    /// tell where the last of them was called from. None while PHP begins or ends a request.
    pub frames: Vec<Frame>,
    /// Whether the frames fit together. If not, they are what could be read of a script that
    /// calls and returns too fast to be looked at.
    pub is_sound: bool,
}

/// One walk over a stack.
#[derive(Debug)]
pub(crate) struct Reading {
    /// How many requests the process has begun; 0: nothing can be read of it.
    pub request: u64,
    /// Whether the last of them is in hand.
    pub is_running: bool,
    pub script: String,
    pub frames: Vec<Frame>,
    pub is_sound: bool,
}

/// Why there is no stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoStack {
    /// Nothing can be read of the process: it has ended.
    ProcessEnded,
    /// The request is over; the process has begun another, or waits for one.
    RequestOver,
}

impl fmt::Display for NoStack {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            NoStack::ProcessEnded => "the worker ended before it could be looked at",
            NoStack::RequestOver => "the script ended before it could be looked at",
        })
    }
}

impl std::error::Error for NoStack {}

/// Reads the stack of request number `request` (from 1) of a process that was forked from this one,
/// at most [`STACK_DEPTH_MAX`] frames. The process runs on, and nothing in it is changed.
///
/// # Errors
/// When the request runs no more.
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
    Ok(Stack {
        script: reading.script,
        frames: reading.frames,
        is_sound: reading.is_sound,
    })
}

impl Reading {
    /// Whether both saw the same calls. Lines may differ: the innermost code is on its way.
    fn agrees(&self, other: &Reading) -> bool {
        let same = |(a, b): (&Frame, &Frame)| a.address == b.address && a.call == b.call;
        self.is_sound
            && other.is_sound
            && self.frames.len() == other.frames.len()
            && self.frames.iter().zip(&other.frames).all(same)
    }

    /// Whether this is to be kept rather than `last`.
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
