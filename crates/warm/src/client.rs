//! An HTTP client for single pages, which reuses its connection.

use std::io::ErrorKind;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use maitred_measure::plan::Endpoint;
use maitred_measure::stream;
use maitred_measure::url::Url;

/// Timeout of a request, until the last byte of the response.
const PATIENCE: Duration = Duration::from_secs(60);
/// Timeout of a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A response.
#[derive(Debug)]
pub struct PageResponse {
    /// Its status.
    pub status: u16,
    /// Its `Cache-Status` header, if any.
    pub cache_status: Option<String>,
    /// The start of its body, as far as it was wanted.
    pub body: Bytes,
}

/// A client with at most one connection.
#[derive(Debug)]
pub struct PageClient {
    headers: HeaderMap,
    open: Option<(Url, SendRequest<Empty<Bytes>>)>,
}

impl PageClient {
    /// A client that sends these headers with each request.
    pub fn new(headers: HeaderMap) -> PageClient {
        PageClient { headers, open: None }
    }

    /// Requests a page and reads the whole response, of which `keep` bytes are stored.
    ///
    /// # Errors
    /// A message.
    pub async fn get(
        &mut self,
        endpoint: &Endpoint,
        url: &Url,
        keep: usize,
    ) -> Result<PageResponse, String> {
        let received = tokio::time::timeout(PATIENCE, self.try_get(endpoint, url, keep)).await;
        let received = received.unwrap_or_else(|_| {
            let limit = PATIENCE.as_secs();
            Err(format!("there was no complete response within {limit} s"))
        });
        if received.is_err() {
            self.open = None;
        }
        received
    }

    async fn try_get(
        &mut self,
        endpoint: &Endpoint,
        url: &Url,
        keep: usize,
    ) -> Result<PageResponse, String> {
        if let Some(response) = self.get_over_open(url, keep).await? {
            return Ok(response);
        }
        let sender = connect(endpoint).await?;
        self.open = Some((url.clone(), sender));
        let response = self.get_over_open(url, keep).await?;
        response.ok_or_else(|| "the server closes its connections at once".to_owned())
    }

    /// `None` if there is no connection, or the server closed it before this request.
    async fn get_over_open(
        &mut self,
        url: &Url,
        keep: usize,
    ) -> Result<Option<PageResponse>, String> {
        let Some((_, mut sender)) = self.open.take().filter(|(at, _)| at.same_server(url)) else {
            return Ok(None);
        };
        if sender.ready().await.is_err() {
            return Ok(None);
        }
        let mut request = Request::get(url.path.as_str())
            .header("Host", url.authority.as_str())
            .body(Empty::new())
            .map_err(|why| format!("it cannot be requested: {why}"))?;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            // The server closed the connection before it received the request.
            Err(why) if why.is_canceled() => return Ok(None),
            Err(why) => return Err(format!("there was no response: {why}")),
        };
        let (head, mut body) = response.into_parts();
        let mut kept = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| format!("the response ended early: {why}"))?;
            if let Some(piece) = frame.data_ref() {
                let room = keep.saturating_sub(kept.len()).min(piece.len());
                kept.extend_from_slice(&piece[..room]);
            }
        }
        self.open = Some((url.clone(), sender));
        let values = head.headers.get_all("cache-status").iter();
        let values: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        Ok(Some(PageResponse {
            status: head.status.as_u16(),
            cache_status: (!values.is_empty()).then(|| values.join(", ")),
            body: kept.freeze(),
        }))
    }
}

async fn connect(endpoint: &Endpoint) -> Result<SendRequest<Empty<Bytes>>, String> {
    let connected = tokio::time::timeout(CONNECT, stream::connect(endpoint)).await;
    let stream = match connected {
        Ok(Ok((stream, _))) => stream,
        // Invalid data in the handshake is an invalid certificate.
        Ok(Err(why)) if why.kind() == ErrorKind::InvalidData && endpoint.tls.is_some() => {
            return Err(format!(
                "there is no connection: {why}; name who has issued the certificate with --ca, or \
                 trust every one with --insecure"
            ));
        }
        Ok(Err(why)) => return Err(format!("there is no connection: {why}")),
        Err(_) => {
            let limit = CONNECT.as_secs();
            return Err(format!("there was no connection within {limit} s"));
        }
    };
    let begun = handshake(TokioIo::new(stream)).await;
    let (sender, connection) = begun.map_err(|why| format!("there is no connection: {why}"))?;
    // The next request reports the error.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Parses a header, as `Name: value`.
///
/// # Errors
/// A message.
pub fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("'{text}' is no header; expected one such as 'X-Device: phone'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}
