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
use crate::http::early_hints::is_used;
use crate::http::headers::Header;
use crate::proxy::error::ProxyError;
use crate::proxy::upload::UploadBody;

/// Most early hints of one response.
const MAX_TIMES: usize = 8;

/// The early hints of one response.
#[derive(Default)]
pub struct EarlyHints {
    queue: Arc<Mutex<HintQueue>>,
}

#[derive(Default)]
struct HintQueue {
    hints: VecDeque<HeaderMap>,
    times: usize,
    waker: Option<Waker>,
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
            queue.hints.push_back(response.headers().clone());
            if let Some(waker) = queue.waker.take() {
                waker.wake();
            }
        });
    }

    /// Waits for the next hints.
    pub async fn next(&self) -> HeaderMap {
        poll_fn(|cx| {
            let mut queue = lock(&self.queue);
            match queue.hints.pop_front() {
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
    pub fn take(&self) -> Option<HeaderMap> {
        lock(&self.queue).hints.pop_front()
    }
}

fn lock(queue: &Mutex<HintQueue>) -> MutexGuard<'_, HintQueue> {
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes hints on.
///
/// # Errors
/// When the client has closed the connection.
pub async fn pass<C: HttpClient>(
    cx: &mut RequestCx<'_, C>,
    hints: &HeaderMap,
) -> Result<(), ProxyError> {
    let fields = hints.iter().map(|(name, value)| (name.as_str().as_bytes(), value.as_bytes()));
    let fields: Vec<Header<'_>> = fields.filter(|(name, _)| is_used(name)).collect();
    if fields.is_empty() {
        return Ok(());
    }
    let mut out = Vec::new();
    if let Some(apart) = C::HeadWriter::hints(&mut out, fields.into_iter()) {
        cx.client.begin(apart).map_err(|_| ProxyError::ClientLeft)?;
    }
    cx.record.head_bytes += out.len() as u64;
    send(cx.client, &mut Bytes::from(out)).await
}
