//! The settings of a site.

use std::collections::BTreeSet;
use std::path::PathBuf;

use maitred_pagecache::fingerprint::fingerprint;
use maitred_rules::settings::Upstream;
use maitred_rules::{IpNet, Rules};
use serde::{Deserialize, Serialize};

use crate::model::config::Config;
use crate::model::host::Host;
use crate::model::output::Output;
use crate::model::root_owner::RootOwner;

const DEFAULT_INDEX: [&str; 2] = ["index.php", "index.html"];
const DEFAULT_FRONT_CONTROLLER: &str = "/index.php";
const DEFAULT_MAX_BODY_SIZE_BYTES: u64 = 256 << 20;

/// A site: the settings of a set of hosts (nginx's `server`).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Site {
    /// The hosts, at least one.
    pub hosts: Vec<Host>,
    /// The document root: an absolute path.
    pub root: PathBuf,
    /// Index files of a directory, in this order.
    pub index: Vec<String>,
    /// The pool or upstream that runs the site's PHP.
    pub destination: Destination,
    /// The script for paths without a file, as a path below the root that starts with `/`.
    pub front_controller: Option<String>,
    /// Largest request body in bytes.
    pub max_body_size: u64,
    /// Its access log.
    #[serde(default)]
    pub access_log: SiteLog,
    /// Its page cache, if it has one.
    #[serde(default)]
    pub cache: Option<Cache>,
    /// Its rules for paths and clients, followed by the rules of its application's preset.
    #[serde(default)]
    pub rules: Rules,
    /// Settings of its responses.
    #[serde(default)]
    pub output: Output,
}

/// The access log of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SiteLog {
    /// The server's access log, [`crate::Config::access_log`].
    #[default]
    Server,
    /// No access log.
    Off,
    /// A separate file, by its absolute path.
    File(PathBuf),
}

/// The page cache of a site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// The rules of caching.
    pub rules: maitred_pagecache::settings::Settings,
    /// It has `enabled = false`.
    #[serde(skip)]
    pub(crate) is_off: bool,
    /// Clients that may send PURGE.
    #[serde(default)]
    pub purge_from: Vec<IpNet>,
}

/// The pool or upstream that runs a site's PHP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Destination {
    /// A pool of `Config::pools`, by its name.
    Pool(String),
    /// An external FastCGI server.
    Upstream(Upstream),
}

impl Site {
    /// The pools that run its scripts, by their names.
    pub fn pools(&self) -> impl Iterator<Item = &str> {
        let own = match &self.destination {
            Destination::Pool(name) => Some(name.as_str()),
            Destination::Upstream(_) => None,
        };
        let others = self.rules.paths.iter();
        own.into_iter().chain(others.filter_map(|path| path.pool.as_deref()))
    }

    /// The name of the site's pages and of the cookies that it has set: its first host, and a
    /// fingerprint of its root as it is configured and of what runs its scripts, the users of its
    /// pools (the owner of the root, for a pool without `user`) or an upstream. A site that is
    /// another tenant's from now on has another name.
    pub fn key(&self, config: &Config) -> String {
        let upstream = match &self.destination {
            Destination::Pool(_) => String::new(),
            Destination::Upstream(Upstream::Unix(path)) => path.display().to_string(),
            Destination::Upstream(Upstream::Tcp { host, port }) => format!("{host}:{port}"),
        };
        let owner = |name| match config.root_owners.get(name) {
            Some(RootOwner::Known(owner)) => Some(owner.uid.to_string()),
            _ => None,
        };
        let user = |name| config.pool(name).and_then(|pool| pool.user.clone().or(owner(name)));
        let users: BTreeSet<Option<String>> = self.pools().map(user).collect();
        let users: Vec<String> = users.into_iter().map(Option::unwrap_or_default).collect();
        let root = self.root.as_os_str().as_encoded_bytes();
        let mut parts = vec![root, upstream.as_bytes()];
        parts.extend(users.iter().map(String::as_bytes));
        let bytes = parts.into_iter().flat_map(|part| part.iter().copied().chain([0]));
        let host = self.hosts.first().map(Host::to_string).unwrap_or_default();
        format!("{host} {:016x}", fingerprint(bytes))
    }

    /// A site for every host in which every setting has its default.
    pub(crate) fn at(root: PathBuf, destination: Destination) -> Site {
        Site {
            hosts: vec![Host::Any],
            root,
            index: DEFAULT_INDEX.map(str::to_owned).to_vec(),
            destination,
            front_controller: Some(DEFAULT_FRONT_CONTROLLER.to_owned()),
            max_body_size: DEFAULT_MAX_BODY_SIZE_BYTES,
            access_log: SiteLog::Server,
            output: Output::default(),
            cache: None,
            rules: Rules::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use maitred_os::users::Identity;

    use super::*;

    fn key(pool: &str, user: &str, site: &str) -> String {
        let text = format!("[pools.{pool}]\n[[sites]]\nhosts = \"a.example\"\n{site}\n");
        let mut config = crate::parse(&text, Path::new("/maitred.toml")).unwrap();
        config.pools.iter_mut().for_each(|pool| pool.user = Some(user.to_owned()));
        config.sites[0].key(&config)
    }

    #[test]
    fn the_pages_of_a_pool_without_a_user_are_of_the_owner_of_its_root() {
        let text = "[pools.a]\n[[sites]]\nhosts = \"a.example\"\nroot = \"/\"\npool = \"a\"\n";
        let mut config = crate::parse(text, Path::new("/maitred.toml")).unwrap();
        let mut key = |owner: RootOwner| {
            config.root_owners.insert("a".to_owned(), owner);
            config.sites[0].key(&config)
        };
        let mut of = |uid| {
            let (name, home) = (format!("user {uid}"), "/".to_owned());
            key(RootOwner::Known(Identity { name, uid, gid: 1, home }))
        };
        let first = of(1001);
        assert!(first != of(1002) && first == of(1001));
        assert_ne!(first, key(RootOwner::Unusable("it is none".to_owned())));
    }

    #[test]
    fn the_pages_of_a_site_are_of_its_root_and_of_the_users_of_its_pools() {
        let first = key("a", "anna", "root = \"/\"\npool = \"a\"");
        assert!(first.starts_with("a.example "), "{first}");
        assert_eq!(first, key("b", "anna", "root = \"/\"\npool = \"b\"\nindex = \"a.php\""));
        let others = [
            key("a", "bert", "root = \"/\"\npool = \"a\""),
            key("a", "anna", "root = \"/usr\"\npool = \"a\""),
            key("a", "anna", "root = \"/\"\nupstream = \"127.0.0.1:9000\""),
            key("a", "anna", "root = \"/\"\nupstream = \"127.0.0.1:9001\""),
        ];
        for (number, other) in others.iter().enumerate() {
            assert!(*other != first && !others[..number].contains(other), "{number}");
        }
    }
}
