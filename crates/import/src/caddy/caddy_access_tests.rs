//! What the imported configuration never shows or runs, and Caddy does not.

use maitred_config::Config;

use super::tests::of;
use crate::Imported;

fn config(imported: &Imported) -> Config {
    let parsed = maitred_config::parse(&imported.toml, std::path::Path::new("/x/maitred.toml"));
    parsed.unwrap_or_else(|why| panic!("{why}\n{}", imported.toml))
}

/// Whether a script runs.
fn runs(imported: &Imported, script: &str) -> bool {
    let rules = &config(imported).sites[0].rules;
    let is_in = |path: &maitred_rules::Pattern| path.matches(script.as_bytes());
    (rules.allow_php.is_empty() || rules.allow_php.iter().any(is_in))
        && !rules.deny_php.iter().any(|rule| is_in(&rule.path))
}

const FPM: &str = "php_fastcgi unix//run/php.sock";

#[test]
fn no_script_runs_in_paths_that_php_is_not_for() {
    for lines in [
        &format!("handle /uploads/* {{\nfile_server\n}}\nhandle {{\n{FPM}\nfile_server\n}}"),
        &format!("@php not path /uploads/*\n{}\nfile_server", FPM.replace("i ", "i @php ")),
        &format!(
            "handle /uploads/* {{\nhandle /uploads/run/* {{\n{FPM}\nfile_server\n}}\n\
             file_server\n}}\nhandle {{\n{FPM}\nfile_server\n}}"
        ),
    ] {
        let imported = of(&format!(":80 {{\nroot * /srv/app\n{lines}\n}}"));
        assert!(imported.report.keeps_access(), "{lines}\n{}", imported.report);
        assert!(!runs(&imported, "/uploads/x.php"), "{lines}\n{}", imported.toml);
        assert!(
            !runs(&imported, "/Uploads/x.php") || lines.contains("/uploads/run/"),
            "{}",
            imported.toml
        );
        assert!(runs(&imported, "/index.php"), "{lines}\n{}", imported.toml);
        let is_part = lines.contains("/uploads/run/");
        assert_eq!(runs(&imported, "/uploads/run/x.php"), is_part, "{}", imported.toml);
    }
    let all = of(&format!(
        ":80 {{\nroot * /srv/app\nhandle /a/* {{\n{FPM}\nfile_server\n}}\nhandle /api/* {{\n\
         reverse_proxy :81\n}}\nhandle /a.css {{\nfile_server\n}}\n\
         handle {{\n{FPM}\nfile_server\n}}\n}}"
    ));
    assert!(!all.toml.contains("deny_php"), "{}", all.toml);
    assert!(all.report.keeps_access(), "{}", all.report);
}
