//! Asking for an address, over a connection that is kept for the next one.

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

/// Longest that an answer may take, from the question to its last byte.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest that a connection may take to be there.
const CONNECT: Duration = Duration::from_secs(10);

/// An answer.
#[derive(Debug)]
pub struct PageResponse {
    /// Its status.
    pub status: u16,
    /// What it says in `Cache-Status`, if it does.
    pub cache_status: Option<String>,
    /// Its body, as far as it was wanted.
    pub body: Bytes,
}

/// One who asks, with at most one connection.
#[derive(Debug)]
pub struct PageClient {
    headers: HeaderMap,
    open: Option<(Url, SendRequest<Empty<Bytes>>)>,
}

impl PageClient {
    /// One who sends these fields each time.
    pub fn new(headers: HeaderMap) -> PageClient {
        PageClient {
            headers,
            open: None,
        }
    }

    /// Asks for a page and reads all of the answer, of which `keep` bytes are wanted.
    ///
    /// # Errors
    /// One sentence.
    pub async fn ask(
        &mut self,
        endpoint: &Endpoint,
        url: &Url,
        keep: usize,
    ) -> Result<PageResponse, String> {
        let asked = tokio::time::timeout(PATIENCE, self.try_ask(endpoint, url, keep)).await;
        let asked = asked.unwrap_or_else(|_| {
            let limit = PATIENCE.as_secs();
            Err(format!("there was no whole answer within {limit} s"))
        });
        if asked.is_err() {
            self.open = None;
        }
        asked
    }

    async fn try_ask(
        &mut self,
        endpoint: &Endpoint,
        url: &Url,
        keep: usize,
    ) -> Result<PageResponse, String> {
        if let Some(answer) = self.ask_over_open(url, keep).await? {
            return Ok(answer);
        }
        let sender = connect(endpoint).await?;
        self.open = Some((url.clone(), sender));
        let answer = self.ask_over_open(url, keep).await?;
        answer.ok_or_else(|| "the server closes its connections at once".to_owned())
    }

    /// Nothing if there is no connection, or it was closed before it was used once more.
    async fn ask_over_open(
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
            .map_err(|why| format!("it cannot be asked for: {why}"))?;
        for (name, value) in &self.headers {
            request.headers_mut().append(name, value.clone());
        }
        let response = match sender.send_request(request).await {
            Ok(response) => response,
            // It was closed meanwhile: the server has not heard it.
            Err(why) if why.is_canceled() => return Ok(None),
            Err(why) => return Err(format!("there was no answer: {why}")),
        };
        let (head, mut body) = response.into_parts();
        let mut kept = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|why| format!("the answer ended early: {why}"))?;
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
        // What is wrong with what was said is wrong with the certificate.
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
    // How it ended is told to whoever asks over it.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// Reads a field to send, as `Name: value`.
///
/// # Errors
/// One sentence.
pub fn header(text: &str) -> Result<(HeaderName, HeaderValue), String> {
    let wrong = || format!("'{text}' is no header field; expected one such as 'X-Device: phone'");
    let (name, value) = text.split_once(':').ok_or_else(wrong)?;
    let name = HeaderName::from_bytes(name.trim().as_bytes()).map_err(|_| wrong())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    Ok((name, value))
}
