//! Timeout for the header block of a request, like nginx's `client_header_timeout`: an incomplete
//! block is held in memory, and nothing else can arrive on its connection (RFC 9113 §4.3).

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Sleep;

use crate::server::http1::connection::HEAD;

/// The deadline of an incomplete header block. Most blocks arrive whole, and need no timer.
#[derive(Default)]
pub struct OpenFields {
    /// For the header block of this number.
    timer: Option<(u64, Pin<Box<Sleep>>)>,
}

impl OpenFields {
    /// Ready when the open header block has timed out.
    pub fn poll(&mut self, cx: &mut Context<'_>, open: Option<u64>) -> Poll<()> {
        let Some(open) = open else {
            self.timer = None;
            return Poll::Pending;
        };
        let timer = self.timer.take().filter(|timer| timer.0 == open);
        let timer = timer.unwrap_or_else(|| (open, Box::pin(tokio::time::sleep(HEAD))));
        self.timer.insert(timer).1.as_mut().poll(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::advance;

    use super::*;

    async fn is_over(fields: &mut OpenFields, open: Option<u64>) -> bool {
        std::future::poll_fn(|cx| Poll::Ready(fields.poll(cx, open).is_ready())).await
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn each_block_of_fields_has_its_own_time() {
        let mut fields = OpenFields::default();
        assert!(!is_over(&mut fields, None).await);
        let most = HEAD - Duration::from_secs(1);
        for number in [1, 3] {
            assert!(!is_over(&mut fields, Some(number)).await);
            advance(most).await;
            assert!(!is_over(&mut fields, Some(number)).await);
        }
        advance(Duration::from_secs(2)).await;
        assert!(is_over(&mut fields, Some(3)).await);
        assert!(!is_over(&mut fields, None).await);
        assert!(!is_over(&mut fields, Some(5)).await);
    }
}
