//! How much of what a client sends is about requests. Pings, settings, priorities and frames
//! without content are free for it and not for us (CVE-2019-9512, -9515, -9518 and others).

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes a client may send for each byte of requests and answers (nginx's figure).
const BYTES_PER_USEFUL_BYTE: u64 = 8;
/// Useful bytes that each client is granted to begin with.
const GRANTED_BYTES: u64 = 64 * 1024;

/// What has come and gone over a connection.
#[derive(Debug, Default)]
pub struct Noise {
    read: AtomicU64,
    useful: AtomicU64,
    written: AtomicU64,
}

impl Noise {
    /// So many bytes have come, whatever they are.
    pub fn read(&self, bytes: u64) {
        self.read.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes were of requests and answers.
    pub fn useful(&self, bytes: u64) {
        self.useful.fetch_add(bytes, Ordering::Relaxed);
    }

    /// So many bytes have gone, whatever they are.
    pub fn wrote(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes that have come.
    pub fn has_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes that have gone.
    pub fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    /// Whether too little of what came was about requests.
    pub fn is_too_much(&self) -> bool {
        let (read, useful) = (
            self.read.load(Ordering::Relaxed),
            self.useful.load(Ordering::Relaxed),
        );
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
