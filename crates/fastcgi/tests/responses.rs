//! Responses of applications, valid and hostile. Each is also delivered one byte at a time.

mod common;

use common::{ReadResponse, every_byte, read_response};
use maitred_fastcgi::{
    Header, ProtocolError, ProtocolStatus, RecordType, ResponseReader, write_end, write_stderr,
    write_stdout, write_unknown_type,
};

/// Reads `wire` at once and a byte at a time, and requires the same of both.
fn both_ways(wire: &[u8]) -> ReadResponse {
    let whole = read_response(wire, &[]);
    assert_eq!(whole, read_response(wire, &every_byte(wire.len())), "{}", wire.escape_ascii());
    whole
}

fn record(header: Header, content: &[u8]) -> Vec<u8> {
    let mut wire = header.encode().to_vec();
    wire.extend_from_slice(content);
    wire.resize(wire.len() + usize::from(header.padding_len), 0xee);
    wire
}

fn header(kind: u8, request_id: u16, content_len: u16) -> Header {
    Header { version: 1, kind, request_id, content_len, padding_len: 0 }
}

fn ended(status: ProtocolStatus) -> Vec<u8> {
    let mut wire = Vec::new();
    write_end(&mut wire, 1, 3, status);
    wire
}

#[test]
fn both_streams_are_told_apart_up_to_the_end() {
    let mut wire = Vec::new();
    write_stdout(&mut wire, 1, b"Status: 200 OK\r\n\r\n");
    write_stderr(&mut wire, 1, b"PHP Warning");
    write_stdout(&mut wire, 1, b"hello");
    write_end(&mut wire, 1, 0, ProtocolStatus::RequestComplete);
    let response = both_ways(&wire);
    assert_eq!(response.stdout, b"Status: 200 OK\r\n\r\nhello");
    assert_eq!(response.stderr, b"PHP Warning");
    assert_eq!(response.end, Some((0, ProtocolStatus::RequestComplete)));
    assert_eq!((response.error, response.read), (None, wire.len()));
}

#[test]
fn padding_is_passed_over_and_so_are_empty_records() {
    let padded = |kind, content: &[u8]| {
        let len = content.len() as u16;
        record(Header { padding_len: 255, ..header(kind as u8, 1, len) }, content)
    };
    let wire = [
        padded(RecordType::Stdout, b"a"),
        padded(RecordType::Stderr, b""),
        padded(RecordType::Stdout, b""),
        padded(RecordType::Stdout, b"b"),
        padded(RecordType::EndRequest, b"\0\0\0\x03\x02\0\0\0"),
    ]
    .concat();
    let response = both_ways(&wire);
    assert_eq!((response.stdout, response.stderr), (b"ab".to_vec(), vec![]));
    assert_eq!(response.end, Some((3, ProtocolStatus::Overloaded)));
    assert_eq!(response.read, wire.len());
}

#[test]
fn the_end_is_told_only_when_its_padding_has_come() {
    let end = Header { padding_len: 3, ..header(RecordType::EndRequest as u8, 1, 8) };
    let wire = record(end, &[0; 8]);
    assert_eq!(both_ways(&wire[..wire.len() - 1]).end, None);
    assert!(both_ways(&wire).end.is_some());
}

#[test]
fn every_protocol_status_is_known_and_others_are_refused() {
    let known = [
        ProtocolStatus::RequestComplete,
        ProtocolStatus::CantMultiplex,
        ProtocolStatus::Overloaded,
        ProtocolStatus::UnknownRole,
    ];
    for status in known {
        assert_eq!(both_ways(&ended(status)).end, Some((3, status)));
    }
    let wire = record(header(RecordType::EndRequest as u8, 1, 8), b"\0\0\0\0\x04\0\0\0");
    assert_eq!(both_ways(&wire).error, Some(ProtocolError::ProtocolStatus(4)));
}

#[test]
fn nothing_is_read_beyond_the_end() {
    let end = ended(ProtocolStatus::RequestComplete);
    let wire = [end.clone(), b"junk".to_vec()].concat();
    let response = both_ways(&wire);
    assert_eq!((response.read, response.error), (end.len(), None));
    let mut reader = ResponseReader::new(1);
    let mut input = &wire[..];
    assert!(matches!(reader.next(&mut input), Ok(Some(_))));
    assert_eq!((reader.next(&mut input), input), (Ok(None), &b"junk"[..]));
}

#[test]
fn management_records_are_passed_over() {
    let mut wire = Vec::new();
    write_unknown_type(&mut wire, 77);
    wire.extend(record(header(RecordType::GetValuesResult as u8, 0, 3), b"abc"));
    wire.extend(record(header(200, 0, 3), b"abc"));
    wire.extend(ended(ProtocolStatus::RequestComplete));
    let response = both_ways(&wire);
    assert_eq!((response.error, response.read), (None, wire.len()));
    assert!(response.end.is_some() && response.stdout.is_empty());
}

#[test]
fn what_an_application_may_not_send_is_refused() {
    let stdout = RecordType::Stdout as u8;
    let end = RecordType::EndRequest as u8;
    let hostile = [
        (record(header(stdout, 2, 1), b"x"), ProtocolError::RequestId(2)),
        (record(header(stdout, 0, 1), b"x"), ProtocolError::RequestId(0)),
        (record(header(end, 0, 8), &[0; 8]), ProtocolError::RequestId(0)),
        (record(header(end, 1, 7), &[0; 7]), ProtocolError::FixedLength(3)),
        (record(header(end, 1, 9), &[0; 9]), ProtocolError::FixedLength(3)),
        (record(header(end, 1, 0), b""), ProtocolError::FixedLength(3)),
        (record(header(1, 1, 8), &[0; 8]), ProtocolError::Unexpected(1)),
        (record(header(4, 1, 0), b""), ProtocolError::Unexpected(4)),
        (record(header(5, 1, 0), b""), ProtocolError::Unexpected(5)),
        (record(header(11, 1, 8), &[0; 8]), ProtocolError::Unexpected(11)),
        (record(header(99, 1, 0), b""), ProtocolError::Unexpected(99)),
        (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), ProtocolError::Version(b'H')),
        (record(Header { version: 0, ..header(stdout, 1, 1) }, b"x"), ProtocolError::Version(0)),
    ];
    for (wire, error) in hostile {
        let response = both_ways(&wire);
        assert_eq!(response.error, Some(error), "{}", wire.escape_ascii());
        assert!(response.stdout.is_empty() && response.end.is_none());
        assert!(error.to_string().ends_with('.'));
    }
}

#[test]
fn an_answer_that_breaks_off_has_no_end() {
    let mut wire = Vec::new();
    write_stdout(&mut wire, 1, b"hello");
    write_end(&mut wire, 1, 0, ProtocolStatus::RequestComplete);
    for len in 0..wire.len() {
        let response = both_ways(&wire[..len]);
        assert_eq!((response.end, response.error), (None, None), "after {len} bytes");
        assert_eq!(response.stdout, b"hello"[..len.saturating_sub(8).min(5)]);
    }
}
