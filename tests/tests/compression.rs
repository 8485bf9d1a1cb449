//! Answers in a coding that the client takes: files that lie beside others, files and scripts'
//! answers that are coded by the server, with nginx beside as the measure.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, SystemTime};

use maitred_tests::coding::{CODINGS, decode};
use maitred_tests::http::{self, Connection, Request, Response};
use maitred_tests::server::{Server, Setup, document_root, write_file};
use maitred_tests::tls::{self, Authority};
use maitred_tests::web::Web;
use maitred_tests::{Target, http2, ports};
use tempfile::TempDir;

/// Several kilobytes of what is written again and again.
fn text() -> String {
    (0..2000).map(|line| format!("p.c{} {{ margin: 0 }}\n", line % 37)).collect()
}

/// Waits for a file beside the script, which the test makes when it has seen what it wanted to.
const WAIT: &str = "function wait() {
    for ($i = 0; $i < 5000 && !file_exists(__DIR__ . '/go'); $i++) { clearstatcache();
    usleep(2000); }
} while (ob_get_level()) { ob_end_clean(); }";

fn site() -> TempDir {
    let page = "<?php foreach ($_GET['h'] ?? [] as $line) { header($line, false); }
        if (isset($_GET['type'])) { header('Content-Type: ' . $_GET['type']); }
        http_response_code((int) ($_GET['status'] ?? 200));
        echo str_repeat('some words of a page. ', (int) ($_GET['times'] ?? 200));";
    let pieces = format!("<?php {WAIT} echo 'one '; flush(); wait(); echo 'two'; flush();");
    let events = format!(
        "<?php {WAIT} header('Content-Type: text/event-stream'); echo \"data: 1\\n\\n\";
        flush(); wait(); echo \"data: 2\\n\\n\";"
    );
    let large =
        "<?php for ($i = 0; $i < 3000; $i++) { echo str_repeat(chr(97 + $i % 26), 997), $i; }";
    let short = format!(
        "<?php {WAIT} header('Content-Length: 5000'); echo str_repeat('x', 2000);
        flush(); wait(); echo str_repeat('x', 2000);"
    );
    let endless =
        "<?php while (ob_get_level()) { ob_end_clean(); } $piece = str_repeat('words ', 4000);
        while (!file_exists(__DIR__ . '/go')) { clearstatcache(); echo $piece; }";
    document_root(&[
        ("style.css", &text()),
        ("small.css", "p {}"),
        ("picture.png", &text()),
        ("page.php", page),
        ("pieces.php", &pieces),
        ("events.php", &events),
        ("large.php", large),
        ("endless.php", endless),
        ("short.php", &short),
    ])
}

fn large() -> String {
    (0..3000)
        .map(|i: u32| format!("{}{i}", char::from(97 + (i % 26) as u8).to_string().repeat(997)))
        .collect()
}

/// Lets the times of a folder's files be long past, so that the server keeps what it learns of
/// them.
fn settle(root: &TempDir) {
    for entry in fs::read_dir(root.path()).expect("a folder").flatten() {
        age(&entry.path(), 3600);
    }
    std::thread::sleep(Duration::from_millis(40));
}

fn age(file: &Path, seconds: u64) {
    let file = fs::File::options().append(true).open(file).expect("a file");
    let then = SystemTime::now() - Duration::from_secs(seconds);
    file.set_modified(then).expect("its time can be set");
}

fn ask(address: std::net::SocketAddr, target: &str, accepted: &str) -> Response {
    let request = Request::get(target).header("Accept-Encoding", accepted);
    http::ask(address, &request.header("Connection", "close"))
}

fn vary(answer: &Response) -> Vec<&str> {
    answer.all("Vary").collect()
}

#[test]
fn a_file_is_sent_in_the_coding_that_the_client_takes() {
    let root = site();
    settle(&root);
    let server = Server::start(root.path());
    let plain = http::get(server.address(), "/style.css");
    assert_eq!((plain.text(), plain.header("Content-Encoding")), (text(), None));
    assert_eq!(vary(&plain), ["Accept-Encoding"]);
    let etag = plain.header("ETag").expect("an entity tag").to_owned();
    for coding in CODINGS {
        // The first time it is made, the second time it is kept.
        for _ in 0..2 {
            let coded = ask(server.address(), "/style.css", &format!("{coding}, x;q=0.1"));
            assert_eq!(coded.header("Content-Encoding"), Some(coding));
            assert_eq!(decode(coding, &coded.body), text());
            assert!(coded.body.len() < text().len() / 10);
            assert_eq!(vary(&coded), ["Accept-Encoding"]);
            assert_eq!(coded.header("Content-Type"), plain.header("Content-Type"));
            assert_eq!(coded.header("Last-Modified"), plain.header("Last-Modified"));
            assert_eq!(coded.header("ETag"), Some(&*format!("W/{etag}")));
            assert_eq!(coded.header("Accept-Ranges"), None);
        }
    }
    let several = ask(server.address(), "/style.css", "gzip, deflate, br, zstd");
    assert_eq!(several.header("Content-Encoding"), Some("br"), "the smallest is kept");
    let page = ask(server.address(), "/page.php", "gzip, deflate, br, zstd");
    assert_eq!(page.header("Content-Encoding"), Some("zstd"), "the fastest is passing");
    for none in ["identity", "gzip;q=0", "deflate", "*;q=0"] {
        let plain = ask(server.address(), "/style.css", none);
        assert_eq!((plain.header("Content-Encoding"), plain.text()), (None, text()));
    }
    for other in ["/small.css", "/picture.png"] {
        let answer = ask(server.address(), other, "zstd, br, gzip");
        assert_eq!(answer.header("Content-Encoding"), None, "{other}");
        assert_eq!(vary(&answer), Vec::<&str>::new(), "{other}");
    }
}

#[test]
fn conditions_ranges_and_head_agree_with_the_coding() {
    let root = site();
    settle(&root);
    let server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    let mut asked = |request: Request| connection.ask(&request).expect("an answer");
    let get = || Request::get("/style.css").header("Accept-Encoding", "gzip");
    let coded = asked(get());
    let etag = coded.header("ETag").expect("an entity tag").to_owned();
    let known = asked(get().header("If-None-Match", &etag));
    assert_eq!((known.status, vary(&known)), (304, vec!["Accept-Encoding"]));
    assert_eq!(known.header("Content-Encoding"), None);
    // Compared strongly, a weak entity tag matches nothing.
    let failed = asked(get().header("If-Match", &etag));
    assert_eq!(failed.status, 412);
    let part = asked(get().header("Range", "bytes=0-9"));
    assert_eq!((part.status, part.text()), (206, text()[..10].to_owned()));
    assert_eq!((part.header("Content-Encoding"), vary(&part)), (None, vec!["Accept-Encoding"]));
    let whole = asked(get().header("Range", "bytes=0-9").header("If-Range", &etag));
    assert_eq!((whole.status, whole.text()), (200, text()));
    let mut head = get();
    head.method = "HEAD".into();
    let head = asked(head);
    for name in ["Content-Encoding", "Content-Length", "ETag", "Vary", "Content-Type"] {
        assert_eq!(head.header(name), coded.header(name), "{name}");
    }
}

#[test]
fn a_file_that_lies_beside_is_sent_unless_it_is_older() {
    let root = site();
    write_file(root.path(), "style.css.br", b"what br says");
    write_file(root.path(), "style.css.gz", &vec![b'x'; 100_000]);
    settle(&root);
    let server = Server::start(root.path());
    let all = ask(server.address(), "/style.css", "gzip, deflate, br, zstd");
    assert_eq!((all.header("Content-Encoding"), all.text()), (Some("br"), "what br says".into()));
    assert_eq!(all.header("Content-Type"), Some("text/css; charset=utf-8"));
    assert_eq!(vary(&all), ["Accept-Encoding"]);
    let strong = all.header("ETag").expect("an entity tag").to_owned();
    assert!(strong.starts_with('"') && strong.ends_with("-br\""), "{strong}");
    let gzip = ask(server.address(), "/style.css", "gzip");
    assert_eq!((gzip.header("Content-Encoding"), gzip.body.len()), (Some("gzip"), 100_000));
    let liked = ask(server.address(), "/style.css", "br;q=0.5, gzip");
    assert_eq!(liked.header("Content-Encoding"), Some("gzip"));
    // Without a compressed file the server compresses.
    let made = ask(server.address(), "/style.css", "zstd");
    assert_eq!(decode("zstd", &made.body), text());
    // The file has changed, and what lies beside it has not.
    let changed = text() + "/* changed */";
    write_file(root.path(), "style.css", changed.as_bytes());
    age(&root.path().join("style.css"), 1800);
    std::thread::sleep(Duration::from_millis(40));
    let changed_now = ask(server.address(), "/style.css", "br");
    assert_eq!(decode("br", &changed_now.body), changed);
    // It is compressed again.
    write_file(root.path(), "style.css.br", b"what br says now");
    age(&root.path().join("style.css.br"), 900);
    maitred_tests::wait::until_true("the file beside to be seen", || {
        ask(server.address(), "/style.css", "br").text() == "what br says now"
    });
    fs::remove_file(root.path().join("style.css.br")).expect("it can be removed");
    maitred_tests::wait::until_true("the file beside to be missed", || {
        let answer = ask(server.address(), "/style.css", "br");
        answer.text() != "what br says now" && decode("br", &answer.body) == changed
    });
}

#[test]
fn a_front_controller_is_no_file_beside() {
    let root = site();
    write_file(root.path(), "index.html", text().as_bytes());
    settle(&root);
    let setup = Setup::new(root.path()).site("front_controller = \"/index.html\"");
    let server = setup.start();
    let answer = ask(server.address(), "/style.css", "br");
    assert_eq!(decode("br", &answer.body), text());
    let index = ask(server.address(), "/any/where", "gzip");
    assert_eq!(decode("gzip", &index.body), text());
}

#[test]
fn a_large_file_is_made_once_and_one_that_gains_nothing_is_left() {
    let root = site();
    let large: String =
        (0..60_000).map(|n| format!("line {} of it\n", n * 7919 % 10_007)).collect();
    write_file(root.path(), "large.txt", large.as_bytes());
    let mut state = 1_u32;
    let noise: Vec<u8> = (0..5000)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    write_file(root.path(), "noise.txt", &noise);
    settle(&root);
    let server = Server::start(root.path());
    let answer = ask(server.address(), "/large.txt", "zstd");
    assert_eq!(decode("zstd", &answer.body), large);
    let noise = ask(server.address(), "/noise.txt", "zstd");
    assert_eq!((noise.header("Content-Encoding"), vary(&noise)), (None, vec!["Accept-Encoding"]));
}

#[test]
fn a_scripts_answer_is_sent_in_the_coding_that_the_client_takes() {
    let root = site();
    let server = Server::start(root.path());
    let plain = http::get(server.address(), "/page.php");
    assert_eq!((plain.header("Content-Encoding"), vary(&plain)), (None, vec!["Accept-Encoding"]));
    for coding in CODINGS {
        let coded = ask(server.address(), "/page.php", coding);
        assert_eq!(coded.header("Content-Encoding"), Some(coding));
        assert_eq!(decode(coding, &coded.body), plain.text());
        let length = coded.body.len().to_string();
        assert_eq!(coded.header("Content-Length"), Some(&*length), "it is whole");
        let big = ask(server.address(), "/large.php", coding);
        assert_eq!(decode(coding, &big.body), large());
    }
}

#[test]
fn what_a_script_says_of_its_answer_decides() {
    let root = site();
    let server = Server::start(root.path());
    for (query, coded, varies) in [
        ("", true, "Accept-Encoding"),
        ("h[]=Vary: Cookie", true, "Cookie, Accept-Encoding"),
        ("h[]=Vary: Cookie&h[]=Vary: Origin", true, "Cookie, Origin, Accept-Encoding"),
        ("h[]=Vary: accept-encoding", true, "accept-encoding"),
        ("h[]=Vary: *", true, "*"),
        ("times=10", false, ""),
        ("type=image/png", false, ""),
        ("type=application/problem%2bjson", true, "Accept-Encoding"),
        ("type=text/event-stream", false, ""),
        ("h[]=Content-Encoding: gzip", false, ""),
        ("h[]=Cache-Control: max-age=1, no-transform", false, ""),
        ("h[]=Content-Range: bytes 0-1/2", false, ""),
        ("status=206", false, ""),
        ("status=204", false, ""),
        ("status=304", false, ""),
        ("status=404", true, "Accept-Encoding"),
    ] {
        let target = format!("/page.php?{}", query.replace(' ', "%20"));
        let answer = ask(server.address(), &target, "gzip");
        let is_coded =
            answer.header("Content-Encoding") == Some("gzip") && !query.contains("Content-E");
        assert_eq!((is_coded, &*vary(&answer).join("|")), (coded, varies), "{query}");
    }
    let tagged = ask(server.address(), "/page.php?h[]=ETag:%20%22a%22", "gzip");
    assert_eq!(tagged.header("ETag"), Some("\"a-maitred-gzip\""));
    let tagged = ask(server.address(), "/page.php?h[]=ETag:%20%22a%22", "identity");
    assert_eq!(tagged.header("ETag"), Some("\"a\""));
    let mut head = Request::get("/page.php").header("Accept-Encoding", "gzip");
    head.method = "HEAD".into();
    let head = http::ask(server.address(), &head.header("Connection", "close"));
    assert_eq!(
        (head.header("Content-Encoding"), vary(&head)),
        (Some("gzip"), vec!["Accept-Encoding"])
    );
    assert_eq!(head.header("Content-Length"), None);
}

/// A document with a version: saved with `If-Match`, read with `If-None-Match`, compared as
/// programs do.
const VERSIONED: &str = r#"<?php
$tag = ($_GET['weak'] ?? '') . '"v1,2"';
$list = '~(^|, *)' . preg_quote($tag) . '( *,|$)~';
$names = fn ($sent) => $sent === '*' || preg_match($list, $sent);
header('Content-Type: application/json');
header('Cache-Control: max-age=' . ($_GET['age'] ?? 0));
header("X-Range: " . ($_SERVER['HTTP_IF_RANGE'] ?? ''));
header("X-If: " . ($_SERVER['HTTP_IF'] ?? ''));
if ($_SERVER['REQUEST_METHOD'] === 'PUT') {
    http_response_code($names($_SERVER['HTTP_IF_MATCH'] ?? '*') ? 204 : 412);
    exit;
}
header("ETag: $tag");
if ($names($_SERVER['HTTP_IF_NONE_MATCH'] ?? '')) {
    http_response_code(304);
    exit;
}
echo json_encode(array_fill(0, 1000, 'the same words'));
"#;

/// Reads the versioned document compressed, and returns its tag in both conditions.
fn return_tag(ask: impl Fn(&str, &[(&str, &str)]) -> Response, coding: &str, weak: &str) {
    let own = format!("{weak}\"v1,2\"");
    let coded = ask("GET", &[("Accept-Encoding", coding)]);
    assert_eq!(coded.header("Content-Encoding"), Some(coding));
    let tag = coded.header("ETag").expect("a tag").to_owned();
    assert_eq!(tag == own, !weak.is_empty(), "{tag}: strong tags differ by coding");
    let list = format!("\"x\", {tag} , \"y\"");
    for sent in [&tag, &list, &own] {
        let read = ask("GET", &[("If-None-Match", sent), ("Accept-Encoding", coding)]);
        let named = if sent == &own { &own } else { &tag };
        assert_eq!((read.status, read.header("ETag")), (304, Some(&**named)), "{coding} {sent}");
    }
    // A cache drops the page then.
    for sent in [&tag, &list, &own] {
        let saved = ask("PUT", &[("If-Match", sent), ("Accept-Encoding", coding)]);
        assert_eq!(saved.status, 204, "{coding} {sent}");
    }
    let other = ask("PUT", &[("If-Match", "\"v1\"")]);
    assert_eq!(other.status, 412);
    let dav = format!("([{tag}])");
    let heard = ask("PUT", &[("If", &dav), ("If-Range", &tag)]);
    let expected = (Some(format!("([{own}])")), Some(tag));
    let header = |name| heard.header(name).map(str::to_owned);
    assert_eq!((header("X-If"), header("X-Range")), expected, "a part continues the same coding");
}

#[test]
fn a_tag_returns_to_the_script_as_it_wrote_it() {
    let root = document_root(&[("page.php", VERSIONED)]);
    let plain = Setup::new(root.path()).start();
    let cached = Setup::new(root.path()).site("cache = {}").start();
    for (server, age) in [(&plain, 0), (&cached, 60)] {
        for (coding, weak) in CODINGS.iter().flat_map(|coding| [(coding, ""), (coding, "W/")]) {
            let path = format!("/page.php?age={age}&weak={weak}");
            return_tag(|method, headers| ask_with(server, method, &path, headers), coding, weak);
        }
    }
    plain.stop();
    cached.stop();
}

fn ask_with(server: &Server, method: &str, path: &str, headers: &[(&str, &str)]) -> Response {
    let mut request = Request::get(path);
    method.clone_into(&mut request.method);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    Connection::open(server.address()).ask(&request).expect("a response")
}

#[test]
fn each_flush_of_a_script_can_be_read_at_once() {
    for coding in CODINGS {
        let root = site();
        let server = Server::start(root.path());
        let mut connection = Connection::open(server.address());
        let request = Request::get("/pieces.php").header("Accept-Encoding", coding);
        connection.send(&request.to_bytes()).expect("it can be sent");
        let head = connection.read_head().expect("a head");
        assert_eq!(head.header("Content-Encoding"), Some(coding));
        let mut all = connection.read_chunk().expect("a chunk");
        let mut first = vec![0; 4];
        match coding {
            "gzip" => flate2::read::GzDecoder::new(&all[..]).read_exact(&mut first),
            "br" => brotli::Decompressor::new(&all[..], 4096).read_exact(&mut first),
            _ => zstd::stream::read::Decoder::new(&all[..])
                .and_then(|mut decoder| decoder.read_exact(&mut first)),
        }
        .unwrap_or_else(|error| panic!("{coding}: {error}"));
        assert_eq!(first, b"one ");
        fs::write(root.path().join("go"), "").expect("a file can be written");
        loop {
            let chunk = connection.read_chunk().expect("a chunk");
            if chunk.is_empty() {
                break;
            }
            all.extend(chunk);
        }
        assert_eq!(decode(coding, &all), "one two");
    }
}

#[test]
fn events_are_neither_coded_nor_held() {
    let root = site();
    let server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    let request = Request::get("/events.php").header("Accept-Encoding", "gzip, br, zstd");
    connection.send(&request.to_bytes()).expect("it can be sent");
    let head = connection.read_head().expect("a head");
    assert_eq!(head.header("Content-Encoding"), None);
    assert_eq!(connection.read_chunk().expect("a chunk"), b"data: 1\n\n");
    fs::write(root.path().join("go"), "").expect("a file can be written");
    assert_eq!(connection.read_chunk().expect("a chunk"), b"data: 2\n\n");
}

#[test]
fn a_script_that_says_much_leaves_others_their_turn() {
    let root = site();
    let server = Setup::new(root.path()).top("front_threads = 1").start();
    let address = server.address();
    // Coding takes the thread's time; without, the script speaks as fast as its client reads.
    for coding in ["br", "identity"] {
        let mut reader = Connection::open(address);
        let request = Request::get("/endless.php").header("Accept-Encoding", coding);
        reader.send(&request.to_bytes()).expect("it can be sent");
        let reader = std::thread::spawn(move || {
            let head = reader.read_head().expect("a head");
            while !reader.read_chunk().expect("a chunk").is_empty() {}
            head.status
        });
        for _ in 0..20 {
            assert_eq!(http::get(address, "/small.css").text(), "p {}");
            assert_eq!(http::get(address, "/page.php?times=1").status, 200);
        }
        assert!(!reader.is_finished(), "it still has something to say");
        fs::write(root.path().join("go"), "").expect("a file can be written");
        assert_eq!(reader.join().expect("a whole answer"), 200, "{coding}");
        fs::remove_file(root.path().join("go")).expect("it is there");
    }
}

#[test]
fn an_answer_that_is_shorter_than_announced_shows_it() {
    let root = site();
    let server = Server::start(root.path());
    let mut connection = Connection::open(server.address());
    let request = Request::get("/short.php").header("Accept-Encoding", "gzip");
    connection.send(&request.to_bytes()).expect("it can be sent");
    let head = connection.read_head().expect("a head");
    assert_eq!(head.header("Content-Encoding"), Some("gzip"));
    assert!(!connection.read_chunk().expect("a chunk").is_empty());
    fs::write(root.path().join("go"), "").expect("a file can be written");
    while let Ok(chunk) = connection.read_chunk() {
        assert!(!chunk.is_empty(), "the answer has an end");
    }
}

#[test]
fn a_response_of_one_piece_that_is_shorter_than_its_length_is_incomplete() {
    let script = "<?php header('Content-Length: 5000'); echo str_repeat('x', 2000);";
    let root = document_root(&[("page.php", script)]);
    let server = Server::start(root.path());
    for coding in ["identity", "gzip"] {
        let request = |method: &str| {
            let request = Request::new(method, "/page.php").header("Host", "localhost");
            request.header("Accept-Encoding", coding)
        };
        let mut connection = Connection::open(server.address());
        assert_eq!(connection.ask(&request("HEAD")).expect("a response").status, 200);
        connection.send(&request("GET").to_bytes()).expect("it can be sent");
        let head = connection.read_head().expect("a head");
        assert_eq!(head.header("Content-Length"), Some("5000"), "{coding}");
        assert_eq!(head.header("Content-Encoding"), None);
        assert_eq!(connection.read_to_end().len(), 2000, "{coding}");
        let mut connection = http2::Connection::open(server.address(), &[]);
        let fields = [http2::get("/page.php"), http2::fields(&[("accept-encoding", coding)])];
        connection.ask_with(1, &fields.concat(), http2::END_STREAM);
        let end = connection.wait_for("the end of the stream", |frame| {
            let is_end = frame.kind == http2::RST_STREAM || frame.flags & http2::END_STREAM != 0;
            frame.stream == 1 && is_end
        });
        assert_eq!(end.expect("a frame").kind, http2::RST_STREAM, "{coding}");
    }
    server.stop();
}

#[test]
fn over_http2_tls_and_http10_it_is_the_same() {
    let root = site();
    settle(&root);
    let (authority, address) = (Authority::default(), ports::free_address());
    let certificate = authority.issue("site", &["localhost"]);
    let lines = [format!("certificates = [{}]", certificate.toml())];
    let server = Setup::new(root.path()).tls(address, &lines).start();
    for path in ["/style.css", "/page.php", "/large.php"] {
        let plain = http::get(server.address(), path).text();
        let words = ["-H", "Accept-Encoding: gzip", "--output", "-"];
        let url = format!("https://localhost{path}");
        let got = tls::curl(&authority, address, [&words[..], &[&url]].concat());
        assert_eq!(decode("gzip", &got.stdout), plain, "{path} over TLS");
        let url = format!("{}{path}", server.base_url());
        let got = http2::curl(&["-H", "Accept-Encoding: gzip", "--compressed", &url]);
        assert_eq!(got, plain, "{path} over HTTP/2");
        let mut old = Request::get(path).header("Accept-Encoding", "gzip");
        old.version = "HTTP/1.0".into();
        let got = http::ask(server.address(), &old);
        assert_eq!(got.header("Content-Encoding"), Some("gzip"));
        assert_eq!(decode("gzip", &got.body), plain, "{path} over HTTP/1.0");
    }
}

#[test]
fn a_site_says_what_is_compressed() {
    let root = site();
    write_file(root.path(), "style.css.br", b"beside");
    settle(&root);
    let serve = |lines: &[&str]| {
        let setup = Setup::new(root.path());
        lines.iter().fold(setup, |setup, line| setup.site(line)).start()
    };
    let said = |server: &Server, target: &str| {
        let answer = ask(server.address(), target, "gzip, br, zstd");
        let coding = answer.header("Content-Encoding").unwrap_or("none").to_owned();
        format!("{coding} {}", vary(&answer).len())
    };
    let server = serve(&["compression = false", "precompressed = false"]);
    assert_eq!(said(&server, "/style.css"), "none 0");
    assert_eq!(said(&server, "/page.php"), "none 0");
    drop(server);
    let server = serve(&["compression = false"]);
    assert_eq!(said(&server, "/style.css"), "br 1");
    assert_eq!(said(&server, "/page.php"), "none 0");
    drop(server);
    let server = serve(&[
        "compression = \"gzip\"",
        "precompressed = false",
        "compression_min_length = 1",
        "compression_types = [\"text/css\", \"image/png\"]",
    ]);
    assert_eq!(said(&server, "/style.css"), "gzip 1");
    assert_eq!(said(&server, "/picture.png"), "gzip 1");
    assert_eq!(said(&server, "/page.php"), "none 0");
}

#[test]
fn nginx_says_the_same_of_files_beside_and_of_scripts() {
    let root = site();
    write_file(root.path(), "style.css.gz", b"what gzip says");
    settle(&root);
    let server = Setup::new(root.path()).site("compression = \"gzip\"").start();
    let nginx = Web::nginx(
        "gzip on; gzip_static on; gzip_vary on; gzip_types text/css image/png; \
         gzip_min_length 1000; \
         gzip_http_version 1.0;",
        &format!("root {};", root.path().display()),
    );
    for (accepted, range) in [
        ("gzip", ""),
        ("br, gzip;q=0.3", ""),
        ("gzip;q=0", ""),
        ("identity", ""),
        ("gzip", "bytes=0-3"),
        ("deflate", ""),
    ] {
        let mut request = Request::get("/style.css").header("Accept-Encoding", accepted);
        if !range.is_empty() {
            request = request.header("Range", range);
        }
        let request = request.header("Connection", "close");
        let (ours, theirs) =
            (http::ask(server.address(), &request), http::ask(nginx.address(), &request));
        // nginx sends a range of the file beside; it would be of no use with another server's
        // parts.
        if range.is_empty() {
            assert_eq!(
                ours.header("Content-Encoding"),
                theirs.header("Content-Encoding"),
                "{accepted}"
            );
            assert_eq!(ours.body, theirs.body, "{accepted}");
        }
        assert_eq!(vary(&ours), vary(&theirs), "{accepted} {range}");
    }
}
