//! The listening sockets: opening them, taking over inherited ones, and finding out which process
//! is in the way. php-fpm does this in `fpm_sockets.c` and `fpm_unix.c`.

pub mod folder_lock;
mod inherited;
mod open_error;
pub mod peer_listener;
mod tcp;
mod unix;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use maitred_config::{Address, Config, FastcgiListener, Listening, Pool, Section};
use maitred_control::{Clients, ToFront};
use maitred_os::sockets::unix::Rights;
use maitred_os::sockets::{self, waiting};
use tracing::{info, warn};

use crate::error::Error;
use crate::peer::Peer;
use crate::system::faults::Faults;

pub use inherited::InheritedSockets;
pub use tcp::other_program_on;
pub use unix::{FileState, OwnFile};

use inherited::Origin;
use open_error::OpenError;

/// An address and its sockets, one for each thread of the front.
#[derive(Debug)]
pub struct Listener {
    /// The configured address.
    pub asked: Address,
    /// The address, with the port that the system chose if it was left open.
    pub address: Address,
    /// Who connects there.
    pub clients: Clients,
    /// The sockets.
    pub sockets: Vec<OwnedFd>,
    /// The file of a Unix socket, unless it is another program's to remove.
    pub file: Option<OwnFile>,
}

/// The listeners of a new configuration.
#[derive(Debug, Default)]
pub struct OpenedListeners {
    /// New listeners.
    pub new: Vec<Listener>,
    /// FastCGI listeners that stay, with their new settings.
    stays: Vec<FastcgiListener>,
    /// Owner and mode of those that are Unix sockets.
    rights: Vec<Option<Rights>>,
    /// Why Unix sockets of pools cannot be made: a tenant may own the folder of one.
    pub lost: Vec<Error>,
}

/// A FastCGI listener, and the pool that messages about it name.
#[derive(Debug, Clone, Copy)]
struct NamedListener<'a> {
    listener: &'a FastcgiListener,
    pool: &'a str,
    /// Messages are php-fpm's.
    fpm: bool,
}

/// Opens all listeners with `threads` sockets each, and closes unused inherited ones.
///
/// # Errors
/// The first address that cannot be used, and the process that uses it.
pub fn open(
    config: &Config,
    mut inherited: InheritedSockets,
    threads: u32,
) -> Result<OpenedListeners, Error> {
    inherited.announce(config.fpm.is_some());
    let opened = open_in(config, KnownListeners::default(), &mut inherited, threads)?;
    inherited.close_unused();
    Ok(opened)
}

/// The listeners that are open.
#[derive(Debug, Clone, Copy, Default)]
pub struct KnownListeners<'a> {
    /// Those in use.
    pub in_use: &'a [Listener],
    /// Those of a reload that the front has not accepted: the next reload takes its place.
    pub unaccepted: &'a [Listener],
}

impl KnownListeners<'_> {
    /// Whether this one is in use, by whatever name clients can reach it.
    fn has(&self, one: Listening<'_>) -> bool {
        let (address, clients) = (one.address(), clients_of(one));
        self.in_use.iter().any(|other| other.asked == address && other.clients == clients)
    }
}

/// Opens the listeners that are not `known`.
///
/// # Errors
/// As [`open`].
pub fn open_others(
    config: &Config,
    known: KnownListeners<'_>,
    threads: u32,
) -> Result<OpenedListeners, Error> {
    open_in(config, known, &mut InheritedSockets::default(), threads)
}

fn open_in(
    config: &Config,
    known: KnownListeners<'_>,
    inherited: &mut InheritedSockets,
    threads: u32,
) -> Result<OpenedListeners, Error> {
    let listening = config.listening();
    let tcp = listening.iter().filter_map(|one| match one.address() {
        Address::Tcp(address) => Some(address),
        Address::Unix(_) => None,
    });
    let tcp: Vec<SocketAddr> = tcp.collect();
    let mut opened = OpenedListeners::default();
    for one in listening {
        let is_its = |other: &&Listener| other.asked == one.address();
        let there = known.in_use.iter().filter(|other| other.can_be_reached()).find(is_its);
        // The file of a Unix socket has one owner.
        let before = known.unaccepted.iter().filter(|other| other.file.is_none()).find(is_its);
        let listener = match one {
            Listening::Fastcgi(listener) | Listening::AdminSocket(listener) => {
                Some(name(config, listener))
            }
            Listening::Http(_)
            | Listening::Https(_)
            | Listening::Admin(_)
            | Listening::AgentCheck(_) => None,
        };
        let rights = listener.map(|named| named.rights()).transpose()?.flatten();
        match (there, before) {
            (Some(there), _) if there.clients == clients_of(one) => {
                opened.stays.extend(listener.map(|named| named.listener.clone()));
                opened.rights.extend(listener.map(|_| rights));
            }
            (Some(there), _) | (None, Some(there)) => {
                let moved = there.for_clients(clients_of(one));
                let address = there.asked.clone();
                opened.new.push(moved.map_err(|source| Error::Listen { address, source })?);
            }
            (None, None) => {
                let asked =
                    NewListener { one, listener, rights, threads: threads as usize, tcp: &tcp };
                match asked.open(inherited) {
                    Ok(listener) => opened.new.push(listener),
                    // As php-fpm, which does not look at the file of an inherited socket.
                    Err(why) if config.fpm.is_some() && known.has(one) => {
                        warn!("{why}; the socket that is in use stays");
                        opened.stays.extend(listener.map(|named| named.listener.clone()));
                        opened.rights.extend(listener.map(|_| asked.rights.clone()));
                    }
                    Err(why) => opened.lost.push(of_pool(config, one, why)?),
                }
            }
        }
    }
    Ok(opened)
}

/// A new listener.
struct NewListener<'a> {
    one: Listening<'a>,
    listener: Option<NamedListener<'a>>,
    rights: Option<Rights>,
    threads: usize,
    /// All TCP addresses there are.
    tcp: &'a [SocketAddr],
}

impl NewListener<'_> {
    fn open(&self, inherited: &mut InheritedSockets) -> Result<Listener, Error> {
        if let Some(named) = self.listener {
            named.warn_of_backlog();
            named.warn_of_owners();
        }
        match self.one.address() {
            Address::Tcp(address) => self.open_tcp(address, inherited),
            Address::Unix(path) => {
                let (Some(named), Some(rights)) = (self.listener, &self.rights) else {
                    let source = io::ErrorKind::Unsupported.into();
                    let address = self.one.address();
                    return Err(Error::Listen { address, source });
                };
                let (sockets, file) = match inherited.take(&key(&self.one.address())) {
                    Some((socket, origin)) => {
                        let own = origin == Origin::Fpm;
                        let file = own.then(|| OwnFile::found(&path, rights)).flatten();
                        let sockets = self.adopt(socket);
                        (sockets.map_err(|why| named.error(OpenError::Listen(why)))?, file)
                    }
                    None => unix::open(named, &path, rights, self.threads)?,
                };
                Ok(self.listener(self.one.address(), sockets, file))
            }
        }
    }

    fn open_tcp(
        &self,
        address: SocketAddr,
        inherited: &mut InheritedSockets,
    ) -> Result<Listener, Error> {
        let first = self.try_tcp(address, inherited);
        let opened = match (first, self.listener) {
            (Err(why), Some(named)) if named.means_all_addresses() => {
                tracing::debug!("{address}: {why}");
                info!(target: "fpm", "Failed implicitly binding to ::, retrying with 0.0.0.0");
                let address = SocketAddr::from(([0, 0, 0, 0], address.port()));
                self.try_tcp(address, inherited)
            }
            (first, _) => first,
        };
        opened.map_err(|why| match (self.listener, why.kind()) {
            (Some(named), _) => named.error(OpenError::bind(why, address)),
            (None, io::ErrorKind::AddrInUse) => {
                Error::AddressInUse { address: Address::Tcp(address), holder: tcp::holder(address) }
            }
            (None, _) => Error::Listen { address: Address::Tcp(address), source: why },
        })
    }

    fn try_tcp(
        &self,
        address: SocketAddr,
        inherited: &mut InheritedSockets,
    ) -> io::Result<Listener> {
        let sockets = match inherited.take(&key(&Address::Tcp(address))) {
            Some((socket, _)) => {
                sockets::set_for_requests(&socket)?;
                self.adopt(socket)?
            }
            None => {
                let only_ipv6 = tcp::is_only_ipv6(address, self.tcp);
                let backlog =
                    self.listener.map_or(sockets::BACKLOG, |named| backlog(named.listener));
                sockets::listen_tcp(address, only_ipv6, self.threads, backlog)?
            }
        };
        let address = sockets.first().map_or(Ok(address), sockets::local_address)?;
        Ok(self.listener(Address::Tcp(address), sockets, None))
    }

    /// An inherited socket for all threads.
    fn adopt(&self, socket: OwnedFd) -> io::Result<Vec<OwnedFd>> {
        if let Some(named) = self.listener {
            sockets::listen(&socket, backlog(named.listener))?;
        }
        sockets::copies(socket, self.threads)
    }

    fn listener(&self, address: Address, sockets: Vec<OwnedFd>, file: Option<OwnFile>) -> Listener {
        Listener {
            asked: self.one.address(),
            address,
            clients: clients_of(self.one),
            sockets,
            file,
        }
    }
}

impl NamedListener<'_> {
    /// A port alone means all addresses, of IPv6 if there is any.
    fn means_all_addresses(&self) -> bool {
        let asked = &self.listener.asked;
        !asked.is_empty() && asked.bytes().all(|byte| byte.is_ascii_digit())
    }

    fn error(&self, refusal: OpenError) -> Error {
        refusal.of(self)
    }

    /// Owner and mode of a Unix socket; none for TCP.
    fn rights(&self) -> Result<Option<Rights>, Error> {
        match &self.listener.listen {
            Address::Unix(path) => unix::rights(*self, path).map(Some),
            Address::Tcp(_) => Ok(None),
        }
    }

    /// An access list replaces owner and group; logged in php-fpm's words.
    fn warn_of_owners(&self) {
        let NamedListener { listener, pool, .. } = self;
        if listener.acl_users.is_empty() && listener.acl_groups.is_empty() {
            return;
        }
        for (what, ignored) in [("owner", &listener.owner), ("group", &listener.group)] {
            if let Some(ignored) = ignored {
                warn!("[pool {pool}] ACL set, listen.{what} = '{ignored}' is ignored");
            }
        }
    }

    fn warn_of_backlog(&self) {
        let (Some(asked), Ok(longest)) = (self.listener.backlog, waiting::longest_backlog()) else {
            return;
        };
        if asked > longest {
            warn!(
                "[pool {}] listen.backlog = {asked} is more than the kernel allows: {longest} \
                 connections can wait to be accepted (net.core.somaxconn)",
                self.pool
            );
        }
    }
}

impl OpenedListeners {
    /// Whether a new listener replaces this one.
    pub fn replaces(&self, listener: &Listener) -> bool {
        self.new.iter().any(|new| new.asked == listener.asked)
    }

    /// Applies new settings to the listeners that stay: owner, mode and queue length.
    pub fn adjust(&self, listeners: &mut [Listener]) {
        for (settings, rights) in self.stays.iter().zip(&self.rights) {
            let Some(listener) = listeners.iter_mut().find(|one| one.asked == settings.listen)
            else {
                continue;
            };
            if let (Some(file), Some(rights)) = (&mut listener.file, rights)
                && let Err(why) = file.set_rights(rights)
            {
                warn!(
                    "{}: the access rights of its socket stay as they were: {why}",
                    settings.asked
                );
            }
            for socket in &listener.sockets {
                if let Err(why) = sockets::listen(socket, backlog(settings)) {
                    warn!("{}: its queue stays as long as it was: {why}", settings.asked);
                }
            }
        }
    }
}

impl Listener {
    /// Has a front accept clients here.
    pub fn tell(&self, front: &mut Peer<ToFront>) {
        for (thread, socket) in (0..).zip(&self.sockets) {
            let order = ToFront::Listen {
                thread,
                address: self.address.to_string(),
                clients: self.clients.clone(),
            };
            front.say(order, &[socket.as_fd()]);
        }
    }

    /// Whether clients can connect: the file of a Unix socket may have been removed or replaced.
    fn can_be_reached(&self) -> bool {
        self.file.as_ref().is_none_or(OwnFile::is_there)
    }

    /// Closes the sockets, and removes their file.
    pub fn close(&mut self) {
        self.sockets.clear();
        self.file = None;
    }

    /// The same sockets for other clients.
    fn for_clients(&self, clients: Clients) -> io::Result<Listener> {
        let sockets = self.sockets.iter().map(OwnedFd::try_clone);
        Ok(Listener {
            asked: self.asked.clone(),
            address: self.address.clone(),
            clients,
            sockets: sockets.collect::<io::Result<_>>()?,
            file: None,
        })
    }
}

/// Logs the sockets that stay open: php-fpm's line after a reload.
pub fn announce(listeners: &[Listener]) {
    for listener in listeners {
        if let Some(socket) = listener.sockets.first() {
            let (fd, key) = (socket.as_raw_fd(), key(&listener.address));
            info!(target: "fpm", "using inherited socket fd={fd}, \"{key}\"");
        }
    }
}

/// The fault of a pool that its Unix socket cannot be made.
///
/// # Errors
/// The same error, if it is about another listener, or the server was started as php-fpm.
fn of_pool(config: &Config, one: Listening<'_>, why: Error) -> Result<Error, Error> {
    match (setting_of(config, one), one.address()) {
        (Some((pool, setting)), Address::Unix(_)) if config.fpm.is_none() => {
            let section = Section::Pool(pool.name.clone());
            Ok(Error::Setting { section, setting, said: why.to_string() })
        }
        _ => Err(why),
    }
}

/// The pool of a FastCGI listener, and the setting that names it.
fn setting_of<'a>(config: &'a Config, one: Listening<'_>) -> Option<(&'a Pool, &'static str)> {
    let Listening::Fastcgi(listener) = one else {
        return None;
    };
    let is_its = |other: &Option<FastcgiListener>| other.as_ref() == Some(listener);
    config.pools.iter().find_map(|pool| match (&pool.listener, &pool.status_listener) {
        (own, _) if is_its(own) => Some((pool, "listen")),
        (_, status) if is_its(status) => Some((pool, "status_listen")),
        _ => None,
    })
}

/// The Unix sockets of pools that could not be made, and still cannot. For a process that may wait.
pub fn still_lost(config: &Config, faults: &Faults) -> Vec<Error> {
    let lost = config.listening().into_iter().filter_map(|one| {
        let (pool, setting) = setting_of(config, one)?;
        let (Listening::Fastcgi(listener), Address::Unix(path)) = (one, one.address()) else {
            return None;
        };
        let is_closed = faults.closes(&pool.name, setting);
        let why = is_closed.then(|| unix::obstacle(name(config, listener), &path))??;
        of_pool(config, one, why).ok()
    });
    lost.collect()
}

/// Mistakes in the configured FastCGI listeners, besides addresses in use.
pub fn mistakes(config: &Config) -> impl Iterator<Item = Error> {
    let listening = config.listening().into_iter();
    listening.filter_map(|one| match one {
        Listening::Fastcgi(listener) | Listening::AdminSocket(listener) => {
            name(config, listener).rights().err()
        }
        Listening::Http(_)
        | Listening::Https(_)
        | Listening::Admin(_)
        | Listening::AgentCheck(_) => None,
    })
}

/// The clients of a listener.
fn clients_of(listening: Listening<'_>) -> Clients {
    match listening {
        Listening::Http(_) => Clients::Http,
        Listening::Https(_) => Clients::Https,
        Listening::Admin(_) | Listening::AdminSocket(_) => Clients::Admin,
        Listening::AgentCheck(_) => Clients::AgentCheck,
        Listening::Fastcgi(listener) => Clients::Fastcgi { listen: listener.listen.to_string() },
    }
}

/// The name of an address in `FPM_SOCKETS`: a path, or address and port as `inet_ntop(3)` prints
/// them, without brackets.
fn key(address: &Address) -> String {
    match address {
        Address::Tcp(address) => format!("{}:{}", address.ip(), address.port()),
        Address::Unix(path) => path.display().to_string(),
    }
}

fn backlog(listener: &FastcgiListener) -> i32 {
    let longest = sockets::LONGEST_BACKLOG;
    listener.backlog.map_or(longest, |asked| i32::try_from(asked).unwrap_or(i32::MAX))
}

/// The pool of a FastCGI listener.
fn name<'a>(config: &'a Config, listener: &'a FastcgiListener) -> NamedListener<'a> {
    let has = |pool: &&Pool| {
        let mut listeners = [&pool.listener, &pool.status_listener].into_iter().flatten();
        listeners.any(|other| other.listen == listener.listen)
    };
    NamedListener {
        listener,
        pool: config.pools.iter().find(has).map_or("", |pool| &pool.name),
        fpm: config.fpm.is_some(),
    }
}

#[cfg(test)]
mod tests;
