//! Subrequests: for index files, and for the tests -U and -F.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{MAX_REDIRECTS, MAX_SUBREQUESTS, Processor, Scope, Stop, normalised, unescaped};
use crate::limits::MAX_TEXT_BYTES;
use crate::regex::TooCostly;
use crate::request::{Kind, Request, SUBREQUEST};

/// A subrequest, and the status that it would have.
pub(super) struct Looked {
    /// The request after its phases.
    pub request: Request,
    /// 200 if no phase has ended it.
    pub status: u16,
}

impl Processor<'_> {
    /// Looks up a path as a subrequest of another request (`ap_sub_req_lookup_uri`).
    pub(super) fn look_up(&self, uri: &[u8], parent: &Request) -> Option<Looked> {
        let mark = memchr::memchr(b'?', uri);
        let path = unescaped(&uri[..mark.unwrap_or(uri.len())]);
        let args = mark.map(|mark| uri[mark + 1..].to_vec());
        let refused = path.as_ref().err().copied();
        let path = match path.unwrap_or_default() {
            path if path.starts_with(b"/") => path,
            path => [directory_of(&parent.uri), &path].concat(),
        };
        let request = Request::new(b"GET", normalised(&path), args);
        self.look_up_request(request, parent, refused)
    }

    /// Looks up a file as a subrequest (`ap_sub_req_lookup_file`). It has a URI only beside the
    /// request's own file.
    fn look_up_file(&self, path: &[u8], parent: &Request) -> Option<Looked> {
        let mut request = Request::new(b"GET", normalised(path), None);
        let root = &self.client.document_root[..];
        let own = directory_of(&parent.filename);
        let beside = [root, &request.uri].concat();
        let name = beside.strip_prefix(own);
        let name = name.filter(|name| !name.is_empty() && !name.contains(&b'/'));
        let uri = name.map(|name| [directory_of(&parent.uri), name].concat());
        request.uri_of_file = Some(uri.unwrap_or_default());
        self.look_up_request(request, parent, None)
    }

    /// Whether the listing of a request's directory shows a file (`make_autoindex_entry`).
    pub fn shows(&self, name: &[u8], directory: &Request) -> bool {
        // However many names there are: only their time is limited.
        directory.work.store(0, Ordering::Relaxed);
        let root = self.client.document_root.len();
        let path = [directory.filename.get(root..).unwrap_or_default(), b"/", name].concat();
        let found = self.look_up_file(&path, directory);
        found.is_some_and(|found| {
            found.status < 400 && matches!(found.request.kind, Kind::File | Kind::Directory)
        })
    }

    fn look_up_request(
        &self,
        mut request: Request,
        parent: &Request,
        refused: Option<u16>,
    ) -> Option<Looked> {
        if self.depth >= MAX_SUBREQUESTS || !parent.may_spend(SUBREQUEST) {
            return None;
        }
        request.is_sub = true;
        request.redirects = parent.redirects;
        request.main_uri = Some(parent.uri.clone());
        request.work = Arc::clone(&parent.work);
        request.checked = Some(parent.walked.clone());
        request.env = parent.env.clone();
        request.headers_in = parent.headers_in.clone();
        request.user.clone_from(&parent.user);
        request.users.clone_from(&parent.users);
        // `ap_is_recursion_limit_exceeded`
        let exceeded = (parent.redirects >= MAX_REDIRECTS).then_some(500);
        if let Some(status) = exceeded.or(refused) {
            return Some(Looked { request, status });
        }
        let inner = Processor { depth: self.depth + 1, ..*self };
        let status = match inner.process(&mut request) {
            Ok(()) => 200,
            Err(Stop::Status(status)) => status,
            Err(Stop::NeedsUser) => 401,
            Err(Stop::Mistake(_) | Stop::TooCostly) => 500,
        };
        Some(Looked { request, status })
    }
}

/// A path up to its last slash (`ap_make_dirstr_parent`).
fn directory_of(path: &[u8]) -> &[u8] {
    &path[..memchr::memrchr(b'/', path).map_or(0, |slash| slash + 1)]
}

impl Scope<'_> {
    /// Whether a condition of a rule may look up another path: a subrequest for the path of the
    /// request that it belongs to would do so without end (`subreq_ok`).
    pub fn may_look_up(&self) -> bool {
        self.request.main_uri.as_ref().is_none_or(|main| *main != self.request.uri)
    }

    fn processor(&self) -> Processor<'_> {
        let Scope { client, world, depth, vary, .. } = *self;
        Processor { client, world, depth, vary }
    }

    /// The status that a path would have; none within too many subrequests.
    pub fn url_status(&self, uri: &[u8]) -> Option<u16> {
        if uri.is_empty() {
            return None;
        }
        self.processor().look_up(uri, self.request).map(|looked| looked.status)
    }

    /// Whether a file is there, and a request for it would be allowed.
    pub fn is_file_allowed(&self, path: &[u8]) -> bool {
        let Some(uri) = path.strip_prefix(&self.client.document_root[..]) else {
            return false;
        };
        let found = self.processor().look_up_file(uri, self.request);
        found.is_some_and(|found| {
            found.status < 300
                && found.request.redirect.is_none()
                && !matches!(found.request.kind, Kind::Missing | Kind::Other)
        })
    }

    /// The request for a path after its phases.
    pub fn lookup(&self, uri: &[u8]) -> Option<Request> {
        self.processor().look_up(uri, self.request).map(|looked| looked.request)
    }

    /// The path for a look ahead, from a path in a directory (`la_u`).
    pub fn lookahead_uri(&self, path: &[u8]) -> Vec<u8> {
        if path.starts_with(b"/") {
            return path.to_vec();
        }
        let conf = self.request.conf.rewrite.as_ref();
        // The directory itself, which is no URL, if there is no `RewriteBase`.
        let base = conf.map(|conf| conf.base.as_ref().unwrap_or(&conf.directory));
        [base.map(Vec::as_slice).unwrap_or_default(), path].concat()
    }

    /// To be asked before a regular expression is matched.
    ///
    /// # Errors
    /// When the evaluation has taken too long.
    pub fn check_time(&self) -> Result<(), TooCostly> {
        if self.world.is_late() { Err(TooCostly) } else { Ok(()) }
    }

    /// To be asked about a text that values were inserted into: they may contain each other.
    ///
    /// # Errors
    /// When it is too long.
    pub fn check_text(&self, text: &[u8]) -> Result<(), TooCostly> {
        if text.len() > MAX_TEXT_BYTES { Err(TooCostly) } else { Ok(()) }
    }

    /// Whether a user is in one of these groups.
    pub fn is_in_group(&self, user: &[u8], names: &[Vec<u8>]) -> bool {
        let known = self.request.known_user();
        known.is_some_and(|known| known.groups.have(user, names))
    }
}
