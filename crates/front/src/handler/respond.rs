//! Sends responses that the server makes itself.

use std::io;

use bytes::Bytes;
use maitred_http1::{Head, Method};

use crate::handler::context::RequestContext;
use crate::http::body::NoBody;
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::http::headers::{Header, PLAIN, ServerHeaders};
use crate::logging::record::RequestRecord;

/// Answers that the body could not be had, and why, and closes the connection.
pub async fn refuse_body(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    no_body: NoBody,
    way: &RequestContext<'_>,
) -> io::Result<After> {
    let (status, why) = match no_body {
        NoBody::TooLarge => (413, "The body is larger than max_body_size allows."),
        NoBody::TooSlow => (408, "The body came too slowly."),
        NoBody::Gone => {
            record.status = 499;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        NoBody::Refused(refusal) => (refusal.status(), refusal.reason()),
        NoBody::Spool(error) => {
            let dir = way.site.spool_dir.display();
            let (method, target) = (head.method(), head.target());
            let id = record.id();
            let id = id.as_str();
            if way.backend.may_log(target.len()) {
                tracing::error!(
                    "{method} {target}: its body cannot be kept in {dir}: {error} [request {id}]"
                );
            }
            (
                507,
                "The body could not be kept: the disk is full or cannot be written.",
            )
        }
    };
    refuse_close(client, head, record, status, why).await
}

/// Refuses with a status and a sentence; the connection is kept if the body can be taken off it.
pub async fn refuse(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    why: &str,
) -> io::Result<After> {
    let after = client.discard_body(head);
    plain(client, head, record, status, None, why, after).await
}

/// Refuses with a status and a sentence, and closes the connection.
pub async fn refuse_close(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    why: &str,
) -> io::Result<After> {
    plain(client, head, record, status, None, why, After::Linger).await
}

/// Sends an answer of our own: the status in words, and the cause. `after` says whether the
/// request's body has been taken off the connection, without which nothing else may be read from it.
pub async fn plain(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    header: Option<Header<'_>>,
    why: &str,
    after: After,
) -> io::Result<After> {
    let body = match client.admin() {
        // Those who administer the server may know why.
        Some(_) => crate::http::error_body::unfiltered(status, why),
        None => crate::http::error_body::in_words(status, why),
    };
    let headers = [PLAIN, header.unwrap_or(PLAIN)];
    let headers = match header {
        Some(_) => &headers[..],
        None => &headers[..1],
    };
    Box::pin(whole(client, head, record, status, headers, &body, after)).await
}

/// Sends an answer whose body is a text; to HEAD without it (RFC 9110 §9.3.2).
pub async fn whole(
    client: &mut impl HttpClient,
    head: &Head,
    record: &mut RequestRecord,
    status: u16,
    headers: &[Header<'_>],
    body: &str,
    after: After,
) -> io::Result<After> {
    let secured = client.secured().cloned();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    let beside = beside.as_slice();
    let all = (!beside.is_empty()).then(|| [headers, beside].concat());
    let reply = Reply {
        request: head,
        status,
        headers: all.as_deref().unwrap_or(headers),
        lines: &Bytes::new(),
        length: Some(body.len() as u64),
        after,
    };
    let content = match head.kind() {
        Method::Head => Content::Nothing,
        _ => Content::Made(body.as_bytes()),
    };
    record.written(client.answer(&reply, content).await)?;
    Ok(after)
}
