//! This process's side of the channel to the supervisor.

use std::net::TcpListener;

use maitred_control::SupervisorLink;
use maitred_control::purge_log::{FromPurgeLog, PurgeLogSettings, ToPurgeLog};
use maitred_os::channel::Channel;
use tokio::sync::mpsc::{Receiver, channel};

/// Most orders that are read before they are carried out.
const MAX_ORDERS: usize = 256;

/// The channel to the supervisor.
#[derive(Clone)]
pub struct Link(SupervisorLink);

impl Link {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> Link {
        Link(SupervisorLink::new(channel))
    }

    /// Receives the settings, and the listening socket for peers.
    ///
    /// # Errors
    /// As [`SupervisorLink::settings`].
    pub fn settings(&self) -> Result<(PurgeLogSettings, Option<TcpListener>), String> {
        let first = |order: &ToPurgeLog| matches!(order, ToPurgeLog::Begin);
        let (settings, socket) = self.0.settings_and_descriptor(first)?;
        Ok((settings, socket.map(TcpListener::from)))
    }

    /// Sends a report.
    ///
    /// # Errors
    /// As [`SupervisorLink::say`].
    pub fn say(&self, report: &FromPurgeLog) -> Result<(), String> {
        self.0.say(report)
    }

    /// Receives orders in a thread of its own. The end of the receiver is that of the supervisor.
    ///
    /// # Errors
    /// As [`SupervisorLink::orders`].
    pub fn orders(&self) -> Result<Receiver<ToPurgeLog>, String> {
        let (sender, receiver) = channel(MAX_ORDERS);
        self.0.orders(move |order| sender.blocking_send(order).is_ok())?;
        Ok(receiver)
    }
}
