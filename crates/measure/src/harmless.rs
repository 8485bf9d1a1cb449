//! Requests that may change something although they are GET.

/// Parts of such paths and queries, in lower case.
const DOING: [&str; 32] = [
    "logout",
    "log-out",
    "logoff",
    "signout",
    "sign-out",
    "delete",
    "remove",
    "destroy",
    "trash",
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

/// Whether a request for this path, with its query, may change something.
pub fn may_change(target: &str) -> bool {
    let small = target.to_ascii_lowercase();
    DOING.iter().any(|word| small.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_that_do_something_are_found() {
        for target in ["/wp-login.php?action=logout&_wpnonce=1", "/Cart/Delete/7", "/cron.php"] {
            assert!(may_change(target), "{target}");
        }
        for target in ["/", "/index.php?title=A", "/style.css?ver=6.1"] {
            assert!(!may_change(target), "{target}");
        }
    }
}
