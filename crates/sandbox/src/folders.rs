//! The readable folders of a process that serves files. No I/O.
//!
//! A restriction cannot be widened later, but a reload may add sites, and a deployment may replace
//! the folder of a root, or the link to it. So not the root itself is readable but the part of the
//! file system that contains it: `/home`, `/srv`, `/var/www`. The usual folders of sites are
//! readable even without a site.

use std::path::{Component, Path, PathBuf};

/// Folders of name resolution, its libraries, and the kernel's information about the machine and
/// processes. Whole folders: files in `/etc` are replaced by new files with the same name.
pub const OF_THE_SYSTEM: [&str; 14] = [
    "/etc",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/lib32",
    "/usr/share/zoneinfo",
    "/run/systemd/resolve",
    "/run/resolvconf",
    "/run/NetworkManager",
    "/nix/store",
    "/proc",
    "/sys/devices/system/cpu",
    "/sys/fs/cgroup",
];

/// Files for name resolution and TLS that are links on some systems: to `/run/netconfig`,
/// `/run/connman`, `/mnt/wsl`.
pub const FOR_NAMES: [&str; 4] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs/ca-certificates.crt"];

/// Folders of sites and of applications that distributions package.
pub const OF_SITES: [&str; 5] = ["/var/www", "/var/lib", "/usr/share", "/usr/local", "/var/vhosts"];

/// Folders of `/` without sites, unless one is configured there.
const NOT_OF_SITES: [&str; 18] = [
    "bin",
    "boot",
    "dev",
    "efi",
    "etc",
    "lib",
    "lib32",
    "lib64",
    "libx32",
    "lost+found",
    "proc",
    "root",
    "run",
    "sbin",
    "sys",
    "tmp",
    "usr",
    "var",
];

/// Folders of `/` whose subfolders are separate parts.
const DIVIDED: [&str; 4] = ["etc", "run", "usr", "var"];

/// Whether a folder of `/` may have sites although none is configured there.
pub fn may_hold_sites(name: &str) -> bool {
    !NOT_OF_SITES.contains(&name)
}

/// The part of the file system that contains `path`, which is absolute: `/srv` for `/srv/a/public`,
/// and `/var/www` for `/var/www/html`.
pub fn part_of(path: &Path) -> PathBuf {
    let mut names = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name),
        _ => None,
    });
    let mut part = PathBuf::from("/");
    if let Some(first) = names.next() {
        part.push(first);
        let is_divided = DIVIDED.iter().any(|name| first == *name);
        part.extend(names.next().filter(|_| is_divided));
    }
    part
}

/// The folder to allow for `file`, a path without links: its parent, since the file may be
/// replaced, but never a folder of `/`.
pub fn around(file: PathBuf) -> PathBuf {
    match file.parent() {
        Some(folder) if folder.components().count() > 2 => folder.to_path_buf(),
        Some(_) | None => file,
    }
}

/// Directories that `/etc/ssl/certs` links to on common distributions.
const TRUSTED: [&str; 3] =
    ["/usr/share/ca-certificates", "/usr/local/share/ca-certificates", "/var/lib/ca-certificates"];

/// The folders of the system's trusted certificates.
pub fn of_roots() -> Vec<PathBuf> {
    let beside = ["SSL_CERT_FILE", "SSL_CERT_DIR"].map(std::env::var_os);
    let beside = beside.into_iter().flatten().map(PathBuf::from);
    TRUSTED.map(PathBuf::from).into_iter().chain(beside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_opened_with_its_folder_unless_that_is_one_of_the_root() {
        let opened = |file: &str| around(PathBuf::from(file)).display().to_string();
        assert_eq!(opened("/run/netconfig/resolv.conf"), "/run/netconfig");
        assert_eq!(opened("/mnt/wsl/resolv.conf"), "/mnt/wsl");
        assert_eq!(opened("/run/resolv.conf"), "/run/resolv.conf");
        assert_eq!(opened("/resolv.conf"), "/resolv.conf");
    }

    #[test]
    fn a_path_lies_in_a_folder_of_the_root_or_in_one_of_those_that_are_divided() {
        let part = |path: &str| part_of(Path::new(path)).display().to_string();
        assert_eq!(part("/home/a/public"), "/home");
        assert_eq!(part("/srv"), "/srv");
        assert_eq!(part("/var/www/html"), "/var/www");
        assert_eq!(part("/var"), "/var");
        assert_eq!(part("/etc/nginx/users"), "/etc/nginx");
        assert_eq!(part("/tmp/x/y"), "/tmp");
        assert_eq!(part("/"), "/");
    }

    #[test]
    fn the_systems_own_folders_hold_no_sites_and_others_may() {
        assert!(!may_hold_sites("root") && !may_hold_sites("dev") && !may_hold_sites("tmp"));
        assert!(may_hold_sites("home") && may_hold_sites("data"));
    }
}
