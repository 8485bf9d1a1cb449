//! curl over TLS and HTTP/2.

use std::sync::Arc;

use fastrand::Rng;
use maitred_tests::tls;

use super::Client;
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::{CLASSIC, Site};

/// curl's exit codes (curl(1)) for a connection that could not be made, and those for one that
/// ended: CURLE_PARTIAL_FILE, CURLE_SSL_CONNECT_ERROR, CURLE_GOT_NOTHING, CURLE_SEND_ERROR,
/// CURLE_RECV_ERROR, CURLE_HTTP2, CURLE_HTTP2_STREAM.
const UNCONNECTED: i32 = 7;
const CUT: [i32; 7] = [18, 35, 52, 55, 56, 16, 92];
/// Repetitions of the id in a page.
const TIMES: usize = 3_000;

struct Curl {
    site: Arc<Site>,
    random: Rng,
}

/// One of these.
pub fn clients(site: &Arc<Site>) -> Vec<Box<dyn Client>> {
    vec![Box::new(Curl { site: Arc::clone(site), random: Rng::new() })]
}

impl Client for Curl {
    fn kind(&self) -> Kind {
        Kind::Tls
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let id = self.random.u64(..);
        let port = self.site.tls.port();
        let target = format!("https://{CLASSIC}:{port}/page.php?id={id}&times={TIMES}");
        let output = tls::curl_command(&self.site.authority, self.site.tls)
            .args(["--http2", "--max-time", "50", "--write-out", "\n%{http_code}", &target])
            .output()
            .map_err(|error| format!("curl cannot be started: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let (body, status) = text.rsplit_once('\n').unwrap_or(("", ""));
        match output.status.code() {
            Some(0) if status == "200" && body == format!("{id} ").repeat(TIMES) => {
                Ok(Outcome::Right)
            }
            Some(0) => match status.parse() {
                Ok(status @ 500..600) => Ok(Outcome::Refused(status)),
                _ => Err(format!("{target}: wrong response {status}, {} bytes", body.len())),
            },
            Some(UNCONNECTED) => Ok(Outcome::Unconnected),
            Some(code) if CUT.contains(&code) => Ok(Outcome::Cut),
            code => Err(format!("{target}: curl ends with {code:?}")),
        }
    }
}
