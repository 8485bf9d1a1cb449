//! The files and folders of pools: whether they exist, and where they are. A tenant may own them.

use std::path::Path;

use maitred_config::{Config, Mode, Pool, Section, directory_problem, file_problem};
use maitred_os::folder_lookups::look_up;

use crate::error::Error;
use crate::system::faults::Examined;

/// A setting that names what cannot be used, and the sentence about it.
type Wrong = (&'static str, String);

/// The files and folders of pools that cannot be used. Where the server was started as php-fpm, the
/// checks are php-fpm's.
pub fn mistakes(config: &Config, examined: &Examined) -> Vec<Error> {
    if config.fpm.is_some() {
        return Vec::new();
    }
    let of_pool = |pool: &Pool| {
        let section = Section::Pool(pool.name.clone());
        let wrong = wrong(pool).into_iter();
        let errors = wrong.map(move |(setting, said)| Error::Setting {
            section: section.clone(),
            setting,
            said,
        });
        errors.collect::<Vec<_>>()
    };
    examined.pools(config).flat_map(of_pool).collect()
}

fn wrong(pool: &Pool) -> Vec<Wrong> {
    let file = |setting, path: &Path| because(setting, path, file_problem(path));
    let scanned = |path: &Path| because("php_ini_scan_dir", path, directory_problem(path));
    let files = [
        pool.php_ini.as_deref().and_then(|path| file("php_ini", path)),
        pool.php_ini_scan_dir.as_deref().and_then(scanned),
    ];
    let mut wrong: Vec<Wrong> = files.into_iter().flatten().collect();
    let chroot = pool.confinement.chroot.as_deref();
    match chroot.and_then(|chroot| because("chroot", chroot, chroot_problem(chroot))) {
        // The others are in it.
        Some(lost) => wrong.push(lost),
        None => {
            wrong.extend(wrong_chdir(pool));
            let script = pool.script.as_deref().filter(|_| pool.mode != Mode::Classic);
            wrong.extend(script.and_then(|script| {
                file("script", script).or_else(|| script_outside_of(chroot?, script))
            }));
        }
    }
    wrong
}

fn because(setting: &'static str, path: &Path, problem: Option<String>) -> Option<Wrong> {
    let problem = problem?;
    Some((setting, format!("`{setting}` is {}, but it {problem}", path.display())))
}

/// Why a directory cannot be the root of a pool. Its path was real when the configuration was read:
/// a symbolic link on it may lead to more than the pool is to see.
fn chroot_problem(chroot: &Path) -> Option<String> {
    let missing = directory_problem(chroot);
    missing.or_else(|| match look_up(chroot, || chroot.canonicalize()) {
        Ok(real) if real == chroot => None,
        Ok(real) => Some(format!(
            "leads to {} by a symbolic link, which is not followed; put a directory in the place \
             of the link, or name that one and restart",
            real.display()
        )),
        Err(why) => Some(format!("cannot be accessed: {why}")),
    })
}

fn wrong_chdir(pool: &Pool) -> Option<Wrong> {
    let chdir = pool.confinement.chdir.as_deref()?;
    let Some(chroot) = &pool.confinement.chroot else {
        return because("chdir", chdir, directory_problem(chdir));
    };
    let inside = chroot.join(chdir.strip_prefix("/").unwrap_or(chdir));
    let problem = directory_problem(&inside)?;
    let (chdir, inside) = (chdir.display(), inside.display());
    let said =
        format!("`chdir` is {chdir}, which is {inside} outside of the chroot, but that {problem}");
    Some(("chdir", said))
}

fn script_outside_of(chroot: &Path, script: &Path) -> Option<Wrong> {
    let said = format!(
        "`script` is {}, which is not below {}, the pool's `chroot`; move it there",
        script.display(),
        chroot.display()
    );
    (!script.starts_with(chroot)).then_some(("script", said))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    fn folder() -> TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["jail/public", "jail/work", "other"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        fs::write(folder.path().join("jail/worker.php"), "").unwrap();
        folder
    }

    /// The mistakes of a pool with these settings, with `DIR` for the folder.
    fn mistakes_of(folder: &TempDir, settings: &str) -> Vec<String> {
        let dir = folder.path().canonicalize().unwrap();
        let text = format!("[pools.www]\n{settings}\n[[sites]]\nroot = \"jail/public\"\n");
        let config = maitred_config::parse(&text, &dir.join("m.toml")).unwrap();
        let found = mistakes(&config, &Examined::All).into_iter();
        found.map(|why| why.to_string().replace(dir.to_str().unwrap(), "DIR")).collect()
    }

    #[test]
    fn a_folder_to_start_in_has_to_be_within_the_chroot() {
        let folder = folder();
        assert_eq!(mistakes_of(&folder, "chroot = \"jail\"\nchdir = \"/work\""), [""; 0]);
        assert_eq!(
            mistakes_of(&folder, "chroot = \"jail\"\nchdir = \"/tmp\""),
            ["`chdir` is /tmp, which is DIR/jail/tmp outside of the chroot, but that does not \
              exist; create the directory or correct the path"]
        );
    }

    #[test]
    fn a_script_has_to_be_within_the_chroot_and_is_none_without_a_mode() {
        let folder = folder();
        let within = |chroot: &str| {
            format!("mode = \"worker\"\nscript = \"jail/worker.php\"\nchroot = {chroot:?}")
        };
        assert_eq!(mistakes_of(&folder, &within("jail")), [""; 0]);
        let expected = "`script` is DIR/jail/worker.php, which is not below DIR/other, the pool's \
                        `chroot`; move it there";
        assert_eq!(mistakes_of(&folder, &within("other")), [expected]);
        assert_eq!(mistakes_of(&folder, "script = \"nowhere.php\""), [""; 0]);
    }

    #[test]
    fn a_missing_chroot_is_the_only_mistake_of_what_is_in_it() {
        let pool = "mode = \"worker\"\nscript = \"no/worker.php\"\nchdir = \"/\"\n\
                    chroot = \"no\"";
        let expected =
            "`chroot` is DIR/no, but it does not exist; create the directory or correct the path";
        assert_eq!(mistakes_of(&folder(), pool), [expected]);
    }

    #[test]
    fn a_link_that_was_put_in_the_place_of_a_chroot_is_not_followed() {
        let folder = folder();
        let dir = folder.path().canonicalize().unwrap();
        symlink("jail", dir.join("link")).unwrap();
        assert_eq!(mistakes_of(&folder, "chroot = \"link\""), [""; 0], "it was there before");
        fs::rename(dir.join("other"), dir.join("moved")).unwrap();
        symlink("/", dir.join("other")).unwrap();
        let problem = chroot_problem(&dir.join("other")).unwrap();
        assert!(problem.starts_with("leads to / by a symbolic link"), "{problem}");
        assert_eq!(chroot_problem(&dir.join("moved")), None);
    }
}
