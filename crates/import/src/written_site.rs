//! What an imported site serves, by the rules that were written.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use maitred_config::{Host, Site};
use maitred_rules::path::{clean_path, is_dot_name, is_php_source};
use maitred_rules::site_rules::{RuleRequest, SiteRules, Verdict};

/// A client that no rule names (RFC 5737).
pub const ANY_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

/// What is behind a path, if there is a file with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Behind {
    /// Nothing: a refusal, a redirect, a file that only scripts send.
    Nothing,
    /// Another HTTP server.
    Server,
    /// The script with this name runs.
    Script,
    /// The file is sent.
    File,
}

/// What clients get at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Served {
    /// What is behind it.
    pub behind: Behind,
    /// The file with the users that it requires, if it requires one.
    pub users: Option<PathBuf>,
}

impl Served {
    /// Nothing.
    pub const NOTHING: Served = Served { behind: Behind::Nothing, users: None };
}

/// The written sites, each with the place of its origin.
pub struct WrittenSites(Vec<(String, Option<WrittenSite>)>);

impl WrittenSites {
    /// Those of a `maitred.toml`, whose sites come from these places in this order. None if it has
    /// a mistake.
    pub fn of(toml: &str, from: &[&str]) -> WrittenSites {
        let parsed = maitred_config::parse(toml, Path::new("/maitred.toml"));
        let sites = parsed.map(|config| config.sites).unwrap_or_default();
        let sites = sites.into_iter().map(WrittenSite::new);
        WrittenSites(from.iter().map(|from| (*from).to_owned()).zip(sites).collect())
    }

    /// The site from a place: the last one, after those of names that are redirected.
    pub fn from(&self, place: &str) -> Option<&WrittenSite> {
        self.0.iter().rfind(|(from, _)| from == place).and_then(|(_, site)| site.as_ref())
    }
}

impl WrittenSites {
    /// All of them, in their order.
    pub fn all(&self) -> impl Iterator<Item = Option<&WrittenSite>> {
        self.0.iter().map(|(_, site)| site.as_ref())
    }

    /// The site that has the requests for a host.
    pub fn of_host(&self, name: &str) -> Option<&WrittenSite> {
        let sites = self.0.iter().filter_map(|(_, site)| site.as_ref());
        let hosts = sites.flat_map(|site| site.site.hosts.iter().map(move |host| (host, site)));
        let ranked = hosts.filter_map(|(host, site)| Some((rank(host, name)?, site)));
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, site)| site)
    }
}

/// How closely a host matches a name, if it does: an exact one, the longest `*.`, all.
fn rank(host: &Host, name: &str) -> Option<usize> {
    match host {
        Host::Exact(own) => (own == name).then_some(usize::MAX),
        Host::Below(end) => {
            let is_below = name.strip_suffix(end.as_str()).is_some_and(|rest| rest.ends_with('.'));
            is_below.then_some(end.len())
        }
        Host::Any => Some(0),
    }
}

/// A written site.
pub struct WrittenSite {
    site: Site,
    rules: SiteRules,
}

impl WrittenSite {
    fn new(site: Site) -> Option<WrittenSite> {
        let rules = SiteRules::compile(&site.rules).ok()?;
        Some(WrittenSite { site, rules })
    }

    /// The file with the name of a path.
    pub fn file(&self, path: &str) -> String {
        let aliases = self.site.rules.aliases.iter().filter(|one| path.starts_with(&one.path));
        let (folder, name) = match aliases.max_by_key(|one| one.path.len()) {
            // The prefix ends with a slash, which the name begins with.
            Some(alias) => (&alias.folder, &path[alias.path.len() - 1..]),
            None => (&self.site.root, path),
        };
        format!("{}{name}", folder.display().to_string().trim_end_matches('/'))
    }

    /// What any client gets at a decoded path.
    pub fn serve(&self, path: &str) -> Served {
        let Ok(clean) = clean_path(path) else { return Served::NOTHING };
        let request = RuleRequest {
            path: &clean,
            query: None,
            scheme: "https",
            host: "zz9.example",
            client: ANY_CLIENT,
        };
        let Verdict::Serve(serve) = self.rules.decide(&request) else { return Served::NOTHING };
        if serve.rewritten.is_some() {
            return Served::NOTHING;
        }
        let mut users = serve.auth.into_iter().flatten();
        let users = users.next().map(|at| self.site.rules.basic_auth[at].users.clone());
        if self.rules.proxy(path.as_bytes()).is_some() {
            return Served { behind: Behind::Server, users };
        }
        if self.is_hidden(path) {
            return Served::NOTHING;
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        match (path.ends_with(".php"), is_php_source(name.as_bytes())) {
            (true, _) if self.rules.may_run(path.as_bytes()) => {
                Served { behind: Behind::Script, users }
            }
            (true, _) | (_, true) => Served::NOTHING,
            (false, false) => Served { behind: Behind::File, users },
        }
    }

    /// Whether no file of a path is sent to clients, or scripts alone send it.
    fn is_hidden(&self, path: &str) -> bool {
        let mut roots = self.site.output.sendfile_roots.iter();
        // Not hidden (RFC 8615).
        let hideable = path.strip_prefix("/.well-known/").unwrap_or(path);
        hideable.split('/').any(|name| is_dot_name(name.as_bytes()))
            || roots.any(|root| path.starts_with(&root.path))
    }
}
