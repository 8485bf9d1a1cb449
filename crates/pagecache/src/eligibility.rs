//! Whether the cache may serve a request, and whether its response may be stored.

use crate::admit::NotStored;
use crate::cache_control::RequestDirectives;
use crate::cache_request::CacheRequest;
use crate::canonical_url::{decoded, plain_path};
use crate::cookies;
use crate::headers::{self, Field};
use crate::php_names::{begins_with, has_index, is_named, may_be};
use crate::settings::{RequestMatcher, Settings};

reasons! {
    /// Why a request bypasses the cache.
    pub enum Bypass {
        /// The method is neither GET nor HEAD.
        Method = "method",
        /// It is a GET with a body.
        Body = "body",
        /// It has a precondition that only the origin can evaluate.
        Precondition = "precondition",
        /// It has a session cookie.
        PrivateCookie = "private-cookie",
        /// A cookie selects a variant for LiteSpeed's cache, and the key does not contain it.
        VaryCookie = "vary-cookie",
        /// It has a cookie that the site has set and whose meaning the settings do not state.
        SiteCookie = "site-cookie",
        /// The client has sent a certificate, which scripts can read.
        Certificate = "client-certificate",
        /// A `.htaccess` file decides by more than the URL: by headers or the client's address.
        Htaccess = "htaccess",
        /// The purge log was not reached for too long: other nodes may have purged the page.
        PurgeLog = "purge-log",
        /// The site's `bypass` rule matches.
        Rule = "rule",
        /// The request's own `Cache-Control` header says so, and the site honours it.
        Request = "request",
        /// The key would be too long.
        KeyTooLong = "key-too-long",
    }
}

/// What the cache may do for a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Whether it may be served from the cache, or why not.
    pub read: Result<(), Bypass>,
    /// Whether the response may be stored as far as the request is concerned, or why not.
    pub store: Result<(), NotStored>,
    /// The request's cache directives, if the site honours them.
    pub directives: Option<RequestDirectives>,
}

impl Plan {
    /// Plans a request to a site with these settings.
    pub fn make<'a, H: Iterator<Item = Field<'a>> + Clone>(
        settings: &Settings,
        asked: &CacheRequest<'a, H>,
    ) -> Plan {
        let obeys = settings.obey_requests && asked.has_directives;
        let directives = obeys.then(|| RequestDirectives::of(asked.fields()));
        let mut plan = Plan { read: Ok(()), store: Ok(()), directives };
        if let Some(why) = unfit(settings, asked) {
            plan.read = Err(why);
            plan.store = Err(NotStored::Bypassed(why));
            return plan;
        }
        if holds(&settings.bypass, asked) {
            plan.read = Err(Bypass::Rule);
        }
        plan.store = match plan.directives.as_ref() {
            Some(directives) if directives.no_store => Err(NotStored::RequestNoStore),
            _ if asked.is_head() => Err(NotStored::Head),
            _ if asked.has_unkeyed_but(&settings.key.headers)
                || has_odd_cookie(settings, asked) =>
            {
                Err(NotStored::UnkeyedHeader)
            }
            _ if holds(&settings.no_store, asked) => Err(NotStored::Rule),
            _ if cookies::has_unknown(settings, asked) => Err(NotStored::UnknownCookie),
            _ => Ok(()),
        };
        if plan.directives.as_ref().is_some_and(|directives| directives.no_store) {
            plan.read = Err(Bypass::Request);
        }
        plan
    }

    /// Whether the request bypasses the cache entirely: neither served from it nor stored.
    pub fn is_none(&self) -> bool {
        self.read.is_err() && self.store.is_err()
    }
}

/// Most cookies of a request whose response is stored at a site with cookies in its keys. PHP
/// ignores cookies beyond `max_input_vars` (1000), so the script would not see one that the key
/// contains. A lower `max_input_vars` of a pool or folder is not known here: there a client with
/// that many cookies in front of a key's cookie could choose the page stored under that key.
const MAX_COOKIES: usize = 256;

/// Whether the script would see another value for a cookie of the key than the key contains: PHP
/// maps another name to the same variable, maps this name to another variable, keeps white space
/// that the key drops, or takes the last of several values (inside an array; outside it takes the
/// first, as the key does).
fn has_odd_cookie<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &CacheRequest<'a, H>,
) -> bool {
    let names = &settings.key.cookies;
    if !asked.has_cookies || names.is_empty() {
        return false;
    }
    if asked.cookies_as_written().nth(MAX_COOKIES).is_some() {
        return true;
    }
    names.iter().map(String::as_bytes).any(|name| {
        let mut seen = 0;
        asked.cookies_as_written().any(|(cookie, value)| {
            let is_as_named = cookie == name;
            seen += usize::from(is_as_named);
            let is_odd = !is_as_named && (cookie.trim_ascii_end() == name || may_be(cookie, name));
            let is_padded = is_as_named && value.trim_ascii() != value;
            is_odd || is_padded || (seen > 1 && has_index(name))
        })
    })
}

/// Why a request bypasses the cache entirely; `None` if it does not.
fn unfit<'a, H: Iterator<Item = Field<'a>> + Clone>(
    settings: &Settings,
    asked: &CacheRequest<'a, H>,
) -> Option<Bypass> {
    if !asked.is_get() && !asked.is_head() {
        return Some(Bypass::Method);
    }
    if asked.request.has_body {
        return Some(Bypass::Body);
    }
    if asked.has_precondition {
        return Some(Bypass::Precondition);
    }
    let is_private = |(name, _): Field<'_>| {
        let mut patterns = settings.private_cookies.iter();
        patterns.any(|pattern| is_named(pattern, name))
    };
    if !asked.has_cookies {
        return None;
    }
    if asked.cookies().any(is_private) {
        return Some(Bypass::PrivateCookie);
    }
    let is_unkeyed_vary = |(name, _): Field<'_>| {
        let mut keyed = settings.key.cookies.iter();
        begins_with(name, VARY_COOKIE) && !keyed.any(|keyed| keyed.as_bytes() == name)
    };
    let is_variant = settings.litespeed && asked.cookies().any(is_unkeyed_vary);
    is_variant.then_some(Bypass::VaryCookie)
}

/// LiteSpeed varies pages by each cookie whose name begins so, which no response header names. Its
/// plugins set one for the group, currency, language or role of a visitor.
const VARY_COOKIE: &[u8] = b"_lscache_vary";

/// Whether the request matches.
fn holds<'a, H: Iterator<Item = Field<'a>> + Clone>(
    when: &RequestMatcher,
    asked: &CacheRequest<'a, H>,
) -> bool {
    if when.is_empty() {
        return false;
    }
    if when.methods.iter().any(|method| method == asked.request.method) {
        return true;
    }
    let cookie = |(name, _): Field<'_>| when.cookies.iter().any(|cookie| is_named(cookie, name));
    if asked.has_cookies && asked.cookies().any(cookie) {
        return true;
    }
    if is_at_path(when, asked.request.path.as_bytes()) {
        return true;
    }
    let has = |name: &String| {
        let mut values = headers::values(asked.fields(), name);
        values.any(|value| !value.is_empty() && value != b"0")
    };
    when.headers.iter().any(has) || has_parameter(when, asked.request.query.unwrap_or_default())
}

/// Whether the site's rules let no response be stored at a path and query.
pub fn is_never_stored(settings: &Settings, target: &str) -> bool {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let rule = &settings.no_store;
    is_at_path(rule, path.as_bytes()) || has_parameter(rule, query)
}

/// Whether a path matches, also in an equivalent spelling or behind a script: `/account.php/x.css`
/// runs `/account.php`, and `/index.php/account/` is `/account/` to most applications with that
/// front controller. An attacker can make a victim request such a path (web cache deception).
fn is_at_path(when: &RequestMatcher, path: &[u8]) -> bool {
    let is_one = |path: &[u8]| when.paths.iter().any(|pattern| pattern.matches(path));
    let is_meant = |path: &[u8]| {
        let mut scripts = scripts_in(path);
        is_one(path) || scripts.any(|(script, behind)| is_one(script) || is_one(behind))
    };
    let is_odd = || {
        let pairs = path.windows(2).any(|pair| matches!(pair, b"//" | b"/."));
        pairs || path.contains(&b'%')
    };
    !when.paths.is_empty() && (is_meant(path) || (is_odd() && is_meant(&plain_path(path))))
}

/// Each prefix of a path that may be a script, with the PATH_INFO behind it.
fn scripts_in(path: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    let parts = memchr::memchr_iter(b'/', path).map(|end| path.split_at(end));
    parts.filter(|(script, _)| script.ends_with(b".php"))
}

fn has_parameter(when: &RequestMatcher, query: &str) -> bool {
    if when.parameters.is_empty() || query.is_empty() {
        return false;
    }
    query.split('&').any(|parameter| {
        let name = parameter.split('=').next().unwrap_or_default();
        let name = decoded(name.as_bytes(), b' ');
        // PHP skips spaces before a name, and a name ends at the first NUL.
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        let spaces = name.iter().take_while(|byte| **byte == b' ').count();
        let mut patterns = when.parameters.iter();
        patterns.any(|pattern| is_named(pattern, &name[spaces..]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache_request::Request;
    use crate::settings::Pattern;

    fn plan(settings: &Settings, method: &str, target: &str, fields: &[Field<'_>]) -> Plan {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let request = Request {
            method,
            is_https: true,
            host: "a.example",
            port: None,
            path,
            query,
            has_body: false,
            by_proxy: false,
            by_forwarded: false,
        };
        let fields: Vec<Field<'_>> = fields.to_vec();
        Plan::make(settings, &CacheRequest::survey(request, fields.into_iter()))
    }

    fn get(fields: &[Field<'_>]) -> Plan {
        plan(&Settings::default(), "GET", "/", fields)
    }

    #[test]
    fn only_get_is_kept_and_head_is_answered_from_it() {
        let settings = Settings::default();
        let get = get(&[]);
        assert_eq!((get.read, get.store), (Ok(()), Ok(())));
        let head = plan(&settings, "HEAD", "/", &[]);
        assert_eq!((head.read, head.store), (Ok(()), Err(NotStored::Head)));
        for method in ["POST", "PURGE", "get", "OPTIONS"] {
            let other = plan(&settings, method, "/", &[]);
            assert_eq!(other.read, Err(Bypass::Method), "{method}");
            assert!(other.is_none());
        }
    }

    #[test]
    fn a_session_is_neither_answered_nor_kept_however_its_cookie_is_written() {
        assert!(get(&[(b"Cookie", b"a=b; PHPSESSID=x")]).is_none());
        assert!(get(&[(b"Cookie", b"a=b"), (b"cookie", b"PHPSESSID=")]).is_none());
        assert!(!get(&[(b"Cookie", b"a=PHPSESSID; PHPSESSION=1")]).is_none());
        let private_cookies = ["wordpress_logged_in_*", "user[id]"];
        let private_cookies = private_cookies.map(Pattern::new).to_vec();
        let settings = Settings { private_cookies, ..Settings::default() };
        for cookie in [
            "wordpress.logged_in_x=1",
            "wordpress[logged_in_x=1",
            "wordpress logged.in_x=1",
            "  wordpress_logged_in_x[0]=1",
            "user[id]x=1",
            "user[id][=1",
        ] {
            let plan = plan(&settings, "GET", "/", &[(b"Cookie", cookie.as_bytes())]);
            assert_eq!(plan.read, Err(Bypass::PrivateCookie), "{cookie}");
        }
    }

    #[test]
    fn a_vary_cookie_of_litespeed_selects_a_variant_only_with_a_key_that_has_it() {
        let mut settings = Settings { litespeed: true, ..Settings::default() };
        let read = |settings: &Settings, cookie: &str| {
            plan(settings, "GET", "/", &[(b"Cookie", cookie.as_bytes())]).read
        };
        settings.key.cookies = vec!["_lscache_vary".to_owned()];
        assert_eq!(read(&settings, "a=1; _lscache_vary=cg~4~"), Ok(()));
        for other in ["_lscache_vary_2=1", ".lscache vary=1", "_lscache_vary[0]=1"] {
            assert_eq!(read(&settings, other), Err(Bypass::VaryCookie), "{other}");
        }
        settings.key.cookies.clear();
        let none = plan(&settings, "GET", "/", &[(b"Cookie", b"_lscache_vary=")]);
        assert_eq!(none.store, Err(NotStored::Bypassed(Bypass::VaryCookie)));
        assert_eq!(read(&settings, "lscache_vary=1; a=_lscache_vary"), Ok(()));
        settings.litespeed = false;
        assert_eq!(read(&settings, "_lscache_vary=1"), Ok(()));
    }

    #[test]
    fn what_an_application_might_believe_and_no_key_has_is_answered_but_not_kept() {
        let plan = get(&[(b"X-Forwarded-Host", b"evil.example")]);
        assert_eq!((plan.read, plan.store), (Ok(()), Err(NotStored::UnkeyedHeader)));
        let request = Request {
            method: "GET",
            is_https: true,
            host: "a.example",
            port: None,
            path: "/",
            query: None,
            has_body: false,
            by_proxy: true,
            by_forwarded: false,
        };
        let of = |name: &'static str| {
            let fields = [(name.as_bytes(), &b"a.example"[..])];
            let asked = CacheRequest::survey(request, fields.into_iter());
            Plan::make(&Settings::default(), &asked).store
        };
        assert_eq!(of("X-Forwarded-Host"), Ok(()));
        assert_eq!(of("X-Original-URL"), Err(NotStored::UnkeyedHeader));
    }

    #[test]
    fn an_unknown_cookie_keeps_a_response_out_of_a_cache_that_guards_cookies() {
        let mut settings = Settings { guards_cookies: true, ..Settings::default() };
        settings.key.cookies = vec!["lang".to_owned()];
        let of = |settings: &Settings, cookie: &str| {
            let plan = plan(settings, "GET", "/", &[(b"Cookie", cookie.as_bytes())]);
            assert_eq!(plan.read, Ok(()));
            plan.store
        };
        assert_eq!(of(&settings, "lang=de; shop_login=1"), Err(NotStored::UnknownCookie));
        for known in ["lang=de", "_ga=1; lang=de", ""] {
            assert_eq!(of(&settings, known), Ok(()), "{known}");
        }
        assert_eq!(plan(&settings, "GET", "/", &[]).store, Ok(()));
        settings.guards_cookies = false;
        assert_eq!(of(&settings, "shop_login=1"), Ok(()));
    }

    #[test]
    fn a_cookie_of_the_key_is_kept_only_as_php_reads_it_as_well() {
        let mut settings = Settings::default();
        settings.key.cookies =
            ["lang", "my_size", "a.b", "prefs[lang]"].map(str::to_owned).to_vec();
        let store =
            |cookie: &str| plan(&settings, "GET", "/", &[(b"Cookie", cookie.as_bytes())]).store;
        let many = |count: usize| format!("{}lang=de", "x;".repeat(count));
        for good in [
            "lang=de",
            "a=b ;\t lang=de",
            "lang",
            "langs[]=de; my_size_x[a]=l; mysize[]=l; my_size=l; a.b=c",
            "lang=de; lang=fr",
            "prefs[theme]=dark; prefs[lang]=de; prefs[ lang]=x; prefs_lang=x; pref[lang]=x",
            &many(MAX_COOKIES - 1),
        ] {
            assert_eq!(store(good), Ok(()), "{good}");
        }
        for odd in [
            "lang =de",
            "lang[0]=de",
            "lang=de ;x",
            "lang=\tde",
            "my.size=l",
            "my.size[]=x; my_size=l",
            "my_size=l; my size[a]=l",
            "my[size=l",
            "my.size[a][b]c=l",
            "a_b=c",
            "a b[]=c",
            "prefs[lang][a]=x",
            "prefs[lang]x=x",
            "prefs[lang]=de; prefs[lang][=x",
            "prefs[lang]=de; prefs[lang]=fr",
            "prefs[]=x",
            "prefs=x; prefs[lang]=de",
            &many(MAX_COOKIES),
        ] {
            assert_eq!(store(odd), Err(NotStored::UnkeyedHeader), "{odd}");
        }
    }

    #[test]
    fn a_field_of_the_key_is_none_that_no_key_has() {
        let fields: [Field<'_>; 2] = [(b"X-Forwarded-Host", b"a"), (b"X-Requested-With", b"b")];
        assert_eq!(get(&fields).store, Err(NotStored::UnkeyedHeader));
        let keyed = |names: &[&str]| {
            let mut settings = Settings::default();
            settings.key.headers = names.iter().map(|name| (*name).to_owned()).collect();
            plan(&settings, "GET", "/", &fields).store
        };
        assert_eq!(keyed(&["x-forwarded-host"]), Err(NotStored::UnkeyedHeader));
        assert_eq!(keyed(&["x-forwarded-host", "X-Requested-With"]), Ok(()));
    }

    #[test]
    fn rules_hold_for_cookies_fields_paths_parameters_and_methods() {
        let settings = Settings {
            bypass: RequestMatcher {
                cookies: vec![Pattern::new("nocache")],
                headers: vec!["X-No-Cache".to_owned()],
                methods: vec!["HEAD".to_owned()],
                ..RequestMatcher::default()
            },
            no_store: RequestMatcher {
                paths: vec![Pattern::new("/wp-admin/*")],
                parameters: vec![Pattern::new("preview")],
                ..RequestMatcher::default()
            },
            ..Settings::default()
        };
        let read = |fields: &[Field<'_>]| plan(&settings, "GET", "/", fields).read;
        assert_eq!(read(&[(b"Cookie", b"nocache=1")]), Err(Bypass::Rule));
        assert_eq!(read(&[(b"x-no-cache", b"1")]), Err(Bypass::Rule));
        assert_eq!(read(&[(b"x-no-cache", b"0")]), Ok(()));
        let head = plan(&settings, "HEAD", "/", &[]);
        assert_eq!(head.read, Err(Bypass::Rule));
        let store = |target: &str| plan(&settings, "GET", target, &[]).store;
        assert_eq!(store("/wp-admin/x"), Err(NotStored::Rule));
        assert_eq!(store("/?a&preview=1"), Err(NotStored::Rule));
        assert!(is_never_stored(&settings, "/?a&preview=1"));
        assert!(!is_never_stored(&settings, "/?a=preview"));
        for written in ["previe%77=1", "+%20preview", "preview[]=1", "preview%00x=1"] {
            let target = format!("/?{written}");
            assert_eq!(store(&target), Err(NotStored::Rule), "{written}");
        }
        assert_eq!(store("/?preview+=1"), Ok(()));
        let any = vec![Pattern::new("*")];
        let no_store = RequestMatcher { parameters: any, ..RequestMatcher::default() };
        let any = Settings { no_store, ..Settings::default() };
        let store_of_any = |target: &str| plan(&any, "GET", target, &[]).store;
        assert_eq!(store_of_any("/?a"), Err(NotStored::Rule));
        assert_eq!((store_of_any("/"), store_of_any("/?")), (Ok(()), Ok(())));
        assert_eq!(store("/?a=preview"), Ok(()));
        let many = format!("/?{}&preview", vec!["a"; 300].join("&"));
        assert_eq!(store(&many), Err(NotStored::Rule));
    }

    #[test]
    fn a_path_is_meant_however_it_is_written() {
        let settings = Settings {
            no_store: RequestMatcher {
                paths: vec![Pattern::new("/account/*"), Pattern::new("/a+b")],
                ..RequestMatcher::default()
            },
            ..Settings::default()
        };
        for path in [
            "/account/",
            "/%61ccount/x",
            "//account/x",
            "/x/..//account/x",
            "/./account/",
            "/account%2fx",
            "/a%2bb",
        ] {
            let plan = plan(&settings, "GET", path, &[]);
            assert_eq!(plan.store, Err(NotStored::Rule), "{path}");
            assert!(is_never_stored(&settings, &format!("{path}?a")), "{path}");
        }
        for path in ["/accounts/", "/x/account/", "/account/../x", "/..", "/%", "/a b"] {
            let is_account = path.starts_with("/account/");
            let plan = plan(&settings, "GET", path, &[]);
            assert_eq!(plan.store.is_err(), is_account, "{path}");
            assert_eq!(is_never_stored(&settings, path), is_account, "{path}");
        }
    }

    #[test]
    fn a_script_is_meant_with_whatever_stands_behind_it() {
        let settings = Settings {
            no_store: RequestMatcher {
                paths: vec![Pattern::new("/account.php"), Pattern::new("/my/*")],
                ..RequestMatcher::default()
            },
            ..Settings::default()
        };
        let store = |path: &str| plan(&settings, "GET", path, &[]).store;
        for path in [
            "/account.php/x.css",
            "/account.php/",
            "/%61ccount.php/x",
            "/account.php%2Fx",
            "//account.php/a.php/b",
            "/my/x.php/y",
            "/index.php/my/orders",
            "/index.php%2Fmy/orders",
        ] {
            assert_eq!(store(path), Err(NotStored::Rule), "{path}");
        }
        for path in ["/account.phpx/y", "/x/account.php/y", "/index/my/", "/"] {
            assert_eq!(store(path), Ok(()), "{path}");
        }
    }

    #[test]
    fn a_request_says_something_about_caches_only_where_it_is_obeyed() {
        let fields: [Field<'_>; 1] = [(b"Cache-Control", b"no-store")];
        assert_eq!(get(&fields).store, Ok(()));
        let settings = Settings { obey_requests: true, ..Settings::default() };
        let obeyed = plan(&settings, "GET", "/", &fields);
        assert_eq!(obeyed.store, Err(NotStored::RequestNoStore));
        assert_eq!(obeyed.read, Err(Bypass::Request));
    }

    #[test]
    fn a_body_and_a_precondition_are_the_origins() {
        assert_eq!(get(&[(b"If-Match", b"\"a\"")]).read, Err(Bypass::Precondition));
        let request = Request {
            method: "GET",
            is_https: false,
            host: "a",
            port: None,
            path: "/",
            query: None,
            has_body: true,
            by_proxy: false,
            by_forwarded: false,
        };
        let asked = CacheRequest::survey(request, [].into_iter());
        assert_eq!(Plan::make(&Settings::default(), &asked).read, Err(Bypass::Body));
    }
}
