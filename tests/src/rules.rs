//! What tests of a site's rules have in common: a server of one site with such lines, a user, and
//! an answer in one line.

use std::net::SocketAddr;

use base64::Engine;
use tempfile::TempDir;

use crate::http::{self, Request, Response};
use crate::server::{Server, Setup};

/// A server whose site has these lines and no front controller.
pub fn serve(root: &TempDir, lines: &[&str]) -> Server {
    serve_with(root, &[], lines)
}

/// The same, with lines at the top of the file.
pub fn serve_with(root: &TempDir, top: &[&str], lines: &[&str]) -> Server {
    setup(root, top, lines).start()
}

/// The same, to be started.
pub fn setup(root: &TempDir, top: &[&str], lines: &[&str]) -> Setup {
    let setup = Setup::new(root.path()).site("front_controller = \"\"");
    let setup = top.iter().fold(setup, |setup, line| setup.top(line));
    lines.iter().fold(setup, |setup, line| setup.site(line))
}

/// The answer to a GET with a header.
pub fn with_header(address: SocketAddr, target: &str, name: &str, value: &str) -> Response {
    http::ask(address, &Request::get(target).header(name, value))
}

/// Status and body, for tables.
pub fn said(answer: &Response) -> String {
    format!("{} {}", answer.status, answer.text())
}

/// A line for `anna`, whose password is `secret`: `openssl passwd -6 -salt saltsalt secret`, with
/// few rounds.
pub const USER: &str = "anna:$6$rounds=1000$saltsalt$\
    LAV5VE5Y7w1d73x1mFNspYWUpazfmwv2SoepNXNKJ/otop/Zok96Hr8Q13LEv0DRY/x8v0/crpIjl8NJSAqXV/\n";

/// What a browser says who knows a user's password.
pub fn basic(name: &str, password: &str) -> String {
    let token = format!("{name}:{password}");
    format!("Basic {}", base64::engine::general_purpose::STANDARD.encode(token))
}
