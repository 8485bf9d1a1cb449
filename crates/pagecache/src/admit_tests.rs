use super::*;
use crate::cache_request::Request;
use crate::settings::{IgnoreHeaders, Valid};

const NOW: Millis = 1_700_000_000_000;
const GET: Request<'static> = Request {
    method: "GET",
    is_https: false,
    host: "a.example",
    port: None,
    path: "/",
    query: None,
    has_body: false,
    by_proxy: false,
    by_forwarded: false,
};

fn admit_as(
    settings: &Settings,
    request: &[Field<'static>],
    status: u16,
    headers: &[(&str, &str)],
) -> Result<Admitted, NotStored> {
    let request: Vec<Field<'static>> = request.to_vec();
    let asked = CacheRequest::survey(GET, request.into_iter());
    let plan = Plan::make(settings, &asked);
    let times = Times { asked: NOW, came: NOW, stamp: 7 };
    let headers = headers.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
    let response = ResponseHead { status, headers };
    admit(settings, &asked, &plan, response, times)
}

fn of(headers: &[(&str, &str)]) -> Result<Admitted, NotStored> {
    admit_as(&Settings::default(), &[], 200, headers)
}

fn why(headers: &[(&str, &str)]) -> Option<NotStored> {
    of(headers).err()
}

fn names(admitted: &Admitted) -> Vec<String> {
    let names = admitted.stored.fields().map(|(name, _)| name);
    names.map(|name| String::from_utf8_lossy(name).into_owned()).collect()
}

#[test]
fn a_date_that_would_break_its_line_gives_way_to_the_time_of_the_response() {
    let kept = of(&[("Cache-Control", "max-age=60"), ("Date", "Sun\0")]).unwrap().stored;
    assert!(kept.lines.starts_with(b"Date: Tue, 14 Nov 2023 22:13:20 GMT\r\n"), "{kept:?}");
}

#[test]
fn what_says_nothing_of_its_life_is_not_kept() {
    assert_eq!(why(&[]), Some(NotStored::NoLifetime));
    assert_eq!(why(&[("ETag", "\"a\"")]), Some(NotStored::NoLifetime));
    assert_eq!(why(&[("Cache-Control", "max-age=60")]), None);
    let valid = vec![Valid { status: Some(200), seconds: 60 }];
    let settings = Settings { valid, ..Settings::default() };
    assert!(admit_as(&settings, &[], 200, &[]).is_ok());
    assert_eq!(admit_as(&settings, &[], 404, &[]), Err(NotStored::NoLifetime));
}

#[test]
fn an_answer_that_is_not_for_all_is_not_kept() {
    let why_control = |control: &str| why(&[("Cache-Control", control), ("Expires", "x")]);
    assert_eq!(why_control("max-age=60, No-StOrE"), Some(NotStored::NoStore));
    assert_eq!(why_control("private, max-age=60"), Some(NotStored::Private));
    assert_eq!(why_control("no-cache, max-age=60"), Some(NotStored::NoCache));
    let cookie = ("Set-Cookie", "a=b");
    assert_eq!(why(&[("Cache-Control", "public, max-age=60"), cookie]), Some(NotStored::SetCookie));
    // PHP's session_start() says all of this.
    let session = [
        ("Expires", "Thu, 19 Nov 1981 08:52:00 GMT"),
        ("Cache-Control", "no-store, no-cache, must-revalidate"),
        ("Pragma", "no-cache"),
    ];
    assert_eq!(why(&session), Some(NotStored::NoStore));
}

#[test]
fn a_cookie_is_kept_where_the_site_says_so_and_left_out_where_the_answer_does() {
    let headers = [("Cache-Control", "max-age=60"), ("Set-Cookie", "a=b")];
    let ignore_headers = IgnoreHeaders { set_cookie: true, ..IgnoreHeaders::default() };
    let settings = Settings { ignore_headers, ..Settings::default() };
    let admitted = admit_as(&settings, &[], 200, &headers).unwrap();
    assert_eq!(names(&admitted), ["Date", "Cache-Control", "Set-Cookie"]);
    let headers = [("Cache-Control", "max-age=60, private=\"set-cookie\""), headers[1]];
    assert_eq!(names(&of(&headers).unwrap()), ["Date", "Cache-Control"]);
}

#[test]
fn what_was_asked_for_with_a_password_is_kept_only_if_it_says_it_may_be() {
    let asked: [Field<'static>; 1] = [(b"Authorization", b"Basic x")];
    let with = |control: &str| {
        let headers = [("Cache-Control", control)];
        admit_as(&Settings::default(), &asked, 200, &headers)
    };
    assert_eq!(with("max-age=60"), Err(NotStored::Authorization));
    for control in ["max-age=60, public", "s-maxage=60", "max-age=60, must-revalidate"] {
        assert!(with(control).unwrap().stored.for_authorized, "{control}");
    }
    assert!(!of(&[("Cache-Control", "max-age=60")]).unwrap().stored.for_authorized);
}

#[test]
fn a_status_that_is_not_understood_is_not_kept_if_it_must_be() {
    let with = |status: u16, control: &str| {
        let headers = [("Cache-Control", control)];
        admit_as(&Settings::default(), &[], status, &headers).err()
    };
    assert_eq!(with(599, "max-age=60"), None);
    assert_eq!(with(599, "max-age=60, must-understand"), Some(NotStored::Status));
    assert_eq!(with(200, "max-age=60, must-understand, no-store"), None);
    assert_eq!(with(206, "max-age=60"), Some(NotStored::Status));
    assert_eq!(with(304, "max-age=60"), Some(NotStored::Status));
}

#[test]
fn what_must_be_asked_for_again_is_kept_if_there_is_something_to_ask_with() {
    let admitted = of(&[("Cache-Control", "no-cache"), ("ETag", "\"a\"")]).unwrap();
    assert!(admitted.stored.no_cache && admitted.stored.must_revalidate);
    assert_eq!(admitted.stored.lifetimes, Lifetimes::default());
    let settings = Settings { revalidate: false, ..Settings::default() };
    let headers = [("Cache-Control", "max-age=60, no-cache"), ("ETag", "\"a\"")];
    assert_eq!(admit_as(&settings, &[], 200, &headers), Err(NotStored::NoCache));
    assert_eq!(why(&[("Cache-Control", "max-age=0")]), Some(NotStored::Stale));
    assert_eq!(why(&[("Cache-Control", "max-age=60"), ("Age", "61")]), Some(NotStored::Stale));
    assert_eq!(why(&[("Cache-Control", "max-age=60"), ("Age", "61"), ("ETag", "\"\"")]), None);
}

#[test]
fn nginx_says_never_with_a_zero() {
    let headers = [("X-Accel-Expires", "0"), ("Cache-Control", "max-age=60"), ("ETag", "\"a\"")];
    assert_eq!(why(&headers), Some(NotStored::NoStore));
}

#[test]
fn caches_are_told_something_else_than_browsers() {
    let headers =
        [("Cache-Control", "no-store"), ("CDN-Cache-Control", "max-age=60"), ("Expires", "0")];
    assert_eq!(of(&headers).unwrap().stored.lifetimes.fresh, 60);
    let headers = [("Cache-Control", "max-age=60"), ("CDN-Cache-Control", "no-store")];
    assert_eq!(why(&headers), Some(NotStored::NoStore));
    let headers = [("Cache-Control", "max-age=60"), ("CDN-Cache-Control", "No-Store=\"")];
    assert_eq!(why(&headers), None);
}

#[test]
fn what_varies_as_litespeed_has_it_is_kept_only_if_the_key_has_that() {
    let mut settings = Settings { litespeed: true, ..Settings::default() };
    settings.key.cookies = vec!["currency".to_owned()];
    let of = |vary: &str| {
        let headers =
            [("X-LiteSpeed-Cache-Control", "public,max-age=9"), ("X-LiteSpeed-Vary", vary)];
        admit_as(&settings, &[], 200, &headers).map(|_| ())
    };
    assert_eq!(of("cookie=currency"), Ok(()));
    for other in ["cookie=currency,cookie=group", "value=mobile", "cookie"] {
        assert_eq!(of(other), Err(NotStored::VaryStar), "{other}");
    }
    for (control, stored) in [
        ("public,max-age=9,esi=on", Err(NotStored::VaryStar)),
        ("public, max-age=9, ESI=On", Err(NotStored::VaryStar)),
        ("public,max-age=9,esi=off", Ok(())),
    ] {
        let headers = [("X-LiteSpeed-Cache-Control", control)];
        assert_eq!(admit_as(&settings, &[], 200, &headers).map(|_| ()), stored, "{control}");
    }
}

#[test]
fn what_is_said_as_nginx_wants_it_counts_whatever_is_said_to_all() {
    let of = |accel: &'static str, control: &'static str| {
        let admitted = of(&[("X-Accel-Expires", accel), ("Cache-Control", control)]);
        admitted.map(|admitted| admitted.stored.lifetimes.fresh)
    };
    assert_eq!(of("60", "private, no-store, max-age=5"), Ok(60));
    assert_eq!(of("0", "max-age=5"), Err(NotStored::NoStore));
    assert_eq!(of("soon", "no-store"), Err(NotStored::NoStore));
}

#[test]
fn stale_responses_need_a_permission_and_no_prohibition() {
    let settings =
        Settings { stale_while_revalidate: 10, stale_if_error: 20, ..Settings::default() };
    let lifetimes = |control: &str| {
        let headers = [("Cache-Control", control)];
        let stored = admit_as(&settings, &[], 200, &headers).unwrap().stored;
        (stored.lifetimes.while_revalidate, stored.lifetimes.if_error)
    };
    assert_eq!(lifetimes("max-age=1"), (10, 20));
    assert_eq!(lifetimes("max-age=1, stale-if-error=5"), (10, 5));
    assert_eq!(lifetimes("max-age=1, stale-while-revalidate=0"), (0, 20));
    assert_eq!(lifetimes("max-age=1, must-revalidate, stale-if-error=5"), (0, 0));
    assert_eq!(lifetimes("max-age=1, proxy-revalidate"), (0, 0));
    assert_eq!(lifetimes("max-age=0, stale-while-revalidate=5"), (5, 0));
    let never = admit_as(&settings, &[], 200, &[("Cache-Control", "max-age=0")]);
    assert_eq!(never.unwrap_err(), NotStored::Stale);
    let s_maxage = of(&[("Cache-Control", "max-age=2, s-maxage=2")]).unwrap();
    assert_eq!(s_maxage.stored.lifetimes.if_error, 0);
}

#[test]
fn what_belongs_to_the_connection_or_the_cache_is_not_kept() {
    let headers = [
        ("Connection", "a, B"),
        ("a", "1"),
        ("b", "2"),
        ("c", "3"),
        ("Cache-Control", "max-age=60, no-cache=\"d\""),
        ("D", "4"),
        ("Keep-Alive", "x"),
        ("Transfer-Encoding", "chunked"),
        ("Content-Length", "9"),
        ("Age", "3"),
        ("X-Accel-Expires", "60"),
        ("Date", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ];
    assert_eq!(names(&of(&headers).unwrap()), ["Date", "c", "Cache-Control"]);
}

#[test]
fn an_answer_without_a_date_gets_that_of_its_coming() {
    let admitted = of(&[("Cache-Control", "max-age=60")]).unwrap();
    let date = admitted.stored.first("date").and_then(headers::date);
    assert_eq!(date, Some(NOW / 1000));
    assert_eq!(admitted.stored.stamp, 7);
    let (date, lines) = admitted.stored.dated_lines();
    assert_eq!(&date[..], b"Tue, 14 Nov 2023 22:13:20 GMT");
    assert_eq!(&lines[..], b"Cache-Control: max-age=60\r\n");
}

#[test]
fn what_depends_on_everything_is_not_kept_unless_that_is_not_listened_to() {
    let headers = [("Cache-Control", "max-age=60"), ("Vary", "Foo, *")];
    assert_eq!(why(&headers), Some(NotStored::VaryStar));
    let ignore_headers = IgnoreHeaders { vary: true, ..IgnoreHeaders::default() };
    let settings = Settings { ignore_headers, ..Settings::default() };
    assert!(admit_as(&settings, &[], 200, &headers).unwrap().vary.is_empty());
}

#[test]
fn what_clients_get_restricts_a_response_and_lengthens_no_life() {
    let restricted = |own: &[(&str, &str)], changed: &[(&str, &str)]| {
        let valid = vec![Valid { status: Some(200), seconds: 60 }];
        let settings = Settings { valid, ..Settings::default() };
        let mut admitted = admit_as(&settings, &[], 200, own).unwrap();
        let headers = changed.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        admitted.restrict(&settings, false, headers).map(|()| admitted)
    };
    let why = |header| restricted(&[], &[header]).err();
    assert_eq!(why(("Cache-Control", "private")), Some(NotStored::Private));
    assert_eq!(why(("cache-control", "no-store")), Some(NotStored::NoStore));
    assert_eq!(why(("Cache-Control", "no-cache")), Some(NotStored::NoCache));
    assert_eq!(why(("Set-Cookie", "a=b")), Some(NotStored::SetCookie));
    assert_eq!(why(("Vary", "a, *")), Some(NotStored::VaryStar));
    let page = restricted(&[], &[("Cache-Control", "max-age=0")]).unwrap();
    assert_eq!(page.stored.lifetimes.fresh, 60);
    let validated = [("Cache-Control", "no-cache"), ("ETag", "\"a\"")];
    assert!(restricted(&validated, &validated).is_ok());
    // What is for this cache alone is stronger than what is for all.
    let targeted = [("CDN-Cache-Control", "max-age=9"), ("Cache-Control", "private")];
    assert!(restricted(&targeted[..1], &targeted).is_ok());
    let vary = |own: &'static str, changed| {
        let page = restricted(&[("Vary", own)], &[("Vary", changed)]).unwrap();
        page.vary.names().join(" ")
    };
    assert_eq!(vary("", "X-B, Accept-Encoding, X-A"), "x-a x-b");
    assert_eq!(vary("Accept-Encoding, X-C", "X-A, Accept-Encoding"), "accept-encoding x-a x-c");
}

#[test]
fn litespeeds_fields_are_for_those_who_ask_for_them() {
    let headers = [
        ("Cache-Control", "no-cache, max-age=0"),
        ("X-LiteSpeed-Cache-Control", "public,max-age=604800"),
        ("X-LiteSpeed-Tag", "W_,W_home"),
    ];
    assert_eq!(why(&headers), Some(NotStored::NoCache));
    let settings = Settings { litespeed: true, ..Settings::default() };
    let admitted = admit_as(&settings, &[], 200, &headers).unwrap();
    assert_eq!(admitted.stored.lifetimes.fresh, 604_800);
    assert_eq!(*admitted.stored.tags, ["W_", "W_home"]);
    assert_eq!(names(&admitted), ["Date", "Cache-Control"]);
}

#[test]
fn what_depends_on_cookies_is_for_all_without_a_session_where_that_is_meant() {
    let headers = [("Cache-Control", "max-age=60"), ("Vary", "Cookie, Accept-Language")];
    let vary = |varies_by_session| {
        let settings = Settings { varies_by_session, ..Settings::default() };
        let admitted = admit_as(&settings, &[(b"Cookie", b"_ga=1")], 200, &headers).unwrap();
        // Downstream caches still need it.
        assert!(names(&admitted).contains(&"Vary".to_owned()));
        admitted.vary.names().to_vec()
    };
    assert_eq!(vary(false), ["accept-language", "cookie"]);
    assert_eq!(vary(true), ["accept-language"]);
}

/// Headers of a hostile script: to compare each with each takes a quarter of an hour.
const MANY: usize = 300_000;

#[test]
fn many_members_of_connection_and_many_headers_take_time_in_proportion() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let names = |end: &str| -> Vec<String> {
            (0..MANY).map(|number| format!("x-{number:06}-{end}")).collect()
        };
        let (members, others) = (names("a"), names("b"));
        let members = format!("X-000000-B,{}", members.join(","));
        let connection = (&b"Connection"[..], members.as_bytes());
        let others = others.iter().map(|name| (name.as_bytes(), &b"1"[..]));
        let all = std::iter::once(connection).chain(others);
        let lines = client_lines(&Settings::default(), &[], all, NOW);
        let _ = done.send(headers::of_lines(&lines).count());
    });
    // In proportion, it takes a second. `Date` is added, and one is left out that is named.
    let limit = std::time::Duration::from_secs(300);
    assert_eq!(is_done.recv_timeout(limit), Ok(MANY));
}
