//! Why the server could not start.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use maitred_config::{Address, Section, SettingMistake, mistakes_at};

/// Why the server could not start. Its text is one sentence for the person who started it.
#[derive(Debug)]
pub enum Error {
    /// What is wrong with the text of the configuration.
    Mistakes(String),
    /// The configuration needs something that this machine does not have: a user that does not
    /// exist, for one.
    Configuration(String),
    /// A setting needs something that this machine does not have.
    Setting {
        /// The section of the configuration.
        section: Section,
        /// Its name.
        setting: &'static str,
        /// What is wrong, and what to do.
        said: String,
    },
    /// Another process listens on an address of ours.
    AddressInUse {
        /// The address.
        address: Address,
        /// That process, as far as `/proc` shows it.
        holder: Option<String>,
    },
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: Address,
        /// The system's error.
        source: io::Error,
    },
    /// A FastCGI listener cannot be opened.
    FastcgiListener {
        /// Why, in php-fpm's words if the server was started as php-fpm.
        said: String,
        /// What to do, if that is known.
        remedy: Option<String>,
        /// The server was started as php-fpm: what to do is not part of the text.
        fpm: bool,
    },
    /// The admin socket cannot be opened.
    AdminSocket {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// A system call failed that the server needs.
    System {
        /// What failed, as `the pool's memory could not be made`.
        doing: &'static str,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// Wraps a system error; `doing` says what failed.
    pub fn system(doing: &'static str) -> impl FnOnce(io::Error) -> Error {
        move |source| Error::System { doing, source }
    }

    /// Several errors as one, with a line for each.
    pub fn all(errors: Vec<Error>) -> Error {
        let mut errors = errors.into_iter();
        match (errors.next(), errors.next()) {
            (Some(first), None) => first,
            (first, second) => {
                let all = first.into_iter().chain(second).chain(errors);
                let all: Vec<String> = all.map(|error| error.to_string()).collect();
                Error::Mistakes(all.join("\n"))
            }
        }
    }

    /// Adds the position of each setting in the file at `path`, which the configuration was read
    /// from. It is read again, once: it may be long, and so may be the list.
    pub fn located(errors: Vec<Error>, path: &Path) -> Vec<Error> {
        let settings = errors.iter().filter_map(|error| match error {
            Error::Setting { section, setting, said } => {
                let (section, sentence) = (section.clone(), said.clone());
                Some(SettingMistake { section, setting, sentence })
            }
            _ => None,
        });
        let mut mistakes = mistakes_at(path, settings.collect()).into_iter();
        let located = errors.into_iter().map(|error| {
            if !matches!(error, Error::Setting { .. }) {
                return error;
            }
            match mistakes.next() {
                Some(mistake) if mistake.place.is_some() => Error::Mistakes(mistake.to_string()),
                Some(mistake) => Error::Mistakes(mistake.sentence),
                None => error,
            }
        });
        located.collect()
    }

    /// Whether the configuration or the command has to change, rather than the machine.
    pub fn is_configuration(&self) -> bool {
        matches!(self, Error::Mistakes(_) | Error::Configuration(_) | Error::Setting { .. })
    }

    /// What to do, where the text is php-fpm's, which does not say it.
    pub fn remedy(&self) -> Option<&str> {
        match self {
            Error::FastcgiListener { remedy, fpm: true, .. } => remedy.as_deref(),
            _ => None,
        }
    }
}

/// The port that ordinary users take in place of one for root.
fn usual_port(port: u16) -> u16 {
    match port {
        443 => 8443,
        _ => 8080,
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Mistakes(said) | Error::Configuration(said) | Error::Setting { said, .. } => {
                f.write_str(said)
            }
            Error::AddressInUse { address, holder } => {
                let holder = holder.as_deref().unwrap_or("another program");
                write!(
                    f,
                    "{address} cannot be listened on: {holder} listens there already; stop it, or \
                     choose another address with `listen` or --listen"
                )
            }
            Error::Listen { address: Address::Tcp(address), source }
                if source.kind() == io::ErrorKind::PermissionDenied =>
            {
                let (ip, port) = (address.ip(), address.port());
                let other = SocketAddr::new(ip, usual_port(port));
                write!(
                    f,
                    "{address} cannot be listened on: this user may not use port {port}; listen on \
                     another port (--listen {other}), or allow it with \
                     `sysctl net.ipv4.ip_unprivileged_port_start={port}`, or with the capability \
                     CAP_NET_BIND_SERVICE (`setcap cap_net_bind_service+ep` on the program, or \
                     AmbientCapabilities= in a systemd unit)"
                )
            }
            Error::Listen { address, source }
                if source.kind() == io::ErrorKind::AddrNotAvailable =>
            {
                write!(
                    f,
                    "{address} cannot be listened on: this machine does not have the address (`ip \
                     address` shows those that it has); correct `listen`"
                )
            }
            Error::Listen { address, source } => {
                write!(f, "{address} cannot be listened on: {source}")
            }
            Error::FastcgiListener { said, remedy, fpm } => match remedy {
                Some(remedy) if !fpm => write!(f, "{said}; {remedy}"),
                _ => f.write_str(said),
            },
            Error::AdminSocket { path, why } if why.kind() == io::ErrorKind::AddrInUse => write!(
                f,
                "another server listens on the admin socket {}; stop it, or choose another with \
                 --admin-socket",
                path.display()
            ),
            Error::AdminSocket { path, why } => {
                let path = path.display();
                write!(f, "the admin socket {path} cannot be made: {why}")
            }
            Error::System { doing, source } => write!(f, "{doing}: {source}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Mistakes(_)
            | Error::Configuration(_)
            | Error::Setting { .. }
            | Error::AddressInUse { .. }
            | Error::FastcgiListener { .. } => None,
            Error::AdminSocket { why, .. } => Some(why),
            Error::Listen { source, .. } | Error::System { source, .. } => Some(source),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_for_root_is_refused_with_the_ways_out() {
        let address = Address::Tcp("[::]:80".parse().unwrap());
        let source = io::Error::from(io::ErrorKind::PermissionDenied);
        let said = Error::Listen { address, source }.to_string();
        for way in [
            "[::]:80 cannot be listened on: this user may not use port 80; ",
            "--listen [::]:8080",
            "sysctl net.ipv4.ip_unprivileged_port_start=80",
            "setcap cap_net_bind_service+ep",
            "AmbientCapabilities=",
        ] {
            assert!(said.contains(way), "{said}");
        }
    }
}
