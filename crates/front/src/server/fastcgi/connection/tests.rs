//! A web server that takes its time. The clock of these tests stands still while anything happens.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use maitred_fastcgi::{RequestWriter, write_stdin};

use super::*;
use crate::http::spool_folder::SpoolFolder;
use crate::net::socket::Family;

fn pair() -> (UnixStream, WebServer) {
    let (theirs, ours) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    let ours = Socket::accepted(ours.into(), Family::Unix, false).unwrap();
    (theirs, WebServer::new(ours, None))
}

fn nowhere() -> SpoolFolder {
    SpoolFolder { path: "/nonexistent".into(), space: Arc::default() }
}

fn place(folder: &SpoolFolder) -> SpoolPlace<'_> {
    SpoolPlace { folder, owner: &"pool www" }
}

/// A request up to its body.
fn head(keep_conn: bool) -> Vec<u8> {
    let mut out = Vec::new();
    let mut request = RequestWriter::new(&mut out, 7, keep_conn);
    request.param(b"SCRIPT_NAME", b"/index.php").unwrap();
    request.finish();
    out
}

#[tokio::test(start_paused = true)]
async fn one_that_says_nothing_is_given_up_and_so_is_one_that_sends_half_a_header() {
    let (_silent, mut server) = pair();
    let begun = Instant::now();
    assert!(matches!(server.next_request().await, Err(NoRequest::Closed)));
    assert_eq!(begun.elapsed().as_secs(), FIRST.as_secs());
    let (mut half, mut server) = pair();
    half.write_all(&head(true)[..4]).unwrap();
    let begun = Instant::now();
    assert!(matches!(server.next_request().await, Err(NoRequest::Closed)));
    assert_eq!(begun.elapsed().as_secs(), HEAD.as_secs());
}

#[tokio::test(start_paused = true)]
async fn one_that_sends_half_of_its_parameters_is_told_that_it_is_too_slow() {
    let (mut half, mut server) = pair();
    half.write_all(&head(true)[..20]).unwrap();
    let begun = Instant::now();
    let refused = server.next_request().await;
    assert!(matches!(refused, Err(NoRequest::TooSlow(begun)) if begun.request_id == 7));
    assert_eq!(begun.elapsed().as_secs(), HEAD.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_body_that_never_ends_is_too_slow() {
    let (mut slow, mut server) = pair();
    let mut bytes = head(true);
    write_stdin(&mut bytes, 7, b"some");
    slow.write_all(&bytes).unwrap();
    server.next_request().await.unwrap();
    let refused = server.body(100, place(&nowhere())).await;
    assert!(matches!(refused, Err(BodyError::TooSlow)));
}

#[tokio::test(start_paused = true)]
async fn a_kept_connection_may_be_idle_for_days() {
    let (mut kept, mut server) = pair();
    kept.write_all(&head(true)).unwrap();
    server.next_request().await.unwrap();
    server.body(0, place(&nowhere())).await.unwrap();
    server.end_request();
    let day = Duration::from_secs(24 * 3600);
    let idle = tokio::time::timeout(2 * day, server.next_request()).await;
    assert!(idle.is_err());
    assert!(!server.is_amid());
    // Giving up the wait has cost nothing.
    kept.write_all(&head(true)).unwrap();
    assert_eq!(server.next_request().await.unwrap().request_id, 7);
}

#[tokio::test(start_paused = true)]
async fn one_that_never_reads_its_answer_is_given_up() {
    let (_deaf, mut server) = pair();
    let begun = Instant::now();
    let sent = server.send(&vec![0; 16 << 20]).await;
    assert!(sent.is_err());
    assert_eq!(begun.elapsed().as_secs(), PATIENCE.as_secs());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_refused_leaves_a_kept_connection_and_ends_another() {
    for keep_conn in [true, false] {
        let (mut theirs, mut server) = pair();
        let mut bytes = head(keep_conn);
        // Its role.
        bytes[9] = 77;
        theirs.write_all(&bytes).unwrap();
        theirs.write_all(&head(true)).unwrap();
        let next = server.next_request().await;
        match keep_conn {
            true => assert_eq!(next.unwrap().role, RESPONDER),
            false => assert!(matches!(next, Err(NoRequest::Over))),
        }
        let mut end = [0; 16];
        std::io::Read::read_exact(&mut theirs, &mut end).unwrap();
        assert_eq!(end[12], ProtocolStatus::UnknownRole as u8);
    }
}

#[test]
fn one_that_sends_a_descriptor_is_closed_and_another_is_served_meanwhile() {
    use crate::net::descriptor_guard::tests::{pair, send_lingering, soon, wait_for_end};
    soon(async {
        let (hostile, first) = pair();
        let (mut good, second) = pair();
        let mut first = WebServer::new(first, None);
        send_lingering(&hostile);
        let refused = first.next_request().await;
        assert!(matches!(refused, Err(NoRequest::Closed)));
        drop(first);
        good.write_all(&head(true)).unwrap();
        let begun = WebServer::new(second, None).next_request().await;
        assert_eq!(begun.unwrap().request_id, 7);
        wait_for_end(hostile);
    });
}
