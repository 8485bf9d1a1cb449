//! One generation of a pool in the front: the link to its workers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use maitred_config::Pool as Settings;
use maitred_control::Generation as Number;
use maitred_scoreboard::ApplicationMemory;
use maitred_seat::FrontEnd;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::pool::memory_return::MemoryReturn;
use crate::pool::metrics::PoolMetrics;
use crate::pool::worker_events::UsefulEvents;
use crate::runtime::supervisor_channel::read_json;

/// A pool from one reload to the next.
#[derive(Debug)]
pub struct Generation {
    /// Its number; no other generation of any pool has it.
    pub number: Number,
    /// Its settings.
    pub settings: Arc<Settings>,
    /// The pool's metrics, which all its generations share.
    pub metrics: Arc<PoolMetrics>,
    link: FrontEnd,
    /// One eventfd for each front thread, through which workers wake it.
    events: Vec<OwnedFd>,
    /// Number of waiting or assigned exchanges of each front thread.
    in_flight: Arc<[AtomicU32]>,
    /// Number of useful events for each front thread.
    useful_events: Arc<[UsefulEvents]>,
    seats_turn: Arc<Mutex<MemoryReturn>>,
}

impl Generation {
    /// Takes over the link of generation `number`, perhaps from an earlier front.
    ///
    /// # Errors
    /// When the descriptors (settings, memory, an event for each of `threads` threads,
    /// scoreboard, memory of the application) are not those of a pool.
    pub fn open(
        number: Number,
        fds: Vec<OwnedFd>,
        epoch: u32,
        threads: usize,
    ) -> Result<Generation, String> {
        let mut fds = fds.into_iter();
        let settings = fds.next().ok_or("a pool arrived without its settings")?;
        let settings: Settings = read_json(settings)
            .map_err(|error| format!("the settings of a pool cannot be read: {error}"))?;
        let name = &settings.name;
        let memory = fds.next().ok_or_else(|| format!("pool {name} arrived without its memory"))?;
        let events: Vec<OwnedFd> = fds.by_ref().take(threads).collect();
        let scoreboard =
            fds.next().ok_or_else(|| format!("pool {name} arrived without its scoreboard"))?;
        let metrics = PoolMetrics::open(scoreboard, epoch)
            .map_err(|error| format!("the scoreboard of pool {name}: {error}"))?;
        // Without it, the application's counters are not seen; the pool serves.
        let application = fds.next().and_then(|file| ApplicationMemory::open(file).ok());
        metrics.application.store(application.map(Arc::new));
        if events.len() != threads {
            let found = events.len();
            return Err(format!(
                "pool {name} arrived with {found} events, expected one for each of {threads} \
                 threads"
            ));
        }
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let link = FrontEnd::take_over(&memory, threads, epoch)
            .map_err(|error| format!("the seat link of pool {name}: {error}"))?;
        Ok(Generation {
            number,
            settings: Arc::new(settings),
            metrics: Arc::new(metrics),
            link,
            events,
            in_flight: Arc::new([]),
            useful_events: Arc::new([]),
            seats_turn: Arc::default(),
        })
    }

    /// Shares the pool's counters.
    #[must_use]
    pub(crate) fn counting_with(
        self,
        in_flight: Arc<[AtomicU32]>,
        useful_events: Arc<[UsefulEvents]>,
    ) -> Generation {
        Generation { in_flight, useful_events, ..self }
    }

    /// Waits until no seat is opened, and the memory of none is given back.
    pub async fn seats_turn(&self) -> OwnedMutexGuard<MemoryReturn> {
        self.seats_turn.clone().lock_owned().await
    }

    /// The seat link.
    pub fn link(&self) -> &FrontEnd {
        &self.link
    }

    /// The eventfd through which workers wake front thread number `thread`.
    pub fn event(&self, thread: u32) -> Option<&OwnedFd> {
        self.events.get(thread as usize)
    }

    /// Whether a front thread has requests in flight in the pool.
    pub fn has_in_flight(&self, thread: u32) -> bool {
        let in_flight = self.in_flight.get(thread as usize);
        in_flight.is_some_and(|in_flight| in_flight.load(Ordering::Relaxed) > 0)
    }

    /// Number of worker events for a front thread that were not empty.
    pub fn useful_events(&self, thread: u32) -> u32 {
        self.useful_events.get(thread as usize).map_or(0, UsefulEvents::count)
    }

    /// Limit of the pool's open seats while this is its newest generation.
    pub fn max_open(&self) -> usize {
        let limit = self.settings.max_children.unwrap_or(self.link.seats());
        limit.min(self.link.seats()) as usize
    }

    /// The script that runs in a seat, as its worker's board reports it.
    pub fn script_in(&self, seat: u32) -> String {
        let script = self.link.seat_board(seat).script.get();
        String::from_utf8_lossy(&script).replace(char::is_control, "?")
    }
}
