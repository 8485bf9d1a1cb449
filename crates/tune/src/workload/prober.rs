//! Requests single pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use maitred_measure::plan::Endpoint;
use maitred_measure::url::Url;
use maitred_warm::client::PageClient;
use tokio::runtime::Runtime;

use super::MOST_BYTES;

/// How often to check whether the user has stopped it.
const LOOK: Duration = Duration::from_millis(100);

/// The error after a stop.
pub(super) const STOPPED: &str = "it was stopped";

/// Requests single pages.
pub struct Prober {
    runtime: Runtime,
    client: PageClient,
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// Sends these headers with each request, until `stop` is set.
    ///
    /// # Errors
    /// A message.
    pub fn new(headers: &[String], stop: Arc<AtomicBool>) -> Result<Prober, String> {
        let mut map = HeaderMap::new();
        for text in headers {
            let (name, value) = maitred_warm::client::header(text)?;
            map.append(name, value);
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Ok(Prober {
            runtime: runtime.map_err(|why| format!("no request can be sent: {why}"))?,
            client: PageClient::new(map),
            until: None,
            stop,
        })
    }

    /// Sets the deadline of later requests.
    pub fn until(&mut self, moment: Option<Instant>) {
        self.until = moment;
    }

    /// Whether the deadline has passed.
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether the user has stopped it.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A page's status and body, and how long it took in seconds.
    ///
    /// # Errors
    /// A message, when there is no response, and after a stop.
    pub fn get(&mut self, endpoint: &Endpoint, url: &Url) -> Result<(u16, Vec<u8>, f64), String> {
        let began = Instant::now();
        let until = self.until;
        let received = self.client.get(endpoint, url, MOST_BYTES);
        let in_time = async {
            match until {
                Some(until) => tokio::time::timeout_at(until.into(), received)
                    .await
                    .map_err(|_| "it takes longer than the time allows; give more with --time")?,
                None => received.await,
            }
        };
        let response = self.runtime.block_on(async {
            tokio::select! {
                biased;
                response = in_time => response,
                () = stopped(&self.stop) => Err(STOPPED.to_owned()),
            }
        })?;
        Ok((response.status, response.body.to_vec(), began.elapsed().as_secs_f64()))
    }

    /// As [`Prober::ask`] with a time limit and another stop flag.
    ///
    /// # Errors
    /// The same, and when it takes longer than the limit.
    pub fn get_within(
        &mut self,
        endpoint: &Endpoint,
        url: &Url,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<(u16, f64), String> {
        let began = Instant::now();
        let received = self.client.get(endpoint, url, 0);
        let response = self.runtime.block_on(async {
            tokio::select! {
                biased;
                response = tokio::time::timeout(limit, received) => {
                    response.map_err(|_| "it takes too long".to_owned())?
                }
                () = stopped(stop) => Err(STOPPED.to_owned()),
            }
        })?;
        Ok((response.status, began.elapsed().as_secs_f64()))
    }
}

/// Returns when the flag is set.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}
