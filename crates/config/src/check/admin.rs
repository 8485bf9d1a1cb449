//! Checks between the settings of the admin listener.

use toml::de::DeTable;

use crate::mistakes::Fault;
use crate::model::admin::{group, user};
use crate::model::config::Config;
use crate::model::listener::{Address, FastcgiListener};

/// Turns the draft into the access rights and the socket.
pub(crate) fn settle(config: &mut Config, table: &DeTable<'_>) -> Option<Fault> {
    let access = &mut config.admin_access;
    let draft = std::mem::take(&mut access.draft);
    let twice = table.contains_key("admin_token") && table.contains_key("admin_token_file");
    let sentence = "`admin_token` and `admin_token_file` are both set; leave one of them out";
    let fault = twice.then(|| Fault::at(table, "admin_token", sentence));
    access.users.extend(draft.owner.as_deref().and_then(user));
    access.group = draft.group.as_deref().and_then(group);
    access.socket = draft.path.map(|path| {
        let listener = FastcgiListener::at(Address::Unix(path));
        FastcgiListener {
            owner: draft.owner,
            group: draft.group,
            mode: draft.mode.unwrap_or(listener.mode),
            ..listener
        }
    });
    fault
}

/// Warnings about settings without effect: those of the Unix socket without one, and the address
/// for other nodes without any.
pub(crate) fn remarks<'a>(
    table: &'a DeTable<'_>,
    config: &Config,
) -> impl Iterator<Item = Fault> + use<'a> {
    let has_socket = config.admin_access.socket.is_some();
    let no_socket = "`admin` is not the path of a Unix socket";
    let names = ["admin_owner", "admin_group", "admin_mode", "admin_users"];
    let of_socket = names.map(|name| (name, no_socket)).into_iter().filter(move |_| !has_socket);
    let has_nodes = config.purge_log.is_some();
    let no_nodes = "there is no `purge_log`, by which other nodes know of this one";
    let of_nodes = (!has_nodes).then_some(("admin_url", no_nodes));
    of_socket.chain(of_nodes).filter_map(|(name, why)| {
        let span = table.get(name)?.span();
        Some(Fault::new(span, format!("`{name}` has no effect: {why}")))
    })
}
