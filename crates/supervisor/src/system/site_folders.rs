//! The folders of sites: whether they exist, and whether the front can read them.

use std::io::ErrorKind;
use std::path::Path;

use maitred_config::{Config, Section, Site, directory_problem};
use maitred_os::folder_lookups::look_up;
use maitred_os::users::{self, Identity};

use crate::error::Error;
use crate::system::faults::Examined;

/// The folders of sites that do not exist, or that the `front` cannot enter. For a process with one
/// thread.
pub fn mistakes(config: &Config, front: Option<&Identity>, examined: &Examined) -> Vec<Error> {
    let sites: Vec<(usize, &Site)> = examined.sites(config).collect();
    if sites.is_empty() {
        return Vec::new();
    }
    let missing = each(&sites, |number, setting, path| {
        let problem = directory_problem(path).or_else(|| entrance_problem(path));
        Some(wrong(number, setting, path, &problem?))
    });
    let closed = front.map(|front| closed(&sites, front)).into_iter().flatten();
    missing.chain(closed).collect()
}

/// The mistake that a folder of a site is unusable; `problem` is the end of the sentence.
pub fn wrong(number: usize, setting: &'static str, path: &Path, problem: &str) -> Error {
    let said = format!("`{setting}` is {}, but it {problem}", path.display());
    Error::Setting { section: Section::Site(number), setting, said }
}

fn entrance_problem(path: &Path) -> Option<String> {
    let why = look_up(path, || path.join(".").metadata()).err()?;
    Some(format!("cannot be entered: {why}"))
}

fn closed(sites: &[(usize, &Site)], front: &Identity) -> Vec<Error> {
    let closed = each(sites, |number, setting, path| {
        let why = look_up(path, || path.join(".").metadata()).err()?;
        // A folder that is missing, locked, or a file, is that for root, too.
        let known = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::TimedOut];
        let is_closed = !known.contains(&why.kind());
        let said = is_closed.then(|| {
            format!(
                "the front runs as user `{}`, who cannot look into {}: {why}; let that user in, \
                 or set `front_user` to one that may",
                front.name,
                path.display()
            )
        })?;
        Some(Error::Setting { section: Section::Site(number), setting, said })
    });
    // Where its rights cannot be tried out, nothing is reported.
    users::with_rights_of(front, || closed.collect()).unwrap_or_default()
}

/// What `check` finds about the folders of these sites.
fn each<'a>(
    sites: &'a [(usize, &Site)],
    check: impl Fn(usize, &'static str, &Path) -> Option<Error> + 'a,
) -> impl Iterator<Item = Error> + 'a {
    sites.iter().flat_map(move |(number, site)| {
        let found = folders(site).filter_map(|(setting, path)| check(*number, setting, path));
        found.collect::<Vec<_>>()
    })
}

/// The folders that a site serves files of, each with the name of its setting.
fn folders(site: &Site) -> impl Iterator<Item = (&'static str, &Path)> {
    let aliases = site.rules.aliases.iter().map(|alias| ("aliases", alias.folder.as_path()));
    let sent = site.output.sendfile_roots.iter();
    let sent = sent.map(|root| ("sendfile_roots", root.folder.as_path()));
    std::iter::once(("root", site.root.as_path())).chain(aliases).chain(sent)
}
