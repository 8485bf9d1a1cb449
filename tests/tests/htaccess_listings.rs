//! Listings have what a request for each name would get: no files of other tenants, none that are
//! hidden, and none that a `.htaccess` file denies.

use std::fs;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

use maitred_tests::http;
use maitred_tests::server::{
    Setup, WEB_USER, document_root, give_to_web_user, is_root, public_folder, user_ids, write_file,
};
use maitred_tests::{Target, run_maitred};

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

#[test]
fn files_deny_and_hide_names_in_the_lists_of_autoindex_too() {
    let root = document_root(&[
        (
            "list/.htaccess",
            "IndexIgnore hidden*\n<Files secret.txt>\nRequire all denied\n</Files>\n",
        ),
        ("list/a.txt", "a"),
        ("list/secret.txt", "b"),
        ("list/hidden.txt", "c"),
        ("denied/.htaccess", "Require all denied\n"),
        ("denied/a.txt", "a"),
        ("users/.htaccess", "AuthType Basic\nAuthName x\nAuthUserFile users\nRequire user ann\n"),
        ("users/a.txt", "a"),
        ("off/.htaccess", "Options -Indexes\n"),
        ("off/a.txt", "a"),
        ("index/.htaccess", "DirectoryIndex a.txt\n"),
        ("index/a.txt", "the index"),
        ("plain/a.txt", "a"),
        ("elsewhere/a.txt", "a"),
    ]);
    let beside = public_folder();
    write_file(beside.path(), "a.txt", b"a");
    give_to_web_user(root.path());
    let folders = ["list", "denied", "users", "off", "index", "plain", "manual"];
    let folders = folders.map(|folder| format!("\"/{folder}/*\"")).join(", ");
    let alias = format!("aliases = {{ \"/manual/\" = {:?} }}", beside.path());
    let setup = Setup::new(root.path()).site("htaccess = true").site(&alias);
    let server = setup.site(&format!("autoindex = [{folders}]")).start();
    let all = ["a.txt", "secret.txt", "hidden.txt"];
    let file = server.configuration();
    let file = file.to_str().expect("its name is UTF-8");
    for (path, status, shown, explained) in [
        ("/list/", 200, &["a.txt"][..], "a list of the folder's files (Indexes)"),
        ("/denied/", 403, &[], "response         403"),
        ("/users/", 401, &[], "response         401"),
        ("/off/", 403, &[], "response         403"),
        ("/index/", 200, &[], "200 with the file"),
        ("/plain/", 200, &["a.txt"], "a list of the folder's files (Indexes)"),
        ("/elsewhere/", 403, &[], "response         403"),
        ("/manual/", 200, &["a.txt"], "a list of the folder's files (autoindex)"),
    ] {
        let response = http::get(server.address(), path);
        let text = response.text();
        assert_eq!((response.status, &names(&text, &all)[..]), (status, shown), "{path}: {text}");
        let (_, said) = run_maitred(&["explain", path, "--config", file]);
        assert!(said.contains(explained), "{path}: {said}");
    }
    server.stop();
}

#[test]
fn a_listing_is_of_the_root_that_a_deployment_has_put_in_place_of_the_former_one() {
    let folder = public_folder();
    let (root, new) = (folder.path().join("www"), folder.path().join("new"));
    for (tree, name) in [(&root, "list/before.txt"), (&new, "list/after.txt")] {
        write_file(tree, name, b"text");
        give_to_web_user(tree);
    }
    let server = Setup::new(&root).site("autoindex = [\"/list/*\"]").start();
    let listed = || {
        let text = http::get(server.address(), "/list/").text();
        names(&text, &["before.txt", "after.txt"]).join(" ")
    };
    assert_eq!(listed(), "before.txt");
    fs::rename(&root, folder.path().join("former")).expect("a folder can be renamed");
    fs::rename(&new, &root).expect("a folder can be renamed");
    assert_eq!(listed(), "after.txt");
    server.stop();
}

#[test]
fn a_folder_of_many_folders_that_nothing_has_looked_into_is_listed_whole() {
    let root = document_root(&[("list/.htaccess", "Options +Indexes\n")]);
    for number in 0..200 {
        write_file(root.path(), &format!("list/folder{number}/a.txt"), b"a");
    }
    give_to_web_user(root.path());
    let server = Setup::new(root.path()).site("htaccess = true").start();
    let text = http::get(server.address(), "/list/").text();
    let missing = (0..200).filter(|number| !text.contains(&format!("./folder{number}/\"")));
    assert_eq!(missing.count(), 0, "{text}");
    server.stop();
}
