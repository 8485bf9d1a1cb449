//! Each directive of php-fpm.conf: the same configuration and the same requests to Debian's php-fpm
//! and to maitred in its place.

use std::collections::VecDeque;
use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::thread;

use maitred_tests::fpm::{Case, compare};
use maitred_tests::project_root;
use maitred_tests::server::{give_to_web_user, public_folder, set_mode, write_file};
use tempfile::TempDir;

/// How many cases run at a time; most of their time they wait.
const AT_ONCE: usize = 4;

/// Runs only the cases whose names contain what this variable says.
const ONLY: &str = "FPM_CASE";

/// The site of the cases, where the pools' user can read it.
fn site(folder: &Path) -> TempDir {
    let root = public_folder();
    copy(folder, root.path(), "");
    give_to_web_user(root.path());
    root
}

fn copy(from: &Path, to: &Path, below: &str) {
    let entries = fs::read_dir(from.join(below)).expect("the site can be listed");
    for entry in entries.flatten() {
        let name = entry.file_name().into_string().expect("names are text");
        let name = format!("{below}{name}");
        if entry.path().is_dir() {
            copy(from, to, &format!("{name}/"));
            set_mode(&to.join(&name), 0o755);
        } else {
            let bytes = fs::read(entry.path()).expect("the site can be read");
            write_file(to, &name, &bytes);
        }
    }
}

#[test]
fn every_directive_does_what_it_does_under_php_fpm() {
    let folder = project_root().join("tests/fpm-directives");
    let root = site(&folder.join("site"));
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut cases: VecDeque<Case> = Case::read_all(&folder).into();
    cases.retain(|case| case.name.contains(&only));
    cases.retain(|case| match case.obstacle() {
        Some(why) => {
            eprintln!("skipped: {}: {why}", case.name);
            false
        }
        None => true,
    });
    let cases = Mutex::new(cases);
    let wrong = Mutex::new(Vec::new());
    let next = || cases.lock().expect("no thread panics").pop_front();
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(case) = next() {
                    let found = compare(&case, root.path());
                    wrong.lock().expect("no thread panics").extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("no thread panics");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}
