use std::fmt;

/// Most CGI variables a request may have.
pub const PARAMS_MAX: usize = 16 * 1024;

/// Most bytes the names and values of a request's CGI variables may take together.
pub const PARAMS_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A request's CGI variables (RFC 3875 section 4.1). Kept from request to request for its memory.
#[derive(Debug, Default)]
pub struct Params {
    /// Names and values, each with a NUL behind it.
    text: Vec<u8>,
    entries: Vec<Entry>,
}

/// Where a variable is in [`Params::text`]; lengths without the NULs.
#[derive(Clone, Copy, Debug)]
struct Entry {
    start: usize,
    name_length: usize,
    value_length: usize,
}

/// Why CGI variables were refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamsError {
    /// A name or value contains a NUL, which PHP would take for its end.
    Nul,
    /// A name is empty.
    NoName,
    /// A length points behind the end of the bytes.
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

    /// Forgets all variables.
    pub fn clear(&mut self) {
        self.text.clear();
        self.entries.clear();
    }

    /// Adds a variable. A second one of the same name replaces the first. `HTTP_PROXY` is dropped:
    /// libraries would take what a client sent for the proxy to use (<https://httpoxy.org>).
    ///
    /// # Errors
    ///
    /// When the variable has no name, contains a NUL, or there is no room for it.
    pub fn push(&mut self, name: &[u8], value: &[u8]) -> Result<(), ParamsError> {
        if name.is_empty() {
            return Err(ParamsError::NoName);
        }
        if name.contains(&0) || value.contains(&0) {
            return Err(ParamsError::Nul);
        }
        let room = PARAMS_BYTES_MAX.saturating_sub(self.text.len());
        if self.entries.len() >= PARAMS_MAX || name.len() + value.len() + 2 > room {
            return Err(ParamsError::TooMany);
        }
        if name == b"HTTP_PROXY" {
            return Ok(());
        }
        let start = self.text.len();
        self.text.extend_from_slice(name);
        self.text.push(0);
        self.text.extend_from_slice(value);
        self.text.push(0);
        self.entries.push(Entry {
            start,
            name_length: name.len(),
            value_length: value.len(),
        });
        Ok(())
    }

    /// Adds the name-value pairs of a FastCGI PARAMS stream (FastCGI specification section 3.4),
    /// which must be complete.
    ///
    /// # Errors
    ///
    /// As [`push`](Self::push), and when the bytes end in the middle of a pair.
    pub fn push_pairs(&mut self, mut pairs: &[u8]) -> Result<(), ParamsError> {
        while !pairs.is_empty() {
            let name_length = take_length(&mut pairs)?;
            let value_length = take_length(&mut pairs)?;
            let name = take(&mut pairs, name_length)?;
            let value = take(&mut pairs, value_length)?;
            self.push(name, value)?;
        }
        Ok(())
    }

    /// The value of a variable.
    pub fn get(&self, name: &[u8]) -> Option<&[u8]> {
        self.iter()
            .rev()
            .find(|(candidate, _)| *candidate == name)
            .map(|(_, value)| value)
    }

    /// All variables with their values, in their order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.iter_nul_terminated()
            .map(|(name, value)| (without_nul(name), without_nul(value)))
    }

    /// As [`iter`](Self::iter), each slice with the NUL at its end.
    pub(crate) fn iter_nul_terminated(&self) -> impl DoubleEndedIterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| {
            let value_start = entry.start + entry.name_length + 1;
            let name = &self.text[entry.start..value_start];
            (
                name,
                &self.text[value_start..=value_start + entry.value_length],
            )
        })
    }
}

fn without_nul(bytes: &[u8]) -> &[u8] {
    bytes.split_last().map_or(bytes, |(_, rest)| rest)
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
            assert_eq!(
                Params::new().push_pairs(&pairs[..end]),
                Err(ParamsError::CutOff),
                "{end}"
            );
        }
    }

    #[test]
    fn a_nul_is_refused() {
        assert_eq!(Params::new().push(b"A", b"x\0.jpg"), Err(ParamsError::Nul));
        assert_eq!(Params::new().push(b"A\0", b"x"), Err(ParamsError::Nul));
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
        params
            .push(b"HTTP_PROXY", b"evil:80")
            .expect("it is no error");
        assert_eq!(params.iter().count(), 0);
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
