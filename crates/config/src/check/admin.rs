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

/// Warnings about settings of the Unix socket without one.
pub(crate) fn remarks<'a>(
    table: &'a DeTable<'_>,
    config: &Config,
) -> impl Iterator<Item = Fault> + use<'a> {
    let has_socket = config.admin_access.socket.is_some();
    let names = ["admin_owner", "admin_group", "admin_mode", "admin_users"];
    let found = names.into_iter().filter(move |_| !has_socket);
    found.filter_map(|name| {
        let span = table.get(name)?.span();
        let sentence = format!("`{name}` has no effect: `admin` is not the path of a Unix socket");
        Some(Fault::new(span, sentence))
    })
}
