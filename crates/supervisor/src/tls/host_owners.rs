//! Hosts of certificate files, by the users of their sites. A user can write the hosts of all
//! others into a certificate file of its own: for these, any other certificate is used before it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use maitred_config::{Config, Destination, Host, PoolUser, Site};
use maitred_os::users;
use maitred_tls::{Fault, FileWriter, Pair};

/// Write permission of the group, which is the mask of an access control list, and of all.
const GROUP_OR_OTHERS_WRITE: u32 = 0o022;

/// Most hosts that a warning about a file names.
const MAX_SHOWN: usize = 5;

/// A host of a site, and the user of its pool, if it is known.
#[derive(Debug)]
struct OwnedHost {
    host: Host,
    uid: Option<u32>,
}

/// Who may have written an open file. Its folder does not matter: a user that can replace it there
/// owns the new one.
pub fn writer_of(file: &Metadata) -> FileWriter {
    match file.uid() {
        _ if file.mode() & GROUP_OR_OTHERS_WRITE != 0 => FileWriter::Several,
        uid if users::is_trusted(uid) => FileWriter::Server,
        uid => FileWriter::User(uid),
    }
}

/// The hosts of all sites.
#[derive(Debug)]
pub struct HostOwners(Vec<OwnedHost>);

impl HostOwners {
    /// Those of a configuration whose users were looked up.
    pub fn of(config: &Config) -> HostOwners {
        let owned = |site: &Site| {
            let uid = user_of(site, config);
            let hosts = site.hosts.iter().cloned();
            hosts.map(|host| OwnedHost { host, uid }).collect::<Vec<_>>()
        };
        HostOwners(config.sites.iter().flat_map(owned).collect())
    }

    /// A certificate that yields to others for the names that are not its writer's alone.
    ///
    /// # Errors
    /// A fault of the certificate or its key.
    pub fn with_yields(&self, mut pair: Pair) -> Result<Pair, Fault> {
        let names = maitred_tls::host_names(&pair)?;
        pair.yields = self.foreign(&names, pair.writer);
        Ok(pair)
    }

    /// Whether one of the certificates yields for a host and is no other tenant's, who would decide
    /// what clients of the host are shown.
    pub fn have_interim(&self, host: &str, certificates: &[Pair]) -> bool {
        let domain = host.split_once('.').map(|(_, parent)| format!("*.{parent}"));
        let is_name = |name: &String| name == host || domain.as_ref() == Some(name);
        certificates
            .iter()
            .any(|pair| pair.yields.iter().any(is_name) && !self.is_of_others(host, pair.writer))
    }

    /// Whether the user of sites has written a file, and a host is that of another user.
    fn is_of_others(&self, host: &str, writer: FileWriter) -> bool {
        let FileWriter::User(uid) = writer else { return false };
        let is_other = |one: &&OwnedHost| one.uid.is_some_and(|own| own != uid);
        self.0.iter().any(|one| one.uid == Some(uid)) && claimed(host, &self.0).iter().any(is_other)
    }

    fn foreign(&self, names: &[String], writer: FileWriter) -> Vec<String> {
        let is_own = |name: &str| match writer {
            FileWriter::Server => true,
            FileWriter::User(uid) => claimed(name, &self.0).iter().all(|one| one.uid == Some(uid)),
            FileWriter::Several => false,
        };
        names.iter().filter(|name| !is_own(name)).cloned().collect()
    }

    /// Warnings about the hosts for which a certificate yields to others: a sentence for each file.
    pub fn notes(&self, pairs: &[Pair]) -> Vec<String> {
        let is_host = |name: &&String| !claimed(name, &self.0).is_empty();
        let note = |pair: &Pair| {
            let hosts: Vec<&str> = pair.yields.iter().filter(is_host).map(String::as_str).collect();
            (!hosts.is_empty()).then(|| {
                let more = match hosts.len().saturating_sub(MAX_SHOWN) {
                    0 => String::new(),
                    more => format!(" and {more} more"),
                };
                format!(
                    "{}: others than root and the user of {}{more} may write it: any other \
                     certificate for these is used before it",
                    pair.cert.path.display(),
                    hosts[..hosts.len().min(MAX_SHOWN)].join(", ")
                )
            })
        };
        pairs.iter().filter_map(note).collect()
    }
}

fn user_of(site: &Site, config: &Config) -> Option<u32> {
    let Destination::Pool(name) = &site.destination else { return None };
    match config.pool(name)?.runs_as {
        PoolUser::Known { uid, .. } => Some(uid),
        PoolUser::OfServer | PoolUser::Unknown => None,
    }
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

    fn exact(name: &str, uid: u32) -> OwnedHost {
        OwnedHost { host: Host::Exact(name.to_owned()), uid: Some(uid) }
    }

    fn below(name: &str, uid: u32) -> OwnedHost {
        OwnedHost { host: Host::Below(name.to_owned()), uid: Some(uid) }
    }

    fn foreign(names: &[&str], hosts: Vec<OwnedHost>, writer: FileWriter) -> String {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        HostOwners(hosts).foreign(&names, writer).join(" ")
    }

    #[test]
    fn a_file_that_its_group_or_others_can_write_has_several_writers() {
        use std::os::unix::fs::PermissionsExt;
        let file = tempfile::tempfile().unwrap();
        let of = |mode| {
            file.set_permissions(std::fs::Permissions::from_mode(mode)).unwrap();
            writer_of(&file.metadata().unwrap())
        };
        let writers = [0o644, 0o620, 0o602].map(of);
        assert_eq!(writers, [FileWriter::Server, FileWriter::Several, FileWriter::Several]);
    }

    #[test]
    fn a_file_of_a_user_yields_for_hosts_of_others() {
        let hosts = || {
            vec![
                exact("a.example", A),
                below("a.example", A),
                exact("b.example", B),
                below("b.example", B),
            ]
        };
        let names = ["a.example", "*.a.example", "x.a.example", "b.example", "x.b.example"];
        let of = |names: &[&str], writer| foreign(names, hosts(), writer);
        assert_eq!(of(&names, FileWriter::User(A)), "b.example x.b.example");
        assert_eq!(of(&["*.b.example"], FileWriter::User(A)), "*.b.example");
        assert_eq!(of(&names, FileWriter::Server), "");
        assert_eq!(of(&names[..2], FileWriter::Several), "a.example *.a.example");
    }

    #[test]
    fn a_wildcard_that_covers_hosts_of_others_yields() {
        let hosts = || vec![exact("a.host.example", A), exact("b.host.example", B)];
        let of = |name, writer| foreign(&[name], hosts(), writer);
        assert_eq!(of("*.host.example", FileWriter::User(A)), "*.host.example");
        assert_eq!(of("a.host.example", FileWriter::User(A)), "");
        let unknown = vec![OwnedHost { host: Host::Exact("c.example".to_owned()), uid: None }];
        assert_eq!(foreign(&["c.example"], unknown, FileWriter::User(A)), "c.example");
    }

    #[test]
    fn a_host_has_tls_by_a_file_that_yields_unless_that_is_another_tenants() {
        let owners = HostOwners(vec![exact("a.example", A), exact("b.example", B)]);
        let of = |yields: &str, writer| {
            let file = maitred_tls::PemFile::new("site.pem".into(), b"");
            let yields = vec![yields.to_owned()];
            let pair = Pair { yields, writer, ..Pair::new(file.clone(), file) };
            owners.have_interim("b.example", &[pair])
        };
        assert!(of("b.example", FileWriter::Several));
        assert!(of("*.example", FileWriter::User(6000)), "a user without sites");
        assert!(!of("b.example", FileWriter::User(A)));
        assert!(!of("a.example", FileWriter::Several));
    }

    #[test]
    fn a_warning_about_a_file_names_a_few_hosts_and_counts_the_rest() {
        use maitred_tls::PemFile;
        let file = PemFile::new("site.pem".into(), b"");
        let yields: Vec<String> = (0..1000).map(|number| format!("{number}.example")).collect();
        let pair = Pair { yields, ..Pair::new(file.clone(), file) };
        let notes = HostOwners(vec![below("example", B)]).notes(&[pair]);
        let start = "site.pem: others than root and the user of 0.example, 1.example, 2.example, \
                     3.example, 4.example and 995 more may write it: ";
        assert!(notes.len() == 1 && notes[0].starts_with(start), "{notes:?}");
    }
}
