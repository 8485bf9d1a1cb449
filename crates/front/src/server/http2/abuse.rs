//! Measures the share of a client's bytes that belong to requests. Pings, settings, priorities and
//! empty frames cost the client little and the server more (CVE-2019-9512, -9515, -9518 and
//! others).

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a client may send for each byte of requests and responses (nginx's limit).
const BYTES_PER_USEFUL_BYTE: u64 = 8;
/// Useful bytes credited to each client at the start.
const GRANTED_BYTES: u64 = 64 * 1024;

/// Bytes received and sent over a connection.
#[derive(Debug, Default)]
pub struct Noise {
    read: AtomicU64,
    useful: AtomicU64,
    written: AtomicU64,
}

impl Noise {
    /// Counts received bytes of any kind.
    pub fn read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts bytes of requests and responses.
    pub fn useful(&self, bytes: u64) {
        self.useful.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Counts sent bytes of any kind.
    pub fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Number of received bytes.
    pub fn has_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Number of sent bytes.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether the share of bytes that belong to requests is too small.
    pub fn is_too_much(&self) -> bool {
        let (read, useful) =
            (self.read.load(Ordering::Relaxed), self.useful.load(Ordering::Relaxed));
        read / BYTES_PER_USEFUL_BYTE > useful + GRANTED_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_may_send_eight_bytes_for_each_that_is_of_use() {
        let noise = Noise::default();
        noise.read(8 * GRANTED_BYTES + 7);
        assert!(!noise.is_too_much());
        noise.read(1);
        assert!(noise.is_too_much());
        noise.useful(1000);
        assert!(!noise.is_too_much());
        noise.read(8000);
        assert!(noise.is_too_much());
    }
}
