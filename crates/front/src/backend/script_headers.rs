//! Response headers of scripts that are instructions to the server.

use maitred_fastcgi::cgi::CgiHeaders;

/// Whether a header is an instruction to the web server (nginx's `X-Accel-…`).
pub fn is_for_us(name: &[u8]) -> bool {
    name.get(..8).is_some_and(|start| start.eq_ignore_ascii_case(b"x-accel-"))
}

/// The file that a script's response names to be sent instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Named<'a> {
    /// A path below one of the site's `sendfile_roots`; percent-encoded.
    Path(&'a [u8]),
    /// An absolute file name.
    File(&'a [u8]),
}

impl<'a> Named<'a> {
    /// The file that a response names; none: it names none.
    pub fn by(said: &'a CgiHeaders) -> Option<Named<'a>> {
        // Few responses have such headers.
        let may = |(name, _): (&[u8], &[u8])| matches!(name.first(), Some(b'x' | b'X'));
        if !said.headers().any(may) {
            return None;
        }
        let is_said = |value: &&[u8]| !value.is_empty();
        let path = said.header(REDIRECT).filter(is_said).map(Named::Path);
        path.or_else(|| said.header(SENDFILE).filter(is_said).map(Named::File))
    }

    /// Whether the script leaves its request to the classic pool of its site.
    pub fn is_classic_pool(self) -> bool {
        matches!(self, Named::Path(CLASSIC_POOL))
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

/// The name of the classic pool in nginx's header, as that of a named location.
const CLASSIC_POOL: &[u8] = b"@classic";

/// nginx's header for a path.
pub(crate) const REDIRECT: &str = "X-Accel-Redirect";

/// Apache's header for a file.
pub(crate) const SENDFILE: &str = "X-Sendfile";
