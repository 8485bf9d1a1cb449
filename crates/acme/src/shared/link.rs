//! This process's side of the channel to the supervisor.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use maitred_control::shared_certificates::{FromShared, SharedSettings, ToShared};
use maitred_control::{Received, hear, say_waiting};
use maitred_os::channel::Channel;
use tokio::sync::mpsc::{Receiver, channel};

/// Most orders that are read before they are carried out.
const MAX_ORDERS: usize = 64;

/// The channel to the supervisor.
#[derive(Clone)]
pub struct SharedLink {
    channel: Arc<Channel>,
}

impl SharedLink {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> SharedLink {
        SharedLink { channel: Arc::new(channel) }
    }

    /// Receives the settings.
    ///
    /// # Errors
    /// When another message arrives.
    pub fn settings(&self) -> Result<SharedSettings, String> {
        let heard = hear(&self.channel, true).map_err(|error| error.to_string())?;
        let Received::Message(ToShared::Begin, fds) = heard else {
            return Err("no settings came".to_owned());
        };
        let file = fds.into_iter().next().ok_or("the settings lack their file")?;
        let mut bytes = Vec::new();
        let read = File::from(file).read_to_end(&mut bytes);
        read.map_err(|error| format!("the settings cannot be read: {error}"))?;
        // A parser's error message could contain the password.
        serde_json::from_slice(&bytes).map_err(|_| "the settings cannot be understood".to_owned())
    }

    /// Sends a report. The supervisor always reads them.
    ///
    /// # Errors
    /// When the supervisor has exited.
    pub fn say(&self, report: &FromShared) -> Result<(), String> {
        let said = say_waiting(self.channel.reports(), report);
        said.map_err(|error| format!("the supervisor did not take a report: {error}"))
    }

    /// Receives orders in a thread of its own. The end of the receiver is that of the supervisor.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn orders(&self) -> Result<Receiver<ToShared>, String> {
        let (sender, receiver) = channel(MAX_ORDERS);
        let link = self.channel.clone();
        let listens = std::thread::Builder::new().name("orders".to_owned());
        let begun = listens.spawn(move || {
            while let Ok(Received::Message(order, _)) = hear(&link, true) {
                if sender.blocking_send(order).is_err() {
                    return;
                }
            }
        });
        begun.map_err(|error| format!("there is no thread for orders: {error}"))?;
        Ok(receiver)
    }
}
