//! The interface of `shim/trace.c`.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{any::Any, slice};

use crate::stack::{Call, Frame, INCLUDE, MAIN, Memory, Reading};
use crate::stack_samples::CallName;

const NAME_BYTES: usize = 256;
const PATH_BYTES: usize = 1024;

/// Additional frames, one of which may show the caller of the last wanted frame.
const FURTHER_FRAMES: usize = 16;

const WHOLE: c_int = 0;
const CUT: c_int = 1;

#[repr(C)]
struct RawMemory {
    context: *mut c_void,
    read: extern "C" fn(*mut c_void, u64, *mut c_void, usize) -> bool,
}

#[repr(C)]
#[derive(Clone, Debug)]
struct RawFrame {
    address: u64,
    line: u32,
    kind: u8,
    has_file: bool,
    class_name: [u8; NAME_BYTES],
    function: [u8; NAME_BYTES],
    file: [u8; PATH_BYTES],
}

#[repr(C)]
struct RawStack {
    frames: *mut RawFrame,
    capacity: usize,
    wanted: usize,
    calls_only: bool,
    count: usize,
    end: c_int,
    script: [u8; PATH_BYTES],
}

unsafe extern "C" {
    fn maitred_php_trace(memory: *const RawMemory, stack: *mut RawStack);
    fn maitred_php_running_request(memory: *const RawMemory, is_running: *mut bool) -> u64;
}

/// The target of the callback's `context`.
struct Reader<'a> {
    memory: &'a dyn Memory,
    panic: Option<Box<dyn Any + Send>>,
}

extern "C" fn read(context: *mut c_void, address: u64, into: *mut c_void, length: usize) -> bool {
    // SAFETY: C passes back the pointer that `read_stack` gave it, during that call only and on
    // the same thread, so this is the one reference to the reader.
    let reader = unsafe { &mut *context.cast::<Reader<'_>>() };
    if reader.panic.is_some() {
        return false;
    }
    // SAFETY: C passes `length` bytes that no other code uses during the call; they are zeroed
    // first, since safe code may read what it was given to fill.
    let into = unsafe {
        std::ptr::write_bytes(into.cast::<u8>(), 0, length);
        slice::from_raw_parts_mut(into.cast::<u8>(), length)
    };
    match catch_unwind(AssertUnwindSafe(|| reader.memory.read(address, into))) {
        Ok(done) => done,
        Err(panic) => {
            reader.panic = Some(panic);
            false
        }
    }
}

/// Has C read `memory`.
fn with_memory<R>(memory: &dyn Memory, work: impl FnOnce(*const RawMemory) -> R) -> R {
    let mut reader = Reader { memory, panic: None };
    let result = work(&RawMemory { context: (&raw mut reader).cast(), read });
    if let Some(panic) = reader.panic.take() {
        resume_unwind(panic);
    }
    result
}

/// The number of requests that the process with this memory has started, and whether the last one
/// is running; `None`: it cannot be read.
pub(crate) fn running_request(memory: &dyn Memory) -> Option<(u64, bool)> {
    let mut is_running = false;
    let request = with_memory(memory, |memory| {
        // SAFETY: both outlive the call. C reads the address of a static and what the callback
        // gives it, so no engine needs to run.
        unsafe { maitred_php_running_request(memory, &raw mut is_running) }
    });
    (request != 0).then_some((request, is_running))
}

/// Room for a walk over a stack, which further walks reuse.
#[derive(Debug)]
pub(crate) struct Walk {
    frames: Vec<RawFrame>,
    count: usize,
    end: c_int,
    script: [u8; PATH_BYTES],
}

impl Walk {
    /// For `wanted` frames.
    pub(crate) fn new(wanted: usize) -> Walk {
        let empty = RawFrame {
            address: 0,
            line: 0,
            kind: 0,
            has_file: false,
            class_name: [0; NAME_BYTES],
            function: [0; NAME_BYTES],
            file: [0; PATH_BYTES],
        };
        let frames = vec![empty; wanted + FURTHER_FRAMES];
        Walk { frames, count: 0, end: CUT, script: [0; PATH_BYTES] }
    }

    /// Walks the stack in `memory` once; without files and lines if `calls_only`.
    pub(crate) fn read(&mut self, memory: &dyn Memory, calls_only: bool) {
        let mut stack = RawStack {
            frames: self.frames.as_mut_ptr(),
            capacity: self.frames.len(),
            wanted: self.frames.len() - FURTHER_FRAMES,
            calls_only,
            count: 0,
            end: CUT,
            script: [0; PATH_BYTES],
        };
        with_memory(memory, |memory| {
            // SAFETY: `frames` has room for `capacity` frames and, like the memory, outlives the
            // call and is not touched by Rust meanwhile. What C reads of PHP are addresses of
            // symbols and what the callback gives it, so no engine needs to run.
            unsafe { maitred_php_trace(memory, &raw mut stack) };
        });
        self.count = stack.count.min(self.frames.len());
        self.end = stack.end;
        self.script = stack.script;
    }

    pub(crate) fn is_sound(&self) -> bool {
        matches!(self.end, WHOLE | CUT)
    }

    /// The script's file, as its process has it.
    pub(crate) fn script(&self) -> &[u8] {
        up_to_nul(&self.script)
    }

    /// The calls, innermost first.
    pub(crate) fn calls(&self) -> impl DoubleEndedIterator<Item = CallName<'_>> {
        self.frames[..self.count].iter().map(call_name)
    }

    fn frames(&self) -> Vec<Frame> {
        self.frames[..self.count].iter().map(frame).collect()
    }
}

/// Walks the stack in `memory` once, for `wanted` frames.
pub(crate) fn read_stack(memory: &dyn Memory, wanted: usize) -> Reading {
    let mut reading = Reading {
        request: 0,
        is_running: false,
        script: String::new(),
        frames: Vec::new(),
        is_sound: false,
    };
    let before = running_request(memory);
    let Some((request, is_running)) = before else { return reading };
    (reading.request, reading.is_running) = (request, is_running);
    if is_running {
        let mut walk = Walk::new(wanted);
        walk.read(memory, false);
        reading.is_sound = walk.is_sound() && running_request(memory) == before;
        reading.script = text(&walk.script);
        reading.frames = walk.frames();
    }
    reading
}

fn call_name(raw: &RawFrame) -> CallName<'_> {
    let (class, function) = (up_to_nul(&raw.class_name), up_to_nul(&raw.function));
    match raw.kind {
        1 => CallName { class, between: "::", function },
        2 => CallName { class, between: "->", function },
        3 => CallName::of(INCLUDE.as_bytes()),
        4 => CallName::of(MAIN.as_bytes()),
        _ => CallName::of(function),
    }
}

fn frame(raw: &RawFrame) -> Frame {
    let (class, function) = (text(&raw.class_name), text(&raw.function));
    let call = match raw.kind {
        1 => Call::Static { class, function },
        2 => Call::Method { class, function },
        3 => Call::Include,
        4 => Call::Main,
        _ => Call::Function(function),
    };
    Frame {
        address: raw.address,
        call,
        file: raw.has_file.then(|| text(&raw.file)),
        line: raw.line,
    }
}

/// Bytes up to the first NUL, as text that cannot break a line of a log.
fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(up_to_nul(bytes)).replace(char::is_control, "?")
}

fn up_to_nul(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().position(|byte| *byte == 0);
    &bytes[..end.unwrap_or(bytes.len())]
}
