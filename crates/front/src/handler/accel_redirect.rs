//! Files that a script has sent in place of its own answer: `X-Accel-Redirect` (nginx) and
//! `X-Sendfile` (Apache's mod_xsendfile). They reach what the site lists in `sendfile_roots`, and
//! nothing else. The answer is that of a static file, with the header that the script gave it.

use std::fmt::Write;
use std::io;

use maitred_fastcgi::cgi::AnswerHead;
use maitred_http1::{Head, Method, is_hop_by_hop};

use crate::backend::Backend;
use crate::backend::script_headers::{Named, SENDFILE, is_for_us};
use crate::handler::context::RequestContext;
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::headers::{Header, ServerHeaders};
use crate::logging::record::RequestRecord;
use crate::site::files::{self, Conditions};
use crate::site::sendfile_roots::NotSent;

/// Fields that speak of the body that the script did not send (nginx drops the same).
const OF_THE_BODY: [&str; 7] = [
    "Content-Length",
    "Content-Encoding",
    "Content-Range",
    "Content-MD5",
    "Accept-Ranges",
    "ETag",
    "Last-Modified",
];

/// What of a request decides how the file is sent: any method but HEAD counts as GET, as with nginx.
struct Asked<'a>(&'a Head);

impl Conditions for Asked<'_> {
    fn method(&self) -> &str {
        method(self.0)
    }

    fn header(&self, name: &str) -> Option<&str> {
        crate::http::headers::first_field(self.0, name)
    }
}

/// The file is the page of an error, which is sent whole.
struct Whole<'a>(&'a Head);

impl Conditions for Whole<'_> {
    fn method(&self) -> &str {
        method(self.0)
    }

    fn header(&self, _name: &str) -> Option<&str> {
        None
    }
}

fn method(head: &Head) -> &'static str {
    match head.kind() {
        Method::Head => "HEAD",
        _ => "GET",
    }
}

/// Answers with the file that a script names in the head `said` of its answer.
///
/// # Errors
/// When the client has gone or does not read, or the file has become shorter.
pub async fn answer(
    client: &mut impl HttpClient,
    head: &Head,
    (way, script): (&RequestContext<'_>, &str),
    said: &AnswerHead,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let after = way.status.map_or(After::Keep, |(_, after)| after);
    let Some(named) = Named::by(said) else {
        return crate::handler::respond::refuse(
            client,
            head,
            record,
            502,
            "The script's answer is not valid.",
        )
        .await;
    };
    let entry = match way.site.sendfile.find(named) {
        Ok(entry) => entry,
        Err(NotSent { status, why }) => {
            tell(way.backend, script, named, status, &why);
            let status = way.status.map_or(status, |(status, _)| status);
            let words = "The file cannot be sent.";
            return crate::handler::respond::plain(
                client, head, record, status, None, words, after,
            )
            .await;
        }
    };
    let said_type = said.header("content-type").map(std::str::from_utf8);
    let typed = match said_type {
        Some(Ok(said_type)) => Some(entry.typed(said_type)),
        _ => None,
    };
    let entry = typed.as_ref().unwrap_or(&entry);
    let answer = match way.status {
        Some(_) => files::answer(entry, &Whole(head)),
        None => files::answer(entry, &Asked(head)),
    };
    let secured = client.secured().cloned();
    let mut headers: Vec<Header<'_>> = said.headers().filter(|(name, _)| is_kept(name)).collect();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    headers.extend(beside.as_slice().iter().filter(|(name, _)| {
        let mut all = said.headers();
        !all.any(|(said, _)| said.eq_ignore_ascii_case(name))
    }));
    let reply = Reply {
        request: head,
        status: way.status.map_or(answer.status, |(status, _)| status),
        headers: &headers,
        lines: &answer.headers,
        length: None,
        after,
    };
    let content = Content::of(&answer.body);
    record.written(client.answer(&reply, content).await)?;
    Ok(after)
}

/// Whether a field of the script's answer belongs to the file's, too.
fn is_kept(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    !is_hop_by_hop(name)
        && !is_for_us(name)
        && !is("content-type")
        && !is(SENDFILE)
        && !OF_THE_BODY.into_iter().any(is)
}

fn tell(backend: &Backend, script: &str, named: Named<'_>, status: u16, why: &str) {
    let mut value = String::new();
    for part in String::from_utf8_lossy(named.value()).chars() {
        // A control character would write over the line on a terminal.
        let _ = match part.is_control() {
            true => write!(value, "{}", part.escape_default()),
            false => write!(value, "{part}"),
        };
    }
    let field = named.field();
    backend.log(&format_args!(
        "{script}: {status}: its {field} is {value}: {why}"
    ));
}
