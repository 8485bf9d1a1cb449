//! The last phase before the handler: rewriting, redirects, variables, request headers, index
//! files.

use std::sync::Arc;

use super::subrequest::Looked;
use super::{Processor, Stop};
use crate::cookie::SET_COOKIE;
use crate::request::{Kind, Request};
use crate::text::escape_path;

/// Index files where none are configured (Debian's `dir.conf`).
const INDEX: [&[u8]; 2] = [b"index.php", b"index.html"];

impl Processor<'_> {
    pub(super) fn fixups(&self, request: &mut Request) -> Result<(), Stop> {
        self.rewrite(request)?;
        let conf = Arc::clone(&request.conf);
        if let Some(target) = conf.alias.apply(&self.scope(request))? {
            self.world.note(&|| {
                let to = target.location.as_deref().unwrap_or_default();
                format!("Redirect matches: {} {}", target.status, String::from_utf8_lossy(to))
            });
            if let Some(location) = target.location {
                request.headers_out.set(b"Location", location);
            }
            return Err(Stop::Status(target.status));
        }
        // Directives read the value of SetEnvIf, PHP gets this one.
        for (name, value) in conf.env.set.iter() {
            request.env.add(name, value);
        }
        match request.kind {
            Kind::Directory => self.directory(request)?,
            Kind::Missing if request.handler.is_none() && request.redirect.is_none() => {
                self.fall_back(request)?;
            }
            _ => {}
        }
        self.change_headers(request)?;
        if let Some(media_type) = request.forced_type.take() {
            request.content_type = Some(media_type);
        }
        if let Some(handler) = request.forced_handler.take() {
            request.handler = Some(handler);
        }
        Ok(())
    }

    /// Applies RequestHeader.
    fn change_headers(&self, request: &mut Request) -> Result<(), Stop> {
        let conf = Arc::clone(&request.conf);
        if conf.headers.request.is_empty() {
            return Ok(());
        }
        let mut headers = request.headers_in.clone();
        for rule in &conf.headers.request {
            rule.apply(&self.scope(request), &mut headers)?;
        }
        request.headers_in = headers;
        request.has_changed_headers = true;
        Ok(())
    }

    /// A directory gets its slash, and then its index file (`fixup_dir`).
    fn directory(&self, request: &mut Request) -> Result<(), Stop> {
        let dir = request.conf.dir.clone();
        if !request.path_info.is_empty() {
            return Ok(());
        }
        if !request.uri.ends_with(b"/") {
            if dir.redirects_to_slash == Some(false) {
                return Ok(());
            }
            let mut location = self.client.origin();
            location.extend(escape_path(&request.uri));
            location.push(b'/');
            if let Some(args) = &request.args {
                location.push(b'?');
                location.extend_from_slice(args);
            }
            request.headers_out.set(b"Location", location);
            return Err(Stop::Status(301));
        }
        if request.redirect.is_some() {
            return Ok(());
        }
        let default: Vec<Vec<u8>> = INDEX.iter().map(|name| name.to_vec()).collect();
        let names = dir.index.unwrap_or(default);
        let mut failed = None;
        for (at, name) in names.iter().enumerate() {
            // None: the limit of subrequests is reached, and the other names get none either.
            let Some(found) = self.look_up(&with_args(name, request), request) else { break };
            let status = found.status;
            take_cookies(request, &found.request);
            if status == 200 && found.request.kind == Kind::File {
                if let Some(status @ 300..400) = dir.index_redirect {
                    let location = [self.client.origin(), found.request.uri].concat();
                    request.headers_out.set(b"Location", location);
                    return Err(Stop::Status(status));
                }
                self.world.note(&|| format!("DirectoryIndex {}", String::from_utf8_lossy(name)));
                adopt(request, found.request);
                return Ok(());
            }
            let is_last = at + 1 == names.len() && names.len() == 1;
            if (300..400).contains(&status) || (is_last && matches!(status, 401 | 406)) {
                if let Some(location) = found.request.headers_out.get(b"Location") {
                    request.headers_out.set(b"Location", location);
                }
                return Err(stop_of(request, found));
            }
            if status != 200 && status != 404 {
                failed = Some(found);
            }
        }
        failed.map_or(Ok(()), |found| Err(stop_of(request, found)))
    }

    /// `FallbackResource` (`fixup_dflt`).
    fn fall_back(&self, request: &mut Request) -> Result<(), Stop> {
        let conf = Arc::clone(&request.conf);
        let page = conf.dir.fallback.as_ref();
        let Some(page) = page.filter(|page| !page.eq_ignore_ascii_case(b"disabled")) else {
            return Ok(());
        };
        let Some(found) = self.look_up(&with_args(page, request), request) else {
            return Err(Stop::Status(500));
        };
        take_cookies(request, &found.request);
        match found.status {
            200 if found.request.kind == Kind::File => {
                let shown = String::from_utf8_lossy(page);
                self.world.note(&|| format!("FallbackResource {shown}"));
                adopt(request, found.request);
                Ok(())
            }
            200 | 404 => Ok(()),
            401 => Err(stop_of(request, found)),
            status => {
                if let Some(location) = found.request.headers_out.get(b"Location") {
                    request.headers_out.set(b"Location", location);
                }
                Err(Stop::Status(status))
            }
        }
    }
}

/// How a subrequest that was refused ends its request. The users are those of its file.
fn stop_of(request: &mut Request, found: Looked) -> Stop {
    if found.status != 401 {
        return Stop::Status(found.status);
    }
    request.conf = found.request.conf;
    Stop::NeedsUser
}

fn with_args(name: &[u8], request: &Request) -> Vec<u8> {
    match &request.args {
        Some(args) => [name, b"?", args].concat(),
        None => name.to_vec(),
    }
}

/// Takes the cookies of a subrequest's rules over, each name once (`add_cookie`).
fn take_cookies(request: &mut Request, found: &Request) {
    for (name, value) in found.headers_out.iter() {
        if name.eq_ignore_ascii_case(SET_COOKIE) {
            crate::cookie::add(&mut request.headers_out, value.to_vec());
        }
    }
}

/// The request becomes its subrequest (`ap_internal_fast_redirect`).
fn adopt(request: &mut Request, found: Request) {
    // Both values stay (`apr_table_overlay`): directives read the first, PHP gets the last.
    let before = std::mem::replace(&mut request.env, found.env.clone());
    request.env.add_others(&before);
    for (name, value) in found.headers_out.iter() {
        if !name.eq_ignore_ascii_case(SET_COOKIE) {
            request.headers_out.set(name, value);
        }
    }
    let Request { uri, args, filename, path_info, kind, conf, .. } = found;
    request.uri = uri;
    request.args = args;
    request.filename = filename;
    request.path_info = path_info;
    request.kind = kind;
    request.conf = conf;
    // Its headers were a copy: `RequestHeader` changes those of the request itself afterwards.
    request.user = found.user;
    request.users = found.users;
    request.handler = found.handler;
    request.content_type = found.content_type;
    request.charset = found.charset;
    request.content_encoding = found.content_encoding;
    request.content_language = found.content_language;
    request.redirect = found.redirect;
}
