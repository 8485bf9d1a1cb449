//! Debian packages: their contents, lintian, a signed repository, and a clean system in which they
//! are installed, upgraded, removed and purged; and the image with them.

mod image;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use maitred_tests::server::is_root;
use maitred_tests::{maitred_program, project_root};
use tempfile::TempDir;

fn command(program: &str, arguments: &[&str], target: &Path) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(project_root()).env("CARGO_TARGET_DIR", target);
    command.env("BUILT", maitred_program().with_file_name(""));
    // Programs as built for tests are large: xz would take a minute for them (dpkg-deb(1)).
    command.env("DPKG_DEB_COMPRESSOR_TYPE", "gzip").env("DPKG_DEB_COMPRESSOR_LEVEL", "1");
    command
}

fn run(program: &str, arguments: &[&str], target: &Path) -> Output {
    let output = command(program, arguments, target).output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}: {out}{err}", output.status)
}

/// The folder that all is below. It stays for the next run: a clean system takes a minute to make.
fn target() -> PathBuf {
    project_root().join("target/test-packages")
}

/// The folder with the packages of the programs under test, built once.
fn packages() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        std::fs::create_dir_all(target()).expect("a folder");
        let built = run("scripts/packages", &[], &target());
        assert!(built.status.success(), "{}", text(&built));
        let release = std::fs::read_dir(target().join("packages")).expect("packages");
        release.flatten().next().expect("a release").path()
    })
}

/// The files of the package whose name begins so.
fn contents(name: &str) -> String {
    let path = std::fs::read_dir(packages())
        .expect("packages")
        .flatten()
        .map(|entry| entry.path())
        .find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
        .unwrap_or_else(|| panic!("no package {name}"));
    let path = path.to_str().expect("a plain path");
    let listed = run("dpkg-deb", &["--contents", path], &target());
    let fields = run("dpkg-deb", &["--field", path], &target());
    text(&listed) + &text(&fields)
}

#[test]
fn the_packages_have_programs_without_debug_information_manuals_and_the_units() {
    let server = contents("maitred_");
    for file in [
        "./usr/bin/maitred\n",
        "./etc/maitred/maitred.toml\n",
        "./etc/maitred/sites.d/\n",
        "/systemd/system/maitred.service\n",
        "./usr/share/man/man1/maitred-serve.1.gz\n",
        "./usr/share/man/man5/maitred.toml.5.gz\n",
        "./usr/share/bash-completion/completions/maitred\n",
        "./usr/share/doc/maitred/copyright\n",
    ] {
        assert!(server.contains(file), "{file}: {server}");
    }
    assert!(!server.contains("libphp"), "the server needs no PHP: {server}");
    let symbols = contents("maitred-dbgsym_");
    assert!(symbols.contains(".debug\n"), "{symbols}");
    let php = contents("maitred-php_");
    assert!(php.contains("./usr/libexec/maitred/maitred-php -> maitred-php"), "{php}");
    let fpm = contents("maitred-fpm-php");
    assert!(fpm.contains("-fpm.service.d/maitred.conf\n"), "{fpm}");
}

#[test]
fn lintian_finds_no_error_and_no_warning() {
    let changes = std::fs::read_dir(packages()).expect("packages").flatten();
    let changes = changes
        .map(|entry| entry.path())
        .find(|path| path.extension().is_some_and(|end| end == "changes"))
        .expect("a .changes file");
    let changes = changes.to_str().expect("a plain path");
    let arguments = ["--allow-root", "--fail-on", "error,warning", changes];
    let found = run("lintian", &arguments, &target());
    assert!(found.status.success(), "{}", text(&found));
}

/// Runs a script that tries the packages of a repository in a system of its own.
fn try_packages(script: &str) -> String {
    static WRITTEN: OnceLock<()> = OnceLock::new();
    packages();
    WRITTEN.get_or_init(|| {
        let written = run("scripts/repository", &[], &target());
        assert!(written.status.success(), "{}", text(&written));
    });
    let repository = target().join("repository");
    let tried = command(script, &[], &target()).env("REPOSITORY", repository).output();
    let tried = tried.unwrap_or_else(|error| panic!("{script}: {error}"));
    let said = text(&tried);
    assert!(tried.status.success(), "{said}");
    said
}

#[test]
fn a_clean_system_installs_serves_removes_and_purges_them() {
    if !is_root() {
        return eprintln!("skipped: only root can make a clean system");
    }
    let said = try_packages("scripts/try-install");
    assert!(said.contains("ok: no process is left"), "{said}");
}

#[test]
fn a_booted_system_starts_the_service_upgrades_it_under_load_and_replaces_one_that_hangs() {
    if !is_root() {
        return eprintln!("skipped: only root can boot a system");
    }
    let said = try_packages("scripts/try-boot");
    assert!(said.contains("ok: no request failed, and no connection was closed"), "{said}");
    assert!(said.contains("ok: a supervisor that hangs is replaced"), "{said}");
    assert!(said.contains("ok: it is installed there again\nok: and runs again"), "{said}");
}

#[test]
fn a_repository_without_packages_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let refused = run("scripts/repository", &[], folder.path());
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains("make packages"), "{}", text(&refused));
}
