//! Sections of an imported virtual host decide in the order of Apache's merge, and each for its own
//! paths alone.

use super::access_tests::{expect_denied, of_host, section, users_of};

const CLOSED_FILES: &str = "<FilesMatch \"\\.(sql|bak)$\">\nRequire all denied\n</FilesMatch>\n";

const OPEN_FILES: &str = "<FilesMatch \"\\.(sql|bak)$\">\nRequire all granted\n</FilesMatch>\n";

#[test]
fn files_that_a_section_lets_in_are_those_of_its_folders() {
    for name in [
        "DirectoryMatch \"/downloads/\"",
        "DirectoryMatch \"(?i)^/srv/site1/downloads/\"",
        "DirectoryMatch \"(?i)/downloads/\"",
        "LocationMatch \"/downloads/\"",
    ] {
        let end = name.split(' ').next().unwrap_or_default();
        let lines = format!("{CLOSED_FILES}<{name}>\n{OPEN_FILES}</{end}>");
        expect_denied(&lines, &["/dump.sql", "/a/b.bak"], &["/a.txt"]);
        let nocase = lines.replacen("\"\\.(sql", "\"(?i)\\.(sql", 2);
        expect_denied(&nocase, &["/dump.sql", "/dump.SQL"], &["/a.txt"]);
    }
    let root = format!("{CLOSED_FILES}<Directory /srv/site1>\n{OPEN_FILES}</Directory>\n");
    expect_denied(&root, &[], &["/x.sql"]);
    expect_denied(&format!("{root}Alias /backup /srv/backup"), &["/backup/x.sql"], &["/x.txt"]);
}

#[test]
fn files_that_a_section_refuses_are_those_of_its_folders() {
    for (name, denied, open) in [
        ("DirectoryMatch \"/private/\"", "/a/private/b/x.sql", "/x.sql"),
        ("DirectoryMatch \"/private/\"", "/private/x.sql", "/private/x.txt"),
        ("DirectoryMatch \"/private/.*\"", "/private/x.sql", "/x.sql"),
        ("DirectoryMatch \"^/srv/site1/private/.*\"", "/private/x.sql", "/x.sql"),
        ("DirectoryMatch \"^/srv/site1/(a/|b)\"", "/a/x.sql", "/c/x.sql"),
        // As in Apache, whose expression is one for the whole path of a file.
        ("DirectoryMatch \"^/srv/site1/(a/|b)\"", "/bx.sql", "/x.sql"),
        ("DirectoryMatch \"(?i)/PRIVATE/\"", "/private/x.sql", "/private/x.SQL"),
        ("LocationMatch \"/private\"", "/a/private/x.sql", "/x.sql"),
    ] {
        let end = name.split(' ').next().unwrap_or_default();
        expect_denied(&format!("<{name}>\n{CLOSED_FILES}</{end}>"), &[denied], &[open]);
    }
    let whole = "<DirectoryMatch \"/b\">\n<Files x.sql>\nRequire all denied\n</Files>\n\
                 </DirectoryMatch>";
    expect_denied(whole, &["/b/x.sql", "/b/c/x.sql"], &["/bx.sql", "/x.sql"]);
}

#[test]
fn scripts_that_a_section_passes_to_php_are_those_of_its_folders() {
    let handler = "<FilesMatch \\.php$>\nSetHandler proxy:unix:/run/a.sock|fcgi://localhost\n\
                   </FilesMatch>";
    let lines = format!("<DirectoryMatch \"^/srv/site1/b\">\n{handler}\n</DirectoryMatch>");
    let all = handler.replace("/a.sock", "/www.sock");
    let imported = of_host(&format!("{all}\n{lines}"));
    let findings = imported.report.findings();
    let is_of_index = |why: &str| why.starts_with("requests for the folders themselves");
    assert!(findings.iter().any(|one| is_of_index(&one.why)), "{}", imported.report);
}

#[test]
fn expressions_for_folders_follow_the_folders_of_aliases() {
    let users = |file: &str| format!("AuthType Basic\nAuthUserFile {file}\nRequire valid-user");
    let docs = format!("<Directory /srv/docs>\n{}\n</Directory>", users("/etc/passwd"));
    let private =
        format!("<DirectoryMatch \"/private/\">\n{}\n</DirectoryMatch>", users("/etc/group"));
    let root = "<DirectoryMatch \"^/srv/site1/\">\nRequire all granted\n</DirectoryMatch>";
    for lines in [format!("{docs}\n{private}"), format!("{root}\n{private}\n{docs}")] {
        let imported = of_host(&format!("Alias /docs /srv/docs\n{lines}"));
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        for (path, file) in [
            ("/docs/private/a", Some("/etc/group")),
            ("/private/a", Some("/etc/group")),
            ("/docs/a", Some("/etc/passwd")),
            ("/a", None),
        ] {
            let found = users_of(&imported, path);
            assert_eq!(found.as_deref(), file, "{path}\n{lines}\n{}", imported.toml);
        }
    }
    // Of the document root alone.
    let closed = "Alias /docs /srv/docs\n<Directory /srv/docs>\nRequire all denied\n</Directory>";
    expect_denied(&format!("{closed}\n{root}"), &["/docs/a"], &["/a"]);
}

#[test]
fn a_folder_decides_for_no_folder_elsewhere() {
    let closed = |name: &str| section(name) + "\n";
    let open = |name: &str| closed(name).replace("denied", "granted");
    let aliases = "Alias /docs/old /srv/old\nAlias /docs /srv/a/b/docs\n";
    let inner = format!("{}{}", closed("Directory /srv/old"), open("Directory /srv/a/b/docs"));
    expect_denied(&format!("{aliases}{inner}"), &["/docs/old/a"], &["/docs/a"]);
    let private = closed("DirectoryMatch \"/private/\"");
    let root = format!("{private}{}", open("DirectoryMatch \"^/srv/site1/\""));
    expect_denied(&root, &[], &["/private/a"]);
    expect_denied(&format!("{aliases}{root}"), &["/docs/private/a"], &["/docs/a", "/a"]);
}

#[test]
fn options_without_links_are_left_out_as_access_where_there_are_links() {
    let folder = |path: &str, line: &str| format!("<Directory {path}>\n{line}\n</Directory>\n");
    let linked = "DocumentRoot /srv/linked\n";
    let alias = "Alias /docs /srv/linked\n";
    for (lines, is_access) in [
        (format!("{linked}{}", folder("/srv/linked", "Options None")), true),
        (format!("{linked}{}", folder("/", "Options Indexes")), true),
        (format!("{linked}{}", folder("/srv/linked", "Options -FollowSymLinks")), true),
        (format!("{linked}{}", folder("/srv/linked/a", "Options -FollowSymLinks")), true),
        (format!("{linked}{}", folder("/srv/*/a", "Options -FollowSymLinks")), true),
        (format!("{linked}Options None"), true),
        (format!("{alias}Options None"), true),
        (format!("{alias}{}", folder("/srv/linked", "Options None")), true),
        (format!("{alias}{}", folder("/", "Options None")), true),
        (format!("{alias}{}", folder("/srv/site1", "Options None")), false),
        (folder("/srv/site1", "Options None"), false),
        (format!("{linked}{}", folder("/srv/linked", "Options All")), false),
        (format!("{linked}{}", folder("/srv/linked", "Options -Indexes +MultiViews")), false),
        (format!("{linked}{}", folder("/srv/linked", "Options FollowSymLinks")), false),
        (format!("{linked}{}", folder("/srv/linked", "Options SymLinksIfOwnerMatch")), false),
        (
            format!(
                "{linked}{}{}",
                folder("/", "Options None"),
                folder("/srv/linked", "Options +FollowSymLinks")
            ),
            false,
        ),
        (format!("{linked}<Location />\nOptions None\n</Location>"), false),
    ] {
        let report = of_host(&lines).report;
        assert_eq!(!report.keeps_access(), is_access, "{lines}\n{report}");
    }
    let report = of_host(&folder("/srv/site1", "Options None")).report;
    assert!(report.to_string().contains("Options None: links are followed here"), "{report}");
}
