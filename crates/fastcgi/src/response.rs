use crate::record::{
    HINTS, Header, MAX_CONTENT_LEN, ProtocolStatus, REPORT, RecordType, VERSION, record_header,
    write_stream,
};

/// Appends a part of the response (§5.3), in as many records as needed; nothing if it is empty.
pub fn write_stdout(out: &mut Vec<u8>, request_id: u16, content: &[u8]) {
    write_stream(out, RecordType::Stdout, request_id, content);
}

/// Appends error messages (§5.3), in as many records as needed; nothing if they are empty.
pub fn write_stderr(out: &mut Vec<u8>, request_id: u16, content: &[u8]) {
    write_stream(out, RecordType::Stderr, request_id, content);
}

/// Appends the END_REQUEST record (§5.5). `app_status` is the exit status of a CGI program.
pub fn write_end(
    out: &mut Vec<u8>,
    request_id: u16,
    app_status: u32,
    protocol_status: ProtocolStatus,
) {
    out.extend_from_slice(&record_header(RecordType::EndRequest, request_id, 8));
    out.extend_from_slice(&app_status.to_be_bytes());
    out.extend_from_slice(&[protocol_status as u8, 0, 0, 0]);
}

/// Appends the UNKNOWN_TYPE response to a management record (§4.2).
pub fn write_unknown_type(out: &mut Vec<u8>, kind: u8) {
    out.extend_from_slice(&record_header(RecordType::UnknownType, 0, 8));
    out.extend_from_slice(&[kind, 0, 0, 0, 0, 0, 0, 0]);
}

/// Appends the response to GET_VALUES (§4.1): encoded `pairs`, at most one record.
pub fn write_values(out: &mut Vec<u8>, pairs: &[u8]) {
    let pairs = &pairs[..pairs.len().min(MAX_CONTENT_LEN)];
    write_stream(out, RecordType::GetValuesResult, 0, pairs);
    if pairs.is_empty() {
        out.extend_from_slice(&record_header(RecordType::GetValuesResult, 0, 0));
    }
}

/// Appends a worker's report on its request, as one management record; beyond a record it is
/// truncated.
pub fn write_report(out: &mut Vec<u8>, report: &[u8]) {
    write_management(out, REPORT, report);
}

/// Appends early hints (RFC 8297), as one management record: header lines, each with its CRLF, and
/// an empty line. Nothing if they exceed a record.
pub fn write_hints(out: &mut Vec<u8>, hints: &[u8]) {
    if hints.len() <= MAX_CONTENT_LEN {
        write_management(out, HINTS, hints);
    }
}

fn write_management(out: &mut Vec<u8>, kind: u8, report: &[u8]) {
    let report = &report[..report.len().min(MAX_CONTENT_LEN)];
    let header = Header {
        version: VERSION,
        kind,
        request_id: 0,
        content_len: u16::try_from(report.len()).unwrap_or(u16::MAX),
        padding_len: 0,
    };
    out.extend_from_slice(&header.encode());
    out.extend_from_slice(report);
}
