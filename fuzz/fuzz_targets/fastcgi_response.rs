//! An application's answer means the same whole and byte by byte, and its reader always moves on.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_fastcgi::{ResponseEvent, ResponseReader, ProtocolError, ProtocolStatus};

#[derive(Debug, Default, PartialEq)]
struct ReadResponse {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
    end: Option<(u32, ProtocolStatus)>,
}

fn read(wire: &[u8], size: usize) -> (ReadResponse, Result<(), ProtocolError>) {
    let (mut reader, mut answer) = (ResponseReader::new(1), ReadResponse::default());
    for mut input in wire.chunks(size.max(1)) {
        loop {
            let before = input.len();
            match reader.next(&mut input) {
                Ok(Some(ResponseEvent::Stdout(bytes))) => answer.stdout.extend_from_slice(bytes),
                Ok(Some(ResponseEvent::Stderr(bytes))) => answer.stderr.extend_from_slice(bytes),
                Ok(Some(ResponseEvent::Report(bytes) | ResponseEvent::Hints(bytes))) => {
                    answer.stderr.extend_from_slice(bytes);
                }
                Ok(Some(ResponseEvent::End { app_status, protocol_status })) => {
                    answer.end = Some((app_status, protocol_status));
                    return (answer, Ok(()));
                }
                Ok(None) => break,
                Err(error) => return (answer, Err(error)),
            }
            assert!(input.len() < before);
        }
        assert!(input.is_empty());
    }
    (answer, Ok(()))
}

fuzz_target!(|wire: &[u8]| {
    assert_eq!(read(wire, wire.len()), read(wire, 1));
});
