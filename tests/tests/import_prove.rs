//! `maitred import --prove`: nginx with php-fpm and a real site, and maitred beside it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Request};
use maitred_tests::imported::{Case, OldServer, Proven, with_root};
use maitred_tests::outside::text;
use maitred_tests::server::{public_folder, write_file};
use maitred_tests::tls::Authority;
use maitred_tests::{Target, ports, project_root};
use serde_json::Value;

/// Rate of the comparisons, in requests a second: no bound for these tests.
const FAST: &str = "10000";

/// Logs each request: the server's own process, the method, the target.
const LOGGED: &str = "<?php file_put_contents(dirname(__DIR__) . '/requests', PHP_SAPI . ' ' . \
    (getenv('SERVER_SOFTWARE') ?: $_SERVER['SERVER_SOFTWARE']) . \"\\t\" . \
    $_SERVER['REQUEST_METHOD'] . ' ' . $_SERVER['REQUEST_URI'] . \"\\n\", FILE_APPEND); ";

/// The first page: what varies by itself, links, a form to search, and a form that deletes.
const FIRST: &str = "session_start(); echo '<h1>Shop</h1><link rel=stylesheet href=/style.css>',
    '<a href=\"goods.php?id=1\">1</a><a href=\"/goods.php?id=2\">2</a><a href=/logout.php>out</a>',
    '<a href=\"/basket.php?do=add-to-basket&amp;id=1\">buy</a>',
    '<form action=/search.php><input name=q><input type=hidden name=csp value=1></form>',
    '<form method=post action=/delete.php><input name=id></form>',
    '<input name=nonce value=\"', bin2hex(random_bytes(8)), '\"><p>', date('H:i:s'), ' ',
    microtime(true), ' ', getmypid(), '</p>';";

const SERVER: &str = "server_name shop.example.com;
    root ROOT;
    index index.php;
    access_log HERE/access.log;
    location / { try_files $uri $uri/ =404; }
    location = /robots.txt { access_log off; }
    location ^~ /private/ { deny all; }
    location = /old.php { return 301 /goods.php; }
    location ~ \\.php$ {
        try_files $uri =404;
        include fastcgi_params;
        fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name;
        fastcgi_pass unix:FPM;
    }";

/// The shop behind nginx, with these lines of nginx.
fn shop(http: &str, server: &str) -> OldServer {
    let folder = public_folder();
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder can be made");
    let script = |name: &str, code: &str| {
        write_file(&root, name, format!("{LOGGED}{code}").as_bytes());
    };
    script("index.php", FIRST);
    script("goods.php", "echo 'Goods ', (int) ($_GET['id'] ?? 0), '<a href=/feed.php>feed</a>';");
    script("feed.php", "header('Content-Type: application/xml'); echo '<rss/>';");
    script("search.php", "echo 'Found ', htmlspecialchars($_REQUEST['q'] ?? '');");
    script("logged.php", "echo 'only the log names it';");
    script("mapped.php", "echo 'only the sitemap names it';");
    for name in ["logout.php", "delete.php", "basket.php"] {
        script(name, "echo 'done';");
    }
    write_file(&root, "style.css", "body { color: black } ".repeat(200).as_bytes());
    write_file(&root, "robots.txt", b"User-agent: *\nSitemap: http://shop.example.com/map.xml\n");
    let map = "<urlset><url><loc>http://shop.example.com/mapped.php</loc></url></urlset>";
    write_file(&root, "map.xml", map.as_bytes());
    write_file(&root.join("private"), "a.txt", b"a secret");
    write_file(folder.path(), "requests", b"");
    let requests = folder.path().join("requests");
    fs::set_permissions(requests, fs::Permissions::from_mode(0o666)).expect("a mode can be set");
    OldServer::start_in(folder, &Case { http, server, files: &[] })
}

/// How often each request reached a script, by its method and target.
fn requests(old: &OldServer) -> BTreeMap<String, usize> {
    let log = fs::read_to_string(old.folder().join("requests")).expect("there is a log");
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let request = line.split('\t').nth(1).expect("a request");
        *counts.entry(request.to_owned()).or_default() += 1;
    }
    counts
}

#[test]
fn the_import_of_a_site_is_proven_without_a_request_that_changes_something() {
    let old = shop("", SERVER);
    let logged = Request::new("GET", "/logged.php").header("Host", "shop.example.com");
    http::ask(old.address(), &logged);
    let before = old.configuration().map(|file| fs::read(file).expect("it can be read"));
    let proven = Proven::of(&old, &[]);
    let json = &proven.json;
    assert_eq!(proven.code, Some(0), "{json:#}\n{}", proven.errors);
    assert!(json["same"].as_u64() > Some(50), "{json:#}");
    assert!(json["varying"].as_u64() > Some(0), "{json:#}");
    let requests = requests(&old);
    for target in ["/", "/goods.php?id=1", "/feed.php", "/logged.php", "/mapped.php"] {
        assert!(requests.contains_key(&format!("GET {target}")), "{target}: {requests:?}");
    }
    assert!(requests.contains_key("GET /search.php?q=a&csp=1"), "{requests:?}");
    for request in requests.keys() {
        let does = ["POST", "logout", "delete", "basket"].iter().any(|word| request.contains(word));
        assert!(!does, "{request}");
    }
    let skipped = json["skipped"].to_string();
    assert!(skipped.contains("/logout.php") && skipped.contains("/basket.php"), "{skipped}");
    let after = old.configuration().map(|file| fs::read(file).expect("it can be read"));
    assert_eq!(before, after);
    let response = http::ask(old.address(), &logged);
    assert_eq!(response.status, 200, "nginx still serves");
    proven.expect_nothing_left(&old);
}

#[test]
fn a_planted_difference_is_found_and_named_with_both_rules() {
    let old = shop("", SERVER);
    let file = old.folder().join("maitred.toml");
    let name = file.to_str().expect("it is text");
    let output = old.import(&["--output", name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let toml = fs::read_to_string(&file).expect("it is written");
    let deny = toml.lines().find(|line| line.contains("\"/private/*\"")).expect("a rule");
    let planted = toml.replace(&format!("{deny}\n"), "  \"/feed.php\",  # planted\n");
    fs::write(&file, &planted).expect("it can be written");
    let arguments = ["--config", name, "--post", "/search.php q=b", "--also", "/private/a.txt"];
    let proven = Proven::of(&old, &arguments);
    let json = &proven.json;
    assert_eq!(proven.code, Some(4), "{json:#}\n{}", proven.errors);
    let found = proven.unexplained();
    let first = found.first().expect("a difference");
    assert_eq!(first["opens"], true, "{json:#}");
    assert!(first["addresses"].to_string().contains("/private/a.txt"), "{first:#}");
    let line = |text: &str, part: &str| {
        text.lines().position(|line| line.contains(part)).map_or(0, |at| at + 1)
    };
    let [nginx, _] = old.configuration();
    let conf = fs::read_to_string(&nginx).expect("it can be read");
    let place = format!("{}:{}: location ^~ /private/", nginx.display(), line(&conf, "/private/"));
    assert!(
        first["old"]["rule"].as_str().is_some_and(|rule| rule.starts_with(&place)),
        "{first:#}"
    );
    let denied = found.iter().find(|one| one["new"]["status"] == 403).expect("the other one");
    let place = format!("{name}:{}: deny /feed.php (from planted)", line(&planted, "planted"));
    let rule = denied["new"]["rule"].as_str().unwrap_or_default();
    assert!(rule.starts_with(&place), "{denied:#}");
    assert_eq!(requests(&old).get("POST /search.php"), Some(&2), "once for each server");
    proven.expect_nothing_left(&old);
}

#[test]
fn the_text_names_what_differs_and_prints_the_switch_over_and_the_way_back() {
    let old = shop("", SERVER);
    let output = old.import(&["--prove", "--rate", FAST, "--limit", "40"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    for part in [
        "Nothing differs that is not explained above.",
        "not requested, since they may change something: ",
        "systemctl disable --now nginx php-fpm && systemctl enable --now maitred",
        "systemctl disable --now maitred && systemctl enable --now php-fpm nginx",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn the_rate_and_the_limit_hold() {
    let old = shop("", SERVER);
    let began = Instant::now();
    let output = old.import(&["--prove", "--json", "--rate", "40", "--limit", "8"]);
    let took = began.elapsed();
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let requests = json["requests"].as_u64().expect("a number");
    assert!(json["addresses"].as_u64() <= Some(8), "{json:#}");
    let least = Duration::from_secs_f64((requests - 1) as f64 / 40.0);
    assert!(took >= least, "{requests} requests in {took:?}");
}

#[test]
fn a_site_with_tls_is_compared_over_both() {
    let authority = Authority::default();
    let certificate = authority.issue("shop", &["shop.example.com"]);
    let address = ports::free_address();
    let lines = format!(
        "server {{ listen {address} ssl; ssl_certificate {}; ssl_certificate_key {}; {SERVER} }}",
        certificate.cert.display(),
        certificate.key.display()
    );
    let old = shop(&lines, "server_name plain.example.com; root ROOT; return 404;");
    let proven = Proven::of(&old, &["--limit", "300"]);
    let Proven { json, errors, .. } = &proven;
    assert!(proven.unexplained().is_empty(), "{json:#}\n{errors}");
    assert!(requests(&old).contains_key("GET /goods.php?id=1"), "{json:#}\n{errors}");
    proven.expect_nothing_left(&old);
}

#[test]
fn a_configuration_that_does_not_serve_and_an_old_server_that_does_not_run_are_errors() {
    let old = shop("", SERVER);
    let file = old.folder().join("maitred.toml");
    let name = file.to_str().expect("it is text");
    let output = old.import(&["--output", name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let toml = fs::read_to_string(&file).expect("it is written");
    let spare = ports::free_address();
    let [nginx, _] = old.configuration();
    let conf = fs::read_to_string(&nginx).expect("it can be read");
    let moved = conf.replace(&old.address().to_string(), &spare.to_string());
    fs::write(&nginx, moved).expect("it can be written");
    let output = old.import(&["--prove", "--rate", FAST, "--config", name]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the old server: there is no connection"), "{said}");
    assert!(!said.contains("systemctl"), "{said}");
    fs::write(&file, toml.replace("[[sites]]", "nonsense = 1\n[[sites]]")).expect("written");
    let output = old.import(&["--prove", "--config", name]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// Fixtures: nginx's lines with the files of the site, by their names.
fn fixtures(folder: &str) -> Vec<(String, String)> {
    let folder = project_root().join("tests/fixtures").join(folder);
    let mut found: Vec<(String, String)> = fs::read_dir(&folder)
        .expect("there are fixtures")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("it is text");
            (name.to_owned(), fs::read_to_string(&path).expect("it can be read"))
        })
        .collect();
    found.sort();
    found
}

/// What a script of a guide says.
const SCRIPT: &str = "<?php header('X-Script: ' . $_SERVER['SCRIPT_NAME']); \
    echo $_SERVER['SCRIPT_NAME'], ' ', $_SERVER['REQUEST_URI'], ' ', $_SERVER['QUERY_STRING'], \
    ' ', ($_SERVER['PATH_INFO'] ?? '') ?: '-', ' ', $_SERVER['REMOTE_USER'] ?? '-';";

fn write_files(root: &Path, conf: &str) {
    let files = conf.lines().find_map(|line| line.strip_prefix("# files: ")).expect("files");
    for name in files.split(' ') {
        let (inner, file) = name.rsplit_once('/').unwrap_or(("", name));
        let content = if file.ends_with(".php") { SCRIPT } else { "a file" };
        write_file(&root.join(inner), file, content.as_bytes());
    }
}

#[test]
fn the_configurations_of_fifteen_guides_are_proven() {
    let folder = public_folder();
    let mut lines = format!(
        "fastcgi_cache_path {}/cache keys_zone=WORDPRESS:1m;\n\
         fastcgi_cache_key \"$scheme$request_method$host$request_uri\";\n",
        folder.path().display()
    );
    let guides = fixtures("nginx-guides");
    assert_eq!(guides.len(), 15);
    for (name, conf) in &guides {
        write_files(&folder.path().join("root").join(name), conf);
        lines += &with_root(conf, &format!("ROOT/{name}"));
    }
    let case = Case { http: &lines, server: "server_name other.example; return 404;", files: &[] };
    let old = OldServer::start_in(folder, &case);
    let proven = Proven::of(&old, &["--limit", "4000"]);
    proven.expect_all_explained(1000);
    proven.expect_nothing_left(&old);
}

#[test]
fn the_snippets_of_nginx_in_packages_are_proven() {
    let folder = public_folder();
    let mut lines = String::new();
    let packages = fixtures("nginx-packages");
    assert_eq!(packages.len(), 2);
    for (name, conf) in &packages {
        write_files(&folder.path().join("root").join(name), conf);
        let conf = with_root(conf, &format!("ROOT/{name}"));
        lines += &format!(
            "server {{ listen LISTEN; server_name {name}.example.com; root ROOT; {conf} }}\n"
        );
    }
    let case = Case { http: &lines, server: "server_name other.example; return 404;", files: &[] };
    let old = OldServer::start_in(folder, &case);
    let proven = Proven::of(&old, &["--limit", "1000"]);
    proven.expect_all_explained(100);
    proven.expect_nothing_left(&old);
}
