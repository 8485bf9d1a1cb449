//! What a script has dropped of the page cache: the front does it, and the script waits.

use std::time::Duration;

use maitred_control::purge::{Fate, PurgeRequest, Target, Thoroughness};
use maitred_php::{Purge, Purged};
use maitred_seat::{WISH_BYTES, WorkerEnd};

/// Longest that a script waits for the front. One that has died is replaced well within this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Has the front drop pages, and waits until it has.
pub fn purge(end: &mut WorkerEnd, asked: &Purge<'_>) -> Purged {
    let Ok(parts) = wanted(asked).split(WISH_BYTES) else {
        return Purged::TooLong;
    };
    for part in parts {
        let Ok(wish) = serde_json::to_vec(&part) else {
            return Purged::Unheard;
        };
        match end.wish(&wish, PATIENCE).map(Fate::of) {
            Some(Fate::Dropped) => {}
            Some(Fate::NoCache) => return Purged::NoCache,
            Some(Fate::NotIts) => return Purged::NotIts,
            Some(Fate::Unheard) | None => return Purged::Unheard,
        }
    }
    Purged::Dropped
}

fn wanted(asked: &Purge<'_>) -> PurgeRequest {
    // As the cache reads tags and addresses of answers.
    let text = |name: &&[u8]| String::from_utf8_lossy(name).into_owned();
    let names = asked.names.iter().map(text);
    PurgeRequest {
        targets: match asked.are_urls {
            true => names.map(Target::Url).collect(),
            false => names.map(Target::Tag).collect(),
        },
        how: match asked.soft {
            true => Thoroughness::Soft,
            false => Thoroughness::Hard,
        },
        site: None,
    }
}
