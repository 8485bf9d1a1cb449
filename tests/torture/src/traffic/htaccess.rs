//! A folder whose `.htaccess` changes: the next request sees the change.

use std::net::SocketAddr;
use std::sync::Arc;

use fastrand::Rng;
use maitred_tests::http::Request;

use super::{Client, Persistent, judge};
use crate::kind::Kind;
use crate::ledger::Outcome;
use crate::site::{HTACCESS, Site};

const TARGET: &str = "/changing/page.html";

/// Each state of the folder.
#[derive(Debug, Clone, Copy)]
enum State {
    Open,
    Denied,
    Rewritten,
}

const STATES: [State; 3] = [State::Open, State::Denied, State::Rewritten];

impl State {
    fn directives(self) -> &'static str {
        match self {
            State::Open => "Require all granted\n",
            State::Denied => "Require all denied\n",
            State::Rewritten => "RewriteEngine On\nRewriteRule ^page\\.html$ - [G]\n",
        }
    }

    fn status(self) -> u16 {
        match self {
            State::Open => 200,
            State::Denied => 403,
            State::Rewritten => 410,
        }
    }
}

struct Htaccess {
    site: Arc<Site>,
    http: Persistent,
    random: Rng,
}

/// One of these: a second would not know the state.
pub fn clients(site: &Arc<Site>, address: SocketAddr) -> Vec<Box<dyn Client>> {
    let http = Persistent::new(address);
    vec![Box::new(Htaccess { site: Arc::clone(site), http, random: Rng::new() })]
}

impl Client for Htaccess {
    fn kind(&self) -> Kind {
        Kind::Htaccess
    }

    fn round(&mut self) -> Result<Outcome, String> {
        let state = STATES[self.random.usize(..STATES.len())];
        self.site.set_htaccess(state.directives());
        let request = Request::new("GET", TARGET).header("Host", HTACCESS);
        let reply = self.http.ask(&request)?;
        match &reply {
            // The text of an error page has the id of its request.
            super::Reply::Whole(response) if response.status == state.status() => match state {
                State::Open => judge(&reply, TARGET, 200, b"open"),
                _ => Ok(Outcome::Right),
            },
            _ => judge(&reply, &format!("{TARGET} with {state:?}"), state.status(), b"open"),
        }
    }
}
