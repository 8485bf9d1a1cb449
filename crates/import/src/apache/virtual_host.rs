//! A virtual host, and which requests Apache takes it for.

use crate::listen_addresses::Listen;
use crate::report::SourceLine;
use crate::source_directive::Directive;

/// A virtual host, or the server itself.
pub(super) struct VirtualHost<'a> {
    /// `<VirtualHost>`; none: the server itself.
    pub section: Option<&'a Directive>,
    /// Its place.
    pub place: SourceLine,
    /// Its directives.
    pub directives: &'a [Directive],
    /// The addresses that it is served at.
    pub listens: Vec<Listen>,
    /// Those of them that it does not name, but has for all addresses.
    pub for_all: Vec<Listen>,
    /// Its names.
    pub names: Vec<String>,
    /// The names of a `ServerAlias` with a wildcard.
    pub wildcards: Vec<regex::Regex>,
    /// Whether requests for unknown names are its own.
    pub is_default: bool,
    /// Plain HTTP is redirected to HTTPS of the same name, with this status.
    pub to_https: Option<u16>,
    /// Names that are redirected elsewhere.
    pub moved: Vec<MovedHost<'a>>,
    /// The lines that these come from.
    pub moved_lines: Vec<&'a Directive>,
}

/// A name of a virtual host that is redirected.
pub(super) struct MovedHost<'a> {
    /// The name.
    pub host: String,
    /// The target, in maitred's words.
    pub to: String,
    /// The status.
    pub status: String,
    /// The directive.
    pub from: &'a Directive,
}

impl VirtualHost<'_> {
    /// Whether it is served over TLS.
    pub fn has_tls(&self) -> bool {
        self.listens.iter().any(|one| one.is_tls)
    }

    /// Whether it does nothing but redirect to HTTPS.
    pub fn is_only_redirect(&self) -> bool {
        self.to_https.is_some() && !self.has_tls()
    }

    /// Whether Apache may take it in place of a later one: they have an address in common. One that
    /// names the address comes before those for all.
    pub fn may_precede(&self, later: &VirtualHost<'_>) -> bool {
        let is_same = |own: &Listen, its: &Listen| {
            own.host == its.host || own.is_loopback() && its.is_loopback()
        };
        let is_beside = |own: &Listen, its: &Listen| {
            let is_at_all = later.for_all.contains(its);
            let names_it = is_at_all || !self.for_all.contains(own) && is_same(own, its);
            own.port == its.port && names_it
        };
        self.listens.iter().any(|own| later.listens.iter().any(|its| is_beside(own, its)))
    }
}

/// The names that a `ServerAlias` has a wildcard for.
pub(super) fn wildcards(directives: &[Directive]) -> Vec<regex::Regex> {
    let aliases = directives.iter().filter(|one| one.is("ServerAlias"));
    let words = aliases.flat_map(|one| &one.arguments).filter(|word| word.contains(['*', '?']));
    let patterns = words.filter_map(|word| {
        let text = regex::escape(word).replace("\\*", ".*").replace("\\?", ".");
        regex::Regex::new(&format!("(?i)^(?:{text})$")).ok()
    });
    patterns.collect()
}
