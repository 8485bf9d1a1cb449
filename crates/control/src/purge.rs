//! What is to be dropped of the page cache, on its way from process to process.

use maitred_pagecache::purge::Purge;
pub use maitred_pagecache::purge::PurgeMode;
use serde::{Deserialize, Serialize};

/// What a front is to do with its pages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Drop what somebody asks for who knows addresses, and not by what sites name their pages.
    Asked(Asked),
    /// Drop what another front has dropped.
    Dropped(Vec<Dropped>),
    /// From now on there are other fronts that keep pages, and are to hear of every purge; or there
    /// are none.
    Company(bool),
}

/// What somebody asks for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Asked {
    /// What is to be dropped.
    pub targets: Vec<Target>,
    /// How thoroughly.
    pub how: PurgeMode,
    /// The only site that is meant, by one of its hosts as the configuration has it; all, without.
    #[serde(default)]
    pub site: Option<String>,
}

impl Asked {
    /// The same in parts of which none is longer than `bytes` as JSON.
    ///
    /// # Errors
    /// When a target alone is longer.
    pub fn split(self, bytes: usize) -> Result<Vec<Asked>, TooLong> {
        let Asked { targets, how, site } = self;
        let empty = || Asked {
            targets: Vec::new(),
            how,
            site: site.clone(),
        };
        let length = |value: Option<usize>| value.unwrap_or(usize::MAX);
        let bare = length(serde_json::to_vec(&empty()).ok().map(|json| json.len()));
        let (mut parts, mut open, mut used) = (Vec::new(), empty(), bare);
        for target in targets {
            // With the comma.
            let more = length(serde_json::to_vec(&target).ok().map(|json| json.len() + 1));
            if bare.saturating_add(more) > bytes {
                return Err(TooLong);
            }
            if used.saturating_add(more) > bytes {
                parts.push(std::mem::replace(&mut open, empty()));
                used = bare;
            }
            used += more;
            open.targets.push(target);
        }
        parts.push(open);
        Ok(parts)
    }
}

/// What came of a script's wish to have pages dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Fate {
    /// It was not heard.
    Unheard = 0,
    /// They are gone.
    Dropped = 1,
    /// No site of the script's pool has a cache.
    NoCache = 2,
    /// An address is none of a site of the script's pool that has a cache.
    NotIts = 3,
}

impl Fate {
    /// The fate with this number.
    pub fn of(number: u32) -> Fate {
        match number {
            1 => Fate::Dropped,
            2 => Fate::NoCache,
            3 => Fate::NotIts,
            _ => Fate::Unheard,
        }
    }
}

/// A target is named in more bytes than there is room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong;

/// Pages as people name them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// One address: a URL, or with a `*` at its end all that begin so.
    Url(String),
    /// All addresses that begin so: of a host, or if it begins with `/`, of all hosts.
    Prefix(String),
    /// All of a host.
    Host(String),
    /// All with a tag.
    Tag(String),
    /// All.
    Everything,
}

/// Pages of one site, as the cache names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// The site.
    pub site: String,
    /// Which of its pages.
    pub purge: Purge,
    /// How thoroughly they are dropped.
    pub how: PurgeMode,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_split_into_parts_that_fit() {
        let asked = |targets| Asked {
            targets,
            how: PurgeMode::Soft,
            site: Some("a.example".to_owned()),
        };
        let tag = |text: &str| Target::Tag(text.repeat(100));
        let parts = asked(vec![tag("t\n"); 100]).split(4096).unwrap();
        let lengths = parts
            .iter()
            .map(|part| serde_json::to_vec(part).unwrap().len());
        assert!(lengths.max().unwrap() <= 4096);
        assert!(parts.iter().all(|part| part.how == PurgeMode::Soft));
        let count: usize = parts.iter().map(|part| part.targets.len()).sum();
        assert_eq!((count, parts.len()), (100, 8));
        assert_eq!(asked(vec![tag("t")]).split(100), Err(TooLong));
        assert_eq!(asked(Vec::new()).split(100).unwrap().len(), 1);
    }
}
