//! A page that is made again after the request that found it stale has been answered: in a task of its
//! own, so that the client's connection is free for what it asks next.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use maitred_fastcgi::AnswerEvent;
use maitred_http1::Head;

use crate::backend::Backend;
use crate::backend::attempt::attempt;
use crate::backend::encoder::ResponseEncoder;
use crate::backend::error::Failure;
use crate::backend::run::Run;
use crate::cache::Cache;
use crate::handler::cache::detached_client::DetachedClient;
use crate::handler::cache::fill::{Fill, Left};
use crate::handler::cache::tee::Watch;
use crate::handler::context::{Origin, RequestContext};
use crate::handler::rules;
use crate::handler::script::{Caller, run_of};
use crate::http::body::Body;
use crate::http::client::Client;
use crate::http::spool;
use crate::pool::queue::Priority;
use crate::runtime::thread::Paced;
use crate::services::Thread;
use crate::site::Site;
use crate::site::resolver::Script;

/// Most pages that are made again at a time for nobody who waits. Those beyond stay stale until somebody
/// asks again.
const MAX_REFRESHES: usize = 1024;

/// What a script is asked with when its client has gone on to other things.
struct Errand {
    left: Left,
    thread: Arc<Thread>,
    caller: Caller,
    head: Head,
    script: Script,
    site: Arc<Site>,
    backend: Backend,
    has_rules: bool,
    path: String,
    query: Option<String>,
    origin: Option<(SocketAddr, Option<bool>, bool, String)>,
    is_https: bool,
}

/// Has a page made again that a client has just been answered with.
pub fn refresh(
    fill: Box<Fill<'_>>,
    (head, way, script): (&Head, &RequestContext<'_>, &Script),
    (thread, caller): (&Arc<Thread>, Caller),
) {
    let head = match &fill.cookies {
        Some(cookies) => head.with_cookies(cookies),
        None => head.clone(),
    };
    let left = fill.leave();
    let Some(counted) = RunningRefresh::one_of(&left.cache) else {
        return;
    };
    let errand = Errand {
        left,
        thread: thread.clone(),
        caller,
        head,
        script: script.clone(),
        site: way.site.clone(),
        backend: way.backend.clone(),
        has_rules: way.rules.is_some(),
        path: way.path.to_owned(),
        query: way.query.map(str::to_owned),
        origin: way.origin.map(|origin| {
            let host = origin.host.to_owned();
            (origin.client, origin.is_https, origin.by_forwarded, host)
        }),
        is_https: way.is_https,
    };
    tokio::spawn(Paced::new(async move {
        errand.run().await;
        drop(counted);
    }));
}

/// One of the pages that are made again at the moment.
struct RunningRefresh(Arc<Cache>);

impl RunningRefresh {
    fn one_of(cache: &Arc<Cache>) -> Option<RunningRefresh> {
        let before = cache.refreshes.fetch_add(1, Ordering::Relaxed);
        let counted = RunningRefresh(cache.clone());
        (before < MAX_REFRESHES).then_some(counted)
    }
}

impl Drop for RunningRefresh {
    fn drop(&mut self) {
        self.0.refreshes.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Errand {
    async fn run(self) {
        let origin = self.origin.as_ref();
        let origin = origin.map(|(client, is_https, by_forwarded, host)| Origin {
            client: *client,
            is_https: *is_https,
            by_forwarded: *by_forwarded,
            host,
        });
        let way = RequestContext {
            site: &self.site,
            rules: self.site.rules.as_ref().filter(|_| self.has_rules),
            path: &self.path,
            query: self.query.as_deref(),
            backend: &self.backend,
            // Nobody waits for it.
            priority: Priority::Normal,
            max_body_size: 0,
            header_policy: rules::PLAIN,
            origin,
            is_https: self.is_https,
            has_user: false,
            status: None,
        };
        let (Some(of), head) = (&self.site.cache, &self.head) else {
            return;
        };
        let fill = Box::new(self.left.resume(of, (head, &way)));
        let body = Body::Memory(Bytes::new().into());
        let asked = (head, &way, &self.script);
        // One whose fields are too large has never made the page.
        let Ok(request) = self.caller.encode(asked, &body, Some(&fill)) else {
            return;
        };
        let name = String::from_utf8_lossy(&self.script.script_filename);
        let run = run_of((head, &way, &name), true, &body, &self.caller.id);
        let mut nobody = Nobody;
        let mut steadfast = DetachedClient::new(&mut nobody, Some(fill.wanted()), true);
        let mut unsent = Unsent {
            run: &run,
            way: &way,
            watch: Watch::new(Some(fill)),
        };
        let number = self.thread.number;
        attempt(&mut steadfast, &mut unsent, number, &run, request).await;
        if let Some(fill) = &mut unsent.watch.fill {
            fill.settle().await;
        }
    }
}

/// An answer that nobody is sent.
struct Unsent<'a> {
    run: &'a Run<'a>,
    way: &'a RequestContext<'a>,
    watch: Watch<'a>,
}

impl ResponseEncoder for Unsent<'_> {
    type Head = Infallible;

    fn take(&mut self, said: AnswerEvent<'_>) -> Result<(), Failure> {
        let head = self.watch.look_at(&said)?;
        if let AnswerEvent::Stderr(message) = said {
            self.run.log(message);
        }
        match head {
            Some(seen) if self.way.intercepts(seen.status) => {
                let failure = Failure::Intercepted(seen.status);
                self.watch.replaced(&failure);
                Err(failure)
            }
            _ => Ok(()),
        }
    }

    async fn settle(&mut self) {
        self.watch.settle().await;
    }

    fn frame(&mut self, over: bool) -> Result<Vec<u8>, Failure> {
        match self.watch.ended_early().filter(|_| over) {
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
        self.watch.took(time);
    }

    fn has_begun(&self) -> bool {
        self.watch.has_head()
    }

    fn timed(&mut self, _value: String) {}
}

/// A client that is not there, and takes everything.
struct Nobody;

impl Client for Nobody {
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
