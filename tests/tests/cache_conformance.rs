//! The page cache under http-cache-tests, beside nginx's and Varnish, each before real PHP.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use maitred_tests::cache_suite::{self, Outcome, Varnish};
use maitred_tests::peer::PeerSetup;
use maitred_tests::server::{Setup, give_to_web_user, public_folder};
use maitred_tests::{Target, project_root};
use serde::Deserialize;

/// Set to anything, it has the page written that tells what came of it.
const WRITE: &str = "MAITRED_WRITE_CACHE_CONFORMANCE";

const SERVERS: [&str; 3] = ["maitred", "nginx", "Varnish"];

/// What maitred has to pass of the suite's 157 required tests.
const MARK: usize = 147;

/// How often a test is run again that should pass: what is fresh for two seconds may be stale on a
/// busy machine before the next request for it.
const CHANCES: usize = 3;

/// Why a server does not pass some tests.
#[derive(Debug, Deserialize)]
struct Reason {
    tests: Vec<String>,
    why: String,
}

impl Reason {
    fn is_of(&self, id: &str) -> bool {
        self.tests.iter().any(|test| match test.strip_suffix('*') {
            Some(start) => id.starts_with(start),
            None => id == test,
        })
    }
}

fn reasons() -> BTreeMap<String, Vec<Reason>> {
    let file = project_root().join("tests/http-cache-tests/reasons.toml");
    toml::from_str(&fs::read_to_string(file).unwrap()).unwrap()
}

/// What came of the required tests: with maitred, with nginx's `fastcgi_cache` in front of php-fpm,
/// and with Varnish before a maitred that caches nothing.
fn run(reasons: &BTreeMap<String, Vec<Reason>>) -> [Vec<Outcome>; 3] {
    let roots = [(); 3].map(|()| cache_suite::origin());
    let maitred = Setup::new(roots[0].path()).site("[sites.cache]").start();
    let pages = public_folder();
    give_to_web_user(pages.path());
    let pages = pages.path().join("pages");
    let zone = format!("fastcgi_cache_path {} levels=1:2 keys_zone=pages:8m;", pages.display());
    let nginx = PeerSetup::new(roots[1].path())
        .http(&zone)
        .http("fastcgi_cache pages;")
        .http("fastcgi_cache_key $scheme$request_method$host$request_uri;")
        .http("fastcgi_cache_revalidate on;")
        .start();
    let behind = Setup::new(roots[2].path()).start();
    let varnish = Varnish::start(&behind);
    std::thread::scope(|scope| {
        let runs = [
            scope.spawn(|| run_patiently(&maitred, &reasons["maitred"])),
            scope.spawn(|| cache_suite::run(&nginx)),
            scope.spawn(|| cache_suite::run(&varnish)),
        ];
        runs.map(|run| run.join().unwrap())
    })
}

/// What came of the required tests. One that should pass has, if it does in one of several runs.
fn run_patiently(server: &(impl Target + Sync), reasons: &[Reason]) -> Vec<Outcome> {
    let mut outcomes = cache_suite::run(server);
    for _ in 0..CHANCES {
        let is_surprise = |test: &&Outcome| !reasons.iter().any(|of| of.is_of(&test.id));
        let surprises = missed(&outcomes).filter(is_surprise);
        let ids: Vec<String> = surprises.map(|test| test.id.clone()).collect();
        if ids.is_empty() {
            break;
        }
        for again in cache_suite::run_some(server, &ids) {
            let before = outcomes.iter_mut().find(|test| test.id == again.id);
            if let Some(before) = before.filter(|_| again.has_passed()) {
                *before = again;
            }
        }
    }
    outcomes
}

fn passed(outcomes: &[Outcome]) -> usize {
    outcomes.iter().filter(|test| test.has_passed()).count()
}

fn missed(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> {
    outcomes.iter().filter(|test| !test.has_passed())
}

fn page() -> PathBuf {
    project_root().join("docs/guide/cache-conformance.md")
}

#[test]
fn the_cache_passes_all_required_tests_but_those_of_which_the_guide_says_why() {
    let reasons = reasons();
    let outcomes = run(&reasons);
    if std::env::var_os(WRITE).is_some() {
        fs::write(page(), written(&outcomes, &reasons)).unwrap();
    }
    let [maitred, nginx, varnish] = &outcomes;
    let said = fs::read_to_string(page()).unwrap();
    for test in missed(maitred) {
        let is_known = reasons["maitred"].iter().any(|of| of.is_of(&test.id));
        assert!(is_known, "{} ({}): {}", test.id, test.name, test.why);
        assert!(said.contains(&format!("`{}`", test.id)), "{}", test.id);
    }
    for reason in &reasons["maitred"] {
        let holds = missed(maitred).any(|test| reason.is_of(&test.id));
        assert!(holds, "passed by now: {:?}", reason.tests);
    }
    let counts = [maitred, nginx, varnish].map(|outcomes| passed(outcomes));
    assert!(counts[0] >= MARK, "{counts:?}");
    // The others are there to compare with: if they fail at all, the suite is not run as it should
    // be.
    assert!(counts[1..].iter().all(|count| (80..counts[0]).contains(count)), "{counts:?}");
}

fn version(program: &str, flag: &str) -> String {
    let output = Command::new(program).arg(flag).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let is_version = |word: &&str| word.contains(|letter: char| letter.is_ascii_digit());
    let word = said.split([' ', '/', '-', '\n']).find(is_version);
    word.unwrap_or_default().to_owned()
}

/// The page with the results.
fn written(outcomes: &[Vec<Outcome>; 3], reasons: &BTreeMap<String, Vec<Reason>>) -> String {
    let mut page = HEAD.to_owned();
    let setups = [
        "`[sites.cache]` without settings".to_owned(),
        format!(
            "nginx {}, `fastcgi_cache` in front of php-fpm, `fastcgi_cache_revalidate on`",
            version("nginx", "-v")
        ),
        format!(
            "Varnish {} with its built-in rules, in front of a site without a cache",
            version("varnishd", "-V")
        ),
    ];
    for ((server, setup), outcomes) in SERVERS.iter().zip(setups).zip(outcomes) {
        let (count, all) = (passed(outcomes), outcomes.len());
        let _ = writeln!(page, "| {server} | {setup} | {count} of {all} |");
    }
    for (server, outcomes) in SERVERS.iter().zip(outcomes) {
        let _ = write!(page, "\n## What {server} does not pass\n\n");
        page.push_str("| tests | why |\n| --- | --- |\n");
        let mut left: Vec<&Outcome> = missed(outcomes).collect();
        for reason in &reasons[*server] {
            let (of, others) = left.into_iter().partition(|test| reason.is_of(&test.id));
            left = others;
            let of: Vec<&Outcome> = of;
            let ids: Vec<String> = of.iter().map(|test| format!("`{}`", test.id)).collect();
            if !ids.is_empty() {
                let _ = writeln!(page, "| {} | {} |", ids.join(", "), reason.why);
            }
        }
        assert!(left.is_empty(), "{server} has no reason for {left:?}");
    }
    page
}

const HEAD: &str = "\
# The page cache under http-cache-tests

<!-- Written by scripts/cache-conformance from the results of the tests and the reasons in
     tests/http-cache-tests/reasons.toml; change those, not this page. -->

[http-cache-tests](https://cache-tests.fyi) tests how caches treat responses of all kinds. 157 of
its tests (version 0.4.5) are required of caches other than browsers. The suite's origin is a PHP
script here. `make test` runs them, and fails if maitred fails one that is not listed below;
`scripts/cache-conformance` runs them and writes this page.

A test that depends on a failed one counts as failed, as on the suite's own pages. PHP cannot close
its connection, so those tests end its worker. According to its authors, the suite does not test
conformance: a server may fail a test on purpose.

| server | setup | passed |
| --- | --- | --- |
";
