//! Folders that, by their names, hold uploads, and in which PHP would run. An uploaded script would
//! run as the pool's user.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use maitred_config::{Config, Destination, Site};
use maitred_os::users::{self, Identity};
use maitred_rules::SiteRules;

use crate::system::identity;

/// Names of upload folders, in lower case.
const NAMES: [&str; 4] = ["files", "media", "upload", "uploads"];

/// Skipped folders: they hold installed packages, and thousands of folders.
const PASSED_OVER: [&str; 2] = ["node_modules", "vendor"];

/// Depth of the search below a site's root or alias.
const MAX_DEPTH: usize = 3;

/// Most entries read for one site.
const MAX_ENTRIES: usize = 50_000;

/// Most folders named for one site.
const MAX_NAMED: usize = 5;

/// One sentence for each site that has such folders, with the site's number. For a process with one
/// thread.
pub fn warnings(config: &Config) -> Vec<(usize, String)> {
    let sites = config.sites.iter().enumerate();
    let warned = sites.filter_map(|(number, site)| {
        let rules = SiteRules::compile(&site.rules).ok()?;
        let found = match user_of(config, site) {
            Some(user) => users::with_rights_of(&user, || find(site, &rules)).ok()?,
            None => find(site, &rules),
        };
        Some((number, sentence(site, &found)?))
    });
    warned.collect()
}

/// The user of a site's scripts; none: that of this process, or an upstream server's.
fn user_of(config: &Config, site: &Site) -> Option<Identity> {
    match &site.destination {
        Destination::Pool(name) => identity::of_pool(config.pool(name)?, config).ok()?,
        Destination::Upstream(_) => None,
    }
}

fn sentence(site: &Site, found: &[String]) -> Option<String> {
    if found.is_empty() {
        return None;
    }
    let named: Vec<&str> = found.iter().map(String::as_str).take(MAX_NAMED).collect();
    let more = match found.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let patterns: Vec<String> = named.iter().map(|path| format!("\"{path}*\"")).collect();
    Some(format!(
        "PHP runs in folders of the site at {} that its scripts can write to and that are named as \
         those for uploads are: {}{more}; an uploaded script would run there; add \
         deny_php = [{}] unless it has to",
        site.root.display(),
        named.join(", "),
        patterns.join(", ")
    ))
}

/// The paths of such folders, with the rights of this process.
fn find(site: &Site, rules: &SiteRules) -> Vec<String> {
    let root = ("/".to_owned(), site.root.clone());
    let aliases = site.rules.aliases.iter();
    let aliases = aliases.map(|alias| (alias.path.clone(), alias.folder.clone()));
    let mut found = Vec::new();
    let mut left = MAX_ENTRIES;
    for (path, folder) in std::iter::once(root).chain(aliases) {
        let mut folders = vec![(path, folder, 0)];
        while let Some((path, folder, depth)) = folders.pop() {
            if is_upload_folder(&path) && runs_php(rules, &path) && users::may_write_to(&folder) {
                // Its subfolders are of the same kind.
                found.push(path);
            } else if depth < MAX_DEPTH {
                let below = below(&folder, &mut left);
                let below = below.map(|(name, below)| (format!("{path}{name}/"), below, depth + 1));
                folders.extend(below);
            }
        }
    }
    found.sort();
    found
}

/// The subfolders of a folder, as long as entries are `left`. Links are not followed: their targets
/// have a path of their own, or are outside.
fn below(folder: &Path, left: &mut usize) -> impl Iterator<Item = (String, PathBuf)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let entries: Vec<_> = entries.take(*left).collect();
    *left -= entries.len();
    let folders = entries.into_iter().filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let is_wanted = !name.starts_with('.') && !PASSED_OVER.contains(&name.as_str());
        let is_folder = is_wanted && entry.file_type().ok()?.is_dir();
        is_folder.then(|| (name, entry.path()))
    });
    folders.collect::<Vec<_>>().into_iter()
}

fn is_upload_folder(path: &str) -> bool {
    let name = path.trim_end_matches('/').rsplit('/').next();
    name.is_some_and(|name| NAMES.contains(&name.to_ascii_lowercase().as_str()))
}

/// Whether a script in the folder would run for a client of no particular address.
fn runs_php(rules: &SiteRules, path: &str) -> bool {
    let script = format!("{path}x.php");
    let client = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    rules.may_run(script.as_bytes())
        && rules.admit(script.as_bytes(), client, &mut |_| {}).is_ok_and(|user| user.is_none())
}
