//! The sites of a file.

use std::path::PathBuf;

use crate::folder::Folder;
use maitred_config::{Destination, Host, Site, Upstream};

pub fn site(folder: &Folder, lines: &str) -> Site {
    let root = if lines.starts_with("root") { "" } else { "root = \"public\"" };
    // The pool in the example of `pool`.
    let text = format!("[pools.shop]\n[[sites]]\n{root}\n{lines}\n");
    folder.good(&text).sites.remove(0)
}

#[test]
fn a_cache_knows_the_sessions_of_its_application() {
    let folder = Folder::new();
    let cache = |lines: &str| site(&folder, lines).cache.map(|cache| cache.rules);
    assert_eq!(cache(""), None);
    let is_private = |lines: &str, cookie: &str| {
        let rules = cache(lines).unwrap();
        let mut patterns = rules.private_cookies.iter();
        patterns.any(|pattern| pattern.matches(cookie.as_bytes()))
    };
    assert!(is_private("[sites.cache]", "PHPSESSID"));
    assert!(!is_private("[sites.cache]", "wordpress_logged_in_1"));
    let wordpress = "app = \"wordpress\"\n[sites.cache]\n";
    assert!(is_private(wordpress, "wordpress_logged_in_1"));
    let own = format!("{wordpress}private_cookies = \"mine\"");
    assert!(!is_private(&own, "wordpress_logged_in_1") && is_private(&own, "mine"));
    let no_store = cache(wordpress).unwrap().no_store;
    assert!(no_store.paths.iter().any(|path| path.matches(b"/checkout/")));
    let mut parameters = no_store.parameters.iter();
    assert!(parameters.any(|name| name.matches(b"rest_route")));
}

#[test]
fn an_applications_cache_knows_the_parameters_that_only_say_where_a_visitor_comes_from() {
    let folder = Folder::new();
    let ignored = |lines: &str| {
        let cache = site(&folder, lines).cache.unwrap();
        let mut ignored = cache.rules.key.ignore_parameters.iter();
        ignored.any(|name| name.matches(b"utm_source"))
    };
    assert!(!ignored("[sites.cache]"));
    assert!(ignored("app = \"wordpress\"\n[sites.cache]"));
    let own = "app = \"wordpress\"\n[sites.cache]\nignore_parameters = false";
    assert!(!ignored(own));
}

#[test]
fn how_long_pages_are_good_is_said_for_all_or_for_each_status() {
    let folder = Folder::new();
    let valid = |line: &str| {
        let rules = site(&folder, &format!("[sites.cache]\n{line}")).cache.unwrap().rules;
        let valid = rules.valid.iter();
        valid.map(|valid| (valid.status, valid.seconds)).collect::<Vec<_>>()
    };
    let usual = [(Some(200), 60), (Some(301), 60), (Some(302), 60)];
    assert_eq!(valid("valid = \"1m\""), usual);
    let each = valid("valid = { any = 1, 404 = \"10s\" }");
    assert_eq!(each, [(Some(404), 10), (None, 1)]);
}

#[test]
fn settings_of_a_site_are_read() {
    let folder = Folder::new();
    let site = site(
        &folder,
        "root = \"public\"\nhosts = [\"Shop.example\", \"*.shop.example\"]\nindex = \"home.php\"\n\
         pool = \"shop\"\nfront_controller = \"/app/front.php\"\nmax_body_size = 1",
    );
    let (name, below) = ("shop.example".to_owned(), "shop.example".to_owned());
    assert_eq!(site.hosts, [Host::Exact(name), Host::Below(below)]);
    assert_eq!(site.root, folder.path().join("public"));
    assert_eq!(site.index, ["home.php"]);
    assert_eq!(site.destination, Destination::Pool("shop".to_owned()));
    assert_eq!(site.front_controller.as_deref(), Some("/app/front.php"));
    assert_eq!(site.max_body_size, 1);
}

#[test]
fn a_site_may_have_no_front_controller() {
    assert_eq!(site(&Folder::new(), "front_controller = \"\"").front_controller, None);
}

#[test]
fn an_upstream_is_a_socket_or_a_host_and_a_port() {
    let folder = Folder::new();
    let read = |value: &str| match site(&folder, &format!("upstream = \"{value}\"")).destination {
        Destination::Upstream(upstream) => upstream,
        Destination::Pool(name) => panic!("{name}"),
    };
    let tcp = |host: &str| Upstream::Tcp { host: host.to_owned(), port: 9000 };
    assert_eq!(read("unix:/run/php.sock"), Upstream::Unix(PathBuf::from("/run/php.sock")));
    assert_eq!(read("127.0.0.1:9000"), tcp("127.0.0.1"));
    assert_eq!(read("[::1]:9000"), tcp("::1"));
    assert_eq!(read("php.internal:9000"), tcp("php.internal"));
}

#[test]
fn a_file_in_which_every_site_has_an_upstream_has_no_pool() {
    let text = "[[sites]]\nroot = \"public\"\nupstream = \"127.0.0.1:9000\"";
    assert_eq!(Folder::new().good(text).pools, []);
}

#[test]
fn classic_paths_are_paths_of_another_pool_before_all_others() {
    let folder = Folder::new();
    let site = site(
        &folder,
        "classic_paths = [\"/xmlrpc.php\", \"/wp-admin/\"]\nclassic_pool = \"shop\"\n\
         paths = [{ path = \"/wp-admin/*\", max_body_size = \"2G\" }]",
    );
    let paths = site.rules.paths.iter();
    let paths: Vec<_> = paths.map(|one| (one.path.to_string(), one.pool.as_deref())).collect();
    assert_eq!(
        paths,
        [
            ("/xmlrpc.php".to_owned(), Some("shop")),
            ("/wp-admin/*".to_owned(), Some("shop")),
            ("/wp-admin/*".to_owned(), None),
        ]
    );
}
