//! A site whose pages are kept, with pages that end as a test wants it.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::http::{self, Request, Response};
use crate::processes::Signal;
use crate::server::{Server, Setup, document_root, give_to_web_user, public_folder};
use crate::{Target, wait};

/// Counts its runs for a path in `runs/`, and does what the query says. It waits for the file
/// `runs/goWAIT` if the query has `wait=WAIT`, or for `runs/go` if there is `runs/hold`; and it
/// sleeps for `ms` milliseconds.
const PAGE: &str = "<?php
    $runs = __DIR__ . '/runs/';
    $file = $runs . md5(strtok($_SERVER['REQUEST_URI'], '?'));
    file_put_contents($file, 'x', FILE_APPEND | LOCK_EX);
    clearstatcache();
    $run = filesize($file);
    $wait = isset($_GET['wait']) || file_exists($runs . 'hold');
    $go = $runs . 'go' . ($_GET['wait'] ?? '');
    usleep(1000 * (int) ($_GET['ms'] ?? 0));
    while ($wait && !file_exists($go)) { clearstatcache(); usleep(2000); }
    foreach ($_GET['h'] ?? [] as $header) header($header, false);
    if (file_exists($runs . 'vary')) header(file_get_contents($runs . 'vary'));
    echo $_GET['body'] ?? \"run $run \";
    if (isset($_GET['host'])) echo 'links to ', $_SERVER['HTTP_HOST'], ' ',
        $_SERVER['HTTP_X_FORWARDED_HOST'] ?? '', $_SERVER['HTTP_X_ORIGINAL_URL'] ?? '';
    if (isset($_GET['end'])) {
        ob_end_flush();
        flush();
        switch ($_GET['end']) {
            case 'killed': posix_kill(getmypid(), SIGKILL);
            case 'fatal': no_such_function();
            case 'memory': ini_set('memory_limit', '8M'); str_repeat('x', 1 << 26);
            case 'cookie': setcookie('late', '1'); header('Cache-Control: private'); break;
            case 'pause':
                while (!file_exists($runs . 'go')) { clearstatcache(); usleep(2000); }
                echo 'and its end';
                break;
            case 'finished': fastcgi_finish_request(); no_such_function();
        }
    }
    if (isset($_GET['size'])) echo str_repeat(md5($_SERVER['REQUEST_URI']), (int) $_GET['size']);";

/// A site that has such a page for every path.
pub fn site() -> TempDir {
    let root = document_root(&[("index.php", PAGE), ("runs/.keep", "")]);
    give_to_web_user(&root.path().join("runs"));
    root
}

/// The same with a cache, and further lines for it.
pub fn setup(root: &TempDir, lines: &[&str]) -> Setup {
    let setup = Setup::new(root.path()).site("[sites.cache]\nvalid = \"10m\"");
    lines.iter().fold(setup, |setup, line| setup.site(line))
}

/// A folder for the disk tier.
pub fn pages() -> (TempDir, String) {
    let pages = public_folder();
    give_to_web_user(pages.path());
    let line = format!("cache_dir = {:?}", pages.path());
    (pages, line)
}

/// What the cache says of itself.
pub fn status(answer: &Response) -> &str {
    answer.header("Cache-Status").unwrap_or_default()
}

/// Whether it is a page that was kept.
pub fn is_hit(answer: &Response) -> bool {
    status(answer).starts_with("maitred; hit;")
}

/// A request on a connection of its own.
pub fn request(target: &str, fields: &[(&str, &str)]) -> Request {
    let request = Request::new("GET", target).header("Connection", "close");
    let has_host = fields.iter().any(|(name, _)| *name == "Host");
    let host = (!has_host).then_some(("Host", "localhost"));
    let fields = host.iter().chain(fields);
    fields.fold(request, |request, (name, value)| request.header(name, value))
}

/// The answer to a request with these headers.
pub fn with(server: &Server, target: &str, fields: &[(&str, &str)]) -> Response {
    http::ask(server.address(), &request(target, fields))
}

/// The answer to a plain request.
pub fn get(server: &Server, target: &str) -> Response {
    with(server, target, &[])
}

/// A file that pages look at.
pub fn flag(root: &TempDir, name: &str) -> PathBuf {
    root.path().join("runs").join(name)
}

/// How often the script has run.
pub fn runs(root: &TempDir) -> u64 {
    let files = fs::read_dir(root.path().join("runs")).expect("runs can be listed");
    let counts = files.flatten().filter(|file| file.file_name().len() == 32);
    counts.map(|file| file.metadata().map_or(0, |meta| meta.len())).sum()
}

/// Has the front killed, and waits for the next one to answer.
pub fn kill_front(server: &Server) {
    let before = server.front().expect("a front runs");
    before.signal(Signal::KILL);
    wait::until("the next front", || {
        let front = server.front().filter(|front| *front != before)?;
        let ready = request("/ready-or-not", &[("Cookie", "PHPSESSID=1")]);
        http::try_ask(server.address(), &ready).ok().map(|_| front)
    });
}

/// The files of the disk tier.
pub fn files(dir: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for folder in fs::read_dir(dir).into_iter().flatten().flatten() {
        for file in fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if file.file_name().len() == 32 {
                files.push(file.path());
            }
        }
    }
    files
}

/// The file of the page with this text in it.
pub fn file_with(dir: &Path, text: &str) -> PathBuf {
    let has = |file: &PathBuf| {
        let bytes = fs::read(file).unwrap_or_default();
        bytes.windows(text.len()).any(|window| window == text.as_bytes())
    };
    let found = files(dir).into_iter().find(has);
    found.unwrap_or_else(|| panic!("no file holds {text:?}"))
}
