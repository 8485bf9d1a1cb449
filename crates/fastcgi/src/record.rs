/// The only protocol version (§8, `FCGI_VERSION_1`).
pub const VERSION: u8 = 1;

/// Bytes of a record's header (§8, `FCGI_HEADER_LEN`).
pub const HEADER_LEN: usize = 8;

/// The most content bytes one record carries (§3.3).
pub const MAX_CONTENT_LEN: usize = 0xffff;

/// The role of an application that responds to HTTP requests (§6.2, `FCGI_RESPONDER`).
pub const RESPONDER: u16 = 1;

/// The role of an application that authorizes requests (§6.3, `FCGI_AUTHORIZER`).
pub const AUTHORIZER: u16 = 2;

/// The role of an application that filters a file (§6.4, `FCGI_FILTER`).
pub const FILTER: u16 = 3;

/// The flag to leave the connection open (§5.1, `FCGI_KEEP_CONN`).
pub const KEEP_CONN: u8 = 1;

/// A private flag between front and worker, beside [`KEEP_CONN`]: the parameters come from a web
/// server, and php-fpm's rules apply to them. §5.1 reserves the bit.
pub const FOREIGN_PARAMS: u8 = 0x80;

/// A private flag between front and worker: a report is required before the end of the request
/// ([`crate::ResponseEvent::Report`]). §5.1 reserves the bit.
pub const WANTS_REPORT: u8 = 0x40;

/// Type of the management record with a worker's report to the front. §4.2 allows
/// application-specific types.
pub const REPORT: u8 = 128;

/// Type of the management record with early hints (RFC 8297) from a worker to the front.
pub const HINTS: u8 = 129;

/// The type of a record (§8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RecordType {
    /// Start of a request (§5.1).
    BeginRequest = 1,
    /// The web server aborts the request (§5.4).
    AbortRequest = 2,
    /// End of a request (§5.5).
    EndRequest = 3,
    /// Name-value pairs, a stream (§5.2).
    Params = 4,
    /// The request's body, a stream (§5.3).
    Stdin = 5,
    /// The response, a stream (§5.3).
    Stdout = 6,
    /// Error messages, a stream (§5.3).
    Stderr = 7,
    /// A second body, for filters (§6.4).
    Data = 8,
    /// A query of the application's capabilities (§4.1).
    GetValues = 9,
    /// The response to it (§4.1).
    GetValuesResult = 10,
    /// The response to an unknown management record (§4.2).
    UnknownType = 11,
}

impl RecordType {
    /// The type with this number, if it is specified.
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            1 => Self::BeginRequest,
            2 => Self::AbortRequest,
            3 => Self::EndRequest,
            4 => Self::Params,
            5 => Self::Stdin,
            6 => Self::Stdout,
            7 => Self::Stderr,
            8 => Self::Data,
            9 => Self::GetValues,
            10 => Self::GetValuesResult,
            11 => Self::UnknownType,
            _ => return None,
        })
    }
}

/// The protocol status of a finished request (§5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ProtocolStatus {
    /// Complete.
    RequestComplete = 0,
    /// Rejected: one request at a time on a connection.
    CantMultiplex = 1,
    /// Rejected: the application is overloaded.
    Overloaded = 2,
    /// Rejected: the application does not support this role.
    UnknownRole = 3,
}

impl ProtocolStatus {
    /// The status with this number, if it is specified.
    pub const fn of(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::RequestComplete,
            1 => Self::CantMultiplex,
            2 => Self::Overloaded,
            3 => Self::UnknownRole,
            _ => return None,
        })
    }
}

/// The header of a record (§3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// [`VERSION`], if the peer speaks FastCGI.
    pub version: u8,
    /// A [`RecordType`] by number.
    pub kind: u8,
    /// The request id; 0 for management records.
    pub request_id: u16,
    /// Bytes of content after the header.
    pub content_len: u16,
    /// Padding bytes after the content.
    pub padding_len: u8,
}

impl Header {
    /// Its bytes.
    pub const fn encode(self) -> [u8; HEADER_LEN] {
        let [id_high, id_low] = self.request_id.to_be_bytes();
        let [len_high, len_low] = self.content_len.to_be_bytes();
        [self.version, self.kind, id_high, id_low, len_high, len_low, self.padding_len, 0]
    }

    /// Decodes a header; any version is accepted.
    pub const fn decode(bytes: [u8; HEADER_LEN]) -> Self {
        let [version, kind, id_high, id_low, len_high, len_low, padding_len, _reserved] = bytes;
        Self {
            version,
            kind,
            request_id: u16::from_be_bytes([id_high, id_low]),
            content_len: u16::from_be_bytes([len_high, len_low]),
            padding_len,
        }
    }
}

/// The header of a record with `content_len` bytes and no padding, for callers that write the
/// content themselves.
pub const fn record_header(
    kind: RecordType,
    request_id: u16,
    content_len: u16,
) -> [u8; HEADER_LEN] {
    let header =
        Header { version: VERSION, kind: kind as u8, request_id, content_len, padding_len: 0 };
    header.encode()
}

/// Appends `content` as records of one stream. None of them is empty, since an empty one would end
/// the stream.
pub(crate) fn write_stream(out: &mut Vec<u8>, kind: RecordType, request_id: u16, content: &[u8]) {
    for piece in content.chunks(MAX_CONTENT_LEN) {
        out.reserve(HEADER_LEN + piece.len());
        out.extend_from_slice(&record_header(kind, request_id, piece.len() as u16));
        out.extend_from_slice(piece);
    }
}
