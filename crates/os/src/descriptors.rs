//! Open descriptors of a process whose copies would share them.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use rustix::fs::{Dir, FileType, OFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use crate::fork::OwnProc;

/// Bytes of a file's start that are reported.
const BEGINNING_BYTES: usize = 16;

/// One open descriptor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number.
    pub number: i32,
    /// Its target, as in proc(5): a path, or a kind and a number such as `socket:[4711]`. Without
    /// `/proc`, the number replaces the path also.
    pub target: String,
    /// The device and the inode of its file.
    pub file: (u64, u64),
    /// The peer of a socket.
    pub peer: Option<String>,
    /// A socket that keeps message boundaries.
    pub is_datagram: bool,
    /// It is write-only in append mode.
    pub only_appends: bool,
    /// A device such as `/dev/urandom`, without a position.
    pub is_character_device: bool,
    /// The start of a regular file, if any.
    pub beginning: Vec<u8>,
}

/// The numbers of all open descriptors of this process.
///
/// # Errors
/// When the system is out of descriptors.
pub fn numbers(proc: &OwnProc) -> io::Result<Vec<i32>> {
    Ok(targets(proc)?.into_iter().map(|(number, _)| number).collect())
}

/// All open descriptors of this process except `known`.
///
/// # Errors
/// When the system is out of descriptors.
pub fn beyond(known: &[i32], proc: &OwnProc) -> io::Result<Vec<Descriptor>> {
    let all = targets(proc)?.into_iter();
    let new = all.filter(|(number, _)| !known.contains(number));
    Ok(new.map(|(number, target)| look(number, target)).collect())
}

fn targets(proc: &OwnProc) -> io::Result<Vec<(i32, String)>> {
    if proc.number().is_none() {
        return targets_by_number(proc.descriptors_end()?);
    }
    let folder = proc.file("fd")?;
    let mut entries = Dir::read_from(&folder)?;
    // Open only during the read. Their path differs where this process is in a root within another.
    let own = [folder.as_raw_fd(), entries.fd()?.as_raw_fd()];
    let mut all = Vec::new();
    for entry in entries.by_ref() {
        let entry = entry?;
        let number = entry.file_name().to_str().ok().and_then(|name| name.parse().ok());
        let Some(number) = number else { continue };
        match rustix::fs::readlinkat(&folder, entry.file_name(), Vec::new()) {
            Ok(target) => all.push((number, target.to_string_lossy().into_owned())),
            // The descriptor by which this list is read.
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    all.retain(|(number, _)| !own.contains(number));
    Ok(all)
}

/// Open descriptors below `end`, for a process without `/proc`.
fn targets_by_number(end: usize) -> io::Result<Vec<(i32, String)>> {
    let end = i32::try_from(end).map_err(io::Error::other)?;
    let mut all = Vec::new();
    for number in 0..end {
        // SAFETY: the process has one thread at all callers, and a number that is not open is an
        // error and nothing else.
        let open = unsafe { BorrowedFd::borrow_raw(number) };
        let stat = match rustix::fs::fstat(open) {
            Ok(stat) => stat,
            Err(Errno::BADF) => continue,
            Err(error) => return Err(error.into()),
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Socket => "socket",
            FileType::Fifo => "pipe",
            FileType::Directory => "folder",
            FileType::CharacterDevice | FileType::BlockDevice => "device",
            FileType::RegularFile => "file",
            FileType::Symlink | FileType::Unknown => "anon_inode",
        };
        all.push((number, format!("{kind}:[{}]", stat.st_ino)));
    }
    Ok(all)
}

fn look(number: i32, target: String) -> Descriptor {
    // SAFETY: this process has one thread at all callers, and has just found the number open.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = rustix::fs::fcntl_getfl(open).unwrap_or(OFlags::empty());
    let is_socket = target.starts_with("socket:");
    let stat = rustix::fs::fstat(open);
    Descriptor {
        number,
        peer: is_socket.then(|| peer(open)).flatten(),
        is_datagram: is_socket
            && rustix::net::sockopt::socket_type(open)
                .is_ok_and(|kind| kind == rustix::net::SocketType::DGRAM),
        only_appends: flags.contains(OFlags::APPEND) && flags & OFlags::RWMODE == OFlags::WRONLY,
        is_character_device: stat
            .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice),
        file: stat.map_or((0, 0), |stat| (stat.st_dev, stat.st_ino)),
        beginning: if target.starts_with('/') || target.starts_with("file:") {
            beginning(open).unwrap_or_default()
        } else {
            Vec::new()
        },
        target,
    }
}

/// Shuts the connection behind a descriptor down. Its number then refers to a connection whose peer
/// has closed, so that its owner notices.
///
/// # Errors
/// When the system is out of descriptors.
pub fn hang_up(number: i32) -> io::Result<()> {
    // SAFETY: as in `look`.
    let open = unsafe { BorrowedFd::borrow_raw(number) };
    // Another process may have a copy of it.
    let _ = rustix::net::shutdown(open, rustix::net::Shutdown::Both);
    let (dead, other) = UnixStream::pair()?;
    drop(other);
    let flags = rustix::fs::fcntl_getfl(open)?;
    rustix::fs::fcntl_setfl(&dead, flags & OFlags::NONBLOCK)?;
    // SAFETY: the number is open (see above), and leads to a socket before and after.
    match unsafe { libc::dup3(dead.as_raw_fd(), number, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

fn peer(socket: BorrowedFd<'_>) -> Option<String> {
    let address: SocketAddrAny = rustix::net::getpeername(socket).ok()??;
    if let Ok(internet) = std::net::SocketAddr::try_from(address.clone()) {
        return Some(internet.to_string());
    }
    let unix = rustix::net::SocketAddrUnix::try_from(address).ok()?;
    let path = unix.path()?;
    Some(path.to_string_lossy().into_owned())
}

/// The descriptor's position stays unchanged.
fn beginning(open: BorrowedFd<'_>) -> io::Result<Vec<u8>> {
    let file = File::from(open.as_fd().try_clone_to_owned()?);
    if !file.metadata()?.is_file() {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; BEGINNING_BYTES];
    let length = file.read_at(&mut bytes, 0)?;
    bytes.truncate(length);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    /// Open descriptors except these. Called after they were opened: other tests of this process
    /// open and close, too, and numbers are reused.
    fn but(ours: &[i32], proc: &OwnProc) -> Vec<i32> {
        let mut all = numbers(proc).unwrap();
        all.retain(|number| !ours.contains(number));
        all
    }

    #[test]
    fn what_was_opened_since_is_found_with_its_peer_and_its_beginning() {
        let proc = OwnProc::open().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let client = std::net::TcpStream::connect(address).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"SQLite format 3\0 and more").unwrap();
        let ours = [listener.as_raw_fd(), client.as_raw_fd(), file.as_raw_fd()];
        let new = beyond(&but(&ours, &proc), &proc).unwrap();
        let of = |number| new.iter().find(|one| one.number == number).unwrap();
        assert_eq!(of(client.as_raw_fd()).peer, Some(address.to_string()));
        assert_eq!(of(listener.as_raw_fd()).peer, None);
        assert_eq!(of(file.as_raw_fd()).beginning, b"SQLite format 3\0");
    }

    #[test]
    fn who_has_no_proc_any_more_finds_the_same() {
        let mut proc = OwnProc::open().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"SQLite format 3\0 and more").unwrap();
        let (pipe, _write) = std::io::pipe().unwrap();
        let device = File::open("/dev/urandom").unwrap();
        let ours = [
            listener.as_raw_fd(),
            client.as_raw_fd(),
            file.as_raw_fd(),
            pipe.as_raw_fd(),
            device.as_raw_fd(),
        ];
        let seen = |proc: &OwnProc| {
            let mut new = beyond(&but(&ours, proc), proc).unwrap();
            new.retain(|one| ours.contains(&one.number));
            new.sort_unstable_by_key(|one| one.number);
            new
        };
        let with = seen(&proc);
        proc.keep_status().unwrap();
        proc.let_go();
        assert!(proc.number().is_none() && proc.file("fd").is_err());
        assert!(proc.threads().unwrap() >= 1);
        let mut without = seen(&proc);
        assert_eq!(without.len(), ours.len());
        for (with, without) in with.iter().zip(&mut without) {
            if with.target.starts_with('/') {
                assert!(without.target.contains(&with.file.1.to_string()));
                without.target.clone_from(&with.target);
            }
        }
        assert_eq!(with, without);
    }

    #[test]
    fn who_holds_a_connection_that_is_hung_up_finds_the_other_side_gone_and_so_does_that() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.write_all(b"unread").unwrap();
        hang_up(client.as_raw_fd()).unwrap();
        assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
        let refused = client.write(b"x").unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::BrokenPipe);
        let end = server.read(&mut [0; 9]);
        let is_reset = |error: io::Error| error.kind() == io::ErrorKind::ConnectionReset;
        assert!(end.map_or_else(is_reset, |count| count == 0));
    }

    #[test]
    fn a_log_is_told_from_a_file_that_is_read_too_and_a_device_from_a_file_in_memory() {
        let proc = OwnProc::open().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut how = File::options();
        let log = how.append(true).create(true).open(&path).unwrap();
        let read_too = how.read(true).open(&path).unwrap();
        let device = File::open("/dev/urandom").unwrap();
        let ours = [log.as_raw_fd(), read_too.as_raw_fd(), device.as_raw_fd()];
        let new = beyond(&but(&ours, &proc), &proc).unwrap();
        let of = |file: &File| {
            let number = file.as_raw_fd();
            let found = new.iter().find(|one| one.number == number).unwrap();
            (found.only_appends, found.is_character_device)
        };
        assert_eq!(of(&log), (true, false));
        assert_eq!(of(&read_too), (false, false));
        assert_eq!(of(&device), (false, true));
    }
}
