//! Requests of web servers, valid and hostile. Each is also delivered one byte at a time.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

mod common;

use common::{Said, every_byte, read_requests};
use maitred_fastcgi::{
    DEFAULT_MAX_PARAMS_BYTES, Header, ProtocolError, RESPONDER, RecordType, RequestEvent,
    RequestReader, RequestWriter, record_header, write_abort, write_begin, write_stdin,
    write_stdin_end,
};

/// Reads `wire` at once and a byte at a time, and requires the same of both.
fn both_ways(wire: &[u8]) -> Vec<Said> {
    let whole = read_requests(wire, &[], DEFAULT_MAX_PARAMS_BYTES);
    let drip = read_requests(wire, &every_byte(wire.len()), DEFAULT_MAX_PARAMS_BYTES);
    assert_eq!(whole, drip, "{}", wire.escape_ascii());
    whole
}

fn request(id: u16, keep_conn: bool, body: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    let mut request = RequestWriter::new(&mut wire, id, keep_conn);
    request.param(b"A", b"b").unwrap();
    request.finish();
    write_stdin(&mut wire, id, body);
    write_stdin_end(&mut wire, id);
    wire
}

fn begun(request_id: u16, keep_conn: bool) -> Said {
    Said::Begin { request_id, role: RESPONDER, keep_conn }
}

/// The stream of the parameters that [`request`] sends.
fn params() -> Said {
    Said::Params(b"\x01\x01Ab".to_vec())
}

fn header(kind: RecordType, id: u16, len: u16) -> Vec<u8> {
    record_header(kind, id, len).to_vec()
}

#[test]
fn a_request_is_told_from_begin_to_the_bodys_end() {
    let said = both_ways(&request(5, false, b"body"));
    let expected = [begun(5, false), params(), Said::Stdin(b"body".to_vec()), Said::StdinEnd];
    assert_eq!(said, expected);
}

#[test]
fn a_kept_connection_carries_one_request_after_the_other() {
    let wire = [request(1, true, b""), request(1, true, b"x"), request(2, false, b"")].concat();
    let expected = [
        [begun(1, true), params(), Said::StdinEnd].to_vec(),
        [begun(1, true), params(), Said::Stdin(b"x".to_vec()), Said::StdinEnd].to_vec(),
        [begun(2, false), params(), Said::StdinEnd].to_vec(),
    ];
    assert_eq!(both_ways(&wire), expected.concat());
}

#[test]
fn a_body_of_many_records_is_told_piece_by_piece() {
    let body: Vec<u8> = (0..200_000).map(|i| i as u8).collect();
    let said = read_requests(&request(1, true, &body), &[], DEFAULT_MAX_PARAMS_BYTES);
    assert_eq!(said[2], Said::Stdin(body));
}

#[test]
fn padding_is_passed_over() {
    let mut wire = Vec::new();
    write_begin(&mut wire, 1, true);
    for (kind, content) in [(4, &b"\x01\x01Ab"[..]), (4, b""), (5, b"x"), (5, b"")] {
        let content_len = content.len() as u16;
        let header = Header { version: 1, kind, request_id: 1, content_len, padding_len: 4 };
        wire.extend_from_slice(&header.encode());
        wire.extend_from_slice(content);
        wire.extend_from_slice(b"\xee\xee\xee\xee");
    }
    let expected = [begun(1, true), params(), Said::Stdin(b"x".to_vec()), Said::StdinEnd];
    assert_eq!(both_ways(&wire), expected);
}

#[test]
fn an_abort_is_told_at_any_stage() {
    let whole = request(1, true, b"x");
    let mut early = whole[..16].to_vec();
    write_abort(&mut early, 1);
    assert_eq!(both_ways(&early), [begun(1, true), Said::Abort]);
    let mut late = whole[..whole.len() - 8].to_vec();
    write_abort(&mut late, 1);
    assert_eq!(both_ways(&late)[3..], [Said::Abort]);
}

#[test]
fn a_second_request_beside_the_first_is_told_and_does_not_disturb_it() {
    let mut wire = request(1, true, b"x");
    let end = wire.split_off(wire.len() - 8);
    wire.extend(request(2, true, b"y"));
    wire.extend(end);
    let said = both_ways(&wire);
    let expected =
        [begun(1, true), params(), Said::Stdin(b"x".to_vec()), Said::Second(2), Said::StdinEnd];
    assert_eq!(said, expected);
}

#[test]
fn management_records_are_told_at_any_stage() {
    let ask = [header(RecordType::GetValues, 0, 2), b"\0\0".to_vec()].concat();
    let unknown = [1, 42, 0, 0, 0, 0, 0, 0].to_vec();
    let wire = [ask, request(1, true, b""), unknown].concat();
    let expected = [
        Said::Values(b"\0\0".to_vec()),
        begun(1, true),
        params(),
        Said::StdinEnd,
        Said::Management(42),
    ];
    assert_eq!(both_ways(&wire), expected);
}

#[test]
fn after_an_early_answer_the_rest_of_the_request_is_passed_over() {
    let mut wire = request(1, true, b"a long body");
    wire.extend(request(1, true, b""));
    let (mut reader, mut input, mut said) = (RequestReader::default(), &wire[..], Vec::new());
    while let Some(event) = reader.next(&mut input).unwrap() {
        if event == RequestEvent::Params {
            reader.end_request();
        }
        said.push(event);
    }
    let begin = RequestEvent::Begin { request_id: 1, role: RESPONDER, keep_conn: true, flags: 0 };
    assert_eq!(said, [begin, RequestEvent::Params, begin, RequestEvent::Params]);
}

#[test]
fn parameters_are_bounded_over_all_their_records() {
    let with = |bytes: usize| {
        let mut wire = Vec::new();
        write_begin(&mut wire, 1, true);
        for _ in 0..bytes / 10 {
            wire.extend(header(RecordType::Params, 1, 10));
            wire.extend([0; 10]);
        }
        wire.extend(header(RecordType::Params, 1, 0));
        read_requests(&wire, &[], 100)
    };
    assert_eq!(with(100)[1], Said::Params(vec![0; 100]));
    assert_eq!(with(110)[1], Said::Broken(ProtocolError::ParamsTooLarge(100)));
}

#[test]
fn what_a_web_server_may_not_send_is_refused() {
    let after_begin = |record: Vec<u8>| [request(1, true, b"")[..16].to_vec(), record].concat();
    let hostile = [
        (header(RecordType::Stdout, 1, 0), ProtocolError::Unexpected(6)),
        (header(RecordType::EndRequest, 1, 8), ProtocolError::Unexpected(3)),
        (header(RecordType::BeginRequest, 0, 8), ProtocolError::RequestId(0)),
        (header(RecordType::BeginRequest, 1, 7), ProtocolError::FixedLength(1)),
        (header(RecordType::BeginRequest, 1, 65535), ProtocolError::FixedLength(1)),
        (after_begin(header(RecordType::Stdin, 1, 1)), ProtocolError::Unexpected(5)),
        (after_begin(header(RecordType::BeginRequest, 1, 8)), ProtocolError::Unexpected(1)),
        (after_begin(header(RecordType::Data, 1, 1)), ProtocolError::Unexpected(8)),
        (after_begin(header(RecordType::Params, 0, 1)), ProtocolError::RequestId(0)),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), ProtocolError::Version(b'G')),
        (b"\x02\x01\x00\x01\x00\x08\x00\x00".to_vec(), ProtocolError::Version(2)),
    ];
    for (wire, error) in hostile {
        assert_eq!(both_ways(&wire).last(), Some(&Said::Broken(error)), "{}", wire.escape_ascii());
    }
}
