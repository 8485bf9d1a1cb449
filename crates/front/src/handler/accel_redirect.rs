//! Files that a script sends in place of its own response: `X-Accel-Redirect` (nginx) and
//! `X-Sendfile` (Apache's mod_xsendfile). A script can send files below the `sendfile_roots` of its
//! site, and no others. The response is that of a static file, with the script's headers.

use std::fmt::Write;
use std::io;

use maitred_fastcgi::cgi::CgiHeaders;
use maitred_http1::{Head, Method, is_hop_by_hop};

use crate::backend::Backend;
use crate::backend::script_headers::{Named, SENDFILE, is_for_us};
use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::htaccess_response::ResponseSource;
use crate::handler::respond::{TextResponse, WholeResponse};
use crate::http::client::{After, Content, HttpClient};
use crate::http::headers::{Header, first_field};
use crate::site::files::{self, Conditions};
use crate::site::sendfile_roots::NotSent;

/// Headers about the body, which the script did not send (nginx drops the same).
const OF_THE_BODY: [&str; 7] = [
    "Content-Length",
    "Content-Encoding",
    "Content-Range",
    "Content-MD5",
    "Accept-Ranges",
    "ETag",
    "Last-Modified",
];

/// A request for the file. Any method but HEAD counts as GET, as with nginx.
struct NamedFileRequest<'a> {
    head: &'a Head,
    /// Conditions and range do not apply to the page of an error, which is sent whole.
    is_conditional: bool,
}

impl Conditions for NamedFileRequest<'_> {
    fn method(&self) -> &str {
        method(self.head)
    }

    fn header(&self, name: &str) -> Option<&str> {
        let header = first_field(self.head, name);
        header.filter(|_| self.is_conditional)
    }
}

fn method(head: &Head) -> &'static str {
    match head.kind() {
        Method::Head => "HEAD",
        _ => "GET",
    }
}

/// Sends the file that a script names in its response header `said`.
///
/// # Errors
/// When the client has closed the connection or does not read, or the file has become shorter.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    script: &str,
    said: &CgiHeaders,
) -> io::Result<After> {
    let error_page = context.error_page;
    let after = error_page.map_or(After::Keep, |page| page.after);
    let Some(named) = Named::by(said) else {
        let response = TextResponse::new(502, "The script's response is not valid.");
        return cx.respond(response, after).await;
    };
    let site = context.site;
    let found = site.look_up(|| site.sendfile.find(named)).await;
    let entry = match found.unwrap_or_else(|refused| Err(refused.into())) {
        Ok(entry) => entry,
        Err(NotSent { status, why }) => {
            log(context.backend, script, named, status, &why);
            let status = error_page.map_or(status, |page| page.status);
            let response = TextResponse::new(status, "The file cannot be sent.");
            return cx.respond(response, after).await;
        }
    };
    let said_type = said.header("content-type").map(std::str::from_utf8);
    let typed = match said_type {
        Some(Ok(said_type)) => Some(entry.typed(said_type)),
        _ => None,
    };
    let request = NamedFileRequest { head: context.head, is_conditional: error_page.is_none() };
    let file = files::response(typed.as_ref().unwrap_or(&entry), &request);
    let headers: Vec<Header<'_>> = said.headers().filter(|(name, _)| is_kept(name)).collect();
    let status = error_page.map_or(file.status, |page| page.status);
    let response = WholeResponse {
        headers: &headers,
        lines: file.headers.clone(),
        source: ResponseSource::NamedFile,
        ..WholeResponse::new(status, Content::of(&file.body), after)
    };
    cx.send(&response).await
}

/// Whether a header of the script's response is sent with the file.
fn is_kept(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    !is_hop_by_hop(name)
        && !is_for_us(name)
        && !is("content-type")
        && !is(SENDFILE)
        && !OF_THE_BODY.into_iter().any(is)
}

fn log(backend: &Backend, script: &str, named: Named<'_>, status: u16, why: &str) {
    let mut value = String::new();
    for part in String::from_utf8_lossy(named.value()).chars() {
        // A control character could overwrite the line on a terminal.
        let _ = if part.is_control() {
            write!(value, "{}", part.escape_default())
        } else {
            write!(value, "{part}")
        };
    }
    let field = named.field();
    backend.log(&format_args!("{script}: {status}: its {field} is {value}: {why}"));
}
