//! Inherited listening sockets: of php-fpm before a reload, or of a script, in `FPM_SOCKETS`
//! (`fpm_sockets.c`), and of systemd in `LISTEN_FDS` (sd_listen_fds(3)).

use std::os::fd::{AsFd, OwnedFd, RawFd};
use std::path::PathBuf;

use maitred_config::Address;
use maitred_os::sockets::inherited::{path_of, take};
use maitred_os::sockets::unix::refuse_descriptors;
use maitred_os::{environment, sockets, spawn};
use tracing::{info, warn};

use super::{key, unix};

/// Most variables that are read: php-fpm's `FPM_ENV_SOCKET_SET_MAX`.
const MAX_VARIABLES: usize = 256;

/// Most sockets of systemd. Units with more than a few are rare.
const MAX_LISTEN_FDS: RawFd = 4096;

/// Variables of socket activation.
const LISTEN_PID: &str = "LISTEN_PID";
const LISTEN_FDS: &str = "LISTEN_FDS";
const LISTEN_FDNAMES: &str = "LISTEN_FDNAMES";

/// Sockets that are used in place of opening others.
#[derive(Debug, Default)]
pub struct InheritedSockets {
    sockets: Vec<InheritedSocket>,
    /// Warnings about them.
    complaints: Vec<String>,
}

#[derive(Debug)]
struct InheritedSocket {
    /// Its address, as `FPM_SOCKETS` names it.
    key: String,
    number: RawFd,
    socket: OwnedFd,
    origin: Origin,
}

/// Who manages the file of an inherited Unix socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// We do, as php-fpm does.
    Fpm,
    /// systemd, which keeps listening after we have ended.
    Systemd,
}

impl InheritedSockets {
    /// Takes over the sockets that the environment names, and removes the variables. Call it before
    /// anything else is listened on, and while there is one thread.
    pub fn from_environment() -> InheritedSockets {
        let of_systemd = of_systemd();
        let mut all = InheritedSockets::default();
        let named: Vec<(String, RawFd)> = fpm_variables().iter().flat_map(|v| parse(v)).collect();
        for (key, number) in named {
            let origin = match of_systemd.contains(&number) {
                true => Origin::Systemd,
                false => Origin::Fpm,
            };
            if !all.has(number) {
                all.take_over(number, Some(key), origin);
            }
        }
        for number in of_systemd {
            if !all.has(number) {
                all.take_over(number, None, Origin::Systemd);
            }
        }
        all
    }

    fn has(&self, number: RawFd) -> bool {
        self.sockets.iter().any(|one| one.number == number)
    }

    fn take_over(&mut self, number: RawFd, key: Option<String>, origin: Origin) {
        let from = match key {
            Some(_) => "FPM_SOCKETS",
            None => LISTEN_FDS,
        };
        let taken = take(number).inspect(|socket| {
            // Other kinds of sockets receive no descriptors anyway; on an older kernel the front
            // drops them.
            let _ = refuse_descriptors(socket.as_fd());
        });
        match taken {
            Ok(socket) => self.sockets.push(InheritedSocket {
                key: key.unwrap_or_else(|| key_of(&socket)),
                number,
                socket,
                origin,
            }),
            Err(why) => {
                let key = key.map(|key| format!(" for {key}")).unwrap_or_default();
                self.complaints.push(format!(
                    "{from} names descriptor {number}{key}, which cannot be used: {why}"
                ));
            }
        }
    }

    /// Logs the sockets: php-fpm's line for each, at its level if the server was started as
    /// php-fpm.
    pub fn announce(&self, fpm: bool) {
        for one in &self.sockets {
            let InheritedSocket { number, key, .. } = one;
            match fpm {
                true => info!(target: "fpm", "using inherited socket fd={number}, \"{key}\""),
                false => info!("using inherited socket fd={number}, \"{key}\""),
            }
        }
        for complaint in &self.complaints {
            warn!("{complaint}");
        }
    }

    /// The socket with the address `key`, if there is one.
    pub fn take(&mut self, key: &str) -> Option<(OwnedFd, Origin)> {
        let index = self.sockets.iter().position(|one| one.key == key)?;
        let one = self.sockets.swap_remove(index);
        Some((one.socket, one.origin))
    }

    /// Closes unused sockets. The file of a Unix socket is removed, too, unless systemd listens
    /// there.
    pub fn close_unused(self) {
        for one in self.sockets {
            drop(one.socket);
            if one.origin == Origin::Systemd {
                warn!(
                    "systemd hands a socket for {} over, and nothing is configured to listen \
                     there; it is not used",
                    one.key
                );
            } else if one.key.starts_with('/') {
                unix::remove(&PathBuf::from(&one.key));
            }
        }
    }
}

/// The values of `FPM_SOCKETS`, `FPM_SOCKETS_1` and so on, up to the first missing one.
fn fpm_variables() -> Vec<String> {
    let names = (0..MAX_VARIABLES).map(|index| match index {
        0 => "FPM_SOCKETS".to_owned(),
        _ => format!("FPM_SOCKETS_{index}"),
    });
    let values = names.map_while(|name| {
        let value = std::env::var(&name).ok()?;
        environment::remove(&name);
        Some(value)
    });
    values.collect()
}

/// Parses `address=fd,address=fd`. Other entries are ignored, as php-fpm does.
fn parse(variable: &str) -> Vec<(String, RawFd)> {
    let entries = variable.split(',');
    let entries = entries.filter_map(|entry| {
        let (key, number) = entry.rsplit_once('=')?;
        Some((key.to_owned(), number.parse().ok()?))
    });
    entries.collect()
}

/// The numbers of systemd's sockets, if they are for this process.
fn of_systemd() -> Vec<RawFd> {
    let number = |name| -> Option<RawFd> { std::env::var(name).ok()?.parse().ok() };
    let (pid, count) = (number(LISTEN_PID), number(LISTEN_FDS));
    for name in [LISTEN_PID, LISTEN_FDS, LISTEN_FDNAMES] {
        environment::remove(name);
    }
    let ours = pid.is_some() && pid == i32::try_from(std::process::id()).ok();
    let count = count.filter(|_| ours).unwrap_or(0);
    let first = spawn::FIRST_INHERITED_FD;
    (first..first + count.clamp(0, MAX_LISTEN_FDS)).collect()
}

/// The address of an inherited socket.
fn key_of(socket: &OwnedFd) -> String {
    let path = path_of(socket).map(Address::Unix);
    let tcp = || sockets::local_address(socket).ok().map(Address::Tcp);
    let address = path.or_else(tcp);
    address.map_or_else(|| "an unnamed socket".to_owned(), |address| key(&address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_of_php_fpm_is_read() {
        let read = parse("/run/php/a=b.sock=8,127.0.0.1:9000=9,:::9001=10");
        let expected = [("/run/php/a=b.sock", 8), ("127.0.0.1:9000", 9), (":::9001", 10)];
        assert_eq!(read, expected.map(|(key, fd)| (key.to_owned(), fd)));
    }

    #[test]
    fn what_is_no_entry_is_passed_over() {
        assert_eq!(parse(""), []);
        assert_eq!(parse("nonsense,=,x=,x=y,a=3"), [("a".to_owned(), 3)]);
    }
}
