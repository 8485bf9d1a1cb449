//! The protocol of Redis, version 2 (RESP2): commands, and replies of a server that may be hostile.
//! The crate redis would add 34 crates for this, and redis-protocol recurses as deep as the server
//! likes.

/// Longest reply, in bytes: as many entries of the purge log as are read at a time, and more.
pub const MAX_REPLY_BYTES: usize = 4 * 1024 * 1024;

/// Most elements of a list.
const MAX_ELEMENTS: usize = 8192;

/// How deep lists may contain lists. Those of XREAD within a transaction have five.
const MAX_DEPTH: u32 = 8;

/// Longest line, in bytes: a status, an error or a number.
const MAX_LINE_BYTES: usize = 4096;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A string or a status.
    Text(Vec<u8>),
    /// A number.
    Number(i64),
    /// No value.
    Nothing,
    /// A list.
    List(Vec<Value>),
    /// An error.
    Error(String),
}

impl Value {
    /// The text, if it is one in UTF-8.
    pub fn text(&self) -> Option<&str> {
        match self {
            Value::Text(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// The elements of a list; none of no value.
    pub fn list(&self) -> Option<&[Value]> {
        match self {
            Value::List(values) => Some(values),
            Value::Nothing => Some(&[]),
            _ => None,
        }
    }
}

/// Bytes that are no reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// Reads a reply at the start of `bytes`. Returns it and its length, or nothing if it is
/// incomplete.
///
/// # Errors
/// When it is none, or larger than any that is expected.
pub fn parse(bytes: &[u8]) -> Result<Option<(Value, usize)>, Malformed> {
    let mut reader = Reader { bytes, at: 0 };
    Ok(reader.value(MAX_DEPTH)?.map(|value| (value, reader.at)))
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: u32) -> Result<Option<Value>, Malformed> {
        let Some(line) = self.line()? else { return Ok(None) };
        let (kind, rest) = line.split_first().ok_or(Malformed)?;
        let value = match kind {
            b'+' => Value::Text(rest.to_vec()),
            b'-' => Value::Error(String::from_utf8_lossy(rest).into_owned()),
            b':' => Value::Number(number(rest)?),
            b'$' => match length(rest, MAX_REPLY_BYTES)? {
                None => Value::Nothing,
                Some(length) => match self.text(length)? {
                    Some(text) => Value::Text(text.to_vec()),
                    None => return Ok(None),
                },
            },
            b'*' => match length(rest, MAX_ELEMENTS)? {
                None => Value::Nothing,
                Some(length) => {
                    let depth = depth.checked_sub(1).ok_or(Malformed)?;
                    let mut values = Vec::new();
                    for _ in 0..length {
                        let Some(value) = self.value(depth)? else { return Ok(None) };
                        values.push(value);
                    }
                    Value::List(values)
                }
            },
            _ => return Err(Malformed),
        };
        Ok(Some(value))
    }

    /// The next line, without its end.
    fn line(&mut self) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(end) = rest.iter().take(MAX_LINE_BYTES).position(|byte| *byte == b'\n') else {
            return if rest.len() < MAX_LINE_BYTES { Ok(None) } else { Err(Malformed) };
        };
        self.at += end + 1;
        rest[..end].strip_suffix(b"\r").map(Some).ok_or(Malformed)
    }

    fn text(&mut self, length: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let Some(text) = rest.get(..length + 2) else { return Ok(None) };
        self.at += length + 2;
        text.strip_suffix(b"\r\n").map(Some).ok_or(Malformed)
    }
}

fn number(digits: &[u8]) -> Result<i64, Malformed> {
    let text = std::str::from_utf8(digits).map_err(|_| Malformed)?;
    text.parse().map_err(|_| Malformed)
}

/// A length, which is -1 for no value.
fn length(digits: &[u8], most: usize) -> Result<Option<usize>, Malformed> {
    match number(digits)? {
        -1 => Ok(None),
        other => match usize::try_from(other) {
            Ok(length) if length <= most => Ok(Some(length)),
            _ => Err(Malformed),
        },
    }
}

/// Appends a command.
pub fn command(words: &[&[u8]], to: &mut Vec<u8>) {
    to.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        to.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        to.extend_from_slice(word);
        to.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Result<Option<(Value, usize)>, Malformed> {
        parse(text.as_bytes())
    }

    #[test]
    fn replies_are_read_and_what_is_incomplete_is_waited_for() {
        let text = "*5\r\n+OK\r\n:-7\r\n$5\r\na\r\nbc\r\n$-1\r\n*1\r\n-ERR no\r\n";
        let expected = Value::List(vec![
            Value::Text(b"OK".to_vec()),
            Value::Number(-7),
            Value::Text(b"a\r\nbc".to_vec()),
            Value::Nothing,
            Value::List(vec![Value::Error("ERR no".to_owned())]),
        ]);
        assert_eq!(all(&format!("{text}+next")), Ok(Some((expected, text.len()))));
        for end in 0..text.len() {
            assert_eq!(all(&text[..end]), Ok(None), "{end}");
        }
    }

    #[test]
    fn what_no_server_sends_is_refused_at_once() {
        let deep = "*1\r\n".repeat(100_000);
        let long = "+".repeat(5000);
        for wrong in [
            "HTTP/1.1 400\r\n",
            "\r\n",
            "$9999999999\r\n",
            "*8193\r\n",
            "$-2\r\n",
            ":x\r\n",
            "+a\n",
            "$1\r\nabc",
            &deep,
            &long,
        ] {
            assert_eq!(all(wrong), Err(Malformed), "{wrong:.20}");
        }
    }

    #[test]
    fn each_limit_is_the_last_size_that_is_taken() {
        let line = |length: usize| format!("+{}\r\n", "a".repeat(length - 3));
        assert!(matches!(all(&line(MAX_LINE_BYTES)), Ok(Some((_, MAX_LINE_BYTES)))));
        assert_eq!(all(&line(MAX_LINE_BYTES + 1)), Err(Malformed));
        assert_eq!(all(&"+".repeat(MAX_LINE_BYTES - 1)), Ok(None));
        assert_eq!(all(&"+".repeat(MAX_LINE_BYTES)), Err(Malformed));
        let lists = |depth: u32| "*1\r\n".repeat(depth as usize) + ":1\r\n";
        assert!(matches!(all(&lists(MAX_DEPTH)), Ok(Some(_))));
        assert_eq!(all(&lists(MAX_DEPTH + 1)), Err(Malformed));
        for (kind, most) in [('*', MAX_ELEMENTS), ('$', MAX_REPLY_BYTES)] {
            assert_eq!(all(&format!("{kind}{most}\r\n")), Ok(None));
            assert_eq!(all(&format!("{kind}{}\r\n", most + 1)), Err(Malformed));
        }
    }

    #[test]
    fn a_text_is_one_in_utf_8_and_no_value_is_an_empty_list() {
        assert_eq!(Value::Text(b"a".to_vec()).text(), Some("a"));
        assert_eq!(Value::Text(b"\xff".to_vec()).text(), None);
        assert_eq!(Value::Error("a".to_owned()).text(), None);
        assert_eq!(Value::Nothing.list(), Some(&[][..]));
        assert_eq!(Value::List(vec![Value::Number(1)]).list(), Some(&[Value::Number(1)][..]));
        assert_eq!(Value::Text(Vec::new()).list(), None);
    }

    #[test]
    fn a_command_is_a_list_of_its_words() {
        let mut bytes = Vec::new();
        command(&[b"GET", b"a\r\n"], &mut bytes);
        assert_eq!(bytes, b"*2\r\n$3\r\nGET\r\n$3\r\na\r\n\r\n");
    }
}
