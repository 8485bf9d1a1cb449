//! Files of many directives: what plugins write is read, and what would take long is a mistake.

use std::fmt::Write;

use maitred_htaccess::file::{Reading, parse};

/// A line for each number.
fn lines(count: usize, line: impl Fn(usize) -> String) -> String {
    (0..count).fold(String::new(), |mut text, number| {
        let _ = writeln!(text, "{}", line(number));
        text
    })
}

/// The mistake of a file; none: it is read.
fn mistake(text: &str) -> Option<String> {
    let parsed = parse(text.as_bytes(), b"/site/", &Reading::default());
    parsed.conf.err().map(|mistake| mistake.to_string())
}

#[test]
fn lists_of_addresses_robots_and_redirects_are_read() {
    let byte = |number: usize| number % 250;
    for text in [
        lines(45_000, |number| format!("deny from 192.0.{}.{}", byte(number / 250), byte(number))),
        lines(5_000, |number| format!("SetEnvIfNoCase User-Agent robot{number} is_bad")),
        lines(8_000, |number| format!("Redirect 301 /old/{number} https://site.test/{number}")),
        lines(4_000, |number| format!("RewriteRule ^old/page-{number}/?$ /new/{number} [R,L]")),
        lines(400, |number| format!("ExpiresByType type/{number} \"access plus 1 month\"")),
        format!("<RequireAll>\n{}</RequireAll>", {
            lines(20_000, |number| format!("Require not ip 198.51.100.{}", byte(number)))
        }),
        format!("deny from {}", "192.0.2.1 ".repeat(50_000)),
        format!("<If \"{}true\">\n</If>", "-f '/x' && ".repeat(5_000)),
    ] {
        assert_eq!(mistake(&text), None, "{}", text.lines().next_back().unwrap_or_default());
    }
}

#[test]
fn what_would_take_long_or_much_memory_is_a_mistake() {
    let words = |count: usize| lines(count, |number| format!("w{number}")).replace('\n', " ");
    let type_of_all = format!("AddType {} {}", "x".repeat(100_000), words(1000));
    for (text, expected) in [
        (lines(1025, |number| format!("SetEnv v{number} 1")), "1024 variables"),
        (format!("UnsetEnv {}", words(1025)), "1024 variables"),
        (format!("Require env {}", words(1025)), "1024 variables"),
        (lines(1025, |number| format!("Allow from env=v{number}")), "1024 variables"),
        (format!("SetEnvIf X y {}", words(1025)), "1024 variables in a line"),
        (format!("RewriteRule ^ - [E={}]", words(1025).replace(' ', ":1,E=")), "of a rule"),
        (lines(1025, |number| format!("ExpiresByType a/b{number} A1")), "1024 types"),
        (format!("IndexIgnore {}", words(1025)), "1024 patterns"),
        (format!("AddType text/x {}", words(5000)), "4096 extensions"),
        (type_of_all, "1024 bytes in its first word"),
        (lines(1025, |number| format!("Header add X-{number} 1")), "1024 directives for headers"),
        (lines(10_001, |_| "php_value a b".to_owned()), "10000 lines"),
        (lines(300, |_| "RewriteRule (abcdef){900} -".to_owned()), "repeat groups"),
        (lines(9_990, |_| "RewriteRule ^(.*)$ -".to_owned()), "bytes of memory"),
        (format!("<If \"{}true\">\n</If>", "true || ".repeat(90_000)), "bytes of memory"),
        (format!("<If \"{}'a'{}\">\n</If>", "md5(".repeat(90_000), ")".repeat(90_000)), "levels"),
        (format!("Header set X expr={}a", "%{tolower:".repeat(90_000)), "within each other"),
        (format!("RewriteRule {}", "x".repeat(100_000)), "bad argument line"),
    ] {
        let found = mistake(&text).unwrap_or_default();
        assert!(found.contains(expected) && found.len() < 2000, "{expected}: {found:.200}");
    }
}
