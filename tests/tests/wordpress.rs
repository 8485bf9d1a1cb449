//! WordPress, installed and used over HTTP: under maitred, and under nginx with php-fpm to keep the
//! test itself honest.

use std::fs;
use std::process::Command;

use maitred_tests::Target;
use maitred_tests::browser;
use maitred_tests::http;
use maitred_tests::maitred_program;
use maitred_tests::peer::Peer;
use maitred_tests::picture;
use maitred_tests::server::{Server, Setup, give_to_web_user, write_file};
use maitred_tests::session::Session;
use maitred_tests::wait;
use maitred_tests::wordpress::{Files, WordPress};

/// A person's whole evening with WordPress; leaves `target/screenshots/NAME.png`.
fn use_wordpress(server: &dyn Target, name: &str) {
    let mut site = WordPress::install(server.address());
    let dashboard = site.admin().get("/wp-admin/").text();
    assert!(dashboard.contains("Dashboard"), "no dashboard: {dashboard}");
    let mut visitor = Session::new(server.address());
    let picture = upload(&mut site, &mut visitor);
    let (post, link) = publish(&mut site, &mut visitor, &picture);
    discuss(&mut site, &mut visitor, post, &link);
    browser::screenshot(&format!("{}/", server.base_url()), name);
    browser::screenshot(&link, &format!("{name}-post"));
}

/// Uploads a picture and looks at it in all its sizes; its URL.
fn upload(site: &mut WordPress, visitor: &mut Session) -> String {
    let picture = picture::png(640, 480);
    let mut urls = site.upload("table.png", &picture);
    assert!(urls.len() > 1, "no smaller sizes were made of the picture: {urls:?}");
    for url in &urls {
        let answer = visitor.get(url);
        assert_eq!((answer.status, answer.header("Content-Type")), (200, Some("image/png")));
    }
    assert_eq!(visitor.get(&urls[0]).body, picture, "the picture comes back as it was");
    urls.swap_remove(0)
}

/// Publishes a post under the site's first permalinks, changes those, and reads it in every way;
/// its id and link.
fn publish(site: &mut WordPress, visitor: &mut Session, picture: &str) -> (u64, String) {
    let content = format!("<p>The table is laid.</p><img src=\"{picture}\" alt=\"table\">");
    let (post, dated_link) = site.publish("A first evening", &content);
    // The installer asks its own site for a pretty URL, and chooses these if it is answered.
    assert!(dated_link.ends_with("/a-first-evening/"), "{dated_link} is not pretty");
    assert!(visitor.get(&dated_link).text().contains("The table is laid."));

    let structure = site.choose_pretty_permalinks();
    assert_eq!(structure, "/%year%/%monthnum%/%postname%/", "WordPress sees a rewriting server");
    let (_, link) = site.post(post);
    assert_ne!(link, dated_link, "the chosen structure is used");
    let page = visitor.get(&link);
    assert_eq!(page.status, 200, "{link}");
    assert!(page.text().contains("The table is laid."));
    let old = visitor.get(&format!("/?p={post}"));
    assert_eq!((old.status, old.header("Location")), (301, Some(link.as_str())));
    let missing = visitor.get("/2001/01/never-written/").status;
    assert_eq!(missing, 404, "WordPress answers for what does not exist");

    let posts = visitor.get("/wp-json/wp/v2/posts").json();
    let titles: Vec<_> =
        posts.as_array().expect("a list").iter().map(|post| &post["title"]["rendered"]).collect();
    assert_eq!(titles, ["A first evening", "Hello world!"]);
    (post, link)
}

/// Comments on a post as a visitor and approves it.
fn discuss(site: &mut WordPress, visitor: &mut Session, post: u64, link: &str) {
    let comment = site.comment(post, "A guest", "Thank you for the soup.");
    assert!(!visitor.get(link).text().contains("the soup"), "a comment waits for approval");
    site.approve(comment);
    assert!(visitor.get(link).text().contains("Thank you for the soup."));
}

/// What the preset denies of the real WordPress is denied, and what it needs is not.
fn hardly_anything_else_is_answered(server: &Server, files: &Files) {
    // The upload of an attacker through a vulnerable plugin.
    let evil = "wp-content/uploads/evil.php";
    write_file(&files.root(), evil, b"<?php echo 'SECRET';");
    for (path, status) in [
        ("/wp-config.php", 404),
        ("/wp-includes/functions.php", 404),
        ("/wp-admin/includes/file.php", 404),
        ("/wp-content/uploads/evil.php", 403),
        ("/wp-includes/css/dashicons.css", 200),
        ("/wp-login.php", 200),
    ] {
        assert_eq!(http::get(server.address(), path).status, status, "{path}");
    }
}

#[test]
fn wordpress_is_installed_and_used_under_maitred() {
    let files = Files::prepare();
    let server = Setup::new(&files.root()).workers(4).site("app = \"wordpress\"").start();
    use_wordpress(&server, "wordpress");
    hardly_anything_else_is_answered(&server, &files);
    server.stop();
}

/// Does something once, when the cron of WordPress runs.
const PROBE: &str = "<?php
add_action('maitred_probe', function () { file_put_contents(__DIR__ . '/ran', 'it ran'); });
add_action('init', function () {
    if (!file_exists(__DIR__ . '/ran') && !wp_next_scheduled('maitred_probe')) {
        wp_schedule_single_event(time() - 1, 'maitred_probe');
    }
});";

#[test]
fn the_cron_of_wordpress_runs_beside_its_visitors() {
    let files = Files::prepare();
    let probe = files.root().join("wp-content/mu-plugins");
    write_file(&files.root(), "wp-content/mu-plugins/probe.php", PROBE.as_bytes());
    give_to_web_user(&probe);
    let setup = || Setup::new(&files.root()).workers(4).site("app = \"wordpress\"");
    let server = setup().site("app_cron = true").start();
    let maitred = |words: &[&str]| {
        let output = Command::new(maitred_program()).args(words).output().expect("maitred runs");
        assert!(output.status.success(), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let file = server.configuration().to_str().expect("plain").to_owned();
    let check = || maitred(&["check", &file]);
    assert!(check().contains("has a schedule, and visitors run it as well"), "{}", check());
    let config = files.root().join("wp-config.php");
    let text = fs::read_to_string(&config).expect("it is there");
    let text = text.replacen("<?php", "<?php define('DISABLE_WP_CRON', true);", 1);
    fs::write(&config, text).expect("it can be written");
    assert!(!check().contains("WordPress"), "{}", check());
    WordPress::install(server.address());
    let socket = server.admin_socket();
    maitred(&["run", "www/cron", "--admin-socket", socket.to_str().expect("plain")]);
    // Where its minute had just begun, that run has it.
    wait::until_true("the cron to run", || probe.join("ran").exists());
    server.stop();
}

#[test]
fn wordpress_is_installed_and_used_under_nginx_and_php_fpm() {
    let files = Files::prepare();
    let peer = Peer::nginx_php_fpm(&files.root());
    use_wordpress(&peer, "wordpress-nginx-php-fpm");
}
