//! Reads the stacks of a zygote's workers: each worker sends the zygote a descriptor of its own
//! memory before it serves, and only the zygote ever reads from it.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use maitred_control::stack::{Frame, Stack};
use maitred_control::{Incarnation, Seat};
use maitred_os::fork::OwnProc;
use maitred_os::packets::{Packets, Received};
use maitred_os::process_memory::ProcessMemory;
use maitred_php::{Memory, Sample, Sampler, read_stack};
use maitred_seat::is_newer;

/// The memory of the workers that a zygote has forked.
#[derive(Debug)]
pub struct StackReader {
    /// The end on which workers send their memory. Each inherits both ends and closes them.
    workers: Packets,
    zygote: Packets,
    /// The memory of the latest worker of each seat. That of an exited worker reads as nothing.
    memories: HashMap<Seat, (Incarnation, ProcessMemory)>,
    seats: u32,
}

impl StackReader {
    /// Without workers.
    ///
    /// # Errors
    /// When the system is out of descriptors.
    pub fn new(seats: u32) -> io::Result<StackReader> {
        let (workers, zygote) = Packets::pair()?;
        Ok(StackReader { workers, zygote, memories: HashMap::new(), seats })
    }

    /// In a new worker: sends its memory to the zygote, and drops everything else. No worker may
    /// read another's memory.
    ///
    /// # Errors
    /// When the memory cannot be opened or sent; the worker can serve all the same.
    pub fn send_memory(
        self,
        proc: &OwnProc,
        seat: Seat,
        incarnation: Incarnation,
    ) -> io::Result<()> {
        let StackReader { workers, .. } = self;
        let memory = ProcessMemory::of_this_process(proc)?;
        send(&workers, seat, incarnation, &memory)
    }

    /// Receives the memory of new workers. Call it before each order, so that little is pending.
    pub fn receive(&mut self) {
        while let Ok(Received::Message(bytes, fds)) = self.zygote.receive(false, 1) {
            let Ok((seat, incarnation)) = serde_json::from_slice::<(Seat, Incarnation)>(&bytes)
            else {
                continue;
            };
            let newer =
                self.memories.get(&seat).is_none_or(|(known, _)| is_newer(incarnation, *known));
            if let (Some(fd), true) = (fds.into_iter().next(), newer && seat < self.seats) {
                let memory = ProcessMemory::from_fd(fd);
                self.memories.insert(seat, (incarnation, memory));
            }
        }
    }

    /// The stack of the script that a worker runs.
    ///
    /// # Errors
    /// One sentence with the reason why there is none.
    pub fn stack(
        &self,
        seat: Seat,
        incarnation: Incarnation,
        request: u64,
        depth: u32,
    ) -> Result<Stack, String> {
        let known = self.memories.get(&seat);
        let Some((_, memory)) = known.filter(|(known, _)| *known == incarnation) else {
            return Err(
                "the worker's memory cannot be read; it is older than this zygote of its pool, or \
                 could not open its /proc/self/mem"
                    .to_owned(),
            );
        };
        let stack = read_stack(&Readable(memory), request, depth);
        stack.map(report).map_err(|why| why.to_string())
    }
}

impl StackReader {
    /// Reads the stacks of the scripts that run now in the seats that `is_busy` says.
    pub fn sample(
        &self,
        sampler: &mut Sampler,
        is_busy: impl Fn(Seat) -> bool,
        mut take: impl FnMut(&Sample<'_>),
    ) {
        for (seat, (_, memory)) in &self.memories {
            if !is_busy(*seat) {
                continue;
            }
            if let Some(sample) = sampler.read(&Readable(memory)) {
                take(&sample);
            }
        }
    }
}

impl AsFd for StackReader {
    /// Readable when there is something to [receive](StackReader::receive).
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.zygote.as_fd()
    }
}

fn send(
    to: &Packets,
    seat: Seat,
    incarnation: Incarnation,
    memory: &ProcessMemory,
) -> io::Result<()> {
    to.send(&serde_json::to_vec(&(seat, incarnation))?, &[memory.as_fd()])
}

struct Readable<'a>(&'a ProcessMemory);

impl Memory for Readable<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        self.0.read(address, into)
    }
}

fn report(stack: maitred_php::Stack) -> Stack {
    let frames = stack.frames.into_iter().map(|frame| Frame {
        address: frame.address,
        call: frame.call.to_string(),
        file: frame.file,
        line: frame.line,
    });
    let mut report =
        Stack { script: stack.script, frames: frames.collect(), is_sound: stack.is_sound };
    report.fit();
    report
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_workers_of_a_seat_the_later_is_seen_whichever_speaks_first() {
        let mut stacks = StackReader::new(2).unwrap();
        let proc = OwnProc::open().unwrap();
        for (seat, incarnation) in [(0, 2), (0, 1), (1, 5), (2, 1)] {
            let memory = ProcessMemory::of_this_process(&proc).unwrap();
            send(&stacks.workers, seat, incarnation, &memory).unwrap();
        }
        stacks.receive();
        let mut seen: Vec<(Seat, Incarnation)> =
            stacks.memories.iter().map(|(seat, (incarnation, _))| (*seat, *incarnation)).collect();
        seen.sort_unstable();
        assert_eq!(seen, [(0, 2), (1, 5)]);
        let why = stacks.stack(0, 1, 1, 20).unwrap_err();
        assert!(why.contains("older than this zygote"), "{why}");
        // This process runs no script.
        let why = stacks.stack(0, 2, 1, 20).unwrap_err();
        assert!(why.contains("before its stack could be read"), "{why}");
    }
}
