//! `maitred import apache`: the imported configuration never shows what Apache refuses.

use std::fmt::Write;

use maitred_tests::http::Request;
use maitred_tests::imported::Both;

/// Sections that refuse, and rules of mod_rewrite for the document root or the virtual host.
const REFUSING: [&str; 22] = [
    r#"<DirectoryMatch "^HERE/[^/]+/private">"#,
    r#"<DirectoryMatch "^/.*/private/">"#,
    r#"<DirectoryMatch "/site/private">"#,
    r#"<DirectoryMatch "^HERE/site/[^/]*$">"#,
    r#"<DirectoryMatch "/site/[^/]*$">"#,
    r#"<DirectoryMatch "/[sx][^/]*$">"#,
    r#"<DirectoryMatch "/\.git|/vendor/">"#,
    r#"<Directory "HERE/site/[a-p]*/sub">"#,
    r#"<Directory "HERE/site/x[0-9]">"#,
    r#"<Location "/secret[0-9]">"#,
    r#"<LocationMatch "/\.env|/composer\.json">"#,
    r#"<LocationMatch "\.inc$|\.phps$">"#,
    r#"<LocationMatch "^/\.well-known/private">"#,
    r#"<Files "*.[Ii][Nn][Cc]">"#,
    r#"<FilesMatch "\.(engine|inc)$|^(Entries.*|composer\.(json|lock)|web\.config)$">"#,
    r#"<FilesMatch "^wp-config|~$">"#,
    r#"<FilesMatch "(^secret|\.bak)">"#,
    r"RewriteRule \.(sql|bak|inc|log)$ - [F]",
    r"RewriteRule (^|/)\.git|composer\.json$ - [F]",
    "RewriteCond %{REQUEST_URI} ^/private [OR]\n\
     RewriteCond %{REQUEST_URI} ^/x7\nRewriteRule ^ - [F]",
    "RewriteCond %{REQUEST_URI} ^/PRIVATE [NOCASE]\nRewriteRule ^ - [F]",
    r"RewriteRule \.bak$|^private/ - [F]",
];

/// Lines of a virtual host of which others decide whether or for which paths they refuse, with a
/// file that they refuse and one that they do not.
const DEPENDENT: [[&str; 3]; 13] = [
    [
        "RewriteEngine on\n<Directory HERE/site>\nRewriteRule ^private/ - [F]\n</Directory>",
        "private/a.txt",
        "vendor/private/a.txt",
    ],
    [
        "<Directory HERE/site>\nRewriteEngine on\n</Directory>\n\
         <Directory HERE/site/core>\nRewriteRule ^a - [F]\n</Directory>",
        "core/a.inc",
        "asecret",
    ],
    [
        "<Directory HERE/site/core>\nRewriteEngine on\nRewriteBase /\n\
         RewriteRule ^a - [F]\n</Directory>",
        "core/a.inc",
        "asecret",
    ],
    [
        "<Directory HERE/site>\n<Files secret7>\nRequire all denied\n</Files>\n</Directory>\n\
         <Files secret7>\nRequire all granted\n</Files>",
        "secret7",
        "asecret",
    ],
    [
        "<Files *.inc>\nRequire all denied\n</Files>\n<DirectoryMatch /vendor/>\n<Files *.inc>\n\
         Require all granted\n</Files>\n</DirectoryMatch>",
        "core/a.inc",
        "core/a.bak",
    ],
    [
        "<Files *.inc>\nRequire all denied\n</Files>\n<Directory HERE/site>\n<Files *.inc>\n\
         Require all granted\n</Files>\n</Directory>\nAlias /more HERE/more\n\
         <Directory HERE/more>\nRequire all granted\n</Directory>",
        "more/a.inc",
        "more/private/a.txt",
    ],
    [
        "<DirectoryMatch /core/>\n<Files a.*>\nRequire all denied\n</Files>\n</DirectoryMatch>",
        "core/a.inc",
        "private/a.txt",
    ],
    [
        "<DirectoryMatch /wp>\n<Files *.txt>\nRequire all denied\n</Files>\n</DirectoryMatch>",
        "wp-config.txt",
        "private/a.txt",
    ],
    [
        "Alias /more HERE/more\n<Directory HERE/more>\nRequire all denied\n</Directory>\n\
         <DirectoryMatch ^HERE/site/>\nRequire all granted\n</DirectoryMatch>",
        "more/a.inc",
        "core/a.inc",
    ],
    [
        "Alias /docs/old HERE/more\nAlias /docs HERE/site/core\n<Directory HERE/more>\n\
         Require all denied\n</Directory>\n<Directory HERE/site/core>\nRequire all granted\n\
         </Directory>",
        "docs/old/a.inc",
        "docs/a.inc",
    ],
    [
        "<IfVersion ~ ^2\\.4>\n<Location /private>\nRequire all denied\n</Location>\n</IfVersion>",
        "private/a.txt",
        "asecret",
    ],
    [
        "<IfModule prefork.c>\n<Location /private>\nRequire all denied\n</Location>\n</IfModule>",
        "private/a.txt",
        "asecret",
    ],
    [
        "<Location /private>\nRequire all denied\n</Location>\n<IfModule mod_rewrite>\n\
         <Location /private>\nRequire all granted\n</Location>\n</IfModule>",
        "private/a.txt",
        "asecret",
    ],
];

/// What Apache refuses by a section and `.htaccess` files together.
struct FilesCase {
    /// Lines of the virtual host, whose document root is `ROOT`, in the folder `TOP`.
    lines: &'static str,
    /// `.htaccess` files by their folders in `TOP`.
    files: &'static [[&'static str; 2]],
    /// The URL that is refused.
    refused: &'static str,
    /// The line that the import names, unless it is refused here as well.
    named: Option<&'static str>,
}

const RULE: &str = "RewriteEngine on\nRewriteRule \\.inc$ - [F]";

const DENIED: &str = "Require all denied";

const BY_FILES: [FilesCase; 7] = [
    FilesCase {
        lines: "<Directory ROOT>\nRewriteOptions Inherit\n</Directory>",
        files: &[["www", RULE], ["www/sub", "RewriteEngine on"]],
        refused: "/sub/a.inc",
        named: Some("RewriteOptions Inherit"),
    },
    FilesCase {
        lines: "<Directory ROOT>\nRewriteOptions InheritDown\n</Directory>",
        files: &[["www", RULE], ["www/sub", "RewriteEngine on"]],
        refused: "/sub/a.inc",
        named: Some("RewriteOptions InheritDown"),
    },
    FilesCase {
        lines: "<Directory \"HERE/*\">\nAllowOverride All\n</Directory>",
        files: &[[".", RULE]],
        refused: "/a.inc",
        named: Some("AllowOverride All"),
    },
    FilesCase {
        lines: "Alias /x TOP/more/x\n<Directory TOP/more>\nAllowOverride All\n\
                Require all granted\n</Directory>",
        files: &[["more", DENIED]],
        refused: "/x/a.inc",
        named: Some("AllowOverride All"),
    },
    FilesCase {
        lines: "<Directory ROOT/sub>\nOptions -Indexes\n</Directory>",
        files: &[["www", "Options +Indexes"]],
        refused: "/sub/",
        named: Some("Options -Indexes"),
    },
    FilesCase {
        lines: "<Directory ROOT/sub>\nOptions None\n</Directory>",
        files: &[["www", "RewriteEngine on"]],
        refused: "/sub/a.inc",
        named: Some("Options None"),
    },
    FilesCase {
        lines: "<DirectoryMatch \"^ROOT/\">\nAllowOverride None\n</DirectoryMatch>",
        files: &[["www/sub", DENIED]],
        refused: "/sub/a.inc",
        named: None,
    },
];

const FILES: [&str; 17] = [
    "index.html",
    "private/a.txt",
    "private/sub/a.txt",
    "vendor/a.txt",
    "vendor/private/a.txt",
    "x7/a.txt",
    "secret7",
    "asecret",
    "composer.json",
    "composer.lock",
    "core/web.config",
    "core/a.inc",
    "core/a.InC",
    "core/a.bak",
    "wp-config.txt",
    "core/a.html~",
    ".well-known/private/a.txt",
];

fn virtual_hosts() -> String {
    let mut hosts = String::new();
    for (index, refusing) in REFUSING.iter().enumerate() {
        let (inner, after) = match refusing.strip_prefix('<') {
            Some(section) => {
                let name = section.split(' ').next().unwrap_or_default();
                (String::new(), format!("{refusing}\nRequire all denied\n</{name}>"))
            }
            None => (format!("RewriteEngine on\n{refusing}"), String::new()),
        };
        let _ = write!(
            hosts,
            "HOST s{index}.example.com\nDocumentRoot HERE/site\n<Directory HERE/site>\n\
             AllowOverride None\nRequire all granted\n{inner}\n</Directory>\n{after}\n\
             </VirtualHost>\n"
        );
    }
    hosts
}

#[test]
fn lines_that_refuse_by_other_lines_refuse_the_same_paths() {
    let files = FILES.map(|name| (format!("site/{name}"), "a file"));
    let mut files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    files.extend(["more/a.inc", "more/private/a.txt"].map(|name| (name, "a file")));
    let hosts = DEPENDENT.iter().enumerate().map(|(index, [lines, ..])| {
        format!(
            "HOST s{index}.example.com\nDocumentRoot HERE/site\n<Directory HERE/site>\n\
             AllowOverride None\nRequire all granted\n</Directory>\n{lines}\n</VirtualHost>\n"
        )
    });
    let both = Both::apache(&hosts.collect::<String>(), &files);
    for (index, [lines, refused, open]) in DEPENDENT.iter().enumerate() {
        for (file, status) in [(refused, "403"), (open, "200")] {
            let host = format!("s{index}.example.com");
            let request = Request::new("GET", &format!("/{file}")).header("Host", &host);
            let seen = both.seen(&request).map(|seen| seen[..3].to_owned());
            assert_eq!(seen, [status, status], "{lines}\n{file}\n{}", both.report());
        }
    }
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
}

#[test]
fn what_apache_refuses_by_htaccess_files_and_sections_is_refused_or_named() {
    let (mut hosts, mut files) = (String::new(), Vec::new());
    for (index, case) in BY_FILES.iter().enumerate() {
        let lines = case.lines.replace("ROOT", "TOP/www").replace("TOP", &format!("HERE/f{index}"));
        let _ = write!(
            hosts,
            "HOST s{index}.example.com\nDocumentRoot HERE/f{index}/www\n\
             <Directory HERE/f{index}/www>\nAllowOverride All\nRequire all granted\n\
             </Directory>\n{lines}\n</VirtualHost>\n"
        );
        for name in ["www/a.inc", "www/sub/a.inc", "more/x/a.inc"] {
            files.push((format!("f{index}/{name}"), "a file"));
        }
        for [folder, text] in case.files {
            let folder = folder.trim_end_matches('.');
            files.push((format!("f{index}/{folder}/.htaccess"), text));
        }
    }
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let both = Both::apache(&hosts, &files);
    for (index, case) in BY_FILES.iter().enumerate() {
        let host = format!("s{index}.example.com");
        let request = Request::new("GET", case.refused).header("Host", &host);
        let [theirs, ours] = both.seen(&request).map(|seen| seen[..3].to_owned());
        let (lines, report) = (case.lines, both.report());
        assert_eq!(theirs, "403", "{lines}\n{report}");
        match case.named {
            None => assert_eq!(ours, "403", "{lines}\n{report}"),
            Some(named) => {
                let (_, missing) = report.split_once("who may see what").expect("a section");
                assert!(missing.contains(&format!("{named}:")), "{lines}\n{report}");
            }
        }
    }
    assert_eq!(both.imported.status.code(), Some(3), "{}", both.report());
}

#[test]
fn a_test_of_a_file_in_a_virtual_host_finds_no_file_of_the_document_root() {
    let rules = "RewriteEngine on\nRewriteCond %{REQUEST_FILENAME} !-f\n\
                 RewriteCond %{SCRIPT_FILENAME} !-d\nRewriteRule ^ /index.php [L]";
    let folder = "<Directory HERE/site>\nAllowOverride None\nRequire all granted\n";
    let hosts = [("host", "</Directory>", ""), ("folder", "", "</Directory>")].map(
        |(name, before, after)| {
            format!(
                "HOST {name}.example.com\nDocumentRoot HERE/site\n{folder}{before}\n{rules}\n\
                 {after}\n<FilesMatch \"\\.php$\">\nSetHandler \"proxy:unix:FPM|fcgi://x\"\n\
                 </FilesMatch>\n</VirtualHost>\n"
            )
        },
    );
    let files = [("site/index.php", "<?= __FILE__;"), ("site/config/db.yml", "a secret")];
    let both = Both::apache(&hosts.concat(), &files);
    for (name, is_file) in [("host", false), ("folder", true)] {
        let host = format!("{name}.example.com");
        both.expect_same(&host, &["/config/db.yml", "/none", "/index.php"]);
        let request = Request::new("GET", "/config/db.yml").header("Host", &host);
        let [theirs, _] = both.seen(&request);
        assert_eq!(theirs.contains("a secret"), is_file, "{name}: {theirs}");
    }
    assert_eq!(both.imported.status.code(), Some(0), "{}", both.report());
}

#[test]
fn a_section_or_a_rule_that_refuses_in_apache_refuses_the_same_paths() {
    let files = FILES.map(|name| (format!("site/{name}"), "a file"));
    let files: Vec<(&str, &str)> =
        files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
    let both = Both::apache(&virtual_hosts(), &files);
    let mut differences = Vec::new();
    for (index, refusing) in REFUSING.iter().enumerate() {
        let mut refused = 0;
        for file in FILES {
            let host = format!("s{index}.example.com");
            let request = Request::new("GET", &format!("/{file}")).header("Host", &host);
            let [theirs, ours] = both.seen(&request).map(|seen| seen[..3].to_owned());
            refused += usize::from(theirs == "403");
            if theirs != ours {
                differences.push(format!("{refusing}: /{file}: {theirs} by Apache, {ours} here"));
            }
        }
        assert!(refused > 0, "{refusing} refuses no file in Apache");
    }
    let report = both.report();
    assert!(differences.is_empty(), "{}\n{report}", differences.join("\n"));
    assert_eq!(both.imported.status.code(), Some(0), "{report}");
}
