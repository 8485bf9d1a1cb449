//! The front's side of the control channel.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use maitred_control::{FromFront, Received, ToFront, hear, say};
use maitred_os::channel::Channel;
use serde::Serialize;
use serde::de::DeserializeOwned;

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
        let said = say(self.channel.reports(), report);
        if let Err(error) = &said {
            tracing::warn!("the supervisor did not take a report: {error}");
        }
        said.is_ok()
    }

    /// Takes the next order.
    ///
    /// # Errors
    /// When what arrives is no order.
    pub fn order(&self, wait: bool) -> io::Result<Received<ToFront>> {
        hear(&self.channel, wait)
    }
}

/// What came as JSON in a file, because it is too long for a message.
///
/// # Errors
/// When the file cannot be read, or holds something else.
pub fn read_json<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    // A parser that is given the file itself takes one byte with each system call.
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Replaces the contents of a file that came by something as JSON.
///
/// # Errors
/// When none came, or it cannot be written.
pub fn write_json(file: Option<OwnedFd>, what: &impl Serialize) -> io::Result<()> {
    let file =
        file.ok_or_else(|| io::Error::other("the front's limit of open files is reached"))?;
    let mut file = File::from(file);
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(what)?)
}
