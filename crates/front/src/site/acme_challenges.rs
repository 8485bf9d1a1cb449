//! Responses to challenges of ACME authorities: files over plain HTTP (`http-01`), which precede
//! every site, and certificates in handshakes (`tls-alpn-01`).

use std::collections::HashMap;

use arc_swap::ArcSwapOption;
use maitred_control::acme::Proof;

/// The path of challenges (RFC 8555 §8.3).
const PLACE: &str = "/.well-known/acme-challenge/";

/// The current responses; usually none.
#[derive(Debug, Default)]
pub struct Proofs {
    shown: ArcSwapOption<Shown>,
}

#[derive(Debug, Default)]
struct Shown {
    /// Contents of files, by their names.
    files: HashMap<String, String>,
    /// Certificates in handshakes, by host.
    certificates: Vec<(String, [u8; 32])>,
}

impl Proofs {
    /// Replaces all responses.
    pub fn set(&self, proofs: Vec<Proof>) {
        let mut shown = Shown::default();
        for proof in proofs {
            match proof {
                Proof::File { token, contents } => drop(shown.files.insert(token, contents)),
                Proof::Certificate { name, digest } => shown.certificates.push((name, digest)),
            }
        }
        let is_empty = shown.files.is_empty() && shown.certificates.is_empty();
        self.shown.store((!is_empty).then(|| shown.into()));
    }

    /// The contents of the file at a path, if it is a challenge.
    pub fn file(&self, path: &str) -> Option<String> {
        let token = path.strip_prefix(PLACE)?;
        let shown = self.shown.load();
        shown.as_ref()?.files.get(token).cloned()
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
        assert_eq!(proofs.file(&path), None);
        proofs
            .set(vec![Proof::File { token: "token".to_owned(), contents: "token.key".to_owned() }]);
        assert_eq!(proofs.file(&path).as_deref(), Some("token.key"));
        for other in ["/token", PLACE, "/.well-known/acme-challenge/token/", "/"] {
            assert_eq!(proofs.file(other), None, "{other}");
        }
        proofs.set(Vec::new());
        assert_eq!(proofs.file(&path), None);
    }
}
