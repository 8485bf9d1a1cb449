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
