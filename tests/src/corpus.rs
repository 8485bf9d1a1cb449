//! The corpus: PHP scripts that each say in their first comment block how they are to be requested,
//! and the comparison of two servers' answers to those requests. `tests/corpus/README.md` describes
//! the comment block.

mod compare;
mod script;

pub use compare::{Difference, Known, Masks, compare, unmet_expectations};
pub use script::{Exchange, Script, load};

use std::fs;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::Target;
use crate::http::{Connection, Response};
use crate::server::{public_folder, write_file};
use crate::wait;

/// How long after an answer a line may take to appear in the log.
const LOG_DEADLINE: Duration = Duration::from_secs(30);

/// The host name that the corpus' requests are made for.
pub const HOST: &str = "corpus.test";

/// An answer, and the log lines that its request was to cause.
#[derive(Debug)]
pub struct Outcome {
    /// What came back, or why nothing did.
    pub response: Result<Response, String>,
    /// The expected log texts that did not come.
    pub missing_log: Vec<String>,
}

/// Copies the corpus into a document root that the web user can read.
pub fn document_root(corpus: &Path) -> TempDir {
    let root = public_folder();
    copy(corpus, root.path(), "");
    root
}

fn copy(from: &Path, to: &Path, below: &str) {
    let folder = from.join(below);
    for entry in fs::read_dir(&folder).expect("the corpus can be listed").flatten() {
        let name = entry.file_name().into_string().expect("names in the corpus are text");
        let name = if below.is_empty() { name } else { format!("{below}/{name}") };
        if entry.path().is_dir() {
            copy(from, to, &name);
        } else {
            write_file(to, &name, &fs::read(entry.path()).expect("a script can be read"));
        }
    }
}

/// Sends a script's requests to a server one after another, each on a connection of its own.
pub fn run(script: &Script, server: &dyn Target) -> Vec<Outcome> {
    let mut cookies: Vec<String> = Vec::new();
    let send = |exchange: &Exchange| {
        let mut request = exchange.request.clone();
        let logged = |text: &str| server.log_text().matches(text).count();
        let before: Vec<usize> = exchange.log.iter().map(|text| logged(text)).collect();
        if exchange.send_cookies && !cookies.is_empty() {
            request = request.header("Cookie", &cookies.join("; "));
        }
        let response = Connection::try_open(server.address())
            .and_then(|mut connection| connection.ask(&request))
            .map_err(|error| error.to_string());
        for cookie in response.iter().flat_map(|response| response.all("Set-Cookie")) {
            cookies.extend(cookie.split(';').next().map(str::to_owned));
        }
        let is_missing = |(text, before): &(&String, usize)| {
            let came = || (logged(text) > *before).then_some(());
            wait::poll(LOG_DEADLINE, came).is_none()
        };
        let texts = exchange.log.iter().zip(before).filter(is_missing);
        let missing_log = texts.map(|(text, _)| text.clone()).collect();
        Outcome { response, missing_log }
    };
    script.exchanges.iter().map(send).collect()
}
