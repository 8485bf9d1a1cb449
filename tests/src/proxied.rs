//! A site of which another HTTP server answers a part.

use tempfile::TempDir;

use crate::http::Response;
use crate::server::{Server, Setup, document_root};

/// Bytes of a mebibyte.
pub const MIB: usize = 1024 * 1024;

/// Its document root, with something where the other server answers.
pub fn site() -> TempDir {
    document_root(&[
        ("index.php", "<?php echo 'php';"),
        ("style.css", "p {}"),
        ("app/file.txt", "a file that is never served"),
        ("sorry.html", "sorry"),
    ])
}

/// Its server, with further lines for the site.
pub fn serve(root: &TempDir, lines: &[&str]) -> Server {
    let setup = Setup::new(root.path());
    let setup = lines.iter().fold(setup, |setup, line| setup.site(line));
    setup.start()
}

/// A server that passes `/app/*` on, with further fields of the rule.
pub fn proxied(root: &TempDir, url: &str, fields: &str) -> Server {
    serve(root, &[&rule(url, fields)])
}

/// That rule.
pub fn rule(url: &str, fields: &str) -> String {
    format!("proxy = {{ path = \"/app/*\", to = \"{url}\"{fields} }}")
}

/// Status and text of an answer.
pub fn said(answer: &Response) -> String {
    format!("{} {}", answer.status, answer.text())
}
