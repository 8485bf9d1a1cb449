//! Who asks for single pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use http::HeaderMap;
use maitred_measure::plan::Endpoint;
use maitred_measure::url::Url;
use maitred_warm::client::PageClient;
use tokio::runtime::Runtime;

use super::MOST_BYTES;

/// How often it is looked whether somebody has said to stop.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no answer then.
pub(super) const STOPPED: &str = "it was stopped";

/// Who asks for single pages.
pub struct Prober {
    runtime: Runtime,
    asker: PageClient,
    until: Option<Instant>,
    stop: Arc<AtomicBool>,
}

impl Prober {
    /// With these fields in each request, as long as nobody has said to stop.
    ///
    /// # Errors
    /// One sentence.
    pub fn new(headers: &[String], stop: Arc<AtomicBool>) -> Result<Prober, String> {
        let mut map = HeaderMap::new();
        for text in headers {
            let (name, value) = maitred_warm::client::header(text)?;
            map.append(name, value);
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        Ok(Prober {
            runtime: runtime.map_err(|why| format!("nothing can be asked: {why}"))?,
            asker: PageClient::new(map),
            until: None,
            stop,
        })
    }

    /// What is asked for from now on has to be answered by then.
    pub fn until(&mut self, moment: Option<Instant>) {
        self.until = moment;
    }

    /// Whether that has passed.
    pub fn is_late(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// Whether somebody has said to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// A page's status and body, and how long it took in seconds.
    ///
    /// # Errors
    /// One sentence, when there is no answer, and when it was stopped.
    pub fn ask(&mut self, endpoint: &Endpoint, url: &Url) -> Result<(u16, Vec<u8>, f64), String> {
        let began = Instant::now();
        let until = self.until;
        let asked = self.asker.ask(endpoint, url, MOST_BYTES);
        let in_time = async {
            match until {
                Some(until) => tokio::time::timeout_at(until.into(), asked)
                    .await
                    .map_err(|_| "it takes longer than there is time for; give more with --time")?,
                None => asked.await,
            }
        };
        let answer = self.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = in_time => answer,
                () = stopped(&self.stop) => Err(STOPPED.to_owned()),
            }
        })?;
        Ok((
            answer.status,
            answer.body.to_vec(),
            began.elapsed().as_secs_f64(),
        ))
    }

    /// As [`Prober::ask`], no longer than so, and no longer than until somebody says to stop.
    ///
    /// # Errors
    /// The same, when it takes longer, and when it was stopped.
    pub fn ask_within(
        &mut self,
        endpoint: &Endpoint,
        url: &Url,
        limit: Duration,
        stop: &AtomicBool,
    ) -> Result<(u16, f64), String> {
        let began = Instant::now();
        let asked = self.asker.ask(endpoint, url, 0);
        let answer = self.runtime.block_on(async {
            tokio::select! {
                biased;
                answer = tokio::time::timeout(limit, asked) => {
                    answer.map_err(|_| "it takes too long".to_owned())?
                }
                () = stopped(stop) => Err(STOPPED.to_owned()),
            }
        })?;
        Ok((answer.status, began.elapsed().as_secs_f64()))
    }
}

/// Comes to its end when somebody says to stop.
async fn stopped(stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        tokio::time::sleep(LOOK).await;
    }
}
