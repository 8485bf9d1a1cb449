//! The file of a request, and the configuration that applies (`ap_directory_walk`, `ap_file_walk`,
//! `ap_if_walk`).

use std::sync::Arc;

use super::{Processor, Stop};
use crate::conf::{Conf, IfSection};
use crate::expr::Evaluation;
use crate::file::Mistake;
use crate::request::{Kind, Request, Walked};

/// Longest path of a document root and a request that Apache maps to a file, in bytes: `PATH_MAX`
/// without four (`apr_filepath_merge`), and the slash between them.
const LONGEST_FILE_NAME: usize = 4096 - 4 + 1;

/// Longest name of a file in bytes (`NAME_MAX`).
const LONGEST_NAME: usize = 255;

impl Processor<'_> {
    /// Finds the file: the longest part of the path that exists, with what follows as PATH_INFO.
    pub(super) fn walk(&self, request: &mut Request) -> Result<(), Stop> {
        // Rules and sections would be those of another path than that of the file. The rules of the
        // site are compared with no path that has a control byte.
        let has_dots =
            request.uri.split(|byte| *byte == b'/').any(|name| matches!(name, b"." | b".."));
        if has_dots || request.uri.iter().any(u8::is_ascii_control) {
            return Err(Stop::Status(400));
        }
        let root = &self.client.document_root;
        if root.len() + request.uri.len() > LONGEST_FILE_NAME {
            return Err(Stop::Status(403));
        }
        let whole = [&root[..], &request.uri].concat();
        let kind = self.world.stat(&whole).map_or(Kind::Missing, |stat| stat.kind);
        let is_found = kind == Kind::Directory
            || (matches!(kind, Kind::File | Kind::Other) && !whole.ends_with(b"/"));
        let (end, kind) = match is_found {
            true => (whole.len(), kind),
            false => self.first_end(&whole, root.len()),
        };
        let name = memchr::memrchr(b'/', &whole[..end]).map_or(0, |slash| slash + 1);
        if kind == Kind::Missing && end - name > LONGEST_NAME {
            return Err(Stop::Status(403));
        }
        request.path_info = whole[end..].to_vec();
        request.filename = whole[..end].to_vec();
        request.kind = kind;
        let directory = match kind {
            Kind::Directory if whole.ends_with(b"/") => request.filename.clone(),
            Kind::Directory => [&request.filename[..], b"/"].concat(),
            _ => {
                let slash = memchr::memrchr(b'/', &request.filename).unwrap_or(0);
                request.filename[..=slash].to_vec()
            }
        };
        request.conf = self.world.conf(&directory).map_err(Stop::Mistake)?;
        // SymLinksIfOwnerMatch counts as FollowSymLinks: the owners of a link that leads out of the
        // document root are compared as its file is opened.
        match request.conf.core.forbids_links() {
            true => self.check_links(&request.filename),
            false => Ok(()),
        }
    }

    /// Refuses a link below the document root that the options of its folder forbid to follow
    /// (`resolve_symlink`): those of the folder that it leads to are the choice of another.
    fn check_links(&self, path: &[u8]) -> Result<(), Stop> {
        let root = self.client.document_root.len();
        let mut folder = root + 1;
        let slashes = memchr::memchr_iter(b'/', path).filter(|slash| *slash > root);
        for end in slashes.chain([path.len()]) {
            if folder < end && self.world.is_link(&path[..end]) {
                let conf = self.world.conf(&path[..folder]).map_err(Stop::Mistake)?;
                if !conf.core.follows_links() {
                    return Err(Stop::Status(403));
                }
            }
            folder = end + 1;
        }
        Ok(())
    }

    /// The end of the first segment that is no directory, and what it is.
    fn first_end(&self, whole: &[u8], root: usize) -> (usize, Kind) {
        let slashes = memchr::memchr_iter(b'/', &whole[root + 1..]).map(|at| root + 1 + at);
        for end in slashes.chain([whole.len()]) {
            match self.world.stat(&whole[..end]).map(|stat| stat.kind) {
                Some(Kind::Directory) => {}
                Some(kind) => return (end, kind),
                None => return (end, Kind::Missing),
            }
        }
        (whole.len(), Kind::Missing)
    }

    /// Applies `<Files>` and `<If>` sections.
    pub(super) fn sections(&self, request: &mut Request) -> Result<(), Stop> {
        let conf = Arc::clone(&request.conf);
        let mut sections = Vec::new();
        if !conf.files.is_empty() {
            let name = request.base_name().to_vec();
            let mut merged = None;
            for (at, section) in conf.files.iter().enumerate() {
                if section.names.match_name(&name)? {
                    merged = Some(self.with_section(request, merged, &section.conf)?);
                    sections.push(at);
                }
            }
            merge(request, merged)?;
        }
        // Those within others that apply come after all of a level (`ap_if_walk_sub`).
        let mut level = request.conf.ifs.clone();
        let mut number = conf.files.len();
        while !level.is_empty() {
            let found = self.applicable(request, &level)?;
            let (mut merged, mut within) = (None, Vec::new());
            for at in found {
                let section = &level[at];
                merged = Some(self.with_section(request, merged, &section.conf)?);
                within.extend_from_slice(&section.conf.ifs);
                sections.push(number + at);
            }
            merge(request, merged)?;
            number += level.len();
            level = within;
        }
        complete(request);
        request.walked = Walked { directory: conf, sections };
        Ok(())
    }

    /// The places of the `<If>` sections whose conditions hold.
    fn applicable(&self, request: &Request, level: &[IfSection]) -> Result<Vec<usize>, Stop> {
        let mut found = Vec::new();
        let mut taken = false;
        for (at, section) in level.iter().enumerate() {
            if !section.is_else {
                taken = false;
            }
            if section.is_else && taken {
                continue;
            }
            self.scope(request).check_time()?;
            let holds = match &section.condition {
                Some(condition) => Evaluation::new(&self.scope(request)).holds(condition)?,
                None => true,
            };
            if holds {
                taken = true;
                found.push(at);
            }
        }
        Ok(found)
    }

    /// Sections are merged with each other first, and then all of them with the rest.
    fn with_section(
        &self,
        request: &Request,
        merged: Option<Arc<Conf>>,
        section: &Arc<Conf>,
    ) -> Result<Arc<Conf>, Stop> {
        self.scope(request).check_time()?;
        match merged {
            Some(before) => below(section, &before, request).map(Arc::new),
            None => Ok(Arc::clone(section)),
        }
    }
}

fn merge(request: &mut Request, sections: Option<Arc<Conf>>) -> Result<(), Stop> {
    if let Some(sections) = sections {
        complete(request);
        request.conf = Arc::new(below(&sections, &request.conf, request)?);
    }
    Ok(())
}

/// The sections that apply to a request may be too much together.
fn below(section: &Conf, base: &Conf, request: &Request) -> Result<Conf, Stop> {
    section.below(base).map_err(|why| {
        let slash = memchr::memrchr(b'/', &request.filename).map_or(0, |at| at + 1);
        let file = [&request.filename[..slash], b".htaccess"].concat();
        let why = format!("the sections for a request have {why}");
        Stop::Mistake(Mistake { file, line: 0, why })
    })
}

/// Completes what the directories or the sections say about extensions.
fn complete(request: &mut Request) {
    if !request.conf.mime.is_complete() {
        Arc::make_mut(&mut request.conf).mime.complete();
    }
}
