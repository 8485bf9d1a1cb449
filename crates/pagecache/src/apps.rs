//! Cache presets for common applications: their login cookies and the paths with private pages.
//! From their sources and manuals.

/// What an application's preset adds to the cache settings of its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppCache {
    /// Cookies of visitors with private content.
    pub cookies: &'static [&'static str],
    /// Paths that are never cached: login, payment, administration, APIs.
    pub paths: &'static [&'static str],
    /// Query parameters that disable caching.
    pub parameters: &'static [&'static str],
    /// Its pages say `Vary: Cookie` but depend on the session alone: its own page cache ignores
    /// other cookies.
    pub varies_by_session: bool,
}

const NOTHING: AppCache =
    AppCache { cookies: &[], paths: &[], parameters: &[], varies_by_session: false };

/// `wp-includes/default-constants.php` names the login cookies; `wp_set_comment_cookies`
/// (`comment.php`), `wp-login.php` (`postpass`) and `class-wp-recovery-mode-cookie-service.php` the
/// others. A comment in moderation is shown to requests with `unapproved` and `moderation-hash`
/// (`class-wp.php`, `send_headers`). WooCommerce's cookies and paths are from its page "How to
/// configure caching plugins for WooCommerce", its parameters from `class-wc-form-handler.php` and
/// `class-wc-ajax.php`; Easy Digital Downloads sets its cookie in `cart/class-edd-cart.php`.
static WORDPRESS: AppCache = AppCache {
    cookies: &[
        "wordpress_logged_in_*",
        "wordpress_sec_*",
        "wordpress_rec_*",
        "wp-postpass_*",
        "comment_author_*",
        "woocommerce_items_in_cart",
        "woocommerce_cart_hash",
        "woocommerce_recently_viewed",
        "wp_woocommerce_session_*",
        "edd_items_in_cart",
    ],
    paths: &[
        "/wp-admin/*",
        "/wp-json/*",
        "/wp-login.php",
        "/wp-cron.php",
        "/wp-signup.php",
        "/wp-activate.php",
        "/xmlrpc.php",
        "/cart/*",
        "/checkout/*",
        "/my-account/*",
    ],
    parameters: &[
        "preview",
        "customize_changeset_uuid",
        "rest_route",
        "unapproved",
        "moderation-hash",
        "add-to-cart",
        "remove_item",
        "undo_item",
        "download_file",
        "wc-ajax",
        "wc-api",
    ],
    varies_by_session: false,
};

/// `Drupal\Core\Session\SessionConfiguration::getName`: `SSESS` over TLS, `SESS` without. Pressflow
/// and the module `cookie_cache_bypass_adv` set `NO_CACHE` after a change. Its own page cache
/// (`Drupal\page_cache\StackMiddleware\PageCache`) checks for a session and no other cookie.
static DRUPAL: AppCache = AppCache {
    cookies: &["SESS*", "SSESS*", "NO_CACHE"],
    paths: &["/user/*", "/admin/*", "/cron/*", "/update.php*"],
    varies_by_session: true,
    ..NOTHING
};

/// `config/session.php`: the application's name with `_session`, or `-session` in newer ones.
/// `Illuminate\Auth\SessionGuard::getRecallerName`, and Passport's `laravel_token`.
static LARAVEL: AppCache =
    AppCache { cookies: &["*_session", "*-session", "remember_*", "laravel_token"], ..NOTHING };

/// The session is PHP's own (`framework.session.name`); `security.firewalls.*.remember_me.name`.
/// The paths belong to its profiler.
static SYMFONY: AppCache =
    AppCache { cookies: &["REMEMBERME"], paths: &["/_profiler/*", "/_wdt/*"], ..NOTHING };

/// The session is named after the instance, whose ID begins with `oc` (`OC_Util::getInstanceId`);
/// so is `oc_sessionPassphrase` (`CryptoWrapper`). `OC\User\Session::setMagicInCookie` sets the
/// `nc_` cookies.
static NEXTCLOUD: AppCache = AppCache {
    cookies: &["oc*", "nc_*", "__Host-nc_*"],
    paths: &[
        "/login*",
        "/index.php/login*",
        "/s/*",
        "/index.php/s/*",
        "/remote.php/*",
        "/public.php/*",
        "/ocs/*",
        "/status.php",
        "/cron.php",
    ],
    ..NOTHING
};

/// `MediaWiki\Session\CookieSessionProvider`: all names start with `$wgCookiePrefix`, by default
/// the name of the database. `getVaryCookies` lists the cookies that pages depend on.
static MEDIAWIKI: AppCache = AppCache {
    cookies: &["*_session", "*UserID", "*UserName", "*Token", "*LoggedOut"],
    paths: &["/mw-config/*"],
    varies_by_session: true,
    ..NOTHING
};

/// The preset of this name; an empty one if there is none.
pub fn cache_of(app: &str) -> &'static AppCache {
    match app {
        "wordpress" => &WORDPRESS,
        "drupal" => &DRUPAL,
        "laravel" => &LARAVEL,
        "symfony" => &SYMFONY,
        "nextcloud" => &NEXTCLOUD,
        "mediawiki" => &MEDIAWIKI,
        _ => &NOTHING,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Pattern;

    fn matches(patterns: &[&str], name: &str) -> bool {
        let mut patterns = patterns.iter();
        patterns.any(|pattern| Pattern::new(pattern).matches(name.as_bytes()))
    }

    #[test]
    fn who_is_known_to_an_application_is_known_to_its_cache() {
        for (app, cookies) in [
            (
                "wordpress",
                &[
                    "wordpress_logged_in_0a1b2c",
                    "wordpress_sec_0a1b2c",
                    "wp-postpass_0a1b2c",
                    "comment_author_0a1b2c",
                    "comment_author_email_0a1b2c",
                    "wp_woocommerce_session_0a1b2c",
                    "woocommerce_cart_hash",
                ][..],
            ),
            ("drupal", &["SESS0a1b2c", "SSESS0a1b2c"]),
            ("laravel", &["laravel_session", "my-shop-session", "remember_web_59ba36"]),
            ("symfony", &["REMEMBERME"]),
            (
                "nextcloud",
                &[
                    "oc6fgt938z8c",
                    "oc_sessionPassphrase",
                    "nc_session_id",
                    "__Host-nc_sameSiteCookielax",
                ],
            ),
            ("mediawiki", &["my_wiki_session", "my_wikiUserID", "my_wikiToken"]),
        ] {
            for cookie in cookies {
                assert!(matches(cache_of(app).cookies, cookie), "{app}: {cookie}");
            }
        }
    }

    #[test]
    fn common_cookies_do_not_identify_a_visitor() {
        for app in ["wordpress", "drupal", "laravel", "symfony", "nextcloud", "mediawiki"] {
            for cookie in ["_ga", "_gid", "_fbp", "wordpress_test_cookie", "lang"] {
                assert!(!matches(cache_of(app).cookies, cookie), "{app}: {cookie}");
            }
        }
        assert_eq!(cache_of("another"), &NOTHING);
    }

    #[test]
    fn pages_of_ones_own_are_not_kept_and_the_others_are() {
        let of = |path| matches(cache_of("wordpress").paths, path);
        for path in ["/wp-admin/index.php", "/wp-login.php", "/checkout/pay/1"] {
            assert!(of(path), "{path}");
        }
        for path in ["/", "/cartoons/", "/2026/11/post/", "/wp-sitemap.xml", "/feed/"] {
            assert!(!of(path), "{path}");
        }
    }
}
