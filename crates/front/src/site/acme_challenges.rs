//! Responses to challenges of ACME authorities: files over plain HTTP (`http-01`), which precede
//! the site of their host, and certificates in handshakes (`tls-alpn-01`).

use std::collections::HashMap;

use arc_swap::ArcSwapOption;
use maitred_control::acme::Proof;

use crate::http::hosts::normal_name;

/// The path of challenges (RFC 8555 §8.3).
const PLACE: &str = "/.well-known/acme-challenge/";

/// The current responses; usually none.
#[derive(Debug, Default)]
pub struct Proofs {
    shown: ArcSwapOption<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    /// Contents of files, by host and name.
    files: HashMap<(String, String), String>,
    /// Certificates in handshakes, by host.
    certificates: Vec<(String, [u8; 32])>,
}

impl Proofs {
    /// Replaces all responses.
    pub fn set(&self, proofs: Vec<Proof>) {
        let mut shown = Shown::default();
        for proof in proofs {
            match proof {
                Proof::File { name, token, contents } => {
                    shown.files.insert((name, token), contents);
                }
                Proof::Certificate { name, digest } => shown.certificates.push((name, digest)),
            }
        }
        let is_empty = shown.files.is_empty() && shown.certificates.is_empty();
        self.shown.store((!is_empty).then(|| shown.into()));
    }

    /// The contents of the file at a path, if it is a challenge for the host of `authority`. For
    /// another host it is none: a process that gets certificates could prove that host with it.
    pub fn file(&self, authority: &str, path: &str) -> Option<String> {
        let token = path.strip_prefix(PLACE)?;
        let shown = self.shown.load();
        let files = &shown.as_ref()?.files;
        files.get(&(normal_name(authority), token.to_owned())).cloned()
    }

    /// The certificates for handshakes, each with its host.
    pub fn certificates(&self) -> Vec<(String, [u8; 32])> {
        let shown = self.shown.load();
        let shown = shown.as_ref().map(|shown| shown.certificates.clone());
        shown.unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_files_that_are_looked_for_are_there_and_only_while_they_are() {
        let proofs = Proofs::default();
        let path = format!("{PLACE}token");
        assert_eq!(proofs.file("a.com", &path), None);
        let file = |name: &str, contents: &str| Proof::File {
            name: name.to_owned(),
            token: "token".to_owned(),
            contents: contents.to_owned(),
        };
        proofs.set(vec![file("a.com", "token.key"), file("b.com", "token.b"), file("", "token.c")]);
        for host in ["a.com", "A.com:80", "a.com.", "a.com.:8080"] {
            assert_eq!(proofs.file(host, &path).as_deref(), Some("token.key"), "{host}");
        }
        assert_eq!(proofs.file("b.com", &path).as_deref(), Some("token.b"));
        for other in ["c.com", "www.a.com", "com", "127.0.0.1", "[::1]:80"] {
            assert_eq!(proofs.file(other, &path), None, "{other}");
        }
        for other in ["/token", PLACE, "/.well-known/acme-challenge/token/", "/"] {
            assert_eq!(proofs.file("a.com", other), None, "{other}");
        }
        proofs.set(Vec::new());
        assert_eq!(proofs.file("a.com", &path), None);
    }
}
