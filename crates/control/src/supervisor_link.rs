//! The channel to the supervisor, as a process has it that gets its settings in a file, follows
//! orders, and sends reports.

use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use maitred_os::channel::Channel;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Received, hear, say_waiting};

/// The channel to the supervisor.
#[derive(Debug, Clone)]
pub struct SupervisorLink {
    channel: Arc<Channel>,
}

impl SupervisorLink {
    /// The supervisor at the other end of `channel`.
    pub fn new(channel: Channel) -> SupervisorLink {
        SupervisorLink { channel: Arc::new(channel) }
    }

    /// Receives the first order, which has a file with the settings.
    ///
    /// # Errors
    /// When another message arrives, or the file has no settings.
    pub fn settings<O, S>(&self, is_first: impl FnOnce(&O) -> bool) -> Result<S, String>
    where
        O: DeserializeOwned,
        S: DeserializeOwned,
    {
        self.settings_and_descriptor(is_first).map(|(settings, _)| settings)
    }

    /// The same with the descriptor behind that of the file, if the order has one.
    ///
    /// # Errors
    /// As [`SupervisorLink::settings`].
    pub fn settings_and_descriptor<O, S>(
        &self,
        is_first: impl FnOnce(&O) -> bool,
    ) -> Result<(S, Option<OwnedFd>), String>
    where
        O: DeserializeOwned,
        S: DeserializeOwned,
    {
        let heard = hear::<O>(&self.channel, true).map_err(|error| error.to_string())?;
        let fds = match heard {
            Received::Message(order, fds) if is_first(&order) => fds,
            Received::Message(..) | Received::Nothing | Received::Closed => {
                return Err("no settings came".to_owned());
            }
        };
        let mut fds = fds.into_iter();
        let file = fds.next().ok_or("the settings lack their file")?;
        let mut bytes = Vec::new();
        let read = File::from(file).read_to_end(&mut bytes);
        read.map_err(|error| format!("the settings cannot be read: {error}"))?;
        // A parser's error message could contain the password.
        let settings = serde_json::from_slice(&bytes);
        let settings = settings.map_err(|_| "the settings cannot be understood".to_owned())?;
        Ok((settings, fds.next()))
    }

    /// Sends a report. The supervisor always reads them.
    ///
    /// # Errors
    /// When the supervisor has exited.
    pub fn say(&self, report: &impl Serialize) -> Result<(), String> {
        let said = say_waiting(self.channel.reports(), report);
        said.map_err(|error| format!("the supervisor did not take a report: {error}"))
    }

    /// Waits for the next order; none, if the supervisor has ended.
    pub fn next_order<O: DeserializeOwned>(&self) -> Option<O> {
        match hear(&self.channel, true) {
            Ok(Received::Message(order, _)) => Some(order),
            Ok(Received::Nothing | Received::Closed) | Err(_) => None,
        }
    }

    /// Receives orders in a thread of its own, until `take` returns false. When the supervisor has
    /// ended, `take` is dropped.
    ///
    /// # Errors
    /// When there is no thread.
    pub fn orders<O: DeserializeOwned>(
        &self,
        mut take: impl FnMut(O) -> bool + Send + 'static,
    ) -> Result<(), String> {
        let link = self.clone();
        let listens = std::thread::Builder::new().name("orders".to_owned());
        let begun = listens.spawn(move || {
            while let Some(order) = link.next_order() {
                if !take(order) {
                    return;
                }
            }
        });
        begun.map_err(|error| format!("there is no thread for orders: {error}"))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::mpsc;

    use maitred_os::shared;

    use super::*;
    use crate::acme::ToAcme;
    use crate::order;

    #[test]
    fn the_settings_come_first_and_no_error_has_their_words() {
        let settings = |text: &[u8], first: &ToAcme| {
            let (supervisor, channel) = Channel::pair().unwrap();
            let file = shared::file_with("settings", text).unwrap();
            order(&supervisor, first, &[file.as_fd()]).unwrap();
            let link = SupervisorLink::new(channel);
            link.settings::<ToAcme, Vec<String>>(|order| matches!(order, ToAcme::Get))
        };
        assert_eq!(settings(b"[\"a\"]", &ToAcme::Get), Ok(vec!["a".to_owned()]));
        assert_eq!(settings(b"[\"a\"]", &ToAcme::Published), Err("no settings came".to_owned()));
        let why = settings(b"{\"secret\":1}", &ToAcme::Get).unwrap_err();
        assert_eq!(why, "the settings cannot be understood");
        let (supervisor, channel) = Channel::pair().unwrap();
        order(&supervisor, &ToAcme::Get, &[]).unwrap();
        let link = SupervisorLink::new(channel);
        let why = link.settings::<ToAcme, Vec<String>>(|_| true).unwrap_err();
        assert_eq!(why, "the settings lack their file");
    }

    #[test]
    fn orders_arrive_until_the_supervisor_has_ended() {
        let (supervisor, channel) = Channel::pair().unwrap();
        let (sender, receiver) = mpsc::channel();
        let link = SupervisorLink::new(channel);
        link.orders(move |order: ToAcme| sender.send(order).is_ok()).unwrap();
        order(&supervisor, &ToAcme::Published, &[]).unwrap();
        assert!(matches!(receiver.recv(), Ok(ToAcme::Published)));
        drop(supervisor);
        assert!(receiver.recv().is_err(), "nothing more can arrive");
    }
}
