//! The configuration of a directory, a section or a file: one part for each module of Apache, each
//! merged as that module does.

pub mod access_compat;
pub mod alias;
pub mod authz;
pub mod core;
pub mod headers;
pub mod mime;
pub mod small;
pub mod status;

use std::sync::Arc;

use crate::conf::access_compat::AccessConf;
use crate::conf::alias::AliasConf;
use crate::conf::authz::AuthzConf;
use crate::conf::core::CoreConf;
use crate::conf::headers::HeadersConf;
use crate::conf::mime::MimeConf;
use crate::conf::small::{AuthnConf, DirConf, EnvConf, ExpiresConf, IndexConf, PhpValue, SetEnvIf};
use crate::expr::Condition;
use crate::limits::{self, MAX_FILE_BYTES, MAX_HEADER_RULES, MAX_MERGED_BYTES, MAX_VARIABLES};
use crate::regex::{Regex, TooCostly};
use crate::rewrite::RewriteConf;
use crate::text::Glob;
use crate::weight::{Shared, Weight, weight_of};

/// A merged configuration. A part that is none was not set.
#[derive(Debug, Clone, Default)]
pub struct Conf {
    /// Options, handlers, error documents.
    pub core: CoreConf,
    /// `<Files>` sections, in their order.
    pub files: Vec<Arc<FilesSection>>,
    /// `<If>` sections, in their order.
    pub ifs: Vec<IfSection>,
    /// mod_rewrite.
    pub rewrite: Option<Arc<RewriteConf>>,
    /// mod_alias.
    pub alias: AliasConf,
    /// mod_headers.
    pub headers: HeadersConf,
    /// mod_expires.
    pub expires: ExpiresConf,
    /// mod_env.
    pub env: EnvConf,
    /// mod_setenvif.
    pub setenvif: Vec<Arc<SetEnvIf>>,
    /// mod_dir.
    pub dir: DirConf,
    /// mod_mime.
    pub mime: MimeConf,
    /// mod_access_compat.
    pub access: Option<Arc<AccessConf>>,
    /// mod_authz_core.
    pub authz: AuthzConf,
    /// AuthType and the like.
    pub authn: AuthnConf,
    /// mod_autoindex.
    pub index: IndexConf,
    /// php_value and php_flag.
    pub php: Vec<Arc<PhpValue>>,
    /// How many variables its directives name that have to be looked up one by one.
    pub variables: usize,
}

/// A `<Files>` section.
#[derive(Debug, Clone)]
pub struct FilesSection {
    /// Which names it applies to.
    pub names: FileNames,
    /// Its configuration.
    pub conf: Arc<Conf>,
}

/// The names of a `<Files>` section.
#[derive(Debug, Clone)]
pub enum FileNames {
    /// A shell pattern, or a plain name.
    Glob(Vec<u8>),
    /// A regular expression.
    Regex(Regex),
}

impl FileNames {
    /// Whether a name is one of them.
    ///
    /// # Errors
    /// When the expression is too costly: the section may deny as well as grant.
    pub fn match_name(&self, name: &[u8]) -> Result<bool, TooCostly> {
        match self {
            FileNames::Glob(pattern) => Ok(Glob::Path.matches(pattern, name)),
            FileNames::Regex(regex) => regex.is_match(name),
        }
    }
}

/// An `<If>`, `<ElseIf>` or `<Else>` section.
#[derive(Debug, Clone)]
pub struct IfSection {
    /// The condition; none: `<Else>`.
    pub condition: Option<Arc<Condition>>,
    /// It applies only if those before it did not.
    pub is_else: bool,
    /// Its configuration.
    pub conf: Arc<Conf>,
}

impl Conf {
    /// Counts variables that a directive names.
    ///
    /// # Errors
    /// When there are too many.
    pub fn count_variables(&mut self, more: usize) -> Result<(), String> {
        self.variables += more;
        limits::check(self.variables, MAX_VARIABLES, "variables of SetEnv, UnsetEnv and `env`")
    }

    /// The memory of the configuration in bytes, roughly.
    pub fn bytes(&self, shared: Shared) -> usize {
        size_of::<Conf>() + self.heap(shared)
    }

    /// Whether it may be as large as it is.
    ///
    /// # Errors
    /// When it may not.
    pub fn check_size(&self, shared: Shared) -> Result<(), String> {
        let HeadersConf { request, success, always } = &self.headers;
        for rules in [request, success, always] {
            limits::check(rules.len(), MAX_HEADER_RULES, "directives for headers")?;
        }
        let most = match shared {
            Shared::Counts => MAX_FILE_BYTES,
            Shared::DoesNot => MAX_MERGED_BYTES,
        };
        limits::check(self.bytes(shared), most, "bytes of memory for directives")
    }

    /// The configuration of `self` below `base` (`ap_merge_per_dir_configs`).
    ///
    /// # Errors
    /// When it would be too large.
    pub fn below(&self, base: &Conf) -> Result<Conf, String> {
        let mut merged = self.merged(base);
        merged.count_variables(0)?;
        merged.check_size(Shared::DoesNot)?;
        Ok(merged)
    }

    fn merged(&self, base: &Conf) -> Conf {
        let rewrite = match (&base.rewrite, &self.rewrite) {
            (Some(base), Some(own)) => Some(Arc::new(own.below(base))),
            (base, own) => own.as_ref().or(base.as_ref()).cloned(),
        };
        Conf {
            core: self.core.below(&base.core),
            files: [&base.files[..], &self.files].concat(),
            ifs: [&base.ifs[..], &self.ifs].concat(),
            rewrite,
            alias: self.alias.below(&base.alias),
            headers: self.headers.below(&base.headers),
            expires: self.expires.below(&base.expires),
            env: self.env.below(&base.env),
            setenvif: [&base.setenvif[..], &self.setenvif].concat(),
            dir: self.dir.below(&base.dir),
            mime: self.mime.below(&base.mime),
            access: self.access.as_ref().or(base.access.as_ref()).cloned(),
            authz: self.authz.below(&base.authz),
            authn: self.authn.below(&base.authn),
            index: self.index.below(&base.index),
            php: [&base.php[..], &self.php].concat(),
            variables: base.variables + self.variables,
        }
    }
}

weight_of!(Conf:
    core, files, ifs, rewrite, alias, headers, expires, env, setenvif, dir, mime, access, authz,
    authn, index, php
);
weight_of!(FilesSection: names, conf);
weight_of!(IfSection: condition, conf);

impl Weight for FileNames {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            FileNames::Glob(pattern) => pattern.heap(shared),
            FileNames::Regex(regex) => regex.heap(shared),
        }
    }
}
