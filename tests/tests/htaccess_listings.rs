//! Listings have what a request for each name would get: no files of other tenants, none that are
//! hidden, and none that a `.htaccess` file denies.

use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::server::{
    Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, user_ids, write_file,
};

/// A link of the user of the site.
fn link(target: &Path, name: &Path) {
    symlink(target, name).expect("a link can be made");
    let (user, group) = user_ids(WEB_USER);
    lchown(name, Some(user), Some(group)).expect("root can give a link away");
}

/// The names of a listing, of those that are expected or not.
fn names<'n>(text: &str, all: &[&'n str]) -> Vec<&'n str> {
    let has = |name: &&&str| text.contains(&format!("./{name}\""));
    all.iter().filter(has).copied().collect()
}

#[test]
fn a_listing_shows_nothing_of_what_a_link_must_not_lead_to() {
    if !is_root() {
        eprintln!("skipped: needs root to give files to users");
        return;
    }
    let files = [("list/a.txt", "a"), ("list/x.php", "<?php"), ("list/.hidden", "h")];
    let (root, other, own) = (document_root(&files), public_folder(), public_folder());
    write_file(root.path(), ".htaccess", b"Options +Indexes\n");
    write_file(other.path(), "file", b"of another user");
    write_file(own.path(), "file", b"of the same user");
    for path in [root.path(), own.path(), &own.path().join("file")] {
        give_to_web_user(path);
    }
    let list = root.path().join("list");
    link(&other.path().join("file"), &list.join("foreign.txt"));
    link(other.path(), &list.join("folder"));
    link(Path::new("x.php"), &list.join("source.txt"));
    link(Path::new(".hidden"), &list.join("dotted.txt"));
    link(Path::new("nothing"), &list.join("broken.txt"));
    link(Path::new("a.txt"), &list.join("inside.txt"));
    link(&own.path().join("file"), &list.join("outside.txt"));
    let all = [
        "a.txt",
        "foreign.txt",
        "folder/",
        "x.php",
        ".hidden",
        "source.txt",
        "dotted.txt",
        "broken.txt",
        "inside.txt",
        "outside.txt",
    ];
    for setting in ["htaccess = true", "autoindex = [\"/list/*\"]"] {
        let server = Setup::new(root.path()).site(setting).start();
        let text = http::get(server.address(), "/list/").text();
        assert_eq!(names(&text, &all), ["a.txt", "inside.txt", "outside.txt"], "{setting}: {text}");
        server.stop();
    }
}

#[test]
fn a_listing_leaves_out_what_the_files_deny() {
    let rules = "Options +Indexes\n<Files secret.txt>\nRequire all denied\n</Files>\n\
                 <FilesMatch \"\\.bak$\">\nOrder allow,deny\n</FilesMatch>\n\
                 RewriteEngine on\nRewriteRule ^gone\\.txt$ - [G]\nRewriteRule ^moved$ /a [R]\n";
    let root = document_root(&[
        ("list/.htaccess", rules),
        ("list/a.txt", "a"),
        ("list/secret.txt", "b"),
        ("list/a.bak", "c"),
        ("list/gone.txt", "d"),
        ("list/moved", "e"),
        ("list/open/f", "f"),
        ("list/closed/.htaccess", "Require all denied\n"),
    ]);
    for number in 0..400 {
        write_file(root.path(), &format!("list/n{number}"), b"n");
    }
    give_to_web_user(root.path());
    let server = Setup::new(root.path()).site("htaccess = true").start();
    let text = http::get(server.address(), "/list/").text();
    let all =
        ["a.txt", "secret.txt", "a.bak", "gone.txt", "moved", "open/", "closed/", "n0", "n399"];
    let expected = ["a.txt", "moved", "open/", "n0", "n399"];
    assert_eq!(names(&text, &all), expected, "{text}");
    server.stop();
}
