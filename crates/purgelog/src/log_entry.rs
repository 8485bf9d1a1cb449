//! Entries of the log, and where a node is in it.

use std::fmt;
use std::str::FromStr;

/// The id of an entry of a stream: Redis gives each one a greater id than all before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId {
    /// Milliseconds since 1970, by the clock of Redis.
    pub millis: u64,
    /// Its number within the millisecond.
    pub number: u64,
}

impl fmt::Display for EntryId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}-{}", self.millis, self.number)
    }
}

impl FromStr for EntryId {
    type Err = ();

    fn from_str(text: &str) -> Result<EntryId, ()> {
        let (millis, number) = text.split_once('-').ok_or(())?;
        let read = |digits: &str| match digits.bytes().all(|byte| byte.is_ascii_digit()) {
            true => digits.parse().map_err(|_| ()),
            false => Err(()),
        };
        Ok(EntryId { millis: read(millis)?, number: read(number)? })
    }
}

/// An entry of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: EntryId,
    /// Who has added it, and its number there: `INSTANCE:NUMBER`.
    pub token: String,
    /// The purge; empty if the entry only marks that a node has joined.
    pub payload: String,
}

/// An entry to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Addition {
    /// As [`Entry::token`].
    pub token: String,
    /// As [`Entry::payload`].
    pub payload: String,
}

/// A place in the log: all entries up to it are applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Position {
    /// The era: ids of another era mean nothing.
    pub era: String,
    /// The last entry.
    pub id: EntryId,
}

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} {}", self.era, self.id)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Position, ()> {
        let (era, id) = text.trim_end().split_once(' ').ok_or(())?;
        let is_era = !era.is_empty() && era.len() <= MAX_NAME_BYTES;
        if is_era { Ok(Position { era: era.to_owned(), id: id.parse()? }) } else { Err(()) }
    }
}

/// Longest name of an era, an instance or a node that is read, in bytes.
pub const MAX_NAME_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_ordered_as_in_the_stream_and_read_as_they_are_written() {
        let id = |text: &str| text.parse::<EntryId>().unwrap();
        assert!(id("5-2") < id("5-10") && id("5-10") < id("10-0"));
        assert_eq!(id("17-3").to_string(), "17-3");
        for wrong in ["", "5", "5-", "-5", "+5-1", "5-1-1", "99999999999999999999-0"] {
            assert!(wrong.parse::<EntryId>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_position_is_read_as_it_is_written() {
        let position = Position { era: "a-1".to_owned(), id: EntryId { millis: 5, number: 7 } };
        assert_eq!(format!("{position}\n").parse(), Ok(position));
        assert_eq!("5-7".parse::<Position>(), Err(()));
        assert_eq!(" 5-7".parse::<Position>(), Err(()));
        let of_era = |length: usize| format!("{} 5-7", "e".repeat(length)).parse::<Position>();
        assert!(of_era(MAX_NAME_BYTES).is_ok() && of_era(MAX_NAME_BYTES + 1).is_err());
    }
}
