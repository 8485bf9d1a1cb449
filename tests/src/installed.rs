//! The programs in a folder of their own, which a test can replace as a package manager would.

use std::fs;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use crate::maitred_program;
use crate::server::{public_folder, set_mode};

/// A folder with copies of the two programs.
///
/// # Panics
/// When they cannot be copied.
pub fn installed() -> TempDir {
    let folder = public_folder();
    for name in ["maitred", "maitred-php"] {
        install(&maitred_program().with_file_name(name), folder.path());
    }
    folder
}

/// Puts a copy of a program into a folder, in the place of one that may run: by a rename.
///
/// # Panics
/// When it cannot be copied.
pub fn install(program: &Path, folder: &Path) {
    let name = program.file_name().expect("a program has a name");
    let new = folder.join(name).with_extension("new");
    // By another process: what a process forked here held open for writing could not be executed.
    let copied = Command::new("cp").arg(program).arg(&new).status();
    assert!(copied.expect("cp runs").success());
    fs::rename(&new, folder.join(name)).expect("a program can be replaced");
}

/// Puts a shell script in the place of a program, by a rename.
///
/// # Panics
/// When it cannot be written.
pub fn replace(program: &Path, script: &str) {
    let new = program.with_extension("new");
    fs::write(&new, format!("#!/bin/sh\n{script}\n")).expect("a script can be written");
    set_mode(&new, 0o755);
    fs::rename(&new, program).expect("a program can be replaced");
}
