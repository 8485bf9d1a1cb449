//! Virtual hosts as a whole: names, macros, TLS.

use super::access_tests::{expect_denied, of_host, of_hosts};
use crate::Imported;
use crate::report::Outcome;

/// A virtual host after that of `a.example`.
fn host(lines: &str) -> String {
    format!("</VirtualHost>\n<VirtualHost *:80>\nDocumentRoot /srv/b\n{lines}\n")
}

#[test]
fn directives_for_tls_that_refuse_clients_are_left_out_as_access() {
    for line in
        ["SSLOCSPEnable on", "SSLOCSPEnable leaf", "SSLSRPVerifierFile /srp", "SSLNewName on"]
    {
        assert!(!of_host(line).report.keeps_access(), "{line}");
    }
    let harmless = "SSLOCSPEnable off\nSSLOCSPDefaultResponder http://a/\nSSLUseStapling on\n\
                    SSLSessionTickets off\nSSLProxyVerify none\nSSLCertificateChainFile /c.pem\n\
                    SSLCipherSuite HIGH";
    assert!(of_host(harmless).report.keeps_access(), "{}", of_host(harmless).report);
}

#[test]
fn each_use_of_a_macro_has_its_own_values_and_findings() {
    let site = "<Macro Site $dir $dir_private>\n<Directory $dir_private>\nRequire all denied\n\
                </Directory>\n<Directory $dir/$dir_private>\nRequire all denied\n</Directory>\n\
                </Macro>\nUse Site /srv/site1 /srv/site1/private";
    expect_denied(site, &["/private/a"], &["/_private/a"]);
    let header = "<Macro Without $action $name>\nRequestHeader $action $name\n</Macro>\n\
                  Use Without unset Proxy\nUse Without unset X-User";
    assert!(!of_host(header).report.keeps_access(), "{}", of_host(header).report);
    let known = header.replace("X-User", "Proxy");
    assert!(of_host(&known).report.keeps_access(), "{}", of_host(&known).report);
}

#[test]
fn a_name_that_an_earlier_wildcard_has_does_not_lead_to_a_later_host() {
    let closed = "<Location />\nRequire all denied\n</Location>";
    for (alias, name, is_hidden) in [
        ("*", "admin.example.com", true),
        ("*.example.com", "admin.example.com", true),
        ("*.EXAMPLE.com", "a.admin.example.com", true),
        ("admin*", "admin.example.com", true),
        ("*.example.com", "example.com", false),
        ("www.example.com", "admin.example.com", false),
    ] {
        let wildcard = format!("ServerName b.example\nServerAlias {alias}\n{closed}");
        let exact = format!("ServerName c.example\nServerAlias {name}");
        let imported = of_host(&[host(&wildcard), host(&exact)].concat());
        let Imported { report, toml, .. } = &imported;
        let hides = !toml.contains(&format!("\"{name}\""));
        assert_eq!(hides, is_hidden, "{alias} {name}\n{toml}");
        assert_eq!(!report.keeps_access(), is_hidden, "{alias} {name}\n{report}");
        let ordered = of_host(&[host(&exact), host(&wildcard)].concat());
        // Requests for other names of this one lead to the first site.
        let is_kept = alias != "admin*";
        assert_eq!(ordered.report.keeps_access(), is_kept, "{alias} {name}\n{}", ordered.report);
    }
    let longer = [
        host("ServerName b.example\nServerAlias *.example.com"),
        host("ServerName c.example\nServerAlias *.b.example.com"),
    ];
    assert!(!of_host(&longer.concat()).report.keeps_access());
    for (wildcard, exact, is_hidden) in [
        ("192.0.2.1:80", "192.0.2.2:80", false),
        ("192.0.2.1:80", "192.0.2.1:80", true),
        ("192.0.2.1", "192.0.2.1:80", true),
        ("*:80", "192.0.2.1:80", false),
        // The address may be the only one of the machine.
        ("192.0.2.1:80", "*:80", true),
        ("_default_:80", "*:80", true),
    ] {
        let imported = of_host(&format!(
            "</VirtualHost>\n<VirtualHost {wildcard}>\nDocumentRoot /srv/b\nServerName b.example\n\
             ServerAlias *.example.com\n</VirtualHost>\n<VirtualHost {exact}>\n\
             DocumentRoot /srv/c\nServerName admin.example.com"
        ));
        let Imported { report, toml, .. } = &imported;
        assert_eq!(!report.keeps_access(), is_hidden, "{wildcard} {exact}\n{toml}\n{report}");
    }
    let elsewhere = "</VirtualHost>\n<VirtualHost *:443>\nServerName admin.example.com\n\
                     DocumentRoot /srv/c\nSSLEngine on\nSSLCertificateFile /c.pem";
    let elsewhere = [host("ServerName b.example\nServerAlias *.example.com"), elsewhere.to_owned()];
    let report = of_host(&elsewhere.concat()).report;
    let mut of_access =
        report.findings().iter().filter(|one| one.outcome == Outcome::LeftOutAccess);
    assert!(of_access.all(|one| one.why.contains("TLS alone")), "{report}");
}

#[test]
fn a_host_over_tls_alone_is_left_out_as_access_where_plain_http_serves_it() {
    let with = |name: &str, plain: &str| {
        of_host(&format!(
            "{plain}\n</VirtualHost>\n<VirtualHost *:443>\nServerName {name}\nSSLEngine on\n\
             SSLCertificateFile /c.pem\nDocumentRoot /srv/site1"
        ))
    };
    let is_left_out = |imported: &Imported| {
        let mut all = imported.report.findings().iter();
        all.any(|one| one.outcome == Outcome::LeftOutAccess && one.why.contains("TLS alone"))
    };
    let apart = with("b.example", "");
    assert!(is_left_out(&apart), "{}\n{}", apart.report, apart.toml);
    let inner = "</VirtualHost>\nListen 8080\n<VirtualHost 127.0.0.1:8080>\nServerName b.example\n\
                 DocumentRoot /srv/site1";
    let beside_inner = with("b.example", inner);
    assert!(is_left_out(&beside_inner), "{}\n{}", beside_inner.report, beside_inner.toml);
    // It is there over plain HTTP, or redirected.
    for (name, plain) in [
        ("a.example", ""),
        ("b.example", "ServerAlias b.example"),
        ("a.example", "Redirect permanent / https://a.example/"),
    ] {
        let imported = with(name, plain);
        assert!(!is_left_out(&imported), "{}\n{}", imported.report, imported.toml);
    }
}

#[test]
fn redirects_to_https_stay_beside_debians_default_host_or_are_named() {
    let redirect = "<VirtualHost *:80>\nServerName b.example\n\
                    Redirect permanent / https://b.example/\n</VirtualHost>\n";
    let tls = "<VirtualHost *:443>\nServerName b.example\nSSLEngine on\n\
               SSLCertificateFile /c.pem\nDocumentRoot /srv/b\n";
    let beside_a = of_host(&format!("</VirtualHost>\n{redirect}{tls}"));
    assert!(!beside_a.report.keeps_access(), "{}", beside_a.report);
    let welcome = "<VirtualHost *:80>\nServerAdmin webmaster@localhost\n\
                   DocumentRoot /var/www/html\nErrorLog ${APACHE_LOG_DIR}/error.log\n\
                   CustomLog ${APACHE_LOG_DIR}/access.log combined\n</VirtualHost>\n";
    for (plain, is_kept) in [(redirect, true), ("", false)] {
        let imported = of_hosts(&format!("{welcome}{plain}{tls}</VirtualHost>\n"));
        assert_eq!(imported.toml.contains("redirect = 301"), is_kept, "{}", imported.toml);
        assert_eq!(imported.report.keeps_access(), is_kept, "{plain}\n{}", imported.report);
    }
}

#[test]
fn names_with_other_wildcards_are_left_out_as_access_but_those_of_the_first_host() {
    let other = host("ServerName c.example");
    for alias in ["dev?.example", "admin.*", "a*.example"] {
        let own = host(&format!("ServerName b.example\nServerAlias {alias}"));
        let report = of_host(&[other.as_str(), own.as_str()].concat()).report;
        assert!(!report.keeps_access(), "{alias}\n{report}");
        let report = of_host(&format!("ServerAlias {alias}\n{other}")).report;
        assert!(report.keeps_access(), "{alias}\n{report}");
    }
}

#[test]
fn a_host_of_a_private_address_is_left_out_as_access_beside_one_of_all_addresses() {
    for (address, is_kept) in [("100.64.0.5", false), ("203.0.113.1", true)] {
        let imported = of_host(&format!(
            "</VirtualHost>\n<VirtualHost {address}:80>\nServerName admin.example\n\
             DocumentRoot /srv/b"
        ));
        assert_eq!(imported.report.keeps_access(), is_kept, "{address}\n{}", imported.report);
    }
}

/// A virtual host over TLS, with a name and a document root.
fn tls_host(name: &str, root: &str) -> String {
    format!(
        "<VirtualHost *:443>\nServerName {name}\nSSLEngine on\nSSLCertificateFile /c.pem\n\
         DocumentRoot {root}\n</VirtualHost>\n"
    )
}

/// The names of the site with a document root.
fn names_of<'t>(imported: &'t Imported, root: &str) -> Vec<&'t str> {
    let mut sites = imported.toml.split("[[sites]]").skip(1);
    let site = sites.find(|site| site.contains(&format!("root = \"{root}\"")));
    let site = site.unwrap_or_else(|| panic!("{root}\n{}", imported.toml));
    let (_, names) = site.split_once("\nhosts = [").expect("hosts");
    names.split(']').next().unwrap_or_default().split(", ").collect()
}

#[test]
fn names_that_one_of_two_virtual_hosts_of_a_site_has_lead_to_the_site() {
    let other = "<VirtualHost *:80>\nServerName other.example\nDocumentRoot /srv/customer1\n\
                 </VirtualHost>\n";
    let plain = "<VirtualHost *:80>\nServerName example.com\nServerAlias www.example.com\n\
                 DocumentRoot /srv/customer2\n</VirtualHost>\n";
    let tls = tls_host("example.com", "/srv/customer2");
    let imported = of_hosts(&[other, plain, &tls].concat());
    let names = names_of(&imported, "/srv/customer2");
    assert_eq!(names, ["\"example.com\"", "\"www.example.com\""], "{}", imported.toml);
    assert_eq!(names_of(&imported, "/srv/customer1"), ["\"other.example\"", "\"*\""]);
    let imported = of_hosts(&[plain, &tls].concat());
    let names = names_of(&imported, "/srv/customer2");
    assert_eq!(names, ["\"example.com\"", "\"www.example.com\"", "\"*\""], "{}", imported.toml);
    let nameless = "<VirtualHost *:80>\nDocumentRoot /srv/customer2\n</VirtualHost>\n";
    let imported = of_hosts(&[nameless, &tls].concat());
    let names = names_of(&imported, "/srv/customer2");
    assert_eq!(names, ["\"example.com\"", "\"*\""], "{}", imported.toml);
    // Its names are those of two sites, and one of them is another one.
    let both = plain.replace("customer2", "customer3");
    let second = tls_host("www.example.com", "/srv/customer3");
    let imported =
        of_hosts(&[other, &both, &tls_host("example.com", "/srv/customer3"), &second].concat());
    assert!(imported.report.keeps_access(), "{}", imported.report);
    let second = tls_host("www.example.com", "/srv/customer4");
    let imported =
        of_hosts(&[other, &both, &tls_host("example.com", "/srv/customer3"), &second].concat());
    assert!(!imported.report.keeps_access(), "{}", imported.report);
}

#[test]
fn debians_two_files_without_a_name_are_one_site() {
    let lines = "ServerAdmin webmaster@localhost\nDocumentRoot /var/www/html\n\
                 ErrorLog ${APACHE_LOG_DIR}/error.log\n\
                 CustomLog ${APACHE_LOG_DIR}/access.log combined\n";
    let plain = format!("<VirtualHost *:80>\n{lines}</VirtualHost>\n");
    let tls = format!(
        "<VirtualHost *:443>\n{lines}SSLEngine on\nSSLCertificateFile /c.pem\n\
         SSLCertificateKeyFile /c.key\n\
         <FilesMatch \"\\.(?:cgi|shtml|phtml|php)$\">\nSSLOptions +StdEnvVars\n</FilesMatch>\n\
         <Directory /usr/lib/cgi-bin>\nSSLOptions +StdEnvVars\n</Directory>\n</VirtualHost>\n"
    );
    for hosts in [[&*plain, &*tls], [&*tls, &*plain]] {
        let imported = of_hosts(&hosts.concat());
        let Imported { report, toml, .. } = &imported;
        assert!(report.keeps_access(), "{report}\n{toml}");
        assert_eq!(names_of(&imported, "/var/www/html"), ["\"*\""]);
        assert_eq!(toml.matches("[[sites]]").count(), 1, "{toml}");
    }
    let other = plain.replace("/html", "/other");
    assert!(!of_hosts(&[other, tls].concat()).report.keeps_access());
}

#[test]
fn a_redirect_of_several_names_to_https_of_one_is_that_of_tls() {
    let plain = |lines: &str| {
        format!(
            "<VirtualHost *:80>\nServerName example.com\nServerAlias www.example.com\n\
             {lines}\n</VirtualHost>\n"
        )
    };
    let www = |name: &str| {
        tls_host("example.com", "/srv/a")
            .replace("SSLEngine", &format!("ServerAlias {name}\nSSLEngine"))
    };
    let rule = "RewriteEngine on\nRewriteRule ^(.*)$ https://example.com/$1 [R=301,L]";
    let of_www = "RewriteEngine on\nRewriteCond %{HTTP_HOST} ^www\nRewriteRule ^ \
                  https://example.com%{REQUEST_URI} [R=301,L]";
    let to = |name: &str| format!("Redirect permanent / https://{name}/");
    let other = || www("www.example.com") + &tls_host("b.example", "/srv/b");
    let rule_to_other = rule.replace("//example.com", "//b.example");
    for (lines, tls, is_redirect) in [
        (to("example.com"), www("www.example.com"), true),
        (to("www.example.com"), www("*.example.com"), true),
        (rule.to_owned(), www("www.example.com"), true),
        // A name has no certificate, or another one is the target.
        (to("example.com"), www("m.example.com"), false),
        (to("b.example"), other(), false),
        (rule_to_other, other(), false),
        (rule.to_owned(), www("m.example.com"), false),
        // It is for one of the names.
        (of_www.to_owned(), www("www.example.com"), false),
    ] {
        let Imported { report, toml, .. } = of_hosts(&[plain(&lines), tls].concat());
        assert_eq!(toml.contains("redirect = 301"), is_redirect, "{lines}\n{toml}\n{report}");
        let is_named = report.to_string().contains("HTTPS of the requested name");
        assert_eq!(is_named, is_redirect, "{lines}\n{report}");
        if is_redirect {
            assert!(report.keeps_access(), "{lines}\n{toml}\n{report}");
            assert_eq!(toml.matches("[[sites]]").count(), 1, "{toml}");
        }
    }
}
