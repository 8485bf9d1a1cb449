//! Evaluates the rules of a site for all paths of one request: the requested path, the rewritten
//! path, and the script or index file that it resolves to. Pure: `maitred explain` uses it as well.

use std::net::IpAddr;

use maitred_config::Site;
use maitred_rules::SiteRules;
use maitred_rules::path::{CleanPath, Refused, clean_path};
use maitred_rules::settings::Alias;
use maitred_rules::site_rules::Refusal;

use crate::site::files::StaticFile;
use crate::site::resolver::Script;

/// The required users, as indexes into `basic_auth`.
pub type NeededAuth = [Option<usize>; 3];

/// The rules of a site, and the paths of one request.
pub struct RouteRules<'r> {
    /// The site's settings.
    pub site: &'r Site,
    /// Its rules.
    pub rules: &'r SiteRules,
    /// The client.
    pub client: IpAddr,
    /// The path that the client requests, percent-encoded.
    pub requested: &'r str,
    /// The path for which the rules have been evaluated: after rewrites of the site's rules,
    /// percent-encoded.
    pub evaluated: &'r str,
    /// The path after rewrites of `.htaccess` files as well, percent-encoded.
    pub path: &'r str,
}

/// The requirements of the rules after a path has been resolved.
pub struct RouteChecks {
    /// Indexes of the rate limits that have not counted the request yet.
    pub limits: Vec<usize>,
    /// The required users, or the reason why the client is refused.
    pub admitted: Result<NeededAuth, Refusal>,
}

/// The target of a path, before it is looked up in the document root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathTarget {
    /// The server at this index of `proxy`.
    Proxy(usize),
    /// A directory listing, if the path is a directory without an index file.
    Listing,
    /// A file or script.
    Files,
}

/// The target of a path (decoded and normalised) for a request with this method.
pub fn target_of(rules: &SiteRules, path: &CleanPath<'_>, method: &str) -> PathTarget {
    if let Some(server) = rules.proxy(path.as_bytes()) {
        PathTarget::Proxy(server)
    } else if matches!(method, "GET" | "HEAD")
        && rules.lists(path.as_bytes())
        && !is_by_htaccess(rules, path)
    {
        PathTarget::Listing
    } else {
        PathTarget::Files
    }
}

/// Whether `.htaccess` files apply to a path: to those in the document root. Those of the root are
/// not for the folder of an alias, as in Apache.
pub fn is_by_htaccess(rules: &SiteRules, path: &CleanPath<'_>) -> bool {
    let settings = rules.settings();
    let is_in = |alias: &Alias| path.in_alias(&alias.path).is_some();
    settings.htaccess && !settings.aliases.iter().any(is_in)
}

impl RouteRules<'_> {
    /// Indexes of the rate limits for the path after rewrites. Each limit counts a request once.
    /// The front controller's own path has none, as it serves every path without a file.
    pub fn limits_of_rewritten(&self) -> Vec<usize> {
        match clean_path(self.path) {
            Ok(path) if !self.is_front_controller(path.as_bytes()) => {
                self.limits_beyond(path.as_bytes(), &[self.requested])
            }
            _ => Vec::new(),
        }
    }

    /// The requirements for a script. `/login.php/x`, and a directory with the index `login.php`,
    /// run `/login.php`, so the rules for the script's own path apply as well. For the front
    /// controller, the path after its name counts: most applications treat `/index.php/admin` as
    /// `/admin`. A path to which a `.htaccess` file leads counts as a whole as well: the rules have
    /// not been evaluated for it yet.
    pub fn of_script(&self, script: &Script) -> RouteChecks {
        let name = &script.script_name[..];
        let behind = self.path_behind(script);
        let counted = if self.is_front_controller(name) { behind } else { Some(name) };
        let counted =
            counted.map(|name| self.limits_beyond(name, &[self.requested, self.evaluated]));
        RouteChecks {
            limits: counted.unwrap_or_default(),
            admitted: self.admit_script(name, behind),
        }
    }

    fn admit_script(&self, name: &[u8], behind: Option<&[u8]>) -> Result<NeededAuth, Refusal> {
        if !self.rules.has_script_rules() {
            return Ok([None; 3]);
        }
        let by_name = self.admit(name)?;
        let by_path = behind.map_or(Ok(None), |path| self.admit(path))?;
        let by_rewrite = self.rewritten()?.map_or(Ok(None), |path| self.admit(path.as_bytes()))?;
        if self.rules.may_run(name) {
            return Ok([by_name, by_path, by_rewrite]);
        }
        Err(Refusal { status: 403, why: "PHP does not run here.", is_config_error: false })
    }

    /// The requirements for a file. The index file of a directory has a path of its own, and so has
    /// one to which a `.htaccess` file leads: the rules have not been evaluated for it yet.
    pub fn of_file(&self, entry: &StaticFile) -> RouteChecks {
        let own = match self.own_path(entry) {
            Ok(Some(own)) => own,
            Ok(None) => return RouteChecks { limits: Vec::new(), admitted: Ok([None; 3]) },
            Err(refusal) => return RouteChecks { limits: Vec::new(), admitted: Err(refusal) },
        };
        RouteChecks {
            limits: self.limits_beyond(&own, &[self.requested, self.evaluated]),
            admitted: self.admit(&own).map(|auth| [auth, None, None]),
        }
    }

    /// The requirements for the listing of a folder to which a `.htaccess` file leads.
    pub fn of_listing(&self) -> RouteChecks {
        let own = clean_path(self.path).map_err(not_comparable);
        let admitted = own.and_then(|own| self.admit(own.as_bytes()));
        RouteChecks { limits: Vec::new(), admitted: admitted.map(|auth| [auth, None, None]) }
    }

    /// The path of a file, unless the rules have been evaluated for it.
    fn own_path(&self, entry: &StaticFile) -> Result<Option<Vec<u8>>, Refusal> {
        if let Some(index) = index_path(self.path, entry) {
            return Ok(Some(index));
        }
        Ok(self.rewritten()?.map(|path| path.as_bytes().to_vec()))
    }

    /// The path to which a `.htaccess` file leads.
    fn rewritten(&self) -> Result<Option<CleanPath<'_>>, Refusal> {
        let is_other = self.path != self.evaluated;
        is_other.then(|| clean_path(self.path).map_err(not_comparable)).transpose()
    }

    fn admit(&self, path: &[u8]) -> Result<Option<usize>, Refusal> {
        self.rules.admit(path, self.client, &mut |_| {})
    }

    /// Indexes of the rate limits for a path without those for paths that counted the request.
    fn limits_beyond(&self, path: &[u8], counted: &[&str]) -> Vec<usize> {
        if !self.rules.limits_rates() {
            return Vec::new();
        }
        let mut limits = self.rules.rate_limits(path);
        for counted in counted {
            if limits.is_empty() {
                break;
            }
            if let Ok(counted) = clean_path(counted) {
                let counted = self.rules.rate_limits(counted.as_bytes());
                limits.retain(|limit| !counted.contains(limit));
            }
        }
        limits
    }

    /// The path behind the front controller's name, if a request has one.
    fn path_behind<'s>(&self, script: &'s Script) -> Option<&'s [u8]> {
        let behind = Some(&script.path_info[..]).filter(|path| !path.is_empty());
        behind.filter(|_| self.is_front_controller(&script.script_name))
    }

    fn is_front_controller(&self, name: &[u8]) -> bool {
        self.site.front_controller.as_deref().map(str::as_bytes) == Some(name)
    }
}

/// The refusal of a path that the rules cannot be compared with: one of them may be for it.
fn not_comparable(refused: Refused) -> Refusal {
    let why = "The path that the request leads to has a byte that no path may have.";
    Refusal { status: refused.status, why, is_config_error: false }
}

/// The path of the index of the folder at `path`. None if the path is the file's own.
fn index_path(path: &str, entry: &StaticFile) -> Option<Vec<u8>> {
    let folder = clean_path(path).ok()?;
    let name = entry.name().rsplit(|byte| *byte == b'/').next();
    let is_folder = folder.as_bytes().ends_with(b"/");
    is_folder.then(|| [folder.as_bytes(), name.unwrap_or_default()].concat())
}
