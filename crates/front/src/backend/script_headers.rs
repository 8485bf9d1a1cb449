//! Headers of a script that are instructions to the server.

use maitred_fastcgi::cgi::AnswerHead;

/// Headers by which a script speaks to its web server (nginx's `X-Accel-…`).
pub fn is_for_us(name: &[u8]) -> bool {
    name.get(..8)
        .is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
}

/// A file that a script names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// By a path that begins as one of the site's `sendfile_roots`; percent-encoded.
    Path(&'a [u8]),
    /// By its own absolute name, as the script has it.
    File(&'a [u8]),
}

impl<'a> Named<'a> {
    /// What a script's answer names, if it does.
    pub fn by(said: &'a AnswerHead) -> Option<Named<'a>> {
        // Few scripts say anything of the kind.
        let may = |(name, _): (&[u8], &[u8])| matches!(name.first(), Some(b'x' | b'X'));
        if !said.headers().any(may) {
            return None;
        }
        let is_said = |value: &&[u8]| !value.is_empty();
        let path = said.header(REDIRECT).filter(is_said).map(Named::Path);
        path.or_else(|| said.header(SENDFILE).filter(is_said).map(Named::File))
    }

    pub(crate) fn field(self) -> &'static str {
        match self {
            Named::Path(_) => REDIRECT,
            Named::File(_) => SENDFILE,
        }
    }

    pub(crate) fn value(self) -> &'a [u8] {
        match self {
            Named::Path(value) | Named::File(value) => value,
        }
    }
}

/// The field by which nginx's scripts name a path.
pub(crate) const REDIRECT: &str = "X-Accel-Redirect";

/// The field by which Apache's scripts name a file.
pub(crate) const SENDFILE: &str = "X-Sendfile";
