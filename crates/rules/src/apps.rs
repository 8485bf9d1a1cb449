//! Presets for common applications, from the rules that their projects publish for nginx or Apache.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::pattern::Pattern;
use crate::settings::{Deny, HeaderRule, PhpRule, Redirect, Rewrite, Rules};

/// Status for a denied path: it does not reveal that a file exists.
const DENIED: u16 = 404;

/// An application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum App {
    /// WordPress, single site or multisite.
    Wordpress,
    /// Laravel.
    Laravel,
    /// Symfony.
    Symfony,
    /// Drupal from 8 on.
    Drupal,
    /// Nextcloud.
    Nextcloud,
    /// MediaWiki.
    Mediawiki,
}

/// The preset of an application.
#[derive(Debug)]
pub struct Preset {
    /// Description of the document root.
    pub root: &'static str,
    /// The script for paths without a file.
    pub front_controller: Option<&'static str>,
    /// Paths that are denied to all clients.
    pub deny: &'static [&'static str],
    /// Scripts that may run; empty: all.
    pub allow_php: &'static [&'static str],
    /// Paths whose scripts do not run, such as upload folders; with a `!`, exceptions.
    pub deny_php: &'static [&'static str],
    /// Redirects: source, target, status.
    pub redirects: &'static [(&'static str, &'static str, u16)],
    /// Rewrites: source, target.
    pub rewrite: &'static [(&'static str, &'static str)],
    /// Headers of every response.
    pub headers: &'static [(&'static str, &'static str)],
}

const NOTHING: Preset = Preset {
    root: "",
    front_controller: Some("/index.php"),
    deny: &[],
    allow_php: &[],
    deny_php: &[],
    redirects: &[],
    rewrite: &[],
    headers: &[],
};

/// Files of Composer and other tools in a folder that was not meant to be public, and backup
/// copies.
const PROJECT_FILES: &str =
    "~/(composer\\.(json|lock)|package(-lock)?\\.json|yarn\\.lock|web\\.config)([.~][^/]*)?$";

/// The same for MediaWiki's own folders only: an article below `/wiki/` may have such a name.
const PROJECT_FILES_BESIDE_ARTICLES: &str = "~^/\
    ((docs|extensions|mw-config|resources|skins)/(.+/)?)?\
    (composer\\.(json|lock)|package(-lock)?\\.json|yarn\\.lock|web\\.config)([.~][^/]*)?$";

/// Credentials of Composer's repositories, and PHP's settings and log. In the document root only:
/// an application may have pages with these names.
const SECRET_FILES: &str = "~^/(auth\\.json|php\\.ini|error_log|php_errors?\\.log)([.~][^/]*)?$";

/// WordPress's "Hardening WordPress", and its rules for a network of sites in folders.
static WORDPRESS: Preset = Preset {
    root: "the folder with `wp-config.php`",
    deny: &[
        // Not `/wp-config-php/`, the URL of a post: those contain neither dot nor tilde.
        "~^/wp-config[^/]*[.~]",
        "/wp-admin/includes/*",
        "/wp-content/debug.log",
        "/wp-includes/theme-compat/*",
        "~^/wp-includes/[^/]+\\.php$",
        "~^/wp-includes/js/tinymce/langs/.+\\.php$",
        "~^/wp-(admin|content|includes)/(.+/)?(php\\.ini|error_log|php_errors?\\.log)$",
        PROJECT_FILES,
        SECRET_FILES,
    ],
    // WordPress writes to all other folders there: uploads, upgrade, languages, backups, cache.
    deny_php: &[
        "!/wp-content/plugins/*",
        "!/wp-content/themes/*",
        "!/wp-content/mu-plugins/*",
        "/wp-content/*",
    ],
    rewrite: &[
        ("~^/[_0-9a-zA-Z-]+(/wp-(content|admin|includes)/.*)$", "$1"),
        ("~^/[_0-9a-zA-Z-]+(/wp-[a-z-]+\\.php)$", "$1"),
    ],
    ..NOTHING
};

/// Laravel's documentation, "Deployment".
static LARAVEL: Preset = Preset {
    root: "the application's folder `public`",
    allow_php: &["/index.php"],
    deny: &[PROJECT_FILES, SECRET_FILES],
    ..NOTHING
};

/// Symfony's documentation, "Configuring a Web Server".
static SYMFONY: Preset = Preset {
    root: "the application's folder `public`",
    allow_php: &["/index.php"],
    deny: &[PROJECT_FILES, SECRET_FILES],
    ..NOTHING
};

/// The `.htaccess` that Drupal ships.
static DRUPAL: Preset = Preset {
    root: "the folder `web`, or the one with `core`",
    deny: &[
        "~\\.(engine|inc|install|make|module|profile|po|sh|.*sql|theme|twig|\
         tpl(\\.php)?|xtmpl|yml)(~|\\.sw[op]|\\.bak|\\.orig|\\.save)?$",
        // Pages may have these names, but not below a CVS folder.
        "~/CVS/(Entries.*|Repository|Root|Tag|Template)$",
        "/vendor/*",
        "~^/sites/[^/]+/[^/]*settings[^/]*[.~][^/]*$",
        PROJECT_FILES,
        SECRET_FILES,
    ],
    allow_php: &[
        "~^/[^/]+\\.php$",
        "~^/core/[^/]+\\.php$",
        "/core/modules/statistics/statistics.php",
    ],
    deny_php: &["/autoload.php", "~^/sites/[^/]+/files/"],
    ..NOTHING
};

/// Nextcloud's manual, "NGINX configuration".
static NEXTCLOUD: Preset = Preset {
    root: "the folder with `occ`",
    deny: &[
        "~^/(build|tests|config|lib|3rdparty|templates|data)(/|$)",
        "~^/(autotest|occ|issue|indie|db_|console)",
        SECRET_FILES,
    ],
    allow_php: &[
        "/index.php",
        "/remote.php",
        "/public.php",
        "/cron.php",
        "/status.php",
        "/core/ajax/update.php",
        "/ocs/v1.php",
        "/ocs/v2.php",
        "/ocs-provider/*",
        "/updater/*",
        "~/richdocumentscode(_arm64)?/proxy\\.php$",
    ],
    redirects: &[
        ("/.well-known/carddav", "/remote.php/dav/", 301),
        ("/.well-known/caldav", "/remote.php/dav/", 301),
        ("/remote/*", "/remote.php/$1", 301),
    ],
    headers: &[
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
        ("X-Frame-Options", "SAMEORIGIN"),
        ("X-Permitted-Cross-Domain-Policies", "none"),
        ("X-Robots-Tag", "noindex, nofollow"),
    ],
    ..NOTHING
};

/// MediaWiki's manual, "Short URL/Nginx", with articles below `/wiki/`.
static MEDIAWIKI: Preset = Preset {
    root: "the folder with `LocalSettings.php`",
    front_controller: None,
    deny: &[
        "/cache/*",
        "/images/deleted/*",
        "/images/temp/*",
        "/includes/*",
        "/languages/*",
        "/maintenance/*",
        "/serialized/*",
        "/tests/*",
        "/vendor/*",
        "~^/LocalSettings[^/]*[.~]",
        PROJECT_FILES_BESIDE_ARTICLES,
        SECRET_FILES,
    ],
    allow_php: &["~^/[^/]+\\.php$", "/mw-config/*"],
    deny_php: &["/images/*", "/extensions/*", "/skins/*"],
    rewrite: &[("/wiki/*", "/index.php"), ("/wiki", "/index.php")],
    ..NOTHING
};

impl App {
    /// All applications.
    pub const ALL: [App; 6] =
        [App::Wordpress, App::Laravel, App::Symfony, App::Drupal, App::Nextcloud, App::Mediawiki];

    /// Name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            App::Wordpress => "wordpress",
            App::Laravel => "laravel",
            App::Symfony => "symfony",
            App::Drupal => "drupal",
            App::Nextcloud => "nextcloud",
            App::Mediawiki => "mediawiki",
        }
    }

    /// The application with this name.
    pub fn named(name: &str) -> Option<App> {
        App::ALL.into_iter().find(|app| app.name() == name)
    }

    /// Its preset.
    pub fn preset(self) -> &'static Preset {
        match self {
            App::Wordpress => &WORDPRESS,
            App::Laravel => &LARAVEL,
            App::Symfony => &SYMFONY,
            App::Drupal => &DRUPAL,
            App::Nextcloud => &NEXTCLOUD,
            App::Mediawiki => &MEDIAWIKI,
        }
    }

    /// Appends its rules to those of the site.
    ///
    /// # Errors
    /// When one of them is invalid, which is never the case.
    pub fn add_to(self, rules: &mut Rules) -> Result<(), String> {
        let preset = self.preset();
        for text in preset.deny {
            rules.deny.push(Deny {
                path: Pattern::parse(text)?,
                from: Vec::new(),
                except: Vec::new(),
                status: DENIED,
            });
        }
        for text in preset.allow_php {
            rules.allow_php.push(Pattern::parse(text)?);
        }
        for text in preset.deny_php {
            rules.deny_php.push(PhpRule::parse(text)?);
        }
        for (from, to, status) in preset.redirects {
            rules.redirects.push(Redirect {
                from: Pattern::parse(from)?,
                to: (*to).to_owned(),
                status: *status,
            });
        }
        for (from, to) in preset.rewrite {
            rules.rewrite.push(Rewrite {
                from: Pattern::parse(from)?,
                to: (*to).to_owned(),
                end: true,
            });
        }
        if !preset.headers.is_empty() {
            let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
            let set = preset.headers.iter().map(owned).collect();
            // First, so that the site's own headers override them.
            rules.headers.insert(
                0,
                HeaderRule { path: Pattern::all(), set, add: Vec::new(), unset: Vec::new() },
            );
        }
        rules.app = Some(self);
        Ok(())
    }
}

/// The presets as Markdown for the manual. `more` returns further rows for an application: the name
/// of a setting, and its values.
pub fn page(more: impl Fn(App) -> Vec<(&'static str, &'static [&'static str])>) -> String {
    let mut page = String::new();
    for app in App::ALL {
        let preset = app.preset();
        let _ = writeln!(page, "\n### `app = \"{}\"`\n", app.name());
        let _ = writeln!(page, "| setting | value |\n| --- | --- |");
        let _ = writeln!(page, "| `root` | {} |", preset.root);
        let controller = preset.front_controller.unwrap_or_default();
        let _ = writeln!(page, "| `front_controller` | `\"{controller}\"` |");
        for (name, texts) in
            [("deny", preset.deny), ("allow_php", preset.allow_php), ("deny_php", preset.deny_php)]
        {
            row(&mut page, name, texts.iter().map(|text| (*text).to_owned()));
        }
        let redirects = preset.redirects.iter();
        row(&mut page, "redirects", redirects.map(|(from, to, _)| format!("{from} → {to}")));
        let rewrite = preset.rewrite.iter();
        row(&mut page, "rewrite", rewrite.map(|(from, to)| format!("{from} → {to}")));
        let headers = preset.headers.iter();
        row(&mut page, "headers", headers.map(|(name, value)| format!("{name}: {value}")));
        for (name, texts) in more(app) {
            row(&mut page, name, texts.iter().map(|text| (*text).to_owned()));
        }
    }
    page
}

fn row(page: &mut String, name: &str, texts: impl Iterator<Item = String>) {
    // A bar would end the cell.
    let cells: Vec<String> = texts.map(|text| format!("`{}`", text.replace('|', "\\|"))).collect();
    if !cells.is_empty() {
        let _ = writeln!(page, "| `{name}` | {} |", cells.join(" <br> "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site_rules::SiteRules;

    #[test]
    fn every_preset_is_made_of_rules_that_are_right() {
        for app in App::ALL {
            let mut rules = Rules::default();
            app.add_to(&mut rules).unwrap();
            SiteRules::compile(&rules).unwrap();
            assert_eq!(App::named(app.name()), Some(app));
            assert!(!app.preset().root.is_empty(), "{app:?}");
        }
    }
}
