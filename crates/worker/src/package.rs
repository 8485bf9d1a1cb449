//! The package of the PHP library: on Debian and Ubuntu its version says more about fixes than
//! PHP's own.

use std::fs::File;
use std::io::{BufRead, BufReader};

use maitred_php::PhpVersion;

const STATUS_FILE: &str = "/var/lib/dpkg/status";

/// The version of the installed package with this `libphp`, if there is one.
pub fn version_of_libphp(php: PhpVersion) -> Option<String> {
    let name = format!("libphp{}.{}-embed", php.major, php.minor);
    version_in(BufReader::new(File::open(STATUS_FILE).ok()?), &name)
}

/// The file consists of paragraphs of `Field: value` lines (deb-control(5)).
fn version_in(status: impl BufRead, package: &str) -> Option<String> {
    let mut wanted = false;
    for line in status.split(b'\n').map_while(Result::ok) {
        let line = String::from_utf8_lossy(&line);
        if let Some(name) = line.strip_prefix("Package: ") {
            wanted = name == package;
        }
        if let (true, Some(version)) = (wanted, line.strip_prefix("Version: ")) {
            return Some(version.to_owned());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_package_asked_for() {
        let status = "Package: a\nVersion: 1\n\nPackage: libphp8.2-embed\nStatus: install ok\n\
                      Version: 8.2.35-1~deb12u1\n";
        let version = version_in(status.as_bytes(), "libphp8.2-embed");
        assert_eq!(version.as_deref(), Some("8.2.35-1~deb12u1"));
        assert_eq!(version_in(status.as_bytes(), "libphp8.3-embed"), None);
    }
}
