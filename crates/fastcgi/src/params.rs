use std::fmt;

use crate::record::{HEADER_LEN, MAX_CONTENT_LEN, RecordType, record_header};

/// Longest name or value, in bytes (§3.4: 31 bits).
const MAX_PARAM_LEN: usize = 0x7fff_ffff;

/// Lengths up to this take one byte, others four (§3.4).
const MAX_SHORT_LEN: usize = 0x7f;

/// A name or a value exceeds FastCGI's limit (2 GiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamTooLong;

impl fmt::Display for ParamTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("A FastCGI parameter's name or value is longer than 2 GiB.")
    }
}

impl std::error::Error for ParamTooLong {}

/// Writes name-value pairs as the PARAMS stream of a request (§5.2), into as few records as
/// possible. A pair is split only if it exceeds a record, that is if name, value and their lengths
/// have more than [`MAX_CONTENT_LEN`] bytes. §3.3 allows splitting anywhere, but PHP's own parser
/// (`fcgi_read_request`) parses each record separately and closes the connection at a split pair.
#[derive(Debug)]
pub struct ParamsWriter<'a> {
    out: &'a mut Vec<u8>,
    request_id: u16,
    /// Offset in `out` of the header of the current record.
    record_at: usize,
}

impl<'a> ParamsWriter<'a> {
    /// Starts the stream at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>, request_id: u16) -> Self {
        let record_at = out.len();
        out.extend_from_slice(&[0; HEADER_LEN]);
        Self { out, request_id, record_at }
    }

    /// Adds a pair.
    ///
    /// # Errors
    /// A name or value of 2 GiB or more; nothing of it is written.
    pub fn param(&mut self, name: &[u8], value: &[u8]) -> Result<(), ParamTooLong> {
        let (lens, lens_len) = encode_lens(name.len(), value.len())?;
        let lens = &lens[..lens_len];
        let pair_len = lens.len() + name.len() + value.len();
        if pair_len > self.room() && self.content_len() > 0 {
            self.next_record();
        }
        if pair_len <= self.room() {
            self.write(lens, name, value);
        } else {
            [lens, name, value].into_iter().for_each(|part| self.cut(part));
        }
        Ok(())
    }

    /// As [`param`](Self::param), but faster, for names of constant length.
    ///
    /// # Errors
    /// As [`param`](Self::param).
    #[inline]
    pub fn named<const NAME: usize>(
        &mut self,
        name: &[u8; NAME],
        value: &[u8],
    ) -> Result<(), ParamTooLong> {
        let is_short = NAME <= MAX_SHORT_LEN && value.len() <= MAX_SHORT_LEN;
        if !is_short || 2 + NAME + value.len() > self.room() {
            return self.param(name, value);
        }
        self.write(&[NAME as u8, value.len() as u8], name, value);
        Ok(())
    }

    #[inline]
    fn write(&mut self, lens: &[u8], name: &[u8], value: &[u8]) {
        self.out.reserve(lens.len() + name.len() + value.len());
        self.out.extend_from_slice(lens);
        self.out.extend_from_slice(name);
        self.out.extend_from_slice(value);
    }

    /// Ends the stream with its empty record.
    pub fn finish(mut self) {
        if self.content_len() > 0 {
            self.next_record();
        }
        self.seal();
    }

    fn content_len(&self) -> usize {
        self.out.len() - self.record_at - HEADER_LEN
    }

    fn room(&self) -> usize {
        MAX_CONTENT_LEN - self.content_len()
    }

    /// Writes the header of the completed record.
    fn seal(&mut self) {
        let header = record_header(RecordType::Params, self.request_id, self.content_len() as u16);
        if let Some(place) = self.out.get_mut(self.record_at..self.record_at + HEADER_LEN) {
            place.copy_from_slice(&header);
        }
    }

    fn next_record(&mut self) {
        self.seal();
        self.record_at = self.out.len();
        self.out.extend_from_slice(&[0; HEADER_LEN]);
    }

    /// Appends a part of a pair, split over as many records as needed.
    fn cut(&mut self, mut part: &[u8]) {
        while !part.is_empty() {
            if self.room() == 0 {
                self.next_record();
            }
            let (now, later) = part.split_at(part.len().min(self.room()));
            self.out.extend_from_slice(now);
            part = later;
        }
    }
}

/// Appends a pair to a PARAMS stream that is not divided into records yet.
///
/// # Errors
/// A name or value of 2 GiB or more; nothing of it is written.
pub fn write_pair(stream: &mut Vec<u8>, name: &[u8], value: &[u8]) -> Result<(), ParamTooLong> {
    let (lens, lens_len) = encode_lens(name.len(), value.len())?;
    for part in [&lens[..lens_len], name, value] {
        stream.extend_from_slice(part);
    }
    Ok(())
}

/// Both lengths of a pair, and the size of their encoding (§3.4).
fn encode_lens(name: usize, value: usize) -> Result<([u8; 8], usize), ParamTooLong> {
    let (mut bytes, mut at) = ([0; 8], 0);
    for len in [name, value] {
        if len <= MAX_SHORT_LEN {
            bytes[at] = len as u8;
            at += 1;
        } else if len <= MAX_PARAM_LEN {
            bytes[at..at + 4].copy_from_slice(&(len as u32 | 1 << 31).to_be_bytes());
            at += 4;
        } else {
            return Err(ParamTooLong);
        }
    }
    Ok((bytes, at))
}

/// A PARAMS stream ends within a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParamError {
    /// The offset of the pair in the stream, in bytes.
    pub at: usize,
}

impl fmt::Display for ParamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The FastCGI parameter at byte {} is longer than the stream it is in.", self.at)
    }
}

impl std::error::Error for ParamError {}

/// The pairs of a complete PARAMS stream. The iterator ends after an error.
pub fn params(stream: &[u8]) -> Params<'_> {
    Params { stream, rest: stream }
}

/// The pairs of a PARAMS stream: see [`params`].
#[derive(Clone, Debug)]
pub struct Params<'a> {
    stream: &'a [u8],
    rest: &'a [u8],
}

impl Params<'_> {
    /// Unread bytes of the stream.
    pub fn left(&self) -> usize {
        self.rest.len()
    }
}

impl<'a> Iterator for Params<'a> {
    type Item = Result<(&'a [u8], &'a [u8]), ParamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let at = self.stream.len() - self.rest.len();
        let pair = take_pair(&mut self.rest);
        if pair.is_none() {
            self.rest = &[];
        }
        Some(pair.ok_or(ParamError { at }))
    }
}

fn take_pair<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let name_len = take_len(rest)?;
    let value_len = take_len(rest)?;
    let (name, after_name) = rest.split_at_checked(name_len)?;
    let (value, after_value) = after_name.split_at_checked(value_len)?;
    *rest = after_value;
    Some((name, value))
}

fn take_len(rest: &mut &[u8]) -> Option<usize> {
    let (&first, after) = rest.split_first()?;
    if usize::from(first) <= MAX_SHORT_LEN {
        *rest = after;
        return Some(first.into());
    }
    let (&bytes, after) = rest.split_first_chunk()?;
    *rest = after;
    Some((u32::from_be_bytes(bytes) & !(1 << 31)) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the lengths of a long value without a name.
    const LENS: usize = 5;

    /// The records of a value of `filled` bytes and a pair.
    fn records(filled: usize, add: impl Fn(&mut ParamsWriter<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        let mut writer = ParamsWriter::new(&mut out, 1);
        writer.param(b"", &vec![b'x'; filled]).expect("a short value");
        add(&mut writer);
        writer.finish();
        out
    }

    #[test]
    fn names_of_constant_length_are_written_as_any_others() {
        let short = 2 + 4 + 9;
        for room in [5, short - 4, short - 1, short, short + 1, 1000] {
            for value in [0, 9, 0x7f, 0x80, 300] {
                let value = vec![b'v'; value];
                let filled = MAX_CONTENT_LEN - LENS - room;
                let named = records(filled, |to| to.named(b"NAME", &value).expect("it is short"));
                let any = records(filled, |to| to.param(b"NAME", &value).expect("it is short"));
                assert_eq!(named, any, "{room} {}", value.len());
                let named = records(filled, |to| to.named(b"N", &value).expect("it is short"));
                let any = records(filled, |to| to.param(b"N", &value).expect("it is short"));
                assert_eq!(named, any, "{room} {}", value.len());
                assert!(named.ends_with(&[&value[..], &[1, 4, 0, 1, 0, 0, 0, 0]].concat()));
            }
        }
    }

    #[test]
    fn a_pair_that_fills_a_record_is_in_it() {
        let value = [b'v'; 9];
        let add = |to: &mut ParamsWriter<'_>| to.param(b"NAME", &value).expect("it is short");
        let of = |room| records(MAX_CONTENT_LEN - LENS - room, add).len();
        let both = HEADER_LEN + MAX_CONTENT_LEN + HEADER_LEN;
        assert_eq!(of(2 + 4 + 9), both);
        assert_eq!(of(2 + 4 + 8), both + HEADER_LEN + 1);
    }

    #[test]
    fn a_stream_has_the_pairs_and_says_what_is_left_of_it() {
        let mut stream = Vec::new();
        for (name, value) in [(&b"A"[..], &[b'v'; 200][..]), (b"B", b"")] {
            write_pair(&mut stream, name, value).expect("it is short");
        }
        assert_eq!(stream.len(), 1 + 4 + 1 + 200 + 3);
        let mut read = params(&stream);
        assert_eq!(read.left(), stream.len());
        assert_eq!(read.next(), Some(Ok((&b"A"[..], &[b'v'; 200][..]))));
        assert_eq!(read.left(), 3);
        assert_eq!(read.next(), Some(Ok((&b"B"[..], &b""[..]))));
        assert_eq!((read.left(), read.next()), (0, None));
        assert!(ParamTooLong.to_string().contains("2 GiB"));
    }
}
