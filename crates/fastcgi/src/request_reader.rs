use crate::record::{Header, KEEP_CONN, RecordType};
use crate::record_reader::{FixedContent, Part, ProtocolError, Records};

/// Default limit of the parameters of a request in bytes: names, values and length fields.
pub const DEFAULT_MAX_PARAMS_BYTES: usize = 1 << 20;

/// Capacity of the parameter buffer that a connection retains between two requests, in bytes.
const KEPT_PARAMS_BYTES: usize = 16 * 1024;

/// Most bytes of parameters from a web server: a megabyte of values, and their overhead.
pub const FOREIGN_MAX_PARAMS_BYTES: usize = 2 << 20;

/// An event from the web server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestEvent<'a> {
    /// Start of a request.
    Begin {
        /// Its id, for all records of the response.
        request_id: u16,
        /// [`crate::RESPONDER`], or a role to reject as unknown.
        role: u16,
        /// Whether the connection stays open after the response.
        keep_conn: bool,
        /// The other flags, which are private ([`crate::FOREIGN_PARAMS`], [`crate::WANTS_REPORT`]).
        flags: u8,
    },
    /// The parameters are complete: [`RequestReader::params`].
    Params,
    /// The next bytes of the body; never empty.
    Stdin(&'a [u8]),
    /// The body is complete.
    StdinEnd,
    /// The web server aborts the request: end it soon.
    Abort,
    /// A second request starts before this one has ended: reject it with
    /// [`crate::ProtocolStatus::CantMultiplex`].
    Second {
        /// The other request's id.
        request_id: u16,
    },
    /// A query of capabilities is complete: [`RequestReader::values`]. Respond with
    /// [`crate::write_values`].
    Values,
    /// A skipped management record of this type. Respond with [`crate::write_unknown_type`].
    Management {
        /// The number of its type.
        kind: u8,
    },
}

/// Reads the requests of a connection one after the other, incrementally. Buffers the parameters,
/// bounded.
///
/// ```text
/// Idle ─BEGIN─▶ Params ─empty PARAMS─▶ Stdin ─empty STDIN─▶ Done
///   ▲                                                        │
///   └──────────── end_request(), from any state ◀────────────┘
/// ```
#[derive(Clone, Debug)]
pub struct RequestReader {
    max_params_bytes: usize,
    records: Records,
    state: State,
    request_id: u16,
    content: RequestContent,
    params: Vec<u8>,
    /// RequestContent of the last GET_VALUES, which is one record.
    values: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Params,
    Stdin,
    Done,
}

/// The meaning of the current record's content.
#[derive(Clone, Copy, Debug)]
enum RequestContent {
    Begin(FixedContent),
    Params,
    Stdin,
    Values,
    Skipped,
    /// None, but an event at the end of the record.
    Told(RequestEvent<'static>),
}

impl Default for RequestReader {
    fn default() -> Self {
        Self::new(DEFAULT_MAX_PARAMS_BYTES)
    }
}

impl RequestReader {
    /// A reader at the start of a connection.
    pub const fn new(max_params_bytes: usize) -> Self {
        Self {
            max_params_bytes,
            records: Records::new(),
            state: State::Idle,
            request_id: 0,
            content: RequestContent::Skipped,
            params: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Takes the next event off `input`; `None` when all of it is read without a complete event.
    ///
    /// # Errors
    /// A protocol violation of the web server; close the connection.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<RequestEvent<'a>>, ProtocolError> {
        while let Some(part) = self.records.next(input)? {
            match (part, &mut self.content) {
                (Part::Start(header), _) => self.content = self.content_of(header)?,
                (Part::Content(bytes), RequestContent::Begin(fixed)) => fixed.add(bytes),
                (Part::Content(bytes), RequestContent::Params) => self.add_params(bytes)?,
                (Part::Content(bytes), RequestContent::Stdin) => {
                    return Ok(Some(RequestEvent::Stdin(bytes)));
                }
                (Part::Content(bytes), RequestContent::Values) => {
                    self.values.extend_from_slice(bytes)
                }
                (Part::End, RequestContent::Values) => return Ok(Some(RequestEvent::Values)),
                (Part::End, &mut RequestContent::Begin(fixed)) => {
                    return Ok(Some(self.begin(fixed.bytes())));
                }
                (Part::End, &mut RequestContent::Told(event)) => return Ok(Some(event)),
                (Part::Content(_) | Part::End, _) => {}
            }
        }
        Ok(None)
    }

    /// The parameters of the current request, for [`crate::params`]; complete from
    /// [`RequestEvent::Params`] on.
    pub fn params(&self) -> &[u8] {
        &self.params
    }

    /// Removes the parameters of the current request from the reader, and returns them.
    pub fn take_params(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.params)
    }

    /// The content of the last GET_VALUES, for [`crate::params`]; complete with
    /// [`RequestEvent::Values`].
    pub fn values(&self) -> &[u8] {
        &self.values
    }

    /// Whether the current request has been received completely, or there is none.
    pub fn is_complete(&self) -> bool {
        matches!(self.state, State::Idle | State::Done)
    }

    /// Whether nothing has arrived since the last request.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle && self.records.is_between()
    }

    /// Resets the reader for another connection.
    pub fn restart(&mut self) {
        (self.records, self.content) = (Records::new(), RequestContent::Skipped);
        self.end_request();
    }

    /// Ends the request. Further records for it are skipped; the next request may start.
    pub fn end_request(&mut self) {
        self.state = State::Idle;
        self.params.clear();
        self.params.shrink_to(KEPT_PARAMS_BYTES);
        use RequestEvent::{Management, Second};
        match self.content {
            RequestContent::Begin(_)
            | RequestContent::Values
            | RequestContent::Told(Management { .. } | Second { .. })
            | RequestContent::Skipped => {}
            RequestContent::Params | RequestContent::Stdin | RequestContent::Told(_) => {
                self.content = RequestContent::Skipped
            }
        }
    }

    fn content_of(&mut self, header: Header) -> Result<RequestContent, ProtocolError> {
        let kind = RecordType::of(header.kind);
        if header.request_id == 0 {
            let event = RequestEvent::Management { kind: header.kind };
            return match kind {
                Some(RecordType::GetValues) => {
                    self.values.clear();
                    Ok(RequestContent::Values)
                }
                None => Ok(RequestContent::Told(event)),
                Some(_) => Err(ProtocolError::RequestId(0)),
            };
        }
        if self.state == State::Idle {
            return match kind {
                Some(RecordType::BeginRequest) => {
                    self.request_id = header.request_id;
                    FixedContent::expect(header).map(RequestContent::Begin)
                }
                // The rest of a request whose response was sent before the end of its body.
                Some(
                    RecordType::Params
                    | RecordType::Stdin
                    | RecordType::Data
                    | RecordType::AbortRequest,
                ) => Ok(RequestContent::Skipped),
                _ => Err(ProtocolError::Unexpected(header.kind)),
            };
        }
        if header.request_id != self.request_id {
            return Ok(match kind {
                Some(RecordType::BeginRequest) => {
                    RequestContent::Told(RequestEvent::Second { request_id: header.request_id })
                }
                _ => RequestContent::Skipped,
            });
        }
        self.content_of_own(kind, header)
    }

    /// The content of a record of the current request.
    fn content_of_own(
        &mut self,
        kind: Option<RecordType>,
        header: Header,
    ) -> Result<RequestContent, ProtocolError> {
        let ends = header.content_len == 0;
        match (kind, self.state) {
            (Some(RecordType::Params), State::Params) if ends => {
                self.state = State::Stdin;
                Ok(RequestContent::Told(RequestEvent::Params))
            }
            (Some(RecordType::Params), State::Params) => Ok(RequestContent::Params),
            (Some(RecordType::Stdin), State::Stdin) if ends => {
                self.state = State::Done;
                Ok(RequestContent::Told(RequestEvent::StdinEnd))
            }
            (Some(RecordType::Stdin), State::Stdin) => Ok(RequestContent::Stdin),
            // The input file of a filter, which no script can read.
            (Some(RecordType::Data), State::Stdin | State::Done) => Ok(RequestContent::Skipped),
            (Some(RecordType::AbortRequest), _) => Ok(RequestContent::Told(RequestEvent::Abort)),
            _ => Err(ProtocolError::Unexpected(header.kind)),
        }
    }

    fn add_params(&mut self, bytes: &[u8]) -> Result<(), ProtocolError> {
        if bytes.len() > self.max_params_bytes.saturating_sub(self.params.len()) {
            return Err(ProtocolError::ParamsTooLarge(self.max_params_bytes));
        }
        self.params.extend_from_slice(bytes);
        Ok(())
    }

    fn begin(&mut self, content: [u8; 8]) -> RequestEvent<'static> {
        let [role_high, role_low, flags, ..] = content;
        self.state = State::Params;
        self.params.clear();
        RequestEvent::Begin {
            request_id: self.request_id,
            role: u16::from_be_bytes([role_high, role_low]),
            keep_conn: flags & KEEP_CONN != 0,
            flags: flags & !KEEP_CONN,
        }
    }
}
