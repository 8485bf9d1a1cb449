//! Document roots, aliases and `sendfile_roots` that a tenant replaces by symbolic links: to a
//! neighbour's files, which the front can read and the tenant cannot, and to releases of his own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use maitred_tests::http::{self, Connection, Request};
use maitred_tests::processes::Signal;
use maitred_tests::server::{
    Server, Setup, is_root, public_folder, set_mode, user_ids, write_file,
};
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

/// The tenant.
const TENANT: &str = "nobody";

/// The neighbour, whose group is the front's.
const NEIGHBOUR: &str = "daemon";

/// A tenant's folder with a site in it, and a neighbour's with a secret that the front can read.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new() -> Machine {
        let folder = public_folder();
        write_file(folder.path(), "a/public/hello.txt", b"hello");
        write_file(folder.path(), "b/shared/dump.sql", b"secret");
        let machine = Machine { folder };
        for name in ["a", "a/public", "a/public/hello.txt"] {
            machine.give(name, TENANT);
        }
        let (uid, _) = user_ids(NEIGHBOUR);
        let (_, front) = user_ids("www-data");
        for (name, mode) in [("b/shared", 0o750), ("b/shared/dump.sql", 0o640)] {
            let path = machine.path(name);
            lchown(&path, Some(uid), Some(front)).expect("root can give files away");
            set_mode(&path, mode);
        }
        machine
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn give(&self, name: &str, user: &str) {
        let (uid, gid) = user_ids(user);
        lchown(self.path(name), Some(uid), Some(gid)).expect("root can give files away");
    }

    /// Makes a link of this user's, in the place of one that is there.
    fn link(&self, name: &str, target: &Path, user: &str) {
        let beside = format!("{name}.new");
        symlink(target, self.path(&beside)).expect("a link can be made");
        self.give(&beside, user);
        fs::rename(self.path(&beside), self.path(name)).expect("a link can be renamed");
    }

    /// The tenant puts a link to the neighbour in the place of a folder.
    fn replace_by_link(&self, name: &str) {
        let was = format!("{name}.was");
        fs::rename(self.path(name), self.path(&was)).expect("a folder can be renamed");
        self.link(name, &self.path("b/shared"), TENANT);
    }

    fn put_back(&self, name: &str) {
        fs::remove_file(self.path(name)).expect("a link can be removed");
        let was = format!("{name}.was");
        fs::rename(self.path(&was), self.path(name)).expect("a folder can be renamed");
    }

    fn setup(&self) -> Setup {
        Setup::new(&self.path("a/public")).workers(1)
    }
}

fn get(server: &Server, path: &str) -> (u16, String) {
    let response = http::get(server.address(), path);
    (response.status, response.text())
}

fn assert_refused(server: &Server, path: &str) {
    let (status, text) = get(server, path);
    assert_ne!(status, 200, "{path}: {text}");
    assert!(!text.contains("secret"), "{path}: {text}");
}

#[test]
fn a_root_that_its_tenant_replaces_by_a_link_to_a_neighbour_is_refused_and_logged_with_the_reason()
{
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    let server = machine.setup().start();
    assert_eq!(get(&server, "/hello.txt"), (200, "hello".into()));
    let mark = server.log().mark();
    machine.replace_by_link("a/public");
    assert_refused(&server, "/dump.sql");
    assert_eq!(get(&server, "/hello.txt").0, 503);
    let line = server.expect_log(mark, "is not served");
    let (link, target) = (machine.path("a/public"), machine.path("b/shared"));
    for part in [
        format!("the symbolic link {} is of user `{TENANT}`", link.display()),
        format!("leads to {}, which is of user `{NEIGHBOUR}`", target.display()),
    ] {
        assert!(line.contains(&part), "{line}");
    }
    machine.put_back("a/public");
    assert_eq!(get(&server, "/hello.txt"), (200, "hello".into()));
}

#[test]
fn aliases_and_sendfile_roots_are_not_replaced_by_links_to_a_neighbour_either() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    for name in ["a/docs", "a/files"] {
        write_file(machine.folder.path(), &format!("{name}/dump.sql"), b"own");
        machine.give(name, TENANT);
    }
    let script = b"<?php header('X-Accel-Redirect: /protected/dump.sql');";
    write_file(machine.folder.path(), "a/public/send.php", script);
    let [docs, files] = ["a/docs", "a/files"].map(|name| machine.path(name));
    let server = machine
        .setup()
        .site(&format!("aliases = {{ \"/docs/\" = {docs:?} }}"))
        .site(&format!("sendfile_roots = {{ \"/protected/\" = {files:?} }}"))
        .start();
    assert_eq!(get(&server, "/docs/dump.sql"), (200, "own".into()));
    assert_eq!(get(&server, "/send.php"), (200, "own".into()));
    machine.replace_by_link("a/docs");
    machine.replace_by_link("a/files");
    assert_refused(&server, "/docs/dump.sql");
    assert_refused(&server, "/send.php");
}

#[test]
fn a_release_that_its_owner_or_root_switches_by_a_link_is_served_at_once() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    for number in 1..=4 {
        let release = format!("a/releases/{number}");
        let text = format!("release {number}");
        write_file(machine.folder.path(), &format!("{release}/which.txt"), text.as_bytes());
        machine.give(&release, TENANT);
    }
    machine.give("a/releases", TENANT);
    // PHP's user has written this one, in the folder of the link's owner.
    machine.give("a/releases/3", "www-data");
    machine.give("a/releases/4", "root");
    let of = |number: u32| PathBuf::from(format!("releases/{number}"));
    machine.link("a/current", &of(1), TENANT);
    let server = Setup::new(&machine.path("a/current")).workers(1).start();
    let serves = |number: u32| {
        let expected = (200, format!("release {number}"));
        assert_eq!(get(&server, "/which.txt"), expected);
    };
    serves(1);
    machine.link("a/current", &of(2), TENANT);
    serves(2);
    machine.link("a/current", &of(3), TENANT);
    serves(3);
    machine.link("a/current", &of(4), "root");
    serves(4);
    machine.link("a/current", &machine.path("a/releases/2"), TENANT);
    serves(2);
    machine.link("a/current", &machine.path("b/shared"), TENANT);
    assert_refused(&server, "/dump.sql");
    machine.link("a/current", &of(1), TENANT);
    serves(1);
}

#[test]
fn a_server_starts_with_a_root_that_it_refuses_and_check_and_explain_say_why() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    machine.replace_by_link("a/public");
    // Without it the owner of the root would be, which is refused as well.
    let server = machine.setup().pool(&format!("user = {TENANT:?}")).start();
    assert_refused(&server, "/dump.sql");
    let file = server.configuration();
    let run = |words: &[&str]| {
        let output = Command::new(maitred_program())
            .args(words)
            .arg("--config")
            .arg(&file)
            .output()
            .expect("maitred can be started");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    };
    let expected = format!("leads to {}, which is", machine.path("b/shared").display());
    let (is_right, said) = run(&["check"]);
    assert!(is_right && said.contains("warning: ") && said.contains(&expected), "{said}");
    let (_, said) = run(&["explain", "http://localhost/dump.sql"]);
    assert!(said.contains(&expected) && said.contains("503"), "{said}");
    machine.put_back("a/public");
    wait::until("the root to be served again", || {
        (get(&server, "/hello.txt").0 == 200).then_some(())
    });
}

#[test]
fn a_link_below_the_root_is_followed_if_it_is_roots_and_otherwise_logged_with_the_remedy() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    write_file(machine.folder.path(), "a/storage/cat.txt", b"cat");
    for name in ["a/storage", "a/storage/cat.txt"] {
        machine.give(name, TENANT);
    }
    let server = machine.setup().start();
    machine.link("a/public/storage", Path::new("../storage"), "root");
    assert_eq!(get(&server, "/storage/cat.txt"), (200, "cat".into()));
    // Root's link, but a tenant's on its way.
    machine.link("a/storage/shared", &machine.path("b/shared"), TENANT);
    machine.link("a/public/shared", Path::new("../storage/shared"), "root");
    assert_refused(&server, "/shared/dump.sql");
    machine.link("a/public/images", Path::new("../storage"), NEIGHBOUR);
    write_file(machine.folder.path(), "a/public/app/public/index.html", b"app");
    machine.link("a/public/app/public/files", Path::new("../../../storage"), NEIGHBOUR);
    let mark = server.log().mark();
    for _ in 0..3 {
        assert_eq!(get(&server, "/images/cat.txt").0, 404);
    }
    let link = machine.path("a/public/images");
    let remedy = format!("`chown -h {TENANT} {}`", link.display());
    server.expect_log(mark, &remedy);
    assert_eq!(server.log_text().matches(&remedy).count(), 1, "{}", server.log_text());
    let output = Command::new(maitred_program())
        .args(["check", "--config"])
        .arg(server.configuration())
        .output()
        .expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&remedy), "{said}");
    let deeper = machine.path("a/public/app/public/files");
    assert!(said.contains(&format!("`chown -h {TENANT} {}`", deeper.display())), "{said}");
    machine.give("a/public/images", TENANT);
    assert_eq!(get(&server, "/images/cat.txt"), (200, "cat".into()));
}

#[test]
fn a_link_below_the_root_is_not_followed_through_a_link_of_another_user() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    for name in ["a/storage/cat.txt", "b/links/index.html"] {
        write_file(machine.folder.path(), name, b"cat");
    }
    for (name, user) in
        [("a/storage", TENANT), ("a/storage/cat.txt", TENANT), ("b/links", NEIGHBOUR)]
    {
        machine.give(name, user);
    }
    let server = machine.setup().start();
    // The target is root's as the first link is, and has the folders of all tenants.
    machine.link("a/storage/up", machine.folder.path(), TENANT);
    machine.link("a/public/up", Path::new("../storage/up"), "root");
    let mark = server.log().mark();
    assert_refused(&server, "/up/b/shared/dump.sql");
    let of_tenant = format!("{} is of user `{TENANT}`", machine.path("a/storage/up").display());
    let line = server.expect_log(mark, &of_tenant);
    assert!(line.contains(&format!("{} get a 404", machine.path("a/public/up").display())));
    // A neighbour would choose the tenant's file.
    machine.link("b/links/cat.txt", &machine.path("a/storage/cat.txt"), NEIGHBOUR);
    machine.link("a/public/cat.txt", &machine.path("b/links/cat.txt"), TENANT);
    assert_eq!(get(&server, "/cat.txt").0, 404);
    machine.give("b/links/cat.txt", "root");
    assert_eq!(get(&server, "/cat.txt").0, 404, "the neighbour may have moved it there");
    machine.link("a/public/cat.txt", Path::new("../storage/own.txt"), TENANT);
    machine.link("a/storage/own.txt", Path::new("cat.txt"), TENANT);
    assert_eq!(get(&server, "/cat.txt"), (200, "cat".into()));
    let output = Command::new(maitred_program())
        .args(["check", "--config"])
        .arg(server.configuration())
        .output()
        .expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains(&of_tenant), "{said}");
}

#[test]
fn links_of_a_tenant_neither_fill_the_log_nor_forge_lines_there() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    let server = machine.setup().start();
    let mark = server.log().mark();
    let secret = machine.path("b/shared/dump.sql");
    fs::create_dir(machine.path("a/d\nforged")).expect("a folder can be made");
    machine.give("a/d\nforged", TENANT);
    machine.link("a/d\nforged/shared", &machine.path("b/shared"), TENANT);
    machine.link("a/public/evil", &machine.path("a/d\nforged/shared/dump.sql"), TENANT);
    machine.link("a/public/x\nforged", &secret, TENANT);
    assert_refused(&server, "/evil");
    server.expect_log(mark, "d\\nforged");
    for number in 0..100 {
        machine.link(&format!("a/public/l{number}"), &secret, TENANT);
    }
    let requested = |number: i32| assert_refused(&server, &format!("/l{number}"));
    (0..100).chain(0..100).for_each(requested);
    server.expect_log(mark, "more symbolic links lead out");
    let log = server.log_text();
    assert!(!log.lines().any(|line| line.starts_with("forged")), "{log}");
    assert!(log.lines().filter(|line| line.contains("symbolic link")).count() < 20, "{log}");
    let output = Command::new(maitred_program())
        .args(["check", "--config"])
        .arg(server.configuration())
        .output()
        .expect("maitred can be started");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("x\\nforged"), "{said}");
    assert!(!said.lines().any(|line| line.starts_with("maitred: forged")), "{said}");
}

/// A script that is booted once. It leaves a file of its user's in `boots` with each boot. On
/// request it puts another folder in the place of its document root, and asks for a restart.
const MOVES: &str = r"<?php
touch('BOOTS/' . getmypid());
maitred_snapshot();
if (isset($_GET['move'])) {
    rename('ROOT', 'ROOT.was');
    STEP;
    opcache_reset();
}
echo 'served';";

#[test]
fn a_tenant_that_replaces_its_root_and_has_its_pool_restarted_stays_its_own_user() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    for (step, owner) in
        [("symlink('OTHER', 'ROOT')", "root"), ("rename('OTHER', 'ROOT')", NEIGHBOUR)]
    {
        let machine = Machine::new();
        let [root, other, boots] = ["a/public", "a/other", "boots"].map(|name| machine.path(name));
        let paths = [("ROOT", &root), ("OTHER", &other), ("BOOTS", &boots)];
        let place = |text: &str| {
            let all = paths.iter();
            all.fold(text.replace("STEP", step), |text, (name, path)| {
                text.replace(name, &path.display().to_string())
            })
        };
        for folder in ["a/public", "a/other"] {
            write_file(
                machine.folder.path(),
                &format!("{folder}/index.php"),
                place(MOVES).as_bytes(),
            );
        }
        machine.give("a/other", owner);
        fs::create_dir(&boots).expect("a folder can be made");
        set_mode(&boots, 0o1777);
        let users = || {
            let files = fs::read_dir(&boots).expect("a folder").flatten();
            let uids = files.map(|file| file.metadata().expect("it stays").uid());
            uids.collect::<BTreeSet<u32>>()
        };
        let script = root.join("index.php");
        let server = machine
            .setup()
            .pool(&format!("mode = \"snapshot\"\nscript = {script:?}"))
            .pool("php_admin_value = { \"opcache.validate_timestamps\" = \"0\" }")
            .start();
        let own = BTreeSet::from([user_ids(TENANT).0]);
        let mark = server.log().mark();
        assert_eq!(get(&server, "/index.php?move=1"), (200, "served".into()));
        server.expect_log(mark, "reloaded: ");
        assert_eq!(users(), own, "{step}");
        if owner == "root" {
            fs::remove_file(&root).expect("a link can be removed");
            fs::rename(machine.path("a/public.was"), &root).expect("a folder can be renamed");
        }
        assert_eq!(get(&server, "/index.php"), (200, "served".into()));
        assert!(server.reload().contains("reloaded"), "{}", server.log_text());
        let by_reload = if owner == "root" { TENANT } else { owner };
        let has_booted = || users().contains(&user_ids(by_reload).0);
        wait::until_true("the user that an administrator may change to boot", has_booted);
        server.stop();
    }
}

/// A script that says the number of its user.
const USER: &[u8] =
    b"<?php preg_match('/^Uid:\\s+(\\d+)/m', file_get_contents('/proc/self/status'),
    $found); echo $found[1];";

/// The user of a site's pool; none: the site is not served.
fn user_of(server: &Server, site: &str) -> Option<u32> {
    let mut request = Request::get("/user.php");
    request.headers[0].1 = format!("{site}.example");
    let response = Connection::open(server.address()).ask(&request).expect("a response");
    (response.status == 200).then(|| response.text().parse().expect("a number"))
}

fn upgrade(server: &Server) {
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
}

#[test]
fn a_tenant_whose_root_is_another_folder_while_faults_are_mended_stays_its_own_user_at_an_upgrade()
{
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    for folder in ["main", "a/public", "a/of-root", "a/made"] {
        write_file(machine.folder.path(), &format!("{folder}/user.php"), USER);
    }
    for name in ["a/public/user.php", "a/made", "a/made/user.php"] {
        machine.give(name, TENANT);
    }
    let rename = |from: &str, to: &str| {
        fs::rename(machine.path(from), machine.path(to)).expect("a folder can be renamed");
    };
    let [root, late] = ["a/public", "a/late"].map(|name| machine.path(name));
    let sites = format!(
        "[[sites]]\nroot = {root:?}\npool = \"first\"\nhosts = \"first.example\"\n\
         [[sites]]\nroot = {late:?}\npool = \"second\"\nhosts = \"second.example\"\n\
         [pools.first]\nmax_children = 1\n[pools.second]\nmax_children = 1\n"
    );
    let main = machine.path("main");
    let server = Setup::new(&main).hosts(&["main.example"]).site(&sites).start();
    let [tenant, neighbour] = [TENANT, NEIGHBOUR].map(|user| user_ids(user).0);
    assert_eq!(user_of(&server, "first"), Some(tenant));
    assert_eq!(user_of(&server, "second"), None);

    rename("a/public", "a/away");
    server.reload();
    let mark = server.log().mark();
    rename("a/of-root", "a/public");
    rename("a/made", "a/late");
    server.expect_log(mark, "mended: ");
    wait::until_true("the second pool", || user_of(&server, "second") == Some(tenant));
    rename("a/public", "a/of-root");
    rename("a/away", "a/public");
    upgrade(&server);
    assert_eq!(user_of(&server, "first"), Some(tenant));

    // An administrator may change the user, and an upgrade leaves it.
    machine.give("a/public", NEIGHBOUR);
    assert!(server.reload().contains("reloaded: "));
    assert_eq!(user_of(&server, "first"), Some(neighbour));
    upgrade(&server);
    assert_eq!(user_of(&server, "first"), Some(neighbour));
    server.stop();
}

#[test]
fn a_pool_whose_root_is_moved_to_a_missing_folder_stops_and_later_has_that_folders_owner_as_user() {
    if !is_root() {
        return eprintln!("skipped: only root can give files to several users");
    }
    let machine = Machine::new();
    for folder in ["main", "a/public", "b/made"] {
        write_file(machine.folder.path(), &format!("{folder}/user.php"), USER);
    }
    for (name, user) in [("a/public/user.php", TENANT), ("b/made", NEIGHBOUR)] {
        machine.give(name, user);
    }
    let [root, moved] = ["a/public", "b/public"].map(|name| machine.path(name));
    let site = format!(
        "[[sites]]\nroot = {root:?}\npool = \"first\"\nhosts = \"first.example\"\n\
         [pools.first]\nmax_children = 1\n"
    );
    let main = machine.path("main");
    let server = Setup::new(&main).hosts(&["main.example"]).site(&site).start();
    let [tenant, neighbour] = [TENANT, NEIGHBOUR].map(|user| user_ids(user).0);
    assert_eq!(user_of(&server, "first"), Some(tenant));

    let configuration = fs::read_to_string(server.configuration()).expect("it can be read");
    let configuration = configuration.replace(&format!("{root:?}"), &format!("{moved:?}"));
    fs::write(server.configuration(), configuration).expect("it can be written");
    let said = server.reload();
    assert!(said.contains("pool first stopped"), "{said}");
    fs::rename(machine.path("b/made"), &moved).expect("a folder can be renamed");
    assert_ne!(user_of(&server, "first"), Some(tenant));
    upgrade(&server);
    wait::until_true("the pool of the new owner", || {
        let user = user_of(&server, "first");
        assert_ne!(user, Some(tenant));
        user == Some(neighbour)
    });
    upgrade(&server);
    assert_eq!(user_of(&server, "first"), Some(neighbour));
    server.stop();
}
