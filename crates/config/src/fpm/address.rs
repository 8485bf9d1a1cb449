//! A pool's listener and its access rights (`fpm_sockets.c`, `fpm_unix.c`).

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};

use super::accounts;
use super::check::is_tcp;
use super::draft::PoolDraft;
use super::log::{Log, Refused};
use super::options::Options;
use crate::model::fpm::Level;
use crate::model::listener::{Address, DEFAULT_SOCKET_MODE, FastcgiListener};
use crate::read::directives::listeners::MAX_SOCKET_PATH_BYTES;

/// The listener of a pool. `when_ready` gets the messages that php-fpm's workers log about it at
/// their start.
pub(super) fn listener(
    from: &PoolDraft,
    options: &Options,
    when_ready: &mut Vec<(Level, String)>,
    log: &mut Log,
) -> Result<FastcgiListener, Refused> {
    let listen = from.listen.as_deref().unwrap_or_default();
    let mut listener = if is_tcp(listen) {
        let mut listener = FastcgiListener::at(Address::Tcp(tcp_address(listen, log)?));
        listen.clone_into(&mut listener.asked);
        listener.allowed_clients = allowed_clients(from, when_ready);
        listener
    } else {
        let mut listener = FastcgiListener::at(unix_address(from, listen, options, log)?);
        set_rights(&mut listener, from, log)?;
        listener
    };
    listener.backlog = u32::try_from(from.listen_backlog).ok();
    Ok(listener)
}

fn unix_address(
    from: &PoolDraft,
    path: &str,
    options: &Options,
    log: &mut Log,
) -> Result<Address, Refused> {
    if path.len() > MAX_SOCKET_PATH_BYTES {
        return Err(log.error(format!(
            "[pool {}] cannot bind to UNIX socket '{path}' as path is too long (found length: {}, \
             maximal length: {MAX_SOCKET_PATH_BYTES}){}",
            from.name,
            path.len(),
            from.place_of("listen")
        )));
    }
    let path = PathBuf::from(path);
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        let folder = folder.display();
        let problem = format!(
            "unable to bind listening socket for address '{}': No such file or directory (2); \
             create the folder {folder}{}",
            path.display(),
            from.place_of("listen")
        );
        // During a test, the directory may not have been created yet (systemd's RuntimeDirectory).
        if !options.test {
            return Err(log.error(problem));
        }
        log.warning(problem);
    }
    Ok(Address::Unix(path))
}

fn set_rights(
    listener: &mut FastcgiListener,
    from: &PoolDraft,
    log: &mut Log,
) -> Result<(), Refused> {
    let name = &from.name;
    if let Some(mode) = from.listen_mode.as_deref().filter(|mode| !mode.is_empty()) {
        listener.mode = octal(mode).unwrap_or_else(|| {
            log.warning(format!(
                "[pool {name}] listen.mode '{mode}' is no octal number such as 0660; 0660 is \
                 used{}",
                from.place_of("listen.mode")
            ));
            DEFAULT_SOCKET_MODE
        });
    }
    let list = |list: &Option<String>| -> Vec<String> {
        let list = list.as_deref().filter(|list| !list.is_empty());
        list.map(|list| list.split(',').map(str::to_owned).collect()).unwrap_or_default()
    };
    let own = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let (owner, group) = (own(&from.listen_owner), own(&from.listen_group));
    listener.acl_users = list(&from.listen_acl_users);
    listener.acl_groups = list(&from.listen_acl_groups);
    for user in &listener.acl_users {
        if accounts::by_name(user).is_none() {
            return Err(log.error(no_user(from, "listen.acl_users", user)));
        }
    }
    for group in &listener.acl_groups {
        if accounts::group(group).is_none() {
            return Err(log.error(no_group(from, "listen.acl_groups", group)));
        }
    }
    if let Some(owner) = owner {
        if accounts::number(&owner).is_none() && accounts::by_name(&owner).is_none() {
            return Err(log.error(no_user(from, "listen.owner", &owner)));
        }
        listener.owner = Some(owner);
    }
    if let Some(group) = group {
        if accounts::number(&group).is_none() && accounts::group(&group).is_none() {
            return Err(log.error(no_group(from, "listen.group", &group)));
        }
        listener.group = Some(group);
    }
    Ok(())
}

fn no_user(from: &PoolDraft, setting: &str, user: &str) -> String {
    let place = from.place_of(setting);
    format!("[pool {}] cannot get uid for user '{user}': there is no such user{place}", from.name)
}

fn no_group(from: &PoolDraft, setting: &str, group: &str) -> String {
    let place = from.place_of(setting);
    format!(
        "[pool {}] cannot get gid for group '{group}': there is no such group{place}",
        from.name
    )
}

fn octal(mode: &str) -> Option<u32> {
    let mode = u32::from_str_radix(mode, 8).ok()?;
    (mode <= 0o7777).then_some(mode)
}

/// `fpm_socket_af_inet_listening_socket`: a port alone means all addresses; a name means its first
/// address.
fn tcp_address(listen: &str, log: &mut Log) -> Result<SocketAddr, Refused> {
    let (host, port_text) = match listen.rsplit_once(':') {
        Some((host, port)) => (Some(host), port),
        None => (None, listen),
    };
    let port = super::grammar::atoi(port_text);
    let Some(port) = u16::try_from(port).ok().filter(|port| *port > 0) else {
        return Err(log.error(format!("invalid port value '{port_text}'")));
    };
    if !port_text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(log.error(format!(
            "getaddrinfo: Servname not supported for ai_socktype ('{port_text}' is no port number)"
        )));
    }
    let Some(host) = host else {
        return Ok(SocketAddr::new(IpAddr::from([0u16; 8]), port));
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = (bare, port).to_socket_addrs();
    let mut found = match found {
        Ok(found) => found,
        Err(error) => {
            let error = error.to_string();
            let (_, reason) = error.split_once("information: ").unwrap_or(("", &error));
            return Err(log.error(format!("getaddrinfo: {reason} ('{bare}')")));
        }
    };
    let Some(first) = found.next() else {
        return Err(log.error(format!("getaddrinfo: '{bare}' has no address")));
    };
    for other in found {
        log.warning(format!("Found multiple addresses for {bare}, {} ignored", other.ip()));
    }
    Ok(first)
}

/// `fcgi_set_allowed_clients` of `main/fastcgi.c`: invalid addresses are logged and left out.
fn allowed_clients(from: &PoolDraft, when_ready: &mut Vec<(Level, String)>) -> Option<Vec<IpAddr>> {
    let list = from.listen_allowed_clients.as_deref()?;
    let mut allowed = Vec::new();
    for client in list.split(',') {
        match client.parse() {
            Ok(address) => allowed.push(address),
            Err(_) => when_ready.push((
                Level::Error,
                format!("Wrong IP address '{client}' in listen.allowed_clients"),
            )),
        }
    }
    if allowed.is_empty() {
        when_ready.push((Level::Error, "There are no allowed addresses".to_owned()));
    }
    Some(allowed)
}
