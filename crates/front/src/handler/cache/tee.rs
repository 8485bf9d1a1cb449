//! A tee for a script's response: to the client, and to the cache.

use std::sync::Arc;
use std::time::Duration;

use maitred_fastcgi::ResponseEvent;
use maitred_fastcgi::cgi::HeadReader;
use maitred_pagecache::cookies;

use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::cache::{Cache, SiteCache};
use crate::handler::cache::fill::Fill;
use crate::handler::context::RequestContext;
use crate::handler::script_response::HttpEncoder;
use crate::http::client::HeadWriter;
use crate::services::Thread;

/// The exit status of a script after a fatal error: its response may be incomplete.
const FATAL: u32 = 255;

/// The cache's side of a response.
pub struct CacheObserver<'a> {
    /// The response in the cache, if the site has one.
    pub fill: Option<Box<Fill<'a>>>,
    /// Reads the response header, if the site has a cache.
    head_reader: Option<Box<HeadReader>>,
    has_head: bool,
}

/// A complete response header.
pub struct SeenHead {
    /// The status.
    pub status: u16,
    /// The value of the `Cache-Status` header.
    pub cache_status: String,
}

impl<'a> CacheObserver<'a> {
    /// An empty response.
    pub fn new(fill: Option<Box<Fill<'a>>>) -> CacheObserver<'a> {
        CacheObserver { head_reader: fill.as_ref().map(|_| Box::default()), fill, has_head: false }
    }

    /// Processes output of the script. Returns the header once it is complete.
    ///
    /// # Errors
    /// When the client gets the cached page in place of the response.
    pub fn observe(&mut self, said: &ResponseEvent<'_>) -> Result<Option<SeenHead>, Failure> {
        let (Some(fill), Some(head_reader)) = (&mut self.fill, &mut self.head_reader) else {
            return Ok(None);
        };
        match said {
            ResponseEvent::Stdout(content) if self.has_head => fill.take_body(content),
            ResponseEvent::Stdout(content) => {
                // The encoder reports an invalid header.
                if let Ok(Some((head, used))) = head_reader.read(content) {
                    self.has_head = true;
                    let cache_status = fill.take_head(&head)?;
                    fill.take_body(&content[used..]);
                    let status = head.status();
                    return Ok(Some(SeenHead { status, cache_status }));
                }
            }
            ResponseEvent::End { app_status, .. } if *app_status == FATAL => fill.cut_short(),
            ResponseEvent::End { .. } => fill.end(),
            _ => {}
        }
        Ok(None)
    }

    /// Records that another response replaces this one.
    pub fn replaced(&mut self, failure: &Failure) {
        if let (Failure::Intercepted(status), Some(fill)) = (failure, &mut self.fill) {
            fill.replaced(*status);
        }
    }

    /// Waits until all effects of the response on the cache are complete.
    pub async fn settle(&mut self) {
        if let Some(fill) = &mut self.fill {
            fill.settle().await;
        }
    }

    /// Records the run time of the script.
    pub fn record_duration(&mut self, time: Duration) {
        if let Some(fill) = &mut self.fill {
            fill.record_duration(time);
        }
    }

    /// Whether the header is complete.
    pub fn has_head(&self) -> bool {
        self.has_head
    }

    /// The reason why the response is invalid if it ends now. None if its header is complete.
    pub fn ended_early(&self) -> Option<String> {
        let why = |reader: &HeadReader| reader.ended_early().to_string();
        let head_reader = self.head_reader.as_deref().filter(|_| !self.has_head);
        head_reader.map(why)
    }
}

/// Learns the cookies that the script of an error page sets, whose response is never stored.
pub struct CookieLearner<'a> {
    cache: Arc<Cache>,
    of: &'a SiteCache,
}

impl<'a> CookieLearner<'a> {
    /// The learner for a request; none where it has a [`Fill`], or its site has no cache.
    pub fn of(thread: &Thread, context: &RequestContext<'a>) -> Option<CookieLearner<'a>> {
        context.error_page?;
        let cache = thread.shared.cache.clone()?;
        let of = context.site.cache.as_ref()?;
        Some(CookieLearner { cache, of })
    }
}

/// A response for the client, and for the cache if the site has one.
pub struct Tee<'a, W: HeadWriter> {
    /// The client's side.
    encoder: HttpEncoder<'a, W>,
    observer: CacheObserver<'a>,
    /// None once it has learned.
    learner: Option<CookieLearner<'a>>,
}

impl<'a, W: HeadWriter> Tee<'a, W> {
    /// An empty response.
    pub fn new(
        encoder: HttpEncoder<'a, W>,
        fill: Option<Box<Fill<'a>>>,
        learner: Option<CookieLearner<'a>>,
    ) -> Tee<'a, W> {
        let observer = CacheObserver::new(fill);
        Tee { encoder, observer, learner }
    }

    /// The client's side.
    pub fn encoder(&self) -> &HttpEncoder<'a, W> {
        &self.encoder
    }

    /// The cache's side, if the site has a cache.
    pub fn fill(&self) -> Option<&Fill<'a>> {
        self.observer.fill.as_deref()
    }

    /// Both sides.
    pub fn into_parts(self) -> (HttpEncoder<'a, W>, Option<Box<Fill<'a>>>) {
        (self.encoder, self.observer.fill)
    }
}

impl<W: HeadWriter> ResponseEncoder for Tee<'_, W> {
    type Head = W::Head;

    fn take(&mut self, said: ResponseEvent<'_>) -> Result<(), Failure> {
        if let Some(seen) = self.observer.observe(&said)? {
            self.encoder.cache_status = Some(seen.cache_status);
        }
        let taken = self.encoder.take(said);
        if let Some(head) = self.encoder.script_head()
            && let Some(CookieLearner { cache, of }) = self.learner.take()
        {
            cache.learn(of, cookies::set_by(head.headers()));
        }
        if let Err(failure) = &taken {
            self.observer.replaced(failure);
        }
        taken
    }

    async fn settle(&mut self) {
        self.observer.settle().await;
        self.encoder.settle().await;
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        // Until the header is sent, `Cache-Status` can be corrected.
        if !self.encoder.has_begun()
            && let Some(told) = self.fill().and_then(Fill::correction)
        {
            self.encoder.cache_status = Some(told);
        }
        self.encoder.frame(over)
    }

    fn head(&mut self) -> Option<W::Head> {
        self.encoder.head()
    }

    fn needs_yield(&self) -> bool {
        self.encoder.needs_yield()
    }

    fn has_begun(&self) -> bool {
        self.encoder.has_begun()
    }

    fn record_duration(&mut self, time: Duration) {
        self.observer.record_duration(time);
    }

    fn timed(&mut self, value: String) {
        self.encoder.timed(value);
    }
}
