use std::fmt;
use std::str::FromStr;

use crate::raw;

/// A released version of PHP, as in `PHP_VERSION` without its suffix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PhpVersion {
    /// `PHP_MAJOR_VERSION`.
    pub major: u8,
    /// `PHP_MINOR_VERSION`.
    pub minor: u8,
    /// `PHP_RELEASE_VERSION`.
    pub release: u8,
}

/// The first release of each branch with the fixes of 21 October 2026 (CVE-2026-109618,
/// CVE-2026-109619).
const FIRST_FIXED: [PhpVersion; 4] = [
    PhpVersion::new(8, 2, 35),
    PhpVersion::new(8, 3, 36),
    PhpVersion::new(8, 4, 27),
    PhpVersion::new(8, 5, 12),
];

impl PhpVersion {
    /// Composes a version.
    pub const fn new(major: u8, minor: u8, release: u8) -> Self {
        Self { major, minor, release }
    }

    /// The version of the headers that this program is built with.
    pub fn built() -> Option<Self> {
        raw::built_version().parse().ok()
    }

    /// The version of the loaded libphp, also before PHP is started.
    pub fn loaded() -> Option<Self> {
        raw::loaded_version().parse().ok()
    }

    /// Whether both have the same ABI: it is stable within a minor version.
    pub const fn is_same_branch(self, other: Self) -> bool {
        self.major == other.major && self.minor == other.minor
    }
}

impl fmt::Display for PhpVersion {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}.{}.{}", self.major, self.minor, self.release)
    }
}

impl FromStr for PhpVersion {
    type Err = String;

    /// Parses `8.2.35`, `8.5.0RC1` or `8.2.35-1~deb12u1`: three numbers and any suffix.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut numbers = text.splitn(3, '.').map(|part| {
            let digits = part.bytes().take_while(u8::is_ascii_digit).count();
            part[..digits].parse::<u8>()
        });
        match (numbers.next(), numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(release))) => {
                Ok(Self::new(major, minor, release))
            }
            _ => Err(format!(
                "`{text}` is no PHP version: three numbers with dots between them were expected"
            )),
        }
    }
}

/// Whether this libphp carries the fixes of 21 October 2026.
///
/// Debian and Ubuntu backport fixes, so there the package's version decides: a package with a
/// distribution's own patch level (`8.3.6-0ubuntu0.24.04.9`) may contain the fixes whatever its
/// upstream number, and the result is `None`. Without a package, and for Debian's packages that
/// follow PHP's releases, the result is certain.
pub fn is_fixed(version: PhpVersion, package: Option<&str>) -> Option<bool> {
    if package.is_some_and(|package| package.contains("ubuntu")) {
        return None;
    }
    let version = package.and_then(|package| upstream(package).parse().ok()).unwrap_or(version);
    let branch = (version.major, version.minor);
    let newest = FIRST_FIXED[FIRST_FIXED.len() - 1];
    if branch > (newest.major, newest.minor) {
        return Some(true);
    }
    let fixed = FIRST_FIXED
        .iter()
        .find(|first| (first.major, first.minor) == branch)
        .is_some_and(|first| version >= *first);
    Some(fixed)
}

/// `2:8.2.35-1~deb12u1` without its epoch.
fn upstream(package: &str) -> &str {
    package.split_once(':').map_or(package, |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_branch_has_its_own_first_fixed_release() {
        for first in FIRST_FIXED {
            assert_eq!(is_fixed(first, None), Some(true), "{first}");
            let before = PhpVersion::new(first.major, first.minor, first.release - 1);
            assert_eq!(is_fixed(before, None), Some(false), "{before}");
        }
    }

    #[test]
    fn a_branch_without_fixes_is_unfixed_and_a_later_branch_is_fixed() {
        assert_eq!(is_fixed(PhpVersion::new(8, 1, 34), None), Some(false));
        assert_eq!(is_fixed(PhpVersion::new(8, 6, 0), None), Some(true));
        assert_eq!(is_fixed(PhpVersion::new(9, 0, 0), None), Some(true));
    }

    #[test]
    fn the_package_decides_where_there_is_one() {
        let old = PhpVersion::new(8, 2, 1);
        assert_eq!(is_fixed(old, Some("8.2.35-1~deb12u1")), Some(true));
        assert_eq!(is_fixed(old, Some("2:8.2.34-1")), Some(false));
        assert_eq!(is_fixed(PhpVersion::new(8, 3, 6), Some("8.3.6-0ubuntu0.24.04.9")), None);
    }

    #[test]
    fn suffixes_of_a_version_are_no_part_of_it() {
        assert_eq!("8.5.0RC1".parse(), Ok(PhpVersion::new(8, 5, 0)));
        assert_eq!("8.2.35-1~deb12u1".parse(), Ok(PhpVersion::new(8, 2, 35)));
        assert!("8.2".parse::<PhpVersion>().is_err());
        assert!("".parse::<PhpVersion>().is_err());
        assert!("8.é.1".parse::<PhpVersion>().is_err());
    }
}
