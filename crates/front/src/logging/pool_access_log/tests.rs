use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use maitred_config::PoolAccessLog as Settings;
use maitred_fastcgi::{HEADER_LEN, ParamsWriter, Report};

use super::*;

/// A log in a file, and where to read it.
struct Bed {
    logs: PoolAccessLogs,
    troubles: Arc<RepeatedErrors>,
    pool: Pool,
    reader: File,
}

impl Bed {
    fn new(format: &str, suppress_path: &[&str]) -> Bed {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("access.log");
        let logs = PoolAccessLogs::default();
        logs.opened(path.clone(), OwnedFd::from(File::create(&path).unwrap()));
        let reader = File::open(&path).unwrap();
        let pool = Pool {
            pool_access_log: Some(Settings {
                path,
                format: format.to_owned(),
                suppress_path: suppress_path.iter().map(|path| (*path).to_owned()).collect(),
            }),
            ..Pool::named("www")
        };
        Bed { logs, troubles: Arc::default(), pool, reader }
    }

    fn log(&self) -> Arc<PoolAccessLog> {
        self.logs.of(&self.pool, &self.troubles, false).unwrap()
    }

    fn written(&mut self) -> String {
        self.logs.finish(&self.troubles);
        let mut text = String::new();
        self.reader.read_to_string(&mut text).unwrap();
        text
    }
}

fn params<T: AsRef<[u8]>>(pairs: &[(T, T)]) -> Vec<u8> {
    let mut records = Vec::new();
    let mut writer = ParamsWriter::new(&mut records, 1);
    for (name, value) in pairs {
        writer.param(name.as_ref(), value.as_ref()).unwrap();
    }
    writer.finish();
    records[HEADER_LEN..records.len() - HEADER_LEN].to_vec()
}

const GET: [(&str, &str); 2] = [("REQUEST_METHOD", "GET"), ("SCRIPT_NAME", "/a.php")];

fn report() -> Vec<u8> {
    let report = Report {
        pid: 4711,
        status: 500,
        took_micros: 20_500,
        user_micros: 5_000,
        system_micros: 1_150,
        peak_memory: 2 << 20,
        uri: b"/a.php",
        script: b"/srv/a.php",
    };
    let mut record = Vec::new();
    report.write(&mut record);
    record.split_off(HEADER_LEN)
}

#[test]
fn every_token_says_what_php_fpms_says() {
    let mut bed = Bed::new(
        "%% %C %{user}C %{system}C %d %{milli}d %{micro}d %{REMOTE_ADDR}e %{NONE}e %f %l %m %M \
         %{kilo}M %{mega}M %n %{X-One}o %{x-one}o %p %q %Q %r %R %s %u|%{%Y}t %{%Y}T",
        &[],
    );
    let pairs = [
        ("REQUEST_METHOD", "POST"),
        ("SCRIPT_NAME", "/a.php/rest"),
        ("QUERY_STRING", "a=1"),
        ("CONTENT_LENGTH", "12"),
        ("REMOTE_ADDR", "192.0.2.7"),
        ("HTTP_AUTHORIZATION", "bAsIc YW5uYTpzZWNyZXQ="),
    ];
    let peer = "::ffff:127.0.0.1".parse().ok();
    let mut entry = bed.log().begin(&params(&pairs), peer);
    entry.said(b"Status: 404 Not Found\r\nX-Empty: \r\nX-One: 1\r\n\r");
    entry.said(b"\nX-One: body\r\n\r\n");
    let report = report();
    entry.reported(&report[..7]);
    entry.reported(&report[7..]);
    entry.answered();
    entry.answered();
    let line = bed.written();
    let (line, years) = line.split_once('|').unwrap();
    assert_eq!(
        line,
        "% 30.00 24.39 5.61 0.021 20.500 20500 192.0.2.7 - /srv/a.php 12 POST 2097152 2048 2 www 1 \
         - \
         4711 a=1 ? /a.php 127.0.0.1 500 anna"
    );
    let (began, ended) = years.trim_end().split_once(' ').unwrap();
    assert!(began.len() == 4 && ended.len() == 4, "{years}");
}

#[test]
fn a_line_that_is_not_collected_is_written_before_anything_else_happens() {
    let mut bed = Bed::new("%m %s", &[]);
    let log = bed.logs.of(&bed.pool, &bed.troubles, true).unwrap();
    log.begin(&params(&GET), None).write(200);
    let mut text = String::new();
    bed.reader.read_to_string(&mut text).unwrap();
    assert_eq!(text, "GET 200\n");
}

#[test]
fn a_request_without_a_worker_is_logged_as_far_as_it_is_known() {
    let mut bed = Bed::new("%R - %u %t \"%m %r%Q%q\" %s %f %p", &[]);
    let mut entry = bed.log().begin(&params(&GET), None);
    entry.write(503);
    let line = bed.written();
    assert!(line.starts_with("- -  "), "{line}");
    assert!(line.ends_with(" \"GET /a.php\" 503 - 0\n"), "{line}");
}

#[test]
fn plain_and_successful_requests_of_suppressed_paths_leave_no_line() {
    let mut bed = Bed::new("%m %r%Q%q %s", &["/a.php"]);
    let log = bed.log();
    let mut response = |pairs: &[(&str, &str)], status| {
        let pairs = [&GET[..], pairs].concat();
        log.begin(&params(&pairs), None).write(status);
        bed.written()
    };
    assert_eq!(response(&[], 200), "");
    assert_eq!(response(&[("REQUEST_METHOD", "HEAD")], 299), "");
    assert_eq!(response(&[("CONTENT_LENGTH", "0")], 200), "");
    assert_eq!(response(&[], 301), "GET /a.php 301\n");
    assert_eq!(response(&[("QUERY_STRING", "x")], 200), "GET /a.php?x 200\n");
    assert_eq!(response(&[("CONTENT_LENGTH", "1")], 200), "GET /a.php 200\n");
    assert_eq!(response(&[("REQUEST_METHOD", "POST")], 200), "POST /a.php 200\n");
    assert_eq!(response(&[("SCRIPT_NAME", "/b.php")], 200), "GET /b.php 200\n");
}

#[test]
fn nothing_a_client_sends_ends_a_line_and_long_ones_are_cut() {
    let mut bed = Bed::new("%{A}e %r %r", &[]);
    let long = "x".repeat(LINE_BYTES / 2);
    let pairs = [("A", "one\ntwo\x1b"), ("SCRIPT_NAME", &long)];
    bed.log().begin(&params(&pairs), None).write(200);
    let line = bed.written();
    assert!(line.starts_with("one\\x0Atwo\\x1B xxx"), "{}", &line[..40]);
    assert_eq!(line.len(), LINE_BYTES);
    assert_eq!(line.lines().count(), 1);
}

#[test]
fn nothing_a_client_sends_reaches_the_terminal_that_a_log_is_read_on() {
    let mut bed = Bed::new("%r?%q %{A}e", &[]);
    let pairs = [
        (&b"SCRIPT_NAME"[..], "/Übung\u{9b}31m".as_bytes()),
        (b"QUERY_STRING", b"\"a\\b\"\x9b31m"),
        (b"A", b"\xff\x85"),
    ];
    bed.log().begin(&params(&pairs), None).write(200);
    let line = "/Übung\\xC2\\x9B31m?\"a\\b\"\\x9B31m \\xFF\\x85\n";
    assert_eq!(bed.written(), line);
}

#[test]
fn a_line_is_cut_between_characters() {
    let mut bed = Bed::new("%r%r", &[]);
    let half = format!("{}\u{17f}", "x".repeat(LINE_BYTES / 2 - 2));
    let pairs = [("SCRIPT_NAME", half.as_str())];
    bed.log().begin(&params(&pairs), None).write(200);
    let line = format!("{half}{}\n", &half[..LINE_BYTES / 2 - 2]);
    assert!(bed.written() == line);
}

#[test]
fn lines_go_on_in_the_file_that_was_opened_last_and_those_of_nobody_are_forgotten() {
    let mut bed = Bed::new("%s", &[]);
    let log = bed.log();
    log.begin(&[], None).write(200);
    assert_eq!(bed.written(), "200\n");
    let path = bed.pool.pool_access_log.as_ref().unwrap().path.clone();
    let (mut reader, writer) = std::io::pipe().unwrap();
    bed.logs.opened(path, OwnedFd::from(writer));
    log.begin(&[], None).write(404);
    assert_eq!(bed.written(), "");
    let mut line = [0; 4];
    reader.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"404\n");
    bed.logs.sweep(&bed.troubles);
    assert!(bed.logs.of(&bed.pool, &bed.troubles, false).is_some());
    drop(log);
    bed.logs.sweep(&bed.troubles);
    assert!(bed.logs.of(&bed.pool, &bed.troubles, false).is_none());
}

#[test]
fn a_full_disk_loses_lines_and_nothing_else() {
    let bed = Bed::new("%s", &[]);
    let path = bed.pool.pool_access_log.as_ref().unwrap().path.clone();
    let full = File::options().write(true).open("/dev/full").unwrap();
    bed.logs.opened(path, OwnedFd::from(full));
    bed.log().begin(&[], None).write(200);
    bed.logs.finish(&bed.troubles);
}

/// A thread that reads the rest of a pipe.
fn read_rest(mut reader: std::io::PipeReader) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    })
}

#[test]
fn nothing_waits_for_a_file_that_takes_no_lines_and_those_without_room_are_lost() {
    let mut bed = Bed::new("%r", &[]);
    let path = bed.pool.pool_access_log.as_ref().unwrap().path.clone();
    let (reader, writer) = std::io::pipe().unwrap();
    let writer = File::from(OwnedFd::from(writer));
    // One that only root opens would be written directly.
    writer.set_permissions(std::fs::Permissions::from_mode(0o666)).unwrap();
    bed.logs.opened(path.clone(), writer.into());
    let at_once = bed.logs.of(&bed.pool, &bed.troubles, true).unwrap();
    let long = "x".repeat(LINE_BYTES / 2);
    for number in 0..200 {
        let name = format!("{number} {long}");
        let log = if number % 2 == 0 { bed.log() } else { at_once.clone() };
        log.begin(&params(&[("SCRIPT_NAME", &name)]), None).write(200);
        bed.logs.flush(&bed.troubles);
    }
    // What is written stays with the former file, and what waits goes to the latter.
    let latter = tempfile::NamedTempFile::new().unwrap();
    bed.logs.opened(path.clone(), OwnedFd::from(latter.reopen().unwrap()));
    bed.reader = latter.reopen().unwrap();
    let before = read_rest(reader).join().unwrap();
    bed.logs.file(&path).unwrap().0.finish(Duration::from_secs(60), &bed.troubles);
    let text = before + &bed.written();
    let numbers = text.lines().map(|line| line.split_once(' ').unwrap().0);
    let numbers: Vec<usize> = numbers.map(|number| number.parse().unwrap()).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len()), "{numbers:?}");
    assert!((100..200).contains(&numbers.len()), "{}", numbers.len());
}

#[test]
fn credentials_that_are_none_name_nobody() {
    let mut bed = Bed::new("[%u]", &[]);
    let log = bed.log();
    for credentials in ["Basic", "Basic !!", "Basic YQ==", "Digest YW5uYTpzZWNyZXQ=", ""] {
        let pairs = [("HTTP_AUTHORIZATION", credentials)];
        log.begin(&params(&pairs), None).write(200);
        assert_eq!(bed.written(), "[]\n", "{credentials}");
    }
}
