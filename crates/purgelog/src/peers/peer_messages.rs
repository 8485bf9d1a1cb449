//! Messages between nodes: a length, a kind, and fields of fixed order. The other end has shown
//! that it has the secret, and may still be another version, or broken: each field is checked.

use std::net::SocketAddr;

use maitred_control::purge_log::MAX_ORDER_BYTES;

/// Longest message, in bytes, without its length.
pub const MAX_MESSAGE_BYTES: usize = MAX_ORDER_BYTES + 64;

/// The protocol and its version.
const MAGIC: &[u8; 8] = b"maitred1";

/// Bytes of a length.
const LENGTH_BYTES: usize = 4;

/// The name of a log: of one process, which a server starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogName {
    /// The start of the server: random.
    pub server: u64,
    /// The process: random.
    pub process: u64,
}

/// A place in the log of a node: all purges up to it are applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    /// The log.
    pub log: LogName,
    /// The number of the purge; 0: before the first.
    pub number: u64,
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerMessage {
    /// The first one: which node follows the log of which one.
    Hello {
        /// The address of the node that follows.
        from: SocketAddr,
        /// The address of the node that it follows.
        to: SocketAddr,
        /// What it has applied.
        known: Option<LogPosition>,
    },
    /// The log, and what comes next.
    Begin {
        /// The log.
        log: LogName,
        /// The purges after this one come next.
        after: u64,
        /// What was before is not known to be complete: all pages are to be dropped.
        is_reset: bool,
    },
    /// A purge.
    Purge {
        /// Its number.
        number: u64,
        /// The purge.
        payload: String,
    },
    /// The follower has applied all purges up to this one.
    Applied {
        /// Its number.
        number: u64,
    },
    /// Is there more?
    Ping {
        /// A number, which comes back.
        number: u64,
    },
    /// The reply to a ping.
    Pong {
        /// Its number.
        number: u64,
        /// The last purge of the log.
        last: u64,
    },
    /// The follower is not in the list of this node, which does not wait for it.
    Refused,
    /// What the follower's dashboard shows of it. Only a node of version 2 knows this
    /// ([`super::peer_identity::VERSION_2`]).
    Figures {
        /// Its name.
        name: String,
        /// The figures, as [`maitred_control::nodes::NodeFigures`] writes them.
        text: String,
    },
}

/// What is no message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BadMessage;

impl PeerMessage {
    /// Its bytes. A purge that is too long has none.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = Vec::new();
        match self {
            PeerMessage::Hello { from, to, known } => {
                body.push(0);
                body.extend(MAGIC);
                for address in [from, to] {
                    let text = address.to_string();
                    body.push(u8::try_from(text.len()).unwrap_or_default());
                    body.extend(text.as_bytes());
                }
                body.push(u8::from(known.is_some()));
                if let Some(LogPosition { log, number }) = known {
                    numbers(&mut body, &[log.server, log.process, *number]);
                }
            }
            PeerMessage::Begin { log, after, is_reset } => {
                body.extend([1, u8::from(*is_reset)]);
                numbers(&mut body, &[log.server, log.process, *after]);
            }
            PeerMessage::Purge { number, payload } => {
                body.push(2);
                numbers(&mut body, &[*number]);
                body.extend(payload.as_bytes());
            }
            PeerMessage::Applied { number } => {
                body.push(3);
                numbers(&mut body, &[*number]);
            }
            PeerMessage::Ping { number } => {
                body.push(4);
                numbers(&mut body, &[*number]);
            }
            PeerMessage::Pong { number, last } => {
                body.push(5);
                numbers(&mut body, &[*number, *last]);
            }
            PeerMessage::Refused => body.push(6),
            PeerMessage::Figures { name, text } => {
                body.extend([7, u8::try_from(name.len()).unwrap_or_default()]);
                body.extend(name.as_bytes());
                body.extend(text.as_bytes());
            }
        }
        let length = u32::try_from(body.len()).unwrap_or_default();
        [length.to_be_bytes().as_slice(), &body].concat()
    }

    /// The message at the start of these bytes, and its length, if it is complete.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &[u8]) -> Result<Option<(PeerMessage, usize)>, BadMessage> {
        let Some((length, rest)) = bytes.split_first_chunk::<LENGTH_BYTES>() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadMessage)?;
        if length > MAX_MESSAGE_BYTES {
            return Err(BadMessage);
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let mut fields = Fields(body);
        let message = fields.message().filter(|_| fields.0.is_empty()).ok_or(BadMessage)?;
        Ok(Some((message, LENGTH_BYTES + length)))
    }
}

fn numbers(body: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| body.extend(number.to_be_bytes()));
}

/// What is not yet read of a message.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn message(&mut self) -> Option<PeerMessage> {
        Some(match self.byte()? {
            0 => {
                self.0 = self.0.strip_prefix(MAGIC)?;
                let (from, to) = (self.address()?, self.address()?);
                let known = match self.byte()? {
                    0 => None,
                    1 => Some(LogPosition { log: self.log()?, number: self.number()? }),
                    _ => return None,
                };
                PeerMessage::Hello { from, to, known }
            }
            1 => {
                let is_reset = match self.byte()? {
                    0 => false,
                    1 => true,
                    _ => return None,
                };
                PeerMessage::Begin { is_reset, log: self.log()?, after: self.number()? }
            }
            2 => {
                let number = self.number()?;
                let payload = str::from_utf8(std::mem::take(&mut self.0)).ok()?.to_owned();
                PeerMessage::Purge { number, payload }
            }
            3 => PeerMessage::Applied { number: self.number()? },
            4 => PeerMessage::Ping { number: self.number()? },
            5 => PeerMessage::Pong { number: self.number()?, last: self.number()? },
            6 => PeerMessage::Refused,
            7 => {
                let name = self.short_text()?.to_owned();
                let text = str::from_utf8(std::mem::take(&mut self.0)).ok()?.to_owned();
                PeerMessage::Figures { name, text }
            }
            _ => return None,
        })
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u64::from_be_bytes(*first))
    }

    fn log(&mut self) -> Option<LogName> {
        Some(LogName { server: self.number()?, process: self.number()? })
    }

    fn address(&mut self) -> Option<SocketAddr> {
        self.short_text()?.parse().ok()
    }

    /// A text behind its length in a byte.
    fn short_text(&mut self) -> Option<&str> {
        let length = usize::from(self.byte()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        str::from_utf8(text).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_read_as_they_are_written_however_they_arrive() {
        let log = LogName { server: 5, process: u64::MAX };
        let hello = |known| PeerMessage::Hello {
            from: "10.0.0.1:7700".parse().unwrap(),
            to: "[fd00::1]:7700".parse().unwrap(),
            known,
        };
        for message in [
            hello(None),
            hello(Some(LogPosition { log, number: 7 })),
            PeerMessage::Begin { log, after: 3, is_reset: true },
            PeerMessage::Purge { number: 4, payload: "{\"a\":\"ä\"}".to_owned() },
            PeerMessage::Applied { number: 4 },
            PeerMessage::Ping { number: 1 },
            PeerMessage::Pong { number: 1, last: 4 },
            PeerMessage::Refused,
            PeerMessage::Figures { name: "n1".to_owned(), text: "{}".to_owned() },
            PeerMessage::Figures { name: String::new(), text: String::new() },
        ] {
            let bytes = [message.encode(), vec![0]].concat();
            let length = bytes.len() - 1;
            assert_eq!(PeerMessage::parse(&bytes), Ok(Some((message, length))));
            for end in 0..length {
                assert_eq!(PeerMessage::parse(&bytes[..end]), Ok(None));
            }
        }
    }

    #[test]
    fn what_is_no_message_is_refused() {
        let long = u32::try_from(MAX_MESSAGE_BYTES + 1).unwrap().to_be_bytes();
        assert_eq!(PeerMessage::parse(&long), Err(BadMessage));
        let framed = |body: &[u8]| {
            let length = u32::try_from(body.len()).unwrap().to_be_bytes();
            [length.as_slice(), body].concat()
        };
        let eight = [1; 8];
        for wrong in [
            &[][..],
            &[9],
            &[3, 1, 2],
            &[7],
            &[7, 2, b'n'],
            &[7, 1, 0xff],
            &[7, 0, 0xff],
            &[[3].as_slice(), &eight, &[0]].concat(),
            &[[2].as_slice(), &eight, &[0xff]].concat(),
            &[[0].as_slice(), b"maitred0"].concat(),
            &[[0].as_slice(), MAGIC, &[3], b"a:1"].concat(),
            b"GET / HTTP/1.1",
        ] {
            assert_eq!(PeerMessage::parse(&framed(wrong)), Err(BadMessage), "{wrong:?}");
        }
    }
}
