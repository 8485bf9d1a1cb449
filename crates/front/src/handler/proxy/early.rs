//! Early hints (RFC 8297) of an upstream server, for clients that support interim responses.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

use bytes::Bytes;
use hyper::header::HeaderMap;
use hyper::{Request, StatusCode};

use crate::handler::context::RequestCx;
use crate::handler::proxy::relay::send;
use crate::http::client::{HeadWriter, HttpClient};
use crate::http::early_hints::{fields, is_used};
use crate::proxy::error::ProxyError;
use crate::proxy::upload::UploadBody;

/// Most early hints of one response.
const MAX_TIMES: usize = 8;
/// Bytes of hints that wait for a client; what exceeds them is dropped.
const WAITING_BYTES: usize = 16 * 1024;

/// The early hints of one response.
#[derive(Default)]
pub struct EarlyHints {
    queue: Arc<Mutex<HintQueue>>,
}

#[derive(Default)]
struct HintQueue {
    /// Lines of headers. The header section that they are from would hold all its bytes.
    hints: VecDeque<Vec<u8>>,
    /// Their bytes.
    bytes: usize,
    times: usize,
    waker: Option<Waker>,
}

impl HintQueue {
    fn push(&mut self, headers: &HeaderMap) {
        let used = || headers.iter().filter(|(name, _)| is_used(name.as_str().as_bytes()));
        let lengths = used().map(|(name, value)| name.as_str().len() + value.len() + 4);
        let bytes = lengths.sum::<usize>();
        if bytes == 0 || self.bytes + bytes > WAITING_BYTES {
            return;
        }
        let mut lines = Vec::with_capacity(bytes);
        for (name, value) in used() {
            for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
                lines.extend_from_slice(part);
            }
        }
        self.bytes += bytes;
        self.hints.push_back(lines);
    }

    fn pop(&mut self) -> Option<Vec<u8>> {
        let lines = self.hints.pop_front()?;
        self.bytes -= lines.len();
        Some(lines)
    }
}

impl EarlyHints {
    /// Collects the interim responses to a request.
    pub fn listen(&self, request: &mut Request<UploadBody>) {
        let queue = self.queue.clone();
        hyper::ext::on_informational(request, move |response| {
            let mut queue = lock(&queue);
            if response.status() != StatusCode::EARLY_HINTS || queue.times == MAX_TIMES {
                return;
            }
            queue.times += 1;
            queue.push(response.headers());
            if let Some(waker) = queue.waker.take() {
                waker.wake();
            }
        });
    }

    /// Waits for the next hints.
    pub async fn next(&self) -> Vec<u8> {
        poll_fn(|cx| {
            let mut queue = lock(&self.queue);
            match queue.pop() {
                Some(hints) => Poll::Ready(hints),
                None => {
                    queue.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// The next hints, if there are any.
    pub fn take(&self) -> Option<Vec<u8>> {
        lock(&self.queue).pop()
    }
}

fn lock(queue: &Mutex<HintQueue>) -> MutexGuard<'_, HintQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes hints on, as lines of headers.
///
/// # Errors
/// When the client has closed the connection.
pub async fn pass<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    hints: &[u8],
) -> Result<(), ProxyError> {
    let mut out = Vec::new();
    if let Some(apart) = C::HeadWriter::hints(&mut out, fields(hints)) {
        cx.client.begin(apart).map_err(|_| ProxyError::ClientLeft)?;
    }
    cx.record.head_bytes += out.len() as u64;
    send(cx.client, &mut Bytes::from(out)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hints_that_wait_are_bounded_together_and_lose_nothing_that_fits() {
        let mut queue = HintQueue::default();
        let headers = |name: &'static str, length: usize| {
            let mut headers = HeaderMap::new();
            headers.append(name, "x".repeat(length).parse().unwrap());
            headers
        };
        queue.push(&headers("set-cookie", 7));
        assert_eq!(queue.pop(), None);
        queue.push(&headers("link", WAITING_BYTES));
        queue.push(&headers("link", 9000));
        queue.push(&headers("link", 9000));
        queue.push(&headers("link", 1));
        let lines = queue.pop().unwrap();
        assert_eq!(lines.len(), 9008);
        assert_eq!(fields(&lines).next().unwrap().0, b"link");
        assert_eq!(queue.pop().unwrap(), b"link: x\r\n");
        assert_eq!((queue.pop(), queue.bytes), (None, 0));
    }
}
