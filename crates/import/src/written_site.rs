//! What an imported site serves, by the rules that were written.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use maitred_config::{Destination, Host, Site};
use maitred_rules::path::{CleanPath, clean_path, is_dot_name, is_php_source};
use maitred_rules::site_rules::{Rewritten, RuleRequest, SiteRules, Verdict};

use crate::escapes::percent_decoded;
use crate::file_draft::{FileDraft, PoolDraft};
use crate::report::{ImportReport, SourceLine};
use crate::toml_text;

/// A client that no rule names (RFC 5737).
pub const ANY_CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

/// A file that exists everywhere, in place of a file of users, which may be on another machine.
const EXISTING_FILE: &str = "/dev/null";

/// The beginning of the file of users in an item of `basic_auth`.
const USERS: &str = "users = ";

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
    /// Those of a draft of the configuration `main`, whatever of its files is on this machine. A
    /// mistake in it is a finding.
    pub fn of(file: &FileDraft, main: &str, report: &mut ImportReport) -> WrittenSites {
        let parsed = maitred_config::parse(&bare(file).to_toml(main), Path::new("/maitred.toml"));
        let sites = match parsed {
            Ok(config) => config.sites,
            Err(mistakes) => {
                let first = mistakes.iter().next().map(|one| one.sentence.clone());
                not_compared(main, &first.unwrap_or_default(), report);
                return WrittenSites(Vec::new());
            }
        };
        let mut all = Vec::new();
        for (mut site, draft) in sites.into_iter().zip(&file.sites) {
            let items = draft.settings.list("basic_auth");
            for (rule, item) in site.rules.basic_auth.iter_mut().zip(items) {
                let (_, users) = with_existing_users(&item.toml).unwrap_or_default();
                rule.users = Path::new("/").join(users);
            }
            let written = WrittenSite::new(site);
            if written.is_none() {
                not_compared(main, &format!("the rules of {} are wrong", draft.from), report);
            }
            all.push((draft.from.clone(), written));
        }
        WrittenSites(all)
    }

    /// Those of a `maitred.toml`, whose sites come from these places in this order.
    #[cfg(test)]
    pub fn of_toml(toml: &str, from: &[&str]) -> WrittenSites {
        let parsed = maitred_config::parse(toml, Path::new("/maitred.toml"));
        let sites = parsed.expect("it has no mistake").sites.into_iter().map(WrittenSite::new);
        WrittenSites(from.iter().map(|from| (*from).to_owned()).zip(sites).collect())
    }

    /// The site from a place: the last one, after those of names that are redirected.
    pub fn from(&self, place: &str) -> Option<&WrittenSite> {
        self.0.iter().rfind(|(from, _)| from == place).and_then(|(_, site)| site.as_ref())
    }

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

/// The finding that nothing or not all is compared.
fn not_compared(main: &str, why: &str, report: &mut ImportReport) {
    let place = SourceLine { file: Rc::from(main), line: 1, word: 0 };
    let why = format!(
        "the result could not be compared with it ({why}): correct the result, and compare what \
         both serve"
    );
    report.access_left_out(&place, "the configuration", &why);
}

/// A draft without what rules for paths do not need, and with an existing file in place of each
/// file that must exist.
fn bare(file: &FileDraft) -> FileDraft {
    let pools = file.pools.iter();
    let pools = pools.map(|one| PoolDraft { name: one.name.clone(), ..PoolDraft::default() });
    let mut sites = file.sites.clone();
    for site in &mut sites {
        site.cache = None;
        site.settings.change_list("basic_auth", |item| {
            with_existing_users(item).map_or_else(|| item.to_owned(), |(item, _)| item)
        });
    }
    FileDraft { sites, pools: pools.collect(), ..FileDraft::default() }
}

/// An item of `basic_auth` with an existing file of users, and the name of its own.
fn with_existing_users(item: &str) -> Option<(String, String)> {
    let at = item.rfind(USERS)? + USERS.len();
    let (before, value) = item.split_at(at);
    let quote = value.chars().next().filter(|quote| ['"', '\''].contains(quote))?;
    let (users, after) = value[1..].split_once(quote)?;
    let existing = toml_text::string(EXISTING_FILE);
    Some((format!("{before}{existing}{after}"), users.to_owned()))
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

/// A request of any client for a path.
fn any_request<'p>(path: &'p CleanPath<'p>) -> RuleRequest<'p> {
    let client = ANY_CLIENT;
    RuleRequest { path, query: None, scheme: "https", host: "zz9.example", client }
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
        let Verdict::Serve(serve) = self.rules.decide(&any_request(&clean)) else {
            return Served::NOTHING;
        };
        // Scripts are rewritten to themselves, so that no later rewrite applies to them.
        let is_same = |to: &Rewritten| {
            percent_decoded(&to.path).is_some_and(|to| to.as_bytes() == clean.as_bytes())
        };
        if serve.rewritten.is_some_and(|to| !is_same(&to)) {
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

    /// The path that rewrites make of a decoded path, if some do.
    pub fn rewritten(&self, path: &str) -> Option<String> {
        let clean = clean_path(path).ok()?;
        let Verdict::Serve(serve) = self.rules.decide(&any_request(&clean)) else { return None };
        let path = serve.rewritten?.path;
        let clean = clean_path(&path).ok()?;
        String::from_utf8(clean.as_bytes().to_vec()).ok()
    }

    /// The pool that runs the script of a path; none if a FastCGI server does.
    pub fn pool(&self, path: &str) -> Option<&str> {
        let of_site = match &self.site.destination {
            Destination::Pool(name) => Some(name.as_str()),
            Destination::Upstream(_) => None,
        };
        self.rules.path_settings(path.as_bytes()).pool.or(of_site)
    }

    /// Whether a script runs for a path without a file.
    pub fn has_front_script(&self, path: &str) -> bool {
        let mut aliases = self.site.rules.aliases.iter();
        let is_script = |file: &String| file.ends_with(".php");
        self.site.front_controller.as_ref().is_some_and(is_script)
            && !aliases.any(|one| path.starts_with(&one.path))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hidden_name_is_served_but_the_well_known_folder() {
        let toml = "[[sites]]\nroot = \"/srv/a\"\n";
        let sites = WrittenSites::of_toml(toml, &[""]);
        let site = sites.from("").expect("a site");
        for path in ["/.git/a", "/a/.b", "/.well-known/.a", "/a/.well-known/b"] {
            assert_eq!(site.serve(path).behind, Behind::Nothing, "{path}");
        }
        assert_eq!(site.serve("/.well-known/a").behind, Behind::File);
    }

    #[test]
    fn a_path_that_is_rewritten_to_itself_is_served() {
        let toml = "[[sites]]\nroot = \"/srv/a\"\nrewrite = [\n\
                    { from = \"~^(/.*\\\\.php)$\", to = \"$1\", end = true },\n\
                    { from = \"/b\", to = \"/c\" }]\n";
        let sites = WrittenSites::of_toml(toml, &[""]);
        let behind = |path| sites.from("").expect("a site").serve(path).behind;
        assert_eq!(behind("/a b.php"), Behind::Script);
        assert_eq!(behind("/b"), Behind::Nothing);
    }

    #[test]
    fn the_users_of_a_rule_are_replaced_by_a_file_that_exists() {
        let of = |users: &str| {
            let users = toml_text::string(users);
            with_existing_users(&format!("{{ path = \"users = \", users = {users} }}"))
        };
        let bare = "{ path = \"users = \", users = \"/dev/null\" }".to_owned();
        assert_eq!(of("/a/b"), Some((bare.clone(), "/a/b".to_owned())));
        assert_eq!(of(r"/a\b"), Some((bare, r"/a\b".to_owned())));
        assert_eq!(with_existing_users("{ path = \"/a\" }"), None);
    }
}
