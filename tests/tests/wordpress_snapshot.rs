//! WordPress in snapshot mode, by the recipe of `integrations/wordpress/snapshot`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::Response;
use maitred_tests::project_root;
use maitred_tests::server::{Server, Setup, give_to_web_user, write_file};
use maitred_tests::session::Session;
use maitred_tests::wait;
use maitred_tests::wordpress::{Files, WordPress};
use serde_json::json;

/// How long something may take on a machine that is busy with other tests.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is left to a classic pool; as in docs/guide/wordpress-snapshot.md.
const CLASSIC: &str = "[\"/wp-admin/\", \"/wp-content/plugins/\", \"/wp-login.php\", \
                       \"/wp-cron.php\", \
     \"/wp-comments-post.php\", \"/wp-signup.php\", \"/wp-activate.php\", \"/wp-trackback.php\", \
     \"/wp-mail.php\", \"/xmlrpc.php\"]";

fn put_recipe_into(root: &Path) {
    let recipe = project_root().join("integrations/wordpress/snapshot");
    let plugins = root.join("wp-content/mu-plugins");
    fs::create_dir_all(&plugins).expect("a folder can be made");
    for (name, folder) in [("maitred-index.php", root), ("0-maitred-snapshot.php", &plugins)] {
        fs::copy(recipe.join(name), folder.join(name)).expect("a file can be copied");
        give_to_web_user(&folder.join(name));
    }
    let says = "<?php header('X-Copied: ' . (int) defined('MAITRED_BOOTS'));";
    write_file(&plugins, "9-says.php", says.as_bytes());
    give_to_web_user(&plugins);
}

/// Another number of `times` is another boot.
fn copied(root: &Path, times: u32) -> Setup {
    let script = root.join("maitred-index.php");
    Setup::new(root)
        .workers(2)
        .pool("mode = \"snapshot\"")
        .pool(&format!("script = {script:?}"))
        .pool(&format!("rewinds_per_child = {times}"))
        .pool("warm_requests = [\"/\"]")
        .pool("[pools.classic]")
        .pool("pm = \"static\"\nmax_children = 2")
        .site("app = \"wordpress\"")
        .site(&format!("classic_paths = {CLASSIC}"))
        .site("classic_pool = \"classic\"")
}

/// What a visitor sees, and where he is sent.
fn seen(answer: &Response) -> (u16, Option<&str>, String) {
    (answer.status, answer.header("Location"), answer.text())
}

/// A visitor sees what he saw in a classic pool, and it comes from a copy.
fn shows_the_same(visitor: &mut Session, expected: &[(String, Response)]) {
    for round in 0..3 {
        for (target, expected) in expected {
            let found = visitor.get(target);
            assert_eq!(seen(&found), seen(expected), "{target}, round {round}");
            assert_eq!(expected.header("X-Copied"), Some("0"), "{target}");
            assert_eq!(found.header("X-Copied"), Some("1"), "{target}");
        }
    }
}

/// An editor logs in, manages the site and publishes, over copies and over the classic pool.
fn is_managed(server: &Server, visitor: &mut Session, title: &str) {
    const BAR: &str = "id=\"wpadminbar\"";
    let mut site = WordPress::log_in(server.address());
    let dashboard = site.admin().get("/wp-admin/").text();
    assert!(dashboard.contains("Dashboard"), "no dashboard: {dashboard}");
    assert!(site.admin().get("/").text().contains(BAR));
    assert!(!visitor.get("/").text().contains(BAR));
    let renamed = json!({ "title": title });
    assert_eq!(site.rest("POST", "settings", Some(&renamed)).status, 200);
    assert!(visitor.get("/").text().contains(title));
    let (_, link) = site.publish(title, "<p>It isn't over.</p>");
    assert!(visitor.get(&link).text().contains("It isn&#8217;t over."));
    // Slashes that WordPress adds to what is sent are added once.
    let found = visitor.get("/?s=it%20isn%27t%20over").text();
    assert!(found.contains("it isn&#039;t over"), "{found}");
}

/// Comments come through the classic pool, and copies show them.
fn is_discussed(server: &Server, visitor: &mut Session) {
    let mut site = WordPress::log_in(server.address());
    let (post, link) = site.publish("Discussed", "<p>Say something.</p>");
    let comment = site.comment(post, "A visitor", "It was good.");
    site.approve(comment);
    assert!(visitor.get(&link).text().contains("It was good."));
}

fn boots_with(server: &Server, setup: &Setup) {
    server.configure(setup);
    let said = server.reload();
    assert!(said.contains("reloaded: "), "{said}");
}

fn set_in_config(root: &Path, line: &str) {
    let path = root.join("wp-config.php");
    let config = fs::read_to_string(&path).expect("it was written");
    let config = config.replacen("<?php", &format!("<?php {line}"), 1);
    fs::write(&path, config).expect("it can be written");
}

#[test]
fn wordpress_is_used_in_snapshot_mode_and_shows_what_a_classic_pool_shows() {
    let files = Files::prepare();
    let root = files.root();
    put_recipe_into(&root);
    let server = Setup::new(&root).workers(4).site("app = \"wordpress\"").start();
    let mut site = WordPress::install(server.address());
    let (_, link) = site.publish("A copied evening", "<p>The table is laid again.</p>");
    let mut visitor = Session::new(server.address());
    let rest = "/index.php?rest_route=/wp/v2/posts";
    let targets = ["/", &link, "/?s=evening", "/nowhere/", "/feed/", rest];
    let expected: Vec<_> = targets.map(|target| (target.to_owned(), visitor.get(target))).into();

    boots_with(&server, &copied(&root, 100));
    shows_the_same(&mut visitor, &expected);
    is_managed(&server, &mut visitor, "Renamed while it is copied");
    is_discussed(&server, &mut visitor);

    set_in_config(&root, "define('MAITRED_SNAPSHOT_WITH_PLUGINS', true);");
    boots_with(&server, &copied(&root, 101));
    is_managed(&server, &mut visitor, "With plugins");
    changes_are_seen(&server, &root, &mut visitor);

    set_in_config(&root, "define('WP_CACHE', true);");
    server.configure(&copied(&root, 102));
    let mark = server.log().mark();
    server.reload();
    server.expect_log(mark, "WP_CACHE loads advanced-cache.php while it boots");
    assert_eq!(visitor.get("/").header("X-Copied"), Some("1"));
    server.stop();
}

/// A plugin is part of the boot, and there is another boot when one is activated.
fn changes_are_seen(server: &Server, root: &Path, visitor: &mut Session) {
    let plugin = "<?php /* Plugin Name: Shout */ add_filter('the_title', 'strtoupper');";
    write_file(root, "wp-content/plugins/shout.php", plugin.as_bytes());
    let mut site = WordPress::log_in(server.address());
    let active = json!({"status": "active"});
    let answer = site.rest("POST", "plugins/shout", Some(&active));
    assert_eq!(answer.status, 200, "{}", answer.text());
    wait::until_within("the plugin to be loaded", PATIENCE, || {
        visitor.get("/").text().contains("WITH PLUGINS").then_some(())
    });
}
