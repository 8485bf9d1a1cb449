//! The folders of sites: whether they exist, whether the front can read them, and whether they are
//! in the `chroot` of their pools.

use std::io::ErrorKind;
use std::path::Path;

use maitred_config::{Config, Pool, Section, Site, directory_problem, file_problem};
use maitred_os::folder_lookups::look_up;
use maitred_os::users::{self, Identity};

use crate::error::Error;
use crate::system::faults::Examined;

/// The folders of sites that do not exist, that the `front` cannot enter, or that are outside of a
/// pool's `chroot`, and missing files of users. For a process with one thread.
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
    let outside = sites.iter().filter_map(|(number, site)| {
        let mut pools = site.pools().filter_map(|name| config.pool(name));
        let (setting, said) = pools.find_map(|pool| outside_of_chroot(site, pool))?;
        Some(Error::Setting { section: Section::Site(*number), setting, said })
    });
    let users = sites.iter().flat_map(|(number, site)| missing_users(*number, site));
    missing.chain(closed).chain(outside).chain(users).collect()
}

/// The files of users that are missing: the paths that need one get a 503.
fn missing_users(number: usize, site: &Site) -> Vec<Error> {
    let all = site.rules.basic_auth.iter();
    let missing = all.filter_map(|auth| {
        let problem = file_problem(&auth.users)?;
        let said = format!("`basic_auth.users` is {}, but it {problem}", auth.users.display());
        Some(Error::Setting { section: Section::Site(number), setting: "basic_auth", said })
    });
    missing.collect()
}

/// The setting of a site that names a folder outside of its pool's `chroot`, and the sentence about
/// it: scripts see nothing but files below that. One that is missing is reported as that.
fn outside_of_chroot(site: &Site, pool: &Pool) -> Option<(&'static str, String)> {
    let chroot = pool.confinement.chroot.as_deref()?;
    let aliases = site.rules.aliases.iter().map(|alias| ("aliases", &alias.folder));
    let mut folders = std::iter::once(("root", &site.root)).chain(aliases);
    folders.find_map(|(setting, named)| {
        let folder = look_up(named, || named.canonicalize()).ok()?;
        (!folder.starts_with(chroot)).then(|| {
            let said = format!(
                "`{setting}` is {}, which is not below {}, the `chroot` of pool `{}`; move the \
                 site there, or give it another pool",
                folder.display(),
                chroot.display(),
                pool.name
            );
            (setting, said)
        })
    })
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_site_outside_of_its_pools_chroot_is_a_mistake_of_that_site() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().canonicalize().unwrap();
        for name in ["jail/public", "elsewhere"] {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let text = "[pools.www]\nchroot = \"jail\"\n[[sites]]\nroot = \"jail/public\"\n\
                    aliases = { \"/a/\" = \"jail\" }\n";
        let config = maitred_config::parse(text, &dir.join("m.toml")).unwrap();
        let found = || mistakes(&config, None, &Examined::All);
        assert!(found().is_empty());
        fs::remove_dir(dir.join("jail/public")).unwrap();
        symlink("../elsewhere", dir.join("jail/public")).unwrap();
        let all = found();
        let [Error::Setting { section, setting, said }] = all.as_slice() else { panic!("{all:?}") };
        assert_eq!((section, *setting), (&Section::Site(0), "root"));
        let said = said.replace(dir.to_str().unwrap(), "DIR");
        assert_eq!(
            said,
            "`root` is DIR/elsewhere, which is not below DIR/jail, the `chroot` of pool `www`; \
             move the site there, or give it another pool"
        );
    }
}
