//! What Caddy does for an address: TLS, and the proxies before it.

use super::tests::of;

const FILES: &str = "root * /srv/app\nfile_server";

#[test]
fn the_tls_of_a_site_never_vanishes() {
    const CLIENTS: &str = "client_auth {\nmode require_and_verify\ntrust_pool file /ca.pem\n}";
    const OFF: &str = "{\nauto_https off\n}\n";
    for text in [
        format!(":8443 {{\ntls internal {{\non_demand\n{CLIENTS}\n}}\n{FILES}\n}}"),
        format!(":8443 {{\ntls internal\n{FILES}\n}}"),
        format!("{OFF}a.example {{\ntls {{\nload /certs\n{CLIENTS}\n}}\n{FILES}\n}}"),
        format!("a.example {{\ntls /a.pem /a.key\ntls {{\n{CLIENTS}\n}}\n{FILES}\n}}"),
        format!("http://a.example {{\ntls /a.pem /a.key\n{FILES}\n}}"),
    ] {
        let imported = of(&text);
        assert!(!imported.report.keeps_access(), "{text}\n{}\n{}", imported.toml, imported.report);
    }
    for text in [
        format!("{OFF}a.example {{\ntls /a.pem /a.key\n{FILES}\n}}"),
        format!(":8443 {{\ntls /a.pem /a.key\n{FILES}\n}}"),
        format!("a.example {{\ntls a@a.example\n{FILES}\n}}"),
        format!(":8080 {{\n{FILES}\n}}"),
    ] {
        let imported = of(&text);
        assert!(imported.report.keeps_access(), "{text}\n{}\n{}", imported.toml, imported.report);
        let has_tls = imported.toml.contains("[tls]");
        assert_eq!(has_tls, text.contains("tls "), "{text}\n{}", imported.toml);
    }
}

#[test]
fn redirects_to_https_beside_a_site_over_plain_http_are_named() {
    let site = |address: &str| format!("{address} {{\n{FILES}\n}}\n");
    let alone = of(&site("a.example"));
    assert!(alone.toml.contains("redirect = 308"), "{}", alone.toml);
    assert!(alone.report.keeps_access(), "{}", alone.report);
    let beside = of(&(site("a.example") + &site("http://b.example")));
    assert!(!beside.toml.contains("redirect = "), "{}", beside.toml);
    assert!(!beside.report.keeps_access(), "{}", beside.report);
}

#[test]
fn the_welcome_page_of_caddy_is_no_site_over_plain_http() {
    let beside = |lines: &str| of(&format!("a.example {{\n{FILES}\n}}\n:80 {{\n{lines}\n}}\n"));
    // The file of Caddy's package.
    let welcome = beside("root * /usr/share/caddy\nfile_server");
    assert!(welcome.toml.contains("redirect = 308"), "{}", welcome.toml);
    assert!(welcome.report.keeps_access(), "{}", welcome.report);
    assert!(welcome.report.to_string().contains("also for this one"), "{}", welcome.report);
    for lines in ["php_fastcgi 127.0.0.1:9000", "handle /a/* {\nreverse_proxy 127.0.0.1:3000\n}"] {
        let site = beside(&format!("{FILES}\n{lines}"));
        assert!(!site.toml.contains("redirect = "), "{lines}\n{}", site.toml);
        assert!(!site.report.keeps_access(), "{lines}\n{}", site.report);
    }
}

/// Global options with proxies, before a site that refuses clients.
fn behind(servers: &str, client: &str) -> crate::Imported {
    of(&format!("{{\n{servers}\n}}\n:80 {{\n{client}\nrespond @out 403\n{FILES}\n}}"))
}

const TRUSTED: &str = "trusted_proxies static private_ranges\ntrusted_proxies_strict";

#[test]
fn an_address_of_the_connection_is_none_of_the_client_behind_proxies() {
    let servers = format!("servers {{\n{TRUSTED}\n}}");
    for client in [
        "@out not remote_ip 10.1.2.0/24",
        "@out remote_ip 10.1.2.0/24",
        "@out {\npath /a/*\nnot {\nremote_ip 10.1.2.0/24\n}\n}",
    ] {
        let imported = behind(&servers, client);
        assert!(!imported.report.keeps_access(), "{client}\n{}", imported.toml);
        let direct = behind("servers {\nmetrics\n}", client);
        assert!(direct.report.keeps_access(), "{client}\n{}", direct.report);
        assert!(direct.toml.contains("10.1.2.0/24"), "{client}\n{}", direct.toml);
    }
    let imported = behind(&servers, "@out not client_ip 10.1.2.0/24");
    assert!(imported.toml.contains("except = [\"10.1.2.0/24\"]"), "{}", imported.toml);
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn a_client_by_the_first_address_of_a_header_is_named() {
    let lax = "servers {\ntrusted_proxies static private_ranges\n}";
    let strict = format!("servers {{\n{TRUSTED}\n}}");
    for (servers, client, is_alike) in [
        (lax, "@out client_ip 198.51.100.0/24", false),
        (lax, "@out not client_ip 198.51.100.0/24", true),
        (&strict, "@out client_ip 198.51.100.0/24", true),
    ] {
        let imported = behind(servers, client);
        assert_eq!(imported.report.keeps_access(), is_alike, "{client}\n{}", imported.report);
        assert!(imported.toml.contains("198.51.100.0/24"), "{}", imported.toml);
        let report = imported.report.to_string();
        let is_changed = report.contains("Caddy takes the first address of the header");
        assert_eq!(is_changed, servers == lax, "{report}");
    }
}

#[test]
fn proxies_are_trusted_if_all_listeners_have_them() {
    let all = format!("servers {{\n{TRUSTED}\n}}");
    let own = format!("servers :8443 {{\n{TRUSTED}\n}}");
    for (servers, is_trusted) in [
        (all.clone(), true),
        (format!("{own}\n{all}"), true),
        (own.clone(), false),
        (format!("{all}\nservers :8443 {{\nmetrics\n}}"), false),
        (format!("{all}\nservers :8443 {{\ntrusted_proxies static 10.0.0.0/8\n}}"), false),
        (format!("{all}\nservers :8443 {{\n{TRUSTED}\nclient_ip_headers X-A\n}}"), false),
    ] {
        let imported = behind(&servers, "@out client_ip 192.0.2.0/24");
        assert_eq!(imported.toml.contains("trusted_proxies = "), is_trusted, "{}", imported.toml);
        assert_eq!(imported.report.keeps_access(), is_trusted, "{}", imported.report);
    }
}

/// A site for both schemes, after global options.
fn of_both(options: &str, lines: &str) -> crate::Imported {
    of(&format!(
        "{{\n{options}\n}}\nhttp://a.example, https://a.example {{\ntls /c.pem /k.pem\n\
         @plain protocol http\n@part {{\nprotocol http\npath /login\n}}\n{lines}\n\
         basic_auth {{\nanna $2a$14$abc\n}}\n{FILES}\n}}"
    ))
}

const NO_REDIRECTS: &str = "auto_https disable_redirects";

#[test]
fn the_redirect_of_a_site_for_both_schemes_stays() {
    for options in [NO_REDIRECTS, ""] {
        for matcher in ["@plain", "@part"] {
            let imported = of_both(options, &format!("redir {matcher} https://{{host}}{{uri}}"));
            let redirects = imported.toml.contains("redirect = 308");
            assert_eq!(redirects, matcher == "@plain", "{options}\n{}", imported.toml);
            assert_eq!(imported.report.keeps_access(), redirects, "{}", imported.report);
        }
    }
    // A second site is served over plain HTTP.
    let other = format!("}}\nhttp://b.example {{\n{FILES}");
    let lines = format!("redir @plain https://{{host}}{{uri}}\n{FILES}\n{other}");
    let imported = of_both(NO_REDIRECTS, &lines);
    assert!(!imported.toml.contains("redirect = "), "{}", imported.toml);
    assert!(!imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn a_site_for_both_schemes_has_no_redirect_of_its_own() {
    for options in [NO_REDIRECTS, ""] {
        let imported = of_both(options, "");
        assert!(!imported.toml.contains("redirect = "), "{options}\n{}", imported.toml);
        assert!(imported.toml.contains("\"[::]:80\""), "{options}\n{}", imported.toml);
        assert!(imported.report.keeps_access(), "{options}\n{}", imported.report);
    }
    let tls = of(&format!("a.example {{\ntls /c.pem /k.pem\n{FILES}\n}}"));
    assert!(tls.toml.contains("redirect = 308"), "{}", tls.toml);
}

#[test]
fn a_site_bound_to_a_private_address_is_left_out_as_access_beside_one_of_all_addresses() {
    for (address, is_kept) in [("100.64.0.5", false), ("203.0.113.1", true)] {
        let imported = of(&format!(
            "http://admin.example {{\nbind {address}\n{FILES}\n}}\n\
             http://shop.example {{\n{FILES}\n}}\n"
        ));
        assert_eq!(imported.report.keeps_access(), is_kept, "{address}\n{}", imported.report);
    }
}
