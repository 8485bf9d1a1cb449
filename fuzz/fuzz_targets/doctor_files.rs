//! Whatever the files of a machine hold that doctor reads as root: the examination ends with a
//! report. The files are divided by zero bytes.

#![no_main]

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use maitred_doctor::{Options, Scope, examine};
use tempfile::TempDir;

const FILES: [&str; 8] = [
    "etc/php/8.2/fpm/php-fpm.conf",
    "etc/php/8.2/fpm/php.ini",
    "etc/nginx/nginx.conf",
    "etc/apache2/apache2.conf",
    "etc/mysql/my.cnf",
    "srv/site/.env",
    "srv/site/wp-config.php",
    "var/log/nginx/access.log",
];

static ROOT: LazyLock<TempDir> = LazyLock::new(|| {
    let root = tempfile::tempdir().expect("a folder");
    for file in FILES {
        let path = root.path().join(file);
        fs::create_dir_all(path.parent().expect("it is in one")).expect("a folder");
    }
    root
});

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(FILES.len(), |byte| *byte == 0);
    for file in FILES {
        let text = parts.next().unwrap_or_default();
        fs::write(ROOT.path().join(file), text).expect("a file can be written");
    }
    let report = examine(&Options {
        which: Scope::Everything,
        config: PathBuf::from("/etc/maitred/maitred.toml"),
        php_fpm: None,
        admin_socket: None,
        root: Some(ROOT.path().to_owned()),
        access_log: Some(PathBuf::from("/var/log/nginx/access.log")),
        watch: Duration::ZERO,
        time: Duration::from_secs(5),
        user_of_pool: |_, _| None,
    });
    assert!(!report.findings.is_empty(), "it says at least what is unknown");
});
