//! The presets: the paths of an application work, and its private files are refused. Their
//! trees are small copies of the real ones; WordPress itself is in wordpress.rs.

use maitred_tests::Target;
use maitred_tests::http::{self, Response};
use maitred_tests::server::{Server, Setup, document_root};

const RAN: &str = "<?php echo 'ran ', $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['PATH_INFO'] ?? '';";

fn serve(app: &str, scripts: &[&str], files: &[&str]) -> (tempfile::TempDir, Server) {
    let scripts = scripts.iter().map(|name| (*name, RAN));
    let files = files.iter().map(|name| (*name, "SECRET or not"));
    let all: Vec<(&str, &str)> = scripts.chain(files).collect();
    let root = document_root(&all);
    let server = Setup::new(root.path()).site(&format!("app = {app:?}")).start();
    (root, server)
}

/// What a path is answered with, in one word or two.
fn said(answer: &Response) -> String {
    match answer.text() {
        text if text.starts_with("ran ") => text.trim_end().to_owned(),
        _ => answer.status.to_string(),
    }
}

#[track_caller]
fn expect(server: &Server, table: &[(&str, &str)]) {
    for (path, expected) in table {
        assert_eq!(said(&http::get(server.address(), path)), *expected, "{path}");
    }
}

#[test]
fn wordpress_runs_no_uploads_and_hides_its_inside() {
    let (_root, server) = serve(
        "wordpress",
        &[
            "index.php",
            "wp-login.php",
            "wp-config.php",
            "wp-admin/admin-ajax.php",
            "wp-admin/includes/file.php",
            "wp-includes/load.php",
            "wp-content/uploads/2026/evil.php",
            "wp-content/upgrade/evil.php",
            "wp-content/languages/evil.php",
            "wp-content/backups/evil.php",
            "wp-content/evil.php",
            "wp-content/plugins/a/a.php",
            "wp-content/themes/a/a.php",
            "wp-content/mu-plugins/a.php",
            "wp-config-sample.php",
        ],
        &[
            "wp-content/uploads/picture.png",
            "wp-config.php.txt",
            "wp-config.txt",
            "wp-config.old",
            "wp-config.php~",
            "wp-config~",
            "php.ini",
            "wp-admin/error_log",
            "composer.json.bak",
            "wp-content/debug.log",
            "composer.json",
            ".htaccess",
        ],
    );
    expect(
        &server,
        &[
            ("/", "ran /index.php"),
            ("/2026/11/a-post/", "ran /index.php"),
            ("/wp-login.php", "ran /wp-login.php"),
            ("/wp-admin/admin-ajax.php", "ran /wp-admin/admin-ajax.php"),
            ("/wp-content/uploads/picture.png", "200"),
            ("/blog/wp-login.php", "ran /wp-login.php"),
            ("/wp-config.php", "404"),
            ("/wp-config.php/x", "404"),
            ("/wp-admin/includes/file.php", "404"),
            ("/wp-includes/load.php", "404"),
            ("/blog/wp-includes/load.php", "404"),
            ("/wp-content/uploads/2026/evil.php", "403"),
            ("/wp-content/uploads/2026/evil.php/a.png", "403"),
            ("/wp-content/upgrade/evil.php", "403"),
            ("/wp-content/languages/evil.php", "403"),
            ("/wp-content/backups/evil.php", "403"),
            ("/wp-content/evil.php", "403"),
            ("/wp-content/plugins/a/a.php", "ran /wp-content/plugins/a/a.php"),
            ("/wp-content/themes/a/a.php", "ran /wp-content/themes/a/a.php"),
            ("/wp-content/mu-plugins/a.php", "ran /wp-content/mu-plugins/a.php"),
            ("/wp-config-sample.php", "404"),
            ("/wp-config.php.txt", "404"),
            ("/wp-config.txt", "404"),
            ("/wp-config.old", "404"),
            ("/wp-config.php~", "404"),
            ("/wp-config~", "404"),
            ("/wp-config-php/", "ran /index.php"),
            ("/wp-config-php", "ran /index.php"),
            ("/wp-config/", "ran /index.php"),
            ("/wp-config-php/feed/", "ran /index.php"),
            ("/php.ini", "404"),
            ("/wp-admin/error_log", "404"),
            ("/composer.json.bak", "404"),
            ("/wp-content/debug.log", "404"),
            ("/composer.json", "404"),
            ("/.htaccess", "404"),
        ],
    );
}

#[test]
fn laravel_and_symfony_run_one_script() {
    for app in ["laravel", "symfony"] {
        let (_root, server) = serve(
            app,
            &["index.php", "storage/evil.php", "info.php"],
            &["storage/picture.png", "web.config"],
        );
        expect(
            &server,
            &[
                ("/users/7", "ran /index.php"),
                ("/index.php/users", "ran /index.php /users"),
                ("/storage/picture.png", "200"),
                ("/storage/evil.php", "403"),
                ("/info.php", "403"),
                ("/web.config", "404"),
            ],
        );
    }
}

#[test]
fn drupal_runs_its_own_scripts_and_hides_its_source() {
    let (_root, server) = serve(
        "drupal",
        &[
            "index.php",
            "update.php",
            "autoload.php",
            "core/install.php",
            "core/lib/Drupal.php",
            "sites/default/files/evil.php",
        ],
        &[
            "core/core.services.yml",
            "modules/x/x.module",
            "sites/default/files/a.png",
            "sites/default/files/settings.png",
            "sites/default/settings.php.txt",
            "sites/default/settings.local.php.old",
            "sites/default/default.settings.php~",
            "modules/CVS/Entries.Log",
        ],
    );
    expect(
        &server,
        &[
            ("/node/1", "ran /index.php"),
            ("/update.php", "ran /update.php"),
            ("/core/install.php", "ran /core/install.php"),
            ("/sites/default/files/a.png", "200"),
            ("/sites/default/files/settings.png", "200"),
            ("/sites/default/settings.php.txt", "404"),
            ("/sites/default/settings.local.php.old", "404"),
            ("/sites/default/settings.php", "404"),
            ("/sites/default/default.settings.php~", "404"),
            ("/sites/acme/account-settings", "ran /index.php"),
            ("/modules/CVS/Entries.Log", "404"),
            ("/news/Tag", "ran /index.php"),
            ("/autoload.php", "403"),
            ("/core/lib/Drupal.php", "403"),
            ("/sites/default/files/evil.php", "403"),
            ("/core/core.services.yml", "404"),
            ("/modules/x/x.module", "404"),
        ],
    );
}

#[test]
fn nextcloud_answers_its_clients_and_hides_its_data() {
    let (_root, server) = serve(
        "nextcloud",
        &[
            "index.php",
            "remote.php",
            "ocs/v2.php",
            "lib/base.php",
            "apps/x/tool.php",
            "console.php",
        ],
        &["data/anna/diary.txt", "config/config.json", "occ", "apps/x/style.css"],
    );
    expect(
        &server,
        &[
            ("/apps/files", "ran /index.php"),
            ("/remote.php/dav/files", "ran /remote.php /dav/files"),
            ("/ocs/v2.php/cloud", "ran /ocs/v2.php /cloud"),
            ("/apps/x/style.css", "200"),
            ("/apps/x/tool.php", "403"),
            ("/data/anna/diary.txt", "404"),
            ("/config/config.json", "404"),
            ("/lib/base.php", "404"),
            ("/console.php", "404"),
            ("/occ", "404"),
        ],
    );
    let found = http::get(server.address(), "/.well-known/carddav");
    assert_eq!((found.status, found.header("Location")), (301, Some("/remote.php/dav/")));
    assert_eq!(found.header("X-Robots-Tag"), Some("noindex, nofollow"));
}

#[test]
fn mediawiki_has_short_addresses_and_hides_its_inside() {
    let (_root, server) = serve(
        "mediawiki",
        &[
            "index.php",
            "api.php",
            "rest.php",
            "LocalSettings.php",
            "LocalSettings-old.php",
            "maintenance/run.php",
            "images/evil.php",
        ],
        &[
            "images/a.png",
            "includes/x.json",
            "cache/x.cdb",
            "composer.json",
            "extensions/a/package.json",
            "skins/a/composer.lock.bak",
            "LocalSettings.php~",
        ],
    );
    expect(
        &server,
        &[
            ("/wiki/Main_Page", "ran /index.php"),
            ("/wiki/composer.json", "ran /index.php"),
            ("/wiki/LocalSettings.php", "ran /index.php"),
            ("/wiki/Manual/package.json", "ran /index.php"),
            ("/api.php", "ran /api.php"),
            ("/rest.php/v1/page", "ran /rest.php /v1/page"),
            ("/images/a.png", "200"),
            ("/nothing", "404"),
            ("/images/evil.php", "403"),
            ("/LocalSettings.php", "404"),
            ("/LocalSettings.php/x", "404"),
            ("/LocalSettings-old.php", "404"),
            ("/LocalSettings.php~", "404"),
            ("/composer.json", "404"),
            ("/extensions/a/package.json", "404"),
            ("/skins/a/composer.lock.bak", "404"),
            ("/maintenance/run.php", "404"),
            ("/includes/x.json", "404"),
            ("/cache/x.cdb", "404"),
        ],
    );
}
