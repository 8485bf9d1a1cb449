use crate::record::{HINTS, Header, ProtocolStatus, REPORT, RecordType};
use crate::record_reader::{FixedContent, Part, ProtocolError, Records};

/// An event from the application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseEvent<'a> {
    /// The next bytes of the response, CGI header and body; never empty.
    Stdout(&'a [u8]),
    /// The next bytes of error messages; never empty.
    Stderr(&'a [u8]),
    /// The next bytes of a worker's report on its request; never empty.
    Report(&'a [u8]),
    /// The next bytes of a script's early hints; never empty. They end with an empty line.
    Hints(&'a [u8]),
    /// The end of the request. Nothing may follow before the next request.
    End {
        /// The exit status of a CGI program.
        app_status: u32,
        /// Whether the request is complete, or why it was rejected.
        protocol_status: ProtocolStatus,
    },
}

/// Reads the response to one request incrementally, without buffering content.
#[derive(Clone, Debug)]
pub struct ResponseReader {
    request_id: u16,
    records: Records,
    content: ResponseContent,
}

/// The meaning of the current record's content.
#[derive(Clone, Copy, Debug)]
enum ResponseContent {
    Stdout,
    Stderr,
    Report,
    Hints,
    End(FixedContent),
    /// Content of an unused management record.
    Skipped,
    /// No further event, after END_REQUEST.
    Over,
}

impl ResponseReader {
    /// A reader for the response to the request with this id.
    pub const fn new(request_id: u16) -> Self {
        Self { request_id, records: Records::new(), content: ResponseContent::Skipped }
    }

    /// Takes the next event off `input`; `None` when all of it is read without a complete event.
    /// After [`ResponseEvent::End`] it reads no further; any rest of `input` is unexpected.
    ///
    /// # Errors
    /// A protocol violation of the application; close the connection.
    pub fn next<'a>(
        &mut self,
        input: &mut &'a [u8],
    ) -> Result<Option<ResponseEvent<'a>>, ProtocolError> {
        while !matches!(self.content, ResponseContent::Over) {
            let Some(part) = self.records.next(input)? else {
                break;
            };
            match (part, &mut self.content) {
                (Part::Start(header), _) => self.content = self.content_of(header)?,
                (Part::Content(bytes), ResponseContent::Stdout) => {
                    return Ok(Some(ResponseEvent::Stdout(bytes)));
                }
                (Part::Content(bytes), ResponseContent::Stderr) => {
                    return Ok(Some(ResponseEvent::Stderr(bytes)));
                }
                (Part::Content(bytes), ResponseContent::Report) => {
                    return Ok(Some(ResponseEvent::Report(bytes)));
                }
                (Part::Content(bytes), ResponseContent::Hints) => {
                    return Ok(Some(ResponseEvent::Hints(bytes)));
                }
                (Part::Content(bytes), ResponseContent::End(fixed)) => fixed.add(bytes),
                (Part::End, ResponseContent::End(fixed)) => {
                    let event = end_of(fixed.bytes())?;
                    self.content = ResponseContent::Over;
                    return Ok(Some(event));
                }
                (Part::Content(_) | Part::End, _) => {}
            }
        }
        Ok(None)
    }

    /// Whether END_REQUEST has been read.
    pub fn is_over(&self) -> bool {
        matches!(self.content, ResponseContent::Over)
    }

    fn content_of(&self, header: Header) -> Result<ResponseContent, ProtocolError> {
        // §3.3: records with id 0 are management records.
        if header.request_id == 0 {
            return match RecordType::of(header.kind) {
                None if header.kind == REPORT => Ok(ResponseContent::Report),
                None if header.kind == HINTS => Ok(ResponseContent::Hints),
                Some(RecordType::GetValuesResult | RecordType::UnknownType) | None => {
                    Ok(ResponseContent::Skipped)
                }
                Some(_) => Err(ProtocolError::RequestId(0)),
            };
        }
        if header.request_id != self.request_id {
            return Err(ProtocolError::RequestId(header.request_id));
        }
        match RecordType::of(header.kind) {
            Some(RecordType::Stdout) => Ok(ResponseContent::Stdout),
            Some(RecordType::Stderr) => Ok(ResponseContent::Stderr),
            Some(RecordType::EndRequest) => FixedContent::expect(header).map(ResponseContent::End),
            _ => Err(ProtocolError::Unexpected(header.kind)),
        }
    }
}

fn end_of(content: [u8; 8]) -> Result<ResponseEvent<'static>, ProtocolError> {
    let [a, b, c, d, status, _, _, _] = content;
    let protocol_status =
        ProtocolStatus::of(status).ok_or(ProtocolError::ProtocolStatus(status))?;
    Ok(ResponseEvent::End { app_status: u32::from_be_bytes([a, b, c, d]), protocol_status })
}
