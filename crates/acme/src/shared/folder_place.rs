//! A folder as the place of what is shared. Its file system may hang: all I/O is in other threads,
//! which are limited. Files are written under another name and renamed. Everyone may read them:
//! they are sealed.
//!
//! The lock is the file `lock.NUMBER` with the highest number. It is free when it says so, or when
//! it has not changed for [`LOCK_TIME`] by this node's clock. To get it, a node creates the next
//! number, which only one can, and looks again.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use maitred_control::shared_certificates::{LOCK_TIME, MAX_SEALED_BYTES};

use super::witnesses::Registrations;

/// Modes of folders and files.
const FILE_MODE: u32 = 0o644;

/// Most registrations that are read.
const MAX_NODES: usize = 1024;

/// How many hexadecimal digits the name of a node has.
const NODE_DIGITS: usize = 16;

/// The contents of a lock that no node has.
const FREE: &str = "free";

/// The folder of one authority in the shared folder.
#[derive(Clone)]
pub struct FolderPlace(Arc<Folder>);

struct Folder {
    shared: PathBuf,
    path: PathBuf,
    own: String,
    /// The lock of another node: its number, its contents, and since when it has been so.
    seen: Mutex<Option<(u64, String, Instant)>>,
}

impl FolderPlace {
    /// The folder of `authority`, for the node `own`.
    pub fn new(shared: &Path, authority: &str, own: &str) -> FolderPlace {
        FolderPlace(Arc::new(Folder {
            shared: shared.to_owned(),
            path: shared.join(authority),
            own: own.to_owned(),
            seen: Mutex::new(None),
        }))
    }

    /// Does something in another thread.
    async fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Folder) -> io::Result<T> + Send + 'static,
    ) -> Result<T, String> {
        let folder = self.0.clone();
        let done = tokio::task::spawn_blocking(move || {
            work(&folder).map_err(|why| format!("{}: {why}", folder.shared.display()))
        });
        done.await.unwrap_or_else(|error| Err(error.to_string()))
    }

    /// Reads a record.
    pub async fn read(&self, name: &str) -> Result<Option<String>, String> {
        let name = name.to_owned();
        self.within(move |folder| folder.read(&folder.path.join(name))).await
    }

    /// Writes or removes a record.
    pub async fn write(
        &self,
        name: &str,
        text: Option<&str>,
        _life: Duration,
    ) -> Result<(), String> {
        let (name, text) = (name.to_owned(), text.map(str::to_owned));
        self.within(move |folder| match text {
            Some(text) => folder.write(&folder.path.join(name), &text),
            None => unless_missing(fs::remove_file(folder.path.join(name))),
        })
        .await
    }

    /// Gets the lock, unless another node has it.
    pub async fn lock(&self) -> Result<bool, String> {
        self.within(Folder::lock).await
    }

    /// Whether this node has the lock.
    pub async fn has_lock(&self) -> Result<bool, String> {
        self.within(|folder| Ok(folder.own_lock()?.is_some())).await
    }

    /// Gives the lock back, if this node has it.
    pub async fn unlock(&self) -> Result<(), String> {
        self.within(|folder| match folder.own_lock()? {
            Some(number) => folder.write(&folder.lock_file(number), FREE),
            None => Ok(()),
        })
        .await
    }

    /// Registers this node.
    pub async fn register(&self, text: &str) -> Result<(), String> {
        let text = text.to_owned();
        self.within(move |folder| {
            folder.make("nodes")?;
            folder.write(&folder.path.join("nodes").join(&folder.own), &text)
        })
        .await
    }

    /// The registrations of all nodes.
    pub async fn nodes(&self) -> Result<Registrations, String> {
        self.within(|folder| {
            let mut nodes = Registrations::new();
            let entries = fs::read_dir(folder.path.join("nodes"))?.flatten();
            let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
            for name in names.filter(|name| is_node(name)).take(MAX_NODES) {
                // What cannot be read is no registration, and stops no order.
                let path = folder.path.join("nodes").join(&name);
                if let Ok(Some(text)) = folder.read(&path) {
                    nodes.insert(name, text);
                }
            }
            Ok(nodes)
        })
        .await
    }

    /// Removes the registration of a node.
    pub async fn forget(&self, node: &str) -> Result<(), String> {
        let node = node.to_owned();
        self.within(move |folder| {
            unless_missing(fs::remove_file(folder.path.join("nodes").join(node)))
        })
        .await
    }
}

impl Folder {
    /// Makes a folder. The shared one has to be there: it may be one to mount on.
    fn make(&self, name: &str) -> io::Result<()> {
        for folder in [self.path.clone(), self.path.join(name)] {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    fn read(&self, path: &Path) -> io::Result<Option<String>> {
        // Neither a link nor a pipe of others.
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        let flags = i32::try_from(flags.bits()).unwrap_or_default();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut text = String::new();
        let read = file.take(MAX_SEALED_BYTES as u64).read_to_string(&mut text);
        match read {
            // What is not text is nothing of ours.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(None),
            read => read.map(|_| Some(text)),
        }
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let new = path.with_file_name(format!(".{name}.{}", self.own));
        unless_missing(fs::remove_file(&new))?;
        self.create(&new, text)?;
        fs::rename(&new, path)
    }

    fn create(&self, path: &Path, text: &str) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create_new(true).mode(FILE_MODE).open(path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    fn lock_file(&self, number: u64) -> PathBuf {
        self.path.join(format!("lock.{number}"))
    }

    fn lock_text(&self, number: u64) -> io::Result<String> {
        Ok(self.read(&self.lock_file(number))?.unwrap_or_default())
    }

    /// The numbers of the locks, in their order.
    fn locks(&self) -> io::Result<Vec<u64>> {
        let number = |entry: io::Result<fs::DirEntry>| {
            let name = entry.ok()?.file_name();
            name.to_str()?.strip_prefix("lock.")?.parse().ok()
        };
        let mut numbers: Vec<u64> = fs::read_dir(&self.path)?.filter_map(number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The number of the lock, if this node has it.
    fn own_lock(&self) -> io::Result<Option<u64>> {
        let Some(number) = self.locks()?.last().copied() else {
            return Ok(None);
        };
        Ok((self.lock_text(number)? == self.own).then_some(number))
    }

    fn lock(&self) -> io::Result<bool> {
        let last = self.locks()?.last().copied();
        if let Some(number) = last {
            let text = self.lock_text(number)?;
            // One's own is renewed by the next number: an order takes its whole time.
            let is_free = text == FREE || text == self.own || self.is_outdated(number, text);
            if !is_free {
                return Ok(false);
            }
        }
        let next = last.map_or(0, |last| last.saturating_add(1));
        match self.create(&self.lock_file(next), &self.own) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
            created => created?,
        }
        // A slow node may have created a number that others are past.
        let numbers = self.locks()?;
        let is_ours = numbers.last() == Some(&next);
        let others = numbers.into_iter().filter(|number| *number < next);
        let old = others.filter(|_| is_ours).chain((!is_ours).then_some(next));
        for number in old {
            unless_missing(fs::remove_file(self.lock_file(number)))?;
        }
        Ok(is_ours)
    }

    /// Whether a lock has not changed for so long that its node has ended.
    fn is_outdated(&self, number: u64, text: String) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        match &*seen {
            Some((of, before, since)) if *of == number && *before == text => {
                since.elapsed() > LOCK_TIME
            }
            _ => {
                *seen = Some((number, text, Instant::now()));
                false
            }
        }
    }
}

/// Whether it is the name of a node. Unfinished files and those of others are not.
fn is_node(name: &str) -> bool {
    name.len() == NODE_DIGITS && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn unless_missing(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_node_has_the_lock_and_the_next_gets_it_when_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let [a, b] = ["a", "b"].map(|own| FolderPlace::new(folder.path(), "ca", own));
        a.register("1 0").await.unwrap();
        assert!(a.lock().await.unwrap() && a.lock().await.unwrap());
        assert!(!b.lock().await.unwrap());
        b.unlock().await.unwrap();
        assert!(!b.lock().await.unwrap());
        a.unlock().await.unwrap();
        assert!(b.lock().await.unwrap());
        assert!(!a.lock().await.unwrap());
        assert_eq!(a.0.locks().unwrap(), [2], "no old lock stays");
        // One that has not changed for too long counts as free.
        let long_ago = Instant::now().checked_sub(LOCK_TIME + Duration::from_secs(1)).unwrap();
        *a.0.seen.lock().unwrap() = Some((2, "b".to_owned(), long_ago));
        assert!(a.lock().await.unwrap());
        assert!(!b.lock().await.unwrap());
    }

    #[tokio::test]
    async fn records_are_replaced_and_links_and_garbage_are_none() {
        let folder = tempfile::tempdir().unwrap();
        let own = "00000000000000af";
        let place = FolderPlace::new(folder.path(), "ca", own);
        assert_eq!(place.read("proofs").await.unwrap(), None);
        place.register("1 0").await.unwrap();
        for text in ["one", "two"] {
            place.write("proofs", Some(text), LOCK_TIME).await.unwrap();
            assert_eq!(place.read("proofs").await.unwrap().as_deref(), Some(text));
        }
        place.write("proofs", None, LOCK_TIME).await.unwrap();
        assert_eq!(place.read("proofs").await.unwrap(), None);
        fs::write(folder.path().join("ca/account"), [0xff; 4]).unwrap();
        assert_eq!(place.read("account").await.unwrap(), None);
        std::os::unix::fs::symlink("/etc/passwd", folder.path().join("ca/link")).unwrap();
        assert!(place.read("link").await.is_err());
        let nodes = folder.path().join("ca/nodes");
        fs::write(nodes.join(".00000000000000af.x"), "1 0").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", nodes.join("00000000000000b0")).unwrap();
        fs::create_dir(nodes.join("00000000000000b1")).unwrap();
        assert_eq!(place.nodes().await.unwrap().into_keys().collect::<Vec<_>>(), [own]);
        place.forget(own).await.unwrap();
        assert!(place.nodes().await.unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_folder_that_is_missing_is_not_made() {
        let place = FolderPlace::new(Path::new("/nonexistent"), "ca", "a");
        assert!(place.register("1 0").await.unwrap_err().starts_with("/nonexistent: "));
    }
}
