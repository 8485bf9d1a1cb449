//! What `.htaccess` files say about a response and about PHP's variables.

use std::cell::RefCell;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use maitred_htaccess::conf::Conf;
use maitred_htaccess::file::Mistake;
use maitred_htaccess::process::Scope;
use maitred_htaccess::request::{Client, LocalTime, Request, Stat, World};
use maitred_htaccess::response::ResponseTables;
use maitred_htaccess::table::Table;
use maitred_pagecache::headers::{self, NameSet};
use maitred_rules::response_headers::refuse_header;

use crate::http::headers::Header;
use crate::runtime::clock;
use crate::site::Site;
use crate::site::directory_confs::SiteWorld;
use crate::site::evaluation_time::EvaluationTime;
use crate::site::name_lookups::{self, DoneLookups};

/// A header that outlives its request.
pub type OwnedHeader = (Vec<u8>, Vec<u8>);

/// The directives of a request after its last round.
pub struct Directives {
    /// The last round.
    pub request: Arc<Request>,
    /// The client.
    pub client: Arc<Client>,
    /// The site, for expressions that look at files.
    pub site: Arc<Site>,
    /// The lookups of [`Directives::look_ahead`].
    lookups: Mutex<DoneLookups>,
}

/// The directives about the headers of a response could not be evaluated, since they take too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unevaluated;

/// What a response comes from: Apache's filters apply to each in their own way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseSource {
    /// The file of the request.
    File,
    /// A file that a script names: what directives say about the type is for the script's name.
    NamedFile,
    /// A script.
    Script,
    /// The server itself: an error, a redirect, a listing.
    Server,
}

/// The type of Apache's own pages, as conditions of headers see it.
const SERVERS_TYPE: &[u8] = b"text/html; charset=iso-8859-1";

/// Most names in `Vary`. No cache distinguishes responses by as many headers.
const MAX_VARY_NAMES: usize = 1024;

/// Variables that tell PHP's interface what to do: not for a directive.
const RESERVED: [&[u8]; 5] =
    [b"PHP_VALUE", b"PHP_ADMIN_VALUE", b"FCGI_ROLE", b"HTTP_PROXY", b"REQUEST_BODY_FILE"];

impl fmt::Debug for Directives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Directives { request, client, .. } = self;
        f.debug_struct("Directives").field("request", request).field("client", client).finish()
    }
}

impl Directives {
    /// The directives of a request, by its last round.
    pub fn new(request: Arc<Request>, client: Arc<Client>, site: Arc<Site>) -> Directives {
        Directives { request, client, site, lookups: Mutex::default() }
    }

    /// Whether they change headers of responses.
    pub fn changes_headers(&self) -> bool {
        let request = &self.request;
        let conf = &request.conf;
        !conf.headers.success.is_empty()
            || !conf.headers.always.is_empty()
            || conf.expires.is_on == Some(true)
            || !request.headers_out.is_empty()
            || request.content_type.is_some()
            || request.charset.is_some()
            || request.content_encoding.is_some()
            || !request.content_language.is_empty()
            || conf.core.default_charset.is_some()
            || conf.core.sends_etag == Some(false)
    }

    /// The headers of a response as the directives change them. Those of the connection are the
    /// server's own.
    ///
    /// # Errors
    /// When they could not be evaluated: the response must not be sent without what they say.
    pub fn change(
        &self,
        status: u16,
        headers: &[Header<'_>],
        source: ResponseSource,
    ) -> Result<Vec<OwnedHeader>, Unevaluated> {
        self.change_all(status, headers, source, true)
    }

    /// The headers of a script's response as a cache needs them: `Vary` has none of the headers
    /// that rewrites read. A script that is another one for them is not cached
    /// (`RequestContext::depends_on_client`).
    ///
    /// # Errors
    /// As [`Directives::change`].
    pub fn change_for_cache(
        &self,
        status: u16,
        headers: &[Header<'_>],
    ) -> Result<Vec<OwnedHeader>, Unevaluated> {
        self.change_all(status, headers, ResponseSource::Script, false)
    }

    fn change_all(
        &self,
        status: u16,
        headers: &[Header<'_>],
        source: ResponseSource,
        varies_by_rewrites: bool,
    ) -> Result<Vec<OwnedHeader>, Unevaluated> {
        let mut tables = ResponseTables::default();
        let mut all = Vec::new();
        for (name, value) in headers {
            match is_servers(name) {
                true if name.eq_ignore_ascii_case(b"content-length") => {}
                true => all.push((name.to_vec(), value.to_vec())),
                false => tables.success.add(name, *value),
            }
        }
        if source == ResponseSource::File {
            self.set_type(&mut tables.success);
        }
        if matches!(source, ResponseSource::File | ResponseSource::NamedFile)
            && self.request.conf.core.sends_etag == Some(false)
        {
            tables.success.unset(b"ETag");
        }
        let is_described = match source {
            ResponseSource::File | ResponseSource::Script => true,
            ResponseSource::NamedFile => false,
            // The text of an `ErrorDocument`.
            ResponseSource::Server => status >= 400 && status == self.request.status,
        };
        if is_described {
            self.describe(&mut tables.success);
        }
        let request = &self.request;
        let is_error = self.is_error(status, source);
        let is_left_out = |name: &[u8]| !varies_by_rewrites && name.eq_ignore_ascii_case(b"vary");
        for (name, value) in request.headers_out.iter().filter(|(name, _)| !is_left_out(name)) {
            // Apache's errors and redirects have none of these but cookies.
            let is_cookie = name.eq_ignore_ascii_case(b"set-cookie");
            if is_cookie || (!is_error && !name.eq_ignore_ascii_case(b"location")) {
                tables.success.add(name, value);
            }
        }
        let media_type = match source {
            ResponseSource::Server => Some(SERVERS_TYPE.to_vec()),
            _ => tables.success.get(b"Content-Type").map(<[u8]>::to_vec),
        };
        let read = RefCell::default();
        let (client, depth, vary) = (&self.client, 0, Some(&read));
        let mut apply = |request: &Request, world: &dyn World| {
            let scope = Scope { request, client, world, depth, vary };
            tables.apply(&scope, is_error).map_err(|_| Unevaluated)
        };
        match request.conf.headers.have_expressions() {
            false => apply(request, &NoFiles(EvaluationTime::start()))?,
            true => {
                // Conditions see the type and the status of the response.
                let mut request = Request { work: Arc::default(), ..Request::clone(request) };
                if source == ResponseSource::File && request.handler.is_none() {
                    request.handler = media_type.as_deref().map(handler_of_type);
                }
                request.content_type = media_type;
                request.status = status;
                self.with_files(|world| apply(&request, world)).ok_or(Unevaluated)??;
            }
        }
        if !is_error {
            for name in read.into_inner() {
                tables.success.append(b"Vary", &name);
            }
        }
        if status < 400 {
            self.expire(&mut tables.success, source);
        }
        unify_vary(&mut tables.success);
        all.extend(owned(&tables.success));
        // Those of `always` replace nothing: Apache has two tables, and sends both.
        all.extend(owned(&tables.always));
        Ok(all)
    }

    /// Whether Apache sends an error or a redirect of its own, which gets headers with `always`
    /// alone (`ap_headers_error_filter`).
    fn is_error(&self, status: u16, source: ResponseSource) -> bool {
        match source {
            ResponseSource::Script => false,
            ResponseSource::File | ResponseSource::NamedFile if status == 304 => false,
            // The page of an `ErrorDocument` is none of these.
            ResponseSource::File | ResponseSource::NamedFile => {
                status >= 300 && status != self.request.status
            }
            ResponseSource::Server => {
                status >= 300 && (status < 400 || status != self.request.status)
            }
        }
    }

    fn set_type(&self, headers: &mut Table) {
        let own = headers.get(b"Content-Type").unwrap_or_default();
        // Its parts have the type of the file.
        if own.starts_with(b"multipart/byteranges") {
            return;
        }
        let media_type = self.file_type(own);
        if !media_type.is_empty() {
            headers.set(b"Content-Type", media_type);
        }
    }

    /// The type of the request's file as the directives say it; `own` is the one without them.
    pub fn file_type(&self, own: &[u8]) -> Vec<u8> {
        let (request, core) = (&self.request, &self.request.conf.core);
        let is_described = request.charset.is_some()
            || request.content_encoding.is_some()
            || !request.content_language.is_empty();
        let inner = || inner_type(request.base_name()).filter(|_| is_described);
        let set = request.content_type.clone().or_else(inner);
        let own = set.unwrap_or_else(|| own.to_vec());
        // That of the server's own types gives way.
        let has_charset =
            request.content_type.is_some() && memchr::memmem::find(&own, b"charset=").is_some();
        let is_text = own.starts_with(b"text/html") || own.starts_with(b"text/plain");
        let default =
            core.default_charset.as_ref().filter(|charset| !charset.is_empty() && is_text);
        match request.charset.as_ref().or(default) {
            Some(charset) if !own.is_empty() && (!has_charset || request.charset.is_some()) => {
                let base = own.split(|byte| *byte == b';').next().unwrap_or_default();
                [base, b"; charset=", charset].concat()
            }
            _ => own,
        }
    }

    /// Sets encoding and languages by the extensions of the file, also those of a script's
    /// (`ap_http_header_filter`).
    fn describe(&self, headers: &mut Table) {
        let request = &self.request;
        if let Some(encoding) = &request.content_encoding {
            headers.set(b"Content-Encoding", encoding.clone());
        }
        if !request.content_language.is_empty() && headers.get(b"Content-Language").is_none() {
            headers.set(b"Content-Language", request.content_language.join(&b", "[..]));
        }
    }

    fn expire(&self, headers: &mut Table, source: ResponseSource) {
        let expires = &self.request.conf.expires;
        if headers.get(b"Expires").is_some() {
            return;
        }
        let media_type = match source {
            // Apache's redirects have a page.
            ResponseSource::Server => b"text/html".to_vec(),
            _ => headers.get(b"Content-Type").unwrap_or_default().to_vec(),
        };
        let Some(expiry) = expires.expiry(&media_type) else { return };
        let mut seconds = expiry.seconds;
        if expiry.from_modification {
            let Some(modified) = self.modified() else { return };
            let age = clock::since_1970().as_secs().cast_signed().saturating_sub(modified);
            seconds = seconds.saturating_sub(age);
        }
        let seconds = seconds.max(0).cast_unsigned();
        headers.append(b"Cache-Control", format!("max-age={seconds}").as_bytes());
        let at = clock::since_1970().as_secs().saturating_add(seconds);
        headers.set(b"Expires", clock::http_date_of(at));
    }

    /// When the file of the request was last changed, in seconds since 1970: also of a script.
    fn modified(&self) -> Option<i64> {
        let found = self.with_files(|world| world.stat(&self.request.filename));
        found.flatten().map(|stat| stat.modified)
    }

    /// Whether changes of headers look up files.
    pub fn reads_files(&self) -> bool {
        let conf = &self.request.conf;
        conf.headers.have_expressions() || conf.expires.is_on == Some(true)
    }

    /// Looks up the files that changes of these headers depend on, so that [`Directives::change`]
    /// finds them: it cannot wait for a lookup.
    pub async fn look_ahead(&self, status: u16, headers: &[Header<'_>], source: ResponseSource) {
        let look = || self.change(status, headers, source).is_ok();
        if let Ok(kept) = name_lookups::run_and_keep(&self.site.tenant, look).await {
            *self.lock_lookups() = kept.done.closed();
        }
    }

    fn lock_lookups(&self) -> MutexGuard<'_, DoneLookups> {
        self.lookups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the files of the site, as far as it needs no other lookup than those of
    /// [`look_ahead`].
    ///
    /// [`look_ahead`]: Directives::look_ahead
    fn with_files<T>(&self, work: impl FnOnce(&SiteWorld<'_>) -> T) -> Option<T> {
        let run = || self.site.with_htaccess(|world, _| work(world));
        let found = match name_lookups::is_within() {
            true => run(),
            false => name_lookups::if_known(&mut self.lock_lookups(), run)?,
        };
        found.ok().flatten()
    }

    /// PHP's variables, in order: a later one replaces an earlier one of its name.
    pub fn variables(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let is_free = |name: &[u8]| !RESERVED.iter().any(|own| own.eq_ignore_ascii_case(name));
        self.request.env.iter().filter(move |(name, _)| is_free(name))
    }

    /// The settings of PHP, a line each.
    pub fn php_values(&self) -> Vec<u8> {
        let lines = self.request.conf.php.iter();
        let lines = lines.map(|value| [&value.name[..], b"=", &value.value].concat());
        lines.collect::<Vec<_>>().join(&b'\n')
    }
}

/// The handler of a file that has none by a directive: its type, without parameters
/// (`ap_invoke_handler`).
fn handler_of_type(media_type: &[u8]) -> Vec<u8> {
    let end = memchr::memchr(b';', media_type).unwrap_or(media_type.len());
    media_type[..end].trim_ascii_end().to_vec()
}

/// One `Vary` with each name once (`fixup_vary`), or `*` in place of too many names.
fn unify_vary(headers: &mut Table) {
    let mut known = NameSet::default();
    let mut names: Vec<Vec<u8>> = Vec::new();
    for name in headers::values(headers.iter(), "vary").flat_map(headers::members) {
        if known.insert(name) {
            names.push(name.to_vec());
        }
        if names.len() > MAX_VARY_NAMES {
            names = vec![b"*".to_vec()];
            break;
        }
    }
    if !names.is_empty() {
        headers.set(b"Vary", names.join(&b", "[..]));
    }
}

/// The type of a name whose last extension only describes the content: `x.html.de`.
fn inner_type(name: &[u8]) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    let mut extensions = name.split('.').skip(1).collect::<Vec<_>>();
    extensions.reverse();
    let found = extensions.iter().find_map(|extension| {
        let described = ["gz", "z", "bz2", "br"].contains(extension);
        (!described).then(|| mime_guess::from_ext(extension).first_raw()).flatten()
    });
    found.map(|media_type| media_type.as_bytes().to_vec())
}

/// Whether a header is about the connection or the body: no directive changes it.
fn is_servers(name: &[u8]) -> bool {
    std::str::from_utf8(name).is_ok_and(|name| refuse_header(name).is_some())
}

fn owned(table: &Table) -> Vec<OwnedHeader> {
    let headers = table.iter().filter(|(name, _)| !is_servers(name));
    headers.map(|(name, value)| (name.to_vec(), value.to_vec())).collect()
}

/// Conditions of headers are evaluated without files.
struct NoFiles(EvaluationTime);

impl World for NoFiles {
    fn stat(&self, _path: &[u8]) -> Option<Stat> {
        None
    }

    fn is_link(&self, _path: &[u8]) -> bool {
        false
    }

    fn conf(&self, _directory: &[u8]) -> Result<Arc<Conf>, Mistake> {
        Ok(Arc::default())
    }

    fn time(&self) -> LocalTime {
        clock::local_time()
    }

    fn http_date(&self, seconds: i64) -> Vec<u8> {
        clock::http_date_in(seconds).into_bytes()
    }

    fn is_late(&self) -> bool {
        self.0.is_over()
    }

    fn variable(&self, _name: &[u8]) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vary(values: &[&str]) -> String {
        let mut table = Table::default();
        values.iter().for_each(|value| table.add(b"Vary", *value));
        unify_vary(&mut table);
        let all: Vec<_> = table.iter().map(|(_, value)| String::from_utf8_lossy(value)).collect();
        all.join("|")
    }

    #[test]
    fn vary_has_each_name_once_and_too_many_are_a_star() {
        assert_eq!(vary(&["Cookie, ACCEPT,,", "accept , Host"]), "Cookie, ACCEPT, Host");
        assert_eq!((vary(&[]), vary(&[" ,"])), (String::new(), " ,".to_owned()));
        let names = |count: usize| {
            let names: Vec<String> = (0..count).map(|number| format!("x{number}")).collect();
            names.join(", ")
        };
        assert_eq!(vary(&[&names(MAX_VARY_NAMES)]), names(MAX_VARY_NAMES));
        assert_eq!(vary(&[&names(MAX_VARY_NAMES + 1)]), "*");
        assert_eq!(vary(&[&names(90_000), "Cookie"]), "*");
    }
}
