//! A request as C reads it.

use std::ffi::{c_char, c_int, c_void};
use std::ptr;

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

/// One pass over the variables. The pointers live as long as `params` and `list` stay as they are.
pub(super) fn fill_request(params: &Params, list: &mut Vec<RawParam>) -> RawRequest {
    let mut request = RawRequest {
        exchange: ptr::null_mut(),
        params: ptr::null(),
        param_count: 0,
        method: ptr::null(),
        script_name: ptr::null(),
        path_info: ptr::null(),
        script_filename: ptr::null(),
        query_string: c"".as_ptr(),
        content_type: c"".as_ptr(),
        cookie: ptr::null(),
        authorization: ptr::null(),
        document_root: ptr::null(),
        server_name: ptr::null(),
        php_value: ptr::null(),
        php_admin_value: ptr::null(),
        content_length: 0,
        foreign: false,
        admission: 0,
        path_translated: ptr::null(),
        request_uri: ptr::null(),
        body_file: ptr::null(),
    };
    list.clear();
    for (name, value) in params.iter_nul_terminated() {
        let pointer = value.as_ptr().cast::<c_char>();
        let field = match name {
            b"REQUEST_METHOD\0" => Some(&mut request.method),
            b"SCRIPT_NAME\0" => Some(&mut request.script_name),
            b"PATH_INFO\0" => Some(&mut request.path_info),
            b"SCRIPT_FILENAME\0" => Some(&mut request.script_filename),
            b"QUERY_STRING\0" => Some(&mut request.query_string),
            b"CONTENT_TYPE\0" => Some(&mut request.content_type),
            b"HTTP_COOKIE\0" => Some(&mut request.cookie),
            b"HTTP_AUTHORIZATION\0" => Some(&mut request.authorization),
            b"DOCUMENT_ROOT\0" => Some(&mut request.document_root),
            b"SERVER_NAME\0" => Some(&mut request.server_name),
            b"PHP_VALUE\0" => Some(&mut request.php_value),
            b"PHP_ADMIN_VALUE\0" => Some(&mut request.php_admin_value),
            b"REQUEST_BODY_FILE\0" => Some(&mut request.body_file),
            b"CONTENT_LENGTH\0" => {
                request.content_length = content_length(value);
                None
            }
            _ => None,
        };
        if let Some(field) = field {
            *field = pointer;
        }
        list.push(RawParam {
            name: name.as_ptr().cast(),
            name_length: name.len() - 1,
            value: pointer,
            value_length: value.len() - 1,
        });
    }
    request.params = list.as_ptr();
    request.param_count = list.len();
    request
}

/// Adds what php-fpm's rules have made of a web server's variables.
pub(super) fn fill_foreign(request: &mut RawRequest, params: &Params, foreign: Foreign) {
    let pointer = |text: Option<Text>| {
        text.map_or(ptr::null(), |text| {
            params.bytes_with_nul(text).as_ptr().cast::<c_char>()
        })
    };
    request.foreign = true;
    request.path_translated = pointer(foreign.script);
    request.request_uri = pointer(foreign.uri);
    request.admission = match foreign.admission {
        Admission::Admitted => 0,
        Admission::NoMethod => 1,
        Admission::NoScript => 2,
        Admission::Extension => 3,
    };
}

/// As atol(3) reads it, as php-fpm does; what is less than nothing is nothing.
fn content_length(value: &[u8]) -> i64 {
    let blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == 0x0b;
    let start = value.iter().position(|byte| !blank(byte)).unwrap_or(0);
    let text = value.get(start..).unwrap_or_default();
    let text = text.strip_prefix(b"+").unwrap_or(text);
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit());
    digits.fold(0_i64, |number, digit| {
        number
            .saturating_mul(10)
            .saturating_add(i64::from(digit - b'0'))
    })
}
