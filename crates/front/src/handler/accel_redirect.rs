//! Files that a script has sent in place of its own answer: `X-Accel-Redirect` (nginx) and
//! `X-Sendfile` (Apache's mod_xsendfile). They reach what the site lists in `sendfile_roots`, and
//! nothing else. The answer is that of a static file, with the header that the script gave it.

use std::borrow::Cow;
use std::fmt::Write;
use std::io;
use std::sync::{Arc, Mutex};

use maitred_config::SendfileRoot;
use maitred_fastcgi::cgi::AnswerHead;
use maitred_http1::{Head, Method, is_hop_by_hop};
use maitred_rules::path::{clean_path, encode_path};
use percent_encoding::percent_decode;

use crate::backend::Backend;
use crate::handler::request;
use crate::handler::request::{Header, RequestContext, ServerHeaders};
use crate::handler::script_response::is_for_us;
use crate::http::client::{After, Content, HttpClient, Reply};
use crate::logging::access_log::RequestRecord;
use crate::site::files;
use crate::site::files::{Conditions, Entry};
use crate::site::resolver::{Refused, Resolver, Route, SiteFiles};
use crate::site::with;

/// The field by which nginx's scripts name a path.
const REDIRECT: &str = "X-Accel-Redirect";

/// The field by which Apache's scripts name a file.
const SENDFILE: &str = "X-Sendfile";

/// Fields that speak of the body that the script did not send (nginx drops the same).
const OF_THE_BODY: [&str; 7] = [
    "Content-Length",
    "Content-Encoding",
    "Content-Range",
    "Content-MD5",
    "Accept-Ranges",
    "ETag",
    "Last-Modified",
];

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

    fn field(self) -> &'static str {
        match self {
            Named::Path(_) => REDIRECT,
            Named::File(_) => SENDFILE,
        }
    }

    fn value(self) -> &'a [u8] {
        match self {
            Named::Path(value) | Named::File(value) => value,
        }
    }
}

/// The folders whose files a site's scripts may name.
#[derive(Default)]
pub struct SendfileRoots(Vec<Root>);

struct Root {
    /// What its paths begin with, without the slash at the end.
    prefix: String,
    resolver: Mutex<Resolver>,
}

/// Why a file that a script names is not sent.
struct NotSent {
    status: u16,
    why: Cow<'static, str>,
}

impl From<Refused> for NotSent {
    fn from(refused: Refused) -> NotSent {
        NotSent {
            // A path that is none is the script's mistake, and not the client's.
            status: if refused.status == 400 {
                404
            } else {
                refused.status
            },
            why: refused.why.into(),
        }
    }
}

fn not_found(why: impl Into<Cow<'static, str>>) -> NotSent {
    let why = why.into();
    NotSent { status: 404, why }
}

impl SendfileRoots {
    /// Has each folder opened; `files` is what is so for all of the site's.
    ///
    /// # Errors
    /// One sentence that names the folder that cannot be opened.
    pub fn open(
        roots: &[SendfileRoot],
        files: &SiteFiles,
        open: impl Fn(SiteFiles) -> Result<Mutex<Resolver>, String>,
    ) -> Result<SendfileRoots, String> {
        let opened = roots.iter().map(|root| {
            let prefix = root.path.trim_end_matches('/').to_owned();
            let files = SiteFiles {
                root: root.folder.clone(),
                index: Vec::new(),
                front_controller: None,
                prefix: prefix.clone(),
                ..files.clone()
            };
            let resolver = open(files)?;
            // An upload may be source, and the script decides who gets it.
            with(&resolver, Resolver::send_any_content);
            Ok(Root { prefix, resolver })
        });
        opened.collect::<Result<_, String>>().map(SendfileRoots)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, named: Named<'_>) -> Result<Arc<Entry>, NotSent> {
        if self.is_empty() {
            return Err(not_found(
                "the site has no sendfile_roots; name the file's folder there, such as \
                 sendfile_roots = { \"/protected/\" = \"/srv/files\" }",
            ));
        }
        let (root, path) = match named {
            Named::Path(path) => self.of_path(path)?,
            Named::File(file) => self.of_file(file)?,
        };
        match with(&root.resolver, |resolver| resolver.resolve(&path, None)) {
            Route::File(entry) => Ok(entry),
            Route::Refused(refused) => Err(refused.into()),
            Route::Script(_) => Err(not_found("it is a script, and PHP source is never sent")),
            Route::RedirectSlash(_) => Err(not_found("it is a folder")),
        }
    }

    fn of_path(&self, path: &[u8]) -> Result<(&Root, String), NotSent> {
        let path = path.split(|byte| *byte == b'?').next().unwrap_or_default();
        let decoded: Vec<u8> = percent_decode(path).collect();
        let encoded = encode_path(&decoded);
        let clean = clean_path(&encoded)?;
        let below = |root: &Root| {
            let rest = clean.as_bytes().strip_prefix(root.prefix.as_bytes());
            rest.filter(|rest| rest.starts_with(b"/")).map(encode_path)
        };
        self.longest(below).ok_or_else(|| {
            let prefixes = self.0.iter().map(|root| format!("{}/", root.prefix));
            let prefixes = prefixes.collect::<Vec<_>>().join(", ");
            not_found(format!(
                "it begins with none of the paths of the site's sendfile_roots ({prefixes})"
            ))
        })
    }

    fn of_file(&self, file: &[u8]) -> Result<(&Root, String), NotSent> {
        let below = |root: &Root| {
            let below = |resolver: &mut Resolver| resolver.below(file).map(encode_path);
            with(&root.resolver, below)
        };
        self.longest(below).ok_or_else(|| {
            let folder = |root: &Root| with(&root.resolver, |r| r.folder().display().to_string());
            let folders: Vec<String> = self.0.iter().map(folder).collect();
            let folders = folders.join(", ");
            not_found(format!(
                "it lies in none of the folders of the site's sendfile_roots ({folders}); name its \
                 folder there if it is to be sent"
            ))
        })
    }

    /// The root that lies deepest of those that hold the file, and the path in there.
    fn longest(&self, below: impl Fn(&Root) -> Option<String>) -> Option<(&Root, String)> {
        let found = self.0.iter();
        let found = found.filter_map(|root| below(root).map(|rest| (root, rest)));
        found.min_by_key(|(_, rest)| rest.len())
    }
}

/// What of a request decides how the file is sent: any method but HEAD counts as GET, as with nginx.
struct Asked<'a>(&'a Head);

impl Conditions for Asked<'_> {
    fn method(&self) -> &str {
        method(self.0)
    }

    fn header(&self, name: &str) -> Option<&str> {
        request::first_field(self.0, name)
    }
}

/// The file is the page of an error, which is sent whole.
struct Whole<'a>(&'a Head);

impl Conditions for Whole<'_> {
    fn method(&self) -> &str {
        method(self.0)
    }

    fn header(&self, _name: &str) -> Option<&str> {
        None
    }
}

fn method(head: &Head) -> &'static str {
    match head.kind() {
        Method::Head => "HEAD",
        _ => "GET",
    }
}

/// Answers with the file that a script names in the head `said` of its answer.
///
/// # Errors
/// When the client has gone or does not read, or the file has become shorter.
pub async fn answer(
    client: &mut impl HttpClient,
    head: &Head,
    (way, script): (&RequestContext<'_>, &str),
    said: &AnswerHead,
    record: &mut RequestRecord,
) -> io::Result<After> {
    let after = way.status.map_or(After::Keep, |(_, after)| after);
    let Some(named) = Named::by(said) else {
        return request::refuse(
            client,
            head,
            record,
            502,
            "The script's answer is not valid.",
        )
        .await;
    };
    let entry = match way.site.sendfile.find(named) {
        Ok(entry) => entry,
        Err(NotSent { status, why }) => {
            tell(way.backend, script, named, status, &why);
            let status = way.status.map_or(status, |(status, _)| status);
            let words = "The file cannot be sent.";
            return request::plain(client, head, record, status, None, words, after).await;
        }
    };
    let said_type = said.header("content-type").map(std::str::from_utf8);
    let typed = match said_type {
        Some(Ok(said_type)) => Some(entry.typed(said_type)),
        _ => None,
    };
    let entry = typed.as_ref().unwrap_or(&entry);
    let answer = match way.status {
        Some(_) => files::answer(entry, &Whole(head)),
        None => files::answer(entry, &Asked(head)),
    };
    let secured = client.secured().cloned();
    let mut headers: Vec<Header<'_>> = said.headers().filter(|(name, _)| is_kept(name)).collect();
    let id = record.id_sent();
    let beside = ServerHeaders::of(secured.as_deref(), id.as_ref());
    headers.extend(beside.as_slice().iter().filter(|(name, _)| {
        let mut all = said.headers();
        !all.any(|(said, _)| said.eq_ignore_ascii_case(name))
    }));
    let reply = Reply {
        request: head,
        status: way.status.map_or(answer.status, |(status, _)| status),
        headers: &headers,
        lines: &answer.headers,
        length: None,
        after,
    };
    let content = Content::of(&answer.body);
    client.answer(&reply, content, record).await?;
    Ok(after)
}

/// Whether a field of the script's answer belongs to the file's, too.
fn is_kept(name: &[u8]) -> bool {
    let is = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
    !is_hop_by_hop(name)
        && !is_for_us(name)
        && !is("content-type")
        && !is(SENDFILE)
        && !OF_THE_BODY.into_iter().any(is)
}

fn tell(backend: &Backend, script: &str, named: Named<'_>, status: u16, why: &str) {
    let mut value = String::new();
    for part in String::from_utf8_lossy(named.value()).chars() {
        // A control character would write over the line on a terminal.
        let _ = match part.is_control() {
            true => write!(value, "{}", part.escape_default()),
            false => write!(value, "{part}"),
        };
    }
    let field = named.field();
    backend.log(&format_args!(
        "{script}: {status}: its {field} is {value}: {why}"
    ));
}

impl Resolver {
    /// The path in the folder of a file that scripts know by this absolute name, if it lies there.
    fn below<'p>(&self, name: &'p [u8]) -> Option<&'p [u8]> {
        let roots = self.names().into_iter().flatten();
        let mut rests = roots.map(|root| name.strip_prefix(root));
        rests.find_map(|rest| rest.filter(|rest| rest.starts_with(b"/")))
    }
}
