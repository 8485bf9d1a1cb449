//! Static files, compressed if the client accepts that.

use std::io;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maitred_http1::{Head, Method};
use maitred_rules::content_encoding::ContentEncoding;
use md5::{Digest as _, Md5};

use crate::handler::context::{RequestContext, RequestCx};
use crate::handler::htaccess_response::{Directives, ResponseSource};
use crate::handler::respond::WholeResponse;
use crate::http::client::{After, Content, HttpClient};
use crate::http::headers::{Header, first_field};
use crate::services::Thread;
use crate::site::compress::accepted;
use crate::site::compress::variants::made;
use crate::site::files::entry::FileBody;
use crate::site::files::{self, Conditions, StaticFile};

/// A request for a file, with its conditions and range.
pub struct FileRequest<'a> {
    head: &'a Head,
    /// Whether POST gets the file as GET does: Apache's files take both.
    takes_post: bool,
}

impl Conditions for FileRequest<'_> {
    fn method(&self) -> &str {
        match self.head.kind() {
            Method::Post if self.takes_post => "GET",
            _ => self.head.method(),
        }
    }

    fn header(&self, name: &str) -> Option<&str> {
        first_field(self.head, name)
    }
}

/// Sends a file.
///
/// # Errors
/// When the client has closed the connection or does not read, or the file has become shorter.
pub async fn serve<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    context: &RequestContext<'_>,
    entry: Arc<StaticFile>,
) -> io::Result<After> {
    let entry = variant(context, cx.thread, entry).await;
    let request = FileRequest { head: cx.head, takes_post: context.directives.is_some() };
    let typed = type_of_parts(context, &entry);
    let file = files::response(typed.as_ref().unwrap_or(&entry), &request);
    let after = cx.client.discard_body(cx.head);
    let digest = content_digest(context, &entry, file.status);
    let headers: &[Header<'_>] = match &digest {
        Some(digest) => &[(b"Content-MD5", digest.as_bytes())],
        None => &[],
    };
    let response = WholeResponse {
        headers,
        lines: file.headers.clone(),
        source: ResponseSource::File,
        ..WholeResponse::new(file.status, Content::of(&file.body), after)
    };
    cx.send(&response).await
}

/// The file with the type that the directives give it, for a request of parts: each has the type.
fn type_of_parts(context: &RequestContext<'_>, entry: &StaticFile) -> Option<StaticFile> {
    let directives = context.directives.as_ref()?;
    context.head.header("range")?;
    let media_type = directives.file_type(entry.content_type().as_bytes());
    Some(entry.typed(std::str::from_utf8(&media_type).ok()?))
}

/// The value of `Content-MD5` (RFC 2616 §14.15), with `ContentDigest On`: that of the whole file,
/// in a 206 as well, as Apache has it. Only files that are held in memory have one (at most
/// 64 KiB), so that no request reads a file of any size twice.
fn content_digest(context: &RequestContext<'_>, entry: &StaticFile, status: u16) -> Option<String> {
    let conf = &context.directives.as_ref()?.request.conf;
    if conf.core.sends_digest != Some(true)
        || !matches!(status, 200 | 206)
        || entry.coding().is_some()
    {
        return None;
    }
    match entry.body() {
        FileBody::Memory(bytes) => Some(STANDARD.encode(Md5::digest(bytes))),
        FileBody::File(_) => None,
    }
}

/// The variant of a file to send: compressed in an encoding that the client accepts, or the file
/// itself.
async fn variant(
    context: &RequestContext<'_>,
    thread: &Thread,
    entry: Arc<StaticFile>,
) -> Arc<StaticFile> {
    let (site, head) = (context.site, context.head);
    let Some(compression) = site.compression.as_deref().filter(|_| entry.varies()) else {
        return entry;
    };
    // A directive names the encoding that the file has.
    let is_encoded = |own: &Arc<Directives>| own.request.content_encoding.is_some();
    if context.directives.as_ref().is_some_and(is_encoded) {
        return entry;
    }
    // Ranges are those of the file itself: its parts in another encoding would not fit together.
    if !matches!(head.kind(), Method::Get | Method::Head) || head.header("range").is_some() {
        return entry;
    }
    let accepted = accepted(head);
    let mut left = accepted;
    while compression.precompressed()
        && let Some(coding) = left.best(&ContentEncoding::SMALLEST)
    {
        let found = site.look_up(|| site.sibling(&context.path, &entry, coding)).await;
        if let Ok(Some(found)) = found {
            return found;
        }
        left = left.without(coding);
    }
    match accepted.best(compression.kept()) {
        Some(coding) => made(&thread.made, entry, coding).await,
        None => entry,
    }
}
