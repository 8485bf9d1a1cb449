use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use proptest::prelude::*;

use super::*;
use crate::http::content::{ResponseBody, Slice};
use crate::http::large_file::FolderOwner;
use crate::runtime::lookup_turns::AllTurns;
use crate::site::document_root::Root;
use crate::site::files::entry::{Loaded, SMALL_FILE};
use crate::site::files::ranges::MOST_PARTS;
use crate::site::files::response::FileResponse;

/// 2024-02-29 12:34:56 UTC.
const MODIFIED: u64 = 1_709_210_096;
const DATE: &str = "Thu, 29 Feb 2024 12:34:56 GMT";
const EARLIER: &str = "Thu, 29 Feb 2024 12:34:55 GMT";
const LATER: &str = "Thu, 29 Feb 2024 12:34:57 GMT";

struct Request {
    method: &'static str,
    headers: HashMap<&'static str, String>,
}

impl Conditions for Request {
    fn method(&self) -> &str {
        self.method
    }

    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }
}

fn request(method: &'static str, headers: &[(&'static str, &str)]) -> Request {
    let headers = headers.iter().map(|(name, value)| (*name, value.to_string())).collect();
    Request { method, headers }
}

fn get(entry: &StaticFile, headers: &[(&'static str, &str)]) -> FileResponse {
    response(entry, &request("GET", headers))
}

fn entry(name: &str, contents: &[u8]) -> StaticFile {
    entry_at(name, contents, UNIX_EPOCH + Duration::new(MODIFIED, 5))
}

fn entry_at(name: &str, contents: &[u8], modified: SystemTime) -> StaticFile {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(contents).unwrap();
    file.set_modified(modified).unwrap();
    loaded(OwnedFd::from(file), name.as_bytes()).entry
}

fn loaded(file: OwnedFd, path: &[u8]) -> Loaded {
    let root = Arc::new(Root::open(Path::new("/"), b"", 0).unwrap());
    let owner = FolderOwner { folder: "/srv".into(), tenant: AllTurns::default().of("") };
    load(file, FilePlace { root: &root, path, owner: &owner }).unwrap()
}

fn header<'a>(response: &'a FileResponse, name: &str) -> Option<&'a str> {
    let lines = std::str::from_utf8(&response.headers).unwrap();
    assert!(lines.ends_with("\r\n"));
    lines.split("\r\n").find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

/// Bytes of the body: 0 for HEAD, whatever Content-Length says.
fn length(response: &FileResponse) -> u64 {
    body(response).len() as u64
}

/// The body as the client would get it.
fn body(response: &FileResponse) -> Vec<u8> {
    let read = |fd: &OwnedFd, slice: &Slice| {
        let mut bytes = vec![0; slice.len as usize];
        assert_eq!(rustix::io::pread(fd, &mut bytes, slice.offset).unwrap(), bytes.len());
        bytes
    };
    match &response.body {
        ResponseBody::Empty => Vec::new(),
        ResponseBody::Memory(bytes) => bytes.to_vec(),
        ResponseBody::File { file, slice } => read(file.fd(), slice),
        ResponseBody::Multipart { file, parts, closing } => {
            let mut bytes = Vec::new();
            for part in parts {
                bytes.extend_from_slice(&part.head);
                bytes.extend(read(file.fd(), &part.slice));
            }
            bytes.extend_from_slice(closing);
            bytes
        }
    }
}

#[test]
fn a_plain_get_sends_the_prepared_lines_and_the_whole_file() {
    let entry = entry("/a.txt", b"hello, world\n");
    let response = get(&entry, &[]);
    assert_eq!(response.status, 200);
    assert_eq!(
        response.headers,
        format!(
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 13\r\n\
             Last-Modified: {DATE}\r\nETag: \"65e079f000000005-d\"\r\nAccept-Ranges: bytes\r\n"
        )
    );
    assert_eq!(response.headers.as_ptr(), entry.header_lines().as_ptr(), "nothing is formatted");
    assert_eq!((body(&response), length(&response)), (b"hello, world\n".to_vec(), 13));
}

#[test]
fn head_has_the_lines_of_get_and_no_body() {
    let entry = entry("/a.txt", b"hello");
    let response = response(&entry, &request("HEAD", &[("range", "bytes=0-1")]));
    assert_eq!((response.status, length(&response)), (200, 0));
    assert_eq!(header(&response, "Content-Length"), Some("5"));
    assert!(matches!(response.body, ResponseBody::Empty));
}

#[test]
fn other_methods_are_not_allowed() {
    let entry = entry("/a.txt", b"hello");
    for method in ["POST", "PUT", "DELETE", "OPTIONS", "get"] {
        let response = response(&entry, &request(method, &[("if-none-match", "*")]));
        assert_eq!((response.status, header(&response, "Allow")), (405, Some("GET, HEAD")));
    }
}

#[test]
fn types_follow_the_extension_and_text_is_utf8() {
    for (name, kind) in [
        ("/a.html", "text/html; charset=utf-8"),
        ("/a.css", "text/css; charset=utf-8"),
        ("/a.js", "text/javascript; charset=utf-8"),
        ("/a.mjs", "text/javascript; charset=utf-8"),
        ("/a.json", "application/json; charset=utf-8"),
        ("/a.svg", "image/svg+xml; charset=utf-8"),
        ("/a.PNG", "image/png"),
        ("/a.jpg", "image/jpeg"),
        ("/a.webp", "image/webp"),
        ("/a.avif", "image/avif"),
        ("/a.woff2", "font/woff2"),
        ("/a.wasm", "application/wasm"),
        ("/a.pdf", "application/pdf"),
        ("/a.mp4", "video/mp4"),
        ("/a.zip", "application/zip"),
        ("/favicon.ico", "image/x-icon"),
        ("/a.webmanifest", "application/manifest+json"),
        ("/a.unknown", "application/octet-stream"),
        ("/a.d/README", "application/octet-stream"),
    ] {
        assert_eq!(entry(name, b"").content_type(), kind, "{name}");
    }
}

#[test]
fn if_none_match_compares_weakly_and_wins_over_the_date() {
    let entry = entry("/a.txt", b"hello");
    let tag = entry.etag();
    for (field, status) in [
        (tag.to_string(), 304),
        (format!("W/{tag}"), 304),
        ("*".to_string(), 304),
        (format!("\"a,b\" ,\t\"c\",,W/{tag}"), 304),
        (format!("\"{}", tag), 200),
        (tag.trim_matches('"').to_string(), 200),
        ("\"other\"".to_string(), 200),
        ("\"open".to_string(), 200),
        (String::new(), 200),
    ] {
        let response = get(&entry, &[("if-none-match", &field), ("if-modified-since", EARLIER)]);
        assert_eq!(response.status, status, "{field}");
    }
    let response = get(&entry, &[("if-none-match", "\"other\""), ("if-modified-since", DATE)]);
    assert_eq!(response.status, 200, "the date does not count beside an entity tag");
    let response = get(&entry, &[("if-none-match", tag)]);
    assert_eq!(
        (header(&response, "ETag"), header(&response, "Last-Modified")),
        (Some(tag), Some(DATE))
    );
    assert_eq!((header(&response, "Content-Length"), length(&response)), (None, 0));
}

#[test]
fn if_modified_since_is_not_modified_from_its_date_on() {
    let entry = entry("/a.txt", b"hello");
    for (date, status) in [
        (EARLIER, 200),
        (DATE, 304),
        (LATER, 304),
        ("Thursday, 29-Feb-24 12:34:56 GMT", 304),
        ("Thu Feb 29 12:34:56 2024", 304),
        ("yesterday", 200),
        ("", 200),
    ] {
        assert_eq!(get(&entry, &[("if-modified-since", date)]).status, status, "{date}");
    }
}

#[test]
fn failed_preconditions_are_412() {
    let entry = entry("/a.txt", b"hello");
    let tag = entry.etag();
    let weak = format!("W/{tag}");
    for (headers, status) in [
        (vec![("if-match", tag)], 200),
        (vec![("if-match", "*")], 200),
        (vec![("if-match", weak.as_str())], 412),
        (vec![("if-match", "\"other\"")], 412),
        (vec![("if-match", tag), ("if-unmodified-since", EARLIER)], 200),
        (vec![("if-unmodified-since", EARLIER)], 412),
        (vec![("if-unmodified-since", DATE)], 200),
        (vec![("if-unmodified-since", "never")], 200),
        (vec![("if-match", "\"other\""), ("if-none-match", tag)], 412),
        (vec![("if-match", tag), ("if-none-match", tag)], 304),
    ] {
        assert_eq!(get(&entry, &headers).status, status, "{headers:?}");
    }
}

#[test]
fn single_ranges_are_cut_to_the_file() {
    let entry = entry("/a.txt", b"0123456789");
    for (field, range, bytes) in [
        ("bytes=0-3", "bytes 0-3/10", "0123"),
        ("bytes=8-", "bytes 8-9/10", "89"),
        ("bytes=-3", "bytes 7-9/10", "789"),
        ("bytes=-99", "bytes 0-9/10", "0123456789"),
        ("bytes=5-99999999999999999999999", "bytes 5-9/10", "56789"),
        ("BYTES = 4-4", "bytes 4-4/10", "4"),
        ("bytes=0-1,2-3", "bytes 0-3/10", "0123"),
        ("bytes=4-6, 0-1 ,\t1-5", "bytes 0-6/10", "0123456"),
        ("bytes=2-3,50-60", "bytes 2-3/10", "23"),
        ("bytes=,1-1,,", "bytes 1-1/10", "1"),
    ] {
        let response = get(&entry, &[("range", field)]);
        assert_eq!(response.status, 206, "{field}");
        assert_eq!(header(&response, "Content-Range"), Some(range), "{field}");
        assert_eq!(body(&response), bytes.as_bytes(), "{field}");
        assert_eq!(header(&response, "Content-Length"), Some(bytes.len().to_string().as_str()));
        assert_eq!(header(&response, "Content-Type"), Some("text/plain; charset=utf-8"));
    }
}

#[test]
fn ranges_that_the_file_does_not_have_are_416() {
    let entry = entry("/a.txt", b"0123456789");
    for field in ["bytes=10-", "bytes=10-12", "bytes=-0", "bytes=99999999999999999999-, 11-12"] {
        let response = get(&entry, &[("range", field)]);
        assert_eq!(response.status, 416, "{field}");
        assert_eq!(header(&response, "Content-Range"), Some("bytes */10"));
    }
}

#[test]
fn ranges_that_break_the_grammar_or_are_too_many_get_the_whole_file() {
    let entry = entry("/a.txt", &[b'x'; 1000]);
    let tiny: Vec<_> = (0..17).map(|number| format!("{0}-{0}", number * 3)).collect();
    let tiny = format!("bytes={}", tiny.join(","));
    let many = format!("bytes={}", vec!["0-"; 65].join(","));
    for field in [
        "bytes=3-1",
        "bytes=a-b",
        "bytes=1",
        "bytes=-",
        "bytes=",
        "bytes",
        "lines=1-2",
        "bytes=+1-2",
        "bytes=0-1,x",
        "bytes=--5",
        "bytes=1-2-3",
        "bytes=0x1-2",
        &tiny,
        &many,
    ] {
        assert_eq!(get(&entry, &[("range", field)]).status, 200, "{field}");
    }
    assert_eq!(get(&entry_at("/a", b"", UNIX_EPOCH), &[("range", "bytes=0-")]).status, 200);
}

#[test]
fn if_range_takes_the_part_only_from_the_same_file() {
    let entry = entry("/a.txt", b"0123456789");
    let weak = format!("W/{}", entry.etag());
    for (field, status) in [
        (entry.etag(), 206),
        (DATE, 206),
        (weak.as_str(), 200),
        ("\"other\"", 200),
        (EARLIER, 200),
        (LATER, 200),
        ("", 200),
    ] {
        let response = get(&entry, &[("range", "bytes=0-0"), ("if-range", field)]);
        assert_eq!(response.status, status, "{field}");
    }
    let gone = get(&entry, &[("range", "bytes=99-"), ("if-range", "\"other\"")]);
    assert_eq!(gone.status, 200);
}

#[test]
fn several_ranges_are_parts_in_the_order_of_the_request() {
    for size in [10_000, SMALL_FILE as usize + 10_000] {
        let data: Vec<u8> = (0..size).map(|number| (number % 251) as u8).collect();
        let entry = entry("/a.bin", &data);
        let response = get(&entry, &[("range", "bytes=9000-9001,0-2,-4")]);
        assert_eq!(response.status, 206);
        let kind = header(&response, "Content-Type").unwrap();
        let boundary = kind.strip_prefix("multipart/byteranges; boundary=").unwrap();
        let part = |from: usize, to: usize| {
            let mut part = format!(
                "--{boundary}\r\nContent-Type: application/octet-stream\r\n\
                 Content-Range: bytes {from}-{to}/{size}\r\n\r\n"
            )
            .into_bytes();
            part.extend_from_slice(&data[from..=to]);
            part.extend_from_slice(b"\r\n");
            part
        };
        let closing = format!("--{boundary}--\r\n").into_bytes();
        let expected = [part(9000, 9001), part(0, 2), part(size - 4, size - 1), closing].concat();
        assert_eq!(body(&response), expected);
        assert_eq!(length(&response), expected.len() as u64);
        assert_eq!(header(&response, "Content-Length"), Some(expected.len().to_string().as_str()));
        let again = get(&entry, &[("range", "bytes=9000-9001,0-2,-4")]);
        assert_ne!(header(&again, "Content-Type"), Some(kind), "the delimiter can be foreseen");
    }
}

#[test]
fn small_files_are_in_memory_and_large_ones_stay_open() {
    let small = entry("/a", &vec![1; SMALL_FILE as usize]);
    assert!(matches!(small.body(), FileBody::Memory(bytes) if bytes.len() as u64 == SMALL_FILE));
    let large = entry("/a", &vec![1; SMALL_FILE as usize + 1]);
    assert!(matches!(large.body(), FileBody::File(_)));
    assert_eq!(large.len(), SMALL_FILE + 1);
}

#[test]
fn times_that_no_http_date_can_say_are_moved_into_its_range() {
    let before = SystemTime::now();
    let future = entry_at("/a", b"", before + Duration::from_secs(1_000_000));
    assert!(future.modified() <= SystemTime::now(), "RFC 9110 §8.8.2.1");
    let past = entry_at("/a", b"", UNIX_EPOCH - Duration::from_secs(1_000_000));
    assert_eq!(past.last_modified(), "Thu, 01 Jan 1970 00:00:00 GMT");
}

#[test]
fn a_file_that_was_only_just_written_is_not_to_be_kept() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let open = || OwnedFd::from(fs::File::open(file.path()).unwrap());
    let deadline = std::time::Instant::now() + Duration::from_secs(20);
    loop {
        let written = SystemTime::now();
        fs::write(file.path(), b"x").unwrap();
        let loaded = loaded(open(), b"/a");
        let took = written.elapsed().unwrap_or_default();
        if loaded.settled.is_none() {
            break;
        }
        assert!(took >= Duration::from_millis(10), "kept although it was written {took:?} ago");
        assert!(std::time::Instant::now() < deadline, "the machine is too slow to tell");
    }
    while loaded(open(), b"/a").settled.is_none() {
        assert!(std::time::Instant::now() < deadline, "never kept");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_just_written_is_resident_where_the_file_system_can_tell() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&[1; 100_000]).unwrap();
    let fd = file.as_fd();
    assert_ne!(residency(fd, 0, 100_000), Residency::Cold);
    assert_eq!(residency(fd, 0, 0), Residency::Resident);
    let (_reader, writer) = std::io::pipe().unwrap();
    assert_eq!(residency(&writer, 0, 1), Residency::Unknown);
}

/// One range as the grammar has it.
#[derive(Clone, Debug)]
enum Spec {
    Between(u64, u64),
    From(u64),
    Suffix(u64),
}

fn spec() -> impl Strategy<Value = Spec> {
    let number = 0..60u64;
    prop_oneof![
        (number.clone(), 0..30u64).prop_map(|(first, more)| Spec::Between(first, first + more)),
        number.clone().prop_map(Spec::From),
        number.prop_map(Spec::Suffix),
    ]
}

/// The bytes of a range, one by one.
fn marked(specs: &[Spec], len: u64) -> Vec<bool> {
    let asked = |spec: &Spec, at: u64| match spec {
        Spec::Between(first, last) => (*first..=*last).contains(&at),
        Spec::From(first) => at >= *first,
        Spec::Suffix(count) => at + count >= len,
    };
    (0..len).map(|at| specs.iter().any(|spec| asked(spec, at))).collect()
}

proptest! {
    #[test]
    fn ranges_send_exactly_the_bytes_that_were_asked_for(
        specs in prop::collection::vec(spec(), 1..20),
        len in 1..50u64,
    ) {
        let texts: Vec<String> = specs
            .iter()
            .map(|spec| match spec {
                Spec::Between(first, last) => format!("{first}-{last}"),
                Spec::From(first) => format!("{first}-"),
                Spec::Suffix(count) => format!("-{count}"),
            })
            .collect();
        let expected = marked(&specs, len);
        let runs = expected.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
        match ranges::parse(&format!("bytes={}", texts.join(", ")), len) {
            ranges::WantedRange::Whole => prop_assert!(runs > MOST_PARTS),
            ranges::WantedRange::Unsatisfiable => prop_assert_eq!(runs, 0),
            ranges::WantedRange::Parts(parts) => {
                prop_assert_eq!(parts.len(), runs, "touching parts are not merged");
                let mut sent = vec![false; len as usize];
                for part in parts {
                    for at in part.offset..part.end() {
                        prop_assert!(!std::mem::replace(&mut sent[at as usize], true));
                    }
                }
                prop_assert_eq!(sent, expected);
            }
        }
    }

    #[test]
    fn no_field_makes_an_answer_panic_or_misstate_its_length(
        name in prop::sample::select(vec![
            "range", "if-range", "if-match", "if-none-match", "if-modified-since",
            "if-unmodified-since",
        ]),
        value in "(bytes=)?[0-9, \\-]{0,30}|\\PC{0,30}|(W/)?[\"a*, W/]{0,20}",
    ) {
        let entry = entry("/a.txt", b"0123456789");
        let response = get(&entry, &[(name, &value)]);
        if response.status != 304 {
            let length = length(&response).to_string();
            prop_assert_eq!(header(&response, "Content-Length"), Some(length.as_str()));
        }
    }
}
