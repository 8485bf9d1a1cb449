//! Buffers script output that the client has not read yet: in memory, then in a temporary file, up
//! to the pool's `spool_limit` and its share of `spool_dir`; beyond that the script waits.

use std::collections::VecDeque;
use std::fs::File;
use std::future::pending;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};

use crate::http::body::blocking;
use crate::http::spool_folder::{SpoolPlace, SpoolPurpose, SpooledBytes};
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
    file: Option<Box<SpoolFile>>,
    /// Sent after the file: bytes that did not fit there.
    held: Vec<u8>,
    place: SpoolPlace<'a>,
    /// Most bytes in memory before the file is used.
    memory_limit: usize,
    /// Its bytes among those of all clients.
    counted: ClientMemory,
    limit: u64,
    full_disk: bool,
    /// Bytes for which there was no space, since its pool has its share of `spool_dir`.
    lacking: Option<usize>,
}

/// The file of a response. What is read back is no longer in it, if the file system can free a
/// part of a file.
#[derive(Debug)]
struct SpoolFile {
    file: Arc<File>,
    /// Bytes written to the file, and bytes read back.
    written: u64,
    read: u64,
    space: SpooledBytes,
}

/// What has become of bytes for the file.
enum Stored {
    InFile,
    /// There is no space for them; they are in memory still.
    NoSpace(Vec<u8>),
    Failed(Vec<u8>, io::Error),
}

impl<'a> Spool<'a> {
    /// An empty spool for up to `limit` bytes: `memory_limit` of them in memory, the rest in a file
    /// in `place`.
    pub fn new(place: SpoolPlace<'a>, memory_limit: usize, limit: u64) -> Spool<'a> {
        Spool {
            first: Vec::new(),
            memory: VecDeque::new(),
            memory_bytes: 0,
            sent: 0,
            file: None,
            held: Vec::new(),
            place,
            memory_limit,
            counted: ClientMemory::default(),
            limit,
            full_disk: false,
            lacking: None,
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

    /// Bytes in the file that are still to be read back.
    fn unread(&self) -> u64 {
        self.file.as_ref().map_or(0, |file| file.written - file.read)
    }

    /// Whether everything has been sent.
    pub fn is_empty(&self) -> bool {
        self.memory_bytes == 0 && self.unread() == 0 && self.held.is_empty()
    }

    /// Whether it accepts more.
    pub fn has_room(&self) -> bool {
        let behind = self.unread() > 0 || !self.held.is_empty();
        if self.memory_bytes < self.memory_limit() && !behind {
            return true;
        }
        let has_space = |lacking| {
            let is_settled = self.held.is_empty() && self.memory_bytes <= self.settled_limit();
            is_settled && self.admits(lacking)
        };
        !self.full_disk && !self.is_at_limit() && self.lacking.is_none_or(has_space)
    }

    fn is_at_limit(&self) -> bool {
        self.memory_bytes as u64 + self.unread() >= self.limit
    }

    /// Whether it accepts nothing since its pool has its share of `spool_dir`.
    pub fn lacks_space(&self) -> bool {
        self.lacking.is_some() && !self.has_room()
    }

    /// Returns when other files have gone, and there is space for what lacked it. Then it has room,
    /// or [`Spool::settle`] makes some. Never at its limit: its client has to read first.
    pub async fn space(&self) {
        let Some(lacking) = self.lacking else { return pending().await };
        let bytes = match self.held.len() {
            0 if self.memory_bytes > self.settled_limit() => self.memory_bytes,
            0 if self.is_at_limit() => return pending().await,
            0 => lacking,
            held => held,
        };
        self.place.space_for_response(bytes, self.file.is_none()).await;
    }

    fn admits(&self, bytes: usize) -> bool {
        self.place.admits_response(bytes, self.file.is_none())
    }

    /// Adds bytes: to memory, or to the file if the memory is full or the file in use. Without
    /// space in `spool_dir` they stay in memory, and [`Spool::has_room`] is false until there is
    /// some, or the client has read bytes before them.
    ///
    /// # Errors
    /// When the file cannot be written. The bytes stay in memory, and [`Spool::has_room`] is false
    /// until the client has read all bytes before them.
    pub async fn push(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        let behind_file = self.unread() > 0;
        if !self.held.is_empty() || (self.full_disk && behind_file) {
            self.held.extend_from_slice(&bytes);
            return Ok(());
        }
        if self.full_disk || (!behind_file && self.memory_bytes < self.memory_limit()) {
            self.keep(bytes);
            return Ok(());
        }
        Box::pin(self.store(bytes)).await
    }

    /// Writes bytes to the file, or holds them.
    async fn store(&mut self, bytes: Vec<u8>) -> io::Result<()> {
        match self.write(bytes).await {
            Stored::InFile => Ok(()),
            Stored::NoSpace(bytes) if self.unread() == 0 => {
                self.keep(bytes);
                Ok(())
            }
            Stored::NoSpace(bytes) => {
                self.held = bytes;
                Ok(())
            }
            Stored::Failed(bytes, error) => {
                self.held = bytes;
                Err(error)
            }
        }
    }

    /// Moves bytes beyond the memory limit to the file, because the client reads nothing now; not
    /// if the file holds later bytes. Those that lacked space follow, if there is some.
    ///
    /// # Errors
    /// When the file cannot be written. The bytes stay in memory.
    pub async fn settle(&mut self) -> io::Result<()> {
        let has_space = |bytes| self.lacking.is_none() || self.admits(bytes);
        if self.full_disk {
            return Ok(());
        }
        if !self.held.is_empty() {
            if !has_space(self.held.len()) {
                return Ok(());
            }
            let held = std::mem::take(&mut self.held);
            return Box::pin(self.store(held)).await;
        }
        let is_last = self.unread() == 0;
        if self.memory_bytes <= self.settled_limit() || !is_last || !has_space(self.memory_bytes) {
            return Ok(());
        }
        let mut unsent = std::mem::take(&mut self.first);
        unsent.drain(..std::mem::take(&mut self.sent));
        self.memory.drain(..).for_each(|piece| unsent.extend_from_slice(&piece));
        self.memory_bytes = 0;
        self.count();
        match Box::pin(self.write(unsent)).await {
            Stored::InFile => Ok(()),
            Stored::NoSpace(unsent) => {
                self.keep(unsent);
                Ok(())
            }
            Stored::Failed(unsent, error) => {
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

    async fn write(&mut self, bytes: Vec<u8>) -> Stored {
        let length = bytes.len();
        let stored = self.write_file(bytes).await;
        self.lacking = matches!(stored, Stored::NoSpace(_)).then_some(length);
        self.full_disk |= matches!(stored, Stored::Failed(..));
        stored
    }

    async fn write_file(&mut self, bytes: Vec<u8>) -> Stored {
        let file = match &mut self.file {
            Some(file) => {
                self.place.look().await;
                if !file.space.take(bytes.len()) {
                    return Stored::NoSpace(bytes);
                }
                file
            }
            None => {
                let mut space = self.place.account(SpoolPurpose::Response).await;
                if !space.take(bytes.len()) {
                    return Stored::NoSpace(bytes);
                }
                match self.place.create().await {
                    Ok(file) => self.file.insert(Box::new(SpoolFile {
                        file: Arc::new(file),
                        written: 0,
                        read: 0,
                        space,
                    })),
                    Err(error) => return Stored::Failed(bytes, error),
                }
            }
        };
        let bytes = Arc::new(bytes);
        let (target, source, at) = (file.file.clone(), bytes.clone(), file.written);
        let written = blocking(move || target.write_all_at(&source, at)).await;
        match written {
            Ok(()) => {
                file.written += bytes.len() as u64;
                Stored::InFile
            }
            Err(error) => {
                file.space.give_back(bytes.len());
                Stored::Failed(Arc::try_unwrap(bytes).unwrap_or_default(), error)
            }
        }
    }

    async fn read_back(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (unread, most) = (self.unread(), self.memory_limit());
        let (Some(spooled), 1..) = (&mut self.file, unread) else {
            return Ok(None);
        };
        let length = usize::try_from(unread).unwrap_or(PIECE_BYTES).min(PIECE_BYTES).min(most);
        let (file, at) = (spooled.file.clone(), spooled.read);
        let until = at + length as u64;
        let is_last = until == spooled.written;
        let (piece, is_freed) = blocking(move || {
            let mut piece = vec![0; length];
            file.read_exact_at(&mut piece, at)?;
            // From its start, since the parts of blocks at both ends stay.
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok((piece, !is_last && fallocate(&file, hole, 0, until).is_ok()))
        })
        .await?;
        spooled.read = until;
        if is_last {
            // The file is read completely: its blocks are freed.
            self.file = None;
        } else if is_freed {
            spooled.space.shrink_to(spooled.written - until);
        }
        Ok(Some(piece))
    }

    /// The next bytes to send; none when all are sent.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub async fn front(&mut self) -> io::Result<Option<&[u8]>> {
        if self.first.is_empty()
            && self.unread() > 0
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
    use std::future::poll_fn;
    use std::path::Path;
    use std::pin::Pin;
    use std::task::Poll;

    use super::*;
    use crate::http::spool_folder::SpoolFolder;
    use crate::net::client_memory::{LEAST_BYTES, TOTAL_BYTES};

    fn folder(path: &Path) -> SpoolFolder {
        SpoolFolder { path: path.to_owned(), space: Arc::default() }
    }

    fn place(folder: &SpoolFolder) -> SpoolPlace<'_> {
        SpoolPlace { folder, owner: &"pool www" }
    }

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
        let folder = folder(dir.path());
        let mut spool = Spool::new(place(&folder), 1000, 1 << 30);
        let all: Vec<u8> = (0..5000_u32).map(|i| i as u8).collect();
        spool.push(all[..3000].to_vec()).await.unwrap();
        spool.advance(10);
        assert_eq!(spool.memory_bytes, 3000, "the first piece may be taken at once");
        spool.settle().await.unwrap();
        assert_eq!((spool.memory_bytes, spool.unread()), (0, 2990));
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
        let folder = folder(dir.path());
        let mut spool = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
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
        let folder = folder(dir.path());
        let mut spools = Vec::new();
        let mut in_memory = 0;
        for _ in 0..1000 {
            let mut spool = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
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
    async fn a_response_at_its_limit_waits_for_its_client_and_for_no_space() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        folder.space.configure(Some(4_000_000));
        let mut first = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
        let mut second = Spool::new(place(&folder), MEMORY_BYTES, 650_000);
        fill(&mut first).await;
        assert_eq!(fill(&mut second).await, 7);
        assert!(second.lacks_space() && second.file.is_none());
        drop(first);
        second.settle().await.unwrap();
        assert!(!second.has_room());
        assert!(is_pending(Box::pin(second.space()).as_mut()).await);
        // What the client reads makes room.
        second.front().await.unwrap();
        second.advance(100_000);
        Box::pin(second.space()).await;
        assert!(second.has_room());
        assert_eq!(empty(&mut second, 70_001).await.len(), 600_000);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_full_spool_has_no_room() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let mut spool = Spool::new(place(&folder), MEMORY_BYTES, 1_000_000);
        let mut pushed = 0;
        while spool.has_room() {
            spool.push(vec![0; 100_000]).await.unwrap();
            pushed += 1;
        }
        assert_eq!(pushed, 10);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn without_a_disk_everything_is_still_sent_and_the_script_waits() {
        let folder = folder(Path::new("/nonexistent"));
        let mut spool = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
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
        let folder = folder(dir.path());
        let mut spool = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
        let pieces = numbered(20);
        for piece in &pieces[..12] {
            spool.push(piece.clone()).await.unwrap();
        }
        // A file that cannot be written any more, though what it holds can be read.
        let spooled = spool.file.as_mut().unwrap();
        let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&*spooled.file));
        spooled.file = Arc::new(File::open(path).unwrap());
        assert!(spool.push(pieces[12].clone()).await.is_err());
        assert!(!spool.has_room() && spool.memory_bytes <= MEMORY_BYTES + 100_000);
        assert!(empty(&mut spool, 7_000).await == pieces[..13].concat());
        assert!(spool.has_room());
    }

    /// Pushes pieces until there is no room.
    async fn fill(spool: &mut Spool<'_>) -> usize {
        let mut pushed = 0;
        while spool.has_room() {
            spool.push(vec![(pushed % 251) as u8; 100_000]).await.unwrap();
            pushed += 1;
        }
        pushed
    }

    #[tokio::test(flavor = "current_thread")]
    async fn a_share_of_the_folder_that_is_used_up_makes_the_script_wait_and_nothing_is_lost() {
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        folder.space.configure(Some(4_000_000));
        let other = SpoolPlace { folder: &folder, owner: &"pool other" };
        let mut first = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
        let mut second = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
        let mut third = Spool::new(other, MEMORY_BYTES, 1 << 30);
        let pushed = fill(&mut first).await;
        assert!(first.lacks_space() && folder.space.used_by("pool www") == 2_000_000);
        assert!(first.held.len() == 100_000 && first.memory_bytes <= MEMORY_BYTES + 100_000);
        // One whose pool has no space has memory, and nothing of it is written behind the rest.
        let of_second = fill(&mut second).await;
        assert!(second.lacks_space() && second.file.is_none() && second.held.is_empty());
        let of_third = fill(&mut third).await;
        assert_eq!(folder.space.used_by("pool other"), 1_000_000);
        // What is read back makes space for more of it, and what is dropped for others.
        first.front().await.unwrap();
        let unsent = first.memory_bytes;
        first.advance(100_000);
        assert!(first.memory_bytes < unsent);
        {
            let mut waits = Box::pin(second.space());
            assert!(is_pending(waits.as_mut()).await);
            let all = empty(&mut first, 70_001).await;
            assert_eq!(all.len(), (pushed - 1) * 100_000);
            assert!(all.chunks(100_000).zip(1..).all(|(piece, number)| piece[0] == number));
            waits.await;
        }
        let more = fill(&mut second).await;
        assert!(more > 0);
        drop((first, third));
        let all = empty(&mut second, 333_333).await;
        assert_eq!(all.len(), (of_second + more) * 100_000);
        assert!(of_third > 0 && folder.space.read().0 == 0);
    }

    /// Whether it is not done yet.
    async fn is_pending(mut future: Pin<&mut impl Future<Output = ()>>) -> bool {
        poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
    }

    #[tokio::test(flavor = "current_thread")]
    async fn what_is_read_back_leaves_the_disk_before_the_rest_is_read() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let folder = folder(dir.path());
        let mut spool = Spool::new(place(&folder), MEMORY_BYTES, 1 << 30);
        for piece in numbered(40) {
            spool.push(piece).await.unwrap();
        }
        let on_disk = |spool: &Spool<'_>| {
            spool.file.as_ref().unwrap().file.metadata().unwrap().blocks() * 512
        };
        assert!(spool.unread() > 3_000_000 && folder.space.read().0 == spool.unread());
        while spool.unread() > 1_000_000 {
            let length = spool.front().await.unwrap().unwrap().len();
            spool.advance(length);
        }
        assert_eq!(folder.space.read().0, spool.unread());
        assert!(on_disk(&spool) <= spool.unread() + 8192);
        empty(&mut spool, 70_001).await;
        assert_eq!(folder.space.read().0, 0);
    }
}
