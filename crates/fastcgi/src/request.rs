use crate::params::{ParamTooLong, ParamsWriter};
use crate::record::{KEEP_CONN, RESPONDER, RecordType, record_header, write_stream};

/// Appends the BEGIN_REQUEST record for a responder (§5.1). With `keep_conn` the application leaves
/// the connection open after its response.
pub fn write_begin(out: &mut Vec<u8>, request_id: u16, keep_conn: bool) {
    write_begin_with(out, request_id, if keep_conn { KEEP_CONN } else { 0 });
}

/// As [`write_begin`], with all flags.
pub fn write_begin_with(out: &mut Vec<u8>, request_id: u16, flags: u8) {
    let [role_high, role_low] = RESPONDER.to_be_bytes();
    out.extend_from_slice(&record_header(RecordType::BeginRequest, request_id, 8));
    out.extend_from_slice(&[role_high, role_low, flags, 0, 0, 0, 0, 0]);
}

/// Appends encoded parameters, in as many records as needed; nothing if they are empty.
pub fn write_params(out: &mut Vec<u8>, request_id: u16, pairs: &[u8]) {
    write_stream(out, RecordType::Params, request_id, pairs);
}

/// Appends the end of the parameters.
pub fn write_params_end(out: &mut Vec<u8>, request_id: u16) {
    out.extend_from_slice(&record_header(RecordType::Params, request_id, 0));
}

/// Appends a part of the request body (§5.3), in as many records as needed; nothing if it is empty.
pub fn write_stdin(out: &mut Vec<u8>, request_id: u16, body: &[u8]) {
    write_stream(out, RecordType::Stdin, request_id, body);
}

/// Appends the end of the request body, which every request has, with or without a body.
pub fn write_stdin_end(out: &mut Vec<u8>, request_id: u16) {
    out.extend_from_slice(&record_header(RecordType::Stdin, request_id, 0));
}

/// Appends the ABORT_REQUEST record (§5.4).
pub fn write_abort(out: &mut Vec<u8>, request_id: u16) {
    out.extend_from_slice(&record_header(RecordType::AbortRequest, request_id, 0));
}

/// Writes a request up to its body.
///
/// ```
/// # use maitred_fastcgi::{ParamTooLong, RequestWriter, write_stdin_end};
/// let mut out = Vec::new();
/// let mut request = RequestWriter::new(&mut out, 1, true);
/// request.param(b"REQUEST_METHOD", b"GET")?.param(b"SCRIPT_FILENAME", b"/srv/index.php")?;
/// request.finish();
/// write_stdin_end(&mut out, 1);
/// # Ok::<(), ParamTooLong>(())
/// ```
#[derive(Debug)]
pub struct RequestWriter<'a> {
    params: ParamsWriter<'a>,
}

impl<'a> RequestWriter<'a> {
    /// Starts a request at the end of `out`: see [`write_begin`].
    pub fn new(out: &'a mut Vec<u8>, request_id: u16, keep_conn: bool) -> Self {
        write_begin(out, request_id, keep_conn);
        Self { params: ParamsWriter::new(out, request_id) }
    }

    /// Adds a parameter.
    ///
    /// # Errors
    /// As [`ParamsWriter::param`].
    pub fn param(&mut self, name: &[u8], value: &[u8]) -> Result<&mut Self, ParamTooLong> {
        self.params.param(name, value)?;
        Ok(self)
    }

    /// Adds a parameter with a name of constant length.
    ///
    /// # Errors
    /// As [`ParamsWriter::named`].
    #[inline]
    pub fn named<const NAME: usize>(
        &mut self,
        name: &[u8; NAME],
        value: &[u8],
    ) -> Result<&mut Self, ParamTooLong> {
        self.params.named(name, value)?;
        Ok(self)
    }

    /// Ends the parameters; the body follows, with [`write_stdin`] and [`write_stdin_end`].
    pub fn finish(self) {
        self.params.finish();
    }
}
