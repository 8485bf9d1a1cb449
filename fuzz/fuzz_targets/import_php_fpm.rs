//! For any configuration of php-fpm behind nginx: the import ends, with an error or with a
//! configuration that has no syntax error of TOML.

#![no_main]

mod one_file;

use libfuzzer_sys::fuzz_target;
use maitred_import::FileReader;
use one_file::{OneFile, check};

const MAIN: &str = "/etc/nginx/nginx.conf";
const POOLS: &str = "/etc/php/fpm/php-fpm.conf";

/// A server whose scripts a pool of php-fpm runs.
const NGINX: &str = "http { server { listen 80; root /srv/www; index index.php;\n\
    location ~ \\.php$ { include fastcgi_params; fastcgi_pass unix:/run/php.sock; } } }\n";

/// nginx's file, and the file of php-fpm.
struct Both<'t>(OneFile<'t>);

impl FileReader for Both<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        match path {
            MAIN => Ok(NGINX.to_owned()),
            path => self.0.read(path),
        }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        self.0.glob(pattern)
    }

    fn resolved(&self, path: &str) -> Option<String> {
        self.0.resolved(path)
    }
}

fuzz_target!(|text: &str| {
    let files = Both(OneFile { path: POOLS, text });
    check(maitred_import::nginx::import(&files, MAIN, &[POOLS.to_owned()]));
});
