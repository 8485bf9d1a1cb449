//! The background refresh of a stale page, in a separate task: the client's connection is free for
//! the next request.

use std::borrow::Cow;
use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::sync::Arc;

use bytes::Bytes;
use maitred_fastcgi::ResponseEvent;
use maitred_http1::Head;

use crate::backend::Backend;
use crate::backend::attempt::attempt;
use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::backend::run::Run;
use crate::handler::cache::detached_client::DetachedClient;
use crate::handler::cache::fill::{Fill, PendingRefresh};
use crate::handler::cache::tee::CacheObserver;
use crate::handler::context::{RequestContext, RequestTarget};
use crate::handler::htaccess_response::Directives;
use crate::handler::script::{Caller, run_of};
use crate::http::body::Body;
use crate::http::client::Client;
use crate::http::spool;
use crate::runtime::thread::Paced;
use crate::services::Thread;
use crate::site::Site;
use crate::site::resolver::Script;

/// A run of a script whose response only the cache gets.
struct RefreshRun {
    left: PendingRefresh,
    thread: Arc<Thread>,
    caller: Caller,
    head: Head,
    script: Script,
    site: Arc<Site>,
    backend: Backend,
    path: String,
    query: Option<String>,
    host: String,
    target: RequestTarget<'static>,
    directives: Option<Arc<Directives>>,
    has_user: bool,
}

/// Refreshes a stale page that its client was served with.
pub fn refresh(
    fill: Box<Fill<'_>>,
    context: &RequestContext<'_>,
    script: &Script,
    thread: &Arc<Thread>,
    caller: Caller,
) {
    let head = match &fill.cookies {
        Some(cookies) => context.head.with_cookies(cookies),
        None => context.head.clone(),
    };
    let left = fill.into_pending();
    let backend = context.backend.to_string();
    let Some(running) = left.cache.refreshes.begin(&backend) else {
        thread.shared.troubles.not_refreshed(context.backend);
        return;
    };
    let run = RefreshRun {
        left,
        thread: thread.clone(),
        caller: caller.without_trace(),
        head,
        script: script.clone(),
        site: context.site.clone(),
        backend: context.backend.clone(),
        path: context.path.clone().into_owned(),
        query: context.query().map(str::to_owned),
        host: context.target.host.to_owned(),
        target: context.target.with_host(""),
        directives: context.directives.clone(),
        has_user: context.has_user,
    };
    tokio::spawn(Paced::new(async move {
        run.run().await;
        drop(running);
    }));
}

impl RefreshRun {
    async fn run(self) {
        let (Some(of), head) = (&self.site.cache, &self.head) else {
            return;
        };
        let context = RequestContext {
            path: self.path.into(),
            query: self.query.map(Cow::Owned),
            backend: &self.backend,
            max_body_size: 0,
            directives: self.directives.clone(),
            has_user: self.has_user,
            ..RequestContext::new(head, self.target.with_host(&self.host), &self.site)
        };
        let fill = Box::new(self.left.resume(of, &context));
        let body = Body::Memory(Bytes::new().into());
        // A request with too large headers has never stored the page.
        let Ok(request) = self.caller.encode(&context, &self.script, &body, Some(&fill)) else {
            return;
        };
        let name = String::from_utf8_lossy(&self.script.script_filename);
        let run = run_of(&context, &name, true, &body, &self.caller);
        let mut client = AbsentClient;
        let mut detached = DetachedClient::new(&mut client, Some(fill.wanted()), true);
        let mut encoder = UnsentEncoder {
            run: &run,
            context: &context,
            observer: CacheObserver::new(Some(fill)),
        };
        let number = self.thread.number;
        attempt(&mut detached, &mut encoder, number, &run, request).await;
        if let Some(fill) = &mut encoder.observer.fill {
            fill.settle().await;
        }
    }
}

/// A response that is not sent.
struct UnsentEncoder<'a> {
    run: &'a Run<'a>,
    context: &'a RequestContext<'a>,
    observer: CacheObserver<'a>,
}

impl ResponseEncoder for UnsentEncoder<'_> {
    type Head = Infallible;

    fn take(&mut self, said: ResponseEvent<'_>) -> Result<(), Failure> {
        let head = self.observer.observe(&said)?;
        if let ResponseEvent::Stderr(message) = said {
            self.run.log(message);
        }
        match head {
            Some(seen) if self.context.intercepts(seen.status) => {
                let failure = Failure::Intercepted(seen.status);
                self.observer.replaced(&failure);
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    async fn settle(&mut self) {
        self.observer.settle().await;
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        match self.observer.ended_early().filter(|_| over) {
            Some(why) => Err(Failure::invalid(why)),
            None => Ok(Vec::new()),
        }
    }

    fn head(&mut self) -> Option<Infallible> {
        None
    }

    fn needs_yield(&self) -> bool {
        false
    }

    fn record_duration(&mut self, time: std::time::Duration) {
        self.observer.record_duration(time);
    }

    fn has_begun(&self) -> bool {
        self.observer.has_head()
    }

    fn timed(&mut self, _value: String) {}
}

/// The client of a refresh: it accepts everything.
struct AbsentClient;

impl Client for AbsentClient {
    type Head = Infallible;

    async fn gone(&mut self) {
        pending().await
    }

    async fn gone_later(&mut self) {
        pending().await
    }

    fn begin(&mut self, head: Infallible) -> io::Result<()> {
        match head {}
    }

    fn try_send(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    async fn sendable(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn spool_bytes(&self) -> usize {
        spool::MEMORY_BYTES
    }
}
