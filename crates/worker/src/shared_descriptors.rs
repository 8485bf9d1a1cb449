//! Open descriptors of a booted application that its copies must not share.

use maitred_os::descriptors::{self, Descriptor};
use maitred_php::connected_at;

use crate::stderr;

/// The first bytes of a SQLite database (its file format, section 1.3).
const SQLITE: &[u8] = b"SQLite format 3\0";

/// Why a descriptor must not be in all copies, in one sentence; `None` if it may.
pub fn obstacle(open: &Descriptor) -> Option<String> {
    let Descriptor { target, peer, .. } = open;
    if target.starts_with("socket:") {
        let harmless =
            open.is_datagram && peer.as_deref().is_some_and(|peer| peer.starts_with('/'));
        let of = match peer {
            _ if harmless => return None,
            Some(peer) => {
                format!("a connection to {peer}{}{} is open", kind_of(peer), made_at(open))
            }
            None => "a socket is open".to_owned(),
        };
        return Some(format!(
            "{of} since its boot, which all copies would share; connect after maitred_snapshot(), \
             or disconnect before, or have it closed (boot_connections)"
        ));
    }
    if open.beginning.starts_with(SQLITE) {
        return Some(format!(
            "the SQLite database {target} is open, which must not be carried through a fork \
             (sqlite.org/howtocorrupt.html, 2.6); open it after maitred_snapshot(), or close it \
             before"
        ));
    }
    if open.is_character_device || open.only_appends {
        return None;
    }
    Some(format!(
        "{target} is open, in which all copies would have one position; close it before \
         maitred_snapshot()"
    ))
}

/// The same, but closes connections.
pub fn unless_closed(open: &Descriptor, pool: &str) -> Option<String> {
    let Some(peer) = &open.peer else {
        return obstacle(open);
    };
    // If there is no obstacle, nothing has to be done.
    obstacle(open)?;
    if let Err(error) = descriptors::hang_up(open.number) {
        return Some(format!("the connection to {peer} cannot be closed: {error}"));
    }
    stderr::say(&format!(
        "maitred-php: pool {pool}: the boot's connection to {peer}{}{} is closed, and copies \
         connect again (boot_connections)",
        kind_of(peer),
        made_at(open)
    ));
    None
}

/// The line that has opened a connection, if known.
fn made_at(open: &Descriptor) -> String {
    let at = connected_at(open.number);
    at.map_or(String::new(), |(file, line)| format!(" ({file}:{line})"))
}

/// The usual service at an address.
fn kind_of(peer: &str) -> &'static str {
    let port = peer.rsplit_once(':').map_or("", |(_, port)| port);
    match port {
        "3306" => " (MySQL)",
        "5432" => " (PostgreSQL)",
        "6379" => " (Redis)",
        "11211" => " (Memcached)",
        "5672" => " (AMQP)",
        _ if peer.contains("mysql") || peer.contains("maria") => " (MySQL)",
        _ if peer.contains("PGSQL") => " (PostgreSQL)",
        _ if peer.contains("redis") => " (Redis)",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(target: &str) -> Descriptor {
        Descriptor {
            number: 9,
            target: target.to_owned(),
            file: (0, 0),
            peer: None,
            is_datagram: false,
            only_appends: false,
            is_character_device: false,
            beginning: Vec::new(),
        }
    }

    #[test]
    fn what_copies_would_share_is_named_and_what_does_no_harm_is_not() {
        let mysql = Descriptor { peer: Some("127.0.0.1:3306".to_owned()), ..open("socket:[4711]") };
        let why = obstacle(&mysql).unwrap();
        assert!(why.contains("127.0.0.1:3306 (MySQL)"), "{why}");
        let syslog = Descriptor {
            peer: Some("/run/systemd/journal/dev-log".to_owned()),
            is_datagram: true,
            ..open("socket:[4712]")
        };
        assert_eq!(obstacle(&syslog), None);
        let database = Descriptor { beginning: SQLITE.to_vec(), ..open("/srv/app/data.db") };
        let why = obstacle(&database).unwrap();
        assert!(why.contains("SQLite database /srv/app/data.db"), "{why}");
        let log = Descriptor { only_appends: true, ..open("/var/log/app.log") };
        assert_eq!(obstacle(&log), None);
        let device = Descriptor { is_character_device: true, ..open("/dev/urandom") };
        assert_eq!(obstacle(&device), None);
        assert!(obstacle(&open("/dev/shm/counter")).is_some());
        let why = obstacle(&open("/srv/app.phar")).unwrap();
        assert!(why.contains("one position"), "{why}");
        assert!(obstacle(&open("pipe:[3]")).is_some());
    }
}
