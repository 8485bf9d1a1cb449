//! `maitred warm`: pages are requested ahead of visitors, and the command reports what became of
//! them.

use std::fs;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use maitred_tests::http::{self, Request};
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::{Target, maitred_program};
use tempfile::TempDir;

const PAGE: &str = "<?php
    if (isset($_GET['own'])) { header('Set-Cookie: a=b'); }
    if (isset($_GET['none'])) { http_response_code(404); header('Cache-Control: no-store'); }
    echo 'a page';";

fn site() -> TempDir {
    document_root(&[("index.php", PAGE), ("file.txt", "no script")])
}

fn serve(root: &TempDir) -> Server {
    let setup = Setup::new(root.path()).hosts(&["a.example"]);
    setup.site("[sites.cache]").site("valid = \"10m\"").start()
}

fn warm(server: &Server, arguments: &[&str]) -> (Option<i32>, String) {
    let output: Output = Command::new(maitred_program())
        .arg("warm")
        .arg("--config")
        .arg(server.configuration())
        .args(["--rate", "1000"])
        .args(arguments)
        .output()
        .expect("maitred can be run");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let complained = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said + &complained)
}

fn is_hit(server: &Server, target: &str) -> bool {
    let request = Request::new("GET", target).header("Host", "a.example");
    let answer = http::ask(server.address(), &request.header("Connection", "close"));
    let said = answer.header("Cache-Status").unwrap_or_default();
    said.starts_with("maitred; hit")
}

#[test]
fn a_sitemap_with_all_it_leads_to_fills_the_cache() {
    let root = site();
    let entries = |kind: &str, urls: &[&str]| {
        let list: String = urls
            .iter()
            .map(|url| format!("<{kind}><loc>http://a.example{url}</loc></{kind}>"))
            .collect();
        list.into_bytes()
    };
    let page = |urls: &[&str]| [b"<urlset>", &entries("url", urls)[..], b"</urlset>"].concat();
    write_file(root.path(), "one.xml", &page(&["/1", "/2?a=1&amp;b=2", "/1"]));
    write_file(root.path(), "two.xml", &page(&["/3"]));
    let index = entries("sitemap", &["/one.xml", "/two.xml", "/index.xml"]);
    let index = [b"<sitemapindex>", &index[..], b"</sitemapindex>"].concat();
    write_file(root.path(), "index.xml", &index);
    let server = serve(&root);
    let (code, said) = warm(&server, &["--sitemap", "http://a.example/index.xml"]);
    let none_failed = "3 stored, 0 there already, 0 not stored, 0 failed\n";
    assert_eq!((code, said.as_str()), (Some(0), none_failed));
    for page in ["/1", "/2?a=1&b=2", "/3"] {
        assert!(is_hit(&server, page), "{page}");
    }
    let (code, said) = warm(&server, &["--sitemap", "http://a.example/index.xml"]);
    assert!(said.starts_with("0 stored, 3 there already"), "{said}");
    assert_eq!(code, Some(0));
}

#[test]
fn a_sitemap_of_one_site_has_no_other_site_requested() {
    let root = site();
    let log = root.path().join("b.log");
    let page = "<urlset><url><loc>http://a.example/1</loc></url>\
                <url><loc>http://b.example/theirs</loc></url></urlset>";
    write_file(root.path(), "one.xml", page.as_bytes());
    let setup = Setup::new(root.path()).hosts(&["a.example"]);
    let other = format!(
        "[[sites]]\nhosts = [\"b.example\"]\nroot = {:?}\npool = \"www\"\naccess_log = {log:?}\n\
         [sites.cache]\nvalid = \"10m\"",
        root.path()
    );
    let server = setup.site("[sites.cache]").site("valid = \"10m\"").site(&other).start();
    let one = "http://a.example/one.xml";
    let (code, said) = warm(&server, &["--sitemap", one]);
    let why = "1 of its addresses are of other sites and are left out, such as \
               http://b.example/theirs;";
    assert!(said.starts_with("1 stored, 0 there already, 0 not stored, 0 failed\n"), "{said}");
    assert!(said.contains(why), "{said}");
    assert_eq!(code, Some(3));
    // A file of root's may name the pages of all sites.
    let file = root.path().join("one.xml").display().to_string();
    let (code, said) = warm(&server, &["--sitemap", &file]);
    assert!(said.starts_with("1 stored, 1 there already, 0 not stored"), "{said}");
    assert_eq!(code, Some(0));
    let two = "http://b.example/one.xml";
    let (code, said) = warm(&server, &["--sitemap", one, "--sitemap", two, "--limit", "0"]);
    let why = format!("not read, since those before have more pages than --limit: {two}\n");
    assert!(said.contains(&why), "{said}");
    assert_eq!(code, Some(1));
    server.stop();
    let logged = fs::read_to_string(&log).expect("a log");
    assert_eq!(logged.matches("/theirs").count(), 1, "{logged}");
}

#[test]
fn what_is_not_kept_is_told_with_the_reason() {
    let root = site();
    let server = serve(&root);
    let list = root.path().join("urls.txt");
    let urls = ["/1", "/own?own", "/none?none", "/file.txt"];
    let lines: Vec<String> = urls
        .iter()
        .map(|url| format!("http://a.example{url}"))
        .chain(["http://other.example/".to_owned()])
        .collect();
    fs::write(&list, lines.join("\n")).expect("a file can be written");
    let list = list.display().to_string();
    let (code, said) = warm(&server, &["--urls-file", &list, "--verbose"]);
    assert_eq!(code, Some(3), "{said}");
    for line in [
        "stored      http://a.example/1",
        "not stored  http://a.example/own?own: set-cookie",
        "not stored  http://a.example/none?none: no-store (status 404)",
        "not stored  http://a.example/file.txt: no cache has seen it (status 200)",
        "failed      http://other.example/: other.example is no host of the configuration",
        "1 stored, 0 there already, 3 not stored, 1 failed",
    ] {
        assert!(said.contains(line), "{line} is not in\n{said}");
    }
    let json = warm(&server, &["--urls-file", &list, "--json"]).1;
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!((&json["there"], &json["not_stored"]), (&1.into(), &3.into()));
}

#[test]
fn requests_come_no_faster_than_wanted_and_what_cannot_be_done_is_said() {
    let root = site();
    let server = serve(&root);
    let urls: Vec<String> = (0..6).map(|page| format!("http://a.example/{page}")).collect();
    let mut arguments: Vec<&str> = urls.iter().map(String::as_str).collect();
    arguments.extend(["--rate", "20", "--concurrency", "2"]);
    let begun = Instant::now();
    let output = Command::new(maitred_program())
        .arg("warm")
        .arg("--config")
        .arg(server.configuration())
        .args(&arguments)
        .output()
        .expect("maitred can be run");
    assert!(output.status.success(), "{output:?}");
    // The first comes at once, each of the others a twentieth of a second later.
    assert!(begun.elapsed() >= Duration::from_millis(250));
    assert_eq!(warm(&server, &[]).0, Some(2));
    let missing = ["--sitemap", "http://a.example/none?none"];
    let (code, said) = warm(&server, &missing);
    assert!(said.contains("it got status 404"), "{said}");
    assert_eq!(code, Some(1));
    let elsewhere = ["--connect", "127.0.0.1:1", "http://a.example/"];
    let (code, said) = warm(&server, &elsewhere);
    assert!(said.contains("there is no connection"), "{said}");
    assert_eq!(code, Some(1));
    server.stop();
}
