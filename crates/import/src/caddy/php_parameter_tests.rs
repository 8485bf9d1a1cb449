//! Parameters of FastCGI that Caddy sends, and settings of PHP among them.

use super::tests::{of, with_pools};
use crate::Imported;

/// A site whose `php_fastcgi` has this line.
fn of_line(server: &str, line: &str) -> Imported {
    of(&format!(":80 {{\nroot * /srv/a\nphp_fastcgi {server} {{\n{line}\n}}\nfile_server\n}}"))
}

const FPM: &str = "unix//run/php.sock";
const CONFINED: &str = "env PHP_ADMIN_VALUE \"open_basedir=/srv/a:/tmp\"";

#[test]
fn a_setting_of_php_in_a_parameter_is_one_of_the_pool() {
    let imported = of_line(FPM, CONFINED);
    let toml = &imported.toml;
    assert!(toml.contains("php_admin_value.open_basedir = \"/srv/a:/tmp\""), "{toml}");
    assert!(!toml.contains("env.PHP"), "{toml}");
    assert!(imported.report.keeps_access(), "{}", imported.report);
    let several = of_line(FPM, "env PHP_VALUE \"auto_prepend_file=/l.php\nmemory_limit=64M\"");
    for setting in ["auto_prepend_file = \"/l.php\"", "memory_limit = \"64M\""] {
        assert!(several.toml.contains(&format!("php_value.{setting}")), "{}", several.toml);
    }
}

#[test]
fn a_setting_that_the_pool_cannot_have_is_named() {
    for (server, line) in [
        (FPM, "env PHP_ADMIN_VALUE {env.UNSET}"),
        (FPM, "env PHP_ADMIN_VALUE \"open_basedir={env.UNSET}\""),
        ("10.0.0.1:9000", CONFINED),
    ] {
        let imported = of_line(server, line);
        assert!(!imported.report.keeps_access(), "{line}\n{}", imported.toml);
        assert!(!imported.toml.contains("PHP_ADMIN_VALUE"), "{}", imported.toml);
    }
    let own = of(&format!(":80 {{\nroot * /srv/a\nphp_server {{\n{CONFINED}\n}}\n}}"));
    assert!(!own.report.keeps_access(), "{}", own.toml);
    let site = |name: &str, folder: &str| {
        format!(
            "http://{name} {{\nroot * {folder}\nphp_fastcgi {FPM} {{\n\
             env PHP_ADMIN_VALUE open_basedir={folder}\n}}\nfile_server\n}}\n"
        )
    };
    let two = of(&(site("a.example", "/srv/a") + &site("b.example", "/srv/b")));
    assert!(!two.report.keeps_access(), "{}", two.toml);
    let refused =
        "env PHP_VALUE memory_limit=1M\nenv PHP_VALUE \"memory_limit=2M\npost_max_size=3M\"";
    let refused = of_line(FPM, refused);
    assert!(!refused.toml.contains("post_max_size"), "{}", refused.toml);
    assert!(!refused.report.keeps_access(), "{}", refused.report);
}

#[test]
fn a_setting_for_some_scripts_of_a_pool_is_named() {
    let of_blocks = |other: &str| {
        of(&format!(
            ":80 {{\nroot * /srv/a\nhandle /tool/* {{\nphp_fastcgi {FPM} {{\n{CONFINED}\n}}\n\
             file_server\n}}\nhandle {{\nphp_fastcgi {FPM} {{\n{other}\n}}\nfile_server\n}}\n}}"
        ))
    };
    assert!(!of_blocks("env APP_ENV prod").report.keeps_access());
    let alike = of_blocks(CONFINED);
    assert!(alike.report.keeps_access(), "{}", alike.report);
}

#[test]
fn a_parameter_of_the_server_with_another_value_is_named() {
    for (line, is_alike) in [
        ("env REMOTE_ADDR {header.X-Real-IP}", false),
        ("env REMOTE_ADDR 192.0.2.1", false),
        ("env REMOTE_ADDR {client_ip}", true),
        ("env REMOTE_USER admin", false),
        ("env REMOTE_USER {http.auth.user.id}", true),
        ("env HTTP_X_USER admin", false),
        ("env HTTP_X_USER {http.request.header.X-User}", true),
        ("env HTTP_HOST a.example", false),
        ("env HTTP_PROXY \"\"", true),
        ("env SCRIPT_FILENAME /srv/b/index.php", false),
        ("env DOCUMENT_ROOT /srv/b", false),
        ("env DOCUMENT_ROOT {root}", true),
        ("env APP_ENV prod", true),
    ] {
        let imported = of_line(FPM, line);
        assert_eq!(imported.report.keeps_access(), is_alike, "{line}\n{}", imported.report);
        assert_eq!(imported.toml.contains("env."), line.contains("APP_ENV"), "{}", imported.toml);
    }
}

#[test]
fn a_setting_of_the_pool_is_replaced_as_caddy_does() {
    let pool = "[www]\nlisten = /run/php.sock\npm = ondemand\n\
                php_admin_value[open_basedir] = /srv\n";
    let text =
        format!(":80 {{\nroot * /srv/a\nphp_fastcgi {FPM} {{\n{CONFINED}\n}}\nfile_server\n}}");
    let imported = with_pools(&text, pool);
    assert_eq!(imported.toml.matches("open_basedir").count(), 1, "{}", imported.toml);
    assert!(imported.toml.contains("\"/srv/a:/tmp\""), "{}", imported.toml);
}
