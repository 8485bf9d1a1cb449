//! One request and its answer on a connection of HTTP/1.1 or FastCGI.

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
use crate::response::{Http1Reader, ReadOptions, ResponseSummary};
use crate::stream::Stream;

/// How much is read at once, in bytes.
const READ_BYTES: usize = 64 * 1024;

thread_local! {
    /// What all connections of a thread read into: a connection that waits holds no buffer.
    static SCRATCH: RefCell<Vec<u8>> = RefCell::new(vec![0; READ_BYTES]);
}

/// Why no answer came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SendError {
    /// The server had closed the connection before the request could reach it: it may be sent again
    /// on another one.
    Stale(Cause),
    /// Anything else.
    Cause(Cause),
}

/// Reads answers in one of the protocols.
#[derive(Debug)]
enum ResponseReader {
    Http1(Http1Reader),
    Script(Box<FastcgiReader>),
}

impl ResponseReader {
    fn begin(&mut self, options: ReadOptions<'_>) {
        match self {
            ResponseReader::Http1(reader) => reader.begin(options),
            ResponseReader::Script(reader) => reader.begin(options),
        }
    }

    fn has_begun(&self) -> bool {
        match self {
            ResponseReader::Http1(reader) => reader.has_begun(),
            ResponseReader::Script(reader) => reader.has_begun(),
        }
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Option<ResponseSummary>, Cause> {
        let read = match self {
            ResponseReader::Http1(reader) => reader.read(bytes),
            ResponseReader::Script(reader) => reader.read(bytes),
        };
        read.map_err(Cause::Fault)
    }

    fn ended(&mut self) -> Result<ResponseSummary, Cause> {
        match self {
            ResponseReader::Http1(reader) => reader.ended().map_err(Cause::Fault),
            ResponseReader::Script(reader) => Err(Cause::Fault(reader.ended())),
        }
    }
}

/// A connection, which carries one request at a time.
#[derive(Debug)]
pub struct SerialConnection {
    stream: Stream,
    reader: ResponseReader,
    /// Armed once and then only moved on, which costs next to nothing.
    timer: Pin<Box<Sleep>>,
    used: bool,
    _counted: OpenCount,
}

impl SerialConnection {
    /// A connection that has just been made.
    pub fn new(
        stream: Stream,
        protocol: &Protocol,
        deadline: Instant,
        counted: OpenCount,
    ) -> SerialConnection {
        SerialConnection {
            stream,
            reader: match protocol {
                Protocol::Fastcgi { .. } => ResponseReader::Script(Box::default()),
                Protocol::Http1 | Protocol::Http2 { .. } => {
                    ResponseReader::Http1(Http1Reader::default())
                }
            },
            timer: Box::pin(tokio::time::sleep_until(deadline)),
            used: false,
            _counted: counted,
        }
    }

    /// Sends a request and reads its answer.
    ///
    /// # Errors
    /// Why there is no answer. The connection is of no use then.
    pub async fn ask(
        &mut self,
        bytes: &[u8],
        options: ReadOptions<'_>,
        deadline: Instant,
    ) -> Result<ResponseSummary, SendError> {
        self.reader.begin(options);
        self.timer.as_mut().reset(deadline);
        let mut written = 0;
        let mut failed = None;
        let answer = poll_fn(|cx| {
            // Who refuses a body says so before it has come.
            if failed.is_none() && written <= bytes.len() {
                failed = self.write(cx, bytes, &mut written);
            }
            if let Poll::Ready(answer) = self.read(cx) {
                return Poll::Ready(answer);
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
        answer.map_err(|cause| {
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
                        return Poll::Ready(self.reader.ended());
                    }
                    Poll::Ready(Ok(())) => match self.reader.read(buffer.filled()) {
                        Ok(None) => {}
                        Ok(Some(answer)) => return Poll::Ready(Ok(answer)),
                        Err(cause) => return Poll::Ready(Err(cause)),
                    },
                }
            }
        })
    }

    /// Ready when an idle connection is of no use any more: the server has closed it, or says what
    /// nobody options for.
    pub fn poll_useless(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut byte = [0];
        let mut buffer = ReadBuf::new(&mut byte);
        let polled = Pin::new(&mut self.stream).poll_read(cx, &mut buffer);
        polled.map(|_| ())
    }
}
