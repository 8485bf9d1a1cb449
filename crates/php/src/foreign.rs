use std::fmt;

use crate::params::{Params, Text};
use crate::raw;

/// What php-fpm's rules make of the variables of a web server's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The file of the script.
    pub script: Option<Text>,
    /// What php-fpm calls the request's URI: the path of the script, without the query.
    pub uri: Option<Text>,
    /// What becomes of the request.
    pub admission: Admission,
}

/// What becomes of a request before its script is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The script is run.
    Admitted,
    /// Nothing is run: a request without a method is none of HTTP. The answer is empty.
    NoMethod,
    /// Nothing is run: there is no such script. The answer is 404.
    NoScript,
    /// Nothing is run: the script's name does not end as it must. The answer is 403.
    Extension,
}

/// What decides where the variables of a web server lead: directives of PHP as they are for the
/// request, and what PHP knows of paths.
pub struct Paths<'a> {
    pub(crate) directives: raw::PathDirectives,
    pub(crate) engine: &'a raw::Engine,
}

impl fmt::Debug for Paths<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.directives.fmt(out)
    }
}

impl Paths<'_> {
    /// `cgi.fix_pathinfo`.
    pub fn fix_pathinfo(&self) -> bool {
        self.directives.fix_pathinfo
    }

    /// `cgi.discard_path`.
    pub fn discard_path(&self) -> bool {
        self.directives.discard_path
    }

    /// `doc_root`.
    pub fn doc_root(&self) -> Option<&[u8]> {
        self.directives.doc_root.as_deref()
    }

    /// Whether a path leads to something, as PHP remembers it for `realpath_cache_ttl` seconds.
    pub fn resolves(&self, params: &Params, path: Text) -> bool {
        self.engine.resolves(params, path)
    }
}
