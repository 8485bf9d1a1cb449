//! Lookups of upstream servers' names. Each holds a thread until the name servers reply or the
//! resolver gives up, after 10 s or more: a name has one lookup at a time, which all requests for
//! it share, and the names of all servers hold a limited number of threads.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, watch};

/// Most lookups at a time; further ones wait. Other work that blocks shares the threads.
const LOOKUPS_MAX: usize = 32;

/// The addresses of a name, or the resolver's error.
type LookedUp = Result<Arc<[SocketAddr]>, String>;

/// The lookups of names and ports that are under way, and where their results appear.
type RunningLookups = HashMap<(String, u16), watch::Receiver<Option<LookedUp>>>;

/// All lookups of this process.
static LOOKUPS: LazyLock<Lookups> = LazyLock::new(Lookups::default);

/// The lookups under way.
#[derive(Debug)]
struct Lookups {
    running: Mutex<RunningLookups>,
    permits: Semaphore,
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups { running: Mutex::default(), permits: Semaphore::new(LOOKUPS_MAX) }
    }
}

/// The addresses of a host, which may be written as an address.
///
/// # Errors
/// The resolver's error.
pub async fn addresses(host: &str, port: u16) -> io::Result<Arc<[SocketAddr]>> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return Ok(Arc::new([SocketAddr::new(address, port)]));
    }
    let name = (host.to_owned(), port);
    let found = LOOKUPS.share(&name, |name| async move {
        let found = tokio::net::lookup_host(name).await.map_err(|error| error.to_string())?;
        Ok(found.collect())
    });
    found.await.map_err(io::Error::other)
}

impl Lookups {
    /// The result of the lookup of a name that is under way, or else of a new one.
    async fn share<F>(
        &'static self,
        name: &(String, u16),
        look_up: impl FnOnce((String, u16)) -> F,
    ) -> LookedUp
    where
        F: Future<Output = LookedUp> + Send + 'static,
    {
        let mut result = {
            let mut running = self.running();
            let under_way = running.get(name).filter(|result| result.has_changed().is_ok());
            under_way.cloned().unwrap_or_else(|| {
                let (sender, result) = watch::channel(None);
                running.insert(name.clone(), result.clone());
                tokio::spawn(self.run(name.clone(), look_up(name.clone()), sender));
                result
            })
        };
        let found = result.wait_for(Option::is_some).await.ok().and_then(|found| found.clone());
        // The thread of the lookup has ended, with the front.
        found.unwrap_or_else(|| Err("the lookup of its name was given up".to_owned()))
    }

    async fn run(
        &'static self,
        name: (String, u16),
        look_up: impl Future<Output = LookedUp>,
        sender: watch::Sender<Option<LookedUp>>,
    ) {
        let permit = self.permits.acquire().await;
        let found = look_up.await;
        drop(permit);
        self.running().remove(&name);
        sender.send_replace(Some(found));
    }

    fn running(&self) -> MutexGuard<'_, RunningLookups> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::sync::Notify;

    fn lookups() -> &'static Lookups {
        Box::leak(Box::default())
    }

    fn name(host: &str) -> (String, u16) {
        (host.to_owned(), 80)
    }

    async fn local() -> LookedUp {
        Ok(Arc::new([SocketAddr::from(([127, 0, 0, 1], 80))]))
    }

    #[tokio::test]
    async fn requests_for_a_name_share_one_lookup_and_no_other_name_waits_for_it() {
        let (lookups, started) = (lookups(), Arc::new(AtomicUsize::new(0)));
        let replied = Arc::new(Notify::new());
        let requests: Vec<_> = (0..1_000)
            .map(|_| {
                let (started, replied) = (Arc::clone(&started), Arc::clone(&replied));
                tokio::spawn(async move {
                    let look_up = |_| async move {
                        started.fetch_add(1, Ordering::SeqCst);
                        replied.notified().await;
                        local().await
                    };
                    lookups.share(&name("silent.test"), look_up).await
                })
            })
            .collect();
        let other = lookups.share(&name("other.test"), |_| local()).await;
        assert_eq!(other, local().await);
        replied.notify_one();
        for request in requests {
            assert_eq!(request.await.expect("no lookup panics"), local().await);
        }
        assert_eq!(started.load(Ordering::SeqCst), 1);
        assert!(lookups.running().is_empty());
    }

    #[tokio::test]
    async fn a_later_request_looks_the_name_up_again() {
        let (lookups, name) = (lookups(), name("moved.test"));
        let failed: LookedUp = Err("no such name".to_owned());
        let error = failed.clone();
        assert_eq!(lookups.share(&name, |_| async { error }).await, failed);
        assert_eq!(lookups.share(&name, |_| local()).await, local().await);
    }

    #[tokio::test]
    async fn an_address_is_not_looked_up() {
        let found = addresses("::1", 8080).await.expect("an address");
        assert_eq!(found[..], ["[::1]:8080".parse().expect("an address")]);
    }
}
