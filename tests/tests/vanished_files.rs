//! Files and folders of a tenant that its pool or site names, and that have vanished or become
//! links: the start, a reload and an upgrade serve all others, and no pool runs without what
//! confines it.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::{lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use maitred_tests::fastcgi::{self, Wire};
use maitred_tests::http::{Connection, Request};
use maitred_tests::outside::{command, succeeded, text};
use maitred_tests::processes::Signal;
use maitred_tests::server::{
    Server, Setup, WEB_USER, give_to_web_user, is_root, public_folder, set_mode, user_ids,
    write_file,
};
use maitred_tests::{Target, maitred_program, wait};
use tempfile::TempDir;

const PAGE: &[u8] = b"<?php echo is_dir('/etc/ssl') ? 'outside' : 'inside';";
const WORKER: &[u8] = b"<?php while (frankenphp_handle_request(function () { echo 'worker'; })) {}";

/// What is taken away of a tenant, and by what name its setting is known.
#[derive(Debug, Clone, Copy)]
struct Loss {
    tenant: &'static str,
    setting: &'static str,
    /// The file or folder in the tenant's home.
    file: &'static str,
    /// A link that is put in its place.
    link: Option<&'static str>,
    /// Settings of the pool, with the home for `HOME`.
    pool: &'static str,
    /// Settings of the site.
    site: &'static str,
    /// The page that needs it.
    page: &'static str,
}

const LOSS: Loss =
    Loss { tenant: "", setting: "", file: "", link: None, pool: "", site: "", page: "/page.php" };

const LOSSES: [Loss; 9] = [
    Loss {
        tenant: "script",
        setting: "script",
        file: "public/worker.php",
        pool: "mode = \"worker\"\nscript = \"HOME/public/worker.php\"",
        ..LOSS
    },
    Loss { tenant: "jail", setting: "chroot", file: ".", pool: "chroot = \"HOME\"", ..LOSS },
    Loss {
        tenant: "linked",
        setting: "chroot",
        file: "jail",
        link: Some("/"),
        pool: "chroot = \"HOME/jail\"",
        ..LOSS
    },
    Loss { tenant: "chdir", setting: "chdir", file: "work", pool: "chdir = \"HOME/work\"", ..LOSS },
    Loss {
        tenant: "ini",
        setting: "php_ini",
        file: "php.ini",
        pool: "php_ini = \"HOME/php.ini\"",
        ..LOSS
    },
    Loss {
        tenant: "scanned",
        setting: "php_ini_scan_dir",
        file: "conf.d",
        pool: "php_ini_scan_dir = \"HOME/conf.d\"",
        ..LOSS
    },
    Loss {
        tenant: "users",
        setting: "basic_auth.users",
        file: "users",
        site: "basic_auth = { path = \"/staff/*\", users = \"HOME/users\" }",
        page: "/staff/page.txt",
        ..LOSS
    },
    Loss {
        tenant: "outside",
        setting: "root",
        file: "jail/public",
        link: Some("../public"),
        pool: "chroot = \"HOME/jail\"",
        page: "/page.txt",
        ..LOSS
    },
    Loss {
        tenant: "script-and-jail",
        setting: "script",
        file: "public/worker.php",
        pool: "chroot = \"HOME\"\nmode = \"worker\"\nscript = \"HOME/public/worker.php\"",
        ..LOSS
    },
];

impl Loss {
    fn home(&self, folder: &Path) -> PathBuf {
        folder.join(self.tenant)
    }

    /// The document root.
    fn root(&self, folder: &Path) -> PathBuf {
        let home = self.home(folder);
        if self.pool.contains("HOME/jail") { home.join("jail/public") } else { home.join("public") }
    }

    fn path(&self, folder: &Path) -> PathBuf {
        match self.file {
            "." => self.home(folder),
            file => self.home(folder).join(file),
        }
    }

    fn hidden(&self, folder: &Path) -> PathBuf {
        folder.join(format!("{}.hidden", self.tenant))
    }

    /// The tenant takes it away.
    fn happen(&self, folder: &Path) {
        let path = self.path(folder);
        fs::rename(&path, self.hidden(folder)).expect("a file can be renamed");
        if let Some(target) = self.link {
            symlink(target, &path).expect("a link can be made");
            let (uid, gid) = user_ids(WEB_USER);
            lchown(&path, Some(uid), Some(gid)).expect("root can give a link away");
        }
    }

    fn mend(&self, folder: &Path) {
        let path = self.path(folder);
        if self.link.is_some() {
            fs::remove_file(&path).expect("a link can be removed");
        }
        fs::rename(self.hidden(folder), &path).expect("a file can be renamed");
    }

    fn lines(&self, folder: &Path) -> String {
        let Loss { tenant, pool, site, .. } = self;
        let home = self.home(folder).display().to_string();
        let lines = format!(
            "\n[[sites]]\nroot = {:?}\npool = {tenant:?}\nhosts = \"{tenant}.example\"\n{site}\n\
             [pools.{tenant}]\npm = \"ondemand\"\nmax_children = 1\nuser = {WEB_USER:?}\n{pool}\n",
            self.root(folder)
        );
        lines.replace("HOME", &home)
    }

    fn ask(&self, address: SocketAddr) -> u16 {
        ask(address, self.tenant, self.page)
    }
}

/// The homes of all tenants, who own them.
fn homes() -> TempDir {
    let folder = public_folder();
    write_file(folder.path(), "good/page.php", b"<?php echo 'good';");
    for loss in LOSSES {
        let (home, root) = (loss.home(folder.path()), loss.root(folder.path()));
        fs::create_dir_all(&root).expect("a folder can be made");
        // What a link out of the chroot leads to.
        write_file(&home, "public/page.txt", b"elsewhere");
        write_file(&root, "page.php", PAGE);
        write_file(&root, "page.txt", b"page");
        write_file(&root, "staff/page.txt", b"staff");
        write_file(&home, "public/worker.php", WORKER);
        write_file(&home, "php.ini", b"");
        write_file(&home, "conf.d/10-none.ini", b"");
        write_file(&home, "users", b"");
        write_file(&home, "work/none", b"");
        for jail in [home.clone(), root.join("..")] {
            write_file(&jail, "usr/share/zoneinfo/none", b"");
        }
        let all = Command::new("chmod").args(["-R", "a+rX"]).arg(&home).status();
        assert!(all.expect("chmod can be run").success());
        for owned in [home.clone(), root.join(".."), root] {
            set_mode(&owned, 0o755);
            give_to_web_user(&owned);
        }
    }
    folder
}

fn setup(folder: &Path) -> Setup {
    let lines: String = LOSSES.iter().map(|loss| loss.lines(folder)).collect();
    Setup::new(&folder.join("good")).hosts(&["good.example"]).site(&lines)
}

fn ask(address: SocketAddr, host: &str, page: &str) -> u16 {
    let mut request = Request::get(page);
    request.headers[0].1 = format!("{host}.example");
    Connection::open(address).ask(&request).expect("a response").status
}

fn assert_lost(server: &Server) {
    assert_eq!(ask(server.address(), "good", "/page.php"), 200);
    for loss in LOSSES {
        assert_eq!(loss.ask(server.address()), 503, "{loss:?}");
    }
    assert_eq!(ask(server.address(), "users", "/page.php"), 200, "it needs no user");
}

fn wait_for_all(server: &Server) {
    wait::until_true("all sites to be served", || {
        LOSSES.iter().all(|loss| [200, 401].contains(&loss.ask(server.address())))
    });
}

fn check(server: &Server) -> Output {
    let mut check = Command::new(maitred_program());
    check.arg("check").arg(server.configuration()).output().expect("check runs")
}

fn upgrade(server: &Server) {
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
}

/// Each tenant whose loss is not named with its place in the file.
fn unnamed(said: &str, server: &Server) -> Vec<&'static str> {
    let file = server.configuration().display().to_string();
    let is_named = |loss: &&Loss| {
        let (tenant, setting) = (format!("/{}", loss.tenant), format!("`{}` is ", loss.setting));
        let mut lines = said.lines().filter(|line| line.contains(&file));
        lines.any(|line| line.contains(&tenant) && line.contains(&setting))
    };
    LOSSES.iter().filter(|loss| !is_named(loss)).map(|loss| loss.tenant).collect()
}

#[test]
fn what_tenants_have_removed_stops_their_own_pools_at_a_start_a_reload_and_an_upgrade() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let folder = homes();
    LOSSES.iter().for_each(|loss| loss.happen(folder.path()));
    let server = setup(folder.path()).start();
    assert_lost(&server);
    assert_eq!(unnamed(&server.log_text(), &server), [""; 0], "{}", server.log_text());
    let status = succeeded(&command(&server, &["status"]));
    assert_eq!(unnamed(&status, &server), [""; 0], "{status}");
    let checked = check(&server);
    let said = text(&checked.stderr);
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert_eq!(unnamed(&said, &server), [""; 0], "{said}");

    let good = folder.path().join("good");
    let another = format!("[[sites]]\nroot = {good:?}\npool = \"www\"\nhosts = \"new.example\"");
    server.configure(&setup(folder.path()).site(&another));
    let said = succeeded(&command(&server, &["reload"]));
    assert_eq!(unnamed(&said, &server), [""; 0], "{said}");
    assert_lost(&server);
    assert_eq!(ask(server.address(), "new", "/page.php"), 200, "the reload is in force");
    upgrade(&server);
    assert_lost(&server);

    LOSSES.iter().for_each(|loss| loss.mend(folder.path()));
    succeeded(&command(&server, &["reload"]));
    wait_for_all(&server);
    let status = succeeded(&command(&server, &["status"]));
    assert!(!status.contains("FAULTS"), "{status}");
    server.stop();
}

#[test]
fn what_tenants_remove_while_they_are_served_stops_no_reload_and_no_upgrade_of_others() {
    if !is_root() {
        return eprintln!("skipped: only root can change a root");
    }
    let folder = homes();
    let server = setup(folder.path()).start();
    wait_for_all(&server);
    LOSSES.iter().for_each(|loss| loss.happen(folder.path()));
    let said = succeeded(&command(&server, &["reload"]));
    assert_eq!(unnamed(&said, &server), [""; 0], "{said}");
    assert_eq!(ask(server.address(), "good", "/page.php"), 200);
    upgrade(&server);
    assert_lost(&server);
    LOSSES.iter().for_each(|loss| loss.mend(folder.path()));
    succeeded(&command(&server, &["reload"]));
    wait_for_all(&server);
    server.stop();
}

#[test]
fn a_socket_whose_folder_a_tenant_has_removed_is_made_once_the_folder_is_back() {
    let folder = public_folder();
    write_file(folder.path(), "good/page.php", b"<?php echo 'good';");
    let (good, run) = (folder.path().join("good"), folder.path().join("run"));
    let socket = run.join("shop.sock");
    let (log, logs) = (folder.path().join("logs/shop.log"), folder.path().join("logs"));
    let lines = format!(
        "[pools.shop]\npm = \"ondemand\"\nmax_children = 1\nlisten = {socket:?}\n\
         access_log = {log:?}\n"
    );
    let server = Setup::new(&good).hosts(&["good.example"]).site(&lines).start();
    assert_eq!(ask(server.address(), "good", "/page.php"), 200);
    let status = succeeded(&command(&server, &["status"]));
    assert!(status.contains("clients cannot connect to it until then"), "{status}");
    assert!(server.reload().contains("shop.sock cannot be listened on"));
    upgrade(&server);
    assert_eq!(ask(server.address(), "good", "/page.php"), 200);
    fs::create_dir(&logs).expect("a folder can be made");
    fs::create_dir(&run).expect("a folder can be made");
    wait::until_true("the socket to be made", || socket.exists());
    let params = fastcgi::params(&good, "/page.php", &[]);
    let mut wire = Wire::connect(&socket);
    wire.send(&fastcgi::request(1, false, &params, b""));
    assert_eq!(wire.answer(1).expect("a response").body(), "good");
    wait::until_true("its line in the log", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("/page.php"))
    });
    wait::until_true("the end of the faults", || {
        !succeeded(&command(&server, &["status"])).contains("FAULTS")
    });
    // The folder is removed under a server that uses it.
    fs::remove_dir_all(&run).expect("a folder can be removed");
    server.reload();
    assert_eq!(ask(server.address(), "good", "/page.php"), 200);
    server.stop();
}
