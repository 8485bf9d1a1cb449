//! Relative paths in php-fpm's files, and what they are relative to (`fpm_evaluate_full_path`).

use std::path::Path;

/// What Debian's php-fpm was built with: the folder of relative paths (`PHP_PREFIX`) and that of
/// the log and the pid file (`PHP_LOCALSTATEDIR`).
pub(super) const PREFIX: &str = "/usr";
pub(super) const LOCALSTATEDIR: &str = "/var";

/// Makes `path` absolute: below the first folder of `prefixes` that is set, or else below `default`.
pub(super) fn full(path: &str, prefixes: &[Option<&str>], default: &str) -> String {
    if path.starts_with('/') {
        return path.to_owned();
    }
    let prefix = prefixes.iter().copied().flatten().next();
    format!("{}/{path}", prefix.unwrap_or(default))
}

/// As [`full`], where `$prefix` at the beginning of the path stands for the folder; none if it is
/// somewhere else.
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
