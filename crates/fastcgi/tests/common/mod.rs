//! Helpers: readers fed in pieces, with adjacent pieces of a stream joined.

use maitred_fastcgi::{
    ProtocolError, ProtocolStatus, RequestEvent, RequestReader, ResponseEvent, ResponseReader,
};

/// A parsed response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadResponse {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub end: Option<(u32, ProtocolStatus)>,
    pub error: Option<ProtocolError>,
    /// Bytes read, unless there was an error.
    pub read: usize,
    pub report: Vec<u8>,
}

/// Reads the response to request 1, in pieces that end at `cuts`.
#[allow(dead_code)]
pub fn read_response(wire: &[u8], cuts: &[usize]) -> ReadResponse {
    let (mut reader, mut response, mut given) =
        (ResponseReader::new(1), ReadResponse::default(), 0);
    for &cut in cuts.iter().chain([&wire.len()]) {
        let mut input = &wire[given..cut];
        loop {
            let event = reader.next(&mut input);
            match event {
                Ok(Some(ResponseEvent::Stdout(bytes))) => response.stdout.extend_from_slice(bytes),
                Ok(Some(ResponseEvent::Stderr(bytes))) => response.stderr.extend_from_slice(bytes),
                Ok(Some(ResponseEvent::End { app_status, protocol_status })) => {
                    response.end = Some((app_status, protocol_status));
                }
                Ok(Some(ResponseEvent::Report(bytes) | ResponseEvent::Hints(bytes))) => {
                    response.report.extend_from_slice(bytes)
                }
                Ok(None) => break,
                Err(error) => {
                    return ReadResponse { error: Some(error), read: 0, ..response };
                }
            }
        }
        response.read = cut - input.len();
        if reader.is_over() {
            return response;
        }
        given = cut;
    }
    response
}

/// The events of a web server, pieces of a body joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    Begin { request_id: u16, role: u16, keep_conn: bool },
    Params(Vec<u8>),
    Stdin(Vec<u8>),
    StdinEnd,
    Abort,
    Second(u16),
    Values(Vec<u8>),
    Management(u8),
    Broken(ProtocolError),
}

/// Reads requests, in pieces that end at `cuts`; each gets its response when its body has ended.
#[allow(dead_code)]
pub fn read_requests(wire: &[u8], cuts: &[usize], max_params_bytes: usize) -> Vec<Said> {
    let (mut reader, mut said, mut given) = (RequestReader::new(max_params_bytes), vec![], 0);
    for &cut in cuts.iter().chain([&wire.len()]) {
        let mut input = &wire[given..cut];
        given = cut;
        loop {
            let event = match reader.next(&mut input) {
                Ok(Some(event)) => event,
                Ok(None) => break,
                Err(error) => {
                    said.push(Said::Broken(error));
                    return said;
                }
            };
            match event {
                RequestEvent::Begin { request_id, role, keep_conn, .. } => {
                    said.push(Said::Begin { request_id, role, keep_conn });
                }
                RequestEvent::Params => said.push(Said::Params(reader.params().to_vec())),
                RequestEvent::Stdin(bytes) => match said.last_mut() {
                    Some(Said::Stdin(body)) => body.extend_from_slice(bytes),
                    _ => said.push(Said::Stdin(bytes.to_vec())),
                },
                RequestEvent::StdinEnd => {
                    said.push(Said::StdinEnd);
                    reader.end_request();
                }
                RequestEvent::Abort => said.push(Said::Abort),
                RequestEvent::Second { request_id } => said.push(Said::Second(request_id)),
                RequestEvent::Values => said.push(Said::Values(reader.values().to_vec())),
                RequestEvent::Management { kind } => said.push(Said::Management(kind)),
            }
        }
        assert!(input.is_empty(), "a reader that leaves input unread would spin");
    }
    said
}

/// All positions to split an input of `len` bytes.
#[allow(dead_code)]
pub fn every_byte(len: usize) -> Vec<usize> {
    (1..len).collect()
}
