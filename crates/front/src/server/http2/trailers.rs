//! Trailers of a connection's requests in progress, which h2 holds until their bodies are dropped.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::server::http2::frames;

/// The trailers of a connection.
#[derive(Debug, Default)]
pub struct Trailers {
    by_stream: Mutex<TrailersByStream>,
    /// Their sum, as received, in bytes.
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct TrailersByStream {
    /// The streams with a request in progress.
    in_progress: Vec<u32>,
    /// The last stream whose request has begun.
    last: u32,
    /// Bytes of trailers, by stream.
    bytes: HashMap<u32, usize>,
}

impl Trailers {
    /// Handles the begin of a request. Requests begin in the order of their streams, so that an
    /// earlier one that has not begun never does. Returns the bytes of memory that this releases.
    pub fn begin(&self, stream: u32) -> usize {
        let mut known = self.known();
        let TrailersByStream { in_progress, bytes, .. } = &mut *known;
        let (mut dropped, mut memory) = (0, 0);
        bytes.retain(|earlier, bytes| {
            let stays = *earlier >= stream || in_progress.contains(earlier);
            if !stays {
                dropped += *bytes;
                memory += frames::block_memory(*bytes);
            }
            stays
        });
        self.bytes.fetch_sub(dropped, Ordering::Relaxed);
        in_progress.push(stream);
        known.last = stream;
        memory
    }

    /// Handles bytes of trailers. Those of a request that has ended, h2 drops. Empty ones take no
    /// memory and no entry: their number has no limit. Returns the bytes of memory that they take.
    pub fn came(&self, stream: u32, bytes: usize) -> usize {
        let mut known = self.known();
        let has_ended = stream <= known.last && !known.in_progress.contains(&stream);
        if bytes == 0 || has_ended {
            return 0;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let all = known.bytes.entry(stream).or_default();
        *all += bytes;
        frames::block_memory(*all) - frames::block_memory(*all - bytes)
    }

    /// Handles the end of a request. Returns the bytes of memory that this releases.
    pub fn end(&self, stream: u32) -> usize {
        self.known().in_progress.retain(|&other| other != stream);
        self.forget(stream)
    }

    /// Ends the account of a stream's trailers. Returns the bytes of memory that this releases.
    pub fn forget(&self, stream: u32) -> usize {
        let bytes = self.known().bytes.remove(&stream).unwrap_or(0);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        frames::block_memory(bytes)
    }

    /// Their sum, as received, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    fn known(&self) -> MutexGuard<'_, TrailersByStream> {
        self.by_stream.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_empty_trailers_holds_no_memory() {
        let trailers = Trailers::default();
        for stream in (1..10_000).step_by(2) {
            trailers.begin(stream);
            trailers.came(stream, 0);
            trailers.end(stream);
        }
        let known = trailers.known();
        assert!(known.bytes.is_empty() && known.in_progress.is_empty());
    }

    #[test]
    fn trailers_count_from_before_their_request_begins_until_it_ends() {
        let trailers = Trailers::default();
        trailers.begin(1);
        trailers.came(3, 100);
        trailers.came(5, 20);
        trailers.begin(3);
        trailers.begin(5);
        trailers.came(1, 3);
        assert_eq!(trailers.bytes(), 123);
        trailers.end(3);
        assert_eq!(trailers.bytes(), 23);
        trailers.end(5);
        trailers.end(1);
        assert_eq!(trailers.bytes(), 0);
    }

    #[test]
    fn trailers_after_the_end_of_their_request_do_not_count_beside_others_in_progress() {
        let trailers = Trailers::default();
        trailers.begin(1);
        trailers.begin(3);
        trailers.end(3);
        trailers.came(3, 100);
        assert_eq!(trailers.bytes(), 0);
        // h2 has refused this one.
        trailers.came(5, 100);
        assert_eq!(trailers.bytes(), 100);
        trailers.begin(7);
        trailers.came(5, 100);
        assert_eq!(trailers.bytes(), 0);
    }
}
