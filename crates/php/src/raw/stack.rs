//! The interface of `shim/trace.c`.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::{any::Any, slice};

use crate::stack::{Call, Frame, Memory, Reading};

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
#[derive(Clone)]
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
    count: usize,
    request: u64,
    is_running: bool,
    end: c_int,
    script: [u8; PATH_BYTES],
}

unsafe extern "C" {
    fn maitred_php_trace(memory: *const RawMemory, stack: *mut RawStack);
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

/// Walks the stack in `memory` once, for `wanted` frames.
pub(crate) fn read_stack(memory: &dyn Memory, wanted: usize) -> Reading {
    let empty = RawFrame {
        address: 0,
        line: 0,
        kind: 0,
        has_file: false,
        class_name: [0; NAME_BYTES],
        function: [0; NAME_BYTES],
        file: [0; PATH_BYTES],
    };
    let mut frames = vec![empty; wanted + FURTHER_FRAMES];
    let mut reader = Reader { memory, panic: None };
    let raw_memory = RawMemory { context: (&raw mut reader).cast(), read };
    let mut stack = RawStack {
        frames: frames.as_mut_ptr(),
        capacity: frames.len(),
        wanted,
        count: 0,
        request: 0,
        is_running: false,
        end: CUT,
        script: [0; PATH_BYTES],
    };
    // SAFETY: `frames` has room for `capacity` frames and, like the reader, outlives the call and
    // is not touched by Rust meanwhile. What C reads of PHP are addresses of symbols and what the
    // callback gives it, so no engine needs to run.
    unsafe { maitred_php_trace(&raw const raw_memory, &raw mut stack) };
    if let Some(panic) = reader.panic.take() {
        resume_unwind(panic);
    }
    frames.truncate(stack.count);
    Reading {
        request: stack.request,
        is_running: stack.is_running,
        script: text(&stack.script),
        frames: frames.iter().map(frame).collect(),
        is_sound: matches!(stack.end, WHOLE | CUT),
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
    let end = bytes.iter().position(|byte| *byte == 0);
    let bytes = &bytes[..end.unwrap_or(bytes.len())];
    String::from_utf8_lossy(bytes).replace(char::is_control, "?")
}
