//! The PHP of a php-fpm that is not the distribution's: its version and its php.ini.

use crate::FileReader;

/// Files whose PHP has its php.ini where a pool finds it without being configured.
const OF_DISTRIBUTION: [&str; 2] = ["/etc/php-fpm.conf", "/usr/local/etc/php-fpm.conf"];

/// The name of php-fpm's own file below the prefix of its PHP.
const BELOW_PREFIX: &str = "/etc/php-fpm.conf";

/// What the place of php-fpm's configuration says of its PHP.
#[derive(Debug, Default)]
pub(crate) struct FpmPhp {
    /// As in `8.3`.
    pub version: Option<String>,
    /// Its php.ini.
    pub ini: Option<String>,
    /// The folder with more of it.
    pub scan_dir: Option<String>,
    /// It has a php.ini of its own, which was not found.
    pub is_unknown: bool,
}

impl FpmPhp {
    /// The PHP of the php-fpm with this configuration.
    pub fn of(root: &str, files: &dyn FileReader) -> FpmPhp {
        if let Some(rest) = root.strip_prefix("/etc/php/") {
            let version = rest.split('/').next().map(str::to_owned);
            return FpmPhp { version, ..FpmPhp::default() };
        }
        if OF_DISTRIBUTION.contains(&root) {
            return FpmPhp::default();
        }
        let version = root.split('/').find_map(version_in);
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let prefix = folder.strip_suffix("/etc").unwrap_or(folder);
        let is_there = |path: &String| files.resolved(path).is_some();
        let inis = [format!("{folder}/php.ini"), format!("{prefix}/lib/php.ini")];
        let dirs = [format!("{folder}/php.d"), format!("{prefix}/lib/php.conf.d")];
        let ini = inis.into_iter().find(is_there);
        let is_unknown = ini.is_none() && (version.is_some() || root.ends_with(BELOW_PREFIX));
        FpmPhp { version, ini, scan_dir: dirs.into_iter().find(is_there), is_unknown }
    }
}

/// The version in the name of a folder: `php83`, `ea-php83`, `php8.3` or `8.3`.
fn version_in(name: &str) -> Option<String> {
    let text = name.strip_prefix("ea-").unwrap_or(name);
    let text = text.strip_prefix("php").unwrap_or(text);
    let (major, minor) = match text.split_once('.') {
        Some(parts) => parts,
        None if text != name => text.split_at_checked(1)?,
        None => return None,
    };
    let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    (is_number(major) && is_number(minor)).then(|| format!("{major}.{minor}"))
}

#[cfg(test)]
mod tests {
    use super::version_in;

    #[test]
    fn a_folder_of_a_php_has_its_version() {
        for (name, version) in [("php83", "8.3"), ("ea-php81", "8.1"), ("8.2", "8.2")] {
            assert_eq!(version_in(name).as_deref(), Some(version), "{name}");
        }
        for name in ["php", "php-fpm.conf", "83", "opt", "php-fpm.d"] {
            assert_eq!(version_in(name), None, "{name}");
        }
    }
}
