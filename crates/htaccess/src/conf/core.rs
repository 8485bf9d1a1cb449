//! The core's directives: Options, SetHandler, ForceType, ErrorDocument and others.

use std::collections::BTreeMap;

use crate::expr::Template;
use crate::weight::{Shared, Weight, weight_of};
use crate::words::Words;

/// Bits of `Options`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options(u8);

impl Options {
    /// Directory listings.
    pub const INDEXES: Options = Options(1);
    /// Symbolic links are followed, and rewriting is allowed.
    pub const FOLLOW_LINKS: Options = Options(2);
    /// The same, for links with the owner of their target.
    pub const FOLLOW_OWN_LINKS: Options = Options(4);
    /// CGI programs.
    pub const EXEC_CGI: Options = Options(8);
    /// Negotiation by name.
    pub const MULTI_VIEWS: Options = Options(16);
    /// Server-side includes.
    pub const INCLUDES: Options = Options(32);
    /// Programs in server-side includes.
    const INCLUDED_PROGRAMS: Options = Options(64);
    /// Those of `Options All` (`OPT_ALL`): all but MultiViews and SymLinksIfOwnerMatch.
    const ALL: Options = Options(1 | 2 | 8 | 32 | 64);
    /// All that there are.
    pub const EVERY: Options = Options(127);

    fn named(word: &[u8]) -> Option<Options> {
        Some(match &word.to_ascii_lowercase()[..] {
            b"indexes" => Options::INDEXES,
            b"includes" => Options::INCLUDES.and(Options::INCLUDED_PROGRAMS),
            b"includesnoexec" => Options::INCLUDES,
            b"followsymlinks" => Options::FOLLOW_LINKS,
            b"symlinksifownermatch" => Options::FOLLOW_OWN_LINKS,
            b"execcgi" => Options::EXEC_CGI,
            b"multiviews" => Options::MULTI_VIEWS,
            b"runscripts" => Options(8 | 16),
            _ => return None,
        })
    }

    /// Those of a list with commas, as in `AllowOverride Options=Indexes,MultiViews`. Unknown names
    /// are left out.
    pub fn of_list(list: &str) -> Options {
        let of_name = |name: &str| match &name.to_ascii_lowercase()[..] {
            "all" => Options::ALL,
            name => Options::named(name.as_bytes()).unwrap_or_default(),
        };
        list.split(',').map(of_name).fold(Options::default(), Options::and)
    }

    /// These and others.
    #[must_use]
    pub fn and(self, others: Options) -> Options {
        Options(self.0 | others.0)
    }

    fn has(self, other: Options) -> bool {
        self.0 & other.0 != 0
    }
}

/// `Options`, as set: absolute, or added and removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OptionsConf {
    absolute: Option<Options>,
    added: Options,
    removed: Options,
}

impl OptionsConf {
    /// `Options +Indexes`.
    pub fn indexes() -> OptionsConf {
        OptionsConf { added: Options::INDEXES, ..OptionsConf::default() }
    }

    /// Applies a directive that may change the `allowed` options (`set_options`).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn set(&mut self, words: Words<'_>, allowed: Options) -> Result<(), String> {
        const MIXED: &str = "Either all Options must start with + or -, or no Option may.";
        let (mut is_merge, mut is_all_or_none) = (false, false);
        for (at, word) in words.enumerate() {
            let sign = word.first().copied().filter(|byte| matches!(byte, b'+' | b'-'));
            let name = &word[usize::from(sign.is_some())..];
            match sign {
                Some(_) if !is_merge && at > 0 && !is_all_or_none => return Err(MIXED.to_owned()),
                Some(_) => is_merge = true,
                None if at == 0 => {
                    *self = OptionsConf { absolute: Some(Options(0)), ..OptionsConf::default() };
                }
                None if is_merge => return Err(MIXED.to_owned()),
                None => {}
            }
            let lower = name.to_ascii_lowercase();
            let option = match &lower[..] {
                b"all" | b"none" => {
                    let said = String::from_utf8_lossy(name).into_owned();
                    if at > 0 {
                        return Err(format!("'Options {said}' must be the first Option given."));
                    }
                    if is_merge {
                        return Err(format!("You may not use 'Options +{said}' or '-{said}'."));
                    }
                    is_all_or_none = true;
                    if lower == b"all" { Options::ALL } else { Options(0) }
                }
                _ => Options::named(name)
                    .ok_or_else(|| format!("Illegal option {}", String::from_utf8_lossy(name)))?,
            };
            if option.0 & !allowed.0 != 0 {
                return Err(format!("Option {} not allowed here", String::from_utf8_lossy(name)));
            }
            self.change(sign, option);
        }
        Ok(())
    }

    fn change(&mut self, sign: Option<u8>, option: Options) {
        if let Some(absolute) = &mut self.absolute {
            match sign {
                Some(b'-') => absolute.0 &= !option.0,
                _ => absolute.0 |= option.0,
            }
        }
        match sign {
            Some(b'-') => {
                self.removed.0 |= option.0;
                self.added.0 &= !option.0;
            }
            Some(_) => {
                self.added.0 |= option.0;
                self.removed.0 &= !option.0;
            }
            None => {}
        }
    }

    fn below(self, base: OptionsConf) -> OptionsConf {
        if self.absolute.is_some() {
            return self;
        }
        let added = Options((base.added.0 & !self.removed.0) | self.added.0);
        let removed = Options((base.removed.0 & !self.added.0) | self.removed.0);
        let absolute = base.absolute.map(|options| Options(options.0 & !removed.0 | added.0));
        OptionsConf { absolute, added, removed }
    }

    /// The options in effect: FollowSymLinks where none are set.
    fn effective(self) -> Options {
        match self.absolute {
            Some(options) => options,
            None => Options(Options::FOLLOW_LINKS.0 & !self.removed.0 | self.added.0),
        }
    }
}

/// A page for an error.
#[derive(Debug, Clone)]
pub enum ErrorDocument {
    /// A path of this server.
    Path(Vec<u8>),
    /// A URL elsewhere: a redirect.
    Url(Vec<u8>),
    /// A text.
    Text(Vec<u8>),
    /// The server's own page.
    Default,
}

/// The core's configuration.
#[derive(Debug, Clone, Default)]
pub struct CoreConf {
    /// `Options`.
    pub options: OptionsConf,
    /// A folder above does not follow links ([`CoreConf::follows_links`]).
    unfollowed_above: bool,
    /// `SetHandler`, in lower case.
    pub handler: Option<Handler>,
    /// `ForceType`, in lower case.
    pub force_type: Option<Vec<u8>>,
    /// `SetOutputFilter`, in lower case.
    pub output_filters: Option<Vec<u8>>,
    /// `ErrorDocument`.
    pub error_documents: BTreeMap<u16, ErrorDocument>,
    /// `AddDefaultCharset`; an empty text: off.
    pub default_charset: Option<Vec<u8>>,
    /// `AcceptPathInfo`; none: the handler's default.
    pub accepts_path_info: Option<PathInfo>,
    /// `FileETag None` is false.
    pub sends_etag: Option<bool>,
    /// `ContentDigest`: files are sent with `Content-MD5`.
    pub sends_digest: Option<bool>,
    /// `ServerSignature`: scripts get a line about the server.
    pub has_signature: Option<bool>,
    /// `SSLRequireSSL`.
    pub requires_tls: bool,
    /// `SSLOptions +StrictRequire`: `Satisfy Any` does not let a user in without TLS.
    pub is_tls_strict: Option<bool>,
    /// `LimitRequestBody` in bytes; 0: no limit.
    pub body_limit: Option<u64>,
    /// `php_flag engine`.
    pub php_engine: Option<bool>,
    /// Lines that were skipped with `htaccess_unknown = "ignore"` or are not supported.
    pub skipped: u32,
}

/// `SetHandler`.
#[derive(Debug, Clone)]
pub enum Handler {
    /// A name.
    Name(Vec<u8>),
    /// An expression.
    Expression(std::sync::Arc<Template>),
}

/// `AcceptPathInfo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathInfo {
    /// Files and scripts accept it.
    On,
    /// None does.
    Off,
    /// Scripts do.
    Default,
}

impl CoreConf {
    /// The configuration below another one.
    pub fn below(&self, base: &CoreConf) -> CoreConf {
        let mut error_documents = base.error_documents.clone();
        error_documents.extend(self.error_documents.clone());
        CoreConf {
            options: self.options.below(base.options),
            unfollowed_above: base.forbids_links(),
            handler: self.handler.as_ref().or(base.handler.as_ref()).cloned(),
            force_type: self.force_type.as_ref().or(base.force_type.as_ref()).cloned(),
            output_filters: self.output_filters.as_ref().or(base.output_filters.as_ref()).cloned(),
            error_documents,
            default_charset: (self.default_charset.as_ref())
                .or(base.default_charset.as_ref())
                .cloned(),
            accepts_path_info: self.accepts_path_info.or(base.accepts_path_info),
            sends_etag: self.sends_etag.or(base.sends_etag),
            sends_digest: self.sends_digest.or(base.sends_digest),
            has_signature: self.has_signature.or(base.has_signature),
            requires_tls: self.requires_tls || base.requires_tls,
            is_tls_strict: self.is_tls_strict.or(base.is_tls_strict),
            body_limit: self.body_limit.or(base.body_limit),
            php_engine: self.php_engine.or(base.php_engine),
            skipped: self.skipped + base.skipped,
        }
    }

    /// Whether rewriting is allowed: FollowSymLinks or SymLinksIfOwnerMatch.
    pub fn follows_links(&self) -> bool {
        let options = self.options.effective();
        options.has(Options::FOLLOW_LINKS) || options.has(Options::FOLLOW_OWN_LINKS)
    }

    /// Whether this folder, or one above, does not follow links.
    pub fn forbids_links(&self) -> bool {
        self.unfollowed_above || !self.follows_links()
    }

    /// Whether server-side includes would be carried out.
    pub fn includes(&self) -> bool {
        self.options.effective().has(Options::INCLUDES)
    }

    /// Whether directories are listed.
    pub fn lists(&self) -> bool {
        self.options.effective().has(Options::INDEXES)
    }
}

weight_of!(CoreConf: handler, force_type, output_filters, error_documents, default_charset);

impl Weight for Handler {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Handler::Name(name) => name.heap(shared),
            Handler::Expression(template) => template.heap(shared),
        }
    }
}

impl Weight for ErrorDocument {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            ErrorDocument::Path(text) | ErrorDocument::Url(text) | ErrorDocument::Text(text) => {
                text.heap(shared)
            }
            ErrorDocument::Default => 0,
        }
    }
}
