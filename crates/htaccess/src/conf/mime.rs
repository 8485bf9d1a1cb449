//! AddType, AddHandler and the like (mod_mime).

use std::collections::BTreeMap;

use crate::handlers::{SERVER_PARSED, has_includes, is_php_name, is_program};
use crate::limits::{self, MAX_EXTENSIONS, MAX_PROPERTY_BYTES};
use crate::request::{Kind, Request};
use crate::weight::weight_of;

/// The configuration of mod_mime: by extension, in lower case and without its dot.
#[derive(Debug, Clone, Default)]
pub struct MimeConf {
    extensions: BTreeMap<Vec<u8>, Extension>,
    /// `RemoveCharset` and the like, until the whole is complete: what is removed is not added, in
    /// whatever order. A directive of mod_mime below forgets them (`merge_mime_dir_configs`).
    removed: Vec<RemovedProperty>,
    /// `DefaultLanguage`.
    pub default_language: Option<Vec<u8>>,
}

/// The meaning of an extension; an empty text: removed.
#[derive(Debug, Clone, Default)]
struct Extension {
    media_type: Option<Vec<u8>>,
    charset: Option<Vec<u8>>,
    language: Option<Vec<u8>>,
    encoding: Option<Vec<u8>>,
    handler: Option<Vec<u8>>,
    filters: Option<Vec<u8>>,
}

/// A property that an extension has no more.
#[derive(Debug, Clone)]
struct RemovedProperty {
    extension: Vec<u8>,
    property: Property,
}

/// What an extension sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    /// `AddType`.
    Type,
    /// `AddCharset`.
    Charset,
    /// `AddLanguage`.
    Language,
    /// `AddEncoding`.
    Encoding,
    /// `AddHandler`.
    Handler,
    /// `AddOutputFilter`.
    Filter,
}

impl Extension {
    fn property(&mut self, property: Property) -> &mut Option<Vec<u8>> {
        match property {
            Property::Type => &mut self.media_type,
            Property::Charset => &mut self.charset,
            Property::Language => &mut self.language,
            Property::Encoding => &mut self.encoding,
            Property::Handler => &mut self.handler,
            Property::Filter => &mut self.filters,
        }
    }
}

/// The type of a file without one.
const UNTYPED: &[u8] = b"application/octet-stream";

impl MimeConf {
    /// The configuration below another one.
    pub fn below(&self, base: &MimeConf) -> MimeConf {
        if !self.is_set() {
            return base.clone();
        }
        let mut extensions = base.extensions.clone();
        for (name, own) in &self.extensions {
            let merged = extensions.entry(name.clone()).or_default();
            let Extension { media_type, charset, language, encoding, handler, filters } = own;
            let set = |field: &mut Option<Vec<u8>>, value: &Option<Vec<u8>>| {
                if value.is_some() {
                    field.clone_from(value);
                }
            };
            set(&mut merged.media_type, media_type);
            set(&mut merged.charset, charset);
            set(&mut merged.language, language);
            set(&mut merged.encoding, encoding);
            set(&mut merged.handler, handler);
            set(&mut merged.filters, filters);
        }
        let default_language =
            self.default_language.as_ref().or(base.default_language.as_ref()).cloned();
        let removed = self.removed.clone();
        let mut merged = MimeConf { extensions, removed, default_language };
        if base.is_set() {
            merged.complete();
        }
        merged
    }

    fn is_set(&self) -> bool {
        !self.extensions.is_empty() || !self.removed.is_empty() || self.default_language.is_some()
    }

    /// Whether [`MimeConf::complete`] changes it.
    pub fn is_complete(&self) -> bool {
        self.removed.is_empty()
    }

    /// Applies what is removed: what comes later is merged with the result.
    pub fn complete(&mut self) {
        for RemovedProperty { extension, property } in std::mem::take(&mut self.removed) {
            if let Some(found) = self.extensions.get_mut(&extension) {
                *found.property(property) = Some(Vec::new());
            }
        }
    }

    /// Gives an extension a property; an empty value removes it.
    ///
    /// # Errors
    /// When there are too many, or the value is too long.
    pub fn add(
        &mut self,
        property: Property,
        extension: &[u8],
        value: &[u8],
    ) -> Result<(), String> {
        limits::check(value.len(), MAX_PROPERTY_BYTES, "bytes in its first word")?;
        self.give(property, extension, value);
        let extensions = self.extensions.len() + self.removed.len();
        limits::check(extensions, MAX_EXTENSIONS, "extensions")
    }

    fn give(&mut self, property: Property, extension: &[u8], value: &[u8]) {
        let name = extension.strip_prefix(b".").unwrap_or(extension).to_ascii_lowercase();
        // The server's own types and its handler of PHP are removed like any other.
        if value.is_empty() && !matches!(property, Property::Type | Property::Handler) {
            self.removed.push(RemovedProperty { extension: name, property });
            return;
        }
        let field = self.extensions.entry(name).or_default().property(property);
        // What a file removes it does not add.
        if property == Property::Handler && field.as_ref().is_some_and(Vec::is_empty) {
            return;
        }
        *field = Some(value.to_ascii_lowercase());
        if property == Property::Charset || property == Property::Type {
            *field = Some(value.to_vec());
        }
    }

    /// Sets type, encoding, language and handler by the extensions of the file (`find_ct`).
    pub fn apply(&self, request: &mut Request) {
        if request.kind == Kind::Directory {
            return;
        }
        let name = request.base_name().to_vec();
        let mut charset = None;
        for extension in extensions(&name) {
            let Some(found) = self.extensions.get(&extension.to_ascii_lowercase()) else {
                continue;
            };
            let given = |field: &Option<Vec<u8>>| field.clone().filter(|value| !value.is_empty());
            if let Some(media_type) = &found.media_type {
                // RemoveType takes the server's own type away, too.
                let is_removed = media_type.is_empty();
                let untyped = is_removed.then(|| UNTYPED.to_vec());
                request.content_type = untyped.or_else(|| Some(media_type.clone()));
            }
            charset = given(&found.charset).or(charset);
            request.content_language.extend(given(&found.language));
            if let Some(encoding) = given(&found.encoding) {
                let all = match request.content_encoding.take() {
                    Some(before) => [&before[..], b", ", &encoding].concat(),
                    None => encoding,
                };
                request.content_encoding = Some(all);
            }
            // Apache takes the handler of any extension. `x.php.jpg` must not run, but the source
            // in `x.pl.bak` is not sent.
            if let Some(handler) = &found.handler
                && (name.ends_with(&[b".", extension].concat())
                    || shows_no_file(handler) && !is_php_name(&name))
            {
                // An empty one is removed, also that of the server.
                request.handler = Some(handler.clone());
            }
        }
        if request.content_language.is_empty() {
            request.content_language.extend(self.default_language.clone());
        }
        request.charset = charset;
    }

    /// Whether an extension of a file has the filter of server-side includes.
    pub fn parses_includes(&self, name: &[u8]) -> bool {
        let mut found =
            extensions(name).filter_map(|own| self.extensions.get(&own.to_ascii_lowercase()));
        found.any(|own| own.filters.as_deref().is_some_and(has_includes))
    }
}

/// Whether a file with this handler is not sent as it is, or not always.
fn shows_no_file(handler: &[u8]) -> bool {
    is_program(handler) || handler == SERVER_PARSED
}

/// The extensions of a file, from the first one.
fn extensions(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let dots = name.iter().take_while(|byte| **byte == b'.').count();
    name[dots..].split(|byte| *byte == b'.').skip(1)
}

weight_of!(MimeConf: extensions, removed, default_language);
weight_of!(Extension: media_type, charset, language, encoding, handler, filters);
weight_of!(RemovedProperty: extension);
