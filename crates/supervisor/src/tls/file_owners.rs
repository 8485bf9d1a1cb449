//! The names that a certificate file is used for, where a site's user can change the file: the
//! hosts of that user. Without this, one tenant's file could name the hosts of all others.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use maitred_config::{Config, Destination, Host, Site};
use maitred_os::users::{self, Identity};
use maitred_os::walk::{self, Facts, Rule};
use maitred_tls::Pair;

use crate::system::{identity, path_trust};

const GROUP_WRITES: u32 = 0o020;
const OTHERS_WRITE: u32 = 0o002;
const STICKY: u32 = 0o1000;

/// A host of a site, and the user of that site, if it is known.
#[derive(Debug)]
struct OwnedHost {
    host: Host,
    uid: Option<u32>,
}

/// The names of a certificate that its file may be used for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Bounds {
    names: Vec<String>,
    /// Those that sites of other users have.
    foreign: Vec<String>,
}

/// All hosts, and the users of sites and pools.
#[derive(Debug, Default)]
struct Owners {
    hosts: Vec<OwnedHost>,
    users: Vec<Identity>,
}

/// Binds certificates to the hosts of the users that can change their files. A file that no user of
/// a site or pool can change is used for all of its names. Returns warnings, one sentence each.
pub fn bind(pairs: &mut [Pair], config: &Config) -> Vec<String> {
    let mut notes = Vec::new();
    if !users::is_root() {
        return notes;
    }
    let mut owners = None;
    for pair in pairs {
        let Some(places) = places_of_others(&pair.cert.path) else {
            continue;
        };
        let unbound = Pair::new(pair.cert.clone(), pair.key.clone());
        let Ok(names) = maitred_tls::host_names(&unbound) else {
            continue;
        };
        let Owners { hosts, users } = owners.get_or_insert_with(|| Owners::of(config));
        let writers = users.iter().filter(|user| places.iter().any(|at| may_change(user, at)));
        let writers: Vec<u32> = writers.map(|user| user.uid).collect();
        pair.names = None;
        if writers.is_empty() {
            continue;
        }
        let Bounds { names, foreign } = bounds(&names, hosts, &writers);
        pair.names = Some(names);
        if !foreign.is_empty() {
            notes.push(format!(
                "{}: the certificate is not used for {}: the user of another site can change the \
                 file; keep it in a folder of root's",
                pair.cert.path.display(),
                foreign.join(", ")
            ));
        }
    }
    notes
}

impl Owners {
    fn of(config: &Config) -> Owners {
        let mut found = Owners::default();
        for pool in &config.pools {
            found.users.extend(identity::of_pool(pool, config).ok().flatten());
        }
        for site in &config.sites {
            let user = user_of(site, config);
            let uid = user.as_ref().map(|user| user.uid);
            let hosts = site.hosts.iter().cloned();
            found.hosts.extend(hosts.map(|host| OwnedHost { host, uid }));
            found.users.extend(user.or_else(|| first_owner(&site.root)));
        }
        found.users.retain(|user| user.uid != 0);
        found
    }
}

fn user_of(site: &Site, config: &Config) -> Option<Identity> {
    let user = match &site.destination {
        Destination::Pool(name) => identity::of_pool(config.pool(name)?, config).ok().flatten(),
        Destination::Upstream(_) => path_trust::owner_of(&site.root).ok(),
    };
    user.filter(|user| user.uid != 0)
}

/// The first owner other than root on the way to a root that cannot be used: its tenant may have
/// removed it.
fn first_owner(root: &Path) -> Option<Identity> {
    let mut folders: Vec<&Path> = root.ancestors().collect();
    folders.reverse();
    let mut owners = folders.iter().filter_map(|folder| fs::symlink_metadata(folder).ok());
    let uid = owners.find(|found| found.uid() != 0)?.uid();
    users::look_up(&uid.to_string(), None).ok()
}

/// Where others than root can change what a path leads to; none: the path ends before.
fn places_of_others(path: &Path) -> Option<Vec<Facts>> {
    let reached = walk::to(path, Rule::of_reader()).ok()?;
    let mut places = Vec::new();
    for step in reached.steps.iter().filter(|step| !step.is_roots()) {
        let is_guarded = step.folder.mode & STICKY != 0 && step.entry.is_some();
        match step.entry {
            Some(entry) if is_guarded && step.folder.uid == 0 => places.push(entry),
            _ => places.push(step.folder),
        }
    }
    places.extend(reached.entry.map(|file| file.facts));
    Some(places)
}

/// Whether a user can change a file, or what is in a folder. The owner can change its mode.
fn may_change(user: &Identity, place: &Facts) -> bool {
    let group_writes = place.mode & GROUP_WRITES != 0;
    user.uid == place.uid
        || place.mode & OTHERS_WRITE != 0
        // The bits of the group are the mask of an access control list, which may name anybody.
        || group_writes && (place.has_list || users::is_member(user, place.gid))
}

/// The names of a certificate that are used, if these users can change its file: those for which
/// only sites of theirs get requests. Of a name with `*.` that other sites have a part in, their
/// own hosts.
fn bounds(names: &[String], hosts: &[OwnedHost], writers: &[u32]) -> Bounds {
    let mut found = Bounds::default();
    let is_theirs = |one: &OwnedHost| writers.iter().all(|writer| one.uid == Some(*writer));
    for name in names {
        let claimed = claimed(name, hosts);
        if claimed.iter().all(|one| is_theirs(one)) {
            found.names.push(name.clone());
            continue;
        }
        let (own, others): (Vec<&OwnedHost>, _) = claimed.iter().partition(|one| is_theirs(one));
        let own = own.iter().filter(|one| matches!(one.host, Host::Exact(_)));
        found.names.extend(own.map(|one| one.host.to_string()));
        if others.iter().any(|one: &&OwnedHost| one.host != Host::Any) {
            found.foreign.push(name.clone());
        }
    }
    found
}

/// The hosts whose requests a certificate with this name could be shown for.
fn claimed<'h>(name: &str, hosts: &'h [OwnedHost]) -> Vec<&'h OwnedHost> {
    let exact = |host: &Host| match host {
        Host::Exact(host) => match name.strip_prefix("*.") {
            None => host == name,
            Some(parent) => host.split_once('.').is_some_and(|(_, above)| above == parent),
        },
        _ => false,
    };
    let mut claimed: Vec<_> = hosts.iter().filter(|one| exact(&one.host)).collect();
    if claimed.is_empty() || name.starts_with("*.") {
        // The other names with this ending are those of the site with the longest one.
        let rank = |one: &&OwnedHost| match &one.host {
            Host::Below(parent) => {
                let rest = name.strip_suffix(parent.as_str());
                rest.filter(|rest| rest.ends_with('.')).map(|_| parent.len())
            }
            Host::Any => Some(0),
            Host::Exact(_) => None,
        };
        let ranked = hosts.iter().filter(|one| rank(one).is_some());
        claimed.extend(ranked.max_by_key(rank));
    }
    claimed
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: u32 = 5001;
    const B: u32 = 5002;

    fn host(host: Host, uid: u32) -> OwnedHost {
        OwnedHost { host, uid: Some(uid) }
    }

    fn exact(name: &str, uid: u32) -> OwnedHost {
        host(Host::Exact(name.to_owned()), uid)
    }

    fn below(name: &str, uid: u32) -> OwnedHost {
        host(Host::Below(name.to_owned()), uid)
    }

    fn of(names: &[&str], hosts: &[OwnedHost], writers: &[u32]) -> [String; 2] {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let Bounds { names, foreign } = bounds(&names, hosts, writers);
        [names.join(" "), foreign.join(" ")]
    }

    #[test]
    fn a_file_of_a_user_is_used_for_hosts_of_its_own() {
        let hosts = [
            exact("a.example", A),
            below("a.example", A),
            exact("b.example", B),
            below("b.example", B),
        ];
        let names = ["a.example", "*.a.example", "x.a.example", "b.example", "x.b.example"];
        assert_eq!(
            of(&names, &hosts, &[A]),
            ["a.example *.a.example x.a.example", "b.example x.b.example"]
        );
        assert_eq!(of(&["*.b.example"], &hosts, &[A]), ["", "*.b.example"]);
        assert_eq!(
            of(&["a.example", "none.example"], &hosts, &[A, B]),
            ["none.example", "a.example"]
        );
    }

    #[test]
    fn a_wildcard_that_covers_hosts_of_others_is_used_for_the_users_own() {
        let hosts = [exact("a.host.example", A), exact("b.host.example", B)];
        assert_eq!(of(&["*.host.example"], &hosts, &[A]), ["a.host.example", "*.host.example"]);
        // What the default site of another user gets is no name of anybody.
        let hosts = [exact("www.a.example", A), host(Host::Any, B)];
        assert_eq!(of(&["*.a.example", "c.example"], &hosts, &[A]), ["www.a.example", ""]);
        let hosts = [exact("www.a.example", A), host(Host::Any, A)];
        assert_eq!(of(&["*.a.example"], &hosts, &[A]), ["*.a.example", ""]);
    }
}
