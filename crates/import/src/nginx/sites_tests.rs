//! Which servers of nginx become sites, under which names, and what is redirected.

use super::laxer_tests::of_http;
use crate::Imported;

/// What a site with PHP has.
const PHP: &str = "root /srv/app; location ~ \\.php$ { fastcgi_pass unix:/run/php.sock; }";

/// What a server with TLS has.
const TLS: &str = "listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /c.key;";

/// What the server of a name has.
const WWW: &str = "server_name www.example.com; PHP";

/// The folder of challenges below a root.
const CHALLENGES: &str = "\"/var/lib/c/.well-known/acme-challenge\"";

/// The import of servers with the abbreviations PHP and TLS.
fn of_servers(http: &str) -> Imported {
    let http = http.replace("server {", "\nserver {");
    of_http(&http.replace("PHP", PHP).replace("TLS", TLS), "")
}

/// The part of the file for the site with these hosts.
fn site<'t>(imported: &'t Imported, hosts: &str) -> &'t str {
    let mut sites = imported.toml.split("[[sites]]").skip(1);
    let has = |site: &&str| site.contains(&format!("\nhosts = [{hosts}]"));
    sites.find(has).unwrap_or_else(|| panic!("{hosts}\n{}", imported.toml))
}

#[test]
fn all_names_but_the_canonical_one_are_redirected() {
    let one = "if ($host != \"example.com\") { return 301 https://example.com$request_uri; } PHP";
    let names = "server_name example.com www.example.com;";
    let imported = of_servers(&format!("server {{ TLS {names} {one} }}"));
    let others = "to = \"https://example.com$0\", status = 301";
    for host in ["\"*\"", "\"www.example.com\""] {
        assert!(site(&imported, host).contains(others), "{}", imported.toml);
    }
    assert!(site(&imported, "\"example.com\"").contains("root = \"/srv/app\""));
    let plain = "server { listen 80; server_name example.com; \
                 return 301 https://$host$request_uri; }";
    let imported = of_servers(&format!("{plain} server {{ TLS server_name _; {one} }}"));
    assert!(site(&imported, "\"*\"").contains(others), "{}", imported.toml);
    assert!(site(&imported, "\"example.com\"").contains("root = \"/srv/app\""));
}

#[test]
fn a_canonical_name_that_another_server_only_redirects_is_a_site() {
    let plain = "server { listen 80; server_name example.com; REST }";
    let redirect = "return 301 https://example.com$request_uri;";
    let shop = format!("server_name _; if ($host != \"example.com\") {{ {redirect} }} PHP");
    let tls = TLS.replace("443 ssl", "443 ssl default_server");
    let shop = format!("server {{ listen 80 default_server; {tls} {shop} }}");
    for (rest, is_kept) in [(redirect, true), ("root /srv/other;", false)] {
        let imported = of_servers(&format!("{} {shop}", plain.replace("REST", rest)));
        assert!(site(&imported, "\"example.com\"").contains("root = \"/srv/app\""));
        assert_eq!(imported.report.keeps_access(), is_kept, "{rest}\n{}", imported.report);
    }
}

#[test]
fn a_canonical_name_below_a_wildcard_is_a_site() {
    let one = "server_name example.com *.example.com; PHP";
    let redirect = "if ($http_host != \"www.example.com\") \
                    { rewrite ^ $scheme://www.example.com$request_uri? permanent; }";
    let imported = of_servers(&format!("server {{ return 444; }} server {{ {one} {redirect} }}"));
    assert!(site(&imported, "\"www.example.com\"").contains("root = \"/srv/app\""));
    for host in ["\"example.com\"", "\"*.example.com\""] {
        let site = site(&imported, host);
        assert!(site.contains("to = \"$scheme://www.example.com$0\""), "{site}");
    }
    let other = "server { server_name www.example.com; root /srv/other; }";
    let imported = of_servers(&format!("{other} server {{ {one} {redirect} }}"));
    assert!(site(&imported, "\"www.example.com\", \"*\"").contains("root = \"/srv/other\""));
    assert!(!imported.toml.contains("/srv/app"), "{}", imported.toml);
}

#[test]
fn the_name_of_the_server_may_be_the_canonical_one() {
    let imported = of_servers(
        "server { return 444; } server { server_name b.example a.example; PHP \
         if ($host != $server_name) { return 301 http://$server_name$request_uri; } }",
    );
    assert!(site(&imported, "\"b.example\"").contains("root = \"/srv/app\""));
    assert!(site(&imported, "\"a.example\"").contains("to = \"http://b.example$0\""));
}

#[test]
fn a_site_over_tls_alone_is_not_served_over_plain_http() {
    let shop = "server { TLS server_name shop.example; PHP }";
    let closed = "server { listen 80 default_server; return 444; }";
    let imported = of_servers(&format!("{closed} {shop}"));
    assert!(imported.toml.contains("redirect = 301"), "{}", imported.toml);
    assert!(imported.report.keeps_access(), "{}", imported.report);
    assert!(imported.report.to_string().contains("return 444: plain HTTP is redirected"));
    let plain = "server { server_name b.example; root /srv; }";
    let catch_all = "server { listen 80; server_name _; return 301 https://$host$request_uri; }";
    let imported = of_servers(&format!("{closed} {plain} {shop}"));
    assert!(!imported.toml.contains("redirect = 301"), "{}", imported.toml);
    assert!(imported.report.to_string().contains("served over TLS alone"), "{}", imported.report);
    assert!(!imported.report.keeps_access(), "{}", imported.report);
    let status = "server { listen 127.0.0.1:8080; root /srv; }";
    let both = "server { TLS listen 80; server_name shop.example; PHP }";
    for http in [format!("{catch_all} {shop}"), format!("{status} {shop}"), both.to_owned()] {
        let imported = of_servers(&http);
        assert!(imported.report.keeps_access(), "{http}\n{}", imported.report);
    }
}

#[test]
fn a_redirect_to_https_of_one_of_several_names_is_that_of_tls() {
    let plain = "server { listen 80; server_name example.com www.example.com; \
                 return 301 https://www.example.com$request_uri; }";
    let other = "server { TLS server_name example.com; \
                 return 301 https://www.example.com$request_uri; }";
    let imported = of_servers(&format!("{plain} {other} server {{ TLS {WWW} }}"));
    assert!(imported.report.keeps_access(), "{}", imported.report);
    assert!(imported.toml.contains("redirect = 301"), "{}", imported.toml);
    assert_eq!(imported.toml.matches("[[sites]]").count(), 2, "{}", imported.toml);
    assert!(imported.report.to_string().contains("HTTPS of the requested name"));
    for tls in [
        "server { TLS server_name example.com www.example.com; PHP }",
        "server { TLS server_name example.com *.example.com; PHP }",
    ] {
        let imported = of_servers(&format!("{plain} {tls}"));
        assert!(imported.report.keeps_access(), "{tls}\n{}", imported.report);
    }
    // The names are below a wildcard with TLS, or it redirects those below one.
    let closed = "server { listen 80 default_server; return 444; }";
    let wildcard = "server { TLS server_name example.com *.example.com; PHP }";
    let below = "server { listen 80; server_name *.example.com; \
                 return 301 https://$host$request_uri; }";
    for http in [format!("{plain} {wildcard}"), format!("{below} server {{ TLS {WWW} }}")] {
        let imported = of_servers(&format!("{closed} {http}"));
        assert!(imported.report.keeps_access(), "{http}\n{}", imported.report);
        assert!(imported.toml.contains("redirect = 301"), "{http}\n{}", imported.toml);
        let redirect = "to = \"https://www.example.com$0\"";
        assert!(!imported.toml.contains(redirect), "{http}\n{}", imported.toml);
        let is_new = imported.report.to_string().contains("nothing to serve");
        assert_eq!(is_new, http.contains(wildcard), "{http}\n{}", imported.report);
    }
    // Without a certificate for a name, the redirect to HTTPS of it leads nowhere.
    let imported = of_servers(&format!("{plain} server {{ TLS {WWW} }}"));
    assert!(!imported.toml.contains("redirect = 301"), "{}", imported.toml);
}

#[test]
fn plain_http_of_all_names_may_be_redirected_to_one_name() {
    let catch_all = "server { listen 80 default_server; server_name _; \
                     return 301 https://example.com$request_uri; }";
    let named = "server { TLS server_name example.com; PHP }";
    let plain = "server { listen 80; server_name example.com www.example.com; \
                 return 301 https://example.com$request_uri; }";
    let canonical = "TLS server_name _; PHP \
                     if ($host != \"example.com\") { return 301 https://example.com$request_uri; }";
    let tls = TLS.replace("443 ssl", "443 ssl default_server");
    let canonical = format!("server {{ {} }}", canonical.replace("TLS", &tls));
    for http in [
        format!("{catch_all} {named}"),
        format!("{named} {catch_all}"),
        format!("{plain} {canonical}"),
        format!("{catch_all} {canonical}"),
    ] {
        let imported = of_servers(&http);
        assert!(imported.report.keeps_access(), "{http}\n{}", imported.report);
        assert!(imported.toml.contains("redirect = 301"), "{http}\n{}", imported.toml);
        assert!(site(&imported, "\"example.com\"").contains("root = \"/srv/app\""));
        let all = site(&imported, "\"*\"");
        assert!(all.contains("to = \"https://example.com$0\", status = 301"), "{all}");
        assert!(imported.report.to_string().contains("HTTPS of the requested name"), "{http}");
    }
    // These have no name with TLS, another path or another port.
    for to in ["other.example", "example.com/a", "example.com:8443"] {
        let catch_all = catch_all.replace("example.com", to);
        let imported = of_servers(&format!("{catch_all} {named}"));
        assert!(!imported.toml.contains("redirect = 301"), "{to}\n{}", imported.toml);
        assert!(!imported.report.keeps_access(), "{to}\n{}", imported.report);
    }
    let closed = canonical.replace("PHP", "ssl_reject_handshake on;");
    let imported = of_servers(&format!("{plain} {closed} {}", named.replace("example", "b")));
    assert!(!imported.toml.contains("redirect = 301"), "{}", imported.toml);
}

#[test]
fn challenges_of_a_server_that_redirects_are_those_of_its_site() {
    let of = |location: &str| {
        of_servers(&format!(
            "server {{ listen 80; server_name a.example; {location} \
             location / {{ return 301 https://$host$request_uri; }} }} \
             server {{ TLS server_name a.example; PHP }}"
        ))
    };
    let folder = "\"/.well-known/acme-challenge/\" = ";
    for (location, expected) in [
        ("location ^~ /.well-known/acme-challenge/ { root /var/lib/c; }", CHALLENGES),
        ("root /var/lib/c; location ~ /.well-known/acme-challenge { allow all; }", CHALLENGES),
        ("location /.well-known/acme-challenge { alias /srv/c/; }", "\"/srv/c\""),
    ] {
        let imported = of(location);
        let alias = format!("aliases.{folder}{expected}");
        assert!(site(&imported, "\"a.example\", \"*\"").contains(&alias), "{}", imported.toml);
        assert!(imported.toml.contains("redirect = 301"), "{}", imported.toml);
        assert!(imported.report.to_string().contains("renewals"), "{}", imported.report);
        assert!(imported.report.keeps_access(), "{}", imported.report);
    }
    let imported = of_servers(
        "server { listen 80 default_server; root /var/lib/c; \
         location /.well-known/acme-challenge/ { } \
         location / { return 301 https://a.example$request_uri; } } \
         server { TLS server_name a.example; PHP }",
    );
    let alias = format!("aliases.{folder}{CHALLENGES}");
    assert!(site(&imported, "\"a.example\"").contains(&alias), "{}", imported.toml);
    let plain = |name: &str, folder: &str| {
        format!(
            "server {{ listen 80; server_name {name}; \
             location /.well-known/acme-challenge/ {{ alias {folder}/; }} \
             location / {{ return 301 https://$host$request_uri; }} }}"
        )
    };
    let tls = |name: &str| format!("server {{ TLS server_name {name}; PHP }}");
    let default =
        tls("b.example").replace("TLS", &TLS.replace("443 ssl", "443 ssl default_server"));
    let both = format!("{} {}", plain("a.example", "/srv/c"), plain("b.example", "/srv/d"));
    let imported = of_servers(&format!("{both} {} {default}", tls("a.example")));
    for (hosts, expected) in
        [("\"a.example\"", "\"/srv/c\""), ("\"b.example\", \"*\"", "\"/srv/d\"")]
    {
        let alias = format!("aliases.{folder}{expected}");
        assert!(site(&imported, hosts).contains(&alias), "{}", imported.toml);
    }
    assert!(!imported.report.to_string().contains("folder of another"), "{}", imported.report);
    let imported = of_servers(&format!("{both} {}", tls("a.example b.example")));
    assert!(imported.report.to_string().contains("folder of another"), "{}", imported.report);
    let proxy = of("location /.well-known/acme-challenge/ { proxy_pass http://127.0.0.1:8888; }");
    assert!(!proxy.toml.contains(folder), "{}", proxy.toml);
    assert!(proxy.report.to_string().contains("renewals find no file"), "{}", proxy.report);
}
