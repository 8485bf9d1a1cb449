//! Purges of the page cache by a script: the front carries them out, and the script waits.

use std::time::Duration;

use maitred_control::purge::{Fate, PurgeMode, PurgeRequest, Target};
use maitred_php::{Purge, Purged};
use maitred_seat::{CALL_BYTES, WorkerEnd};

/// Longest time that a script waits for the front. A front that has crashed is replaced well within
/// it.
const PATIENCE: Duration = Duration::from_secs(10);

/// Purges pages through the front, and waits for the reply.
pub fn purge(end: &mut WorkerEnd, asked: &Purge<'_>) -> Purged {
    let Ok(parts) = wanted(asked).split(CALL_BYTES) else {
        return Purged::TooLong;
    };
    let mut outcome = Purged::Done;
    for part in parts {
        let Ok(call) = serde_json::to_vec(&part) else {
            return Purged::NoReply;
        };
        match end.call(&call, PATIENCE).map(Fate::of) {
            Some(Fate::Dropped) => {}
            Some(Fate::Unconfirmed) => outcome = Purged::NoReply,
            Some(Fate::NoCache) => return Purged::NoCache,
            Some(Fate::NotIts) => return Purged::OtherSite,
            Some(Fate::Unheard) | None => return Purged::NoReply,
        }
    }
    outcome
}

fn wanted(asked: &Purge<'_>) -> PurgeRequest {
    // Decoded as tags and URLs of responses are.
    let text = |name: &&[u8]| String::from_utf8_lossy(name).into_owned();
    let names = asked.names.iter().map(text);
    PurgeRequest {
        targets: if asked.are_urls {
            names.map(Target::Url).collect()
        } else {
            names.map(Target::Tag).collect()
        },
        how: if asked.soft { PurgeMode::Soft } else { PurgeMode::Hard },
        site: None,
    }
}
