//! Records, byte for byte, as in the specification and its appendix B.

#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use maitred_fastcgi::{
    HEADER_LEN, Header, MAX_CONTENT_LEN, ParamError, ProtocolStatus, RecordType, RequestWriter,
    params, record_header, write_abort, write_begin, write_end, write_stderr, write_stdin,
    write_stdin_end, write_stdout, write_unknown_type,
};

/// The records in `wire`: type, id and content.
fn records(mut wire: &[u8]) -> Vec<(u8, u16, Vec<u8>)> {
    let mut found = Vec::new();
    while let Some((header, rest)) = wire.split_first_chunk::<HEADER_LEN>() {
        let header = Header::decode(*header);
        assert_eq!(header.version, 1);
        let (content, rest) = rest.split_at(header.content_len.into());
        found.push((header.kind, header.request_id, content.to_vec()));
        wire = &rest[header.padding_len.into()..];
    }
    assert!(wire.is_empty(), "half a record is left");
    found
}

/// The content of the complete PARAMS stream in `wire`, and the lengths of its records.
fn params_stream(wire: &[u8]) -> (Vec<u8>, Vec<usize>) {
    let mut contents: Vec<Vec<u8>> = records(wire)
        .into_iter()
        .filter(|(kind, ..)| *kind == RecordType::Params as u8)
        .map(|(_, _, content)| content)
        .collect();
    assert_eq!(contents.pop(), Some(vec![]), "the stream ends with an empty record");
    assert!(contents.iter().all(|content| !content.is_empty()), "only the last record is empty");
    (contents.concat(), contents.iter().map(Vec::len).collect())
}

/// The wire form of a request with these parameters.
fn request(pairs: &[(&[u8], &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut request = RequestWriter::new(&mut out, 1, true);
    for (name, value) in pairs {
        request.param(name, value).unwrap();
    }
    request.finish();
    out
}

#[test]
fn a_small_request_is_written_byte_for_byte() {
    let mut out = request(&[(b"A", b"bc")]);
    write_stdin(&mut out, 1, b"body");
    write_stdin_end(&mut out, 1);
    let expected: &[&[u8]] = &[
        b"\x01\x01\x00\x01\x00\x08\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00",
        b"\x01\x04\x00\x01\x00\x05\x00\x00\x01\x02Abc",
        b"\x01\x04\x00\x01\x00\x00\x00\x00",
        b"\x01\x05\x00\x01\x00\x04\x00\x00body",
        b"\x01\x05\x00\x01\x00\x00\x00\x00",
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn an_answer_is_written_byte_for_byte() {
    let mut out = Vec::new();
    write_stdout(&mut out, 0x0102, b"hi");
    write_stderr(&mut out, 0x0102, b"no");
    write_end(&mut out, 0x0102, 938, ProtocolStatus::RequestComplete);
    let expected: &[&[u8]] = &[
        b"\x01\x06\x01\x02\x00\x02\x00\x00hi",
        b"\x01\x07\x01\x02\x00\x02\x00\x00no",
        b"\x01\x03\x01\x02\x00\x08\x00\x00\x00\x00\x03\xaa\x00\x00\x00\x00",
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn the_other_records_are_written_byte_for_byte() {
    let mut out = Vec::new();
    write_begin(&mut out, 7, false);
    write_abort(&mut out, 7);
    write_unknown_type(&mut out, 99);
    let expected: &[&[u8]] = &[
        b"\x01\x01\x00\x07\x00\x08\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00",
        b"\x01\x02\x00\x07\x00\x00\x00\x00",
        b"\x01\x0b\x00\x00\x00\x08\x00\x00\x63\x00\x00\x00\x00\x00\x00\x00",
    ];
    assert_eq!(out, expected.concat());
}

#[test]
fn a_header_is_decoded_as_it_was_encoded() {
    let bytes = record_header(RecordType::Stdout, 0xabcd, 0xfffe);
    assert_eq!(bytes, *b"\x01\x06\xab\xcd\xff\xfe\x00\x00");
    let padded = Header { padding_len: 7, ..Header::decode(bytes) };
    assert_eq!(Header::decode(padded.encode()), padded);
    assert_eq!(RecordType::of(padded.kind), Some(RecordType::Stdout));
    assert_eq!((RecordType::of(0), RecordType::of(12)), (None, None));
}

#[test]
fn streams_are_cut_at_the_largest_record_and_never_hold_an_empty_one() {
    for len in [0, 1, MAX_CONTENT_LEN, MAX_CONTENT_LEN + 1, 3 * MAX_CONTENT_LEN] {
        let body: Vec<u8> = (0..len).map(|i| i as u8).collect();
        let mut out = Vec::new();
        write_stdin(&mut out, 1, &body);
        let records = records(&out);
        assert_eq!(records.len(), len.div_ceil(MAX_CONTENT_LEN));
        assert!(records.iter().all(|(_, _, content)| !content.is_empty()));
        assert_eq!(
            records.into_iter().flat_map(|(_, _, content)| content).collect::<Vec<_>>(),
            body
        );
    }
}

#[test]
fn lengths_up_to_127_take_one_byte_and_others_four() {
    let (short, long) = ([b'v'; 127], [b'v'; 128]);
    let (stream, _) = params_stream(&request(&[(b"S", &short), (b"L", &long), (b"", b"")]));
    assert_eq!(&stream[..3], b"\x01\x7fS");
    assert_eq!(&stream[130..136], b"\x01\x80\x00\x00\x80L");
    assert_eq!(&stream[264..], b"\0\0");
    let pairs: Result<Vec<_>, _> = params(&stream).collect();
    assert_eq!(pairs.unwrap(), [(&b"S"[..], &short[..]), (b"L", &long), (b"", b"")]);
}

#[test]
fn a_request_without_parameters_ends_them_at_once() {
    assert_eq!(params_stream(&request(&[])), (vec![], vec![]));
}

#[test]
fn pairs_stay_whole_as_long_as_a_record_can_hold_them() {
    let value = vec![b'v'; 40_000];
    let (stream, lens) = params_stream(&request(&[(b"A", &value), (b"B", &value), (b"C", b"c")]));
    assert_eq!(lens, [40_006, 40_006 + 4]);
    assert_eq!(params(&stream).count(), 3);
}

#[test]
fn a_pair_fills_a_record_to_the_last_byte() {
    let value = vec![b'v'; MAX_CONTENT_LEN - 6];
    let (_, lens) = params_stream(&request(&[(b"A", &value)]));
    assert_eq!(lens, [MAX_CONTENT_LEN]);
}

#[test]
fn a_pair_too_long_for_any_record_is_cut() {
    let value: Vec<u8> = (0..200_000).map(|i| i as u8).collect();
    let (stream, lens) = params_stream(&request(&[(b"a", b"b"), (b"BIG", &value), (b"c", b"d")]));
    assert_eq!(lens, [4, 65_535, 65_535, 65_535, 200_008 - 3 * 65_535 + 4]);
    let pairs: Result<Vec<_>, _> = params(&stream).collect();
    assert_eq!(pairs.unwrap(), [(&b"a"[..], &b"b"[..]), (b"BIG", &value), (b"c", b"d")]);
}

#[test]
fn a_stream_that_ends_within_a_pair_is_an_error_that_says_where() {
    let streams: &[&[u8]] = &[
        b"\x01\x01ab\x01",
        b"\x01\x01ab\x80\x00",
        b"\x01\x01ab\x01\x01c",
        b"\x01\x01ab\xff\xff\xff\xff\xff\xff\xff\xffc",
        b"\x01\x01ab\x01\x80\x00\x00\x02cd",
    ];
    for stream in streams {
        let read: Vec<_> = params(stream).collect();
        assert_eq!(read.len(), 2, "{}", stream.escape_ascii());
        assert_eq!(read[0], Ok((&b"a"[..], &b"b"[..])));
        assert_eq!(read[1].unwrap_err().at, 4);
    }
}

#[test]
fn a_parameter_beyond_its_stream_is_named_by_its_place() {
    let stream = b"\x01\x01ab\x01\x05ab";
    let error = params(stream).find_map(Result::err).unwrap();
    let expected = "The FastCGI parameter at byte 4 is longer than the stream it is in.";
    assert_eq!((error, error.to_string()), (ParamError { at: 4 }, expected.to_owned()));
}
