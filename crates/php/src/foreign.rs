use std::fmt;

use crate::params::{Params, Text};
use crate::raw;

/// The variables of a web server's request, interpreted by php-fpm's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// The file of the script.
    pub script: Option<Text>,
    /// The request URI in php-fpm's sense: the path of the script, without the query.
    pub uri: Option<Text>,
    /// The result of php-fpm's checks.
    pub admission: Admission,
}

/// The result of php-fpm's checks before a script is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The script runs.
    Admitted,
    /// No script runs: without a method it is no HTTP request. The response is empty.
    NoMethod,
    /// No script runs: there is none at that path. The response is 404.
    NoScript,
    /// No script runs: its extension is not allowed. The response is 403.
    Extension,
}

/// The directives that decide how a web server's variables are interpreted, with their values for
/// the request, and PHP's realpath cache.
pub struct Paths<'a> {
    pub(crate) directives: raw::PathDirectives,
    pub(crate) engine: &'a raw::RawEngine,
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

    /// Whether the whole path of Apache is decoded, as in php-fpm from 8.5 on with
    /// `fastcgi.script_path_encoded = 0`. Paths of SetHandler, which Apache has decoded, are then
    /// decoded twice (GH-19817).
    pub fn decodes_path(&self) -> bool {
        self.directives.decodes_path
    }

    /// Whether only the part of it after the script is decoded, as in php-fpm since 8.3.19 and
    /// 8.4.5.
    pub fn decodes_path_info(&self) -> bool {
        self.directives.decodes_path_info
    }

    /// `doc_root`.
    pub fn doc_root(&self) -> Option<&[u8]> {
        self.directives.doc_root.as_deref()
    }

    /// Whether a path exists, as PHP caches it for `realpath_cache_ttl` seconds.
    pub fn resolves(&self, params: &Params, path: Text) -> bool {
        self.engine.resolves(params, path)
    }
}
