//! The FastCGI listeners of pools, and checks between their settings.

use std::collections::HashMap;

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::config::Config;
use crate::model::listener::{Address, Door};
use crate::model::pool::{DoorLog, Pool};
use crate::read::directives::listeners::DIRECTIVES;
use crate::read::drafts::{ListenAddress, ListenerDraft};

/// The default of php-fpm's `access.format`.
const DEFAULT_ACCESS_FORMAT: &str = "%R - %u %t \"%m %r\" %s";

/// Settings of one kind of listener only.
const UNIX_ONLY: [&str; 5] = [
    "listen_owner",
    "listen_group",
    "listen_mode",
    "listen_acl_users",
    "listen_acl_groups",
];
const TCP_ONLY: [&str; 1] = ["listen_allowed_clients"];

/// Gives the pool its listeners. Settings with a fault of their own are reported already.
pub(crate) fn settle_listeners(
    pool: &mut Pool,
    draft: ListenerDraft,
    settings: &DeTable<'_>,
) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |name: &str, sentence: String| {
        let span = settings.get(name).map_or(0..0, |value| value.span());
        faults.push(Fault::new(span, sentence));
    };
    let set = |name: &str| settings.contains_key(name);
    if !set("listen") {
        let others = DIRECTIVES.iter().map(|directive| directive.name);
        for name in others.filter(|name| set(name)) {
            let sentence =
                format!("`{name}` is for a pool that has `listen`; add it, or leave this out");
            fault(name, sentence);
        }
        return faults;
    }
    for (name, sentence) in misplaced(&draft, set) {
        fault(name, sentence);
    }
    pool.door = draft.listen.as_ref().map(|asked| door(&draft, asked));
    pool.status_door = draft
        .status_listen
        .as_ref()
        .map(|asked| door(&draft, asked));
    if pool.status_door.is_some() {
        pool.status_path.get_or_insert_with(|| "/".to_owned());
    }
    if let Some(path) = draft.access_log {
        pool.door_log = Some(DoorLog {
            path,
            format: draft
                .access_format
                .unwrap_or_else(|| DEFAULT_ACCESS_FORMAT.to_owned()),
            suppress_path: draft.access_suppress_path,
        });
    }
    if let Some(endings) = draft.limit_extensions {
        pool.limit_extensions = endings;
    }
    faults
}

/// Settings without effect, each with its error text: for another kind of socket, or without or
/// beside another setting.
fn misplaced(draft: &ListenerDraft, set: impl Fn(&str) -> bool) -> Vec<(&'static str, String)> {
    let mut told = Vec::new();
    let has = |is_unix: bool| {
        let mut asked = [&draft.listen, &draft.status_listen].into_iter().flatten();
        asked.any(|asked| matches!(asked.address, Address::Unix(_)) == is_unix)
    };
    if draft.listen.is_some() && !has(true) {
        let names = UNIX_ONLY.into_iter().filter(|name| set(name));
        let sentence =
            |name| format!("`{name}` is for a Unix socket, and the pool listens on none");
        told.extend(names.map(|name| (name, sentence(name))));
    }
    if draft.listen.is_some() && !has(false) {
        let names = TCP_ONLY.into_iter().filter(|name| set(name));
        let sentence = |name| format!("`{name}` is for TCP, and the pool listens on a Unix socket");
        told.extend(names.map(|name| (name, sentence(name))));
    }
    if let Some(list) = UNIX_ONLY[3..].iter().find(|name| set(name)) {
        let names = UNIX_ONLY[..2].iter().filter(|name| set(name));
        let sentence =
            |name| format!("`{name}` has no effect beside `{list}`; leave one of them out");
        told.extend(names.map(|name| (*name, sentence(name))));
    }
    let of_the_log = ["access_format", "access_suppress_path"];
    let names = of_the_log
        .into_iter()
        .filter(|name| set(name) && !set("access_log"));
    told.extend(names.map(|name| {
        (
            name,
            format!("`{name}` needs `access_log`; add it to the pool"),
        )
    }));
    told
}

fn door(draft: &ListenerDraft, asked: &ListenAddress) -> Door {
    let default = Door::at(asked.address.clone());
    let is_unix = matches!(asked.address, Address::Unix(_));
    Door {
        asked: asked.text.clone(),
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
    let mut owners: HashMap<Address, String> = HashMap::new();
    for address in &config.listen {
        owners.insert(Address::Tcp(*address), "the sites listen on".to_owned());
    }
    for address in config.tls.iter().flat_map(|tls| &tls.listen) {
        owners.insert(Address::Tcp(*address), "the sites listen on".to_owned());
    }
    if let Some(admin) = config.admin {
        owners.insert(Address::Tcp(admin), "`admin` is".to_owned());
    }
    if let Some(socket) = &config.admin_access.socket {
        owners.insert(socket.listen.clone(), "`admin` is".to_owned());
    }
    let mut faults = Vec::new();
    for pool in &config.pools {
        let doors = [("listen", &pool.door), ("status_listen", &pool.status_door)];
        for (name, door) in doors {
            let Some(door) = door else {
                continue;
            };
            if matches!(door.listen, Address::Tcp(address) if address.port() == 0) {
                continue;
            }
            let owner = format!("pool `{}` listens on", pool.name);
            if let Some(first) = owners.insert(door.listen.clone(), owner) {
                let settings = pools.get(pool.name.as_str());
                let settings = settings.and_then(|settings| settings.get_ref().as_table());
                let value = settings.and_then(|settings| settings.get(name));
                let span = value.map_or(0..0, |value| value.span());
                let sentence = format!(
                    "`{name}` is {}, which {first} too; choose another",
                    door.listen
                );
                faults.push(Fault::new(span, sentence));
            }
        }
    }
    faults
}
