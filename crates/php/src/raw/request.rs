//! A request as C reads it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

use crate::cgi_names::Name;
use crate::foreign::{Admission, Foreign};
use crate::params::{Params, Text};

#[repr(C)]
#[derive(Debug)]
pub(super) struct RawParam {
    name: *const c_char,
    name_length: usize,
    value: *const c_char,
    value_length: usize,
}

#[repr(C)]
pub(super) struct RawRequest {
    pub(super) exchange: *mut c_void,
    params: *const RawParam,
    param_count: usize,
    method: *const c_char,
    script_name: *const c_char,
    path_info: *const c_char,
    script_filename: *const c_char,
    query_string: *const c_char,
    content_type: *const c_char,
    cookie: *const c_char,
    authorization: *const c_char,
    document_root: *const c_char,
    server_name: *const c_char,
    pub(super) php_value: *const c_char,
    pub(super) php_admin_value: *const c_char,
    content_length: i64,
    foreign: bool,
    admission: c_int,
    path_translated: *const c_char,
    request_uri: *const c_char,
    body_file: *const c_char,
}

/// A request with these variables. The pointers are valid while `params` and `list` are unchanged.
pub(super) fn fill_request(params: &Params, list: &mut Vec<RawParam>) -> RawRequest {
    let value = |name| params.text_of(name).map(|text| params.bytes_with_nul(text));
    let or = |name, otherwise: *const c_char| value(name).map_or(otherwise, |v| v.as_ptr().cast());
    let pointer = |name| or(name, ptr::null());
    let mut request = RawRequest {
        exchange: ptr::null_mut(),
        params: ptr::null(),
        param_count: 0,
        method: pointer(Name::RequestMethod),
        script_name: pointer(Name::ScriptName),
        path_info: pointer(Name::PathInfo),
        script_filename: pointer(Name::ScriptFilename),
        query_string: or(Name::QueryString, c"".as_ptr()),
        content_type: or(Name::ContentType, c"".as_ptr()),
        cookie: pointer(Name::HttpCookie),
        authorization: pointer(Name::HttpAuthorization),
        document_root: pointer(Name::DocumentRoot),
        server_name: pointer(Name::ServerName),
        php_value: pointer(Name::PhpValue),
        php_admin_value: pointer(Name::PhpAdminValue),
        content_length: value(Name::ContentLength).map_or(0, content_length),
        foreign: params.is_foreign(),
        admission: 0,
        path_translated: ptr::null(),
        request_uri: ptr::null(),
        body_file: pointer(Name::RequestBodyFile),
    };
    list.clear();
    list.extend(params.iter_nul_terminated().map(|(name, value)| RawParam {
        name: name.as_ptr().cast(),
        name_length: name.len() - 1,
        value: value.as_ptr().cast(),
        value_length: value.len() - 1,
    }));
    request.params = list.as_ptr();
    request.param_count = list.len();
    request
}

/// Adds the variables as php-fpm's rules interpret them.
pub(super) fn fill_foreign(request: &mut RawRequest, params: &Params, foreign: Foreign) {
    let pointer = |text: Option<Text>| {
        text.map_or(ptr::null(), |text| params.bytes_with_nul(text).as_ptr().cast::<c_char>())
    };
    request.path_translated = pointer(foreign.script);
    request.request_uri = pointer(foreign.uri);
    request.admission = match foreign.admission {
        Admission::Admitted => 0,
        Admission::NoMethod => 1,
        Admission::NoScript => 2,
        Admission::Extension => 3,
    };
}

/// As atol(3) parses it, as in php-fpm; negative values become 0.
fn content_length(value: &[u8]) -> i64 {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(0);
    let text = value.get(start..).unwrap_or_default();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_i64, |number, digit| {
        number.saturating_mul(10).saturating_add(i64::from(digit - b'0'))
    })
}
