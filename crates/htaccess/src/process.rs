//! The phases of a request, in Apache's order (`ap_process_request_internal`): its file and
//! configuration, variables, access, types, fixups; and its internal redirects.

mod fixups;
mod map_file;
mod subrequest;

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use crate::conf::Conf;
use crate::conf::access_compat::Satisfy;
use crate::conf::authz::Granted;
use crate::conf::core::{Handler, PathInfo};
use crate::conf::small::EnvVariable;
use crate::expr::Evaluation;
use crate::file::Mistake;
use crate::handlers::{
    PHP, SERVER_PARSED, has_includes, is_php_handler, is_php_name, is_program, shows_source,
};
use crate::regex::TooCostly;
use crate::request::{Client, Kind, Previous, Request, World};
use crate::rewrite::{self, Rewritten};

/// Most internal redirects of a request (`LimitInternalRecursion`).
const MAX_REDIRECTS: usize = 10;

/// Most nested subrequests.
const MAX_SUBREQUESTS: u8 = 10;

/// A request, and all that its directives may ask.
#[derive(Clone, Copy)]
pub struct Scope<'w> {
    /// The request.
    pub request: &'w Request,
    /// Its client.
    pub client: &'w Client,
    /// Files and directories.
    pub world: &'w dyn World,
    /// How many subrequests this one is within.
    pub depth: u8,
    /// Names of request headers that expressions have read.
    pub vary: Option<&'w RefCell<Vec<Vec<u8>>>>,
}

impl std::fmt::Debug for Scope<'_> {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Scope").field("uri", &self.request.uri).finish_non_exhaustive()
    }
}

/// Why a phase ends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stop {
    /// With this status; the `Location` of a redirect is in the request.
    Status(u16),
    /// An authenticated user is needed.
    NeedsUser,
    /// A file has a mistake.
    Mistake(Mistake),
    /// A regular expression is too costly.
    TooCostly,
}

impl From<TooCostly> for Stop {
    fn from(_: TooCostly) -> Stop {
        Stop::TooCostly
    }
}

/// The decision on a request.
#[derive(Debug)]
pub struct Decision {
    /// The last round of the request.
    pub request: Request,
    /// What becomes of it.
    pub outcome: Outcome,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The file is sent.
    File,
    /// PHP runs the file.
    Script,
    /// The directory is listed.
    Listing,
    /// A response with this status.
    Status(u16),
    /// An authenticated user is needed.
    NeedsUser,
    /// A file has a mistake: 500.
    Mistake(Mistake),
    /// A regular expression is too costly: 500.
    TooCostly,
}

/// The evaluation of requests.
#[derive(Clone, Copy)]
pub struct Processor<'w> {
    /// The client.
    pub client: &'w Client,
    /// Files and directories.
    pub world: &'w dyn World,
    depth: u8,
    vary: Option<&'w RefCell<Vec<Vec<u8>>>>,
}

impl<'w> Processor<'w> {
    /// An evaluation for a client.
    pub fn new(client: &'w Client, world: &'w dyn World) -> Processor<'w> {
        Processor { client, world, depth: 0, vary: None }
    }

    /// Decides on a request.
    pub fn decide(&self, request: Request) -> Decision {
        let mut request = request;
        let mut redirects = 0;
        loop {
            if let Err(stop) = self.process(&mut request) {
                let outcome = match stop {
                    Stop::Status(status) => Outcome::Status(status),
                    Stop::NeedsUser => Outcome::NeedsUser,
                    Stop::Mistake(mistake) => Outcome::Mistake(mistake),
                    Stop::TooCostly => Outcome::TooCostly,
                };
                return Decision { request, outcome };
            }
            let Some(target) = request.redirect.take() else {
                let outcome = handle(&request);
                return Decision { request, outcome };
            };
            let target = match &request.args {
                Some(args) => [&target[..], b"?", args].concat(),
                None => target,
            };
            let shown = String::from_utf8_lossy(&target);
            self.world.note(&|| format!("round another one, with {shown}"));
            redirects += 1;
            request = match redirected(&request, &target, request.status) {
                Ok(next) if redirects <= MAX_REDIRECTS => Request { redirects, ..next },
                Ok(_) => return Decision { request, outcome: Outcome::Status(500) },
                // No directive of a folder applies to a path that cannot be decoded.
                Err(status) => {
                    let request = Request { conf: Arc::default(), ..request };
                    return Decision { request, outcome: Outcome::Status(status) };
                }
            };
        }
    }

    /// The request for the page of an error; its method is GET.
    ///
    /// # Errors
    /// The status for a page whose path cannot be decoded.
    pub fn error_request(
        &self,
        before: &Request,
        page: &[u8],
        status: u16,
    ) -> Result<Request, u16> {
        let mut request = redirected(before, page, status)?;
        request.headers_out.unset(b"Vary");
        request.env.set(b"REDIRECT_REQUEST_METHOD", before.method.clone());
        request.method = b"GET".to_vec();
        Ok(request)
    }

    fn scope<'s>(&'s self, request: &'s Request) -> Scope<'s> {
        let Processor { client, world, depth, vary } = *self;
        Scope { request, client, world, depth, vary }
    }

    /// All phases of one round. What its expressions read becomes its Vary header.
    fn process(&self, request: &mut Request) -> Result<(), Stop> {
        let read = RefCell::default();
        let mut result = Processor { vary: Some(&read), ..*self }.phases(request);
        // A subrequest that was given up is one that failed, for the condition that asked for it.
        // A mistake says more than that it is late.
        let is_refused = matches!(result, Err(Stop::Status(400..) | Stop::Mistake(_)));
        if !is_refused && self.scope(request).check_time().is_err() {
            result = Err(Stop::TooCostly);
        }
        let vary = request.headers_out.get(b"Vary").unwrap_or_default();
        let names = vary.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
        let mut known: HashSet<Vec<u8>> = names.map(<[u8]>::to_ascii_lowercase).collect();
        for name in read.into_inner() {
            if known.insert(name.to_ascii_lowercase()) {
                request.headers_out.append(b"Vary", &name);
            }
        }
        result
    }

    fn phases(&self, request: &mut Request) -> Result<(), Stop> {
        self.walk(request)?;
        if let Some(uri) = request.uri_of_file.take() {
            request.uri = uri;
        }
        self.sections(request)?;
        if !request.is_sub {
            for rule in &Arc::clone(&request.conf).setenvif {
                self.scope(request).check_time()?;
                for EnvVariable { name, value } in rule.changes(&self.scope(request))? {
                    match value {
                        Some(value) => request.env.set(&name, value),
                        None => request.env.unset(&name),
                    }
                }
            }
        }
        // `ap_process_request_internal` does not check by the same rules again.
        if request.checked.as_ref() != Some(&request.walked) {
            request.choose_user();
            self.access(request)?;
        }
        self.types(request)?;
        self.fixups(request)
    }

    fn access(&self, request: &Request) -> Result<(), Stop> {
        let conf = &request.conf;
        if conf.authz.denies || conf.access.as_ref().is_some_and(|access| access.is_wrong) {
            return Err(Stop::Status(403));
        }
        let mut admits = match &conf.access {
            Some(access) => access.admits(request, self.client),
            None => true,
        };
        // `ssl_hook_Access`.
        let lacks_tls = conf.core.requires_tls && !self.client.is_https;
        admits &= !lacks_tls;
        let satisfies = conf.access.as_ref().and_then(|access| access.satisfies(&request.method));
        match (satisfies, admits) {
            (Some(Satisfy::Any), true) => return Ok(()),
            (Some(Satisfy::Any), false) | (_, true) => {}
            (_, false) => return Err(Stop::Status(403)),
        }
        let Some(section) = &conf.authz.section else {
            // A type of authentication without a requirement (AH01627).
            return if conf.authn.is_set() { Err(Stop::Status(500)) } else { Ok(()) };
        };
        let granted = section.check(&self.scope(request), true)?;
        // A pattern that was skipped after the time limit decides nothing.
        self.scope(request).check_time()?;
        // `ssl_hook_UserCheck`: no user is let in where access without TLS is strictly forbidden.
        let is_of_user = granted == Granted::WithUser || request.user.is_some();
        if lacks_tls && is_of_user && conf.core.is_tls_strict == Some(true) {
            return Err(Stop::Status(403));
        }
        match granted {
            Granted::Yes => Ok(()),
            Granted::No | Granted::Neutral if request.user.is_some() => {
                let forbids = conf.authz.forbids_on_failure == Some(true);
                Err(if forbids { Stop::Status(403) } else { Stop::NeedsUser })
            }
            Granted::No | Granted::Neutral => Err(Stop::Status(403)),
            Granted::WithUser if conf.authn.is_set() => Err(Stop::NeedsUser),
            Granted::WithUser => Err(Stop::Status(500)),
        }
    }

    fn types(&self, request: &mut Request) -> Result<(), Stop> {
        let conf = Arc::clone(&request.conf);
        if request.kind != Kind::Directory && is_php_name(request.base_name()) {
            request.handler = Some(PHP.to_vec());
        }
        conf.mime.apply(request);
        if let Some(media_type) = conf.core.force_type.as_ref().filter(|own| *own != b"none") {
            request.content_type = Some(media_type.clone());
        }
        let named = match &conf.core.handler {
            Some(Handler::Name(name)) => Some(name.clone()),
            Some(Handler::Expression(template)) => {
                let text = Evaluation::new(&self.scope(request)).text(template)?;
                Some(text.to_ascii_lowercase())
            }
            None => None,
        };
        // `none` takes the server's own handler for PHP away, too.
        if named.is_some() {
            request.handler = named;
        }
        Ok(())
    }

    fn rewrite(&self, request: &mut Request) -> Result<(), Stop> {
        let Some(conf) = request.conf.rewrite.clone() else { return Ok(()) };
        let unused = Request::new(b"", Vec::new(), None);
        match rewrite::apply(request, &conf, &self.scope(&unused))? {
            Rewritten::No | Rewritten::Unchanged => {}
            Rewritten::Internal(target) => request.redirect = Some(target),
        }
        Ok(())
    }
}

/// Whether Apache evaluates server-side includes in a file. Without `Options Includes` it sends the
/// file as it is.
fn parses_includes(handler: Option<&[u8]>, request: &Request) -> bool {
    let Conf { core, mime, .. } = &*request.conf;
    core.includes()
        && (handler == Some(SERVER_PARSED)
            || core.output_filters.as_deref().is_some_and(has_includes)
            || mime.parses_includes(request.base_name()))
}

/// What the handler of the last round does.
fn handle(request: &Request) -> Outcome {
    match request.kind {
        Kind::Missing => Outcome::Status(404),
        Kind::Directory if request.handler.as_deref().is_some_and(is_php_handler) => {
            Outcome::Status(403)
        }
        // Listings take GET alone.
        Kind::Directory if request.method == b"POST" => Outcome::Status(404),
        Kind::Other => Outcome::Status(403),
        Kind::Directory if request.conf.core.lists() => Outcome::Listing,
        Kind::Directory => Outcome::Status(403),
        Kind::File => {
            let by_type = || {
                let own = request.content_type.as_deref();
                own.filter(|own| memchr::memmem::find(own, b"httpd-").is_some())
            };
            let handler = request.handler.as_deref().or_else(by_type);
            let is_php =
                handler.is_some_and(is_php_handler) && request.conf.core.php_engine != Some(false);
            let accepts = request.conf.core.accepts_path_info.unwrap_or(PathInfo::Default);
            let refuses = match accepts {
                PathInfo::On => false,
                PathInfo::Off => true,
                PathInfo::Default => !is_php,
            };
            match is_php {
                _ if refuses && !request.path_info.is_empty() => Outcome::Status(404),
                true => Outcome::Script,
                // Apache would send the source of a script that must not run.
                false if is_php_name(request.base_name()) => Outcome::Status(403),
                // The source of a program that no interpreter runs here.
                false if handler.is_some_and(|name| is_program(name) || shows_source(name)) => {
                    Outcome::Status(403)
                }
                false if parses_includes(handler, request) => Outcome::Status(403),
                false => Outcome::File,
            }
        }
    }
}

/// The request that an internal redirect makes of another one (`internal_internal_redirect`).
///
/// # Errors
/// The status for a path that cannot be decoded.
fn redirected(before: &Request, target: &[u8], status: u16) -> Result<Request, u16> {
    let target = target.split(|byte| *byte == b'#').next().unwrap_or_default();
    let mark = memchr::memchr(b'?', target);
    // Decoded first: `%2e%2e` is a segment that leads up, too.
    let path = normalised(&unescaped(&target[..mark.unwrap_or(target.len())])?);
    let args = mark.map(|mark| target[mark + 1..].to_vec());
    let mut request = Request::new(&before.method, path, args);
    let renamed = |(name, value): (&[u8], &[u8])| ([b"REDIRECT_", name].concat(), value.to_vec());
    request.env.set_all(before.env.iter().map(renamed));
    request.env.set(b"REDIRECT_STATUS", status.to_string());
    request.status = status;
    request.headers_in = before.headers_in.clone();
    request.has_changed_headers = before.has_changed_headers;
    request.headers_out = before.headers_out.clone();
    request.headers_out.unset(b"Location");
    request.user.clone_from(&before.user);
    request.users.clone_from(&before.users);
    request.is_rewritten_for_good = before.is_rewritten_for_good;
    request.checked = Some(before.walked.clone());
    request.work = Arc::clone(&before.work);
    let previous = Previous { uri: before.uri.clone(), args: before.args.clone() };
    request.previous = Some(Box::new(previous));
    Ok(request)
}

/// Decodes a path once (`ap_unescape_url`): an encoded slash is a 404, as is a NUL; a `%` without
/// two digits is a 400.
fn unescaped(path: &[u8]) -> Result<Vec<u8>, u16> {
    let digit = |at: usize| path.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut out = Vec::with_capacity(path.len());
    let mut at = 0;
    while let Some(&byte) = path.get(at) {
        if byte != b'%' {
            out.push(byte);
            at += 1;
            continue;
        }
        let (Some(high), Some(low)) = (digit(at + 1), digit(at + 2)) else { return Err(400) };
        match u8::try_from(high * 16 + low).unwrap_or(0) {
            0 | b'/' => return Err(404),
            decoded => out.push(decoded),
        }
        at += 3;
    }
    Ok(out)
}

/// A path without empty, `.` and `..` segments; `..` above the root is left out.
fn normalised(path: &[u8]) -> Vec<u8> {
    let mut segments: Vec<&[u8]> = Vec::new();
    for segment in path.split(|byte| *byte == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => _ = segments.pop(),
            _ => segments.push(segment),
        }
    }
    let is_open = path.ends_with(b"/") || path.ends_with(b"/.") || path.ends_with(b"/..");
    let mut out = Vec::with_capacity(path.len() + 1);
    for segment in &segments {
        out.push(b'/');
        out.extend_from_slice(segment);
    }
    if is_open || out.is_empty() {
        out.push(b'/');
    }
    out
}
