//! One generation of a pool, as the front sees it: the link to its workers.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use maitred_config::Pool as Settings;
use maitred_control::Generation as Number;
use maitred_seat::FrontEnd;

use crate::pool::metrics::Tally;
use crate::pool::worker_events::UsefulEvents;
use crate::runtime::supervisor_channel::read_json;

/// A pool from one reload to the next.
#[derive(Debug)]
pub struct Generation {
    /// Its number; no other generation of any pool has it.
    pub number: Number,
    /// What it was started with.
    pub settings: Arc<Settings>,
    /// Where its pool's requests are counted: the same place for all its generations.
    pub tally: Arc<Tally>,
    link: FrontEnd,
    /// One for each front thread: what its workers wake it with.
    events: Vec<OwnedFd>,
    /// Exchanges of each front thread that wait in the pool or are assignment.
    in_flight: Arc<[AtomicU32]>,
    /// What the pool's workers have told each front thread.
    useful_events: Arc<[UsefulEvents]>,
}

impl Generation {
    /// Takes the link of generation `number` over from the front before, if there was one.
    ///
    /// # Errors
    /// When the descriptors (settings, memory, an event for each of `threads` threads, scoreboard)
    /// are not those of a pool.
    pub fn open(
        number: Number,
        fds: Vec<OwnedFd>,
        epoch: u32,
        threads: usize,
    ) -> Result<Generation, String> {
        let mut fds = fds.into_iter();
        let settings = fds.next().ok_or("a pool came without its settings")?;
        let settings: Settings = read_json(settings)
            .map_err(|error| format!("the settings of a pool cannot be read: {error}"))?;
        let name = &settings.name;
        let memory = fds
            .next()
            .ok_or_else(|| format!("pool {name} came without its memory"))?;
        let scoreboard = fds
            .next_back()
            .ok_or_else(|| format!("pool {name} came without its scoreboard"))?;
        let tally = Tally::open(scoreboard, epoch)
            .map_err(|error| format!("the scoreboard of pool {name}: {error}"))?;
        let events: Vec<OwnedFd> = fds.collect();
        if events.len() != threads {
            let found = events.len();
            return Err(format!(
                "pool {name} came with {found} events, expected one for each of {threads} threads"
            ));
        }
        let threads = u32::try_from(threads).unwrap_or(u32::MAX);
        let link = FrontEnd::take_over(&memory, threads, epoch)
            .map_err(|error| format!("the seat link of pool {name}: {error}"))?;
        Ok(Generation {
            number,
            settings: Arc::new(settings),
            tally: Arc::new(tally),
            link,
            events,
            in_flight: Arc::new([]),
            useful_events: Arc::new([]),
        })
    }

    /// Counts interest and useful_events with the rest of its pool.
    #[must_use]
    pub(crate) fn counting_with(
        self,
        in_flight: Arc<[AtomicU32]>,
        useful_events: Arc<[UsefulEvents]>,
    ) -> Generation {
        Generation {
            in_flight,
            useful_events,
            ..self
        }
    }

    /// The seat link.
    pub fn link(&self) -> &FrontEnd {
        &self.link
    }

    /// What wakes front thread number `thread` when a worker has useful_events.
    pub fn event(&self, thread: u32) -> Option<&OwnedFd> {
        self.events.get(thread as usize)
    }

    /// Whether a front thread waits for anything from its pool.
    pub fn has_in_flight(&self, thread: u32) -> bool {
        let in_flight = self.in_flight.get(thread as usize);
        in_flight.is_some_and(|in_flight| in_flight.load(Ordering::Relaxed) > 0)
    }

    /// How often the pool's workers have had something to tell a front thread.
    pub fn useful_events(&self, thread: u32) -> u32 {
        self.useful_events
            .get(thread as usize)
            .map_or(0, UsefulEvents::count)
    }

    /// Most seats of the pool that may be open while this is its newest generation.
    pub fn max_open(&self) -> usize {
        let limit = self.settings.max_children.unwrap_or(self.link.seats());
        limit.min(self.link.seats()) as usize
    }

    /// The script that runs in a seat, by the word of its worker.
    pub fn script_in(&self, seat: u32) -> String {
        let script = self.link.seat_board(seat).script.get();
        String::from_utf8_lossy(&script).replace(char::is_control, "?")
    }
}
