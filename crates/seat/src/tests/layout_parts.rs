//! The parts of a pool's file: none overlaps another, none is outside, and nothing is wasted.

use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};

use maitred_os::shared::create_sealed;

use crate::layout::{Layout, MAX_SEATS};
use crate::ring::Ring;
use crate::*;

const SEATS: u32 = 3;
const PAGE: usize = 4096;

fn size(file: &OwnedFd) -> usize {
    usize::try_from(rustix::fs::fstat(file).unwrap().st_size).unwrap()
}

fn place<T>(value: &T) -> Range<usize> {
    let start = std::ptr::from_ref(value) as usize;
    start..start + size_of::<T>()
}

fn rings(layout: &Layout, seat: u32) -> Vec<Ring<'_>> {
    let slots = 0..SLOTS_PER_SEAT;
    let pairs =
        slots.flat_map(|slot| [layout.request_ring(seat, slot), layout.response_ring(seat, slot)]);
    pairs.chain([layout.call_buffer(seat)]).collect()
}

/// Where all parts of a seat are.
fn seat_places(layout: &Layout, seat: u32) -> Vec<Range<usize>> {
    let slots = (0..SLOTS_PER_SEAT).map(|slot| place(layout.slot(seat, slot)));
    let words = [place(layout.worker_sleep(seat)), place(layout.seat_board(seat))];
    let rings = rings(layout, seat).into_iter().map(Ring::place);
    slots.chain(words).chain(rings).collect()
}

#[test]
fn no_part_of_a_pool_overlaps_another() {
    let file = create("layout", SEATS, MAX_THREADS).unwrap();
    let layout = Layout::map(&file, MAX_THREADS).unwrap();
    let threads = (0..MAX_THREADS).map(|thread| place(layout.front_sleep(thread)));
    let seats = (0..SEATS).flat_map(|seat| seat_places(&layout, seat));
    let mut all: Vec<_> = threads.chain(seats).chain([place(layout.pool_board())]).collect();
    all.sort_by_key(|place| place.start);
    for pair in all.windows(2) {
        assert!(pair[0].end <= pair[1].start, "{pair:x?}");
    }
    let (first, last) = (all.first().unwrap(), all.last().unwrap());
    assert!(last.end - first.start <= size(&file));
    // The epoch is in the file's first page, which has nothing else.
    let start = last.end - size(&file);
    assert!(start.is_multiple_of(PAGE) && first.start >= start + PAGE, "{first:x?} from {start:x}");
}

#[test]
fn a_pool_has_pages_for_its_words_and_the_bytes_of_its_rings_and_no_more() {
    let bytes = |seats| size(&create("layout", seats, 1).unwrap());
    let file = create("layout", 1, 1).unwrap();
    let layout = Layout::map(&file, 1).unwrap();
    let rings: usize = rings(&layout, 0).into_iter().map(Ring::capacity).sum();
    let pages_of_words = 2 + SLOTS_PER_SEAT;
    let seat = rings + pages_of_words * PAGE;
    assert_eq!(bytes(2) - bytes(1), seat);
    assert_eq!(bytes(1), 3 * PAGE + seat);
    // What a request, a response and a worker call may be, as documented.
    let capacities = [layout.request_ring(0, 0), layout.response_ring(0, 0), layout.call_buffer(0)];
    assert_eq!(capacities.map(Ring::capacity), [128 * 1024, 128 * 1024, 16 * 1024]);
}

#[test]
fn a_pool_has_from_one_to_the_most_seats_and_threads() {
    for (seats, threads) in [(0, 1), (1, 0), (MAX_SEATS + 1, 1), (1, MAX_THREADS + 1)] {
        assert!(create("layout", seats, threads).is_err(), "{seats}, {threads}");
    }
    // The memory is used page by page: a large file is not large yet.
    for (seats, threads) in [(1, 1), (MAX_SEATS, 1), (1, MAX_THREADS)] {
        let file = create("layout", seats, threads).unwrap();
        let layout = Layout::map(&file, threads).unwrap();
        assert_eq!((layout.seats(), layout.threads()), (seats, threads));
    }
}

#[test]
fn a_file_of_another_size_is_no_pools() {
    let two = size(&create("layout", 2, 1).unwrap());
    let one = size(&create("layout", 1, 1).unwrap());
    for bytes in [0, PAGE, two - one, one - PAGE, one + PAGE, two - PAGE] {
        let file = create_sealed("layout", bytes);
        let mapped = file.and_then(|file| Layout::map(file.as_fd(), 1).map(|_| ()));
        assert!(mapped.is_err(), "{bytes} bytes");
    }
    let file = create("layout", 1, 1).unwrap();
    for threads in [0, MAX_THREADS + 1] {
        assert!(Layout::map(&file, threads).is_err(), "{threads} threads");
    }
    let too_many = create_sealed("layout", one + (two - one) * MAX_SEATS as usize).unwrap();
    assert!(Layout::map(&too_many, 1).is_err());
}

#[test]
fn the_epoch_is_that_of_the_last_front_that_has_set_it() {
    let file = create("layout", 1, 1).unwrap();
    let layout = Layout::map(&file, 1).unwrap();
    assert_eq!(layout.epoch(), 0);
    for epoch in [1, 7] {
        layout.set_epoch(epoch);
        assert_eq!(Layout::map(&file, 1).unwrap().epoch(), epoch);
    }
}

#[test]
fn discarded_slots_are_free_and_empty_and_no_other_seat_loses_anything() {
    let file = create("layout", SEATS, 1).unwrap();
    let layout = Layout::map(&file, 1).unwrap();
    let fill = |seat| rings(&layout, seat).into_iter().for_each(|ring| ring.put(0, b"written"));
    let written = |seat| {
        let texts = rings(&layout, seat).into_iter().map(|ring| {
            let mut text = Vec::new();
            ring.take(0, 7, &mut text);
            text
        });
        texts.collect::<Vec<_>>()
    };
    (0..SEATS).for_each(fill);
    layout.discard_slots(1).unwrap();
    assert!(written(1).iter().all(|text| text == &[0; 7]));
    for seat in [0, 2] {
        assert!(written(seat).iter().all(|text| text == b"written"), "seat {seat}");
    }
}

#[test]
#[should_panic = "a thread of this front"]
fn a_thread_that_the_front_does_not_have_has_no_sleep_word() {
    let file = create("layout", 1, 2).unwrap();
    Layout::map(&file, 2).unwrap().front_sleep(2);
}

#[test]
#[should_panic = "a seat of this pool"]
fn a_seat_that_the_pool_does_not_have_has_no_board() {
    let file = create("layout", 2, 1).unwrap();
    Layout::map(&file, 1).unwrap().seat_board(2);
}

#[test]
#[should_panic = "a slot of this seat"]
fn a_slot_that_the_seat_does_not_have_has_no_words() {
    let file = create("layout", 1, 1).unwrap();
    Layout::map(&file, 1).unwrap().slot(0, SLOTS_PER_SEAT);
}
