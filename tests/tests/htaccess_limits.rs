//! Tenants whose `.htaccess` files are large, and strangers who request many URLs: other sites are
//! served meanwhile, and memory stays within its limits.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;

use maitred_tests::Target;
use maitred_tests::http::{self, Connection, Request};
use maitred_tests::server::{
    Server, Setup, document_root, give_to_web_user, public_folder, write_file,
};

/// Most bytes by which the front may grow: more than both of its budgets for a thread, less than
/// what each test would have it hold without them.
const GROWTH: u64 = 64 << 20;

/// A file that was changed a shorter time ago is not cached.
const SETTLED: Duration = Duration::from_millis(200);

/// A server with one front thread, and a site for each root: `site0.test`, `site1.test` and so on.
fn serve(roots: &[&Path]) -> Server {
    roots.iter().for_each(|root| give_to_web_user(root));
    let setup = Setup::new(roots[0]).top("front_threads = 1").hosts(&["site0.test"]);
    let setup = setup.site("htaccess = true");
    let others = roots.iter().enumerate().skip(1).map(|(number, root)| {
        format!(
            "\n[[sites]]\nhosts = [\"site{number}.test\"]\nroot = {root:?}\npool = \"www\"\n\
             htaccess = true\n"
        )
    });
    let server = others.fold(setup, |setup, table| setup.site(&table)).start();
    thread::sleep(SETTLED);
    server
}

fn status(server: &Server, site: usize, target: &str) -> u16 {
    let request = Request::new("GET", target).header("Host", &format!("site{site}.test"));
    http::ask(server.address(), &request).status
}

/// Memory of the front's own in bytes.
fn memory(server: &Server) -> u64 {
    let front = server.front().expect("a front");
    let text = fs::read_to_string(format!("/proc/{}/status", front.pid)).expect("a process");
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("its memory");
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).expect("KiB") << 10
}

#[track_caller]
fn expect_small(server: &Server, before: u64) {
    let grown = memory(server).saturating_sub(before);
    assert!(grown < GROWTH, "the front has grown by {} MiB", grown >> 20);
}

#[test]
fn a_file_with_tens_of_thousands_of_directives_delays_no_other_site() {
    let mut lines = "RewriteEngine on\nRewriteRule ^x$ /y\n".to_owned();
    (0..50_000).for_each(|number| lines += &format!("SetEnv aaaaa{number:05} 1\n"));
    let (hostile, other) =
        (document_root(&[(".htaccess", &lines), ("y", "y")]), document_root(&[("page", "page")]));
    let server = serve(&[hostile.path(), other.path()]);
    let mark = server.log().mark();
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..5).for_each(|_| assert_eq!(status(&server, 0, "/x"), 500)));
        }
        (0..20).for_each(|_| assert_eq!(status(&server, 1, "/page"), 200));
    });
    server.expect_log(mark, "more than 1024 variables");
    server.stop();
}

#[test]
fn files_that_take_long_together_end_their_request_and_no_other() {
    let root = public_folder();
    let line = "RewriteRule ^(abc|def|ghi)/([a-z]+)/x$ /y [L]\n";
    let lines = format!("RewriteEngine on\nRewriteOptions Inherit\n{}", line.repeat(7_000));
    write_file(root.path(), "rules", lines.as_bytes());
    let mut folder = String::new();
    for _ in 0..40 {
        folder += "d/";
        write_file(root.path(), &format!("{folder}x"), b"page");
        let rules = root.path().join(format!("{folder}.htaccess"));
        fs::hard_link(root.path().join("rules"), rules).unwrap();
    }
    let other = document_root(&[("page", "page")]);
    let server = serve(&[root.path(), other.path()]);
    let (target, mark) = (format!("/{folder}x"), server.log().mark());
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(status(&server, 0, &target), 500));
        (0..20).for_each(|_| assert_eq!(status(&server, 1, "/page"), 200));
    });
    server.expect_log(mark, "take too long to read");
    server.stop();
}

#[test]
fn values_that_contain_each_other_end_their_request_and_not_the_front() {
    let long = "y".repeat(60_000);
    let doubled = "[E=a:%{ENV:a}%{ENV:a}]";
    let rules = format!(
        "RewriteEngine on\nRewriteRule ^ - [E=a:xxxxxxxx]\n{}",
        format!("RewriteRule ^ - {doubled}\n").repeat(40)
    );
    let variables = format!("SetEnvIf a (.*) a=x$1\n{}", "SetEnvIf a (.*) a=$1$1\n".repeat(40));
    let set = format!("SetEnv LONG {long}\nHeader set X-Long %{{LONG}}e\n");
    let edited = format!("{set}Header edit* X-Long . z\n");
    let grown = format!("{set}{}", "Header edit X-Long ^(.*)$ $1$1\n".repeat(40));
    let root = public_folder();
    let all = [("rules", rules), ("variables", variables), ("edited", edited), ("grown", grown)];
    for (folder, lines) in &all {
        write_file(root.path(), &format!("{folder}/.htaccess"), lines.as_bytes());
        write_file(root.path(), &format!("{folder}/x"), b"page");
    }
    write_file(root.path(), "page", b"page");
    let server = serve(&[root.path()]);
    let front = server.front();
    for (folder, _) in &all {
        assert_eq!(status(&server, 0, &format!("/{folder}/x")), 500, "{folder}");
        assert_eq!(status(&server, 0, "/page"), 200);
    }
    assert_eq!(server.front(), front);
    server.stop();
}

#[test]
fn a_large_file_in_nested_folders_is_not_held_once_for_each() {
    for (count, expected) in [(75_000, &[500][..]), (9_000, &[200, 500])] {
        let root = public_folder();
        write_file(root.path(), "lines", "php_value a b\n".repeat(count).as_bytes());
        let mut folder = String::new();
        let mut folders = Vec::new();
        for _ in 0..40 {
            folder += "d/";
            fs::create_dir(root.path().join(&folder)).unwrap();
            let link = root.path().join(format!("{folder}.htaccess"));
            fs::hard_link(root.path().join("lines"), link).unwrap();
            write_file(root.path(), &format!("{folder}x"), b"page");
            folders.push(folder.clone());
        }
        let server = serve(&[root.path()]);
        let before = memory(&server);
        for folder in &folders {
            let status = status(&server, 0, &format!("/{folder}x"));
            assert!(expected.contains(&status), "{count}: {status}");
        }
        expect_small(&server, before);
        server.stop();
    }
}

#[test]
fn what_sections_make_for_a_request_is_not_held_for_each_url() {
    let lines = format!("<Files \"*\">\n{}</Files>\n", "php_value a b\n".repeat(9_000));
    let root = document_root(&[(".htaccess", &lines), ("a.png", "image")]);
    let server = serve(&[root.path()]);
    let before = memory(&server);
    for number in 0..400 {
        assert_eq!(status(&server, 0, &format!("/a.png?{number}")), 200);
    }
    expect_small(&server, before);
    server.stop();
}

#[test]
fn decisions_for_made_up_urls_of_many_sites_stay_within_their_memory() {
    const SITES: usize = 20;
    const URLS: usize = 600;
    let rules = "RewriteEngine on\nRewriteCond %{HTTPS} off\n\
                 RewriteRule ^ https://%{HTTP_HOST}%{REQUEST_URI} [R=301,L]\n";
    let roots: Vec<_> = (0..SITES).map(|_| document_root(&[(".htaccess", rules)])).collect();
    let server = serve(&roots.iter().map(|root| root.path()).collect::<Vec<_>>());
    let before = memory(&server);
    let mut client = Connection::open(server.address());
    let long = "x".repeat(1800);
    for number in 0..URLS {
        for site in 0..SITES {
            let request = Request::new("GET", &format!("/{number}/{long}"));
            let request = request.header("Host", &format!("site{site}.test"));
            assert_eq!(client.ask(&request).unwrap().status, 301);
        }
    }
    expect_small(&server, before);
    server.stop();
}
