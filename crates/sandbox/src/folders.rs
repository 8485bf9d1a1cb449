//! Which folders of the machine a process that serves files may read. Pure.
//!
//! A restriction cannot be widened later, but a reload may add sites, and a deployment may replace
//! the folder of a root, or the link that leads there. So not the roots are readable but the part
//! of the machine that each lies in: `/home`, `/srv`, `/var/www`. Where sites usually lie is
//! readable whether or not one does yet.

use std::path::{Component, Path, PathBuf};

/// What name resolution and the libraries that it loads read, and what the kernel says of the
/// machine and of processes. Whole folders: files in `/etc` are replaced by others of the same
/// name.
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

/// Files that name resolution and TLS read, and that are links to elsewhere on some systems:
/// `/run/netconfig`, `/run/connman`, `/mnt/wsl`.
pub const FOR_NAMES: [&str; 4] = [
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/nsswitch.conf",
    "/etc/ssl/certs/ca-certificates.crt",
];

/// Where sites and the applications of distributions lie.
pub const OF_SITES: [&str; 5] = [
    "/var/www",
    "/var/lib",
    "/usr/share",
    "/usr/local",
    "/var/vhosts",
];

/// Folders of `/` that hold no sites, unless one is configured there.
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

/// Folders of `/` whose own folders are parts of their own.
const DIVIDED: [&str; 4] = ["etc", "run", "usr", "var"];

/// Whether a folder of `/` may hold sites though none is configured there.
pub fn may_hold_sites(name: &str) -> bool {
    !NOT_OF_SITES.contains(&name)
}

/// The part of the machine that `path`, which is absolute, lies in: `/srv` of `/srv/a/public`, and
/// `/var/www` of `/var/www/html`.
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

/// What to open for `file`, which is a file's name without links: its folder, so that another file
/// may take its name, but no folder of `/` for its sake.
pub fn around(file: PathBuf) -> PathBuf {
    match file.parent() {
        Some(folder) if folder.components().count() > 2 => folder.to_path_buf(),
        Some(_) | None => file,
    }
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
