//! `scripts/repository`: apt installs from it, and takes nothing that its key has not signed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maitred_tests::project_root;
use tempfile::TempDir;

/// Releases with a package each, its architecture and its version.
const PACKAGES: [(&str, &str, &str); 3] = [
    ("bookworm", "amd64", "1.0-1~deb12"),
    ("bookworm", "arm64", "1.0-1~deb12"),
    ("noble", "amd64", "1.0-1~ubuntu24.04"),
];

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    format!("{}: {out}{err}", output.status)
}

fn succeed(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", text(&output));
    text(&output)
}

/// Small packages, the repository of them, and an apt with a state of its own.
struct Served {
    folder: TempDir,
}

impl Served {
    /// Signed with the key that `KEY` names in this GnuPG home, or with a key for trials.
    fn signed(key: Option<(&str, &Path)>) -> Served {
        let served = Served { folder: TempDir::new().expect("a folder") };
        for (release, architecture, version) in PACKAGES {
            served.pack(release, architecture, version);
        }
        let mut script = Command::new(project_root().join("scripts/repository"));
        script.env("CARGO_TARGET_DIR", served.folder.path()).env_remove("KEY");
        if let Some((key, home)) = key {
            script.env("KEY", key).env("GNUPGHOME", home);
        }
        succeed(&mut script);
        served.prepare_apt();
        served
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn pack(&self, release: &str, architecture: &str, version: &str) {
        let (source, out) = (self.path("source"), self.path("packages").join(release));
        fs::create_dir_all(source.join("DEBIAN")).expect("a folder");
        fs::create_dir_all(&out).expect("a folder");
        let control = format!(
            "Package: maitred\nVersion: {version}\nArchitecture: {architecture}\nSection: web\n\
             Priority: optional\nMaintainer: A <a@maitred.example>\nDescription: {release}\n"
        );
        fs::write(source.join("DEBIAN/control"), control).expect("a file");
        let mut pack = Command::new("dpkg-deb");
        succeed(pack.args(["--root-owner-group", "--build"]).arg(source).arg(out));
    }

    fn prepare_apt(&self) {
        for folder in ["apt/state", "apt/cache/archives/partial", "apt/etc/apt.conf.d"] {
            fs::create_dir_all(self.path(folder)).expect("a folder");
        }
        fs::write(self.path("apt/status"), "").expect("a file");
        let apt = self.path("apt");
        let settings = format!(
            "Dir::State \"{0}/state\";\nDir::State::status \"{0}/status\";\n\
             Dir::Cache \"{0}/cache\";\nDir::Etc \"{0}/etc\";\nAPT::Sandbox::User \"root\";\n\
             APT::Architecture \"amd64\";\nAPT::Architectures {{ \"amd64\"; }};\n\
             Acquire::Languages \"none\";\n",
            apt.display()
        );
        fs::write(self.path("apt/apt.conf"), settings).expect("a file");
    }

    fn apt(&self, arguments: &[&str]) -> Output {
        let mut apt = Command::new("apt-get");
        apt.env("APT_CONFIG", self.path("apt/apt.conf")).current_dir(self.folder.path());
        apt.args(arguments).output().expect("apt-get can be started")
    }

    /// `apt-get update` for a release, with this key. Without signed lists apt goes on with earlier
    /// ones, so those are removed.
    fn update(&self, release: &str, key: &Path) -> Output {
        let lists = self.path("apt/state/lists");
        let _ = fs::remove_dir_all(&lists);
        fs::create_dir_all(lists.join("partial")).expect("a folder");
        let repository = self.path("repository");
        let (key, repository) = (key.display(), repository.display());
        let source = format!("deb [signed-by={key}] file://{repository} {release} main\n");
        fs::write(self.path("apt/etc/sources.list"), source).expect("a file");
        self.apt(&["update"])
    }

    fn key(&self) -> PathBuf {
        self.path("repository/maitred.asc")
    }
}

/// A key in a GnuPG home of its own, and its fingerprint.
fn key() -> (TempDir, String) {
    let home = TempDir::new().expect("a folder");
    let gpg = || {
        let mut gpg = Command::new("gpg");
        gpg.arg("--batch").env("GNUPGHOME", home.path());
        gpg
    };
    let make = ["--passphrase", "", "--quick-generate-key", "release", "ed25519", "sign", "1d"];
    succeed(gpg().args(make));
    let listed = succeed(gpg().args(["--list-keys", "--with-colons"]));
    let line = listed.lines().find(|line| line.starts_with("fpr:")).expect("a fingerprint");
    let fingerprint = line.split(':').nth(9).expect("a fingerprint").to_owned();
    (home, fingerprint)
}

#[test]
fn apt_downloads_the_package_of_its_release_and_architecture() {
    let served = Served::signed(None);
    for (release, version) in [("bookworm", "1.0-1~deb12"), ("noble", "1.0-1~ubuntu24.04")] {
        let updated = served.update(release, &served.key());
        assert!(updated.status.success(), "{}", text(&updated));
        let downloaded = served.apt(&["download", "maitred"]);
        assert!(downloaded.status.success(), "{}", text(&downloaded));
        let name = format!("maitred_{version}_amd64.deb");
        let packed =
            fs::read(served.path("packages").join(release).join(&name)).expect("a package");
        assert_eq!(fs::read(served.path(&name)).expect("a download"), packed, "{release}");
    }
    let others = served.path("repository/dists/bookworm/main/binary-arm64/Packages");
    assert!(fs::read_to_string(others).expect("a list").contains("Architecture: arm64"));
}

#[test]
fn apt_refuses_a_list_of_packages_that_was_changed_after_it_was_signed() {
    let served = Served::signed(None);
    let folder = served.path("repository/dists/bookworm/main/binary-amd64");
    for list in fs::read_dir(folder).expect("lists").flatten() {
        let mut bytes = fs::read(list.path()).expect("a list");
        bytes.extend_from_slice(b"\nPackage: other\n");
        fs::write(list.path(), bytes).expect("a list");
    }
    let updated = served.update("bookworm", &served.key());
    assert!(!updated.status.success(), "{}", text(&updated));
    let downloaded = served.apt(&["download", "maitred"]);
    assert!(!downloaded.status.success(), "{}", text(&downloaded));
}

#[test]
fn apt_refuses_a_repository_that_another_key_has_signed() {
    let (home, fingerprint) = key();
    let served = Served::signed(Some((&fingerprint, home.path())));
    let updated = served.update("bookworm", &served.key());
    assert!(updated.status.success(), "{}", text(&updated));

    let (other, fingerprint) = key();
    let mut export = Command::new("gpg");
    let export = export.args(["--batch", "--armor", "--export", &fingerprint]);
    let wrong = served.path("other.asc");
    let exported = export.env("GNUPGHOME", other.path()).output().expect("gpg can be started");
    fs::write(&wrong, exported.stdout).expect("a file");
    let updated = served.update("bookworm", &wrong);
    assert!(!updated.status.success(), "{}", text(&updated));
    assert!(text(&updated).contains("is not signed"), "{}", text(&updated));
}
