//! `scripts/release` and `scripts/sbom`: a release is a clean, tagged commit with its section in
//! the changelog, and its bill of materials lists every crate in the programs.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use maitred_tests::project_root;
use serde_json::Value;
use tempfile::TempDir;

/// A repository with the scripts, a version and a changelog, all committed.
fn repository(changelog: &str) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    let scripts = folder.path().join("scripts");
    fs::create_dir(&scripts).expect("a folder");
    for name in ["release", "lib.sh"] {
        fs::copy(project_root().join("scripts").join(name), scripts.join(name)).expect("a copy");
    }
    fs::write(folder.path().join("Cargo.toml"), "version = \"1.2.3\"\n").expect("a file");
    fs::write(folder.path().join("CHANGELOG.md"), changelog).expect("a file");
    for arguments in [&["init", "-q"][..], &["add", "-A"], &["commit", "-qm", "All"]] {
        git(folder.path(), arguments);
    }
    folder
}

fn git(folder: &Path, arguments: &[&str]) {
    let names = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "commit.gpgsign=false"];
    let run = Command::new("git").args(names).args(arguments).current_dir(folder).output();
    let run = run.expect("git can be started");
    assert!(run.status.success(), "{run:?}");
}

fn check(folder: &Path) -> Output {
    let release = folder.join("scripts/release");
    Command::new(release).arg("--check").output().expect("the script can be started")
}

fn refusal(folder: &Path) -> String {
    let refused = check(folder);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    String::from_utf8(refused.stderr).expect("text")
}

const CHANGELOG: &str = "# Changelog\n\n## [1.2.3] - 2026-11-26\n";

#[test]
fn a_release_is_a_clean_tagged_commit_with_a_section_in_the_changelog() {
    let folder = repository("# Changelog\n\n## [Unreleased]\n");
    assert!(refusal(folder.path()).contains("no section \"## [1.2.3]\""));

    let folder = repository(CHANGELOG);
    assert!(refusal(folder.path()).contains("no tag v1.2.3"));
    git(folder.path(), &["tag", "v1.2.3"]);
    assert!(check(folder.path()).status.success());
    fs::write(folder.path().join("more"), "").expect("a file");
    assert!(refusal(folder.path()).contains("changes that are not committed"));
}

#[test]
fn the_bill_of_materials_lists_the_crates_of_the_programs_with_licence_and_checksum() {
    let output = Command::new(project_root().join("scripts/sbom"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("python3 can be started (apt install python3)");
    assert!(output.status.success(), "{output:?}");
    let bill: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(bill["bomFormat"], "CycloneDX");
    let parts = bill["components"].as_array().expect("components");
    let has = |name: &str| parts.iter().any(|part| part["name"] == name);
    assert!(has("tokio") && has("rustls") && has("toml"), "what serves is in it");
    assert!(!has("proptest") && !has("tempfile-macros"), "what only tests need is not");
    for part in parts {
        assert!(part["licenses"][0]["expression"].is_string(), "{part}");
        assert_eq!(part["hashes"][0]["content"].as_str().map(str::len), Some(64), "{part}");
    }
}
