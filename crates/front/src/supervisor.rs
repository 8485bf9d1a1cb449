//! The front's side of the control channel.

use std::io;

use maitred_control::{FromFront, Heard, ToFront, hear, say};
use maitred_os::channel::Channel;

/// The supervisor, as the front sees it.
#[derive(Debug)]
pub struct Supervisor {
    channel: Channel,
}

impl Supervisor {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> Supervisor {
        Supervisor { channel }
    }

    /// The channel, to wait on.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Sends a report; false when the supervisor did not take it. One that cannot take any more is
    /// about to end us anyway.
    pub fn report(&self, report: &FromFront) -> bool {
        let said = say(&self.channel, report, &[]);
        if let Err(error) = &said {
            tracing::warn!("the supervisor did not take a report: {error}");
        }
        said.is_ok()
    }

    /// Takes the next order.
    ///
    /// # Errors
    /// When what arrives is no order.
    pub fn order(&self, wait: bool) -> io::Result<Heard<ToFront>> {
        hear(&self.channel, wait)
    }
}
