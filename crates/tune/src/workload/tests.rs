//! Which requests are sent, and which are not.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn base() -> Url {
    Url::read("http://shop.example/goods/7?x=1", None).unwrap()
}

#[test]
fn links_of_the_same_server_that_only_show_something_are_followed() {
    let page = "<a href=\"/a?b=1&amp;c=2\">a</a><a href='next'>n</a><link href=\"/s.css?v=1\">\
                <a href=\"https://other.example/\">o</a><a href=\"mailto:x@y\">m</a>\
                <a href=\"http://shop.example/full\">f</a><a href=\"#top\">t</a>\
                <a href=\"/wp-login.php?action=logout\">l</a><a href=\"//cdn.example/x\">c</a>";
    let found = links::links(page, &base());
    let found = found.into_iter().map(RequestSpec::get).collect();
    let mut left_out = Vec::new();
    let showing = only_showing(found, &mut left_out);
    let paths: Vec<String> = showing.into_iter().map(|spec| spec.url.path).collect();
    assert_eq!(paths, ["/a?b=1&c=2", "/goods/next", "/full"]);
    assert_eq!(left_out, ["/wp-login.php?action=logout"]);
}

#[test]
fn what_a_log_has_of_requests_that_change_something_is_left_out_and_named() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("access.log");
    let asked =
        ["/", "/Logout", "/?action=delete&id=5", "/shop/?add-to-cart=7", "/cart/?remove_item=1"];
    let lines = asked.iter().map(|path| {
        format!(
            "1.2.3.4 - - [22/Nov/2026:10:00:00 +0000] \"GET {path} HTTP/1.1\" 200 5 \"-\" \"-\"\n"
        )
    });
    std::fs::write(&log, lines.collect::<String>()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let asked_for = std::thread::spawn(move || {
        // A connection that only checks whether the server listens sends nothing.
        let (mut client, request) = loop {
            let (mut client, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            match client.read(&mut request) {
                Ok(read @ 1..) => break (client, request[..read].to_vec()),
                _ => continue,
            }
        };
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
        client.write_all(response.as_bytes()).unwrap();
        String::from_utf8_lossy(&request).into_owned()
    });
    let asked =
        WorkloadOptions { urls: vec![url], access_log: Some(log), ..WorkloadOptions::default() };
    let mut prober = Prober::new(&[], Arc::default()).unwrap();
    let workload = prepare(&asked, &mut prober).unwrap();
    assert_eq!(workload.plan.requests.len(), 1);
    assert!(asked_for.join().unwrap().starts_with("GET / HTTP/1.1"));
    let said = workload.left_out().unwrap();
    for path in ["/Logout", "/?action=delete&id=5", "/shop/?add-to-cart=7"] {
        assert!(said.contains(path), "{said}");
    }
}

#[test]
fn pages_that_there_is_no_time_to_look_at_are_left_out_and_counted() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for client in listener.incoming() {
            let mut client = client.unwrap();
            let mut request = vec![0; 4096];
            let read = client.read(&mut request).unwrap_or(0);
            if request[..read].starts_with(b"GET /quick") {
                let response =
                    "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok";
                client.write_all(response.as_bytes()).unwrap();
            } else {
                silent.push(client);
            }
        }
    });
    let ask = |paths: [&str; 3]| {
        let asked = WorkloadOptions {
            urls: paths.map(|path| format!("http://{address}{path}")).into(),
            ..WorkloadOptions::default()
        };
        let mut prober = Prober::new(&[], Arc::default()).unwrap();
        prober.until(Some(Instant::now() + Duration::from_secs(3)));
        prepare(&asked, &mut prober)
    };
    let workload = ask(["/quick", "/slow", "/quick/2"]).unwrap();
    assert_eq!(workload.plan.requests.len(), 1);
    assert!(workload.took.is_some());
    assert_eq!(
        workload.source,
        "1 URL from the command line (2 more were skipped: there was no time to check them)"
    );
    let Abort::Failed(why) = ask(["/slow", "/quick", "/quick/2"]).unwrap_err() else {
        panic!("it was not stopped")
    };
    assert!(why.contains("longer than the time allows"), "{why}");
}

#[test]
fn what_a_browser_has_saved_is_asked_for_but_for_files_and_what_does_something() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("visit.har");
    let urls = ["/", "/style.css", "/logout", "/goods/7"];
    let entries = urls.map(|path| {
        format!("{{\"request\":{{\"method\":\"GET\",\"url\":\"http://shop.example{path}\"}}}}")
    });
    let text = format!("{{\"log\":{{\"entries\":[{}]}}}}", entries.join(","));
    std::fs::write(&file, text).unwrap();
    let asked = WorkloadOptions { har: Some(file), ..WorkloadOptions::default() };
    let (specs, source) = specs(&asked).unwrap();
    let mut left_out = Vec::new();
    let showing = only_showing(specs, &mut left_out);
    let paths: Vec<String> = showing.into_iter().map(|spec| spec.url.path).collect();
    assert_eq!((paths, source), (vec!["/".to_owned(), "/goods/7".to_owned()], "a HAR file"));
    assert_eq!(left_out, ["/logout"]);
}

#[test]
fn a_login_page_a_bad_gateway_and_a_redirect_are_no_right_answers() {
    let form = b"<form><input TYPE=\"Password\"></form>";
    let asked = WorkloadOptions::default();
    let expect = Expect::default();
    let why = |status, body: &[u8]| why_not(&base(), status, body, &asked, &expect);
    assert!(why(200, form).unwrap().contains("looks like a login page"));
    assert!(why(502, b"").unwrap().contains("502 Bad Gateway; fix the site first"));
    assert!(why(302, b"").unwrap().contains("name the page it leads to"));
    assert_eq!(why(200, b"hello"), None);
    let named = WorkloadOptions { contains: Some("Cart".to_owned()), ..WorkloadOptions::default() };
    let expect = Expect { marker: Some(Marker::new("Cart")), ..Expect::default() };
    assert_eq!(why_not(&base(), 200, b"Cart type=password", &named, &expect), None);
    assert!(why_not(&base(), 200, b"Welcome", &named, &expect).is_some());
}

#[test]
fn who_waits_for_an_answer_that_does_not_come_can_be_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let place = Url::read(&format!("http://{}/", listener.local_addr().unwrap()), None);
    let place = place.unwrap();
    let endpoint = find(&place, &WorkloadOptions::default()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let stops = Arc::clone(&stop);
    let silent = std::thread::spawn(move || {
        let mut clients = listener.incoming().map(Result::unwrap);
        let client = clients.find(is_asked);
        stops.store(true, Ordering::Relaxed);
        client
    });
    let mut prober = Prober::new(&[], Arc::default()).unwrap();
    let began = Instant::now();
    let limit = Duration::from_secs(600);
    let response = prober.get_within(&endpoint, &place, limit, &stop);
    assert_eq!(response.unwrap_err(), "it was stopped");
    assert!(began.elapsed() < limit / 5, "{:?}", began.elapsed());
    assert!(silent.join().unwrap().is_some(), "it was asked");
    stop.store(false, Ordering::Relaxed);
    let late = prober.get_within(&endpoint, &place, Duration::from_millis(1), &stop);
    assert!(late.is_err(), "there is no server");
}

/// A connection that only checks whether the server listens sends nothing.
fn is_asked(mut client: &TcpStream) -> bool {
    matches!(client.read(&mut [0; 4096]), Ok(1..))
}

#[test]
fn who_looks_at_pages_of_a_site_that_hangs_can_be_stopped() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    for crawl in [false, true] {
        let stop = Arc::new(AtomicBool::new(false));
        let mut prober = Prober::new(&[], Arc::clone(&stop)).unwrap();
        let asked = WorkloadOptions {
            urls: vec![url.clone(), format!("{url}b")],
            crawl,
            ..WorkloadOptions::default()
        };
        let listener = listener.try_clone().unwrap();
        let silent = std::thread::spawn(move || {
            let mut clients = listener.incoming().map(Result::unwrap);
            let client = clients.find(is_asked);
            stop.store(true, Ordering::Relaxed);
            client
        });
        let ended = prepare(&asked, &mut prober).unwrap_err();
        assert_eq!(ended, Abort::Stopped);
        assert!(silent.join().unwrap().is_some(), "it was asked");
        let place = Url::read(&url, None).unwrap();
        let endpoint = find(&place, &WorkloadOptions::default()).unwrap();
        let why = prober.get(&endpoint, &place).unwrap_err();
        assert_eq!(why, STOPPED, "and not that it took too long");
    }
}

#[test]
fn when_too_few_pages_can_be_right_the_others_are_not_asked_for() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counts = Arc::clone(&asked);
    std::thread::spawn(move || {
        for mut client in listener.incoming().map(Result::unwrap) {
            let response =
                b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            if is_asked(&client) {
                counts.fetch_add(1, Ordering::Relaxed);
                client.write_all(response).unwrap();
            }
        }
    });
    let mut prober = Prober::new(&[], Arc::default()).unwrap();
    let spec = WorkloadOptions {
        urls: (0..40).map(|page| format!("{base}/{page}")).collect(),
        ..WorkloadOptions::default()
    };
    let Abort::Failed(why) = prepare(&spec, &mut prober).unwrap_err() else {
        panic!("it was not stopped")
    };
    assert!(
        why.contains("502 Bad Gateway") && why.contains("(at most 92 % of the requests get"),
        "{why}"
    );
    assert_eq!(asked.load(Ordering::Relaxed), 3, "of forty");
}
