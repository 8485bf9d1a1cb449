//! The corpus of small PHP scripts, one per behaviour, answered by maitred and by nginx with
//! php-fpm.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use maitred_tests::Target;
use maitred_tests::corpus::{self, Difference, HOST, Known, Masks, Script};
use maitred_tests::peer::{Peer, PeerSetup};
use maitred_tests::server::{Server, Setup, give_to_web_user, public_folder};

/// nginx, allowed the large headers that maitred is to take: its own limits are a page or two.
const NGINX_HEAD_LIMITS: &str = "fastcgi_buffer_size 512k; fastcgi_buffers 8 512k; \
    fastcgi_busy_buffers_size 1m;";

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn known() -> Known {
    Known::read(&corpus().join("differences.toml"))
}

fn peer(root: &Path, sessions: &Path) -> Peer {
    PeerSetup::new(root)
        .host(HOST)
        .workers(1)
        .http(NGINX_HEAD_LIMITS)
        .pool("php_admin_value[user_agent] = corpus-pool")
        .pool("php_value[precision] = 10")
        .pool("env[CORPUS_GREETING] = hello")
        .pool("catch_workers_output = yes")
        .pool(&format!("php_admin_value[session.save_path] = {}", sessions.display()))
        .start()
}

fn maitred(root: &Path, sessions: &Path) -> Server {
    let sessions = sessions.display();
    // nginx compresses nothing by default, and then sends no `Vary` header.
    Setup::new(root)
        .hosts(&[HOST])
        .site("compression = false")
        .workers(1)
        .pool("env = { CORPUS_GREETING = \"hello\" }")
        .pool("php_value = { precision = \"10\" }")
        .pool(&format!(
            "php_admin_value = {{ user_agent = \"corpus-pool\", \
             \"session.save_path\" = \"{sessions}\" }}"
        ))
        .start()
}

/// Everything that is wrong with the first server's answers, as told by the scripts and by the
/// second server's.
struct Verdict {
    unmet: Vec<String>,
    differences: Vec<Difference>,
}

fn compare(ours: &dyn Target, theirs: &dyn Target) -> Verdict {
    let known = known();
    let masks = (Masks::of(ours), Masks::of(theirs));
    let mut verdict = Verdict { unmet: Vec::new(), differences: Vec::new() };
    for script in &corpus::load(&corpus()) {
        let (our_answers, their_answers) = (corpus::run(script, ours), corpus::run(script, theirs));
        for (at, exchange) in script.exchanges.iter().enumerate() {
            verdict.note(script, at, "ours", &our_answers[at]);
            verdict.note(script, at, "theirs", &their_answers[at]);
            verdict.differences.extend(corpus::compare(
                &known,
                (&script.name, at + 1, exchange),
                (&our_answers[at], &masks.0),
                (&their_answers[at], &masks.1),
            ));
        }
    }
    verdict
}

impl Verdict {
    fn note(&mut self, script: &Script, at: usize, whose: &str, outcome: &corpus::Outcome) {
        for unmet in corpus::unmet_expectations(&script.exchanges[at], outcome) {
            self.unmet.push(format!("{} request {} ({whose}): {unmet}", script.name, at + 1));
        }
    }
}

fn report(title: &str, items: impl IntoIterator<Item = impl std::fmt::Display>) -> String {
    let mut text = String::new();
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
    if text.is_empty() { text } else { format!("{title}:\n{text}\n") }
}

#[test]
fn every_script_is_answered_as_nginx_with_php_fpm_answers_it() {
    let root = corpus::document_root(&corpus());
    let sessions = public_folder();
    give_to_web_user(sessions.path());
    let (ours, theirs) =
        (maitred(root.path(), sessions.path()), peer(root.path(), sessions.path()));
    let verdict = compare(&ours, &theirs);
    let (unexplained, idle) = known().judge(verdict.differences);
    let text = report("What a script expects and did not come", verdict.unmet)
        + &report("Differences without a reason in differences.toml", unexplained)
        + &report("Entries of differences.toml", idle);
    assert!(text.is_empty(), "\n{text}");
    ours.stop();
}

#[test]
fn every_script_is_answered_the_same_by_two_servers_of_the_same_kind() {
    let root = corpus::document_root(&corpus());
    let sessions = public_folder();
    give_to_web_user(sessions.path());
    let (ours, theirs) = (peer(root.path(), sessions.path()), peer(root.path(), sessions.path()));
    let verdict = compare(&ours, &theirs);
    let text = report("What a script expects and did not come", verdict.unmet)
        + &report("Differences", verdict.differences);
    assert!(text.is_empty(), "\n{text}");
}
