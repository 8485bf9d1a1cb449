//! The file of a request, and the configuration that applies (`ap_directory_walk`, `ap_file_walk`,
//! `ap_if_walk`).

use std::sync::Arc;

use super::{Processor, Stop};
use crate::conf::IfSection;
use crate::expr::Evaluation;
use crate::request::{Kind, Request, Walked};

impl Processor<'_> {
    /// Finds the file: the longest part of the path that exists, with what follows as PATH_INFO.
    pub(super) fn walk(&self, request: &mut Request) -> Result<(), Stop> {
        let root = &self.client.document_root;
        let whole = [&root[..], &request.uri].concat();
        let kind = self.world.stat(&whole).map_or(Kind::Missing, |stat| stat.kind);
        let is_found = kind == Kind::Directory
            || (matches!(kind, Kind::File | Kind::Other) && !whole.ends_with(b"/"));
        let (end, kind) = match is_found {
            true => (whole.len(), kind),
            false => self.first_end(&whole, root.len()),
        };
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
            for (at, section) in conf.files.iter().enumerate() {
                if section.names.match_name(&name) {
                    request.conf = Arc::new(section.conf.below(&request.conf));
                    sections.push(at);
                }
            }
        }
        // Those within others that apply come after all of a level (`ap_if_walk_sub`).
        let mut level = request.conf.ifs.clone();
        let mut number = conf.files.len();
        while !level.is_empty() {
            let found = self.applicable(request, &level)?;
            let mut within = Vec::new();
            for at in found {
                let section = &level[at];
                request.conf = Arc::new(section.conf.below(&request.conf));
                within.extend_from_slice(&section.conf.ifs);
                sections.push(number + at);
            }
            number += level.len();
            level = within;
        }
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
}
