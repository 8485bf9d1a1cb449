//! Serialised numbers and strings: little-endian, and with a length of four bytes.

use bytes::Bytes;

/// The bytes are not what was serialised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damaged;

/// Appends a string with its length.
pub fn write_part(out: &mut Vec<u8>, part: &[u8]) {
    let length = u32::try_from(part.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(part);
}

/// Reads serialised bytes from their start. Its functions fail when too few are left.
#[derive(Debug)]
pub struct Reader {
    rest: Bytes,
}

impl Reader {
    /// Reads these bytes.
    pub fn new(bytes: &Bytes) -> Reader {
        let rest = bytes.clone();
        Reader { rest }
    }

    /// The bytes that have not been read.
    pub fn rest(&self) -> &Bytes {
        &self.rest
    }

    /// The next `length` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn take(&mut self, length: usize) -> Result<Bytes, Damaged> {
        (length <= self.rest.len()).then(|| self.rest.split_to(length)).ok_or(Damaged)
    }

    /// The next `N` bytes.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        self.take(N)?.as_ref().try_into().map_err(|_| Damaged)
    }

    /// The next four bytes as a number.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn word(&mut self) -> Result<u32, Damaged> {
        self.array().map(u32::from_le_bytes)
    }

    /// The next eight bytes as a number.
    ///
    /// # Errors
    /// When there are fewer.
    pub fn long(&mut self) -> Result<u64, Damaged> {
        self.array().map(u64::from_le_bytes)
    }

    /// A string of [`write_part`].
    ///
    /// # Errors
    /// When it is incomplete.
    pub fn part(&mut self) -> Result<Bytes, Damaged> {
        let length = usize::try_from(self.word()?).map_err(|_| Damaged)?;
        self.take(length)
    }

    /// A string of [`write_part`] that is UTF-8.
    ///
    /// # Errors
    /// When it is incomplete, or no UTF-8.
    pub fn text(&mut self) -> Result<String, Damaged> {
        String::from_utf8(self.part()?.into()).map_err(|_| Damaged)
    }
}
