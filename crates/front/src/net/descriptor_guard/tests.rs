//! Peers that send a TCP socket which takes a minute to close. Nothing refuses it here, as on a
//! kernel before Linux 6.16.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream as Theirs;
use std::sync::mpsc;

use bytes::BytesMut;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::AsyncReadExt;
use tokio::net::UnixListener;

use super::*;
use crate::net::socket::{Family, Socket};

/// Long enough for a busy machine, and much shorter than what lingers.
const SOON: Duration = Duration::from_secs(20);
/// How long the descriptor's close would block.
const LINGERS: Duration = Duration::from_secs(120);

/// Sends a byte with a socket whose close blocks, of which no other descriptor is left.
pub(crate) fn send_lingering(to: &impl AsFd) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut sent = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    // Its other end does not read as long as this process lives.
    std::mem::forget(listener.accept().unwrap());
    sent.set_nonblocking(true).unwrap();
    while sent.write(&[0; 64 * 1024]).is_ok() {}
    sockopt::set_socket_linger(&sent, Some(LINGERS)).unwrap();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut more = SendAncillaryBuffer::new(&mut space);
    let fds = [sent.as_fd()];
    more.push(SendAncillaryMessage::ScmRights(&fds));
    let bytes = [IoSlice::new(b"x")];
    assert_eq!(sendmsg(to, &bytes, &mut more, SendFlags::NOSIGNAL), Ok(1));
}

pub(crate) fn pair() -> (Theirs, Socket) {
    let (theirs, ours) = Theirs::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    theirs.set_read_timeout(Some(SOON)).unwrap();
    (theirs, Socket::accepted(ours.into(), Family::Unix, true).unwrap())
}

/// Runs an event loop of one thread, which must not stand still.
pub(crate) fn soon(work: impl Future<Output = ()> + Send + 'static) {
    let (ended, end) = mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_all().build().unwrap();
        runtime.block_on(work);
        ended.send(()).unwrap();
    });
    end.recv_timeout(SOON).expect("the event loop stands still");
}

/// Waits until a connection is closed by its other end.
pub(crate) fn wait_for_end(mut stream: Theirs) {
    match stream.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_client_that_sends_a_descriptor_is_closed_and_others_are_read_meanwhile() {
    soon(async {
        let (hostile, mut first) = pair();
        let (mut good, mut second) = pair();
        send_lingering(&hostile);
        let mut input = BytesMut::new();
        assert!(first.read(&mut input).await.is_err());
        // It stays in the queue.
        assert!(first.read(&mut input).await.is_err());
        good.write_all(b"abc").unwrap();
        assert_eq!(second.read(&mut input).await.unwrap(), 3);
        assert_eq!(input, b"abc"[..]);
        drop(first);
        wait_for_end(hostile);
        drop(good);
        assert_eq!(second.read(&mut input).await.unwrap(), 0);
    });
}

#[test]
fn a_descriptor_that_nobody_has_read_blocks_no_thread_that_closes() {
    soon(async {
        let (hostile, ours) = pair();
        send_lingering(&hostile);
        drop(ours);
        wait_for_end(hostile);
    });
}

#[test]
fn a_server_behind_that_sends_a_descriptor_is_closed() {
    soon(async {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("server.sock");
        let listener = UnixListener::bind(&path).unwrap();
        let socket = UnixSocket::new_stream().unwrap();
        let mut ours = WaryStream::connect(socket, &path).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let server = server.into_std().unwrap();
        server.set_nonblocking(false).unwrap();
        server.set_read_timeout(Some(SOON)).unwrap();
        send_lingering(&server);
        assert!(ours.read(&mut [0; 8]).await.is_err());
        drop(ours);
        wait_for_end(server);
    });
}
