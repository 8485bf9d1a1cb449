//! Cookies that may belong to a login, at a site that does not list them (`private_cookies`,
//! `app`).
//!
//! Two rules apply. A request with a cookie whose name the site has set before may come from a
//! visitor who is logged in: it is not answered from the cache, and its response is not stored. The
//! response to a request with an unknown cookie is not stored either: it may show what is one
//! person's own, and the site may have set the cookie before this server ran.

use std::collections::HashSet;

use crate::admit::NotStored;
use crate::cache_request::CacheRequest;
use crate::eligibility::{Bypass, Plan};
use crate::fingerprint::fingerprint;
use crate::headers::{self, Field};
use crate::settings::{Pattern, Settings};

/// Most cookie names that are remembered for a site. Beyond it, every cookie counts.
pub const MAX_NAMES: usize = 256;

/// Bytes of a name that are remembered. Longer names with the same first bytes count as one.
pub const MAX_NAME_BYTES: usize = 64;

/// Cookies that a site's own scripts do not set: those of analytics and consent tools in the
/// browser, and those of load balancers and CDNs. They do not change a response, unless the site
/// itself sets a cookie with such a name.
const THIRD_PARTY: [&str; 63] = [
    "_ga",
    "_ga_*",
    "_gid",
    "_gat*",
    "_gcl_*",
    "_gac_*",
    "_gaexp*",
    "_dc_gtm_*",
    "__gads",
    "__gpi",
    "__utm*",
    "_fbp",
    "_fbc",
    "_pk_*",
    "_hj*",
    "_hp2_*",
    "_clck",
    "_clsk",
    "_uetsid",
    "_uetvid",
    "_scid*",
    "_ttp",
    "_tt_*",
    "_pin_unauth",
    "_vwo_*",
    "_vis_opt_*",
    "__hs*",
    "hubspotutk",
    "ajs_*",
    "mp_*",
    "amp_*",
    "_dd_s",
    "CookieConsent",
    "CookieScriptConsent",
    "OptanonConsent",
    "OptanonAlertBoxClosed",
    "euconsent-v2",
    "usprivacy",
    "didomi_token",
    "tarteaucitron",
    "borlabs-cookie",
    "cookieyes-*",
    "cookielawinfo-*",
    "viewed_cookie_policy",
    "cookie_notice_accepted",
    "moove_gdpr_popup",
    "cmplz_*",
    "__cf_bm",
    "__cflb",
    "__cfruid",
    "_cfuvid",
    "cf_clearance",
    "AWSALB*",
    "AWSELB*",
    "ARRAffinity*",
    "BIGipServer*",
    "incap_ses_*",
    "visid_incap_*",
    "nlbi_*",
    "ak_bmsc",
    "bm_sv",
    "_abck",
    "datadome",
];

/// The names of the cookies that a site has set, as PHP names them up to the first bracket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CookieNames {
    names: HashSet<Vec<u8>>,
    /// The site sets more names than are remembered.
    are_too_many: bool,
}

impl CookieNames {
    /// Whether the site may have set a cookie of this name.
    pub fn contains(&self, name: &[u8]) -> bool {
        if self.are_too_many {
            return true;
        }
        !self.names.is_empty() && self.names.contains(&base_name(name))
    }

    /// This set with one more name; `None` if the set has it already.
    pub fn with(&self, name: &[u8]) -> Option<CookieNames> {
        if self.contains(name) {
            return None;
        }
        let mut more = self.clone();
        if self.names.len() >= MAX_NAMES {
            more.are_too_many = true;
        } else {
            more.names.insert(base_name(name));
        }
        Some(more)
    }

    /// The remembered names.
    pub fn all(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(Vec::as_slice)
    }

    /// Whether the site sets more than are remembered, so that every cookie counts.
    pub fn are_too_many(&self) -> bool {
        self.are_too_many
    }

    /// This set, marked as incomplete.
    #[must_use]
    pub fn as_too_many(mut self) -> CookieNames {
        self.are_too_many = true;
        self
    }

    /// The names that still count under these settings. Whether the set is complete is determined
    /// again.
    pub fn under(&self, settings: &Settings) -> CookieNames {
        let names = self.names.iter();
        let names = names.filter(|name| settings.counts_cookie(name));
        CookieNames { names: names.cloned().collect(), are_too_many: false }
    }
}

impl Settings {
    /// Whether a cookie that the site sets is remembered.
    pub fn counts_cookie(&self, name: &[u8]) -> bool {
        self.guards_cookies && !name.is_empty() && !is_public(self, name)
    }

    /// A fingerprint of the settings that decide which cookies count.
    pub fn cookie_mark(&self) -> u64 {
        let (bypass, no_store) = (&self.bypass.cookies, &self.no_store.cookies);
        let lists = [&self.public_cookies, &self.private_cookies, bypass, no_store];
        let lists = lists.map(|list| list.iter().map(Pattern::to_string).collect());
        let keyed = self.key.cookies.clone();
        let text = |list: Vec<String>| list.join("\0") + "\n";
        let texts = lists.into_iter().chain([keyed]).map(text);
        let bytes = texts.flat_map(String::into_bytes);
        fingerprint([u8::from(self.guards_cookies)].into_iter().chain(bytes))
    }
}

/// A name as PHP has it, up to its first bracket: `a.b[c]` is an entry of `a_b`. Bytes that are not
/// ASCII are replaced and bytes after [`MAX_NAME_BYTES`] are dropped: names that collide only keep
/// more responses out of the cache.
pub fn base_name(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii();
    let end = memchr::memchr(b'[', name).unwrap_or(name.len());
    let known = name[..end].iter().take(MAX_NAME_BYTES);
    let known = known.map(|byte| match byte {
        b' ' | b'.' => b'_',
        b'"' | b'\\' => b'?',
        byte if byte.is_ascii_graphic() => *byte,
        _ => b'?',
    });
    known.collect()
}

/// The names of the cookies that a response sets.
pub fn set_by<'f>(response: impl Iterator<Item = Field<'f>>) -> impl Iterator<Item = &'f [u8]> {
    let lines = response.filter(|(name, _)| headers::is(name, "set-cookie"));
    lines.map(|(_, value)| {
        let end = value.iter().position(|byte| matches!(byte, b'=' | b';'));
        value[..end.unwrap_or(value.len())].trim_ascii()
    })
}

/// Whether a request has a cookie that the site has set.
pub fn is_known<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &CacheRequest<'a, H>,
    names: &CookieNames,
) -> bool {
    let mut cookies = asked.cookies().map(|(name, _)| name);
    settings.guards_cookies
        && asked.has_cookies
        && cookies.any(|name| names.contains(name) && !is_public(settings, name))
}

/// Restricts the plan of a request that has a cookie which the site has set.
pub fn keep_out(plan: &mut Plan) {
    let why = Bypass::SiteCookie;
    plan.read = plan.read.and(Err(why));
    plan.store = Err(NotStored::Bypassed(why));
}

/// Whether a request has a cookie whose effect on the response is unknown.
pub(crate) fn has_unknown<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &CacheRequest<'a, H>,
) -> bool {
    let mut cookies = asked.cookies().map(|(name, _)| name);
    settings.guards_cookies
        && asked.has_cookies
        && cookies.any(|name| settings.counts_cookie(name) && !is_third_party(name))
}

/// The value of a `Cookie` header with only the cookies of the key; empty if there is none. A
/// response to a request with these cookies is the same for all visitors.
pub fn keyed<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &CacheRequest<'a, H>,
) -> Vec<u8> {
    let names = &settings.key.cookies;
    let mut line = Vec::new();
    for (name, value) in asked.cookies_as_written() {
        if names.iter().any(|keyed| keyed.as_bytes() == name) {
            let separator: &[u8] = if line.is_empty() { b"" } else { b"; " };
            line.extend_from_slice(&[separator, name, b"=", value].concat());
        }
    }
    line
}

/// Whether a cookie is usually not set by the site.
fn is_third_party(name: &[u8]) -> bool {
    THIRD_PARTY.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start.as_bytes()),
        None => known.as_bytes() == name,
    })
}

/// Whether the site's settings state the meaning of a cookie: it makes no difference, the key
/// contains it, or a rule names it.
fn is_public(settings: &Settings, name: &[u8]) -> bool {
    let keyed = &settings.key.cookies;
    let (bypass, no_store) = (&settings.bypass.cookies, &settings.no_store.cookies);
    let mut known = settings.public_cookies.iter().chain(bypass).chain(no_store);
    keyed.iter().any(|keyed| keyed.as_bytes() == name) || known.any(|one| one.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_request::Request;
    use crate::settings::Pattern;

    fn settings() -> Settings {
        Settings {
            guards_cookies: true,
            public_cookies: [Pattern::new("_ga_*"), Pattern::new("lang")].to_vec(),
            ..Settings::default()
        }
    }

    fn request() -> Request<'static> {
        Request {
            method: "GET",
            is_https: true,
            host: "a.example",
            port: None,
            path: "/",
            query: None,
            has_body: false,
            by_proxy: false,
            by_forwarded: false,
        }
    }

    fn knows(names: &CookieNames, cookie: &str) -> bool {
        let request = request();
        let fields = [(&b"Cookie"[..], cookie.as_bytes())];
        let asked = CacheRequest::survey(request, fields.into_iter());
        is_known(&settings(), &asked, names)
    }

    #[test]
    fn a_cookie_that_the_site_has_set_is_known_however_php_reads_it() {
        let response: [Field<'_>; 3] = [
            (b"Content-Type", b"text/html"),
            (b"Set-Cookie", b"my.login[a]=1; Path=/"),
            (b"set-cookie", b" lang=de"),
        ];
        let names = set_by(response.into_iter())
            .fold(CookieNames::default(), |names, name| names.with(name).expect("it is new"));
        for cookie in ["my.login[a]=1", "x=1; my_login=2", "my login[b]=1"] {
            assert!(knows(&names, cookie), "{cookie}");
        }
        for cookie in ["lang=de", "mylogin=1", "other=my.login[a]", "_ga_X=1"] {
            assert!(!knows(&names, cookie), "{cookie}");
        }
        assert_eq!(names.with(b"my_login"), None);
    }

    #[test]
    fn at_a_site_with_too_many_names_every_cookie_counts_that_is_not_public() {
        let mut names = CookieNames::default();
        for number in 0..=MAX_NAMES {
            let name = format!("seen_{number}");
            names = names.with(name.as_bytes()).expect("it is new");
        }
        assert!(knows(&names, "anything=1") && !knows(&names, "lang=de"));
        assert!(names.are_too_many() && names.with(b"one more").is_none());
        let seen = Settings { public_cookies: vec![Pattern::new("seen_*")], ..settings() };
        let names = names.under(&seen);
        assert!(!knows(&names, "anything=1") && names.all().count() == 0);
        assert_ne!(seen.cookie_mark(), settings().cookie_mark());
        assert_eq!(settings().cookie_mark(), settings().cookie_mark());
    }

    #[test]
    fn a_name_takes_no_more_room_than_is_remembered_of_it() {
        let mut long = vec![b'x'; MAX_NAME_BYTES];
        long.extend_from_slice(b"yz");
        let names = CookieNames::default().with(&long).expect("it is new");
        let names = names.with(b"s\xe9ance\x01\"").expect("it is new");
        assert!(names.contains(&long) && names.contains(b"s\xe9ance\x01\""));
        assert!(!names.contains(&[b'x'; MAX_NAME_BYTES - 1]) && !names.are_too_many());
        let fits = |name: &[u8]| name.len() <= MAX_NAME_BYTES && name.is_ascii();
        assert!(names.all().all(fits));
    }

    #[test]
    fn a_name_that_browsers_use_counts_when_the_site_has_set_it() {
        let names = CookieNames::default().with(b"mp_auth").expect("it is new");
        assert!(knows(&names, "mp_auth=alice") && !knows(&names, "mp_other=1"));
    }

    #[test]
    fn a_request_is_reduced_to_the_cookies_of_the_key() {
        let mut settings = settings();
        settings.key.cookies = vec!["size".to_owned(), "tone".to_owned()];
        let request = request();
        let fields: [Field<'_>; 2] =
            [(b"Cookie", b"login=anna; tone=a b; _ga=1"), (b"cookie", b"size=l;sizes=x")];
        let asked = CacheRequest::survey(request, fields.into_iter());
        assert_eq!(keyed(&settings, &asked), b"tone=a b; size=l");
    }
}
