//! Paths of requests: what they mean, what of them may be looked up, and which names are PHP
//! source.

#![allow(clippy::unwrap_used, reason = "tests may panic")]

use maitred_rules::path::{
    CleanPath, Refused, clean_path, encode_path, is_dot_name, is_php_source, mentions_php,
    query_text,
};

/// A path as it is resolved, and the part of it that may be looked up.
fn parts(path: &CleanPath<'_>) -> (String, String) {
    let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
    (text(path.as_bytes()), text(&path.as_bytes()[..path.names_end()]))
}

#[test]
fn a_path_is_decoded_once_and_resolved() {
    for (raw, expected) in [
        ("/", "/"),
        ("/a/b.php", "/a/b.php"),
        ("/a/", "/a/"),
        ("/a//b", "/a/b"),
        ("//a", "/a"),
        ("/a/./b/.", "/a/b/"),
        ("/a/../b", "/b"),
        ("/a/b/..", "/a/"),
        ("/a/..", "/"),
        ("/a/%2e%2E/b", "/b"),
        ("/%61%2Fb", "/a/b"),
        ("/a%2f..%2fb", "/b"),
        ("/%252e%252e/a", "/%2e%2e/a"),
        ("/a\\..\\b", "/a\\\\..\\\\b"),
        ("/%ff%C3%A4", "/\\xff\\xc3\\xa4"),
        ("/a...b/..c", "/a...b/..c"),
        ("/a b%20c", "/a b c"),
    ] {
        let path = clean_path(raw).unwrap();
        assert_eq!(parts(&path).0, expected, "{raw}");
        assert_eq!(path.ends_with_slash(), expected.ends_with('/'), "{raw}");
        assert_eq!(path.clone().into_owned(), path, "{raw}");
    }
}

#[test]
fn a_path_that_climbs_or_cannot_be_decoded_is_refused() {
    for raw in [
        "",
        "a",
        "*",
        "/..",
        "/../a",
        "/a/../../b",
        "/%2e%2e/a",
        "/a/%2e%2e%2f%2e%2e/b",
        "/a%2f..%2f..%2fb",
        "/.%2e/a",
        "/%",
        "/%2",
        "/%2/",
        "/%g0",
        "/%0g",
        "/%00",
        "/a%0d%0ab",
        "/%7f",
        "/a\tb",
        "/a\u{7f}",
    ] {
        assert_eq!(clean_path(raw).map_err(|refused| refused.status), Err(400), "{raw:?}");
    }
}

#[test]
fn what_is_hidden_or_had_an_encoded_slash_is_not_looked_up() {
    for (raw, names, is_hidden) in [
        ("/a/b", "/a/b", false),
        ("/.git/config", "", true),
        ("/a/.env", "/a", true),
        ("/a/b.php/.x", "/a/b.php", true),
        ("/a/%2ehtaccess", "/a", true),
        ("/.well-known/acme", "/.well-known/acme", false),
        ("/.well-known/.x", "/.well-known", true),
        ("/.well-known", "", true),
        ("/.well-knownx/a", "", true),
        ("/a/.well-known/b", "/a", true),
        ("/a/b%2fc/d", "/a", false),
        ("/a%2fb", "", false),
        // The segment with the encoded slash is gone, and so is its right to be looked up.
        ("/a/b%2fc/../../d", "/a", false),
        ("/a/b%2fc/../../../d", "", false),
        ("/.a/b%2fc", "", true),
        ("/a%2fb/.c", "", true),
    ] {
        let path = clean_path(raw).unwrap();
        assert_eq!((parts(&path).1.as_str(), path.is_hidden()), (names, is_hidden), "{raw}");
    }
}

#[test]
fn a_location_leads_to_no_other_host() {
    assert_eq!(encode_path(b"/a-b_c.d~/!$&'()*+,;=:@"), "/a-b_c.d~/!$&'()*+,;=:@");
    assert_eq!(encode_path(b"/\\evil"), "/%5Cevil");
    assert_eq!(encode_path(b"/ \"#%<>?[]^`{|}"), "/%20%22%23%25%3C%3E%3F%5B%5D%5E%60%7B%7C%7D");
    assert_eq!(encode_path(b"/\r\n\x00\x7f\xff"), "/%0D%0A%00%7F%FF");
}

#[test]
fn names_of_php_source_are_known_whatever_they_end_with() {
    for name in [
        "/x.php",
        "/x.PHP",
        "/x.pHp",
        "/x.php5",
        "/x.php83",
        "/x.phps",
        "/x.phpt",
        "/x.phtml",
        "/x.phar",
        "/x.pht",
        "/x.phpbak",
        "/x.php~",
        "/x.php.bak",
        "/x.php.",
        "/x.php-old",
        "/x.php_",
        "/x.php#",
        "/a.b/x.php.swp",
        "/.php",
        "/x.php.orig.gz",
        "/x.phtml.save",
        "/x.phps.bak",
        "/x.phpt.bak",
        "/x.php5.bak",
        "/x.phar.bak",
        "/x.pht.bak",
    ] {
        assert!(is_php_source(name.as_bytes()), "{name}");
    }
    for name in [
        "/x",
        "/php",
        "/x.txt",
        "/phpinfo",
        "/x.php/y",
        "/x.php/y.txt",
        "/x.php.html",
        "/x.php.JSON",
        "/x.php.txt",
        "/x.phpx.y",
        "/x.php5s.y",
        "/x.phd",
        "/x.ph",
        "/x.p",
        "/aphp",
        "/",
    ] {
        assert!(!is_php_source(name.as_bytes()), "{name}");
    }
}

#[test]
fn a_name_mentions_php_after_its_first_dot() {
    for name in ["/x.php.txt", "/config.PHP.md", "/x.phtml.html", "/a/x.b.phpx", "/.php"] {
        assert!(mentions_php(name.as_bytes()), "{name}");
    }
    for name in ["/php.txt", "/x.php/y.txt", "/x.txt", "/phtml", "/x.p", "/x.xphp"] {
        assert!(!mentions_php(name.as_bytes()), "{name}");
    }
    assert!(is_dot_name(b"/a/.b") && is_dot_name(b"/.") && !is_dot_name(b"/.a/b"));
}

#[test]
fn only_a_notable_refusal_is_logged() {
    let (plain, notable) = (Refused::plain(404, "none"), Refused::notable(403, "odd"));
    assert_eq!((plain.status, plain.why, plain.is_notable), (404, "none", false));
    assert_eq!((notable.status, notable.why, notable.is_notable), (403, "odd", true));
}

#[test]
fn a_query_as_text_is_the_same_query() {
    for (query, expected) in [
        (&b"a=1&b=%E4"[..], "a=1&b=%E4"),
        (b"q=\xe4", "q=%E4"),
        ("q=\u{e4}".as_bytes(), "q=\u{e4}"),
        (b"\xff\xc3", "%FF%C3"),
        (b"", ""),
    ] {
        assert_eq!(query_text(query), expected);
    }
}
