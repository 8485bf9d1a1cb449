//! Addresses that no server must show, and the encoding of paths.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

/// What a path in a request target cannot contain.
const NOT_IN_PATHS: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'#').add(b'%').add(b'<').add(b'>').add(b'?').add(b'\\');

/// Paths that no server must show: hidden files, backups, and sources of scripts, as request
/// targets.
pub const SECRETS: [&str; 24] = [
    "/.env",
    "/.git/config",
    "/.git/HEAD",
    "/.htaccess",
    "/.htpasswd",
    "/.user.ini",
    "/.svn/entries",
    "/.well-known/zz9",
    "/composer.json",
    "/composer.lock",
    "/vendor/autoload.php",
    "/config.php.bak",
    "/config.php~",
    "/backup.sql",
    "/index.php.",
    "/index.php~",
    "/index.phps",
    "/index.PHP",
    "/index%2ephp",
    "/index.php/zz9",
    "/index.php%00.txt",
    "/%2e%2e/etc/passwd",
    "//index.php",
    "/zz9.php",
];

/// A request target for a decoded path.
pub fn encoded(path: &str) -> String {
    utf8_percent_encode(path, NOT_IN_PATHS).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_encoded_for_requests() {
        assert_eq!(encoded("/a b/\u{e4}?"), "/a%20b/%C3%A4%3F");
    }
}
