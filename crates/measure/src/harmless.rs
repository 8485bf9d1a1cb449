//! Requests that may change something although they are GET.

use percent_encoding::percent_decode_str;

/// Parts of such paths and queries, in lower case.
const DOING: [&str; 34] = [
    "logout",
    "log-out",
    "logoff",
    "signout",
    "sign-out",
    "delete",
    "remove",
    "destroy",
    "trash",
    "purge",
    "flush",
    "unsubscribe",
    "add-to-",
    "add_to_",
    "addto",
    "add-item",
    "add_item",
    "undo_item",
    "empty-cart",
    "empty_cart",
    "apply_coupon",
    "_wpnonce=",
    "admin-ajax.php",
    "wp-cron.php",
    "cron.php",
    "/cron",
    "install.php",
    "upgrade.php",
    "updatedb",
    "sesskey=",
    "csrf",
    "token=",
    "confirm",
    "vote",
];

/// How often a target is decoded: a proxy and the application behind it may each do it once.
const DECODED: usize = 3;

/// Whether a request for this path, with its query, may change something, however it is encoded.
pub fn may_change(target: &str) -> bool {
    let mut text = target.to_owned();
    for _ in 0..=DECODED {
        let small = text.to_ascii_lowercase();
        if DOING.iter().any(|word| small.contains(word)) {
            return true;
        }
        text = percent_decode_str(&text).decode_utf8_lossy().into_owned();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_do_something_are_found() {
        for target in ["/wp-login.php?action=logout&_wpnonce=1", "/Cart/Delete/7", "/cron.php"] {
            assert!(may_change(target), "{target}");
        }
        for target in ["/x/del%65te", "/%77p-cron.php", "/a%252Fpur%67e", "/%2564elete"] {
            assert!(may_change(target), "{target}");
        }
        for target in ["/", "/index.php?title=A", "/style.css?ver=6.1"] {
            assert!(!may_change(target), "{target}");
        }
    }
}
