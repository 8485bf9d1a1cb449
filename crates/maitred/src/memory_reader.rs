//! The process that counts the private memory of others, started by the server. A tenant can make
//! it wait for as long as they like (a file system in user space that does not respond), so the
//! supervisor kills it when it takes too long, and starts another one.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use maitred_control::SupervisorLink;
use maitred_control::memory_reader::{CountedMemory, FromMemoryReader, ToMemoryReader};
use maitred_os::channel::Channel;
use maitred_os::title;

use crate::exit_code::{EXIT_FAILURE, refuse};

/// Longest time of counting for one order; what is left is for another order.
const TURN: Duration = Duration::from_millis(10);

/// Counts what it has orders for; the channel to the supervisor is inherited.
pub fn memory_reader() -> ExitCode {
    title::set("maitred: memory");
    let Ok(channel) = Channel::inherited() else {
        return refuse(&"`maitred memory-reader` is started by `maitred serve`, not by hand");
    };
    maitred_os::signals::ignore_sigpipe();
    match work(&SupervisorLink::new(channel)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            tracing::error!("the process that counts memory cannot work: {why}");
            ExitCode::from(EXIT_FAILURE)
        }
    }
}

fn work(link: &SupervisorLink) -> Result<(), String> {
    let Some(ToMemoryReader::Begin { restricted }) = link.next_order() else {
        return Err("no order to begin came".to_owned());
    };
    if restricted {
        maitred_sandbox::enter_to_inspect("the process that counts memory")?;
    }
    link.say(&FromMemoryReader::Ready)?;
    while let Some(order) = link.next_order() {
        if let ToMemoryReader::Count { pids } = order {
            link.say(&FromMemoryReader::Counted { memory: counted(&pids) })?;
        }
    }
    Ok(())
}

fn counted(pids: &[i32]) -> Vec<Option<CountedMemory>> {
    let begun = Instant::now();
    let mut memory = Vec::with_capacity(pids.len());
    for pid in pids {
        memory.push(CountedMemory::of(*pid));
        if begun.elapsed() >= TURN {
            break;
        }
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_order_one_process_is_counted_at_least_and_one_that_has_ended_is_none() {
        let own = i32::try_from(std::process::id()).unwrap();
        let memory = counted(&[own]);
        assert!(memory[0].is_some_and(|memory| memory.private > 0), "{memory:?}");
        assert_eq!(counted(&[i32::MAX]), [None]);
        assert!(counted(&[]).is_empty());
        let many = counted(&vec![own; 100_000]);
        assert!((1..100_000).contains(&many.len()), "{}", many.len());
    }
}
