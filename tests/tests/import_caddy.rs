//! `maitred import caddy`: Caddy with php-fpm, and maitred with its imported configuration, send
//! the same responses.

use maitred_tests::http::Request;
use maitred_tests::imported::Both;
use maitred_tests::rules::basic;
use maitred_tests::web::has_caddy;

/// A user `anna` with the password `secret`.
const HASH: &str = "$2a$05$ErRrWdCqTVa1V.oJnOoQs.50kbCyoECo5rNlfd9MBUttz.3AgHssq";

/// Sites as guides give them, reduced.
const SITES: &str = r#"
(headers) {
    header {
        X-Frame-Options SAMEORIGIN
        X-Content-Type-Options nosniff
        X-Static {args.0}
    }
}
SITE blog.example.com {
    root * HERE/blog
    encode zstd gzip
    import headers blog
    @forbidden path /xmlrpc.php *.sql /wp-content/uploads/*.php /my%20docs/*
    respond @forbidden 403
    @far {
        path /wp-admin/*
        not remote_ip 127.0.0.1
    }
    respond @far 403
    @near {
        path /far/*
        not remote_ip 192.0.2.0/24
    }
    abort @near
    redir /old /new permanent
    redir /b/* https://b.example.com{uri} 308
    @post path_regexp post ^/p/([0-9]+)$
    redir @post /?p={re.post.1}
    @api path_regexp api ^/api/([a-z]+)$
    rewrite @api /api.php?name={re.api.1}
    php_fastcgi FPM {
        env APP_ENV prod
    }
    file_server
}
SITE shop.example.com {
    root * HERE/shop/public
    request_body {
        max_size 10MB
    }
    php_fastcgi FPM {
        try_files {path} {path}/index.php index.php
        env APP_ENV prod
    }
    file_server {
        hide *.log secret
        index index.html
    }
    header /build/* Cache-Control "public, max-age=31536000"
}
SITE static.example.com {
    root * HERE/static
    handle_path /docs/* {
        root * HERE/manual
        file_server
    }
    handle /app/* {
        try_files {path} /app/index.html
        file_server
    }
    handle /files/* {
        file_server browse
    }
    handle {
        respond 404
    }
}
SITE staff.example.com {
    root * HERE/static
    basicauth /files/* {
        anna HASH
    }
    error /gone* 410
    file_server
}
SITE www.example.com {
    redir http://blog.example.com{uri} 301
}
"#;

const FILES: [(&str, &str); 23] = [
    ("blog/index.php", ""),
    ("blog/api.php", ""),
    ("blog/xmlrpc.php", ""),
    ("blog/dump.sql", "a file"),
    ("blog/style.css", "a file"),
    ("blog/my docs/a.txt", "a file"),
    ("blog/wp-admin/index.php", ""),
    ("blog/wp-admin/a.css", "a file"),
    ("blog/far/a.txt", "a file"),
    ("blog/wp-content/uploads/a.php", ""),
    ("blog/wp-content/uploads/a.png", "a file"),
    ("blog/plain/index.html", "a page"),
    ("shop/public/index.php", ""),
    ("shop/public/build/a.js", "a file"),
    ("shop/public/debug.log", "a file"),
    ("shop/public/secret/a.txt", "a file"),
    ("shop/public/other.php", ""),
    ("manual/a.txt", "a manual"),
    ("static/app/index.html", "an app"),
    ("static/app/a.js", "a file"),
    ("static/files/a.txt", "a file"),
    ("static/a.txt", "a file"),
    ("static/docs/a.txt", "another"),
];

/// Targets of the sites, and those beside.
const TARGETS: [&str; 50] = [
    "/",
    "/index.php",
    "/index.php/a?b=c",
    "/a/post/?preview=1",
    "/style.css",
    "/xmlrpc.php",
    "//xmlrpc.php",
    "/%78mlrpc.php",
    "/dump.sql",
    "/my%20docs/a.txt",
    "/x/y.sql",
    "/wp-admin/",
    "/wp-admin/a.css",
    "/wp-admin/missing",
    "/far/a.txt",
    "/far/",
    "/wp-content/uploads/a.php",
    "/wp-content/uploads/a.png",
    "/plain/",
    "/old",
    "/old?a=b",
    "/older",
    "/b/c?d=e",
    "/b",
    "/p/12",
    "/p/12x",
    "/p/12?a=b",
    "/api/x/y",
    "/api/x?a=b",
    "/other.php",
    "/other.php?a",
    "/build/a.js",
    "/debug.log",
    "/a/debug.log",
    "/secret/a.txt",
    "/secretx",
    "/missing.php",
    "/missing.txt",
    "/docs/a.txt",
    "/docs/missing",
    "/docs",
    "/app/a.js",
    "/app/",
    "/app/a/b",
    "/files/a.txt",
    "/files/missing",
    "/a.txt",
    "/gone",
    "/goner/a",
    "/x/../a.txt",
];

/// Statuses of folders without their slash: 308 with Caddy, 301 with maitred.
fn without_kind(seen: &str) -> String {
    seen.replacen("308 ", "301 ", 1)
}

/// What may differ: Caddy closes the connection of `abort`, sends the source of scripts where no
/// PHP is, and an empty 200 where nothing responds.
fn is_explained(host: &str, target: &str, seen: &[String; 2]) -> bool {
    let [theirs, ours] = seen;
    let refuses = ours.starts_with("40");
    let aborts = host == "blog.example.com" && target.starts_with("/far/");
    let has_no_php = ["static.example.com", "staff.example.com"].contains(&host);
    let is_empty = theirs.starts_with("200") && theirs.trim_end().ends_with('-');
    // A file that is hidden where it is missing, and a part of a site that is an application.
    let is_stricter = host == "shop.example.com" && target == "/a/debug.log"
        || host == "static.example.com" && target.starts_with("/app/");
    // Redirects have the path without `//`, `..` and encoded letters.
    let is_odd =
        host == "www.example.com" && ["//", "/..", "%"].iter().any(|part| target.contains(part));
    refuses && (aborts || has_no_php && target.contains(".php") || is_empty || is_stricter)
        || is_odd && ours.starts_with("301")
}

#[test]
fn sites_of_caddy_are_imported_and_do_the_same() {
    if !has_caddy() {
        return eprintln!("skipped: this release has no Caddy");
    }
    let sites = SITES.replace("HASH", HASH);
    let both = Both::caddy(&sites, &FILES);
    let mut differences = Vec::new();
    for host in ["blog", "shop", "static", "staff", "www"] {
        let host = format!("{host}.example.com");
        for target in TARGETS {
            let seen = both.seen(&Request::new("GET", target).header("Host", &host));
            let same = without_kind(&seen[0]) == without_kind(&seen[1]);
            if !same && !is_explained(&host, target, &seen) {
                let [theirs, ours] = seen;
                differences.push(format!("{host}{target}\n  theirs:  {theirs}\n  ours: {ours}"));
            }
        }
    }
    let toml = String::from_utf8_lossy(&both.imported.stdout).into_owned();
    assert!(differences.is_empty(), "{}\n{toml}\n{}", differences.join("\n"), both.report());
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
    let request = Request::new("GET", "/files/a.txt").header("Host", "staff.example.com");
    let request = request.header("Authorization", &basic("anna", "secret"));
    let [theirs, ours] = both.seen(&request);
    assert!(theirs.starts_with("200"), "{theirs}");
    assert_eq!(theirs, ours);
}

/// Directives, with `ROOT` in place of a document root.
const DIRECTIVES: [&str; 26] = [
    "respond /a/* 403",
    "respond /a/b/f.txt 404",
    "error *.sql 403",
    "abort /b*",
    "basicauth /a/* {\nanna HASH\n}",
    "basicauth {\nanna HASH\n}",
    "@m not path /b/* /a/f.txt\nrespond @m 403",
    "@n path *.txt\nrespond @n 404",
    "@o path_regexp ^/(a|b)/f\nerror @o 403",
    "@p {\npath /a/*\nnot remote_ip 192.0.2.0/24\n}\nrespond @p 403",
    "@q {\npath /b/*\nremote_ip 127.0.0.1\n}\nrespond @q 403",
    "@r not remote_ip private_ranges\nrespond @r 403",
    "handle /a/* {\nrespond /a/b/* 403\nfile_server\n}",
    "handle /b/* {\nabort\n}",
    "handle_path /b/* {\nroot * ROOT/a\nfile_server\n}",
    "handle_path /a/b/* {\nroot * ROOT/b\nrespond /f.txt 403\nfile_server\n}",
    "handle {\nrespond 404\n}",
    "handle {\nfile_server\n}",
    "route /a/* {\nrespond /a/f.txt 403\nhandle {\nfile_server\n}\n}",
    "route {\nhandle /b/c/* {\nfile_server\n}\nrespond /b/* 403\n}",
    "file_server {\nhide *.sql b\n}",
    "file_server /a/*",
    "@s not path /b/* /a/f.sql\nfile_server @s",
    "handle /a/* {\n@t not path /a/b/*\nfile_server @t\n}",
    "redir /a/f.txt /b/f.txt",
    "rewrite /b/f.txt /a/f.txt",
];

/// A site with random directives.
fn random_site(random: &mut fastrand::Rng, index: usize) -> String {
    let mut lines = format!("SITE s{index}.example {{\nroot * HERE/r\n");
    let mut used = Vec::new();
    for _ in 0..random.usize(1..5) {
        let at = random.usize(..DIRECTIVES.len());
        if !used.contains(&at) {
            used.push(at);
            lines += DIRECTIVES[at];
            lines.push('\n');
        }
    }
    if random.u8(..3) > 0 {
        lines += "file_server\n";
    }
    lines.replace("ROOT", "HERE/r").replace("HASH", HASH) + "}\n"
}

#[test]
fn a_random_site_never_shows_what_caddy_does_not() {
    const SITES: usize = 150;
    if !has_caddy() {
        return eprintln!("skipped: this release has no Caddy");
    }
    let mut random = fastrand::Rng::with_seed(29);
    let sites: Vec<String> = (0..SITES).map(|index| random_site(&mut random, index)).collect();
    let mut files = Vec::new();
    for folder in ["", "a/", "a/b/", "b/", "b/c/"] {
        files.extend(["f.txt", "f.sql", "g"].map(|name| format!("r/{folder}{name}")));
    }
    let files: Vec<(&str, String)> =
        files.iter().map(|name| (name.as_str(), format!("at {name}"))).collect();
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let both = Both::caddy(&sites.concat(), &files);
    let report = both.report();
    let (mut laxer, mut stricter, mut asked) = (Vec::new(), 0, 0);
    for (index, site) in sites.iter().enumerate() {
        let host = format!("s{index}.example");
        for (name, _) in &files {
            let target = name.strip_prefix('r').unwrap_or(name);
            let request = Request::new("GET", target).header("Host", &host);
            let [theirs, ours] = both.seen(&request);
            asked += 1;
            let shows = |seen: &str| seen.starts_with("200") && seen.contains("at r/");
            if shows(&ours) && ours != theirs {
                laxer.push(format!("{target}: {theirs} by Caddy, {ours} by maitred:\n{site}"));
            }
            stricter += usize::from(shows(&theirs) && !shows(&ours));
        }
    }
    println!("{stricter} of {asked} are refused by maitred alone; {} are laxer", laxer.len());
    assert!(laxer.is_empty(), "{} of {asked}\n{}\n{report}", laxer.len(), laxer.join("\n"));
    assert!(stricter * 4 < asked, "{stricter} of {asked} are refused by maitred alone");
}
