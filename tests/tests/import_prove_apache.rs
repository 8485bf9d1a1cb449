//! `maitred import apache --prove`: Apache with mod_php or php-fpm and its sites, and maitred
//! beside it.

use std::fs;

use maitred_tests::http::{self, Request};
use maitred_tests::imported::{OldServer, Proven, with_root};
use maitred_tests::outside::text;
use maitred_tests::tls::Authority;
use maitred_tests::{Target, ports, project_root};

/// A shop with mod_php, a folder that is closed, and the manual elsewhere.
const SHOP: &str = r#"
HOST shop.example.com
    ServerAlias www.shop.example.com
    DocumentRoot HERE/shop
    CustomLog HERE/access.log "%h %l %u %t \"%r\" %>s %b"
    Alias /manual HERE/manual
    <Directory HERE/shop>
        Options -Indexes
        AllowOverride None
        Require all granted
    </Directory>
    <Directory HERE/shop/private>
        Require all denied
    </Directory>
    <Directory HERE/manual>
        Require all granted
    </Directory>
    Redirect permanent /old.php /goods.php
</VirtualHost>
HOST api.example.com
    DocumentRoot HERE/api
    <Directory HERE/api>
        Require all granted
        FallbackResource /index.php
    </Directory>
</VirtualHost>
<FilesMatch ".+\.ph(?:ar|p|tml)$">
    SetHandler application/x-httpd-php
</FilesMatch>
"#;

/// The first page: what varies by itself, links, and a link that does something.
const FIRST: &str = "<?php session_start(); echo '<link rel=stylesheet href=/style.css>',
    '<a href=\"goods.php?id=1\">1</a><a href=/logout.php>out</a><a href=/manual/>manual</a>',
    bin2hex(random_bytes(8)), ' ', microtime(true), ' ', getmypid();";

const FILES: [(&str, &str); 9] = [
    ("shop/index.php", FIRST),
    ("shop/goods.php", "<?php echo 'Goods ', (int) ($_GET['id'] ?? 0);"),
    ("shop/logged.php", "<?php echo 'only the log names it';"),
    ("shop/logout.php", "<?php file_put_contents(__DIR__ . '/out', 'x');"),
    ("shop/style.css", "body { color: black }"),
    ("shop/private/a.txt", "a secret"),
    ("manual/index.html", "<p>The manual</p>"),
    ("manual/a.txt", "a page of the manual"),
    ("api/index.php", ""),
];

#[test]
fn the_import_of_a_running_apache_is_proven() {
    let old = OldServer::apache(SHOP, &FILES);
    let logged = Request::new("GET", "/logged.php?a=b").header("Host", "shop.example.com");
    http::ask(old.address(), &logged);
    let before = old.configuration().map(|file| fs::read(file).expect("it can be read"));
    let proven = Proven::of(&old, &[]);
    let Proven { code, json, errors } = &proven;
    let found = proven.unexplained();
    assert!(found.is_empty() && *code == Some(0), "{found:#?}\n{errors}");
    assert!(json["same"].as_u64() > Some(100), "{json:#}");
    assert!(json["varying"].as_u64() > Some(0), "{json:#}");
    let log = fs::read_to_string(old.folder().join("www/access.log")).expect("there is a log");
    for target in ["/", "/goods.php?id=1", "/logged.php?a=b", "/manual/a.txt", "/old.php"] {
        assert!(log.matches(&format!("GET {target} ")).count() > 1, "{target}\n{log}");
    }
    assert!(json["skipped"].to_string().contains("/logout.php"), "{json:#}");
    assert!(!old.folder().join("www/shop/out").exists());
    let after = old.configuration().map(|file| fs::read(file).expect("it can be read"));
    assert_eq!(before, after);
    assert_eq!(http::ask(old.address(), &logged).status, 200, "Apache still serves");
    proven.expect_nothing_left(&old);
}

#[test]
fn a_planted_difference_is_found_and_named_with_the_rules_of_apache_and_of_maitred() {
    let old = OldServer::apache(SHOP, &FILES);
    let file = old.folder().join("maitred.toml");
    let name = file.to_str().expect("it is text");
    let output = old.import(&["--output", name]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let toml = fs::read_to_string(&file).expect("it is written");
    let deny = toml.lines().find(|line| line.contains("/private")).expect("a rule");
    let planted = toml.replace(&format!("{deny}\n"), "  \"/style.css\",  # planted\n");
    fs::write(&file, &planted).expect("it can be written");
    let proven = Proven::of(&old, &["--config", name, "--also", "/private/a.txt"]);
    let json = &proven.json;
    assert_eq!(proven.code, Some(4), "{json:#}\n{}", proven.errors);
    let found = proven.unexplained();
    let first = found.first().expect("a difference");
    assert_eq!(first["opens"], true, "{json:#}");
    assert!(first["addresses"].to_string().contains("/private/a.txt"), "{first:#}");
    let line = |text: &str, part: &str| {
        text.lines().position(|line| line.contains(part)).map_or(0, |at| at + 1)
    };
    let sites = old.folder().join("apache/sites.conf");
    let conf = fs::read_to_string(&sites).expect("it can be read");
    let at = line(&conf, "shop/private>");
    let rule = first["old"]["rule"].as_str().unwrap_or_default();
    assert!(rule.starts_with(&format!("{}:{at}: <Directory ", sites.display())), "{first:#}");
    assert!(rule.ends_with("/shop/private> Require all denied"), "{first:#}");
    let denied = found.iter().find(|one| one["new"]["status"] == 403).expect("the other one");
    let place = format!("{name}:{}: deny /style.css (from planted)", line(&planted, "planted"));
    let rule = denied["new"]["rule"].as_str().unwrap_or_default();
    assert!(rule.starts_with(&place), "{denied:#}");
    let rule = denied["old"]["rule"].as_str().unwrap_or_default();
    assert!(rule.contains("/shop> Require all granted"), "{denied:#}");
    proven.expect_nothing_left(&old);
}

#[test]
fn the_text_names_apache_and_prints_the_switch_over_and_the_way_back() {
    let old = OldServer::apache(SHOP, &FILES);
    let output = old.import(&["--prove", "--rate", "10000", "--limit", "40"]);
    let said = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{said}\n{}", text(&output.stderr));
    for part in [
        "Nothing differs that is not explained above.",
        "maitred import apache --output maitred.toml",
        "systemctl disable --now apache2 && systemctl enable --now maitred",
        "systemctl disable --now maitred && systemctl enable --now apache2",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

/// The snippets of Debian's packages, reduced: their names, and their lines.
fn packages() -> Vec<(String, String)> {
    let folder = project_root().join("tests/fixtures/apache-packages");
    let entries = fs::read_dir(&folder).expect("there are fixtures");
    let mut found: Vec<(String, String)> = entries
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let name = path.file_stem().and_then(|name| name.to_str()).expect("it is text");
            (name.to_owned(), fs::read_to_string(&path).expect("it can be read"))
        })
        .collect();
    found.sort();
    found
}

/// The files of a snippet, below the folder of its package. A line may follow their names, with `~`
/// in place of spaces.
fn files_of(name: &str, conf: &str) -> Vec<(String, String)> {
    let files = conf.lines().find_map(|line| line.strip_prefix("# files: ")).expect("files");
    let file = |text: &str| match text.split_once('=') {
        Some((file, line)) => (format!("share/{name}/{file}"), line.replace('~', " ") + "\n"),
        None if text.ends_with(".php") => (format!("share/{name}/{text}"), String::new()),
        None => (format!("share/{name}/{text}"), "a file".to_owned()),
    };
    files.split(' ').map(file).collect()
}

#[test]
fn the_snippets_of_twelve_packages_are_proven() {
    let packages = packages();
    assert_eq!(packages.len(), 12);
    let mut files = vec![("html/index.html".to_owned(), "<p>It works</p>".to_owned())];
    let mut hosts = String::from(
        "<Directory HERE/html>\nOptions Indexes FollowSymLinks\nRequire all granted\n</Directory>\n\
         <Directory HERE/share>\nAllowOverride None\nRequire all granted\n</Directory>\n\
         <FilesMatch \".+\\.ph(?:ar|p|tml)$\">\nSetHandler application/x-httpd-php\n\
         </FilesMatch>\n",
    );
    for (name, conf) in &packages {
        files.extend(files_of(name, conf));
        let lines = with_root(conf, &format!("HERE/share/{name}"));
        hosts +=
            &format!("HOST {name}.example.com\nDocumentRoot HERE/html\n{lines}\n</VirtualHost>\n");
    }
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, content)| (name.as_str(), content.as_str())).collect();
    let old = OldServer::apache(&hosts, &files);
    let proven = Proven::of(&old, &["--limit", "4000"]);
    proven.expect_all_explained(500);
    proven.expect_nothing_left(&old);
}

#[test]
fn a_site_that_redirects_to_https_is_compared_over_both() {
    let authority = Authority::default();
    let certificate = authority.issue("tls", &["tls.example.com"]);
    let address = ports::free_address();
    let hosts = format!(
        "Listen {address}\n\
         HOST tls.example.com\nRedirect permanent / https://tls.example.com:{port}/\n\
         </VirtualHost>\n\
         <VirtualHost *:{port}>\nServerName tls.example.com\nDocumentRoot HERE/api\n\
         SSLEngine on\nSSLCertificateFile {cert}\nSSLCertificateKeyFile {key}\n\
         <Directory HERE/api>\nRequire all granted\n</Directory>\n\
         <FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:FPM|fcgi://localhost\"\n</FilesMatch>\n\
         </VirtualHost>\n",
        port = address.port(),
        cert = certificate.cert.display(),
        key = certificate.key.display(),
    );
    let old = OldServer::apache(&hosts, &FILES);
    let proven = Proven::of(&old, &["--limit", "300"]);
    let Proven { json, errors, .. } = &proven;
    let found = proven.unexplained();
    assert!(found.is_empty(), "{found:#?}\n{errors}");
    assert!(
        json["same"].as_u64() > Some(50) && json["troubles"] == serde_json::json!([]),
        "{json:#}"
    );
    proven.expect_nothing_left(&old);
}
