//! Log collectors other than files: a syslog server (RFC 3164), and systemd's journal by its own
//! protocol (<https://systemd.io/JOURNAL_NATIVE_PROTOCOL/>).
//!
//! Each message is one datagram, and sending never waits: without buffer space it is lost, and the
//! sender gets an error. A collector that was restarted is found again with the next message.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::sync::{PoisonError, RwLock};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::clock::format_local;

/// Longest message to a syslog server in bytes, which is rsyslog's own limit; longer ones are
/// truncated.
const SYSLOG_BYTES: usize = 8 * 1024;

/// Longest message to the journal in bytes: it fits into one datagram.
const JOURNAL_BYTES: usize = 64 * 1024;

/// Severity of a message (RFC 5424 §6.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Severity {
    /// Immediate action is required.
    Alert = 1,
    /// An error.
    Error = 3,
    /// A warning.
    Warning = 4,
    /// Normal, but significant.
    Notice = 5,
    /// For information.
    Info = 6,
    /// For debugging.
    Debug = 7,
}

/// The address of a collector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket for datagrams, by its path.
    Unix(PathBuf),
    /// A UDP address.
    Udp(SocketAddr),
}

/// The format of messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// The BSD form of syslog (RFC 3164 §4.1).
    Syslog {
        /// The facility's number, from 0 to 23.
        facility: u8,
        /// The identifier of messages.
        tag: String,
        /// Whether they contain this machine's name.
        hostname: bool,
    },
    /// The journal's own, with fields.
    Journal,
}

/// A field of a message to the journal: its name (capital letters, digits and `_`) and its value.
pub type Field<'a> = (&'a str, &'a [u8]);

/// A connection to a collector.
#[derive(Debug)]
pub struct Collector {
    address: Address,
    form: Form,
    /// This machine's name, if messages contain it.
    hostname: Vec<u8>,
    socket: RwLock<Option<Socket>>,
}

#[derive(Debug)]
enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Collector {
    /// The collector at `address`, connected with the first message.
    pub fn new(address: Address, form: Form) -> Collector {
        let hostname = match form {
            Form::Syslog { hostname: true, .. } => {
                rustix::system::uname().nodename().to_bytes().to_vec()
            }
            Form::Syslog { .. } | Form::Journal => Vec::new(),
        };
        Collector { address, form, hostname, socket: RwLock::new(None) }
    }

    /// The format of messages.
    pub fn form(&self) -> &Form {
        &self.form
    }

    /// A message in its format; syslog has no `fields`. `severity` is a number from 0 to 7.
    pub fn message(&self, severity: u8, text: &[u8], fields: &[Field<'_>]) -> Vec<u8> {
        let text = text.strip_suffix(b"\n").unwrap_or(text);
        match &self.form {
            Form::Syslog { facility, tag, .. } => {
                let priority = u16::from(*facility) * 8 + u16::from(severity);
                let mut out = format!("<{priority}>").into_bytes();
                let now = SystemTime::now().duration_since(UNIX_EPOCH);
                let second = now.map_or(0, |now| now.as_secs());
                let second = i64::try_from(second).unwrap_or(i64::MAX);
                out.extend(format_local(second, c"%b %e %H:%M:%S "));
                if !self.hostname.is_empty() {
                    out.extend_from_slice(&self.hostname);
                    out.push(b' ');
                }
                out.extend(format!("{tag}[{}]: ", std::process::id()).into_bytes());
                out.extend_from_slice(text);
                out.truncate(SYSLOG_BYTES);
                out
            }
            Form::Journal => {
                let begin = format!("PRIORITY={severity}\nSYSLOG_IDENTIFIER=maitred\n");
                let mut out = begin.into_bytes();
                let text = &text[..text.len().min(JOURNAL_BYTES)];
                write_field(&mut out, "MESSAGE", text);
                for (name, value) in fields {
                    write_field(&mut out, name, &value[..value.len().min(SYSLOG_BYTES)]);
                }
                out
            }
        }
    }

    /// Sends a message of [`Collector::message`].
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] when the buffer is full, and otherwise when no collector is
    /// there.
    pub fn send(&self, message: &[u8]) -> io::Result<()> {
        {
            let socket = self.socket.read().unwrap_or_else(PoisonError::into_inner);
            if let Some(socket) = &*socket {
                match socket.send(message) {
                    // It has exited, or another listens there now; or the datagram before this one
                    // was rejected, which concerns the previous message.
                    Err(why) if why.kind() != io::ErrorKind::WouldBlock => {}
                    done => return done,
                }
            }
        }
        let mut socket = self.socket.write().unwrap_or_else(PoisonError::into_inner);
        *socket = None;
        let opened = Socket::open(&self.address)?;
        let sent = opened.send(message);
        *socket = Some(opened);
        sent
    }
}

impl Socket {
    fn open(address: &Address) -> io::Result<Socket> {
        match address {
            Address::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.set_nonblocking(true)?;
                socket.connect(path)?;
                Ok(Socket::Unix(socket))
            }
            Address::Udp(address) => {
                let any = match address {
                    SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                    SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
                };
                let socket = UdpSocket::bind(any)?;
                socket.set_nonblocking(true)?;
                socket.connect(address)?;
                Ok(Socket::Udp(socket))
            }
        }
    }

    fn send(&self, message: &[u8]) -> io::Result<()> {
        match self {
            Socket::Unix(socket) => socket.send(message).map(drop),
            Socket::Udp(socket) => socket.send(message).map(drop),
        }
    }
}

/// A value of several lines is preceded by its length.
fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    if value.contains(&b'\n') {
        out.push(b'\n');
        out.extend_from_slice(&(value.len() as u64).to_le_bytes());
    } else {
        out.push(b'=');
    }
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syslog(address: Address, hostname: bool) -> Collector {
        let form = Form::Syslog { facility: 23, tag: "shop".to_owned(), hostname };
        Collector::new(address, form)
    }

    fn text(bytes: &[u8]) -> String {
        String::from_utf8_lossy(bytes).into_owned()
    }

    #[test]
    fn a_message_to_syslog_has_priority_time_and_tag_and_is_no_longer_than_it_may_be() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let collector = syslog(Address::Udp(server.local_addr().unwrap()), true);
        let message = collector.message(Severity::Info as u8, b"a line\n", &[("X", b"y")]);
        collector.send(&message).unwrap();
        let mut bytes = [0; SYSLOG_BYTES];
        let (count, _) = server.recv_from(&mut bytes).unwrap();
        let said = text(&bytes[..count]);
        let host = text(rustix::system::uname().nodename().to_bytes());
        let end = format!(" {host} shop[{}]: a line", std::process::id());
        assert!(said.starts_with("<190>") && said.ends_with(&end), "{said}");
        let long = collector.message(3, &[b'x'; 2 * SYSLOG_BYTES], &[]);
        assert_eq!(long.len(), SYSLOG_BYTES);
    }

    #[test]
    fn a_message_to_the_journal_has_fields_and_one_of_several_lines_its_length() {
        let journal = Collector::new(Address::Unix("/nowhere".into()), Form::Journal);
        let message = journal.message(4, b"one\ntwo", &[("MAITRED_POOL", b"www")]);
        let expected =
            b"PRIORITY=4\nSYSLOG_IDENTIFIER=maitred\nMESSAGE\n\x07\0\0\0\0\0\0\0one\ntwo\n\
                         MAITRED_POOL=www\n";
        assert_eq!(text(&message), text(expected));
        let why = journal.send(&message).unwrap_err();
        assert_eq!(why.kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn nobody_is_waited_for_and_who_comes_back_is_found_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let server = UnixDatagram::bind(&path).unwrap();
        let collector = syslog(Address::Unix(path.clone()), false);
        let sent = (0..1_000_000).map(|_| collector.send(&[b'x'; 4096]));
        let full = sent.filter_map(Result::err).next().unwrap();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        drop(server);
        std::fs::remove_file(&path).unwrap();
        assert!(collector.send(b"lost").is_err());
        let server = UnixDatagram::bind(&path).unwrap();
        collector.send(b"found").unwrap();
        let mut bytes = [0; 16];
        let count = server.recv(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"found");
    }
}
