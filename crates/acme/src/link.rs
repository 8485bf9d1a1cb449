//! This process's side of the channel to the supervisor.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use maitred_control::acme::{FromAcme, Order, ToAcme};
use maitred_control::{Received, hear, say};
use maitred_os::channel::Channel;

/// The channel to the supervisor.
#[derive(Clone)]
pub struct Link {
    channel: Arc<Channel>,
}

impl Link {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> Link {
        Link { channel: Arc::new(channel) }
    }

    /// Receives the order.
    ///
    /// # Errors
    /// When another message arrives.
    pub fn order(&self) -> Result<Order, String> {
        let heard = hear(&self.channel, true).map_err(|error| error.to_string())?;
        let Received::Message(ToAcme::Get, fds) = heard else {
            return Err("no order came".to_owned());
        };
        let file = fds.into_iter().next().ok_or("the order lacks its file")?;
        let mut bytes = Vec::new();
        let read = File::from(file).read_to_end(&mut bytes);
        read.map_err(|error| format!("the order cannot be read: {error}"))?;
        // A parser's error message could contain secrets of the order.
        serde_json::from_slice(&bytes).map_err(|_| "the order cannot be understood".to_owned())
    }

    /// Sends a report.
    ///
    /// # Errors
    /// When the supervisor has exited.
    pub fn say(&self, report: &FromAcme) -> Result<(), String> {
        let said = say(self.channel.reports(), report);
        said.map_err(|error| format!("the supervisor did not take a report: {error}"))
    }

    /// Waits until the challenge responses are published.
    ///
    /// # Errors
    /// When the supervisor has exited.
    pub async fn published(&self) -> Result<(), String> {
        let channel = self.channel.clone();
        let heard = tokio::task::spawn_blocking(move || hear(&channel, true));
        match heard.await {
            Ok(Ok(Received::Message(ToAcme::Published, _))) => Ok(()),
            _ => Err("the supervisor has gone".to_owned()),
        }
    }
}
