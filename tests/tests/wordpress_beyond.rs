//! WordPress beyond its pages: REST, XML-RPC, cron, an update of a plugin under traffic, Site
//! Health beside nginx with php-fpm, and networks of sites in folders and in sub-domains.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Request, Response};
use maitred_tests::peer::Peer;
use maitred_tests::server::{Setup, give_to_web_user, write_file};
use maitred_tests::wait;
use maitred_tests::wordpress::{ADMIN, Files, PASSWORD, WordPress};
use serde_json::Value;

/// How long a change may take to show.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a test asks of WordPress' own code, as a plugin that is always on.
const PROBE: &str = r"<?php
add_action('tick', function () { update_option('ticked', get_option('ticked', 0) + 1); });
add_action('init', function () {
    if (isset($_GET['schedule-tick'])) { wp_schedule_single_event(time() - 1, 'tick'); }
    if (isset($_GET['ticked'])) { wp_die((string) get_option('ticked', 0), '', 200); }
    if (!current_user_can('manage_options')) { return; }
    if (isset($_GET['site-health'])) {
        require_once ABSPATH . 'wp-admin/includes/admin.php';
        $health = WP_Site_Health::get_instance();
        $found = [];
        foreach (WP_Site_Health::get_tests()['direct'] as $name => $test) {
            $run = $test['test'];
            $found[$name] = (is_string($run) ? [$health, 'get_test_' . $run] : $run)()['status'];
        }
        wp_send_json($found);
    }
    if (isset($_GET['update-plugin'])) {
        require_once ABSPATH . 'wp-admin/includes/admin.php';
        require_once ABSPATH . 'wp-admin/includes/class-wp-upgrader.php';
        $upgrader = new Plugin_Upgrader(new Automatic_Upgrader_Skin());
        $done = $upgrader->install(ABSPATH . 'menu.zip', ['overwrite_package' => true]);
        wp_send_json(['done' => $done === true]);
    }
});
";

/// The same plugin of two versions.
fn menu(version: u32) -> String {
    format!(
        "<?php\n/* Plugin Name: Menu\nVersion: {version}.0 */\n\
         add_action('wp_footer', function () {{ echo '<!-- menu {version} -->'; }});\n"
    )
}

fn at(address: SocketAddr, host: &str, target: &str) -> Response {
    http::ask(address, &Request::new("GET", target).header("Host", host))
}

/// A page under the name that WordPress has for itself.
fn get(address: SocketAddr, target: &str) -> Response {
    at(address, &address.to_string(), target)
}

fn put_probe_into(root: &Path) {
    let plugins = root.join("wp-content/mu-plugins");
    write_file(&plugins, "probe.php", PROBE.as_bytes());
    write_file(root, "wp-content/plugins/menu/menu.php", menu(1).as_bytes());
    for folder in ["wp-content/plugins", "wp-content/plugins/menu"] {
        give_to_web_user(&root.join(folder));
    }
    give_to_web_user(&root.join("wp-content/plugins/menu/menu.php"));
    let zip = "$zip = new ZipArchive(); $zip->open($argv[1], ZipArchive::CREATE);
        $zip->addFromString('menu/menu.php', $argv[2]); $zip->close();";
    let menu_zip = root.join("menu.zip");
    run(Command::new("php").args(["-r", zip]).arg(&menu_zip).arg(menu(2)));
    give_to_web_user(&menu_zip);
}

fn run(command: &mut Command) {
    let output = command.output().expect("a program can be run");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn xml_rpc(address: SocketAddr) -> Response {
    let text = |value: &str| format!("<param><value><string>{value}</string></value></param>");
    let body = format!(
        "<?xml version=\"1.0\"?><methodCall><methodName>wp.getUsersBlogs</methodName>\
         <params>{}{}</params></methodCall>",
        text(ADMIN),
        text(PASSWORD)
    );
    http::ask(address, &Request::post("/xmlrpc.php", "text/xml", body.as_bytes()))
}

/// Waits until the first page has this text: OPcache looks at files every two seconds.
fn shows_soon(address: SocketAddr, text: &str) {
    let shows = || get(address, "/").text().contains(text).then_some(());
    if wait::poll(PATIENCE, shows).is_none() {
        let page = get(address, "/");
        panic!("{text} is not in {} {:?}: {}", page.status, page.headers, page.text());
    }
}

/// Updates the plugin while others read pages.
fn update_under_traffic(site: &mut WordPress, address: SocketAddr) {
    let activated =
        site.rest("POST", "plugins/menu/menu", Some(&serde_json::json!({"status": "active"})));
    assert_eq!(activated.status, 200, "{}", activated.text());
    shows_soon(address, "<!-- menu 1 -->");
    let stops = Arc::new(AtomicBool::new(false));
    let is_over = stops.clone();
    let readers = std::thread::spawn(move || {
        let mut seen = BTreeMap::new();
        while !is_over.load(Ordering::SeqCst) {
            let page = get(address, "/");
            let version = [1, 2]
                .into_iter()
                .find(|version| page.text().contains(&format!("<!-- menu {version} -->")));
            *seen.entry((page.status, version)).or_insert(0) += 1;
        }
        seen
    });
    let updated = site.admin().get("/?update-plugin");
    assert_eq!(updated.json()["done"], true, "{}", updated.text());
    shows_soon(address, "<!-- menu 2 -->");
    stops.store(true, Ordering::SeqCst);
    let seen = readers.join().expect("readers end");
    let is_whole = |(status, version): &(u16, Option<u32>)| *status == 200 && version.is_some();
    // Between the removal of the old files and the new ones WordPress is without its plugin.
    let failed: Vec<_> = seen.keys().filter(|one| !is_whole(one) && one.0 != 200).collect();
    assert!(failed.is_empty(), "{seen:?}");
    assert!(seen.keys().any(is_whole), "{seen:?}");
}

/// The results of Site Health's tests, by their names.
fn site_health(target: &dyn Target, files: &Files) -> BTreeMap<String, String> {
    put_probe_into(&files.root());
    let mut site = WordPress::install(target.address());
    site.choose_pretty_permalinks();
    let direct = site.admin().get("/?site-health").json();
    let direct: BTreeMap<String, Value> =
        direct.as_object().expect("an object").clone().into_iter().collect();
    let mut found: BTreeMap<String, String> = direct
        .into_iter()
        .map(|(name, status)| (name, status.as_str().unwrap_or_default().to_owned()))
        .collect();
    // Not "page-cache", which measures how long a page takes.
    for name in ["loopback-requests", "authorization-header", "https-status"] {
        let response = site.site_health(name);
        found.insert(name.to_owned(), response["status"].as_str().unwrap_or_default().to_owned());
    }
    // That depends on when the last page was read.
    found.remove("scheduled_events");
    found
}

#[test]
fn site_health_finds_the_same_as_under_nginx_and_php_fpm() {
    let files = Files::prepare();
    let server = Setup::new(&files.root()).workers(4).site("app = \"wordpress\"").start();
    let ours = site_health(&server, &files);
    let address = server.address();
    assert_eq!(ours.get("loopback-requests").map(String::as_str), Some("good"), "{ours:?}");

    let answer = xml_rpc(address);
    assert_eq!(answer.status, 200);
    assert!(answer.text().contains("<name>blogName</name>"), "{}", answer.text());

    let mut site = WordPress::log_in(address);
    let posts = get(address, "/wp-json/wp/v2/posts").json();
    assert_eq!(posts[0]["title"]["rendered"], "Hello world!");
    assert_eq!(get(address, "/wp-json/wp/v2/settings").status, 401);
    assert_eq!(site.rest("GET", "settings", None).status, 200);

    get(address, "/?schedule-tick");
    wait::until_true("the scheduled event", || {
        // A page starts wp-cron.php by a request of WordPress to itself.
        get(address, "/");
        get(address, "/?ticked").text().contains('1')
    });
    update_under_traffic(&mut site, address);
    server.stop();

    let files = Files::prepare();
    let peer = Peer::nginx_php_fpm(&files.root());
    assert_eq!(ours, site_health(&peer, &files));
}

/// Makes a network of two sites in the database and in wp-config.php, as `wp core
/// multisite-install` does.
fn make_network(files: &Files, has_domains: bool) {
    let script = r"
        define('WP_INSTALLING', true);
        $_SERVER['HTTP_HOST'] = 'guest.test';
        $_SERVER['REQUEST_URI'] = '/';
        require $argv[1] . '/wp-load.php';
        require ABSPATH . 'wp-admin/includes/upgrade.php';
        wp_install('The Guest House', 'keeper', 'keeper@example.com', true, '', $argv[3]);
        update_option('siteurl', 'http://guest.test');
        update_option('home', 'http://guest.test');
        foreach ($wpdb->tables('ms_global') as $table => $name) { $wpdb->$table = $name; }
        install_network();
        populate_network(1, 'guest.test', 'keeper@example.com', 'Guests', '/', $argv[2] === '1');
    ";
    let root = files.root();
    let has = if has_domains { "1" } else { "0" };
    run(Command::new("php").args(["-r", script]).arg(&root).args([has, PASSWORD]));
    let config = root.join("wp-config.php");
    let text = fs::read_to_string(&config).expect("wp-config.php can be read");
    let network = format!(
        "define('MULTISITE', true); define('SUBDOMAIN_INSTALL', {has_domains});
        define('DOMAIN_CURRENT_SITE', 'guest.test'); define('PATH_CURRENT_SITE', '/');
        define('SITE_ID_CURRENT_SITE', 1); define('BLOG_ID_CURRENT_SITE', 1);\n$table_prefix"
    );
    fs::write(&config, text.replacen("$table_prefix", &network, 1)).expect("it can be written");
    let script = r"
        $_SERVER['HTTP_HOST'] = 'guest.test';
        $_SERVER['REQUEST_URI'] = '/';
        require $argv[1] . '/wp-load.php';
        $made = $argv[2] === '1' ? wpmu_create_blog('garden.guest.test', '/', 'The Garden', 1)
            : wpmu_create_blog('guest.test', '/garden/', 'The Garden', 1);
        if (is_wp_error($made)) { fwrite(STDERR, $made->get_error_message()); exit(1); }
    ";
    run(Command::new("php").args(["-r", script]).arg(&root).arg(has));
}

/// Whether this is the first page of a site.
fn is_of(page: &Response, title: &str) {
    let text = page.text();
    let (status, place) = (page.status, page.header("Location"));
    assert!(
        status == 200 && text.contains(&format!("<title>{title}")),
        "{status} {place:?} {text}"
    );
}

#[test]
fn a_network_in_folders_has_its_sites_their_files_and_their_administration() {
    let files = Files::prepare();
    make_network(&files, false);
    let server = Setup::new(&files.root()).workers(2).site("app = \"wordpress\"").start();
    let get = |target: &str| at(server.address(), "guest.test", target);
    is_of(&get("/"), "The Guest House");
    is_of(&get("/garden/"), "The Garden");
    let style = get("/garden/wp-includes/css/dashicons.css");
    assert_eq!(style.status, 200);
    assert!(style.header("Content-Type").is_some_and(|kind| kind.starts_with("text/css")));
    let admin = get("/garden/wp-admin/");
    assert_eq!(admin.status, 302);
    let place = admin.header("Location").unwrap_or_default();
    assert!(place.starts_with("http://guest.test/garden/wp-login.php"), "{place}");
    assert_eq!(get("/garden/wp-login.php").status, 200);
    let name = get("/garden/wp-json/?_fields=name").json();
    assert_eq!(name["name"], "The Garden");
    assert_eq!(get("/garden/nothing-here/").status, 404);
    server.stop();
}

#[test]
fn a_network_in_sub_domains_has_a_site_for_each_host() {
    let files = Files::prepare();
    make_network(&files, true);
    let setup = Setup::new(&files.root()).workers(2).site("app = \"wordpress\"");
    let server = setup.start();
    let get = |host: &str, target: &str| at(server.address(), host, target);
    is_of(&get("guest.test", "/"), "The Guest House");
    is_of(&get("garden.guest.test", "/"), "The Garden");
    let name = get("garden.guest.test", "/wp-json/?_fields=name").json();
    assert_eq!(name["name"], "The Garden");
    let unknown = get("cellar.guest.test", "/");
    assert_eq!(unknown.status, 302, "an unknown site");
    server.stop();
}
