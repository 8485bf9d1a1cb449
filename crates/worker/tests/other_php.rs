//! A libphp of another version than the one that `maitred-php` is built for: the loader takes any,
//! since all have the same SONAME.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

const PROGRAM: &str = env!("CARGO_BIN_EXE_maitred-php");

/// The libphp that the program loads.
fn libphp() -> PathBuf {
    let output = Command::new("ldd").arg(PROGRAM).output().expect("ldd can be started");
    let listed = String::from_utf8(output.stdout).unwrap();
    let line = listed.lines().find(|line| line.contains("libphp")).expect("it has a libphp");
    line.split_whitespace().nth(2).expect("a path").into()
}

/// The output of `maitred-php --version` with a libphp whose version is `change`d.
fn version_with(change: impl Fn(&str) -> String) -> String {
    let (folder, library) = (TempDir::new().unwrap(), libphp());
    let mut bytes = fs::read(&library).unwrap();
    let mark = b"X-Powered-By: PHP/";
    let at = bytes.windows(mark.len()).position(|part| part == mark).unwrap() + mark.len();
    let end = at + bytes[at..].iter().position(|byte| *byte == 0).unwrap();
    let changed = change(std::str::from_utf8(&bytes[at..end]).unwrap());
    assert_eq!(changed.len(), end - at);
    bytes[at..end].copy_from_slice(changed.as_bytes());
    fs::write(folder.path().join(library.file_name().unwrap()), bytes).unwrap();
    let mut program = Command::new(PROGRAM);
    let output = program.arg("--version").env("LD_LIBRARY_PATH", folder.path()).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_libphp_of_another_minor_version_is_refused_before_php_starts() {
    let said = version_with(|version| format!("9{}", &version[1..]));
    assert!(said.contains("runs none: libphp is PHP 9."), "{said}");
    assert!(said.contains("this program is built for PHP 8."), "{said}");
    assert!(said.contains("maitred's program for PHP 9."), "{said}");
}

#[test]
fn a_libphp_of_another_patch_version_runs() {
    let said = version_with(|version| {
        let (branch, patch) = version.rsplit_once('.').unwrap();
        format!("{branch}.{}", "9".repeat(patch.len()))
    });
    assert!(said.contains(", runs PHP 8."), "{said}");
}
