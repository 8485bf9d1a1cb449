//! Buffers script output that the client has not read yet: in memory, then in a temporary file, up
//! to the pool's `spool_limit`; beyond that the script waits.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::http::body::blocking;
use crate::net::client_memory::{self, ClientMemory};

/// Memory buffer of one response in bytes, for a client that does not share it between streams.
pub const MEMORY_BYTES: usize = 512 * 1024;
/// Bytes moved to or from the file in one go.
const PIECE_BYTES: usize = 256 * 1024;

/// A piece with more unused bytes than these is reallocated before it waits for the client.
const SPARE_BYTES: usize = 8 * 1024;

/// The unsent part of one response. The fields for the file are boxed, since every response would
/// hold their memory.
#[derive(Debug)]
pub struct Spool<'a> {
    /// Sent first. Most responses have only this.
    first: Vec<u8>,
    /// Sent next, oldest first.
    memory: VecDeque<Vec<u8>>,
    /// Bytes of both.
    memory_bytes: usize,
    /// Bytes of the first piece that are sent.
    sent: usize,
    /// Sent after the memory.
    file: Option<Arc<File>>,
    /// Bytes written to the file, and bytes read back.
    written: u64,
    read: u64,
    /// Sent after the file: bytes that did not fit there.
    held: Vec<u8>,
    dir: &'a Path,
    /// Most bytes in memory before the file is used.
    memory_limit: usize,
    /// Its bytes among those of all clients.
    counted: ClientMemory,
    limit: u64,
    full_disk: bool,
}

impl<'a> Spool<'a> {
    /// An empty spool for up to `limit` bytes: `memory_limit` of them in memory, the rest in a file
    /// in `dir`.
    pub fn new(dir: &'a Path, memory_limit: usize, limit: u64) -> Spool<'a> {
        Spool {
            first: Vec::new(),
            memory: VecDeque::new(),
            memory_bytes: 0,
            sent: 0,
            file: None,
            written: 0,
            read: 0,
            held: Vec::new(),
            dir,
            memory_limit,
            counted: ClientMemory::default(),
            limit,
            full_disk: false,
        }
    }

    /// Most bytes in memory now: fewer where many clients do not read.
    fn memory_limit(&self) -> usize {
        client_memory::limit(self.memory_limit)
    }

    /// The limit of what stays in memory while the client reads nothing. A little more than the
    /// usual limit is not worth a file.
    fn settled_limit(&self) -> usize {
        match self.memory_limit() {
            limit if limit < self.memory_limit => limit,
            limit => 2 * limit,
        }
    }

    fn count(&mut self) {
        self.counted.holds(self.memory_bytes);
    }

    /// Whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.memory_bytes == 0 && self.read == self.written && self.held.is_empty()
    }

    /// Whether it accepts more.
    pub fn has_room(&self) -> bool {
        let behind = self.read < self.written || !self.held.is_empty();
        if self.memory_bytes < self.memory_limit() && !behind {
            return true;
        }
        !self.full_disk && self.memory_bytes as u64 + self.written - self.read < self.limit
    }

    /// Adds bytes: to memory, or to the file if the memory is full or the file in use.
    ///
    /// # Errors
    /// When the file cannot be written. The bytes stay in memory, and [`Spool::has_room`] is false
    /// until the client has read all bytes before them.
    pub async fn push(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let behind_file = self.read < self.written;
        if !self.held.is_empty() || (self.full_disk && behind_file) {
            self.held.extend_from_slice(&bytes);
            return Ok(());
        }
        if self.full_disk || (!behind_file && self.memory_bytes < self.memory_limit()) {
            self.keep(bytes);
            return Ok(());
        }
        let (bytes, written) = Box::pin(self.write(bytes)).await;
        match written {
            Ok(count) => {
                self.written += count;
                Ok(())
            }
            Err(error) => {
                self.full_disk = true;
                self.held = bytes;
                Err(error)
            }
        }
    }

    /// Moves bytes beyond the memory limit to the file, because the client reads nothing now; not
    /// if the file holds later bytes.
    ///
    /// # Errors
    /// When the file cannot be written. The bytes stay in memory.
    pub async fn settle(&mut self) -> io::Result<()> {
        let is_last = self.read == self.written && self.held.is_empty();
        if self.memory_bytes <= self.settled_limit() || !is_last || self.full_disk {
            return Ok(());
        }
        let mut unsent = std::mem::take(&mut self.first);
        unsent.drain(..std::mem::take(&mut self.sent));
        self.memory.drain(..).for_each(|piece| unsent.extend_from_slice(&piece));
        self.memory_bytes = 0;
        self.count();
        let (unsent, written) = Box::pin(self.write(unsent)).await;
        match written {
            Ok(count) => {
                self.written += count;
                Ok(())
            }
            Err(error) => {
                self.full_disk = true;
                self.keep(unsent);
                Err(error)
            }
        }
    }

    fn keep(&mut self, mut bytes: Vec<u8>) {
        self.memory_bytes += bytes.len();
        self.count();
        if self.first.is_empty() {
            self.first = bytes;
        } else {
            // It waits for those before it.
            if bytes.capacity() - bytes.len() > SPARE_BYTES {
                bytes.shrink_to_fit();
            }
            self.memory.push_back(bytes);
        }
    }

    async fn write(&mut self, bytes: Vec<u8>) -> (Vec<u8>, io::Result<u64>) {
        let file = match &self.file {
            Some(file) => file.clone(),
            None => {
                let dir = self.dir.to_owned();
                match blocking(move || tempfile::tempfile_in(dir)).await {
                    Ok(file) => self.file.insert(Arc::new(file)).clone(),
                    Err(error) => return (bytes, Err(error)),
                }
            }
        };
        let bytes = Arc::new(bytes);
        let (source, at) = (bytes.clone(), self.written);
        let written = blocking(move || file.write_all_at(&source, at)).await;
        let count = bytes.len() as u64;
        (Arc::try_unwrap(bytes).unwrap_or_default(), written.map(|()| count))
    }

    async fn read_back(&mut self) -> io::Result<Option<Vec<u8>>> {
        let unread = self.written - self.read;
        let (Some(file), 1..) = (&self.file, unread) else {
            return Ok(None);
        };
        let length = usize::try_from(unread)
            .unwrap_or(PIECE_BYTES)
            .min(PIECE_BYTES)
            .min(self.memory_limit());
        let (file, at) = (file.clone(), self.read);
        let piece = blocking(move || {
            let mut piece = vec![0; length];
            file.read_exact_at(&mut piece, at).map(|()| piece)
        })
        .await?;
        self.read += length as u64;
        if self.read == self.written {
            // The file is read completely: its blocks are freed.
            (self.file, self.read, self.written) = (None, 0, 0);
        }
        Ok(Some(piece))
    }

    /// The next bytes to send; none when all are sent.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn front(&mut self) -> io::Result<Option<&[u8]>> {
        if self.first.is_empty()
            && self.read < self.written
            && let Some(piece) = Box::pin(self.read_back()).await?
        {
            self.keep(piece);
        }
        if self.first.is_empty() && !self.held.is_empty() {
            let held = std::mem::take(&mut self.held);
            self.keep(held);
        }
        Ok(Some(&self.first[self.sent..]).filter(|rest| !rest.is_empty()))
    }

    /// Marks `count` bytes of [`Spool::front`] as sent.
    pub fn advance(&mut self, count: usize) {
        self.sent += count;
        if self.sent >= self.first.len() {
            self.memory_bytes -= self.first.len();
            self.count();
            self.first = self.memory.pop_front().unwrap_or_default();
            self.sent = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::client_memory::{LEAST_BYTES, TOTAL_BYTES};

    async fn empty(spool: &mut Spool<'_>, step: usize) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(front) = spool.front().await.unwrap() {
            let count = front.len().min(step);
            out.extend_from_slice(&front[..count]);
            spool.advance(count);
        }
        out
    }

    #[tokio::test]
    async fn what_its_client_does_not_take_goes_to_the_file_in_its_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), 1000, 1 << 30);
        let all: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
        spool.push(all[..3000].to_vec()).await.unwrap();
        spool.advance(10);
        assert_eq!(spool.memory_bytes, 3000, "the first piece may be taken at once");
        spool.settle().await.unwrap();
        assert_eq!((spool.memory_bytes, spool.written), (0, 2990));
        spool.push(all[3000..].to_vec()).await.unwrap();
        assert!(spool.front().await.unwrap().unwrap().len() <= 1000);
        assert_eq!(empty(&mut spool, 333).await, &all[10..]);
        assert!(spool.is_empty());
    }

    fn numbered(pieces: usize) -> Vec<Vec<u8>> {
        (0..pieces).map(|number| vec![number as u8; 100_000]).collect()
    }

    #[tokio::test(flavor = "current_thread")]
    async fn bytes_come_out_in_order_whether_they_went_through_the_file_or_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), MEMORY_BYTES, 1 << 30);
        let pieces = numbered(40);
        for (index, piece) in pieces.iter().enumerate() {
            spool.push(piece.clone()).await.unwrap();
            if index == 20 {
                spool.front().await.unwrap();
                spool.advance(5);
            }
        }
        let mut expected = pieces.concat();
        expected.drain(..5);
        assert!(empty(&mut spool, 70_001).await == expected);
        assert!(spool.is_empty() && spool.has_room());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn many_spools_together_use_files_before_each_would_by_itself() {
        let dir = tempfile::tempdir().unwrap();
        let mut spools = Vec::new();
        let mut in_memory = 0;
        for _ in 0..1000 {
            let mut spool = Spool::new(dir.path(), MEMORY_BYTES, 1 << 30);
            for _ in 0..8 {
                spool.push(vec![1; MEMORY_BYTES / 8]).await.unwrap();
                spool.settle().await.unwrap();
            }
            in_memory += spool.memory_bytes;
            spools.push(spool);
        }
        let most = TOTAL_BYTES + spools.len() * LEAST_BYTES;
        assert!(in_memory < most, "{in_memory} of {most}");
        assert!(spools.iter().any(|spool| spool.memory_bytes == MEMORY_BYTES));
        let last = spools.last_mut().unwrap();
        assert_eq!(empty(last, 1000).await.len(), MEMORY_BYTES);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_spool_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), MEMORY_BYTES, 1_000_000);
        let mut pushed = 0;
        while spool.has_room() {
            spool.push(vec![0; 100_000]).await.unwrap();
            pushed += 1;
        }
        assert_eq!(pushed, 10);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn without_a_disk_everything_is_still_sent_and_the_script_waits() {
        let mut spool = Spool::new(Path::new("/nonexistent"), MEMORY_BYTES, 1 << 30);
        let pieces = numbered(7);
        let mut failed = false;
        for piece in &pieces {
            failed |= spool.push(piece.clone()).await.is_err();
        }
        assert!(failed && !spool.has_room());
        assert!(empty(&mut spool, 1_000).await == pieces.concat());
        assert!(spool.has_room());
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_disk_that_fills_up_midway_costs_no_memory_and_no_order() {
        let dir = tempfile::tempdir().unwrap();
        let mut spool = Spool::new(dir.path(), MEMORY_BYTES, 1 << 30);
        let pieces = numbered(20);
        for piece in &pieces[..12] {
            spool.push(piece.clone()).await.unwrap();
        }
        // A file that cannot be written any more, though what it holds can be read.
        let file = spool.file.take().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*file));
        spool.file = Some(Arc::new(File::open(path).unwrap()));
        assert!(spool.push(pieces[12].clone()).await.is_err());
        assert!(!spool.has_room() && spool.memory_bytes <= MEMORY_BYTES + 100_000);
        assert!(empty(&mut spool, 7_000).await == pieces[..13].concat());
        assert!(spool.has_room());
    }
}
