//! What a process can and cannot do once it has entered the sandbox, tried for real. None of it can
//! be undone, so each case is this program again, in a process of its own.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Command;

use maitred_sandbox::{Needs, Readable};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};
use rustix::thread::CapabilitySet;

/// The folder that a case may use, as its second argument.
type Case = fn(&Path);

const CASES: [(&str, Case); 8] = [
    ("what_serving_needs_goes_on", what_serving_needs_goes_on),
    ("no_program_can_be_started", no_program_can_be_started),
    ("no_other_process_can_be_reached", no_other_process_can_be_reached),
    ("others_can_be_looked_at_and_nothing_else", others_can_be_looked_at_and_nothing_else),
    ("no_other_user_or_root_can_be_taken_on", no_other_user_or_root_can_be_taken_on),
    ("sockets_are_of_the_kinds_that_are_used", sockets_are_of_the_kinds_that_are_used),
    ("files_are_written_only_where_they_have_to_be", files_are_written_only_where_they_have_to_be),
    ("files_are_read_only_where_sites_lie", files_are_read_only_where_sites_lie),
];

fn main() {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("--case") {
        let (name, folder) = (arguments.next().unwrap(), arguments.next().unwrap());
        let case = CASES.iter().find(|(case, _)| *case == name).unwrap().1;
        return case(Path::new(&folder));
    }
    for (name, _) in CASES {
        let folder = tempfile::tempdir().unwrap();
        for part in ["root", "spool", "other"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
            std::fs::write(folder.path().join(part).join("file"), part).unwrap();
        }
        let program = std::env::current_exe().unwrap();
        let mut case = Command::new(program);
        let status = case.args(["--case", name]).arg(folder.path()).status();
        assert!(status.unwrap().success(), "{name} has failed");
        println!("test {name} ... ok");
    }
}

/// As the process that counts the memory of others.
fn others_can_be_looked_at_and_nothing_else(_folder: &Path) {
    maitred_sandbox::enter_to_inspect("a test").unwrap();
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
    let held = rustix::thread::capabilities(None).unwrap();
    assert!(CapabilitySet::SYS_PTRACE.contains(held.permitted), "{held:?}");
    let parent = std::os::unix::process::parent_id();
    let counted = std::fs::read_to_string(format!("/proc/{parent}/smaps_rollup")).unwrap();
    assert!(counted.contains("Private_Dirty:"), "{counted}");
    let error = std::os::unix::process::CommandExt::exec(&mut Command::new("/bin/true"));
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
}

fn enter(folder: &Path) -> Readable {
    let needs =
        Needs { read: vec![folder.join("root")], sites: true, written: vec![folder.join("spool")] };
    maitred_sandbox::drop_capabilities().unwrap();
    let readable = maitred_sandbox::enter("a test", &needs).unwrap();
    assert!(rustix::thread::no_new_privs().unwrap());
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
    assert!(status.contains("\nSeccomp:\t2\n"), "{status}");
    readable
}

fn what_serving_needs_goes_on(folder: &Path) {
    enter(folder);
    let listener = TcpListener::bind("127.0.0.1:0");
    // The supervisor listens, and hands the sockets over.
    assert_eq!(listener.unwrap_err().kind(), ErrorKind::PermissionDenied);
    let threads = (0..4).map(|_| std::thread::spawn(|| std::thread::current().id()));
    for thread in threads.collect::<Vec<_>>() {
        thread.join().unwrap();
    }
    let names = ("localhost", 80).to_socket_addrs().unwrap().count();
    assert!(names > 0);
    UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(rustix::param::page_size() > 0);
    let refused = TcpStream::connect("127.0.0.1:1").unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let file = tempfile::tempfile_in(folder.join("spool")).unwrap();
    (&file).write_all(&[0; 4096]).unwrap();
    file.set_len(0).unwrap();
    let panics = std::panic::catch_unwind(|| {
        std::panic::panic_any(std::backtrace::Backtrace::force_capture().to_string())
    });
    panics.unwrap_err();
}

fn no_program_can_be_started(folder: &Path) {
    enter(folder);
    let error = Command::new("/bin/true").status().unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::EPERM | libc::ENOSYS)), "{error}");
    let error = std::os::unix::process::CommandExt::exec(&mut Command::new("/bin/true"));
    assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}");
}

fn no_other_process_can_be_reached(folder: &Path) {
    enter(folder);
    let parent = rustix::process::getppid().unwrap();
    assert_eq!(rustix::process::test_kill_process(parent), Err(Errno::PERM));
    let pidfd = rustix::process::pidfd_open(parent, rustix::process::PidfdFlags::empty());
    assert_eq!(pidfd.unwrap_err(), Errno::PERM);
    std::fs::read(format!("/proc/{parent}/mem")).unwrap_err();
}

fn no_other_user_or_root_can_be_taken_on(folder: &Path) {
    enter(folder);
    assert_eq!(rustix::process::chroot(folder), Err(Errno::PERM));
    let file = std::fs::File::open("/proc/self/ns/net").unwrap();
    let moved = rustix::thread::move_into_link_name_space(file.as_fd(), None);
    assert_eq!(moved, Err(Errno::PERM));
    let all = rustix::thread::capabilities(None).unwrap();
    assert_eq!(rustix::thread::set_capabilities(None, all), Err(Errno::PERM));
    for capability in
        [rustix::thread::CapabilitySet::SYS_ADMIN, rustix::thread::CapabilitySet::SETUID]
    {
        if rustix::process::geteuid().is_root() {
            let bounded = rustix::thread::capability_is_in_bounding_set(capability);
            assert_eq!(bounded, Ok(false));
        }
    }
}

fn sockets_are_of_the_kinds_that_are_used(folder: &Path) {
    enter(folder);
    let refused = [AddressFamily::PACKET, AddressFamily::VSOCK, AddressFamily::BLUETOOTH];
    for family in refused {
        let socket = rustix::net::socket(family, SocketType::RAW, None);
        assert_eq!(socket.unwrap_err(), Errno::NOSYS, "{family:?}");
    }
    let netlink = |protocol| {
        let kind = (AddressFamily::NETLINK, SocketType::RAW);
        rustix::net::socket(kind.0, kind.1, Some(protocol)).map(drop)
    };
    assert_eq!(netlink(rustix::net::netlink::SOCK_DIAG), Ok(()));
    assert_eq!(netlink(rustix::net::netlink::NETFILTER), Err(Errno::NOSYS));
    for family in [AddressFamily::UNIX, AddressFamily::INET, AddressFamily::INET6] {
        rustix::net::socket(family, SocketType::STREAM, None).map(drop).unwrap();
    }
}

fn files_are_written_only_where_they_have_to_be(folder: &Path) {
    let Readable::Beneath(_) = enter(folder) else {
        return println!("skipped: this kernel has no Landlock");
    };
    let spool = folder.join("spool");
    std::fs::write(spool.join("new"), "text").unwrap();
    std::fs::create_dir(spool.join("part")).unwrap();
    std::fs::rename(spool.join("new"), spool.join("part/new")).unwrap();
    std::fs::remove_dir_all(spool.join("part")).unwrap();
    let denied = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    for part in ["root", "other"] {
        let part = folder.join(part);
        denied(std::fs::write(part.join("new"), "text").unwrap_err());
        denied(std::fs::write(part.join("file"), "text").unwrap_err());
        denied(std::fs::remove_file(part.join("file")).unwrap_err());
        denied(std::fs::rename(spool.join("file"), part.join("new")).unwrap_err());
    }
    denied(std::os::unix::fs::symlink("/etc/passwd", spool.join("link")).unwrap_err());
}

fn files_are_read_only_where_sites_lie(folder: &Path) {
    let readable = enter(folder);
    if readable == Readable::All {
        return println!("skipped: this kernel has no Landlock");
    }
    assert_eq!(std::fs::read_to_string(folder.join("root/file")).unwrap(), "root");
    for there in ["/home", "/etc/hosts", "/proc/self/status"] {
        assert!(readable.has(Path::new(there)), "{there}");
    }
    for file in maitred_sandbox::folders::FOR_NAMES.map(Path::new) {
        assert_eq!(std::fs::read(file).is_ok(), file.exists(), "{file:?}");
    }
    for closed in ["/root", "/boot", "/dev", "/var/log", "/var/spool"] {
        assert!(!readable.has(Path::new(closed)), "{closed}");
        if Path::new(closed).exists() {
            std::fs::read_dir(closed).unwrap_err();
        }
    }
    std::fs::File::open("/dev/null").unwrap_err();
}
