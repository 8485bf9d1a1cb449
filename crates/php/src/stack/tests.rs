use std::cell::Cell;

use super::*;
use crate::{Sample, Sampler};

/// Reads that a walk of [`DEPTH`] frames can at most come to, with all its bounds.
const READS_MAX: usize = 100_000;
const DEPTH: u32 = 20;
const MEMORIES: u64 = 2_000;

/// Longest name of a call, or path of a script, in bytes.
const CALL_BYTES_MAX: usize = 1024;

/// Where pointers of a hostile memory lead to, so that a walk goes on.
const WINDOW: u64 = 0x7f00_0000_0000;

/// Memory with hostile content that differs on every read.
struct Hostile {
    state: Cell<u64>,
    reads: Cell<usize>,
    /// One word in this number is a pointer into the window.
    pointers: u64,
    /// One read in this number fails.
    failures: u64,
}

impl Hostile {
    fn new(seed: u64) -> Hostile {
        Hostile {
            state: Cell::new(seed.wrapping_mul(2).wrapping_add(1)),
            reads: Cell::new(0),
            pointers: 1 + seed % 4,
            failures: 2 + (seed % 7) * (seed % 11) * 20,
        }
    }

    /// xorshift64 (Marsaglia 2003).
    fn random(&self) -> u64 {
        let mut state = self.state.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        self.state.set(state);
        state
    }
}

impl Memory for Hostile {
    fn read(&self, _address: u64, into: &mut [u8]) -> bool {
        self.reads.set(self.reads.get() + 1);
        for chunk in into.chunks_mut(8) {
            let random = self.random();
            let word = match random % self.pointers {
                0 => WINDOW + (random >> 32) % 4096 * 8,
                _ => random,
            };
            chunk.copy_from_slice(&word.to_ne_bytes()[..chunk.len()]);
        }
        !self.random().is_multiple_of(self.failures)
    }
}

/// Hostile memory of a process that runs one request: the engine's record of it, which is read
/// first, stays the same.
struct HostileRequest {
    hostile: Hostile,
    record: Cell<Option<u64>>,
}

impl Memory for HostileRequest {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let record = self.record.get().unwrap_or(address);
        self.record.set(Some(record));
        if address != record {
            return self.hostile.read(address, into);
        }
        into.fill(1);
        true
    }
}

/// Memory in which every word is the same: all pointers make a circle.
struct Circle(u64);

impl Memory for Circle {
    fn read(&self, _address: u64, into: &mut [u8]) -> bool {
        for chunk in into.chunks_mut(8) {
            chunk.copy_from_slice(&self.0.to_ne_bytes()[..chunk.len()]);
        }
        true
    }
}

#[test]
fn no_memory_leads_the_walk_astray() {
    let mut longest = 0;
    for seed in 0..MEMORIES {
        let memory = Hostile::new(seed);
        let reading = raw::stack::read_stack(&memory, DEPTH as usize);
        let count = reading.frames.len();
        assert!(count <= DEPTH as usize + 16, "seed {seed}: {count} frames");
        assert!(memory.reads.get() <= READS_MAX, "seed {seed}");
        let texts = reading.frames.iter().map(|frame| frame.call.to_string());
        for text in texts.chain([reading.script]) {
            assert!(!text.contains(char::is_control), "seed {seed}: {text:?}");
        }
        longest = longest.max(count);
    }
    assert!(longest >= DEPTH as usize, "some memories lead far: {longest}");
}

#[test]
fn no_memory_leads_a_sampler_astray() {
    let mut sampler = Sampler::new(None);
    let (mut longest, mut without) = (0, 0);
    for seed in 0..MEMORIES / 10 {
        let memory = HostileRequest { hostile: Hostile::new(seed), record: Cell::new(None) };
        let sample = sampler.read(&memory);
        let count = sample.as_ref().map_or(0, |sample| sample.calls().count());
        assert!(count <= 1 + STACK_DEPTH_MAX as usize + 16, "seed {seed}: {count} calls");
        assert!(memory.hostile.reads.get() <= READS_MAX, "seed {seed}");
        for call in sample.iter().flat_map(Sample::calls) {
            let length = call.class.len() + call.between.len() + call.function.len();
            assert!(length <= CALL_BYTES_MAX, "seed {seed}: {length} bytes");
        }
        longest = longest.max(count);
        without += usize::from(count == 0);
    }
    assert!(longest >= STACK_DEPTH_MAX as usize, "some memories lead far: {longest}");
    assert!(without > 0, "and some nowhere");
    for word in [1, 8, WINDOW, u64::MAX, u64::MAX - 7] {
        let calls = sampler.read(&Circle(word)).map_or(0, |sample| sample.calls().count());
        assert!(calls <= 1 + STACK_DEPTH_MAX as usize + 16, "{word:#x}");
    }
}

#[test]
fn a_circle_comes_to_an_end() {
    for word in [1, 8, WINDOW, u64::MAX, u64::MAX - 7] {
        let stack = read_stack(&Circle(word), word, DEPTH).expect("a stack of nonsense");
        assert!(stack.frames.len() <= DEPTH as usize + 16, "{word:#x}");
    }
}

#[test]
fn there_is_no_stack_of_a_process_that_has_gone_or_of_another_request() {
    struct Gone;
    impl Memory for Gone {
        fn read(&self, _address: u64, _into: &mut [u8]) -> bool {
            false
        }
    }
    assert_eq!(read_stack(&Gone, 1, DEPTH), Err(NoStack::ProcessEnded));
    assert_eq!(read_stack(&Circle(8), 7, DEPTH), Err(NoStack::RequestOver));
}

#[test]
#[should_panic(expected = "out of memory to read")]
fn a_panic_of_the_memory_does_not_unwind_into_c() {
    struct Panics;
    impl Memory for Panics {
        fn read(&self, _address: u64, _into: &mut [u8]) -> bool {
            panic!("out of memory to read")
        }
    }
    let _ = read_stack(&Panics, 1, DEPTH);
}

#[test]
fn two_readings_agree_on_calls_and_not_on_lines() {
    let frame = |line, name: &str| Frame {
        address: 16,
        call: Call::Function(name.to_owned()),
        file: None,
        line,
    };
    let reading = |frames, is_sound| Reading {
        request: 1,
        is_running: true,
        script: String::new(),
        frames,
        is_sound,
    };
    let one = reading(vec![frame(1, "f")], true);
    assert!(one.agrees(&reading(vec![frame(2, "f")], true)));
    assert!(!one.agrees(&reading(vec![frame(1, "g")], true)));
    assert!(!one.agrees(&reading(vec![frame(1, "f")], false)));
    assert!(!one.agrees(&reading(Vec::new(), true)));
    let broken = reading(Vec::new(), false);
    assert!(one.is_better(Some(&broken)) && !broken.is_better(Some(&one)));
}
