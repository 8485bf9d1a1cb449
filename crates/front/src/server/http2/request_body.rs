//! The body of a request of HTTP/2, and its part of the connection's window.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::RecvStream;
use maitred_http1::Framing;
use tokio::time::timeout;

use crate::server::http2::connection_state::{BodyWindow, ConnectionState};

/// How long a client that has its response may continue to send an unwanted body.
const LINGER: Duration = Duration::from_secs(2);

/// A body, until it is dropped: then the window has room for others.
pub struct RequestBody {
    frames: RecvStream,
    trunk: Arc<ConnectionState>,
    window: Option<BodyWindow>,
}

impl RequestBody {
    /// The body of a stream.
    pub fn new(frames: RecvStream, trunk: Arc<ConnectionState>) -> RequestBody {
        RequestBody { frames, trunk, window: None }
    }

    /// Grows the connection's window for a body with this framing, where it is a proxy's.
    pub fn grow_window(&mut self, framing: Framing) {
        self.window = self.trunk.grow_window(framing);
    }

    /// The next bytes; none at the end. They extend the window.
    pub async fn next(&mut self) -> Option<Result<Bytes, h2::Error>> {
        let data = poll_fn(|cx| self.frames.poll_data(cx)).await;
        if let Some(Ok(bytes)) = &data {
            self.extend_window(bytes.len());
            self.trunk.accounts.noise.useful(bytes.len() as u64);
        }
        data
    }

    fn extend_window(&mut self, bytes: usize) {
        let _ = self.frames.flow_control().release_capacity(bytes);
    }

    /// Whether the client has sent all of it.
    pub fn is_over(&self) -> bool {
        self.frames.is_end_stream()
    }

    /// Drops what the client still sends, for a while.
    pub async fn discard(mut self) {
        let rest = async {
            while let Some(Ok(bytes)) = poll_fn(|cx| self.frames.poll_data(cx)).await {
                self.trunk.accounts.noise.useful(bytes.len() as u64);
                // A client sends no more than its window. A proxy's is for the bodies of others,
                // too.
                if self.trunk.accounts.is_of_proxy() {
                    self.extend_window(bytes.len());
                }
            }
        };
        let _ = timeout(LINGER, rest).await;
    }
}
