//! The stacks of running scripts of other processes, read many times a second.
//!
//! Each read of another process is a system call. So a walk reads whole pages, each once, and what
//! is in OPcache's memory, which is most of the code and of the names, from this process's own
//! mapping of it. Room is reused, and there is no text until a caller writes one.

use std::cell::RefCell;
use std::fmt;

use crate::raw::opcache_memory::OpcacheMemory;
use crate::raw::stack::{Walk, running_request};
use crate::stack::{Memory, STACK_DEPTH_MAX};

/// Most attempts at a sound walk, for one of many samples.
const READINGS_MAX: usize = 3;

/// Bytes that are read at once: a page, which is readable as a whole.
const PAGE_BYTES: usize = 4096;

/// Most pages of one walk; what is beyond is read piece by piece.
const PAGES_MAX: usize = 128;

/// Reads stacks.
#[derive(Debug)]
pub struct Sampler {
    walk: Walk,
    pages: Pages,
    opcache: Option<OpcacheMemory>,
}

impl Sampler {
    /// For processes that were forked from this one, and so have OPcache's memory in common with
    /// it. Without that memory, a stack takes more system calls.
    pub fn new(opcache: Option<OpcacheMemory>) -> Sampler {
        Sampler { walk: Walk::new(STACK_DEPTH_MAX as usize), pages: Pages::default(), opcache }
    }

    /// The stack of the request that a process runs, whichever it is; `None` between two requests,
    /// and where the script calls and returns too fast.
    pub fn read(&mut self, memory: &dyn Memory) -> Option<Sample<'_>> {
        let mut is_sound = false;
        for _ in 0..READINGS_MAX {
            is_sound = self.walk_once(memory)?;
            if is_sound {
                break;
            }
        }
        is_sound.then_some(Sample(&self.walk))
    }

    /// Whether the walk has seen one stack; `None` if no request runs.
    fn walk_once(&mut self, memory: &dyn Memory) -> Option<bool> {
        let request = running_request(memory).filter(|(_, is_running)| *is_running)?;
        self.pages.starts.clear();
        let pages = RefCell::new(&mut self.pages);
        let paged = PagedMemory { memory, pages, opcache: self.opcache.as_ref() };
        self.walk.read(&paged, true);
        Some(self.walk.is_sound() && running_request(memory) == Some(request))
    }
}

/// A stack.
#[derive(Debug)]
pub struct Sample<'a>(&'a Walk);

impl Sample<'_> {
    /// The script's file, unless it is in shutdown functions, and the calls, the outermost first.
    pub fn calls(&self) -> impl Iterator<Item = CallName<'_>> {
        let script = Some(self.0.script()).filter(|script| !script.is_empty());
        script.map(CallName::of).into_iter().chain(self.0.calls().rev())
    }
}

/// The name of a call, or that of a script. Its bytes are those of the other process.
#[derive(Clone, Copy, Debug)]
pub struct CallName<'a> {
    pub(crate) class: &'a [u8],
    pub(crate) between: &'static str,
    pub(crate) function: &'a [u8],
}

impl<'a> CallName<'a> {
    pub(crate) fn of(function: &'a [u8]) -> CallName<'a> {
        CallName { class: b"", between: "", function }
    }
}

impl fmt::Display for CallName<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in [self.class, self.between.as_bytes(), self.function] {
            out.write_str(&String::from_utf8_lossy(part))?;
        }
        Ok(())
    }
}

/// Pages of one walk, since the process goes on. Their room is that of all walks.
#[derive(Debug, Default)]
struct Pages {
    starts: Vec<u64>,
    room: Vec<Box<[u8; PAGE_BYTES]>>,
}

impl Pages {
    /// The page at `start`; `None` if it is not readable, or is one too many.
    fn page(&mut self, memory: &dyn Memory, start: u64) -> Option<&[u8; PAGE_BYTES]> {
        let known = self.starts.iter().rposition(|known| *known == start);
        let at = known.unwrap_or(self.starts.len());
        if known.is_none() {
            if at >= PAGES_MAX {
                return None;
            }
            if at == self.room.len() {
                self.room.push(Box::new([0; PAGE_BYTES]));
            }
            if !memory.read(start, self.room[at].as_mut_slice()) {
                return None;
            }
            self.starts.push(start);
        }
        Some(&self.room[at])
    }
}

/// Memory that is read page by page, each once.
struct PagedMemory<'a> {
    memory: &'a dyn Memory,
    pages: RefCell<&'a mut Pages>,
    opcache: Option<&'a OpcacheMemory>,
}

impl Memory for PagedMemory<'_> {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        if self.opcache.is_some_and(|opcache| opcache.read(address, into)) {
            return true;
        }
        let mut pages = self.pages.borrow_mut();
        let mut done = 0;
        while done < into.len() {
            let Some(from) = address.checked_add(done as u64) else {
                return false;
            };
            let offset = (from % PAGE_BYTES as u64) as usize;
            let piece = (PAGE_BYTES - offset).min(into.len() - done);
            let piece = &mut into[done..done + piece];
            match pages.page(self.memory, from - offset as u64) {
                Some(page) => piece.copy_from_slice(&page[offset..offset + piece.len()]),
                None if self.memory.read(from, piece) => {}
                None => return false,
            }
            done += piece.len();
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    /// Every byte is the number of its page, and there are few pages.
    struct Numbered {
        reads: Cell<usize>,
        end: u64,
    }

    impl Memory for Numbered {
        fn read(&self, address: u64, into: &mut [u8]) -> bool {
            self.reads.set(self.reads.get() + 1);
            for (at, byte) in into.iter_mut().enumerate() {
                *byte = ((address + at as u64) / PAGE_BYTES as u64) as u8;
            }
            address.checked_add(into.len() as u64).is_some_and(|end| end <= self.end)
        }
    }

    #[test]
    fn a_walk_reads_each_page_once_and_the_next_walk_reads_it_again() {
        let memory = Numbered { reads: Cell::new(0), end: 3 * PAGE_BYTES as u64 };
        let mut pages = Pages::default();
        for reads in [2, 4] {
            pages.starts.clear();
            let paged =
                PagedMemory { memory: &memory, pages: RefCell::new(&mut pages), opcache: None };
            let mut across = [0; 4];
            assert!(paged.read(2 * PAGE_BYTES as u64 - 2, &mut across));
            assert_eq!(across, [1, 1, 2, 2]);
            assert!(paged.read(PAGE_BYTES as u64, &mut across));
            assert_eq!(across, [1; 4]);
            assert_eq!(memory.reads.get(), reads);
        }
    }

    #[test]
    fn what_is_beyond_the_pages_is_read_piece_by_piece_and_what_is_not_there_fails() {
        let end = (PAGES_MAX as u64 + 2) * PAGE_BYTES as u64;
        let memory = Numbered { reads: Cell::new(0), end };
        let mut pages = Pages::default();
        let paged = PagedMemory { memory: &memory, pages: RefCell::new(&mut pages), opcache: None };
        let mut word = [0; 8];
        for page in 0..PAGES_MAX as u64 + 2 {
            assert!(paged.read(page * PAGE_BYTES as u64 + 8, &mut word));
            assert_eq!(word, [page as u8; 8]);
        }
        assert!(!paged.read(end - 4, &mut word));
        assert!(!paged.read(u64::MAX - 3, &mut word));
        assert_eq!(pages.room.len(), PAGES_MAX);
    }

    #[test]
    fn a_call_reads_as_in_php() {
        let call = CallName { class: b"A\xff", between: "->", function: b"b" };
        assert_eq!(call.to_string(), "A\u{fffd}->b");
        assert_eq!(CallName::of(b"strlen").to_string(), "strlen");
    }
}
