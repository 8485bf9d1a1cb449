//! FastCGI 1.0 as bytes in and values out, for both ends of a connection: no I/O, no clock, no
//! async. "§" in this crate is the FastCGI Specification of 29 April 1996, unless it names another
//! document.
//!
//! - A client such as a web server writes with [`RequestWriter`] and [`write_stdin`], reads with
//!   [`ResponseReader`], and then with [`cgi::HeadReader`].
//! - An application such as PHP reads with [`RequestReader`] and [`params`], writes with
//!   [`write_stdout`] and [`write_end`].
//!
//! Requests are not multiplexed: a connection carries one request at a time. The peer is not
//! trusted: all buffers are bounded, and every violation of the specification is an error.

mod basic;
pub mod cgi;
mod params;
mod record;
mod record_reader;
mod request;
mod request_reader;
mod response;
mod response_reader;
mod worker_report;

pub use basic::basic_user;
pub use params::{ParamError, ParamTooLong, Params, ParamsWriter, params, write_pair};
pub use record::{
    AUTHORIZER, FILTER, FOREIGN_PARAMS, HEADER_LEN, HINTS, Header, KEEP_CONN, MAX_CONTENT_LEN,
    ProtocolStatus, REPORT, RESPONDER, RecordType, VERSION, WANTS_REPORT, record_header,
};
pub use record_reader::ProtocolError;
pub use request::{
    RequestWriter, write_abort, write_begin, write_begin_with, write_params, write_params_end,
    write_stdin, write_stdin_end,
};
pub use request_reader::{
    DEFAULT_MAX_PARAMS_BYTES, FOREIGN_MAX_PARAMS_BYTES, RequestEvent, RequestReader,
};
pub use response::{
    write_end, write_hints, write_report, write_stderr, write_stdout, write_unknown_type,
    write_values,
};
pub use response_reader::{ResponseEvent, ResponseReader};
pub use worker_report::{MAX_REPORT_BYTES, MAX_REPORT_TEXT_BYTES, Report};
