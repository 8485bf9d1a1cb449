//! The life of a request: which site, which file or script, what answer, one line in the log.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use maitred_http1::{Answer, AnswerFraming, Framing, Head, Method, write_head};

use crate::access::Answered;
use crate::admin;
use crate::attempt::{Tried, attempt, explain, retry_after};
use crate::body::{self, NoBody};
use crate::clock::http_date;
use crate::connection::Connection;
use crate::files::{self, AnswerBody, Entry};
use crate::http_form::HttpForm;
use crate::params::{self, Call, REQUEST_ID};
use crate::route::{Route, Script};
use crate::script::{Failure, Run, Sent};
use crate::shared::{Site, Thread};
use crate::status;

/// What becomes of the connection after an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// The next request may come.
    Keep,
    /// It is closed: the client has sent nothing that was not read.
    Close,
    /// It is closed once the client has stopped sending what nobody reads.
    Linger,
}

/// Answers one request.
pub async fn serve(connection: &mut Connection, head: &Head, thread: &Arc<Thread>) -> After {
    let begun = Instant::now();
    let mut answered = Answered::default();
    let before = connection.sent();
    let after = answer(connection, head, thread, &mut answered).await;
    answered.bytes = (connection.sent() - before).saturating_sub(answered.head_bytes);
    let log = thread.shared.access_log.load();
    if let Some(log) = log.as_ref().filter(|_| !connection.is_admin) {
        log.write(connection.peer.ip(), head, begun, &answered);
    }
    match after {
        Ok(After::Keep) if head.keep_alive => After::Keep,
        Ok(After::Keep) | Err(_) => After::Close,
        Ok(after) => after,
    }
}

async fn answer(
    connection: &mut Connection,
    head: &Head,
    thread: &Arc<Thread>,
    answered: &mut Answered,
) -> io::Result<After> {
    if head.kind() == Method::Trace {
        // It would show a script the headers that cookies and passwords are in (nginx, too).
        return refuse(connection, head, answered, 405, "TRACE is not answered.").await;
    }
    if connection.is_admin {
        if !admin::is_meant(connection.local().ip(), head.host()) {
            let why = "Only this machine's own address or localhost leads here.";
            return refuse(connection, head, answered, 421, why).await;
        }
        return match admin::page(&thread.shared, head).await {
            Some(page) => send_page(connection, head, &page, answered).await,
            None => refuse(connection, head, answered, 404, "There is no such page.").await,
        };
    }
    let sites = thread.sites();
    let Some(site) = sites.site_for(head.host()) else {
        return refuse(
            connection,
            head,
            answered,
            404,
            "No site is served under this name.",
        )
        .await;
    };
    if let Some(page) = status::page(&site.backend, head) {
        return send_page(connection, head, &page, answered).await;
    }
    match site.resolve(head.path(), head.query()) {
        Route::File(entry) => send_file(connection, head, &entry, answered).await,
        Route::Script(script) => {
            run_script(connection, head, thread, site, &script, answered).await
        }
        Route::RedirectSlash(location) => {
            let headers = [(&b"Location"[..], location.as_bytes())];
            let after = discard_body(connection, head);
            plain(connection, head, answered, 301, &headers, "", after).await
        }
        Route::Refused(refused) => {
            if refused.status >= 500 {
                let (troubles, root) = (&thread.shared.troubles, &site.settings.root);
                troubles.file_failed(root, refused.status, refused.why);
            }
            refuse(connection, head, answered, refused.status, refused.why).await
        }
    }
}

async fn send_page(
    connection: &mut Connection,
    head: &Head,
    page: &status::Page,
    answered: &mut Answered,
) -> io::Result<After> {
    let after = discard_body(connection, head);
    let keep_alive = head.keep_alive && after == After::Keep;
    let out = page.answer(head, keep_alive, answered);
    connection.send(&out).await?;
    Ok(after)
}

struct Conditions<'a>(&'a Head);

impl files::Conditions for Conditions<'_> {
    fn method(&self) -> &str {
        self.0.method()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let named = |header: &(&[u8], &[u8])| header.0.eq_ignore_ascii_case(name.as_bytes());
        self.0
            .headers()
            .find(named)
            .and_then(|(_, value)| std::str::from_utf8(value).ok())
    }
}

async fn send_file(
    connection: &mut Connection,
    head: &Head,
    entry: &Entry,
    answered: &mut Answered,
) -> io::Result<After> {
    let answer = files::answer(entry, &Conditions(head));
    let after = discard_body(connection, head);
    answered.status = answer.status;
    let memory: &[u8] = match &answer.body {
        AnswerBody::Memory(bytes) => bytes,
        _ => &[],
    };
    let mut out = Vec::with_capacity(256 + answer.headers.len() + memory.len());
    write_status(&mut out, head, answer.status, after);
    out.extend_from_slice(&answer.headers);
    out.extend_from_slice(b"\r\n");
    answered.head_bytes = out.len() as u64;
    match &answer.body {
        AnswerBody::Empty => connection.send(&out).await?,
        AnswerBody::Memory(bytes) => {
            out.extend_from_slice(bytes);
            connection.send(&out).await?;
        }
        AnswerBody::File { fd, slice } => {
            connection.send_more(&out).await?;
            connection.send_file(fd, slice.offset, slice.len).await?;
        }
        AnswerBody::Multipart { fd, parts, closing } => {
            connection.send_more(&out).await?;
            for part in parts {
                connection.send_more(&part.head).await?;
                connection
                    .send_file(fd, part.slice.offset, part.slice.len)
                    .await?;
            }
            connection.send(closing).await?;
        }
    }
    Ok(after)
}

/// Status line, Server, Date and Connection of an answer whose other headers are ready-made.
fn write_status(out: &mut Vec<u8>, head: &Head, status: u16, after: After) {
    let answer = Answer {
        version: head.version(),
        status,
        reason: None,
        framing: AnswerFraming::NoBody,
        keep_alive: head.keep_alive && after == After::Keep,
        date: &http_date(),
    };
    write_head(out, &answer, []);
    // The ready-made headers follow instead of the empty line.
    out.truncate(out.len() - 2);
}

/// A body that nobody wants: one that has arrived is dropped, one that has not ends the
/// connection, which is cheaper than to read it.
fn discard_body(connection: &mut Connection, head: &Head) -> After {
    match head.body {
        Framing::None => After::Keep,
        Framing::Length(length) => {
            let input = connection.input();
            match usize::try_from(length) {
                Ok(length) if length <= input.len() => {
                    drop(input.split_to(length));
                    After::Keep
                }
                _ => After::Linger,
            }
        }
        Framing::Chunked => After::Linger,
    }
}

async fn run_script(
    connection: &mut Connection,
    head: &Head,
    thread: &Arc<Thread>,
    site: &Site,
    script: &Script,
    answered: &mut Answered,
) -> io::Result<After> {
    let spool_dir = &site.spool_dir;
    let limit = site.settings.max_body_size;
    let body = match body::collect(connection, head, limit, spool_dir).await {
        Ok(body) => body,
        Err(no_body) => return refuse_body(connection, head, answered, no_body, spool_dir).await,
    };
    let local = connection.local();
    let call = Call {
        head,
        body: &body,
        script,
        peer: connection.peer,
        local,
    };
    let Ok(request) = params::encode(&call) else {
        let why = "The request's headers are too large for a script.";
        return refuse_close(connection, head, answered, 431, why).await;
    };
    let name = String::from_utf8_lossy(&script.script_filename);
    let run = Run {
        backend: &site.backend,
        asked: (head.method(), head.target()),
        is_idempotent: head.kind().is_idempotent(),
        body: &body,
        script: &name,
        request_id: REQUEST_ID,
        spool_dir,
    };
    let mut form = HttpForm::new(&run, head);
    let Tried {
        outcome,
        sent,
        begun,
    } = attempt(connection, &mut form, thread.number, &run, request).await;
    (answered.status, answered.head_bytes) = (form.status, form.head_bytes);
    (answered.queued, answered.script) = (sent.queued, sent.script);
    match outcome {
        Ok(()) if form.reusable => Ok(After::Keep),
        Ok(()) => Ok(After::Close),
        Err(failure) => fail(connection, head, &failure, begun.elapsed(), &sent, answered).await,
    }
}

/// Answers in place of a script.
async fn fail(
    connection: &mut Connection,
    head: &Head,
    failure: &Failure,
    waited: std::time::Duration,
    sent: &Sent,
    answered: &mut Answered,
) -> io::Result<After> {
    let (status, why) = explain(failure);
    if matches!(failure, Failure::ClientLeft | Failure::LeftQueue) {
        answered.status = status;
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    if sent.begun {
        // Half an answer cannot be mended; the client sees it end too early.
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let seconds = retry_after(waited).to_string();
    let headers = [(&b"Retry-After"[..], seconds.as_bytes())];
    let headers = if status == 503 { &headers[..] } else { &[] };
    plain(
        connection,
        head,
        answered,
        status,
        headers,
        why,
        After::Keep,
    )
    .await
}

async fn refuse_body(
    connection: &mut Connection,
    head: &Head,
    answered: &mut Answered,
    no_body: NoBody,
    spool_dir: &Path,
) -> io::Result<After> {
    let (status, why) = match no_body {
        NoBody::TooLarge => (413, "The body is larger than max_body_size allows."),
        NoBody::TooSlow => (408, "The body came too slowly."),
        NoBody::Gone => {
            answered.status = 499;
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        NoBody::Refused(refusal) => (refusal.status(), refusal.reason()),
        NoBody::Spool(error) => {
            let (method, target, dir) = (head.method(), head.target(), spool_dir.display());
            tracing::error!("{method} {target}: its body cannot be kept in {dir}: {error}");
            (
                507,
                "The body could not be kept: the disk is full or cannot be written.",
            )
        }
    };
    refuse_close(connection, head, answered, status, why).await
}

async fn refuse(
    connection: &mut Connection,
    head: &Head,
    answered: &mut Answered,
    status: u16,
    why: &str,
) -> io::Result<After> {
    let after = discard_body(connection, head);
    plain(connection, head, answered, status, &[], why, after).await
}

async fn refuse_close(
    connection: &mut Connection,
    head: &Head,
    answered: &mut Answered,
    status: u16,
    why: &str,
) -> io::Result<After> {
    let out = plain_answer(head, answered, status, &[], why, false);
    connection.send(&out).await?;
    Ok(After::Linger)
}

/// Sends an answer of our own; `after` says whether the request's body has been taken off the
/// connection, without which nothing else may be read from it.
async fn plain(
    connection: &mut Connection,
    head: &Head,
    answered: &mut Answered,
    status: u16,
    headers: &[(&[u8], &[u8])],
    why: &str,
    after: After,
) -> io::Result<After> {
    let keep_alive = head.keep_alive && after == After::Keep;
    let out = plain_answer(head, answered, status, headers, why, keep_alive);
    connection.send(&out).await?;
    Ok(after)
}

/// An answer of our own: the status in words, and the cause.
fn plain_answer(
    head: &Head,
    answered: &mut Answered,
    status: u16,
    headers: &[(&[u8], &[u8])],
    why: &str,
    keep_alive: bool,
) -> Vec<u8> {
    let body = format!("{status} {}\n{why}\n", maitred_http1::reason_phrase(status));
    let answer = Answer {
        version: head.version(),
        status,
        reason: None,
        framing: AnswerFraming::Length(body.len() as u64),
        keep_alive,
        date: &http_date(),
    };
    let kind = [(&b"Content-Type"[..], &b"text/plain; charset=utf-8"[..])];
    let mut out = Vec::with_capacity(512);
    write_head(
        &mut out,
        &answer,
        kind.into_iter().chain(headers.iter().copied()),
    );
    (answered.status, answered.head_bytes) = (status, out.len() as u64);
    if head.kind() != Method::Head {
        out.extend_from_slice(body.as_bytes());
    }
    out
}

/// An answer to a client whose request has no usable head.
pub fn bare(status: u16, why: &str) -> Vec<u8> {
    let body = format!("{status} {}\n{why}\n", maitred_http1::reason_phrase(status));
    let answer = Answer {
        version: maitred_http1::Version::Http11,
        status,
        reason: None,
        framing: AnswerFraming::Length(body.len() as u64),
        keep_alive: false,
        date: &http_date(),
    };
    let mut out = Vec::with_capacity(512);
    write_head(
        &mut out,
        &answer,
        [(&b"Content-Type"[..], &b"text/plain; charset=utf-8"[..])],
    );
    out.extend_from_slice(body.as_bytes());
    out
}
