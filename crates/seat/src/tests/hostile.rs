//! A worker that writes whatever it likes into the memory it shares with the front.

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use proptest::prelude::*;

use crate::layout::Layout;
use crate::*;

/// What the front does, in any order.
#[derive(Debug, Clone)]
enum Act {
    Feed(usize),
    Drain(usize),
    Progress,
    Room,
    TakeBack,
    Leave,
    Release,
    Adopt,
    Sleep,
}

/// What the worker writes, between any two of them.
#[derive(Debug, Clone)]
enum Harm {
    CgiHeaders(u32),
    RequestTail(u32),
    /// A word of the slot's first page, at this index: state, the front's words, its own.
    Word(usize, u32),
    Header(usize, u32),
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        (0..300_000usize).prop_map(Act::Feed),
        (0..300_000usize).prop_map(Act::Drain),
        Just(Act::Progress),
        Just(Act::Room),
        Just(Act::TakeBack),
        Just(Act::Leave),
        Just(Act::Release),
        Just(Act::Adopt),
        Just(Act::Sleep),
    ]
}

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![any::<u32>(), 0..8u32, Just(u32::MAX), Just(ANSWER_RING_BYTES as u32)]
}

fn harm() -> impl Strategy<Value = Harm> {
    prop_oneof![
        word().prop_map(Harm::CgiHeaders),
        word().prop_map(Harm::RequestTail),
        (0..128usize, word()).prop_map(|(at, value)| Harm::Word(at, value)),
        (0..64usize, word()).prop_map(|(at, value)| Harm::Header(at, value)),
    ]
}

fn do_harm(layout: &Layout, harm: &Harm) {
    let slot = layout.slot(0, 0);
    match *harm {
        Harm::CgiHeaders(value) => slot.worker.response_head.store(value, Relaxed),
        Harm::RequestTail(value) => slot.worker.request_tail.store(value, Relaxed),
        Harm::Word(at, value) => layout.spoil_slot(at, value),
        Harm::Header(at, value) => layout.spoil_header(at, value),
    }
}

/// One front, doing its work on one slot; `None` for what it holds when it has given it back.
struct Front {
    end: FrontEnd,
    assigned: Option<AssignedSlot>,
}

impl Front {
    fn new(file: &OwnedFd) -> Front {
        let end = FrontEnd::take_over(file, 1, 1).expect("a pool's file");
        let (assigned, _) = end.offer(0, 0, 1, 0, b"a request");
        Front { end, assigned: Some(assigned) }
    }

    fn act(&mut self, act: &Act) {
        let end = &self.end;
        let Some(assigned) = &mut self.assigned else {
            let (assigned, sent) = end.offer(0, 0, 1, 0, b"another");
            assert_eq!(sent, 7);
            self.assigned = Some(assigned);
            return;
        };
        match *act {
            Act::Feed(bytes) => {
                let fed = end.feed(assigned, &vec![0; bytes]);
                assert!(fed.unwrap_or(0) <= bytes.min(REQUEST_RING_BYTES));
            }
            Act::Drain(limit) => {
                let mut response = Vec::new();
                let drained = end.drain(assigned, limit, &mut response);
                assert!(response.len() <= limit.min(ANSWER_RING_BYTES));
                assert_eq!(drained.unwrap_or(0), response.len());
            }
            Act::Progress => drop(end.progress(assigned)),
            Act::Room => assert!(end.room(assigned).unwrap_or(0) <= REQUEST_RING_BYTES),
            Act::TakeBack => drop(end.take_back(assigned)),
            Act::Leave => end.leave(assigned),
            Act::Release => {
                if let Some(assigned) = self.assigned.take() {
                    end.release(assigned);
                }
            }
            Act::Adopt => drop(end.adopt(0, 1, 0)),
            Act::Sleep => {
                let asleep = end.announce_sleep(0);
                end.awake(0, asleep);
            }
        }
    }
}

proptest! {
    #[test]
    fn nothing_a_worker_writes_makes_the_front_panic_or_take_more_than_a_ring_holds(
        steps in proptest::collection::vec((act(), proptest::option::of(harm())), 1..60),
    ) {
        let file = create("hostile", 1, 1).expect("a pool's file");
        let layout = Layout::map(&file, 1).expect("a pool's file");
        let mut front = Front::new(&file);
        for (act, harm) in &steps {
            if let Some(harm) = harm {
                do_harm(&layout, harm);
            }
            front.act(act);
        }
        // Whatever was written, the next front can take over.
        let next = FrontEnd::take_over(&file, 1, 2);
        prop_assert!(next.is_ok());
    }
}
