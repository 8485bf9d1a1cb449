//! The FastCGI listeners of pools, and checks between their settings.

use std::collections::HashMap;

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::config::Config;
use crate::model::listener::{Address, FastcgiListener};
use crate::model::pool::{Pool, PoolAccessLog};
use crate::read::directives::listeners::DIRECTIVES;
use crate::read::drafts::{ListenAddress, ListenerDraft};

/// The default of php-fpm's `access.format`.
const DEFAULT_ACCESS_FORMAT: &str = "%R - %u %t \"%m %r\" %s";

/// Settings of Unix sockets only: their owner, or in its place an ACL.
const UNIX_OWNERS: [&str; 2] = ["listen_owner", "listen_group"];
const UNIX_ACLS: [&str; 2] = ["listen_acl_users", "listen_acl_groups"];
const UNIX_MODE: &str = "listen_mode";

/// The setting of TCP sockets only.
const TCP_CLIENTS: &str = "listen_allowed_clients";

/// Settings of the access log, which need `access_log`.
const OF_THE_LOG: [&str; 2] = ["access_format", "access_suppress_path"];

/// Gives the pool its listeners. Settings with a fault of their own are reported already.
pub(crate) fn settle_listeners(
    pool: &mut Pool,
    draft: ListenerDraft,
    settings: &DeTable<'_>,
) -> Vec<Fault> {
    if !settings.contains_key("listen") {
        let others = DIRECTIVES.iter().map(|directive| directive.name);
        return faults(settings, others, |name| {
            format!("`{name}` is for a pool that has `listen`; add it, or leave this out")
        });
    }
    let faults = without_effect(&draft, settings);
    pool.listener = draft.listen.as_ref().map(|address| listener(&draft, address));
    pool.status_listener = draft.status_listen.as_ref().map(|address| listener(&draft, address));
    if pool.status_listener.is_some() {
        pool.status_path.get_or_insert_with(|| "/".to_owned());
    }
    if let Some(path) = draft.access_log {
        let default = || DEFAULT_ACCESS_FORMAT.to_owned();
        pool.pool_access_log = Some(PoolAccessLog {
            path,
            format: draft.access_format.unwrap_or_else(default),
            suppress_path: draft.access_suppress_path,
        });
    }
    if let Some(endings) = draft.limit_extensions {
        pool.limit_extensions = endings;
    }
    faults
}

/// A fault for each of `names` that is set.
fn faults<'n>(
    settings: &DeTable<'_>,
    names: impl IntoIterator<Item = &'n str>,
    sentence: impl Fn(&str) -> String,
) -> Vec<Fault> {
    let set = names.into_iter().filter(|name| settings.contains_key(*name));
    set.map(|name| Fault::at(settings, name, sentence(name))).collect()
}

/// Faults for settings without effect: for another kind of socket, or without or beside another
/// setting.
fn without_effect(draft: &ListenerDraft, settings: &DeTable<'_>) -> Vec<Fault> {
    let addresses = [&draft.listen, &draft.status_listen].into_iter().flatten();
    let has_kind = |is_unix: bool| {
        let mut addresses = addresses.clone();
        addresses.any(|listen| matches!(listen.address, Address::Unix(_)) == is_unix)
    };
    let mut found = Vec::new();
    if draft.listen.is_some() && !has_kind(true) {
        let names = UNIX_OWNERS.into_iter().chain([UNIX_MODE]).chain(UNIX_ACLS);
        found.extend(faults(settings, names, |name| {
            format!("`{name}` is for a Unix socket, and the pool listens on none")
        }));
    }
    if draft.listen.is_some() && !has_kind(false) {
        found.extend(faults(settings, [TCP_CLIENTS], |name| {
            format!("`{name}` is for TCP, and the pool listens on a Unix socket")
        }));
    }
    if let Some(list) = UNIX_ACLS.iter().find(|name| settings.contains_key(**name)) {
        found.extend(faults(settings, UNIX_OWNERS, |name| {
            format!("`{name}` has no effect beside `{list}`; leave one of them out")
        }));
    }
    if !settings.contains_key("access_log") {
        found.extend(faults(settings, OF_THE_LOG, |name| {
            format!("`{name}` needs `access_log`; add it to the pool")
        }));
    }
    found
}

fn listener(draft: &ListenerDraft, listen: &ListenAddress) -> FastcgiListener {
    let default = FastcgiListener::at(listen.address.clone());
    let is_unix = matches!(listen.address, Address::Unix(_));
    FastcgiListener {
        asked: listen.text.clone(),
        backlog: draft.backlog,
        owner: draft.owner.clone().filter(|_| is_unix),
        group: draft.group.clone().filter(|_| is_unix),
        mode: draft.mode.unwrap_or(default.mode),
        acl_users: draft.acl_users.clone(),
        acl_groups: draft.acl_groups.clone(),
        allowed_clients: draft.allowed_clients.clone().filter(|_| !is_unix),
        ..default
    }
}

/// Faults for listeners with the address of another one. `pools` is the table of all pools.
pub(crate) fn refuse_shared_addresses(config: &Config, pools: &DeTable<'_>) -> Vec<Fault> {
    let sites = config.listen.iter().chain(config.tls.iter().flat_map(|tls| &tls.listen));
    let sites = sites.map(|address| (Address::Tcp(*address), "the sites listen on".to_owned()));
    let socket = config.admin_access.socket.iter().map(|socket| socket.listen.clone());
    let admin = config.admin.map(Address::Tcp).into_iter().chain(socket);
    let admin = admin.map(|address| (address, "`admin` is".to_owned()));
    let mut owners: HashMap<Address, String> = sites.chain(admin).collect();
    let mut faults = Vec::new();
    for pool in &config.pools {
        let listeners = [("listen", &pool.listener), ("status_listen", &pool.status_listener)];
        for (name, listener) in listeners {
            let Some(listener) = listener else {
                continue;
            };
            if matches!(listener.listen, Address::Tcp(address) if address.port() == 0) {
                continue;
            }
            let owner = format!("pool `{}` listens on", pool.name);
            if let Some(first) = owners.insert(listener.listen.clone(), owner) {
                let sentence =
                    format!("`{name}` is {}, which {first} too; choose another", listener.listen);
                let settings = pools.get(pool.name.as_str());
                let settings = settings.and_then(|settings| settings.get_ref().as_table());
                faults.extend(settings.map(|table| Fault::at(table, name, sentence)));
            }
        }
    }
    faults
}
