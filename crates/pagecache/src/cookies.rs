//! Cookies that may be a login's, at a site that does not name them (`private_cookies`, `app`).
//!
//! Two rules apply. A request with a cookie whose name the site has set before may come from a
//! visitor who is logged in: it is not answered from the cache, and its response is not stored. The
//! response to a request with an unknown cookie is not stored either: it may show what is one
//! person's own, and the site may have set the cookie before this server ran.

use std::collections::HashSet;

use crate::admit::NotStored;
use crate::asked::Asked;
use crate::fields::{self, Field};
use crate::plan::{Bypass, Plan};
use crate::settings::Settings;

/// Most names that are remembered of a site. At one with more, every cookie counts.
pub const MAX_NAMES: usize = 256;

/// Longest name that is remembered, in bytes. A site that sets a longer one has more than it may.
pub const MAX_NAME_BYTES: usize = 128;

/// Cookies that scripts in browsers set to count visits and to remember consent: they make no
/// difference to what a site answers.
pub const OF_BROWSERS: [&str; 32] = [
    "_ga",
    "_ga_*",
    "_gid",
    "_gat*",
    "_gcl_*",
    "_gac_*",
    "__gads",
    "__gpi",
    "__utm*",
    "_fbp",
    "_fbc",
    "_pk_*",
    "_hj*",
    "_clck",
    "_clsk",
    "_uetsid",
    "_uetvid",
    "_scid*",
    "_ttp",
    "_tt_*",
    "_pin_unauth",
    "__hs*",
    "hubspotutk",
    "ajs_*",
    "mp_*",
    "amp_*",
    "__cf_bm",
    "cf_clearance",
    "CookieConsent",
    "OptanonConsent",
    "OptanonAlertBoxClosed",
    "euconsent-v2",
];

/// The names of the cookies that a site has set, as PHP knows them up to their first bracket.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    names: HashSet<Vec<u8>>,
    /// There are more than are remembered.
    are_too_many: bool,
}

impl Names {
    /// Whether the site may have set a cookie of this name.
    pub fn hold(&self, name: &[u8]) -> bool {
        if self.are_too_many {
            return true;
        }
        !self.names.is_empty() && self.names.contains(&base(name))
    }

    /// These and one more; nothing if it is among them.
    pub fn with(&self, name: &[u8]) -> Option<Names> {
        if self.hold(name) {
            return None;
        }
        let mut more = self.clone();
        if name.len() > MAX_NAME_BYTES || self.names.len() >= MAX_NAMES {
            (more.names, more.are_too_many) = (HashSet::new(), true);
        } else {
            more.names.insert(base(name));
        }
        Some(more)
    }

    /// All of them, or nothing if they are too many.
    pub fn all(&self) -> Option<impl Iterator<Item = &[u8]>> {
        (!self.are_too_many).then(|| self.names.iter().map(Vec::as_slice))
    }

    /// Those of a site that sets more than are remembered.
    pub fn too_many() -> Names {
        Names {
            names: HashSet::new(),
            are_too_many: true,
        }
    }
}

/// A name as PHP has it, up to its first bracket: `a.b[c]` is an entry of `a_b`.
fn base(name: &[u8]) -> Vec<u8> {
    let name = name.trim_ascii();
    let end = memchr::memchr(b'[', name).unwrap_or(name.len());
    let told = name[..end].iter().map(|byte| match byte {
        b' ' | b'.' => b'_',
        byte => *byte,
    });
    told.collect()
}

/// The names of the cookies that an answer with these fields sets.
pub fn set_by<'f>(answer: impl Iterator<Item = Field<'f>>) -> impl Iterator<Item = &'f [u8]> {
    let lines = answer.filter(|(name, _)| fields::is(name, "set-cookie"));
    lines.map(|(_, value)| {
        let end = value.iter().position(|byte| matches!(byte, b'=' | b';'));
        value[..end.unwrap_or(value.len())].trim_ascii()
    })
}

/// Whether a request has a cookie that the site has set.
pub fn is_known<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &Asked<'a, H>,
    names: &Names,
) -> bool {
    let mut cookies = asked.cookies().map(|(name, _)| name);
    settings.guards_cookies
        && asked.has_cookies
        && cookies.any(|name| names.hold(name) && !is_public(settings, name))
}

/// What is left of a plan for a request with a cookie that the site has set.
pub fn keep_out(plan: &mut Plan) {
    let why = Bypass::SiteCookie;
    plan.read = plan.read.and(Err(why));
    plan.store = Err(NotStored::Bypassed(why));
}

/// Whether a request has a cookie whose effect on the response is unknown.
pub(crate) fn has_unknown<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &Asked<'a, H>,
) -> bool {
    let mut cookies = asked.cookies().map(|(name, _)| name);
    settings.guards_cookies
        && asked.has_cookies
        && cookies.any(|name| !name.is_empty() && !is_public(settings, name))
}

/// Whether the site says what a cookie means: that it makes no difference, that keys have it, or that
/// it is for a rule.
fn is_public(settings: &Settings, name: &[u8]) -> bool {
    let keyed = &settings.key.cookies;
    let (bypass, no_store) = (&settings.bypass.cookies, &settings.no_store.cookies);
    let mut told = settings.public_cookies.iter().chain(bypass).chain(no_store);
    keyed.iter().any(|keyed| keyed.as_bytes() == name) || told.any(|one| one.matches(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asked::Request;
    use crate::settings::Pattern;

    fn settings() -> Settings {
        Settings {
            guards_cookies: true,
            public_cookies: [Pattern::new("_ga_*"), Pattern::new("lang")].to_vec(),
            ..Settings::default()
        }
    }

    fn knows(names: &Names, cookie: &str) -> bool {
        let request = Request {
            method: "GET",
            is_https: true,
            host: "a.example",
            port: None,
            path: "/",
            query: None,
            has_body: false,
            by_proxy: false,
            by_forwarded: false,
        };
        let fields = [(&b"Cookie"[..], cookie.as_bytes())];
        let asked = Asked::survey(request, fields.into_iter());
        is_known(&settings(), &asked, names)
    }

    #[test]
    fn a_cookie_that_the_site_has_set_is_known_however_php_reads_it() {
        let answer: [Field<'_>; 3] = [
            (b"Content-Type", b"text/html"),
            (b"Set-Cookie", b"my.login[a]=1; Path=/"),
            (b"set-cookie", b" lang=de"),
        ];
        let names = set_by(answer.into_iter()).fold(Names::default(), |names, name| {
            names.with(name).expect("it is new")
        });
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
        let mut names = Names::default();
        for number in 0..=MAX_NAMES {
            let name = format!("seen_{number}");
            names = names.with(name.as_bytes()).expect("it is new");
        }
        assert!(knows(&names, "anything=1") && !knows(&names, "lang=de"));
        assert!(names.all().is_none() && names.with(b"one more").is_none());
        let long = Names::default().with(&[b'x'; MAX_NAME_BYTES + 1]);
        assert_eq!(long, Some(Names::too_many()));
    }
}
