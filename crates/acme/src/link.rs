//! This process's side of the channel to the supervisor.

use maitred_control::SupervisorLink;
use maitred_control::acme::{FromAcme, Order, ToAcme};
use maitred_os::channel::Channel;

/// The channel to the supervisor.
#[derive(Clone)]
pub struct Link(SupervisorLink);

impl Link {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> Link {
        Link(SupervisorLink::new(channel))
    }

    /// Receives the order.
    ///
    /// # Errors
    /// As [`SupervisorLink::settings`].
    pub fn order(&self) -> Result<Order, String> {
        self.0.settings(|order| matches!(order, ToAcme::Get))
    }

    /// Sends a report.
    ///
    /// # Errors
    /// As [`SupervisorLink::say`].
    pub fn say(&self, report: &FromAcme) -> Result<(), String> {
        self.0.say(report)
    }

    /// Waits until the challenge responses are published.
    ///
    /// # Errors
    /// When the supervisor has exited.
    pub async fn published(&self) -> Result<(), String> {
        let link = self.0.clone();
        let heard = tokio::task::spawn_blocking(move || link.next_order());
        match heard.await {
            Ok(Some(ToAcme::Published)) => Ok(()),
            _ => Err("the supervisor has gone".to_owned()),
        }
    }
}
