//! The front's end of the control channel.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;

use maitred_control::{FromFront, Received, ToFront, hear, say};
use maitred_os::channel::Channel;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The supervisor's side of the channel.
#[derive(Debug)]
pub struct Supervisor {
    channel: Channel,
}

impl Supervisor {
    /// Wraps the channel to the supervisor.
    pub fn new(channel: Channel) -> Supervisor {
        Supervisor { channel }
    }

    /// The channel, to wait on.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// Sends a report; false if the supervisor did not accept it. Such a supervisor ends the front
    /// anyway.
    pub fn report(&self, report: &FromFront) -> bool {
        let said = say(self.channel.reports(), report);
        if let Err(error) = &said {
            tracing::warn!("the supervisor did not take a report: {error}");
        }
        said.is_ok()
    }

    /// Receives the next command.
    ///
    /// # Errors
    /// When the message is invalid.
    pub fn order(&self, wait: bool) -> io::Result<Received<ToFront>> {
        hear(&self.channel, wait)
    }
}

/// Reads a JSON value from a received file, which is used for values that exceed a message.
///
/// # Errors
/// When the file cannot be read, or is invalid.
pub fn read_json<T: DeserializeOwned>(file: OwnedFd) -> io::Result<T> {
    // A parser on the file itself reads one byte per system call.
    let mut bytes = Vec::new();
    File::from(file).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

/// Replaces the contents of a received file with a value as JSON.
///
/// # Errors
/// When there is no file, or it cannot be written.
pub fn write_json(file: Option<OwnedFd>, what: &impl Serialize) -> io::Result<()> {
    let file =
        file.ok_or_else(|| io::Error::other("the front's limit of open files is reached"))?;
    let mut file = File::from(file);
    file.set_len(0)?;
    file.rewind()?;
    file.write_all(&serde_json::to_vec(what)?)
}
