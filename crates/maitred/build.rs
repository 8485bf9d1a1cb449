//! Puts the commit into the program: that of `MAITRED_COMMIT`, or of the checkout it is built in.

use std::path::Path;
use std::process::Command;

/// Git's list of the commits of a checkout, which grows with each.
const COMMITS: &str = "../../.git/logs/HEAD";

fn main() {
    println!("cargo:rerun-if-env-changed=MAITRED_COMMIT");
    println!("cargo:rerun-if-changed=build.rs");
    if Path::new(COMMITS).exists() {
        println!("cargo:rerun-if-changed={COMMITS}");
    }
    let given = std::env::var("MAITRED_COMMIT").ok();
    if let Some(commit) = given.or_else(commit).filter(|commit| !commit.is_empty()) {
        println!("cargo:rustc-env=MAITRED_COMMIT={commit}");
    }
}

/// The commit of the checkout; none without a checkout or git.
fn commit() -> Option<String> {
    let git = Command::new("git").args(["rev-parse", "--short=12", "HEAD"]).output().ok()?;
    let commit = String::from_utf8(git.stdout).ok()?;
    git.status.success().then(|| commit.trim().to_owned())
}
