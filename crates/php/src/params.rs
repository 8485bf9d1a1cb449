use std::fmt;

use crate::cgi_names::{NAMES, Name};

/// Most CGI variables of a request.
pub const PARAMS_MAX: usize = 16 * 1024;

/// Most bytes of the names and values of a request's CGI variables together.
pub const PARAMS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The CGI variables of a request (RFC 3875 section 4.1). Reused across requests for its memory.
#[derive(Debug, Default)]
pub struct Params {
    /// Names and values, each followed by a NUL.
    text: Vec<u8>,
    entries: Vec<Entry>,
    /// A hash of each name in `entries`; only if `foreign`.
    prints: Vec<u64>,
    /// Index into `entries`, from 1, of the last variable of each known name; 0 if there is none.
    known: [u32; NAMES],
    foreign: bool,
}

/// A variable; for a foreign request also strings that its rules have stored.
#[derive(Clone, Copy, Debug)]
struct Entry {
    name: Text,
    value: Text,
}

/// A string that a [`Params`] holds until it is cleared; the length excludes its NUL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    start: usize,
    length: usize,
}

impl Text {
    /// Length in bytes.
    pub fn len(self) -> usize {
        self.length
    }

    /// Whether it is empty.
    pub fn is_empty(self) -> bool {
        self.length == 0
    }

    /// The rest after the first `count` bytes.
    #[must_use]
    pub fn after(self, count: usize) -> Text {
        let count = count.min(self.length);
        Text { start: self.start + count, length: self.length - count }
    }
}

/// Why CGI variables were rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamsError {
    /// A name or value contains a NUL, at which PHP would truncate it.
    Nul,
    /// A name is empty.
    NoName,
    /// A length exceeds the remaining bytes.
    CutOff,
    /// More variables than [`PARAMS_MAX`] or more bytes than [`PARAMS_BYTES_MAX`].
    TooMany,
}

impl fmt::Display for ParamsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nul => out.write_str("a CGI variable contains a NUL byte, which PHP cannot take"),
            Self::NoName => out.write_str("a CGI variable has no name"),
            Self::CutOff => out.write_str("the CGI variables end in the middle of one"),
            Self::TooMany => write!(
                out,
                "the CGI variables are over {PARAMS_MAX} or over {PARAMS_BYTES_MAX} bytes"
            ),
        }
    }
}

impl std::error::Error for ParamsError {}

impl Params {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Removes all variables.
    pub fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
        self.prints.clear();
        self.known = [0; NAMES];
        self.foreign = false;
    }

    /// Removes all variables; new ones are a web server's, stored as in php-fpm (`fcgi_hash` in
    /// main/fastcgi.c): a name has one value, a new value replaces the old one, and scripts see the
    /// variables in reverse order.
    pub fn clear_for_foreign(&mut self) {
        self.clear();
        self.foreign = true;
    }

    /// Whether the variables are a web server's.
    pub(crate) fn is_foreign(&self) -> bool {
        self.foreign
    }

    /// Adds a variable. A second one with the same name replaces the first. `HTTP_PROXY` is
    /// dropped: libraries would use the client's header as their proxy (<https://httpoxy.org>).
    ///
    /// # Errors
    ///
    /// When the variable has no name, contains a NUL, or does not fit.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), ParamsError> {
        let (start, count) = (self.text.len(), self.entries.len());
        self.push_unseen(name, value)?;
        self.look_for_nuls(start, count)
    }

    /// Adds a variable without checking it for NULs.
    fn push_unseen(&mut self, name: &[u8], value: &[u8]) -> Result<(), ParamsError> {
        if name.is_empty() {
            return Err(ParamsError::NoName);
        }
        let room = PARAMS_BYTES_MAX.saturating_sub(self.text.len());
        if self.entries.len() >= PARAMS_MAX || name.len() + value.len() + 2 > room {
            return Err(ParamsError::TooMany);
        }
        if name == b"HTTP_PROXY" {
            return Ok(());
        }
        let known = Name::of(name);
        let (name, value) = (self.append(name), self.append(value));
        self.enter(known, Entry { name, value });
        Ok(())
    }

    /// Checks that there are no NULs from `start` on except those after names and values; `count`
    /// variables are before `start`. All at once: most strings are so short that separate checks
    /// take longer.
    fn look_for_nuls(&self, start: usize, count: usize) -> Result<(), ParamsError> {
        if nuls(&self.text[start..]) == 2 * (self.entries.len() - count) {
            Ok(())
        } else {
            Err(ParamsError::Nul)
        }
    }

    fn enter(&mut self, known: Option<Name>, entry: Entry) {
        self.entries.push(entry);
        if let Some(known) = known {
            // At most `PARAMS_MAX`.
            self.known[known as usize] = self.entries.len() as u32;
        }
    }

    fn append(&mut self, bytes: &[u8]) -> Text {
        let start = self.text.len();
        self.text.extend_from_slice(bytes);
        self.text.push(0);
        Text { start, length: bytes.len() }
    }

    /// Stores a string beside the variables, up to its first NUL.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub fn keep(&mut self, bytes: &[u8]) -> Result<Text, ParamsError> {
        let bytes = until_nul(bytes);
        let room = PARAMS_BYTES_MAX.saturating_sub(self.text.len());
        if bytes.len() >= room {
            return Err(ParamsError::TooMany);
        }
        Ok(self.append(bytes))
    }

    /// Sets a variable of a foreign request, and replaces its old value. Variables without a name
    /// and `HTTP_PROXY` are ignored; names and values end before their first NUL, as in php-fpm.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub fn set(&mut self, name: &[u8], value: &[u8]) -> Result<(), ParamsError> {
        let value = self.keep(value)?;
        self.set_to(name, value)
    }

    /// As [`set`](Self::set), with a stored string.
    ///
    /// # Errors
    ///
    /// When it does not fit.
    pub fn set_to(&mut self, name: &[u8], value: Text) -> Result<(), ParamsError> {
        let name = until_nul(name);
        if name.is_empty() || name == b"HTTP_PROXY" {
            return Ok(());
        }
        let known = Name::of(name);
        if let Some(at) = self.place_of(known, name) {
            self.entries[at].value = value;
            return Ok(());
        }
        if self.entries.len() >= PARAMS_MAX {
            return Err(ParamsError::TooMany);
        }
        let print = print(name);
        let name = self.keep(name)?;
        self.enter(known, Entry { name, value });
        self.prints.push(print);
        Ok(())
    }

    /// Removes a variable of a foreign request.
    pub fn remove(&mut self, name: &[u8]) {
        let known = Name::of(name);
        let Some(at) = self.place_of(known, name) else {
            return;
        };
        self.entries.remove(at);
        self.prints.remove(at);
        if let Some(known) = known {
            self.known[known as usize] = 0;
        }
        for place in &mut self.known {
            *place -= u32::from(*place as usize > at);
        }
    }

    fn place_of(&self, known: Option<Name>, name: &[u8]) -> Option<usize> {
        if let Some(known) = known {
            return self.place_of_known(known);
        }
        let print = print(name);
        let mut from = 0;
        while let Some(found) = self.prints[from..].iter().position(|one| *one == print) {
            let at = from + found;
            if self.bytes(self.entries[at].name) == name {
                return Some(at);
            }
            from = at + 1;
        }
        None
    }

    fn place_of_known(&self, name: Name) -> Option<usize> {
        (self.known[name as usize] as usize).checked_sub(1)
    }

    /// The value of a known variable, as a stored string.
    pub fn text_of(&self, name: Name) -> Option<Text> {
        Some(self.entries[self.place_of_known(name)?].value)
    }

    /// The value of a known variable.
    pub fn value_of(&self, name: Name) -> Option<&[u8]> {
        self.text_of(name).map(|value| self.bytes(value))
    }

    /// The bytes of a stored string, without its NUL; empty for one from before it was cleared.
    pub fn bytes(&self, text: Text) -> &[u8] {
        self.text.get(text.start..text.start + text.length).unwrap_or_default()
    }

    /// As [`bytes`](Self::bytes), with the NUL.
    pub(crate) fn bytes_with_nul(&self, text: Text) -> &[u8] {
        self.text.get(text.start..=text.start + text.length).unwrap_or(b"\0")
    }

    /// Sets the variables of a FastCGI PARAMS stream for a foreign request, see [`set`](Self::set).
    ///
    /// # Errors
    ///
    /// As [`set`](Self::set), and when the bytes end inside a pair.
    pub fn set_pairs(&mut self, mut pairs: &[u8]) -> Result<(), ParamsError> {
        while !pairs.is_empty() {
            let name_length = take_length(&mut pairs)?;
            let value_length = take_length(&mut pairs)?;
            let name = take(&mut pairs, name_length)?;
            let value = take(&mut pairs, value_length)?;
            self.set(name, value)?;
        }
        Ok(())
    }

    /// Adds the name-value pairs of a FastCGI PARAMS stream (FastCGI specification section 3.4),
    /// which must be complete.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), and when the bytes end inside a pair.
    pub fn push_pairs(&mut self, mut pairs: &[u8]) -> Result<(), ParamsError> {
        let (start, count) = (self.text.len(), self.entries.len());
        while !pairs.is_empty() {
            let name_length = take_length(&mut pairs)?;
            let value_length = take_length(&mut pairs)?;
            let name = take(&mut pairs, name_length)?;
            let value = take(&mut pairs, value_length)?;
            self.push_unseen(name, value)?;
        }
        self.look_for_nuls(start, count)
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter().rev().find(|(candidate, _)| *candidate == name).map(|(_, value)| value)
    }

    /// All variables with their values, in their order of arrival.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        let entries = self.entries.iter();
        entries.map(|entry| (self.bytes(entry.name), self.bytes(entry.value)))
    }

    /// All variables with their values in the order that scripts see, each slice with its NUL.
    pub(crate) fn iter_nul_terminated(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let count = self.entries.len();
        (0..count).map(move |at| {
            let at = if self.foreign { count - 1 - at } else { at };
            let entry = self.entries[at];
            (self.bytes_with_nul(entry.name), self.bytes_with_nul(entry.value))
        })
    }
}

/// Counts NULs, in pieces whose count fits in a byte: the compiler vectorises it to 16 bytes at
/// once.
fn nuls(bytes: &[u8]) -> usize {
    let of_piece = |piece: &[u8]| piece.iter().map(|byte| u8::from(*byte == 0)).sum::<u8>();
    bytes.chunks(255).map(|piece| usize::from(of_piece(piece))).sum()
}

fn until_nul(bytes: &[u8]) -> &[u8] {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => &bytes[..end],
        None => bytes,
    }
}

/// A hash of a name: its length and its last bytes.
fn print(name: &[u8]) -> u64 {
    let tail = &name[name.len().saturating_sub(7)..];
    let mut bytes = [0; 8];
    bytes[..tail.len()].copy_from_slice(tail);
    bytes[7] = name.len() as u8;
    u64::from_le_bytes(bytes)
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], ParamsError> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or(ParamsError::CutOff)?;
    *bytes = rest;
    Ok(taken)
}

/// One byte below 128, or four with the highest bit set.
fn take_length(bytes: &mut &[u8]) -> Result<usize, ParamsError> {
    let first = *bytes.first().ok_or(ParamsError::CutOff)?;
    if first < 0x80 {
        *bytes = &bytes[1..];
        return Ok(usize::from(first));
    }
    match take(bytes, 4)? {
        &[a, b, c, d] => Ok(u32::from_be_bytes([a & 0x7f, b, c, d]) as usize),
        _ => Err(ParamsError::CutOff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_with_short_and_long_lengths_are_read() {
        let long = vec![b'v'; 300];
        let mut pairs = b"\x01\x02AXY\x01\x80\x00\x01\x2cB".to_vec();
        pairs.extend_from_slice(&long);
        let mut params = Params::new();
        params.push_pairs(&pairs).expect("the pairs are complete");
        assert_eq!(params.get(b"A"), Some(&b"XY"[..]));
        assert_eq!(params.get(b"B"), Some(&long[..]));
        assert_eq!(params.get(b"C"), None);
    }

    #[test]
    fn pairs_cut_off_anywhere_are_refused() {
        let pairs = b"\x01\x02AXY\x81";
        for end in [1, 2, 3, 4, 6] {
            assert_eq!(Params::new().push_pairs(&pairs[..end]), Err(ParamsError::CutOff), "{end}");
        }
    }

    #[test]
    fn a_nul_is_refused() {
        assert_eq!(Params::new().push(b"A", b"x\0.jpg"), Err(ParamsError::Nul));
        assert_eq!(Params::new().push(b"A\0", b"x"), Err(ParamsError::Nul));
        let mut params = Params::new();
        params.push_pairs(b"\x01\x00A\x01\x01BC").expect("an empty value has none");
        for pairs in [&b"\x01\x02Ax\0\x01\x01BC"[..], b"\x01\x01BC\x02\x00A\0"] {
            assert_eq!(params.push_pairs(pairs), Err(ParamsError::Nul));
            params.clear();
        }
    }

    #[test]
    fn the_later_of_two_variables_of_one_name_holds() {
        let mut params = Params::new();
        params.push(b"A", b"1").expect("there is room");
        params.push(b"A", b"2").expect("there is room");
        assert_eq!(params.get(b"A"), Some(&b"2"[..]));
    }

    #[test]
    fn http_proxy_is_dropped() {
        let mut params = Params::new();
        params.push(b"HTTP_PROXY", b"evil:80").expect("it is no error");
        assert_eq!(params.iter().count(), 0);
    }

    fn shown(params: &Params) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).replace('\0', "");
        let one = |(name, value)| format!("{}={}", text(name), text(value));
        params.iter_nul_terminated().map(one).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn foreign_variables_are_kept_and_shown_as_php_fpm_does() {
        let mut params = Params::new();
        params.clear_for_foreign();
        params
            .set_pairs(b"\x01\x01A1\x01\x01B2\x01\x01C3\x01\x03Bx\0y\x00\x01-\x0a\x01HTTP_PROXYp")
            .expect("the pairs are complete");
        assert_eq!(shown(&params), "C=3 B=x A=1");
        params.remove(b"A");
        params.remove(b"A");
        params.set(b"A", b"9").expect("there is room");
        params.set(b"C", b"").expect("there is room");
        assert_eq!(shown(&params), "A=9 C= B=x");
        params.clear();
        params.push(b"A", b"1").expect("there is room");
        params.push(b"B", b"2").expect("there is room");
        assert_eq!(shown(&params), "A=1 B=2");
    }

    #[test]
    fn names_that_look_alike_are_told_apart() {
        let mut params = Params::new();
        params.clear_for_foreign();
        for name in ["HTTP_XY_ABCDEFG", "HTTP_XZ_ABCDEFG", "REDIRECT_URL", "X"] {
            params.set(name.as_bytes(), name.as_bytes()).expect("there is room");
        }
        params.set(b"HTTP_XZ_ABCDEFG", b"2").expect("there is room");
        assert_eq!(params.get(b"HTTP_XY_ABCDEFG"), Some(&b"HTTP_XY_ABCDEFG"[..]));
        assert_eq!(params.get(b"HTTP_XZ_ABCDEFG"), Some(&b"2"[..]));
        assert_eq!(params.iter().count(), 4);
    }

    #[test]
    fn room_is_bounded() {
        let half = vec![b'x'; PARAMS_BYTES_MAX / 2];
        let mut params = Params::new();
        params.push(b"A", &half).expect("the first half fits");
        assert_eq!(params.push(b"B", &half), Err(ParamsError::TooMany));
        params.clear();
        params.push(b"B", &half).expect("there is room again");
    }
}
