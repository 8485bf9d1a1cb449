//! Relative paths in php-fpm's files and their bases (`fpm_evaluate_full_path`).

use std::path::Path;

/// Build options of Debian's php-fpm: the base of relative paths (`PHP_PREFIX`) and of the log and
/// the pid file (`PHP_LOCALSTATEDIR`).
pub(super) const PREFIX: &str = "/usr";
pub(super) const LOCALSTATEDIR: &str = "/var";

/// Makes `path` absolute: below the first of `prefixes` that is set, or else below `default`.
pub(super) fn full(path: &str, prefixes: &[Option<&str>], default: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let prefix = prefixes.iter().copied().flatten().next();
    format!("{}/{path}", prefix.unwrap_or(default))
}

/// As [`full`], with `$prefix` at the start of the path as the base; none if it is elsewhere in the
/// path.
pub(super) fn full_with_prefix(
    path: &str,
    prefixes: &[Option<&str>],
    default: &str,
) -> Option<String> {
    if path.starts_with('/') {
        return Some(path.to_owned());
    }
    let Some(at) = path.find("$prefix") else {
        return Some(full(path, prefixes, default));
    };
    let rest = &path[at + "$prefix".len()..];
    if at > 0 {
        return None;
    }
    if rest.is_empty() {
        let prefix = prefixes.iter().copied().flatten().next();
        return Some(prefix.unwrap_or(default).to_owned());
    }
    let prefix = prefixes.iter().copied().flatten().next();
    Some(format!("{}/{rest}", prefix.unwrap_or(default)))
}

pub(super) fn is_directory(path: &str) -> bool {
    Path::new(path).is_dir()
}
