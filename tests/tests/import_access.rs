//! `maitred import`: the imported configuration never shows what nginx does not.

use maitred_tests::http::Request;
use maitred_tests::imported::{Both, Case};
use maitred_tests::server::{public_folder, write_file};

/// Locations, and what they say about access.
const LOCATIONS: [&str; 14] = [
    "= /a/f.txt",
    "= /f.php",
    "/a/",
    "/a",
    "/a/b/",
    "^~ /a/b/",
    "^~ /b",
    "/b/",
    "~ \\.sql$",
    "~* ^/a/.*\\.TXT$",
    "~ ^/(a|b)/",
    "~ /c/",
    "/",
    "~* /b/.*\\.php$",
];
const ACCESS: [&str; 15] = [
    "deny all;",
    "allow 127.0.0.1; deny all;",
    "allow 192.0.2.1; deny all;",
    "deny 127.0.0.1; allow all;",
    "deny 192.0.2.0/24; allow 127.0.0.0/8; deny all;",
    "allow all;",
    "auth_basic x; auth_basic_user_file HERE/users;",
    "auth_basic off;",
    "include SHARED/lan.conf;",
    "include SHARED/far.conf;",
    "allow 127.0.0.1; deny all; auth_basic x; auth_basic_user_file HERE/users;",
    "return 403;",
    "return 404;",
    "internal;",
    "",
];

/// Locations with look-around among others, and what they lead to.
const PLACES: [&str; 14] = [
    "/",
    "/a/",
    "^~ /a/b/",
    "/b/",
    "= /a/f.txt",
    "= /f.sql",
    "= /b/",
    "~ ^/(?!b)",
    "~ ^/a/(?!b/c|b/f)",
    "~ /c/",
    "~ ^/(a|b)/f",
    "~ \\.sql$",
    "~ ^/b/.*/$",
    "~ /\\.(?!well-known)",
];
const LEADING: [&str; 31] = [
    "rewrite ^ /none.html last;",
    "rewrite ^(.*)$ /none.html last;",
    "rewrite ^/a/(?!f) /none.html last;",
    "rewrite ^/(?!b|none) /none.html redirect;",
    "if ($uri ~ sql$) { rewrite ^ /none.html last; }",
    "if ($request_method = GET) { return 302 /none.html; }",
    "rewrite ^/a/(.*)$ /b/$1 last;",
    "rewrite ^/(?!b/)(.*)$ /b/$1 last;",
    "rewrite ^/(?!b/)(.*)$ /b/$1 break;",
    "rewrite ^(.*)$ /$arg_none/b$1 break;",
    "if ($uri ~ ^/a/) { rewrite ^(.*)$ /b$1 break; }",
    "if ($uri ~ ^/(a|b)/(.*)$) { rewrite ^ /$2 break; }",
    "try_files /b$uri =404;",
    "try_files $uri.html /b/f.txt =404;",
    "try_files $request_filename =404;",
    "try_files /$uri /none.html =404;",
    "try_files /none.html =404;",
    "try_files $uri =404;",
    "try_files $uri $uri/ =404;",
    "autoindex on;",
    "autoindex on; try_files $uri =404;",
    "autoindex off;",
    "proxy_pass http://LISTEN; proxy_set_header Host up.example;",
    "proxy_pass http://LISTEN; proxy_set_header Host up.example; auth_basic x; \
     auth_basic_user_file HERE/users;",
    "deny all;",
    "return 404;",
    "expires 1d;",
    "root ROOT/o;",
    "alias ROOT/b/;",
    "alias ROOT/a;",
    "",
];

/// Scripts, which a location in a folder runs.
const PHP: &str = "{ include fastcgi_params; fastcgi_pass unix:FPM; \
                   fastcgi_param SCRIPT_FILENAME $request_filename; }";

/// A server whose paths lead to random places.
fn leading_server(random: &mut fastrand::Rng, index: usize) -> String {
    let mut lines = format!("server {{ listen LISTEN; server_name s{index}.example; root ROOT;\n");
    if random.u8(..4) == 0 {
        lines += random.choice(&LEADING[2..22]).expect("there are some");
    }
    let mut used: Vec<&str> = Vec::new();
    for _ in 0..random.usize(1..4) {
        let place = random.choice(PLACES).expect("there are some");
        if used.contains(&place) {
            continue;
        }
        used.push(place);
        let leading = random.choice(LEADING).expect("there are some");
        let inner = match random.u8(..4) {
            0 if place == "/a/" => "location ~ /b/ { autoindex off; }".to_owned(),
            1 if place == "/b/" => "location ~ ^/b/(?!f) { deny all; }".to_owned(),
            2 if place == "/a/" => format!("location ~ ^/a/f\\.php {PHP}"),
            2 if place == "/b/" => format!("location ~ \\.php$ {PHP}"),
            _ => String::new(),
        };
        lines += &format!("\nlocation {place} {{ {leading} {inner} }}");
    }
    if random.u8(..3) == 0 {
        lines += &format!("\nlocation ~ \\.php$ {PHP}");
    }
    lines + "\n}\n"
}

/// The lines of a configuration that the report names as those that decide about access.
fn named_lines(report: &str) -> Vec<usize> {
    let (_, named) = report.split_once("decides who may see what (").unwrap_or_default();
    let lines = named.lines().filter_map(|line| line.split_once("nginx.conf:"));
    lines.filter_map(|(_, rest)| rest.split(':').next()?.parse().ok()).collect()
}

/// The body of what a server is seen to send.
fn body(seen: &str) -> &str {
    seen.rsplit(" | ").next().and_then(|last| last.split_once(' ')).map_or("", |(_, body)| body)
}

/// Whether a body is that of a file that nginx does not send by its name.
fn sends_other(both: &Both, host: &str, sent: &str) -> bool {
    sent.strip_prefix("the file ").is_some_and(|file| {
        let request = Request::new("GET", &format!("/{file}")).header("Host", host);
        body(&both.seen(&request)[0]) != sent
    })
}

/// A server with random rules.
fn random_server(random: &mut fastrand::Rng, index: usize) -> String {
    let mut lines = format!("server {{ listen LISTEN; server_name s{index}.example; root ROOT;\n");
    if random.u8(..3) == 0 {
        lines += random.choice(&ACCESS[..10]).expect("there are some");
    }
    let mut used: Vec<&str> = Vec::new();
    for _ in 0..random.usize(1..6) {
        let location = random.choice(LOCATIONS).expect("there are some");
        // nginx refuses one prefix twice, with and without `^~`.
        let plain = location.trim_start_matches("^~ ");
        if used.contains(&plain) {
            continue;
        }
        used.push(plain);
        let access = random.choice(ACCESS).expect("there are some");
        let inner = match random.u8(..4) {
            0 if plain == "/a/" => "location /a/b/c/ { allow all; auth_basic off; }",
            1 if plain == "/b/" => "location ~ \\.sql$ { deny all; }",
            _ => "",
        };
        lines += &format!("\nlocation {location} {{ {access} {inner} }}");
    }
    if random.bool() {
        lines += "\nlocation ~ \\.php$ { include fastcgi_params; fastcgi_pass unix:FPM; \
                  fastcgi_param SCRIPT_FILENAME $document_root$fastcgi_script_name; }";
    }
    lines + "\n}\n"
}

#[test]
fn a_random_configuration_never_shows_what_nginx_does_not() {
    const SERVERS: usize = 120;
    let shared = public_folder();
    write_file(shared.path(), "lan.conf", b"allow 127.0.0.0/8; deny all;\n");
    write_file(shared.path(), "far.conf", b"allow 192.0.2.0/24; deny all;\n");
    let mut random = fastrand::Rng::with_seed(29);
    let servers: Vec<String> =
        (0..SERVERS).map(|index| random_server(&mut random, index)).collect();
    let mut files = Vec::new();
    for folder in ["", "a/", "a/b/", "a/b/c/", "b/", "b/c/"] {
        files.extend(["f.txt", "f.sql", "f.php"].map(|name| format!("{folder}{name}")));
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let both = Both::start(&Case {
        http: &servers.concat().replace("SHARED", &shared.path().display().to_string()),
        server: "server_name other.example; root ROOT;",
        files: &files,
    });
    let (mut laxer, mut stricter, mut asked) = (Vec::new(), 0, 0);
    for (index, server) in servers.iter().enumerate() {
        let host = format!("s{index}.example");
        for file in &files {
            let request = Request::new("GET", &format!("/{file}")).header("Host", &host);
            let [theirs, ours] = both.seen(&request).map(|seen| seen[..3].to_owned());
            asked += 1;
            if ours == "200" && theirs != "200" {
                laxer.push(format!("/{file}: {theirs} by nginx, {ours} by maitred:\n{server}"));
            }
            // Without a location for PHP, nginx sends the source of scripts.
            stricter += usize::from(theirs == "200" && ours != "200" && !file.ends_with("php"));
        }
    }
    let report = both.report();
    assert!(laxer.is_empty(), "{} of {asked}\n{}\n{report}", laxer.len(), laxer.join("\n"));
    println!("{stricter} of {asked} are refused by maitred alone");
    assert!(stricter * 4 < asked, "{stricter} of {asked} are refused by maitred alone");
}

#[test]
fn what_a_random_configuration_shows_beyond_nginx_is_named() {
    const SERVERS: usize = 300;
    let mut random = fastrand::Rng::with_seed(7);
    let servers: Vec<String> =
        (0..SERVERS).map(|index| leading_server(&mut random, index)).collect();
    let mut files = Vec::new();
    let folders = ["", "a/", "a/b/", "a/b/c/", "b/", "b/c/", "o/a/", "o/a/b/", "o/b/"];
    for folder in folders {
        files.extend(["f.txt", "f.sql", "f.php", ".hidden"].map(|name| format!("{folder}{name}")));
    }
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let up = "server { listen LISTEN; server_name up.example; return 200 up; }\n";
    let both = Both::start(&Case {
        http: &(servers.concat() + up),
        server: "server_name other.example; root ROOT;",
        files: &files,
    });
    let report = both.report();
    let named = named_lines(&report);
    let conf = both.old_configuration();
    let (mut laxer, mut silent, mut unnamed) = (Vec::new(), 0, 0);
    for (index, server) in servers.iter().enumerate() {
        let name = format!("server_name s{index}.example;");
        let first = conf.lines().position(|line| line.contains(&name)).expect("it is there") + 1;
        let is_named = named.iter().any(|at| (first..first + server.lines().count()).contains(at));
        silent += usize::from(!is_named);
        for path in files.iter().chain(&folders) {
            let host = format!("s{index}.example");
            let request = Request::new("GET", &format!("/{path}")).header("Host", &host);
            let [theirs, ours] = both.seen(&request);
            let is_other = body(&ours) != body(&theirs) && sends_other(&both, &host, body(&ours));
            let is_laxer = ours.starts_with("200") && (is_other || !theirs.starts_with("200"));
            unnamed += usize::from(is_laxer && is_named);
            if is_laxer && !is_named {
                laxer.push(format!("/{path}: nginx {theirs}\nmaitred {ours}:\n{server}"));
            }
        }
    }
    println!("{unnamed} paths are laxer and named, and {silent} servers are not named");
    assert!(laxer.is_empty(), "{}:\n{}\n{report}", laxer.len(), laxer.join("\n"));
    assert!(silent * 8 > SERVERS, "{silent} of {SERVERS} servers are not named");
}
