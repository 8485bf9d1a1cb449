//! An HTTP client that reads a response of limited length, over a connection of its own.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use maitred_measure::plan::Endpoint;
use maitred_measure::stream;

use crate::probe::{ProbeForm, ServerResponse};

/// Timeout of a request, until the last byte of the response.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a body that are compared.
pub const MAX_BODY_BYTES: usize = 2 << 20;

/// The range of a request for a part.
const RANGE: &str = "bytes=2-11";

/// The `User-Agent`, which identifies the requests in a log.
const USER_AGENT: &str = concat!("maitred-prove/", env!("CARGO_PKG_VERSION"));

/// A request to send.
#[derive(Debug, Clone, Copy)]
pub struct SentRequest<'a> {
    /// The `Host`.
    pub authority: &'a str,
    /// The request target.
    pub target: &'a str,
    /// The form.
    pub form: &'a ProbeForm,
    /// Validators of the server's response before: `ETag`, or else `Last-Modified`.
    pub before: Option<&'a ServerResponse>,
}

/// Sends a request. A response that does not come has the status 0, and the reason as its body.
pub async fn exchange(endpoint: &Endpoint, sent: SentRequest<'_>) -> ServerResponse {
    let received = tokio::time::timeout(PATIENCE, try_exchange(endpoint, sent)).await;
    let received = received.unwrap_or_else(|_| {
        Err(format!("there was no complete response within {} s", PATIENCE.as_secs()))
    });
    received.unwrap_or_else(|why| ServerResponse {
        body: why.into_bytes(),
        ..ServerResponse::default()
    })
}

async fn try_exchange(
    endpoint: &Endpoint,
    sent: SentRequest<'_>,
) -> Result<ServerResponse, String> {
    let request = request(sent).map_err(|why| format!("it cannot be requested: {why}"))?;
    let (stream, _) =
        stream::connect(endpoint).await.map_err(|why| format!("there is no connection: {why}"))?;
    let begun = handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = begun.map_err(|why| format!("there is no connection: {why}"))?;
    let driver = tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await;
    let response = response.map_err(|why| format!("there was no response: {why}"))?;
    let (head, mut body) = response.into_parts();
    let headers = head.headers.iter().map(|(name, value)| {
        (name.as_str().to_owned(), String::from_utf8_lossy(value.as_bytes()).into_owned())
    });
    let mut found = ServerResponse {
        status: head.status.as_u16(),
        headers: headers.collect(),
        ..ServerResponse::default()
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|why| format!("the response ended early: {why}"))?;
        let Some(piece) = frame.data_ref() else { continue };
        let room = MAX_BODY_BYTES - found.body.len();
        found.body.extend_from_slice(&piece[..piece.len().min(room)]);
        if piece.len() >= room {
            found.is_cut = true;
            break;
        }
    }
    drop(body);
    driver.abort();
    if found.header("content-encoding") == Some("gzip") && !found.is_cut {
        unzip(&mut found);
    }
    Ok(found)
}

fn request(sent: SentRequest<'_>) -> Result<Request<Full<Bytes>>, http::Error> {
    let mut request = Request::builder()
        .method(sent.form.method())
        .uri(sent.target)
        .header("Host", sent.authority)
        .header("User-Agent", USER_AGENT)
        .header("Accept", "*/*")
        .header("Connection", "close");
    match sent.form {
        ProbeForm::Gzip => request = request.header("Accept-Encoding", "gzip"),
        ProbeForm::Range => request = request.header("Range", RANGE),
        ProbeForm::Conditional => {
            let value = |name: &str| sent.before.and_then(|before| before.header(name));
            if let Some(tag) = value("etag") {
                request = request.header("If-None-Match", tag);
            } else if let Some(date) = value("last-modified") {
                request = request.header("If-Modified-Since", date);
            }
        }
        ProbeForm::Post(_) => {
            request = request.header("Content-Type", "application/x-www-form-urlencoded");
        }
        ProbeForm::Get | ProbeForm::Head => {}
    }
    let body = match sent.form {
        ProbeForm::Post(body) => Bytes::from(body.clone()),
        _ => Bytes::new(),
    };
    request.body(Full::new(body))
}

/// Decompresses a body, up to the limit.
fn unzip(response: &mut ServerResponse) {
    let mut plain = Vec::new();
    let limit = MAX_BODY_BYTES as u64;
    if GzDecoder::new(&response.body[..]).take(limit).read_to_end(&mut plain).is_ok() {
        response.is_cut = plain.len() as u64 >= limit;
        response.body = plain;
    }
}
