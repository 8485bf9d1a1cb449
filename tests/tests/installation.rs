//! `make install`: what lies where, what stays, and that the unit's permissions are enough.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maitred_tests::Target;
use maitred_tests::http;
use maitred_tests::server::{
    Setup, document_root, give_to_web_user, is_root, public_folder, set_mode,
};
use maitred_tests::{maitred_program, project_root, wait};
use tempfile::TempDir;

/// Runs `make` with a verb and variables.
fn make(verb: &str, variables: &[String]) -> Output {
    let built = maitred_program().with_file_name("");
    let output = Command::new("make")
        .arg("--directory")
        .arg(project_root())
        .arg(verb)
        .args(variables)
        .arg(format!("BUILT={}", built.display()))
        .output();
    let output = output.expect("make runs");
    assert!(output.status.success(), "{output:?}");
    output
}

/// All files below a folder, by their paths there.
fn files(folder: &Path) -> Vec<String> {
    let found = Command::new("find").arg(folder).args(["-type", "f", "-printf", "/%P\n"]).output();
    let found = String::from_utf8(found.expect("find runs").stdout).expect("names are UTF-8");
    let mut found: Vec<String> = found.lines().map(str::to_owned).collect();
    found.sort();
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").permissions().mode() & 0o7777
}

/// Whether a text names a path that installing has not filled in.
fn has_placeholder(text: &str) -> bool {
    ["@BINDIR@", "@CONFIG@", "@LOCALSTATEDIR@"].iter().any(|name| text.contains(name))
}

/// An installation below a folder of its own.
struct Installed {
    folder: TempDir,
}

impl Installed {
    fn new() -> Installed {
        let installed = Installed { folder: public_folder() };
        let below = |name: &str, path: &str| {
            let path = installed.folder.path().join(path);
            format!("{name}={}", path.display())
        };
        let variables =
            [below("PREFIX", "usr"), below("SYSCONFDIR", "etc"), below("LOCALSTATEDIR", "var")];
        make("install", &variables);
        installed
    }

    fn path(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// The value of a setting of the unit.
    fn unit(&self, setting: &str) -> String {
        let unit = self.path("usr/lib/systemd/system/maitred.service");
        let unit = fs::read_to_string(unit).expect("a unit");
        let start = format!("{setting}=");
        let line = unit.lines().find_map(|line| line.strip_prefix(&start));
        line.expect("the unit has the setting").to_owned()
    }

    /// What setpriv needs to bound a program's capabilities as the unit does.
    fn bounds(&self) -> String {
        let all = self.unit("CapabilityBoundingSet").to_lowercase();
        let names = all.split(' ').map(|name| name.replace("cap_", "+"));
        format!("-all,{}", names.collect::<Vec<_>>().join(","))
    }
}

#[test]
fn a_package_gets_every_file_and_a_configuration_that_is_there_stays() {
    let folder = public_folder();
    let dest = [format!("DESTDIR={}", folder.path().display())];
    make("install", &dest);
    let expected = [
        "/etc/logrotate.d/maitred",
        "/etc/maitred/maitred.toml",
        "/usr/local/bin/maitred",
        "/usr/local/lib/systemd/system/maitred.service",
        "/usr/local/lib/sysusers.d/maitred.conf",
        "/usr/local/libexec/maitred/maitred-php",
    ];
    assert_eq!(files(folder.path()), expected);
    for name in expected {
        let wanted = match name.contains("/bin/") || name.contains("/libexec/") {
            true => 0o755,
            false => 0o644,
        };
        let path = folder.path().join(name.trim_start_matches('/'));
        assert_eq!(mode(&path), wanted, "{name}");
        let is_text = wanted == 0o644;
        assert!(!is_text || !has_placeholder(&fs::read_to_string(&path).expect("text")), "{name}");
    }
    let configuration = folder.path().join("etc/maitred/maitred.toml");
    fs::write(&configuration, "mine").expect("a file can be written");
    make("install", &dest);
    assert_eq!(fs::read_to_string(&configuration).expect("it is there"), "mine");
    make("uninstall", &dest);
    assert_eq!(files(folder.path()), expected[..2]);
    make("uninstall", &dest);
}

#[test]
fn existing_folders_keep_their_modes() {
    let folder = public_folder();
    let dest = [format!("DESTDIR={}", folder.path().display())];
    let closed = ["var/www/html", "etc/maitred/sites.d", "etc/maitred", "usr/local/bin"];
    let closed = closed.map(|name| folder.path().join(name));
    for path in &closed {
        fs::create_dir_all(path).expect("a folder can be made");
        set_mode(path, 0o700);
    }
    for _ in 0..2 {
        make("install", &dest);
        assert_eq!(closed.each_ref().map(|path| mode(path)), [0o700; 4]);
    }
    assert_eq!(mode(&folder.path().join("var/log/maitred")), 0o750);
}

#[test]
fn the_first_configuration_is_right_and_the_unit_names_it() {
    let installed = Installed::new();
    let configuration = installed.path("etc/maitred/maitred.toml");
    let start = installed.unit("ExecStart");
    let program = installed.path("usr/bin/maitred");
    let expected = format!("{} serve --config {}", program.display(), configuration.display());
    assert_eq!(start, expected);
    let check = Command::new(&program).args(["check", "--config"]).arg(&configuration).output();
    let check = check.expect("it runs");
    assert!(check.status.success(), "{check:?}");
    let unit = installed.path("usr/lib/systemd/system/maitred.service");
    if let Ok(verified) =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(unit).output()
    {
        let said = String::from_utf8_lossy(&verified.stderr).into_owned();
        let ours: Vec<&str> = said.lines().filter(|line| line.contains("maitred")).collect();
        assert!(ours.is_empty(), "{said}");
    }
}

#[test]
fn what_the_unit_allows_is_enough_for_users_priorities_and_mail_and_for_what_status_shows() {
    if !is_root() {
        return;
    }
    let installed = Installed::new();
    let root = document_root(&[
        ("user.php", "<?php echo posix_getpwuid(posix_geteuid())['name'];"),
        ("mail.php", "<?php var_dump(mail('a@example.com', 'subject', 'text'));"),
    ]);
    // A mailer as postfix's: what it starts has a group that the script does not have.
    let (gains, mailer) = (installed.path("gains"), installed.path("mailer"));
    let spool = installed.path("spool");
    fs::create_dir(&spool).expect("a folder can be made");
    set_mode(&spool, 0o777);
    let copied = Command::new("cp").arg("/usr/bin/id").arg(&gains).status();
    assert!(copied.expect("cp runs").success());
    let owned = Command::new("chgrp").arg("mail").arg(&gains).status();
    assert!(owned.expect("chgrp runs").success());
    set_mode(&gains, 0o2755);
    let script = format!(
        "#!/bin/sh\ncat >/dev/null\nexec {} -gn >{}/said\n",
        gains.display(),
        spool.display()
    );
    fs::write(&mailer, script).expect("a script can be written");
    set_mode(&mailer, 0o755);
    let server = Setup::new(root.path())
        .program(&installed.path("usr/bin/maitred"))
        .under(&["setpriv", "--bounding-set", &installed.bounds()])
        .pool("user = \"games\"")
        .pool("process_priority = -1")
        .pool(&format!("php_admin_value = {{ sendmail_path = {mailer:?} }}"))
        .start();
    assert_eq!(http::get(server.address(), "/user.php").text(), "games");
    assert_eq!(http::get(server.address(), "/mail.php").text(), "bool(true)\n");
    let said = fs::read_to_string(spool.join("said")).expect("the mailer ran");
    assert_eq!(said, "mail\n");
    // On a busy machine the process that counts may start later than a status waits for it.
    wait::until_true("private pages to be counted", || {
        let status = Command::new(installed.path("usr/bin/maitred"))
            .args(["status", "--json", "--admin-socket"])
            .arg(server.admin_socket())
            .output()
            .expect("it runs");
        String::from_utf8_lossy(&status.stdout).contains("\"measured\":\"private\"")
    });
    server.stop();
}

#[test]
fn make_test_is_refused_at_once_where_a_first_build_has_no_room() {
    // What comes after a refusal that fails to come finds nothing to install or to build with.
    let programs = public_folder();
    for name in ["bash", "df", "dirname", "nproc", "tail"] {
        let program = Path::new("/usr/bin").join(name);
        symlink(program, programs.path().join(name)).expect("it can be linked to");
    }
    // A file system of the kernel's, which never has any.
    let tests = Command::new(project_root().join("scripts/test"))
        .env("PATH", programs.path())
        .env("CARGO_TARGET_DIR", "/proc/maitred")
        .output();
    let tests = tests.expect("it runs");
    assert_eq!(tests.status.code(), Some(1), "{tests:?}");
    let said = String::from_utf8_lossy(&tests.stderr).into_owned();
    assert_eq!(said.lines().count(), 1, "{said}");
    let expected = "make test: REFUSED: a first build needs 4 GB, \
                    and the disk of /proc/maitred has \
                    0 MB free; make room there";
    assert!(said.starts_with(expected), "{said}");
}

/// The function of the package's script that puts a first page into a folder, with this exit code.
fn welcome(folder: &Path) -> Option<i32> {
    let script = project_root().join("packaging/debian/maitred.postinst");
    let script = fs::read_to_string(script).expect("it can be read");
    let (_, from) = script.split_once("welcome() {").expect("it has the function");
    let (body, _) = from.split_once("\n}\n").expect("it has an end");
    let page = project_root().join("packaging/welcome.html");
    let body = body
        .replace("/var/www/html", &folder.display().to_string())
        .replace("/usr/share/maitred/welcome.html", &page.display().to_string());
    let run =
        Command::new("sh").args(["-e", "-c", &format!("welcome() {{{body}\n}}\nwelcome")]).status();
    run.expect("a shell runs").code()
}

#[test]
fn the_first_page_of_the_package_replaces_nothing_and_follows_no_link() {
    if !is_root() {
        return eprintln!("skipped: the package is installed by root");
    }
    let (folder, elsewhere) = (public_folder(), public_folder());
    let page = folder.path().join("index.html");
    assert_eq!(welcome(folder.path()), Some(0));
    assert!(fs::read_to_string(&page).expect("it is there").contains("maitred is running"));
    fs::write(&page, "mine").expect("it can be written");
    assert_eq!(welcome(folder.path()), Some(0));
    assert_eq!(fs::read_to_string(&page).expect("it is there"), "mine");
    fs::remove_file(&page).expect("it can be removed");
    let target = elsewhere.path().join("target");
    symlink(&target, &page).expect("a link can be made");
    assert_eq!(welcome(folder.path()), Some(0), "a link to nothing fails no installation");
    assert!(page.is_symlink() && !target.exists());
    give_to_web_user(elsewhere.path());
    assert_eq!(welcome(elsewhere.path()), Some(0));
    assert!(files(elsewhere.path()).is_empty(), "the folder of a tenant stays as it is");
}
