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
