//! Properties of any input: splitting its bytes never changes its meaning, and written output
//! parses to the same.

mod common;

use common::{Said, read_requests, read_response};
use maitred_fastcgi::cgi::{CgiHeaders, HeadError, HeadReader, Limits};
use maitred_fastcgi::{
    Header, ProtocolStatus, RequestWriter, params, write_end, write_stderr, write_stdin,
    write_stdin_end, write_stdout,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Positions to split an input of `len` bytes, in order.
fn cuts(len: usize) -> impl Strategy<Value = Vec<usize>> {
    vec(0..=len, 0..8).prop_map(|mut cuts| {
        cuts.sort_unstable();
        cuts
    })
}

fn with_cuts(
    inputs: impl Strategy<Value = Vec<u8>>,
) -> impl Strategy<Value = (Vec<u8>, Vec<usize>)> {
    inputs.prop_flat_map(|input| {
        let len = input.len();
        (Just(input), cuts(len))
    })
}

/// Records, most of them well-formed, of any type and mostly of request 1.
fn recordish() -> impl Strategy<Value = Vec<u8>> {
    let id = prop_oneof![8 => Just(1_u16), 1 => Just(0), 1 => 0..4_u16];
    let record = (0..13_u8, id, vec(any::<u8>(), 0..20), 0..9_u8).prop_map(
        |(kind, request_id, mut content, padding_len)| {
            if matches!(kind, 1 | 3) {
                content.resize(8, 0);
            }
            let content_len = content.len() as u16;
            let header = Header { version: 1, kind, request_id, content_len, padding_len };
            let padding = vec![0; padding_len.into()];
            [&header.encode()[..], &content, &padding].concat()
        },
    );
    let wellformed = Just(b"\x01\x01\0\x01\0\x08\0\0\0\x01\0\0\0\0\0\0".to_vec());
    let end_of_stream = (4..6_u8).prop_map(|kind| vec![1, kind, 0, 1, 0, 0, 0, 0]);
    let noise = vec(any::<u8>(), 0..3);
    let piece = prop_oneof![8 => record, 4 => wellformed, 4 => end_of_stream, 1 => noise];
    vec(piece, 0..10).prop_map(|pieces| pieces.concat())
}

fn headish() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        4 => "[A-Za-z-]{1,6}: ?[ -~]{0,10}\r?\n".prop_map(String::into_bytes),
        2 => Just(b"Status: 404 Not Found\r\n".to_vec()),
        2 => Just(b"\r\n".to_vec()),
        1 => vec(any::<u8>(), 0..4),
    ];
    vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

fn read_head(
    input: &[u8],
    cuts: &[usize],
    limits: Limits,
) -> Result<Option<(CgiHeaders, usize)>, HeadError> {
    let (mut reader, mut given) = (HeadReader::new(limits), 0);
    for &cut in cuts.iter().chain([&input.len()]) {
        if let Some((head, len)) = reader.read(&input[given..cut])? {
            return Ok(Some((head, given + len)));
        }
        given = cut;
    }
    Ok(None)
}

proptest! {
    #[test]
    fn an_answer_means_the_same_however_it_is_split((wire, cuts) in with_cuts(recordish())) {
        let whole = read_response(&wire, &[]);
        let pieces = read_response(&wire, &cuts);
        prop_assert_eq!((&whole.stdout, &whole.stderr), (&pieces.stdout, &pieces.stderr));
        prop_assert_eq!((whole.end, whole.error), (pieces.end, pieces.error));
    }

    #[test]
    fn requests_mean_the_same_however_they_are_split(
        (wire, cuts) in with_cuts(recordish()),
        max_params_bytes in 0_usize..60,
    ) {
        let pieces = read_requests(&wire, &cuts, max_params_bytes);
        prop_assert_eq!(read_requests(&wire, &[], max_params_bytes), pieces);
    }

    #[test]
    fn a_script_head_means_the_same_however_it_is_split(
        (input, cuts) in with_cuts(headish()),
        max_bytes in 0_usize..100,
        max_headers in 0_usize..5,
    ) {
        let limits = Limits { max_bytes, max_headers };
        prop_assert_eq!(read_head(&input, &[], limits), read_head(&input, &cuts, limits));
    }

    #[test]
    fn a_request_that_is_written_is_read_back(
        pairs in vec((vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..70_000)), 0..4),
        body in vec(any::<u8>(), 0..70_000),
        id in 1_u16..,
        keep_conn: bool,
    ) {
        let mut wire = Vec::new();
        let mut request = RequestWriter::new(&mut wire, id, keep_conn);
        for (name, value) in &pairs {
            request.param(name, value).unwrap();
        }
        request.finish();
        write_stdin(&mut wire, id, &body);
        write_stdin_end(&mut wire, id);
        let said = read_requests(&wire, &[wire.len() / 3], usize::MAX);
        prop_assert_eq!(&said[0], &Said::Begin { request_id: id, role: 1, keep_conn });
        let Said::Params(stream) = &said[1] else { panic!("{:?}", said[1]) };
        let read: Vec<_> = params(stream).map(|pair| pair.unwrap()).collect();
        let sent: Vec<_> = pairs.iter().map(|(n, v)| (&n[..], &v[..])).collect();
        prop_assert_eq!(read, sent);
        let read_body = if let Said::Stdin(body) = &said[2] { &body[..] } else { b"" };
        prop_assert_eq!(read_body, &body[..]);
        prop_assert_eq!(said.last(), Some(&Said::StdinEnd));
    }

    #[test]
    fn an_answer_that_is_written_is_read_back(
        pieces in vec((any::<bool>(), vec(any::<u8>(), 0..70_000)), 0..4),
        app_status: u32,
    ) {
        let (mut wire, mut stdout, mut stderr) = (vec![], vec![], vec![]);
        for (is_stdout, piece) in &pieces {
            if *is_stdout {
                write_stdout(&mut wire, 1, piece);
                stdout.extend_from_slice(piece);
            } else {
                write_stderr(&mut wire, 1, piece);
                stderr.extend_from_slice(piece);
            }
        }
        write_end(&mut wire, 1, app_status, ProtocolStatus::RequestComplete);
        let response = read_response(&wire, &[wire.len() / 2]);
        prop_assert_eq!((response.stdout, response.stderr), (stdout, stderr));
        prop_assert_eq!(response.end, Some((app_status, ProtocolStatus::RequestComplete)));
        prop_assert_eq!(response.read, wire.len());
    }

    #[test]
    fn parameters_of_any_bytes_are_read_without_going_beyond_them(
        stream in vec(prop_oneof![Just(0_u8), Just(1), Just(128), any::<u8>()], 0..64),
    ) {
        let mut total = 0;
        for pair in params(&stream) {
            match pair {
                Ok((name, value)) => total += 2 + name.len() + value.len(),
                Err(error) => prop_assert!(error.at >= total && error.at < stream.len()),
            }
        }
        prop_assert!(total <= stream.len());
    }
}
