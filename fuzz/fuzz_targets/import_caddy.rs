//! For any Caddyfile: the import ends, with an error or with a configuration that
//! has no syntax error of TOML.

#![no_main]

use libfuzzer_sys::fuzz_target;
use maitred_import::FileReader;
use maitred_import::caddy::CaddySource;

/// One file of the configuration; there is no other.
struct One<'t>(&'t str);

impl FileReader for One<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            "/etc/caddy/Caddyfile" => Ok(self.0.to_owned()),
            _ => Err("there is none".to_owned()),
        }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

fuzz_target!(|text: &str| {
    let imported = maitred_import::caddy::import(&CaddySource {
        files: &One(text),
        main: "/etc/caddy/Caddyfile",
        php_fpm: &[],
        environment: &|name| (name == "A").then(|| "a.example".to_owned()),
    });
    if let Ok(imported) = imported {
        toml::from_str::<toml::Table>(&imported.toml).expect("it is TOML");
        assert!(!imported.report.findings().is_empty());
    }
});
