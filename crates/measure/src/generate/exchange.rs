//! One request and its response on a connection of HTTP/1.1 or FastCGI.

use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::connection::OpenCount;
use crate::fastcgi::FastcgiReader;
use crate::outcome::Cause;
use crate::plan::Protocol;
use crate::response::{Http1Reader, ReadOptions, ReadResponse, ResponseSummary};
use crate::stream::Stream;

/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// The read buffer of all connections of a thread: an idle connection holds none.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Why there is no response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The server had closed the connection before the request could reach it: the request may be
    /// sent again on another one.
    Stale(Cause),
    /// Any other reason.
    Cause(Cause),
}

/// A connection that carries one request at a time.
#[derive(Debug)]
pub struct SerialConnection {
    stream: Stream,
    reader: Box<dyn ReadResponse>,
    /// Created once and then only reset, which costs next to nothing.
    timer: Pin<Box<Sleep>>,
    used: bool,
    _counted: OpenCount,
}

impl SerialConnection {
    /// Wraps a new connection.
    pub fn new(
        stream: Stream,
        protocol: &Protocol,
        deadline: Instant,
        counted: OpenCount,
    ) -> SerialConnection {
        SerialConnection {
            stream,
            reader: match protocol {
                Protocol::Fastcgi { .. } => Box::new(FastcgiReader::default()),
                Protocol::Http1 | Protocol::Http2 { .. } => Box::new(Http1Reader::default()),
            },
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            used: false,
            _counted: counted,
        }
    }

    /// Sends a request and reads the response.
    ///
    /// # Errors
    /// Why there is no response. The connection cannot be used any more.
    pub async fn send(
        &mut self,
        bytes: &[u8],
        options: ReadOptions<'_>,
        deadline: Instant,
    ) -> Result<ResponseSummary, SendError> {
        self.reader.begin(options);
        self.timer.as_mut().reset(deadline);
        let mut written = 0;
        let mut failed = None;
        let response = poll_fn(|cx| {
            // A server may reject a request before it has read the whole body.
            if failed.is_none() && written <= bytes.len() {
                failed = self.write(cx, bytes, &mut written);
            }
            if let Poll::Ready(response) = self.read(cx) {
                return Poll::Ready(response);
            }
            if let Some(why) = &failed {
                return Poll::Ready(Err(Cause::of_io(why)));
            }
            match self.timer.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Err(Cause::TimedOut)),
                Poll::Pending => Poll::Pending,
            }
        })
        .await;
        let was_used = std::mem::replace(&mut self.used, true);
        response.map_err(|cause| {
            let in_time = !matches!(cause, Cause::TimedOut);
            if was_used && in_time && !self.reader.has_begun() {
                SendError::Stale(cause)
            } else {
                SendError::Cause(cause)
            }
        })
    }

    fn write(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
        written: &mut usize,
    ) -> Option<io::Error> {
        while *written < bytes.len() {
            match Pin::new(&mut self.stream).poll_write(cx, &bytes[*written..]) {
                Poll::Ready(Ok(0)) => return Some(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(count)) => *written += count,
                Poll::Ready(Err(why)) => return Some(why),
                Poll::Pending => return None,
            }
        }
        match Pin::new(&mut self.stream).poll_flush(cx) {
            Poll::Ready(Err(why)) => Some(why),
            Poll::Ready(Ok(())) => {
                *written = bytes.len() + 1;
                None
            }
            Poll::Pending => None,
        }
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Poll<Result<ResponseSummary, Cause>> {
        SCRATCH.with_borrow_mut(|scratch| {
            loop {
                let mut buffer = ReadBuf::new(scratch);
                match Pin::new(&mut self.stream).poll_read(cx, &mut buffer) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(why)) => return Poll::Ready(Err(Cause::of_io(&why))),
                    Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                        return Poll::Ready(self.reader.ended().map_err(Cause::Fault));
                    }
                    Poll::Ready(Ok(())) => match self.reader.read(buffer.filled()) {
                        Ok(None) => {}
                        Ok(Some(response)) => return Poll::Ready(Ok(response)),
                        Err(why) => return Poll::Ready(Err(Cause::Fault(why))),
                    },
                }
            }
        })
    }

    /// Ready when an idle connection can no longer be used: the server has closed it, or sends
    /// bytes without a request.
    pub fn poll_useless(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        polled.map(|_| ())
    }
}
