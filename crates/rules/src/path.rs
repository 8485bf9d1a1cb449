//! Normalisation of request paths, and the names that are never served.
//!
//! No I/O.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode, percent_encode_byte};

/// Why a request gets no file and no script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The response status.
    pub status: u16,
    /// One sentence for the log, not for the client.
    pub why: &'static str,
    /// Whether it is logged for the operator: a file that should not be there, or that cannot be
    /// read. Missing files are requested all the time and are not logged.
    pub is_notable: bool,
}

impl Refused {
    /// A refusal that is not logged.
    pub fn plain(status: u16, why: &'static str) -> Refused {
        Refused { status, why, is_notable: false }
    }

    /// A refusal that is logged.
    pub fn notable(status: u16, why: &'static str) -> Refused {
        Refused { status, why, is_notable: true }
    }
}

/// A path that has been decoded once and normalised: it starts with `/`, and has no empty, `.` or
/// `..` segment and no control byte. It need not be UTF-8.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CleanPath<'a> {
    bytes: Cow<'a, [u8]>,
    names_end: usize,
    opaque_from: usize,
    hidden: bool,
}

impl CleanPath<'_> {
    /// A copy that borrows nothing.
    pub fn into_owned(self) -> CleanPath<'static> {
        CleanPath {
            bytes: Cow::Owned(self.bytes.into_owned()),
            names_end: self.names_end,
            opaque_from: self.opaque_from,
            hidden: self.hidden,
        }
    }

    /// The full decoded path: nginx's `$uri`.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of leading bytes that may be looked up in the file system. The rest, if any, starts
    /// at a segment that is hidden or contained an encoded slash; it can only be the PATH_INFO of a
    /// script before it.
    pub fn names_end(&self) -> usize {
        self.names_end
    }

    /// Number of leading bytes before the first segment that contained an encoded slash; all of
    /// them if there is none.
    pub fn opaque_from(&self) -> usize {
        self.opaque_from
    }

    /// The rest of the path in the folder of an `alias` (nginx's word): with a slash at its start,
    /// or empty if the path is that of the folder without its slash. None for a path elsewhere:
    /// below an encoded slash are no files.
    pub fn in_alias(&self, alias: &str) -> Option<&[u8]> {
        let alias = alias.trim_end_matches('/');
        let rest = self.bytes.strip_prefix(alias.as_bytes())?;
        let is_within = rest.is_empty() || rest.starts_with(b"/");
        (is_within && alias.len() <= self.opaque_from).then_some(rest)
    }

    /// A segment starts with a dot and is not the `/.well-known/` of RFC 8615.
    pub fn is_hidden(&self) -> bool {
        self.hidden
    }

    /// The path ends with a slash, so it names a directory or nothing.
    pub fn ends_with_slash(&self) -> bool {
        self.bytes.ends_with(b"/")
    }
}

/// Decodes `raw`, the path of a request target without its query, and resolves its dot segments
/// (RFC 3986 §5.2.4).
///
/// `//` counts as `/`, as in nginx. A backslash is an ordinary byte. `%252e` is decoded once and is
/// then plain text.
///
/// # Errors
///
/// 400 if `raw` does not begin with a slash, has a `%` without two hexadecimal digits, decodes to a
/// control byte, or climbs above the root with `..` in any encoding.
pub fn clean_path(raw: &str) -> Result<CleanPath<'_>, Refused> {
    let bytes = raw.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err(bad("the path does not begin with a slash"));
    }
    if is_plain(bytes) {
        return Ok(CleanPath {
            bytes: Cow::Borrowed(bytes),
            names_end: bytes.len(),
            opaque_from: bytes.len(),
            hidden: false,
        });
    }
    let mut builder = Builder::default();
    for segment in bytes[1..].split(|byte| *byte == b'/') {
        builder.push_raw(segment)?;
    }
    Ok(builder.finish())
}

/// The path for a `Location` header: a single leading slash, all unusual bytes encoded, so that no
/// client can interpret it as another host (`//host`, `/\host`).
pub fn encode_path(path: &[u8]) -> String {
    /// Everything but the `pchar` of RFC 3986 §3.3 and the slash.
    const OUTSIDE_PATH: &AsciiSet = &CONTROLS
        .add(b' ')
        .add(b'"')
        .add(b'#')
        .add(b'%')
        .add(b'<')
        .add(b'>')
        .add(b'?')
        .add(b'[')
        .add(b'\\')
        .add(b']')
        .add(b'^')
        .add(b'`')
        .add(b'{')
        .add(b'|')
        .add(b'}');
    percent_encode(path, OUTSIDE_PATH).to_string()
}

/// A query as text: bytes that are not UTF-8 are percent-encoded, which a script decodes to the
/// same.
pub fn query_text(query: &[u8]) -> String {
    let mut text = String::with_capacity(query.len());
    for chunk in query.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|byte| percent_encode_byte(*byte)));
    }
    text
}

/// Whether the last segment of `path` names a file with PHP source that is not to be run: another
/// case (`x.PHP`), an unused extension (`.phtml`, `.phar`, `.php5`, `.phpbak`), or a backup
/// (`x.php~`, `x.php.bak`, `x.php.`). `x.php` itself is PHP source, too: it is run, and must not be
/// sent.
///
/// `page.php.html` and similar names may be saved responses, and do not count: their content
/// decides ([`crate::php_source`]).
pub fn is_php_source(path: &[u8]) -> bool {
    /// Extensions after `.php` of files that are no PHP source: mirrored pages, generated assets,
    /// and listings that are published as `.txt`.
    const RENDERED: [&[u8]; 20] = [
        b"html", b"htm", b"css", b"js", b"mjs", b"json", b"map", b"xml", b"svg", b"png", b"jpg",
        b"jpeg", b"gif", b"webp", b"avif", b"ico", b"pdf", b"txt", b"md", b"woff2",
    ];
    let name = last_name(path).to_ascii_lowercase();
    let last_extension = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    let mentions_php = name.split(|byte| *byte == b'.').skip(1).any(|part| {
        let end = part.iter().position(|byte| !byte.is_ascii_alphanumeric());
        is_php_extension(&part[..end.unwrap_or(part.len())])
    });
    let is_variant = name.contains(&b'.') && last_extension.starts_with(b"php");
    (mentions_php || is_variant) && !RENDERED.contains(&last_extension)
}

/// Whether the last segment of `path` mentions PHP after its first dot: `config.php.txt`.
pub fn mentions_php(path: &[u8]) -> bool {
    let name = last_name(path).to_ascii_lowercase();
    let mut extensions = name.split(|byte| *byte == b'.').skip(1);
    extensions.any(|part| part.starts_with(b"php") || part.starts_with(b"pht"))
}

/// Whether the last segment of `path` starts with a dot.
pub fn is_dot_name(path: &[u8]) -> bool {
    last_name(path).starts_with(b".")
}

/// The extensions that the web server configurations of Debian and upstream have assigned to PHP,
/// in lower case.
fn is_php_extension(extension: &[u8]) -> bool {
    match extension.strip_prefix(b"php") {
        Some(rest) => {
            rest.is_empty() || rest.iter().all(u8::is_ascii_digit) || rest == b"s" || rest == b"t"
        }
        None => matches!(extension, b"phtml" | b"phar" | b"pht"),
    }
}

fn last_name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// Nothing to decode, merge, resolve or hide: the usual case, which costs one pass and no copy.
fn is_plain(bytes: &[u8]) -> bool {
    let mut previous = 0;
    for &byte in bytes {
        let after_slash = previous == b'/' && (byte == b'/' || byte == b'.');
        if after_slash || byte == b'%' || byte.is_ascii_control() {
            return false;
        }
        previous = byte;
    }
    true
}

fn bad(why: &'static str) -> Refused {
    Refused::plain(400, why)
}

/// The path of the segments so far, resolved: `/a/b`, without a trailing slash.
#[derive(Default)]
struct Builder {
    resolved: Vec<u8>,
    open_end: bool,
    opaque_from: Option<usize>,
}

impl Builder {
    fn push_raw(&mut self, raw: &[u8]) -> Result<(), Refused> {
        let decoded = decode(raw)?;
        let mut pieces = decoded.split(|byte| *byte == b'/');
        if let Some(first) = pieces.next() {
            if first.len() < decoded.len() {
                self.opaque_from.get_or_insert(self.resolved.len());
            }
            self.push(first)?;
        }
        pieces.try_for_each(|piece| self.push(piece))
    }

    fn push(&mut self, segment: &[u8]) -> Result<(), Refused> {
        self.open_end = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                let Some(parent) = memchr::memrchr(b'/', &self.resolved) else {
                    return Err(bad("the path climbs above the document root with `..`"));
                };
                self.resolved.truncate(parent);
                // The segment with the encoded slash may be removed now; the rest is no file name
                // all the same.
                self.opaque_from = self.opaque_from.map(|from| from.min(parent));
            }
            name => {
                self.resolved.push(b'/');
                self.resolved.extend_from_slice(name);
            }
        }
        Ok(())
    }

    fn finish(mut self) -> CleanPath<'static> {
        if self.open_end || self.resolved.is_empty() {
            self.resolved.push(b'/');
        }
        let bytes = self.resolved;
        let hidden_from = first_hidden(&bytes);
        let opaque_from = self.opaque_from.unwrap_or(bytes.len());
        let names_end = opaque_from.min(hidden_from.unwrap_or(bytes.len()));
        CleanPath {
            bytes: Cow::Owned(bytes),
            names_end,
            opaque_from,
            hidden: hidden_from.is_some(),
        }
    }
}

/// The position of the first segment with a leading dot (at its slash), except a leading
/// `/.well-known`.
fn first_hidden(path: &[u8]) -> Option<usize> {
    const WELL_KNOWN: &[u8] = b"/.well-known";
    let rest = path.strip_prefix(WELL_KNOWN).filter(|rest| rest.starts_with(b"/"));
    let skip = rest.map_or(0, |_| WELL_KNOWN.len());
    memchr::memmem::find(&path[skip..], b"/.").map(|at| at + skip)
}

fn decode(raw: &[u8]) -> Result<Cow<'_, [u8]>, Refused> {
    for at in memchr::memchr_iter(b'%', raw) {
        let digits = raw.get(at + 1..at + 3).unwrap_or_default();
        if digits.len() < 2 || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(bad("a `%` in the path is not followed by two hexadecimal digits"));
        }
    }
    let decoded: Cow<'_, [u8]> = percent_decode(raw).into();
    if decoded.iter().any(u8::is_ascii_control) {
        return Err(bad("the path holds a control byte"));
    }
    Ok(decoded)
}
