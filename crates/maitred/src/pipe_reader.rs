//! The process that reads and closes the pipes that code of pools can write to, started by the
//! server. A program can hold the lock of its pipe for as long as it likes (it writes a page of a
//! file system in user space that does not respond), and reading and closing take that lock. So the
//! supervisor does neither: it kills this process when it takes too long, and starts another one.

use std::os::fd::OwnedFd;
use std::process::ExitCode;

use maitred_control::pipe_reader::{
    FromPipeReader, PIPE_READ_BYTES, PipeOutcome, PipeText, ToPipeReader,
};
use maitred_control::{Received, hear, say_waiting};
use maitred_os::channel::Channel;
use maitred_os::title;
use maitred_sandbox::{LessTrusted, Needs};
use rustix::io::Errno;

use crate::exit_code::{EXIT_FAILURE, refuse};

/// Reads what it has orders for; the channel to the supervisor is inherited.
pub fn pipe_reader() -> ExitCode {
    title::set("maitred: pipes");
    let Ok(channel) = Channel::inherited() else {
        return refuse(&"`maitred pipe-reader` is started by `maitred serve`, not by hand");
    };
    maitred_os::signals::ignore_sigpipe();
    match work(&channel) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("the process that reads pipes cannot work: {why}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn work(channel: &Channel) -> Result<(), String> {
    let Ok(Received::Message(ToPipeReader::Begin { supervisor, identity, restricted }, _)) =
        hear(channel, true)
    else {
        return Err("no order to begin came".to_owned());
    };
    LessTrusted { supervisor, identity: identity.as_ref(), restricted }.settle()?;
    if restricted {
        maitred_sandbox::enter("the process that reads pipes", &Needs::default())?;
    }
    let say = |report: &FromPipeReader| {
        let said = say_waiting(channel.reports(), report);
        said.map_err(|error| format!("the supervisor did not take a report: {error}"))
    };
    say(&FromPipeReader::Ready)?;
    let mut taken: Vec<OwnedFd> = Vec::new();
    while let Ok(Received::Message(order, pipes)) = hear(channel, true) {
        match order {
            ToPipeReader::Begin { .. } => {}
            ToPipeReader::Read => say(&FromPipeReader::Read { outcome: read(pipes.first()) })?,
            ToPipeReader::Take => taken.extend(pipes),
            ToPipeReader::Close => {
                taken.clear();
                say(&FromPipeReader::Closed)?;
            }
        }
    }
    Ok(())
}

fn read(pipe: Option<&OwnedFd>) -> PipeOutcome {
    let Some(pipe) = pipe else {
        return PipeOutcome::Failed { why: "its descriptor is missing".to_owned() };
    };
    let mut bytes = vec![0; PIPE_READ_BYTES];
    match rustix::io::read(pipe, &mut bytes) {
        Ok(0) => PipeOutcome::End,
        Ok(count) => PipeOutcome::Bytes(PipeText::of(&bytes[..count])),
        Err(Errno::AGAIN | Errno::INTR) => PipeOutcome::Nothing,
        Err(why) => PipeOutcome::Failed { why: std::io::Error::from(why).to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_read_once_and_an_error_is_neither_its_end_nor_an_empty_pipe() {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = OwnedFd::from(reader);
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        assert_eq!(read(Some(&reader)), PipeOutcome::Nothing);
        rustix::io::write(&writer, b"\xffline\n").unwrap();
        assert_eq!(read(Some(&reader)), PipeOutcome::Bytes(PipeText::of(b"\xffline\n")));
        drop(writer);
        assert_eq!(read(Some(&reader)), PipeOutcome::End);
        let folder = OwnedFd::from(std::fs::File::open("/").unwrap());
        assert!(matches!(read(Some(&folder)), PipeOutcome::Failed { .. }));
        assert!(matches!(read(None), PipeOutcome::Failed { .. }));
    }
}
