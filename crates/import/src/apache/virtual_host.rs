//! A virtual host, and which requests Apache takes it for.

use crate::listen_addresses::Listen;
use crate::report::SourceLine;
use crate::source_directive::Directive;

/// The directives of Debian's `000-default.conf`, with their values where they matter.
const WELCOME: [(&str, Option<&str>); 5] = [
    ("ServerAdmin", None),
    ("DocumentRoot", Some("/var/www/html")),
    ("ErrorLog", None),
    ("CustomLog", None),
    ("LogLevel", None),
];

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

    /// Whether it is served over plain HTTP.
    pub fn has_plain(&self) -> bool {
        self.listens.iter().any(|one| !one.is_tls)
    }

    /// Whether others than this machine reach it over plain HTTP.
    pub fn has_open_plain(&self) -> bool {
        self.listens.iter().any(|one| !one.is_tls && !one.is_loopback())
    }

    /// Whether a name leads to it, by itself or by a wildcard.
    pub fn has_name(&self, name: &str) -> bool {
        let has_wildcard = || self.wildcards.iter().any(|pattern| pattern.is_match(name));
        self.names.iter().any(|own| own == name) || has_wildcard()
    }

    /// Whether it is served over TLS, and plain HTTP with one of its names by another one.
    pub fn is_over_tls_alone(&self, all: &[VirtualHost<'_>]) -> bool {
        let leads = |one: &VirtualHost<'_>, name: Option<&String>| {
            let is_named = match name {
                Some(name) => one.names.contains(name),
                None => one.names.is_empty() || one.is_default,
            };
            one.has_open_plain() && (is_named || one.is_default && one.to_https.is_some())
        };
        let leads = |name: Option<&String>| all.iter().any(|one| leads(one, name));
        let is_alone = match self.names.is_empty() {
            true => !leads(None),
            false => self.names.iter().any(|name| !leads(Some(name))),
        };
        self.has_tls() && !self.has_plain() && is_alone
    }

    /// Whether it does nothing but redirect to HTTPS.
    pub fn is_only_redirect(&self) -> bool {
        self.to_https.is_some() && !self.has_tls()
    }

    /// Whether it redirects plain HTTP of a site that is served over TLS.
    pub fn leads_to_site(&self, all: &[VirtualHost<'_>]) -> bool {
        let is_site = |one: &VirtualHost<'_>| {
            let shares_name = self.names.iter().any(|name| one.names.contains(name));
            let has_wildcard = |host: &VirtualHost<'_>| {
                !host.wildcards.is_empty() || host.names.iter().any(|name| name.contains('*'))
            };
            one.has_tls()
                && (shares_name
                    || self.names.is_empty()
                    || one.names.is_empty()
                    || has_wildcard(self)
                    || has_wildcard(one))
        };
        self.to_https.is_some() && all.iter().any(is_site)
    }

    /// Whether it is the host of Debian's package: no name, and a welcome page.
    pub fn is_welcome_page(&self) -> bool {
        let is_usual = |one: &Directive| match WELCOME.iter().find(|(name, _)| one.is(name)) {
            Some((_, value)) => value.is_none_or(|value| one.first() == value),
            None => false,
        };
        self.section.is_some() && !self.has_tls() && self.directives.iter().all(is_usual)
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

/// The names of all virtual hosts over TLS.
pub(super) struct NamesOverTls {
    names: Vec<String>,
    wildcards: Vec<regex::Regex>,
}

impl NamesOverTls {
    pub fn of(hosts: &[VirtualHost<'_>]) -> NamesOverTls {
        let tls = || hosts.iter().filter(|one| one.has_tls());
        NamesOverTls {
            names: tls().flat_map(|one| one.names.clone()).collect(),
            wildcards: tls().flat_map(|one| one.wildcards.clone()).collect(),
        }
    }

    /// Whether a host with these names may redirect to HTTPS of each of them in place of `target`:
    /// all of them have TLS, and it is one of them.
    pub fn have_all(&self, names: &[String], target: &str) -> bool {
        let has = |name: &str| {
            let is_below = |pattern: &regex::Regex| pattern.is_match(name);
            self.names.iter().any(|one| one == name) || self.wildcards.iter().any(is_below)
        };
        names.iter().any(|one| one == target) && names.iter().all(|name| has(name))
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
