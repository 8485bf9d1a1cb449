//! Log collectors: syslog, in nginx's words, and journald.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::mistakes::quoted;

/// The socket of the system's own syslog (syslog(3)).
const LOCAL_SERVER: &str = "/dev/log";

/// The socket of the journal. One of a namespace (`LogNamespace=`) has its own.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// The port of syslog over UDP (RFC 5426 §3.3).
const SYSLOG_PORT: u16 = 514;

/// Longest tag in bytes (RFC 3164 §4.1.3).
const MAX_TAG_BYTES: usize = 32;

/// Longest path of a Unix socket in bytes: `sun_path` has 108 with its final NUL (unix(7)).
const MAX_SOCKET_PATH_BYTES: usize = 107;

/// The default tag.
const DEFAULT_TAG: &str = "maitred";

/// The default facility: nginx's.
const DEFAULT_FACILITY: u8 = 23;

/// The default severity of access log lines: `info`.
const DEFAULT_SEVERITY: u8 = 6;

/// The facilities in the order of their numbers (RFC 5424 §6.2.1), by nginx's names.
const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv",
    "ftp", "ntp", "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4",
    "local5", "local6", "local7",
];

/// The severities in the order of their numbers (RFC 5424 §6.2.1), by nginx's names.
const SEVERITIES: [&str; 8] =
    ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"];

/// A log collector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Collector {
    /// systemd's journal, over its native protocol: the absolute path of its socket.
    Journald(PathBuf),
    /// A syslog server.
    Syslog(Syslog),
}

/// The options of a syslog server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Syslog {
    /// Its address.
    pub server: SyslogServer,
    /// The facility's number, from 0 to 23.
    pub facility: u8,
    /// The severity of an access log line, from 0 to 7.
    pub severity: u8,
    /// The tag of lines.
    pub tag: String,
    /// Whether lines have this machine's name.
    pub hostname: bool,
}

/// The address of a syslog server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SyslogServer {
    /// A Unix socket, by its absolute path.
    Unix(PathBuf),
    /// An address, over UDP.
    Udp(SocketAddr),
}

impl std::fmt::Display for Collector {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Collector::Journald(path) => write!(out, "journald at {}", path.display()),
            Collector::Syslog(syslog) => match &syslog.server {
                SyslogServer::Unix(path) => write!(out, "syslog at {}", path.display()),
                SyslogServer::Udp(address) => write!(out, "syslog at {address}"),
            },
        }
    }
}

impl Collector {
    /// The collector that a text names, if it does.
    ///
    /// # Errors
    /// The reason, as the end of a sentence that starts with the setting's name.
    pub(crate) fn parse(text: &str) -> Option<Result<Collector, String>> {
        if text == "journald" {
            return Some(Ok(Collector::Journald(JOURNAL.into())));
        }
        if let Some(path) = text.strip_prefix("journald:") {
            return Some(socket(path).map(Collector::Journald));
        }
        let options = match text {
            "syslog" => "",
            _ => text.strip_prefix("syslog:")?,
        };
        Some(Syslog::parse(options).map(Collector::Syslog))
    }
}

impl Syslog {
    /// Parses nginx's options: `server=…,facility=…,severity=…,tag=…,nohostname`.
    fn parse(options: &str) -> Result<Syslog, String> {
        let mut syslog = Syslog {
            server: SyslogServer::Unix(LOCAL_SERVER.into()),
            facility: DEFAULT_FACILITY,
            severity: DEFAULT_SEVERITY,
            tag: DEFAULT_TAG.to_owned(),
            hostname: true,
        };
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match option.split_once('=') {
                Some(("server", server)) => syslog.server = SyslogServer::parse(server)?,
                Some(("facility", name)) => {
                    syslog.facility = number(&FACILITIES, "facility", name)?;
                }
                Some(("severity", name)) => {
                    syslog.severity = number(&SEVERITIES, "severity", name)?;
                }
                Some(("tag", tag)) => {
                    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./".contains(&byte);
                    if !(1..=MAX_TAG_BYTES).contains(&tag.len()) || !tag.bytes().all(good) {
                        let tag = quoted(tag);
                        return Err(format!(
                            "has the tag `{tag}`; expected 1 to {MAX_TAG_BYTES} letters, digits, \
                             `_`, `-`, `.` or `/`"
                        ));
                    }
                    tag.clone_into(&mut syslog.tag);
                }
                None if option == "nohostname" => syslog.hostname = false,
                _ => {
                    let option = quoted(option);
                    return Err(format!(
                        "has the unknown option `{option}`; expected server=, facility=, \
                         severity=, tag= or nohostname, with commas between them"
                    ));
                }
            }
        }
        // The machine's own server knows its name, and would take it for the tag (as glibc does).
        if matches!(syslog.server, SyslogServer::Unix(_)) {
            syslog.hostname = false;
        }
        Ok(syslog)
    }
}

impl SyslogServer {
    fn parse(text: &str) -> Result<SyslogServer, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return socket(path).map(SyslogServer::Unix);
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let alone = bare.unwrap_or(text).parse::<IpAddr>();
        let alone = alone.map(|ip| SocketAddr::new(ip, SYSLOG_PORT));
        let address = alone.or_else(|_| text.parse());
        address.map(SyslogServer::Udp).map_err(|_| {
            let text = quoted(text);
            format!(
                "has the server `{text}`; expected an IP address (names are not resolved), with \
                 or without a port, or unix:/path"
            )
        })
    }
}

/// A Unix socket's path.
fn socket(path: &str) -> Result<PathBuf, String> {
    if path.starts_with('/') && path.len() <= MAX_SOCKET_PATH_BYTES {
        return Ok(path.into());
    }
    Err(format!(
        "has the socket `{}`; expected an absolute path of at most {MAX_SOCKET_PATH_BYTES} bytes",
        quoted(path)
    ))
}

fn number(names: &[&str], what: &str, name: &str) -> Result<u8, String> {
    let found = names.iter().position(|known| *known == name);
    found.and_then(|number| u8::try_from(number).ok()).ok_or_else(|| {
        let (name, names) = (quoted(name), names.join(", "));
        format!("has the unknown {what} `{name}`; expected one of {names}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syslog(text: &str) -> Syslog {
        match Collector::parse(text) {
            Some(Ok(Collector::Syslog(syslog))) => syslog,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn why(text: &str) -> String {
        Collector::parse(text).unwrap().unwrap_err()
    }

    #[test]
    fn nginx_s_options_are_read() {
        let all = "syslog:server=192.0.2.1,facility=local0,severity=notice,tag=shop,nohostname";
        let read = syslog(all);
        assert_eq!(read.server, SyslogServer::Udp("192.0.2.1:514".parse().unwrap()));
        assert_eq!((read.facility, read.severity), (16, 5));
        assert_eq!((read.tag.as_str(), read.hostname), ("shop", false));
        let udp = |text: &str| SyslogServer::Udp(text.parse().unwrap());
        assert_eq!(syslog("syslog:server=[::1]:5140").server, udp("[::1]:5140"));
        assert_eq!(syslog("syslog:server=[::1]").server, udp("[::1]:514"));
        assert_eq!(syslog("syslog:server=10.0.0.1:99").server, udp("10.0.0.1:99"));
        let unix = SyslogServer::Unix("/run/log".into());
        assert_eq!(syslog("syslog:server=unix:/run/log").server, unix);
    }

    #[test]
    fn the_word_alone_is_the_machine_s_own() {
        let own = syslog("syslog");
        assert_eq!(own, syslog("syslog:"));
        assert_eq!(own.server, SyslogServer::Unix("/dev/log".into()));
        assert_eq!((own.facility, own.tag.as_str()), (23, "maitred"));
        let journal = |text: &str| Collector::parse(text).unwrap().unwrap();
        let at = |path: &str| Collector::Journald(path.into());
        assert_eq!(journal("journald"), at("/run/systemd/journal/socket"));
        assert_eq!(journal("journald:/run/other"), at("/run/other"));
        assert!(Collector::parse("log/access.log").is_none());
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert!(why("syslog:server=log.example").contains("expected an IP address"));
        assert!(why("syslog:server=unix:log").contains("an absolute path"));
        assert!(why("journald:socket").contains("an absolute path"));
        assert!(why("syslog:facility=local8").contains("unknown facility"));
        assert!(why("syslog:severity=loud").contains("unknown severity"));
        assert!(why("syslog:tag=a b").contains("the tag `a b`"));
        assert!(why("syslog:port=5").contains("unknown option"));
    }
}
