//! Reads request bodies of HTTP/1.1 from a connection.

use maitred_http1::{CONTINUE, ChunkedBody, Framing, Head};

use crate::http::body::{Body, BodyError, Collected};
use crate::http::spool_folder::SpoolPlace;
use crate::server::http1::connection::Connection;

/// Collects the body that follows `head`. Sends `100 Continue` only after the size was checked
/// against the limit.
///
/// # Errors
/// Why there is none; the connection is unusable then.
pub async fn collect(
    connection: &mut Connection,
    head: &Head,
    limit: u64,
    place: SpoolPlace<'_>,
) -> Result<Body, BodyError> {
    let length = match head.body {
        Framing::None => return Ok(Body::Memory(Vec::new())),
        Framing::Length(length) if length > limit => return Err(BodyError::TooLarge),
        Framing::Length(length) => Some(length),
        Framing::Chunked => None,
    };
    if head.expects_continue && connection.input().is_empty() {
        let sent = connection.send_interim(CONTINUE).await;
        sent.map_err(|_| BodyError::Gone)?;
    }
    let mut collected = Collected::beside(head.memory_bytes(), limit);
    let mut chunks = ChunkedBody::new();
    let mut pace = connection.body_pace();
    loop {
        let complete = match length {
            Some(length) => take_length(connection, &mut collected, length, place).await?,
            None => take_chunks(connection, &mut collected, &mut chunks, place).await?,
        };
        if complete {
            return collected.finish(place).await;
        }
        match connection.fill_body(collected.len(), &mut pace).await {
            Some(Ok(count)) if count > 0 => {}
            None => return Err(BodyError::TooSlow),
            _ => return Err(BodyError::Gone),
        }
    }
}

pub(crate) async fn take_length(
    connection: &mut Connection,
    collected: &mut Collected,
    length: u64,
    place: SpoolPlace<'_>,
) -> Result<bool, BodyError> {
    let missing = usize::try_from(length - collected.len()).unwrap_or(usize::MAX);
    let input = connection.input();
    let count = missing.min(input.len());
    let bytes = input.split_to(count);
    collected.add(&bytes, place).await?;
    Ok(count == missing)
}

pub(crate) async fn take_chunks(
    connection: &mut Connection,
    collected: &mut Collected,
    chunks: &mut ChunkedBody,
    place: SpoolPlace<'_>,
) -> Result<bool, BodyError> {
    let input = connection.input().split();
    let mut rest = &input[..];
    let mut complete = false;
    while !rest.is_empty() && !complete {
        let decoded = chunks.decode(rest).map_err(BodyError::Refused)?;
        collected.add(decoded.data, place).await?;
        rest = &rest[decoded.consumed..];
        complete = decoded.complete;
    }
    connection.input().extend_from_slice(rest);
    Ok(complete)
}
