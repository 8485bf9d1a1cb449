//! This process's side of the channel to the supervisor.

use std::fs::File;
use std::io::Read;
use std::sync::Arc;

use maitred_control::acme::{FromAcme, Order, ToAcme};
use maitred_control::{Received, hear, say};
use maitred_os::channel::Channel;

/// The supervisor, as this process sees it.
#[derive(Clone)]
pub struct Link {
    channel: Arc<Channel>,
}

impl Link {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> Link {
        Link {
            channel: Arc::new(channel),
        }
    }

    /// What is to be got.
    ///
    /// # Errors
    /// When anything else comes.
    pub fn order(&self) -> Result<Order, String> {
        let heard = hear(&self.channel, true).map_err(|error| error.to_string())?;
        let Received::Message(ToAcme::Get, fds) = heard else {
            return Err("no order came".to_owned());
        };
        let file = fds.into_iter().next().ok_or("the order lacks its file")?;
        let mut bytes = Vec::new();
        let read = File::from(file).read_to_end(&mut bytes);
        read.map_err(|error| format!("the order cannot be read: {error}"))?;
        // What a parser says of it could repeat some of it.
        serde_json::from_slice(&bytes).map_err(|_| "the order cannot be understood".to_owned())
    }

    /// Tells the supervisor something.
    ///
    /// # Errors
    /// When it has gone.
    pub fn say(&self, report: &FromAcme) -> Result<(), String> {
        let said = say(self.channel.reports(), report);
        said.map_err(|error| format!("the supervisor did not take a report: {error}"))
    }

    /// Returns when the proofs are where the authority finds them.
    ///
    /// # Errors
    /// When the supervisor has gone.
    pub async fn published(&self) -> Result<(), String> {
        let channel = self.channel.clone();
        let heard = tokio::task::spawn_blocking(move || hear(&channel, true));
        match heard.await {
            Ok(Ok(Received::Message(ToAcme::Published, _))) => Ok(()),
            _ => Err("the supervisor has gone".to_owned()),
        }
    }
}
