//! This process's side of the channel to the supervisor.

use maitred_control::SupervisorLink;
use maitred_control::shared_certificates::{FromShared, SharedSettings, ToShared};
use maitred_os::channel::Channel;
use tokio::sync::mpsc::{Receiver, channel};

/// Most orders that are read before they are carried out.
const MAX_ORDERS: usize = 64;

/// The channel to the supervisor.
#[derive(Clone)]
pub struct SharedLink(SupervisorLink);

impl SharedLink {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> SharedLink {
        SharedLink(SupervisorLink::new(channel))
    }

    /// Receives the settings.
    ///
    /// # Errors
    /// As [`SupervisorLink::settings`].
    pub fn settings(&self) -> Result<SharedSettings, String> {
        self.0.settings(|order| matches!(order, ToShared::Begin))
    }

    /// Sends a report.
    ///
    /// # Errors
    /// As [`SupervisorLink::say`].
    pub fn say(&self, report: &FromShared) -> Result<(), String> {
        self.0.say(report)
    }

    /// Receives orders in a thread of its own. The end of the receiver is that of the supervisor.
    ///
    /// # Errors
    /// As [`SupervisorLink::orders`].
    pub fn orders(&self) -> Result<Receiver<ToShared>, String> {
        let (sender, receiver) = channel(MAX_ORDERS);
        self.0.orders(move |order| sender.blocking_send(order).is_ok())?;
        Ok(receiver)
    }
}
