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
fn a_status_page_for_this_machine_leaves_a_site_over_tls_alone_so() {
    let shop = "server { TLS server_name shop.example; PHP }";
    let closed = "server { listen 80 default_server; return 444; }";
    let to_shop = "server { listen 80 default_server; \
                   return 301 https://shop.example$request_uri; }";
    for other in [closed, to_shop] {
        let of = |inner: &str| {
            let inner = format!("server_name localhost; {inner}");
            of_servers(&format!("server {{ listen 127.0.0.1:8080; {inner} }} {other} {shop}"))
        };
        let imported = of("location /s { stub_status; }");
        assert!(imported.toml.contains("redirect = 301"), "{other}\n{}", imported.toml);
        assert!(imported.report.keeps_access(), "{other}\n{}", imported.report);
        assert!(imported.report.to_string().contains("also for this one"), "{}", imported.report);
        // A server behind another program gets plain HTTP on purpose.
        let imported = of("PHP");
        assert!(!imported.toml.contains("redirect = 301"), "{other}\n{}", imported.toml);
        assert!(!imported.report.keeps_access(), "{other}\n{}", imported.report);
    }
    let status = "server { listen 127.0.0.1:8080; location /s { stub_status; } }";
    let imported = of_servers(&format!("{status} {closed} {shop}"));
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn redirects_to_https_stay_beside_a_site_over_plain_http_or_are_named() {
    let redirect = "server { listen 80; server_name a.example; \
                    return 301 https://$host$request_uri; }";
    let site = "server { TLS server_name a.example; auth_basic x; auth_basic_user_file /f; PHP }";
    let both = "server { listen 80; TLS server_name a.example; PHP \
                if ($scheme = http) { return 301 https://$host$request_uri; } }";
    for sites in [format!("{redirect} {site}"), both.to_owned()] {
        let welcome = "server { listen 80 default_server; root /var/www/html; server_name _; \
                       location / { try_files $uri $uri/ =404; } }";
        // The file of nginx's own package.
        let package = "server { listen 80; server_name localhost; location / { \
                       root /usr/share/nginx/html; index index.html; } }";
        for welcome in [welcome, package] {
            let imported = of_servers(&format!("{welcome} {sites}"));
            assert!(imported.toml.contains("redirect = 301"), "{sites}\n{}", imported.toml);
            assert!(imported.report.keeps_access(), "{sites}\n{}", imported.report);
        }
        for plain in ["server_name b.example; root /srv/b;", "server_name _; PHP"] {
            let imported = of_servers(&format!("server {{ listen 80; {plain} }} {sites}"));
            assert!(!imported.toml.contains("redirect = 301"), "{sites}\n{}", imported.toml);
            assert!(!imported.report.keeps_access(), "{plain} {sites}\n{}", imported.report);
        }
    }
    // Another program has the certificate of this name.
    let elsewhere = redirect.replace("a.example", "c.example");
    let plain = "server { listen 80; listen 443 ssl; server_name b.example; root /srv/b; }";
    let imported = of_servers(&format!("{plain} {elsewhere}"));
    assert!(imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn an_if_about_the_scheme_is_the_redirect_of_tls_or_is_named() {
    let of = |test: &str, to: &str| {
        of_servers(&format!(
            "server {{ listen 80; TLS server_name example.com www.example.com; \
             if ({test}) {{ return 301 https://{to}; }} \
             auth_basic x; auth_basic_user_file /f; PHP }}"
        ))
    };
    for (test, to) in [
        ("$scheme = http", "$server_name$request_uri"),
        ("$scheme = http", "$host$uri$is_args$args"),
        ("$scheme = http", "$host$uri"),
        ("$scheme ~ ^http$", "$host$request_uri"),
        ("$server_port != 443", "$host$request_uri"),
        ("$https != \"on\"", "$server_name$request_uri"),
    ] {
        let imported = of(test, to);
        assert!(imported.toml.contains("redirect = 301"), "{test} {to}\n{}", imported.toml);
        assert!(imported.report.keeps_access(), "{test} {to}\n{}", imported.report);
    }
    for (test, to) in [
        ("$scheme = http", "other.example$request_uri"),
        ("$scheme = http", "$host/login"),
        ("$scheme !~ s", "$host$request_uri"),
    ] {
        let report = of(test, to).report;
        assert!(!report.keeps_access(), "{test} {to}\n{report}");
    }
    // No server has TLS.
    let alone = "server { listen 80; server_name a.example; PHP \
                 if ($scheme = http) { return 301 https://$host$request_uri; } }";
    let report = of_servers(alone).report;
    assert!(!report.keeps_access(), "{report}");
    let plain =
        "server { listen 80; server_name a.example; return 301 https://$host$request_uri; }";
    let tls = "server { TLS server_name a.example; PHP \
               if ($scheme != https) { return 301 https://www.b.example; } }";
    let report = of_servers(&format!("{plain} {tls}")).report;
    assert!(report.keeps_access(), "{report}");
}

#[test]
fn an_if_for_one_name_of_a_plain_server_redirects_no_other_one() {
    let redirect = "if ($host = a.example) { return 301 https://$host$request_uri; }";
    let tls = "server { TLS server_name a.example; PHP }";
    let of = |lines: &str| {
        let names = "listen 80; server_name a.example b.example;";
        of_servers(&format!("server {{ {names} {redirect} {lines} }} {tls}"))
    };
    let imported = of("root /srv/b;");
    assert!(site(&imported, "\"b.example\", \"*\"").contains("root = \"/srv/b\""));
    assert!(!imported.report.keeps_access(), "{}", imported.report);
    let other = redirect.replace("a.example", "b.example");
    for lines in [other.as_str(), "return 404;"] {
        let imported = of(lines);
        assert!(imported.toml.contains("redirect = 301"), "{lines}\n{}", imported.toml);
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
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

#[test]
fn a_server_that_only_redirects_is_none_over_plain_http() {
    let site = "server { listen 80; server_name a.example; return 301 https://$host$request_uri; } \
                server { TLS server_name a.example; PHP }";
    let www = |inner: &str| {
        of_servers(&format!(
            "server {{ listen 80; TLS server_name www.a.example; {inner} }} {site}"
        ))
    };
    for inner in [
        "return 301 https://a.example$request_uri;",
        "return 301 $scheme://a.example$request_uri;",
        "location / { return 301 https://a.example$request_uri; }",
        "location /.well-known/acme-challenge { root /c; } \
         location / { return 301 https://a.example$request_uri; }",
    ] {
        let imported = www(inner);
        assert!(imported.toml.contains("redirect = 301"), "{inner}\n{}", imported.toml);
        assert!(imported.report.keeps_access(), "{inner}\n{}", imported.report);
    }
    let inner = "location / { return 301 https://a.example$request_uri; } location /x { PHP }";
    let imported = www(inner);
    assert!(!imported.toml.contains("redirect = 301"), "{}", imported.toml);
    assert!(!imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn a_site_of_a_private_address_is_left_out_as_access_beside_one_of_all_addresses() {
    let shop = "server { TLS server_name shop.example; PHP }";
    let redirect = "server { listen 80 default_server; server_name _; \
                    return 301 https://$host$request_uri; }";
    for (address, is_kept) in [("100.101.102.103", false), ("203.0.113.1", true)] {
        let tls = TLS.replace("443", &format!("{address}:443"));
        let admin = format!("server {{ {tls} server_name admin.example; PHP }}");
        let imported = of_servers(&format!("{admin} {shop} {redirect}"));
        assert_eq!(imported.report.keeps_access(), is_kept, "{address}\n{}", imported.report);
    }
}
