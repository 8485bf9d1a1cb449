//! A pool whose workers are copies of a booted application.

use std::time::Duration;

use maitred_config::{Config, Mode, ProcessManager};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn pool(pm: ProcessManager, limit: u32) -> Pool {
    let config = Config::for_directory("/".as_ref(), Vec::new(), Some(limit)).unwrap();
    let configured = maitred_config::Pool {
        pm,
        mode: Mode::Snapshot,
        ..config.pools[0].clone()
    };
    let mut pool = Pool::new(limit + SPARE_SEATS, Growth::of(&configured, limit));
    assert!(pool.on(Event::Tick, SECOND).contains(&Action::StartZygote));
    pool
}

fn fills(actions: &[Action]) -> Vec<(Seat, Incarnation)> {
    let fills = actions.iter().filter_map(|action| match action {
        Action::Fill { seat, incarnation } => Some((*seat, *incarnation)),
        _ => None,
    });
    fills.collect()
}

#[test]
fn a_copy_in_its_zygotes_last_words_keeps_its_seat_and_the_others_are_ordered_again() {
    let mut pool = pool(ProcessManager::Static, 1);
    let ordered = pool.on(Event::ZygoteStarted, SECOND);
    assert_eq!(fills(&ordered), [(0, 1), (1, 1), (2, 1)]);
    let now = 10 * SECOND;
    let announced = Event::Announced {
        seat: 0,
        incarnation: 1,
        pid: 10,
    };
    assert_eq!(pool.on(announced, now), [Action::Look { pid: 10 }]);
    let opened = Action::Open {
        seat: 0,
        incarnation: 1,
        pid: 10,
    };
    assert_eq!(pool.on(Event::Adopted { pid: 10 }, now), [opened]);
    // It had lived for long: another is started at once.
    let ended = pool.on(Event::ZygoteEnded, now);
    assert_eq!(ended, [Action::StartZygote]);
    let ordered = pool.on(Event::ZygoteStarted, now);
    assert_eq!(fills(&ordered), [(1, 2), (2, 2)]);
}

#[test]
fn where_memory_is_short_the_copies_that_would_wait_are_the_first_not_to_be_made() {
    for (room, copies) in [(u32::MAX, 6), (4, 6), (3, 3), (1, 1)] {
        let mut pool = pool(ProcessManager::Auto, 4);
        pool.give_room(room);
        pool.on(Event::Wanted { workers: 4 }, SECOND);
        let ordered = pool.on(Event::ZygoteStarted, SECOND);
        assert_eq!(fills(&ordered).len(), copies, "with room for {room}");
    }
}
