//! What stands for a file at a site with `.htaccess` files: links, and what is named `.htaccess`.

use std::os::unix::fs::symlink;

use maitred_tests::Target;
use maitred_tests::http::{self, Request};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, is_root, public_folder, write_file,
};
use tempfile::TempDir;

fn serve(root: &TempDir) -> Server {
    if is_root() {
        give_to_web_user(root.path());
    }
    Setup::new(root.path()).site("htaccess = true").start()
}

fn status(server: &Server, target: &str) -> u16 {
    let request = Request::get(target).header("Connection", "close");
    http::ask(server.address(), &request).status
}

#[test]
fn a_folder_whose_htaccess_is_no_regular_file_is_closed() {
    let root = document_root(&[("a/.htaccess/x", ""), ("a/b/x.txt", "x"), ("x.txt", "x")]);
    let server = serve(&root);
    let mark = server.log().mark();
    for _ in 0..2 {
        assert_eq!(status(&server, "/a/b/x.txt"), 500);
        assert_eq!(status(&server, "/x.txt"), 200);
    }
    server.expect_log(mark, "/a/.htaccess: it is no regular file");
    std::fs::remove_dir_all(root.path().join("a/.htaccess")).expect("removed");
    assert_eq!(status(&server, "/a/b/x.txt"), 200);
}

#[test]
fn options_of_a_folder_decide_whether_its_links_are_followed() {
    let root = document_root(&[
        ("closed/.htaccess", "Options None\n"),
        ("closed/x.txt", "x"),
        ("open/.htaccess", "Options -Indexes\n"),
        ("shared/x.txt", "x"),
    ]);
    for folder in ["closed", "open"] {
        symlink("../shared", root.path().join(folder).join("link")).expect("a link");
        symlink("../shared/x.txt", root.path().join(folder).join("y.txt")).expect("a link");
    }
    let server = serve(&root);
    for _ in 0..2 {
        for (target, expected) in [
            ("/closed/x.txt", 200),
            ("/closed/y.txt", 403),
            ("/closed/link/x.txt", 403),
            ("/open/y.txt", 200),
            ("/open/link/x.txt", 200),
        ] {
            assert_eq!(status(&server, target), expected, "{target}");
        }
    }
}

#[test]
fn headers_depend_on_files_behind_a_link_out_of_the_root() {
    let home = public_folder();
    let root = home.path().join("current");
    write_file(home.path(), "shared/flag", b"");
    write_file(&root, "a.txt", b"text");
    write_file(&root, "a.php", b"<?php echo 'text';");
    let lines = format!(
        "Header set X-Flag yes \"expr=%{{CONTENT_TYPE}} =~ m#^text/# && -f '{}/storage/flag'\"\n",
        root.display()
    );
    write_file(&root, ".htaccess", lines.as_bytes());
    symlink("../shared", root.join("storage")).expect("a link");
    give_to_web_user(home.path());
    let server = Setup::new(&root).site("htaccess = true").start();
    for target in ["/a.txt", "/a.php", "/a.txt", "/a.php"] {
        let response = http::get(server.address(), target);
        assert_eq!((response.status, response.header("X-Flag")), (200, Some("yes")), "{target}");
    }
    server.stop();
}

#[test]
fn conditions_see_no_file_above_the_document_root() {
    let home = public_folder();
    let root = home.path().join("public");
    let mut rules = "RewriteEngine On\n".to_owned();
    for (number, test) in ["-f", "-s", "-x", "-d", "-l", "-F"].iter().enumerate() {
        rules += &format!(
            "RewriteCond \"%{{DOCUMENT_ROOT}}/%{{QUERY_STRING}}\" {test}\n\
             RewriteRule ^probe{number}$ - [G]\n"
        );
    }
    rules += "RewriteCond expr \"-e '%{DOCUMENT_ROOT}/%{QUERY_STRING}'\"\n\
              RewriteRule ^probe6$ - [G]\n";
    write_file(&root, ".htaccess", rules.as_bytes());
    write_file(&root, "own.txt", b"x");
    write_file(&root, "in/a.txt", b"x");
    write_file(home.path(), "secret.txt", b"x");
    std::fs::create_dir(home.path().join("folder")).expect("a folder is made");
    symlink("secret.txt", home.path().join("link")).expect("a link is made");
    if is_root() {
        give_to_web_user(&root);
    }
    let server = Setup::new(&root).site("htaccess = true").start();
    assert_eq!(status(&server, "/probe0?own.txt"), 410);
    assert_eq!(status(&server, "/probe0?in/../own.txt"), 410);
    for number in 0..7 {
        let above = ["../secret.txt", "../folder", "../link", "in/../../secret.txt", "../public"];
        for name in above.into_iter().chain(["../missing", "missing"]) {
            assert_eq!(status(&server, &format!("/probe{number}?{name}")), 404, "{number} {name}");
        }
    }
}
