//! A request as FastCGI parameters, the source of `$_SERVER`: the same that nginx's packaged
//! `fastcgi_params` sends to php-fpm.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use maitred_fastcgi::{ParamTooLong, RequestWriter, write_stdin, write_stdin_end};
use maitred_http1::{Head, Method};
use maitred_pagecache::reuse::is_withheld;
use maitred_trace::RequestTrace;

use crate::backend::Backend;
use crate::handler::context::RequestContext;
use crate::handler::htaccess_response::Directives;
use crate::http::body::Body;
use crate::http::headers::{Header, basic_user};
use crate::http::hosts::host_name;
use crate::net::tls::Secured;
use crate::site::resolver::Script;

/// FastCGI request id on every link: each carries one request at a time.
pub const REQUEST_ID: u16 = 1;
/// Most bytes of encoded parameters: they must fit a seat's request ring with space to spare.
pub const MAX_PARAMS_BYTES: usize = maitred_seat::REQUEST_RING_BYTES - 8 * 1024;

/// WordPress and others offer permalinks only behind a server whose name they know, and whose rules
/// (`try_files`) these are.
pub const SOFTWARE: &[u8] =
    concat!("maitred/", env!("CARGO_PKG_VERSION"), " (as nginx)").as_bytes();

/// The same at a site with `.htaccess` files: applications write them only behind a server that
/// applies them.
pub const SOFTWARE_WITH_HTACCESS: &[u8] =
    concat!("maitred/", env!("CARGO_PKG_VERSION"), " (as Apache)").as_bytes();

/// A request to PHP.
#[derive(Debug)]
pub struct ScriptCall<'a> {
    /// The request header.
    pub head: &'a Head,
    /// The request body.
    pub body: &'a Body,
    /// The script.
    pub script: &'a Script,
    /// The client's address.
    pub peer: SocketAddr,
    /// The address that the client connected to.
    pub local: SocketAddr,
    /// The client's TLS connection, if it has one.
    pub secured: Option<&'a Secured>,
    /// The request after rules and trusted proxies.
    pub seen: ScriptView<'a>,
    /// The request's id in the logs.
    pub id: &'a str,
    /// Its trace, which replaces that of the client.
    pub trace: Option<&'a RequestTrace>,
}

/// The values of a request that a script gets in place of those in the request header.
#[derive(Debug, Clone, Copy)]
pub struct ScriptView<'a> {
    /// The query after rewrites.
    pub query: Option<&'a str>,
    /// The target before rewrites.
    pub target: &'a str,
    /// The authority that the client requested.
    pub host: &'a str,
    /// Whether the client uses TLS to a trusted proxy; none: the proxy does not report it.
    pub is_https: Option<bool>,
    /// Whether the client has authenticated as a user of `basic_auth`.
    pub has_user: bool,
    /// The status of the error, if the script is an error page.
    pub error: Option<u16>,
    /// Whether the script may send files (`X-Accel-Redirect`).
    pub names_files: bool,
    /// Whether the site has `.htaccess` files.
    pub has_htaccess: bool,
    /// The directives of `.htaccess` files, if they apply.
    pub directives: Option<&'a Directives>,
    /// Whether an upstream FastCGI server runs the script.
    pub is_for_upstream: bool,
    /// Headers in place of the client's conditional and range headers, if the response may be
    /// cached.
    pub conditions: Option<&'a [Header<'a>]>,
}

impl<'a> ScriptView<'a> {
    /// The values for a request after routing and rules.
    pub fn of(context: &'a RequestContext<'_>) -> ScriptView<'a> {
        ScriptView {
            query: context.query(),
            target: context.head.target(),
            host: context.target.host,
            is_https: context.target.forwarded_https,
            has_user: context.has_user,
            error: context.error_page.map(|page| page.status),
            names_files: !context.site.sendfile.is_empty(),
            has_htaccess: context.site.has_htaccess(),
            directives: context.directives.as_deref(),
            is_for_upstream: matches!(context.backend, Backend::Upstream(..)),
            conditions: None,
        }
    }

    /// The name of the server.
    fn software(&self) -> &'static [u8] {
        match self.has_htaccess {
            true => SOFTWARE_WITH_HTACCESS,
            false => SOFTWARE,
        }
    }

    /// The port that the client requested: a proxy's, if there is one in front.
    fn port(&self, local: SocketAddr) -> u16 {
        let named = self.host.strip_prefix(host_name(self.host));
        let named = named.and_then(|rest| rest.strip_prefix(':')?.parse().ok());
        match self.is_https {
            None => local.port(),
            Some(true) => named.unwrap_or(443),
            Some(false) => named.unwrap_or(80),
        }
    }
}

/// The parameters are too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLarge;

impl From<ParamTooLong> for TooLarge {
    fn from(_: ParamTooLong) -> TooLarge {
        TooLarge
    }
}

/// Encodes a request: all parameters, and the body if it is in memory.
///
/// # Errors
/// When the parameters are larger than [`MAX_PARAMS_BYTES`].
pub fn encode(call: &ScriptCall<'_>) -> Result<Vec<u8>, TooLarge> {
    let mut out = Vec::with_capacity(expected_bytes(call));
    let mut request = RequestWriter::new(&mut out, REQUEST_ID, false);
    write_params(&mut request, call)?;
    request.finish();
    if out.len() > MAX_PARAMS_BYTES {
        return Err(TooLarge);
    }
    if let Body::Memory(bytes) = call.body {
        if !bytes.is_empty() {
            write_stdin(&mut out, REQUEST_ID, bytes);
        }
        write_stdin_end(&mut out, REQUEST_ID);
    }
    Ok(out)
}

/// About as many bytes as a call takes, seldom fewer: small allocations are much cheaper than large
/// ones.
fn expected_bytes(call: &ScriptCall<'_>) -> usize {
    /// All names but those of headers, and the values whose length hardly varies.
    const FIXED_BYTES: usize = 600;
    /// Bytes that each header needs besides its name and value.
    const FIELD_BYTES: usize = 8;
    let ScriptCall { head, script, seen, .. } = call;
    let of_head = head.len_bytes() + FIELD_BYTES * head.headers().len() + seen.host.len();
    let of_script = script.script_filename.len()
        + 2 * script.script_name.len()
        + script.path_info.len()
        + script.document_root.len();
    let of_query = seen.query.map_or(0, str::len);
    let of_body = match call.body {
        Body::Memory(bytes) => bytes.len(),
        _ => 0,
    };
    FIXED_BYTES + of_head + of_script + of_query + of_body
}

fn write_params(request: &mut RequestWriter<'_>, call: &ScriptCall<'_>) -> Result<(), TooLarge> {
    let ScriptCall { head, script, seen, .. } = call;
    // The page of an error is requested with GET, whatever the client has sent (as with nginx).
    let method = match (seen.error, head.kind()) {
        (Some(_), kind) if kind != Method::Head => "GET",
        _ => head.method(),
    };
    // The name that a client sends is a user's name only once the password has been checked (RFC
    // 3875 §4.1.11).
    let user = seen.has_user.then(|| head.header("authorization"));
    let (mut ip, mut number) = (TextBuffer::default(), itoa::Buffer::new());
    let is_https = seen.is_https.unwrap_or(call.secured.is_some());
    if let Some(directives) = seen.directives {
        write_directives(request, call, directives)?;
    }
    request
        .named(b"SCRIPT_FILENAME", &script.script_filename)?
        .named(b"PATH_INFO", &script.path_info)?
        .named(b"QUERY_STRING", seen.query.unwrap_or("").as_bytes())?
        .named(b"REQUEST_METHOD", method.as_bytes())?
        .named(b"CONTENT_TYPE", head.header("content-type").unwrap_or(b""))?;
    match head.body {
        _ if seen.error.is_some() => request.named(b"CONTENT_LENGTH", b"")?,
        maitred_http1::Framing::None => request.named(b"CONTENT_LENGTH", b"")?,
        _ => request.named(b"CONTENT_LENGTH", number.format(call.body.len()).as_bytes())?,
    };
    request
        .named(b"SCRIPT_NAME", &script.script_name)?
        .named(b"REQUEST_URI", seen.target.as_bytes())?
        .named(b"DOCUMENT_URI", &script.script_name)?
        .named(b"DOCUMENT_ROOT", &script.document_root)?
        .named(b"SERVER_PROTOCOL", head.version().as_str().as_bytes())?
        .named(b"REQUEST_SCHEME", if is_https { b"https" } else { b"http" })?
        .named(b"GATEWAY_INTERFACE", b"CGI/1.1")?
        .named(b"SERVER_SOFTWARE", seen.software())?
        .named(b"REMOTE_ADDR", ip.of(call.peer.ip()))?
        .named(b"REMOTE_PORT", number.format(call.peer.port()).as_bytes())?
        .named(b"REMOTE_USER", &basic_user(user.flatten()))?
        .named(b"SERVER_ADDR", ip.of(call.local.ip()))?
        .named(b"SERVER_PORT", number.format(seen.port(call.local)).as_bytes())?
        .named(b"SERVER_NAME", host_name(seen.host).as_bytes())?;
    if seen.has_htaccess {
        write_signature(request, call)?;
    }
    // Under Apache it is there after an internal redirect only, among the variables.
    if seen.directives.is_none() {
        let status = seen.error.unwrap_or(200);
        request.named(b"REDIRECT_STATUS", number.format(status).as_bytes())?;
    }
    request
        .named(b"FCGI_ROLE", b"RESPONDER")?
        .named(b"REQUEST_ID", call.id.as_bytes())?
        .named(b"HTTP_HOST", seen.host.as_bytes())?;
    if is_https {
        request.named(b"HTTPS", b"on")?;
    }
    if let Some(secured) = call.secured {
        for (name, value) in &secured.variables {
            request.param(name.as_bytes(), value.as_bytes())?;
        }
    }
    if seen.names_files {
        // The header by which Symfony's BinaryFileResponse selects X-Sendfile, if it trusts
        // proxies.
        request.named(b"HTTP_X_SENDFILE_TYPE", b"X-Sendfile")?;
    }
    if let Some(trace) = call.trace {
        request.param(b"HTTP_TRACEPARENT", &trace.for_backend())?;
        if let Some(state) = &trace.state {
            request.param(b"HTTP_TRACESTATE", state.as_bytes())?;
        }
    }
    write_headers(request, call)
}

/// The variables and settings of `.htaccess` files. CGI's own variables follow, and replace them.
fn write_directives(
    request: &mut RequestWriter<'_>,
    call: &ScriptCall<'_>,
    directives: &Directives,
) -> Result<(), TooLarge> {
    for (name, value) in directives.variables() {
        request.param(name, value)?;
    }
    if directives.request.user.is_some() {
        request.param(b"AUTH_TYPE", b"Basic")?;
    }
    if let Some(previous) = directives.request.previous.as_ref() {
        // With it, php-fpm moves PATH_INFO to ORIG_PATH_INFO.
        if !call.seen.is_for_upstream || call.script.path_info.is_empty() {
            request.param(b"REDIRECT_URL", &previous.uri)?;
        }
        if let Some(args) = &previous.args {
            request.param(b"REDIRECT_QUERY_STRING", args)?;
        }
    }
    // A worker of php-fpm has them for all its later requests, also those of other sites.
    let values = directives.php_values();
    if !call.seen.is_for_upstream && !values.is_empty() {
        request.param(b"PHP_VALUE", &values)?;
    }
    Ok(())
}

/// `SERVER_SIGNATURE`, which is empty unless `ServerSignature` is on (`ap_psignature`).
fn write_signature(
    request: &mut RequestWriter<'_>,
    call: &ScriptCall<'_>,
) -> Result<(), ParamTooLong> {
    let seen = &call.seen;
    let mut signature = String::new();
    if seen.directives.is_some_and(|own| own.request.conf.core.has_signature == Some(true)) {
        let software = String::from_utf8_lossy(seen.software());
        let (host, port) = (host_name(seen.host), seen.port(call.local));
        signature = format!("<address>{software} Server at {host} Port {port}</address>\n");
    }
    request.param(b"SERVER_SIGNATURE", signature.as_bytes()).map(|_| ())
}

/// Every header as `HTTP_NAME`. A name with anything but letters, digits and dashes is left out,
/// as nginx does: an underscore in it could pass for a dash. `Proxy` is left out because programs
/// take `HTTP_PROXY` for a setting (CVE-2016-5385). Several headers of a name are one list.
fn write_headers(request: &mut RequestWriter<'_>, call: &ScriptCall<'_>) -> Result<(), TooLarge> {
    let ScriptCall { head, seen, .. } = call;
    let directives = seen.directives.filter(|own| own.request.has_changed_headers);
    let own: Vec<(&[u8], &[u8])> = match directives {
        Some(directives) => last_of_each(directives.request.headers_in.iter().collect()),
        None => head.headers().collect(),
    };
    let headers: Vec<(&[u8], &[u8])> = match seen.conditions {
        None => own,
        Some(conditions) => {
            let kept = own.into_iter().filter(|(name, _)| !is_withheld(name));
            kept.chain(conditions.iter().copied()).collect()
        }
    };
    let (mut joined, mut variable) = (Vec::new(), TextBuffer::default());
    for (index, (name, value)) in headers.iter().enumerate() {
        let same = |other: &(&[u8], &[u8])| {
            other.0.len() == name.len() && other.0.eq_ignore_ascii_case(name)
        };
        let is_ours = (seen.names_files && is_about_files(name))
            || (seen.directives.is_some() && is_about_content(name))
            || (call.trace.is_some() && is_about_trace(name));
        if !is_passed_on(name) || is_ours || headers[..index].iter().any(same) {
            continue;
        }
        let mut value: &[u8] = value;
        if headers[index + 1..].iter().any(same) {
            let separator: &[u8] = if name.eq_ignore_ascii_case(b"cookie") { b"; " } else { b", " };
            let all: Vec<&[u8]> =
                headers.iter().filter(|header| same(header)).map(|header| header.1).collect();
            joined = all.join(separator);
            value = &joined;
        }
        request.param(variable.http(name), value)?;
    }
    drop(joined);
    Ok(())
}

/// The last header of each name: `RequestHeader add` adds another one, and a variable has the last
/// (`ap_add_common_vars`).
fn last_of_each<'h>(headers: Vec<(&'h [u8], &'h [u8])>) -> Vec<(&'h [u8], &'h [u8])> {
    let is_last = |index: &usize| {
        let name = headers[*index].0;
        !headers[index + 1..].iter().any(|later| later.0.eq_ignore_ascii_case(name))
    };
    (0..headers.len()).filter(is_last).map(|index| headers[index]).collect()
}

/// Headers by which a proxy tells a script how to name files; a client must not set them.
fn is_about_files(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    is(b"x-sendfile-type") || is(b"x-accel-mapping")
}

/// Headers of the content, which Apache passes on without `HTTP_` only.
fn is_about_content(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    is(b"content-length") || is(b"content-type")
}

/// The headers of W3C Trace Context.
fn is_about_trace(name: &[u8]) -> bool {
    let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
    is(b"traceparent") || is(b"tracestate")
}

fn is_passed_on(name: &[u8]) -> bool {
    let plain = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'-');
    plain
        && name.len() <= TextBuffer::NAME_BYTES
        && !name.eq_ignore_ascii_case(b"host")
        && !name.eq_ignore_ascii_case(b"proxy")
}

/// A buffer for short texts, to save allocations.
struct TextBuffer {
    bytes: [u8; TextBuffer::BYTES],
}

impl Default for TextBuffer {
    fn default() -> TextBuffer {
        TextBuffer { bytes: [0; TextBuffer::BYTES] }
    }
}

impl TextBuffer {
    const BYTES: usize = 256;
    /// Longest header name that is passed on, in bytes.
    const NAME_BYTES: usize = TextBuffer::BYTES - 5;

    fn http(&mut self, name: &[u8]) -> &[u8] {
        self.bytes[..5].copy_from_slice(b"HTTP_");
        for (place, byte) in self.bytes[5..].iter_mut().zip(name) {
            *place = if *byte == b'-' { b'_' } else { byte.to_ascii_uppercase() };
        }
        &self.bytes[..5 + name.len()]
    }

    /// An address; IPv4 over IPv6 is written as IPv4.
    fn of(&mut self, ip: IpAddr) -> &[u8] {
        if let IpAddr::V4(ip) = ip.to_canonical() {
            return self.of_v4(ip);
        }
        let mut rest = &mut self.bytes[..];
        let space = rest.len();
        let _ = write!(rest, "{}", ip.to_canonical());
        let left = rest.len();
        &self.bytes[..space - left]
    }

    /// The same as formatting, several times as fast.
    fn of_v4(&mut self, ip: Ipv4Addr) -> &[u8] {
        let mut at = 0;
        for octet in ip.octets() {
            let mut number = itoa::Buffer::new();
            let digits = number.format(octet).as_bytes();
            self.bytes[at..at + digits.len()].copy_from_slice(digits);
            at += digits.len() + 1;
            self.bytes[at - 1] = b'.';
        }
        &self.bytes[..at - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_named_as_the_one_is_whose_password_is_looked_at() {
        for field in ["Basic YW5uYTpzZWNyZXQ=", "BASIC  YW5uYTpzZWNyZXQ="] {
            assert_eq!(basic_user(Some(field.as_bytes())), b"anna", "{field}");
        }
        for field in ["Basic YW5uYQ==", "Bearer YW5uYTp4", "Basic ???", "Basic", ""] {
            assert_eq!(basic_user(Some(field.as_bytes())), b"", "{field}");
        }
        assert_eq!(basic_user(None), b"");
    }

    #[test]
    fn addresses_are_written_as_they_are_shown() {
        for ip in ["0.0.0.0", "127.0.0.1", "255.255.255.255", "9.10.99.100", "::1", "2001:db8::17"]
        {
            let address = ip.parse().unwrap();
            assert_eq!(TextBuffer::default().of(address), ip.as_bytes());
        }
        let mapped = "::ffff:192.0.2.7".parse().unwrap();
        assert_eq!(TextBuffer::default().of(mapped), b"192.0.2.7");
    }
}
