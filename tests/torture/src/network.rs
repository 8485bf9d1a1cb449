//! Delay and loss on the run's own network.

use std::process::Command;

use crate::namespace;

/// Most delay of a packet in milliseconds, of which there are two in a round trip.
const DELAY_MS_MAX: u32 = 120;
/// Most lost packets, in per cent.
const LOSS_MAX: u32 = 8;

/// Delay and loss, until this is dropped.
#[derive(Debug)]
pub struct BadNetwork;

impl BadNetwork {
    /// Makes it as bad as `choice` says; none where the kernel cannot (`sch_netem`).
    pub fn begin(choice: u64) -> Option<BadNetwork> {
        let of = |most: u32, shift: u32| (choice >> shift) as u32 % most + 1;
        let (delay, loss) = (of(DELAY_MS_MAX, 0), of(LOSS_MAX, 16));
        let words = format!("add dev lo root netem delay {delay}ms {}ms loss {loss}%", delay / 4);
        let began = namespace::is_own() && tc(&words);
        began.then_some(BadNetwork)
    }
}

impl Drop for BadNetwork {
    fn drop(&mut self) {
        tc("del dev lo root");
    }
}

fn tc(words: &str) -> bool {
    let done = Command::new("tc").arg("qdisc").args(words.split(' ')).output();
    done.is_ok_and(|done| done.status.success())
}
