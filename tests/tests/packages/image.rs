//! The image, with the packages in it: as an unprivileged user, on a read-only root file system, as
//! any user, and stopped under load.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use maitred_tests::container::{Container, Containers, IMAGE_USER};
use maitred_tests::guard::Guarded;
use maitred_tests::load::{ECHO_PAGE, Load};
use maitred_tests::mariadb::MariaDb;
use maitred_tests::server::{Setup, is_root, write_file};
use maitred_tests::session::{hidden_field, multipart};
use maitred_tests::wordpress::{self, WordPress};
use maitred_tests::{Target, http, picture, ports, project_root, web};
use tempfile::TempDir;

/// The image of the programs under test, built once; none without root.
fn containers() -> Option<&'static Containers> {
    static BUILT: OnceLock<Containers> = OnceLock::new();
    if !is_root() {
        eprintln!("skipped: only root can build images");
        return None;
    }
    let target = super::target();
    Some(BUILT.get_or_init(|| Containers::with_image_of(super::packages(), &target)))
}

/// A folder with a `Containerfile` that begins with maitred's image.
fn context(containers: &Containers, lines: &str, files: &[(&str, &str)]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let text = format!("FROM {}\n{lines}", containers.image());
    write_file(folder.path(), "Containerfile", text.as_bytes());
    for (name, text) in files {
        write_file(folder.path(), name, text.as_bytes());
    }
    folder
}

#[test]
fn a_folder_that_is_copied_into_the_image_is_served_by_an_unprivileged_user() {
    const PAGE: &str = "<?php error_log('noted'); echo posix_getuid(), getenv('APP'), \
                        extension_loaded('redis') ? 'redis' : '';";
    let Some(containers) = containers() else { return };
    let lines = "RUN install-php-extensions redis curl\nCOPY public /app/public\n";
    let folder = context(containers, lines, &[("public/index.php", PAGE)]);
    containers.build("served", folder.path(), &[]);
    let container = containers.run("served", &["--env", "APP=env"]);
    let served = http::get(container.address, "/").text();
    assert_eq!(served, format!("{IMAGE_USER}envredis"));
    let status = container.exec(&["cat", "/proc/1/status"]);
    for none in ["CapBnd:\t0000000000000000", "CapPrm:\t0000000000000000", "NoNewPrivs:\t1"] {
        assert!(status.contains(none), "{none}: {status}");
    }
    let log = container.log();
    assert!(log.contains("\"GET / HTTP/1.1\" 200") && log.contains("noted"), "{log}");
    let health = containers.inspect("served", "{{.HealthCheck.Test}}");
    assert_eq!(health.trim(), "[CMD container-entrypoint maitred status]");
    container.exec(&["container-entrypoint", "maitred", "status"]);
    container.exec(&["maitred", "status"]);
    assert_eq!(container.end("QUIT"), "0", "{}", container.log());
}

/// The zip file of a plugin in this version.
fn plugin(version: &str) -> Vec<u8> {
    let folder = TempDir::new().expect("a folder");
    let text = format!("<?php\n/* Plugin Name: Greeter\n * Version: {version}\n */\n");
    write_file(folder.path(), "greeter/greeter.php", text.as_bytes());
    let mut zip = Command::new("python3");
    zip.args(["-m", "zipfile", "-c", "greeter.zip", "greeter"]).current_dir(folder.path());
    assert!(zip.status().expect("python3 runs").success());
    std::fs::read(folder.path().join("greeter.zip")).expect("a zip file")
}

/// Uploads a plugin; the page that says the result.
fn upload_plugin(site: &mut WordPress, zip: &[u8]) -> String {
    let page = site.admin().get("/wp-admin/plugin-install.php?tab=upload").text();
    let fields = [("_wpnonce", &*hidden_field(&page, "_wpnonce")), ("install-plugin-submit", "Go")];
    let file = ("pluginzip", "greeter.zip", "application/zip", zip);
    let (content_type, body) = multipart(&fields, file);
    let target = "/wp-admin/update.php?action=upload-plugin";
    site.admin().send(http::Request::post(target, &content_type, &body)).text()
}

/// Builds the image of `examples/compose` with Debian's WordPress.
fn build_wordpress(containers: &Containers) {
    let folder = TempDir::new().expect("a folder");
    wordpress::copy_package(&folder.path().join("wordpress"));
    let mut tar = Command::new("tar");
    tar.args(["-czf", "wordpress.tar.gz", "wordpress"]).current_dir(folder.path());
    assert!(tar.status().expect("tar runs").success());
    let server = Setup::new(folder.path()).start();
    let archive = format!("http://{}/wordpress.tar.gz", server.address());
    let arguments = [("MAITRED", &*containers.image()), ("WORDPRESS", &archive)];
    containers.build("wordpress", &project_root().join("examples/compose"), &arguments);
    server.stop();
}

/// No request leaves the machine.
fn keep_offline(container: &Container<'_>) {
    let plugin = "<?php add_filter('pre_http_request', fn ($no, $asked, $url) => \
                  str_contains($url, '127.0.0.1') ? $no : new WP_Error('offline', $url), 10, 3);";
    let file = "/app/wp-content/mu-plugins/offline.php";
    container.exec(&["sh", "-c", "printf %s \"$1\" >\"$2\"", "sh", plugin, file]);
}

#[test]
fn wordpress_installs_uploads_and_updates_a_plugin_as_any_user_with_a_read_only_root() {
    let Some(containers) = containers() else { return };
    build_wordpress(containers);
    let database = MariaDb::start();
    database.run("CREATE DATABASE wordpress");
    database.run("CREATE USER wordpress@localhost IDENTIFIED BY 'secret'");
    database.run("GRANT ALL ON wordpress.* TO wordpress@localhost");
    let socket = format!("{}:/run/database.sock", database.socket().display());
    let volume = format!("maitred-{}", std::process::id());
    let site = format!("{volume}:/app");
    let options = [
        "--user=12345:0",
        "--read-only",
        "--cap-drop=ALL",
        "--security-opt=no-new-privileges",
        &format!("--volume={socket}"),
        &format!("--volume={site}"),
        "--env=WORDPRESS_DB_HOST=localhost:/run/database.sock",
        "--env=WORDPRESS_DB_NAME=wordpress",
        "--env=WORDPRESS_DB_USER=wordpress",
        "--env=WORDPRESS_DB_PASSWORD=secret",
        "--env=MAITRED_CACHE_VALID=1h",
    ];
    let container = containers.run("wordpress", &options);
    keep_offline(&container);
    let mut site = WordPress::install(container.address);
    let (_, link) = site.publish("Hello", "A first post");
    let pictures = site.upload("square.png", &picture::png(640, 480));
    let picture = site.admin().get(&pictures[0]);
    assert_eq!(picture.status, 200, "{}", picture.text());
    assert!(pictures.len() > 1, "PHP has made smaller ones: {pictures:?}");
    let installed = upload_plugin(&mut site, &plugin("1.0"));
    assert!(installed.contains("Plugin installed successfully"), "{installed}");
    let offered = upload_plugin(&mut site, &plugin("2.0"));
    let replace = offered.split('"').find(|link| link.contains("overwrite=update-plugin"));
    let replace = replace.unwrap_or_else(|| panic!("{offered}")).replace("&amp;", "&");
    let updated = site.admin().get(&format!("/wp-admin/{replace}")).text();
    assert!(updated.contains("Plugin updated successfully"), "{updated}");
    // Visitors get pages of the cache.
    let target = site.admin().target(&link);
    http::get(container.address, &target);
    let cached = http::get(container.address, &target);
    let status = cached.header("Cache-Status").unwrap_or_default();
    assert!(status.contains("hit"), "{status}");
    let user = container.exec(&["id", "-u"]);
    assert_eq!(user.trim(), "12345");
    assert_eq!(container.end("TERM"), "0", "{}", container.log());
    drop(container);
    containers.remove_volume(&volume);
}

/// nginx in front of containers.
fn proxy(folder: &Path, address: SocketAddr, containers: &[&Container<'_>]) -> Guarded {
    let servers =
        containers.iter().map(|container| format!("server {} max_fails=0;", container.address));
    let servers = servers.collect::<String>();
    let http = format!("upstream containers {{ {servers} keepalive 8; }}");
    let server = "location / { proxy_pass http://containers; proxy_http_version 1.1; \
                  proxy_set_header Connection ''; }";
    web::start_nginx(folder, address, &web::nginx_conf(folder, address, &http, server))
}

#[test]
fn containers_that_are_stopped_under_load_behind_nginx_lose_no_request() {
    let Some(containers) = containers() else { return };
    let folder = context(containers, "COPY . /app\n", &[ECHO_PAGE, ("index.php", "")]);
    containers.build("stopped", folder.path(), &[]);
    let [one, other] = [containers.run("stopped", &[]), containers.run("stopped", &[])];
    let address = ports::free_address();
    let nginx = proxy(folder.path(), address, &[&one, &other]);
    let load = Load::start(address, 4);
    for (container, signal) in [(&one, "TERM"), (&other, "TERM"), (&one, "QUIT")] {
        load.wait_for_ok(100);
        assert_eq!(container.end(signal), "0", "{}", container.log());
        load.wait_for_ok(100);
        container.start_again();
    }
    load.wait_for_ok(100);
    let tally = load.stop();
    drop(nginx);
    assert_eq!((tally.failed(), tally.mixed_up), (0, 0), "{tally:?}");
}
