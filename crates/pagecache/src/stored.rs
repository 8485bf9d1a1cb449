//! The header of a cached response, and its serialised form.

use bytes::Bytes;

use crate::Millis;
use crate::codec::{Damaged, Reader, write_part};
use crate::freshness::Lifetimes;
use crate::headers::{self, Field};

/// The header of a cached response, with the caching decisions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stored {
    /// The status.
    pub status: u16,
    /// The header lines, each with its CR LF. `Date` is first; the `Age`, `Content-Length` and
    /// `Server` headers are not included.
    pub lines: Bytes,
    /// When it arrived.
    pub came: Millis,
    /// Its age on arrival, in seconds.
    pub initial_age: u64,
    /// How long it can be used.
    pub lifetimes: Lifetimes,
    /// It is revalidated before each use.
    pub no_cache: bool,
    /// It is never served stale, whatever the site's settings.
    pub must_revalidate: bool,
    /// It may serve requests with an `Authorization` header (RFC 9111 §3.5).
    pub for_authorized: bool,
    /// It has an `ETag` header or a `Last-Modified` header.
    pub has_validator: bool,
    /// The server has added `Accept-Encoding` to its `Vary`: it compresses the page itself, and has
    /// no variants by that header.
    pub server_compresses: bool,
    /// A header for the cache alone, which is not among the lines, states its lifetimes.
    pub has_own_lifetimes: bool,
    /// Its tags.
    pub tags: Box<[String]>,
    /// The number of purges before its request: later purges apply to it.
    pub stamp: u64,
}

const NO_CACHE: u8 = 1;
const FOR_AUTHORIZED: u8 = 2;
const HAS_VALIDATOR: u8 = 4;
const MUST_REVALIDATE: u8 = 8;
const SERVER_COMPRESSES: u8 = 16;
const HAS_OWN_LIFETIMES: u8 = 32;

impl Stored {
    /// Whether it is to be revalidated from the first use on.
    pub fn is_stale_when_stored(&self) -> bool {
        self.no_cache || self.lifetimes.fresh <= self.initial_age
    }

    /// Its headers.
    pub fn fields(&self) -> impl Iterator<Item = Field<'_>> + Clone {
        headers::of_lines(&self.lines)
    }

    /// The value of its first header with this name.
    pub fn first(&self, name: &str) -> Option<&[u8]> {
        headers::first(self.fields(), name)
    }

    /// The value of the `Date` header, and the lines after it.
    pub fn dated_lines(&self) -> (Bytes, Bytes) {
        let end = memchr::memchr(b'\n', &self.lines).map_or(0, |end| end + 1);
        let (start, stop) = ("Date: ".len(), end.saturating_sub("\r\n".len()));
        match self.lines.get(start..stop) {
            Some(_) => (self.lines.slice(start..stop), self.lines.slice(end..)),
            None => (Bytes::new(), self.lines.clone()),
        }
    }

    /// Its approximate size in memory, in bytes.
    pub fn weight(&self) -> usize {
        let tags = self.tags.iter().map(|tag| tag.len() + size_of::<String>());
        size_of::<Stored>() + self.lines.len() + tags.sum::<usize>()
    }

    /// Serialises it for [`Stored::read`].
    pub fn write(&self, out: &mut Vec<u8>) {
        let flag = |is: bool, flag: u8| if is { flag } else { 0 };
        out.extend_from_slice(&self.status.to_le_bytes());
        out.push(
            flag(self.no_cache, NO_CACHE)
                | flag(self.for_authorized, FOR_AUTHORIZED)
                | flag(self.has_validator, HAS_VALIDATOR)
                | flag(self.must_revalidate, MUST_REVALIDATE)
                | flag(self.server_compresses, SERVER_COMPRESSES)
                | flag(self.has_own_lifetimes, HAS_OWN_LIFETIMES),
        );
        let Lifetimes { fresh, while_revalidate, if_error } = self.lifetimes;
        let numbers = [self.came, self.initial_age, fresh, while_revalidate, if_error, self.stamp];
        for number in numbers {
            out.extend_from_slice(&number.to_le_bytes());
        }
        write_part(out, &self.lines);
        let count = u32::try_from(self.tags.len()).unwrap_or(u32::MAX);
        out.extend_from_slice(&count.to_le_bytes());
        for tag in &self.tags {
            write_part(out, tag.as_bytes());
        }
    }

    /// Deserialises the output of [`Stored::write`].
    ///
    /// # Errors
    /// On any other bytes.
    pub fn read(bytes: &Bytes) -> Result<Stored, Damaged> {
        let mut reader = Reader::new(bytes);
        let status = u16::from_le_bytes(reader.array()?);
        let [flags] = reader.array()?;
        let stored = Stored {
            status,
            came: reader.long()?,
            initial_age: reader.long()?,
            lifetimes: Lifetimes {
                fresh: reader.long()?,
                while_revalidate: reader.long()?,
                if_error: reader.long()?,
            },
            no_cache: flags & NO_CACHE != 0,
            must_revalidate: flags & MUST_REVALIDATE != 0,
            for_authorized: flags & FOR_AUTHORIZED != 0,
            has_validator: flags & HAS_VALIDATOR != 0,
            server_compresses: flags & SERVER_COMPRESSES != 0,
            has_own_lifetimes: flags & HAS_OWN_LIFETIMES != 0,
            stamp: reader.long()?,
            lines: reader.part()?,
            tags: {
                let count = reader.word()?;
                (0..count).map(|_| reader.text()).collect::<Result<_, _>>()?
            },
        };
        reader.rest().is_empty().then_some(stored).ok_or(Damaged)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored() -> impl Strategy<Value = Stored> {
        let numbers = proptest::array::uniform6(any::<u64>());
        let flags = proptest::array::uniform6(any::<bool>());
        let tags = proptest::collection::vec(".{0,8}", 0..4);
        let lines = proptest::collection::vec(any::<u8>(), 0..40);
        (any::<u16>(), numbers, flags, tags, lines).prop_map(|(status, n, flags, tags, lines)| {
            Stored {
                status,
                lines: lines.into(),
                came: n[0],
                initial_age: n[1],
                lifetimes: Lifetimes { fresh: n[2], while_revalidate: n[3], if_error: n[4] },
                no_cache: flags[0],
                must_revalidate: flags[1],
                for_authorized: flags[2],
                has_validator: flags[3],
                server_compresses: flags[4],
                has_own_lifetimes: flags[5],
                tags: tags.into(),
                stamp: n[5],
            }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_down_is_read_again(stored in stored()) {
            let mut out = Vec::new();
            stored.write(&mut out);
            let bytes = Bytes::from(out);
            for end in 0..bytes.len() {
                prop_assert_eq!(Stored::read(&bytes.slice(..end)), Err(Damaged));
            }
            prop_assert_eq!(Stored::read(&bytes), Ok(stored));
        }

        #[test]
        fn any_bytes_are_read_or_damaged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Stored::read(&Bytes::from(bytes));
        }
    }
}
