//! The parameters of a FastCGI request that the front itself reads. The worker interprets all
//! others: only it has the pool's rights and php.ini.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Instant;

use maitred_fastcgi::{
    AUTHORIZER, FILTER, FOREIGN_PARAMS, ParamError, params, write_begin_with, write_params,
    write_params_end, write_stdin, write_stdin_end,
};
use maitred_http1::MAX_METHOD_BYTES;
use maitred_trace::RequestTrace;

use crate::http::body::Body;
use crate::http::deadline::Fields;
use crate::server::fastcgi::connection::BegunRequest;

/// Overhead of a request's records in bytes.
const FRAME_BYTES: usize = 128;

/// Positions of the parameters that the front reads, in the parameter stream. As in php-fpm, the
/// last parameter of a name counts.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Places {
    method: Range<usize>,
    uri: Range<usize>,
    query: Range<usize>,
    script_name: Range<usize>,
    script_filename: Range<usize>,
    path_translated: Range<usize>,
    /// An empty one differs from a missing one.
    path_info: Option<Range<usize>>,
    content_length: Range<usize>,
}

impl Places {
    /// Finds the positions.
    ///
    /// # Errors
    /// When the stream ends within a pair.
    pub fn find(stream: &[u8]) -> Result<Places, ParamError> {
        let mut places = Places::default();
        let mut pairs = params(stream);
        while let Some(pair) = pairs.next() {
            let (name, value) = pair?;
            let place = match name {
                b"REQUEST_METHOD" => &mut places.method,
                b"REQUEST_URI" => &mut places.uri,
                b"QUERY_STRING" => &mut places.query,
                b"SCRIPT_NAME" => &mut places.script_name,
                b"SCRIPT_FILENAME" => &mut places.script_filename,
                b"PATH_TRANSLATED" => &mut places.path_translated,
                b"CONTENT_LENGTH" => &mut places.content_length,
                b"PATH_INFO" => places.path_info.get_or_insert_default(),
                _ => continue,
            };
            let end = stream.len() - pairs.left();
            *place = end - value.len()..end;
        }
        Ok(places)
    }
}

/// A web server's request.
#[derive(Debug)]
pub struct FastcgiCall {
    /// Its FCGI_BEGIN_REQUEST record.
    pub begun: BegunRequest,
    /// When its parameters were complete.
    pub begun_at: Instant,
    /// Its parameters, encoded.
    pub params: Vec<u8>,
    /// The positions of some of them.
    pub places: Places,
    /// Its trace, if requests have traces.
    pub trace: Option<RequestTrace>,
}

impl FastcgiCall {
    fn at(&self, place: &Range<usize>) -> &[u8] {
        self.params.get(place.clone()).unwrap_or_default()
    }

    /// The method; empty if there is none.
    pub fn method(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.at(&self.places.method))
    }

    /// Whether the method is longer than a method may be.
    pub fn has_long_method(&self) -> bool {
        self.places.method.len() > MAX_METHOD_BYTES
    }

    /// The request target, or the script's name if the web server does not send the target.
    pub fn target(&self) -> Cow<'_, str> {
        let target = match self.at(&self.places.uri) {
            b"" => self.at(&self.places.script_name),
            uri => uri,
        };
        String::from_utf8_lossy(target)
    }

    /// The value of a parameter; the last of a name counts.
    pub fn param(&self, name: &[u8]) -> Option<&[u8]> {
        let pairs = params(&self.params).map_while(Result::ok);
        Some(pairs.filter(|(known, _)| *known == name).last()?.1)
    }

    /// The query.
    pub fn query(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.at(&self.places.query))
    }

    /// The script's file, as the web server sends it.
    pub fn script(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(self.file())
    }

    fn file(&self) -> &[u8] {
        match self.at(&self.places.script_filename) {
            b"" => self.at(&self.places.path_translated),
            file => file,
        }
    }

    /// The path to compare with `status_path` and `ping_path` (`fpm_status_handle_request` with
    /// `init_request_info`), if there is a file at all: the script's name, or with `by_path_info`
    /// (`cgi.fix_pathinfo = 0`) the path info, if there is one.
    pub fn path(&self, by_path_info: bool) -> Option<&[u8]> {
        let places = &self.places;
        let path = places.path_info.as_ref().filter(|_| by_path_info);
        let path = path.unwrap_or(&places.script_name);
        Some(self.at(path)).filter(|_| !self.file().is_empty())
    }

    /// Whether the method is HEAD: the response has no body.
    pub fn is_head(&self) -> bool {
        self.at(&self.places.method) == b"HEAD"
    }

    /// Bytes of the body that the script reads. Without a length it reads none (php-fpm's
    /// `sapi_cgi_read_post`).
    pub fn body_length(&self) -> u64 {
        let text = self.at(&self.places.content_length);
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
        digits.fold(0_u64, |length, digit| {
            length.saturating_mul(10).saturating_add(u64::from(digit - b'0'))
        })
    }

    /// The request for a worker: the parameters unchanged, and the body if it is in memory. `flags`
    /// are private flags of the seat link.
    pub fn encode(&self, body: &Body, flags: u8) -> Vec<u8> {
        let id = self.begun.request_id;
        // As in php-fpm, the role is a parameter, which a later one may replace.
        let role: &[u8] = match self.begun.role {
            AUTHORIZER => b"\x09\x0aFCGI_ROLEAUTHORIZER",
            FILTER => b"\x09\x06FCGI_ROLEFILTER",
            _ => b"\x09\x09FCGI_ROLERESPONDER",
        };
        let in_memory: &[u8] = match body {
            Body::Memory(bytes) => bytes,
            Body::File(..) => &[],
        };
        let mut out = Vec::with_capacity(self.params.len() + in_memory.len() + FRAME_BYTES);
        write_begin_with(&mut out, id, FOREIGN_PARAMS | flags);
        write_params(&mut out, id, role);
        write_params(&mut out, id, &self.params);
        write_params_end(&mut out, id);
        if let Body::Memory(bytes) = body {
            write_stdin(&mut out, id, bytes);
            write_stdin_end(&mut out, id);
        }
        out
    }
}

/// The client's headers are parameters (RFC 3875 §4.1.18); the last of a name counts.
impl Fields for FastcgiCall {
    fn field(&self, name: &str) -> Option<String> {
        let is_named = |param: &[u8]| {
            let rest = param.strip_prefix(b"HTTP_");
            rest.is_some_and(|rest| {
                rest.iter().zip(name.bytes()).all(|(param, byte)| match byte {
                    b'-' => *param == b'_',
                    _ => param.eq_ignore_ascii_case(&byte),
                }) && rest.len() == name.len()
            })
        };
        let pairs = params(&self.params).filter_map(Result::ok);
        let (_, value) = pairs.filter(|(name, _)| is_named(name)).last()?;
        std::str::from_utf8(value).ok().map(str::to_owned)
    }
}
