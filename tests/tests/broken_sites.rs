//! Sites and pools that are broken: they respond with 503, and all others are served.

use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output};

use maitred_tests::http::{Connection, Request};
use maitred_tests::installed::{installed, replace};
use maitred_tests::outside::{command, succeeded, text};
use maitred_tests::processes::Signal;
use maitred_tests::server::{
    Server, Setup, WEB_USER, give_to_web_user, is_root, public_folder, set_mode, user_ids,
    write_file,
};
use maitred_tests::tls::{Authority, s_client, shown, site};
use maitred_tests::{Target, maitred_program, ports, wait};
use tempfile::TempDir;

const SITES: usize = 200;

/// The number of a site decides what is wrong with it; most have nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Broken {
    No,
    RootIsMissing,
    RootIsClosed,
    UserIsMissing,
    SettingIsUnknown,
    LogFolderIsMissing,
}

impl Broken {
    const fn of(number: usize) -> Broken {
        match number {
            9 | 49 | 89 | 129 => Broken::RootIsMissing,
            19 | 59 | 99 | 139 => Broken::RootIsClosed,
            29 | 69 | 109 | 149 => Broken::UserIsMissing,
            39 | 79 | 119 | 159 => Broken::SettingIsUnknown,
            169 | 179 | 189 | 199 => Broken::LogFolderIsMissing,
            _ => Broken::No,
        }
    }

    /// Whether the site responds with 503.
    fn is_lost(self) -> bool {
        !matches!(self, Broken::No | Broken::LogFolderIsMissing)
    }
}

fn all(which: impl Fn(Broken) -> bool) -> impl Iterator<Item = usize> {
    (0..SITES).filter(move |number| which(Broken::of(*number)))
}

fn move_away(home: &Path) {
    fs::rename(home.join("public"), home.join("moved")).expect("the root can be renamed");
}

fn folder() -> TempDir {
    let folder = public_folder();
    for number in 0..SITES {
        let home = folder.path().join(format!("s{number}"));
        let script = format!("<?php echo 'site {number}';");
        write_file(&home, "public/page.php", script.as_bytes());
        write_file(&home, "public/page.txt", format!("site {number}").as_bytes());
        for path in [home.clone(), home.join("public")] {
            set_mode(&path, 0o755);
        }
        match Broken::of(number) {
            Broken::RootIsMissing => move_away(&home),
            Broken::RootIsClosed => set_mode(&home, 0o700),
            _ => {}
        }
    }
    folder
}

/// All sites, each with a pool; `is_mended`: nothing is wrong in the file.
fn setup(folder: &Path, is_mended: bool) -> Setup {
    let mut others = String::new();
    for number in 0..SITES {
        let broken = if is_mended { Broken::No } else { Broken::of(number) };
        let root = folder.join(format!("s{number}/public"));
        let user = match broken {
            Broken::UserIsMissing => "missing-user",
            _ => "www-data",
        };
        let setting = match broken {
            Broken::SettingIsUnknown => "php_admin_value = { memory_limt = \"256M\" }\n",
            _ => "",
        };
        let log = match broken {
            Broken::LogFolderIsMissing => format!("access_log = \"logs{number}/access.log\"\n"),
            _ => String::new(),
        };
        let _ = write!(
            others,
            "\n[[sites]]\nroot = {root:?}\npool = \"p{number}\"\nhosts = \"s{number}.example\"\n\
             {log}[pools.p{number}]\npm = \"ondemand\"\nmax_children = 2\nuser = {user:?}\n\
             {setting}"
        );
    }
    Setup::new(&folder.join("s0/public")).hosts(&["main.example"]).site(&others)
}

fn ask(address: SocketAddr, number: usize, page: &str) -> (u16, String) {
    let mut request = Request::get(page);
    request.headers[0].1 = format!("s{number}.example");
    let response = Connection::open(address).ask(&request).expect("a response");
    (response.status, response.text())
}

fn check(server: &Server) -> Output {
    let mut check = Command::new(maitred_program());
    check.arg("check").arg("--config").arg(server.configuration()).output().expect("check runs")
}

/// Each number whose word, such as `s9/` or `p39`, is missing in the text.
fn unnamed(text: &str) -> Vec<usize> {
    let is_named = |number: &usize| match Broken::of(*number) {
        Broken::RootIsMissing | Broken::RootIsClosed => text.contains(&format!("/s{number}/")),
        Broken::UserIsMissing | Broken::SettingIsUnknown => {
            text.contains(&format!("pool `p{number}`"))
        }
        Broken::LogFolderIsMissing => text.contains(&format!("/logs{number}/")),
        Broken::No => true,
    };
    (0..SITES).filter(|number| !is_named(number)).collect()
}

fn assert_all_serve(server: &Server) {
    for number in all(|broken| !broken.is_lost()) {
        assert_eq!(ask(server.address(), number, "/page.txt"), (200, format!("site {number}")));
    }
    for number in all(|broken| !broken.is_lost()).step_by(20) {
        assert_eq!(ask(server.address(), number, "/page.php"), (200, format!("site {number}")));
    }
}

#[test]
fn twenty_broken_sites_of_two_hundred_respond_with_503_and_harm_no_other() {
    if !is_root() {
        return;
    }
    let folder = folder();
    let server = setup(folder.path(), false).start();
    let address = server.address();
    assert_all_serve(&server);
    for number in all(Broken::is_lost) {
        assert_eq!(ask(address, number, "/page.php").0, 503, "site {number}");
    }
    wait::until_true("each of them to be named in the log", || {
        unnamed(&server.log_text()).is_empty()
    });
    let checked = check(&server);
    assert_eq!(checked.status.code(), Some(2));
    let said = text(&checked.stderr);
    // Pools of one kind are tried once.
    let tried = |number: &usize| Broken::of(*number) == Broken::SettingIsUnknown;
    let unnamed_by_check: Vec<_> = unnamed(&said).into_iter().filter(|one| !tried(one)).collect();
    assert_eq!(unnamed_by_check, [0; 0], "{said}");
    assert!(said.contains("PHP does not know the setting `memory_limt`"), "{said}");
    let status = succeeded(&command(&server, &["status"]));
    assert!(status.contains("FAULTS") && status.contains("/s9/public"), "{status}");

    // A reload for another site.
    let another = setup(folder.path(), false)
        .site("[[sites]]\nroot = \"/usr/share\"\npool = \"www\"\nhosts = \"new.example\"");
    server.configure(&another);
    assert!(server.reload().contains("reloaded: "));
    let said = succeeded(&command(&server, &["reload"]));
    assert!(said.contains("reloaded: ") && said.contains("/s9/public"), "{said}");
    assert_all_serve(&server);

    // Folders come back by themselves, the rest with the next reload.
    for number in all(|broken| broken == Broken::RootIsMissing) {
        let home = folder.path().join(format!("s{number}"));
        fs::rename(home.join("moved"), home.join("public")).unwrap();
    }
    for number in all(|broken| broken == Broken::RootIsClosed) {
        set_mode(&folder.path().join(format!("s{number}")), 0o755);
    }
    let is_root_fault = |broken| matches!(broken, Broken::RootIsMissing | Broken::RootIsClosed);
    wait::until_true("the mended folders to be served", || {
        all(is_root_fault).all(|number| ask(address, number, "/page.php").0 == 200)
    });
    server.configure(&setup(folder.path(), true));
    assert!(server.reload().contains("reloaded: "));
    wait::until_true("all sites to be served", || {
        all(Broken::is_lost).all(|number| ask(address, number, "/page.php").0 == 200)
    });
    let status = succeeded(&command(&server, &["status"]));
    assert!(!status.contains("FAULTS"), "{status}");
    succeeded(&command(&server, &["reload"]));
    server.stop();
}

#[test]
fn a_pool_whose_php_does_not_start_is_tried_again_when_its_files_change() {
    let folder = public_folder();
    write_file(folder.path(), "page.php", b"<?php echo ini_get('exif.encode_unicode');");
    write_file(folder.path(), "conf.d/05-empty.ini", b"");
    let (root, scanned) = (folder.path(), folder.path().join("conf.d"));
    let others = format!(
        "[[sites]]\nroot = {root:?}\npool = \"late\"\nhosts = \"late.example\"\n\
         [pools.late]\nmax_children = 1\npm = \"static\"\nphp_ini_scan_dir = {scanned:?}\n\
         php_admin_value = {{ \"exif.encode_unicode\" = \"UTF-8\" }}\n"
    );
    let server = Setup::new(root).hosts(&["main.example"]).site(&others).start();
    let get = || {
        let mut request = Request::get("/page.php");
        request.headers[0].1 = "late.example".to_owned();
        Connection::open(server.address()).ask(&request).expect("a response")
    };
    assert_eq!(get().status, 503);
    let said = server.expect_log(0, "PHP is started again in");
    assert!(said.contains("up to 60 s"), "{said}");
    wait::until_true("the next start in the status", || {
        let status = succeeded(&command(&server, &["status"]));
        status.contains("exif.encode_unicode") && status.contains("it is started again in")
    });
    write_file(root, "conf.d/20-exif.ini", b"extension=exif\n");
    wait::until_true("PHP to start", || get().text() == "UTF-8");
    let status = succeeded(&command(&server, &["status"]));
    assert!(!status.contains("FAULTS"), "{status}");
    server.stop();
}

/// A script that is booted once, and has its pool started again on request.
const STARTS_AGAIN: &str = "<?php maitred_snapshot();
    if (isset($_GET['again'])) { opcache_reset(); } echo 'served';";

#[test]
fn a_pool_whose_root_was_away_during_a_reload_is_started_again_and_upgraded_once_it_is_back() {
    if !is_root() {
        return eprintln!("skipped: only as root a pool has the owner of its root for its user");
    }
    let folder = public_folder();
    write_file(folder.path(), "main/page.php", b"<?php echo 'main';");
    write_file(folder.path(), "s0/public/page.php", b"<?php");
    write_file(folder.path(), "s0/booted.php", STARTS_AGAIN.as_bytes());
    let (home, main) = (folder.path().join("s0"), folder.path().join("main"));
    let root = home.join("public");
    give_to_web_user(&root);
    let sites = format!(
        "[[sites]]\nroot = {root:?}\npool = \"away\"\nhosts = \"s0.example\"\n\
         [pools.away]\nmax_children = 1\nmode = \"snapshot\"\nscript = {:?}\n\
         php_admin_value = {{ \"opcache.validate_timestamps\" = \"0\" }}\n",
        home.join("booted.php")
    );
    let server = Setup::new(&main).hosts(&["main.example"]).site(&sites).start();
    let served = (200, "served".to_owned());
    assert_eq!(ask(server.address(), 0, "/page.php"), served);
    let mark = server.log().mark();
    move_away(&home);
    server.reload();
    fs::rename(home.join("moved"), &root).unwrap();
    server.expect_log(mark, "mended: ");

    let mark = server.log().mark();
    assert_eq!(ask(server.address(), 0, "/page.php?again"), served);
    let said = server.expect_log(mark, "reloaded: ");
    assert!(!said.contains("does not exist"), "{said}");
    assert_eq!(ask(server.address(), 0, "/page.php"), served);
    let mark = server.log().mark();
    server.signal(Signal::USR2);
    server.expect_log(mark, "upgraded to");
    assert_eq!(ask(server.address(), 0, "/page.php"), served);
    server.stop();
}

#[test]
fn programs_are_asked_for_their_php_once_while_a_pool_lacks_its_own() {
    let programs = installed();
    let asked = programs.path().join("asked");
    let says = format!("echo asked >> {}; echo maitred-php runs PHP 8.8.1", asked.display());
    replace(&programs.path().join("maitred-php8.9"), &says);
    let folder = public_folder();
    write_file(folder.path(), "public/index.html", b"page");
    let (root, gone) = (folder.path().join("public"), folder.path().join("gone"));
    let others = format!(
        "[[sites]]\nroot = {root:?}\npool = \"late\"\nhosts = \"late.example\"\n\
         [[sites]]\nroot = {gone:?}\npool = \"www\"\nhosts = \"gone.example\"\n\
         [pools.late]\nmax_children = 1\npm = \"static\"\nphp = \"8.9\"\n"
    );
    let setup = Setup::new(&root).program(&programs.path().join("maitred"));
    let server = setup.hosts(&["main.example"]).site(&others).start();
    let count = || fs::read_to_string(&asked).unwrap_or_default().lines().count();
    assert_eq!(count(), 1);
    fs::create_dir(&gone).unwrap();
    server.expect_log(0, "mended: ");
    assert_eq!(count(), 1, "all faults were looked at again");
    server.stop();
}

#[test]
fn a_strict_server_starts_only_if_nothing_is_wrong() {
    let folder = public_folder();
    write_file(folder.path(), "good/index.html", b"good");
    let (good, gone) = (folder.path().join("good"), folder.path().join("gone"));
    let address = ports::free_address();
    let text_of = |gone: &Path| {
        format!(
            "listen = \"{address}\"\nadmin_socket = \"admin.sock\"\n[pools.www]\n\
             pm = \"ondemand\"\nmax_children = 1\n[[sites]]\nhosts = \"good.example\"\n\
             root = {good:?}\n[[sites]]\nhosts = \"gone.example\"\nroot = {gone:?}\n"
        )
    };
    let file = folder.path().join("maitred.toml");
    let serve = |config: String, flags: &[&str]| {
        fs::write(&file, config).unwrap();
        let mut serve = Command::new(maitred_program());
        serve.args(["serve", "--config"]).arg(&file).args(flags).output().unwrap()
    };
    let refused = serve(text_of(&gone), &["--strict"]);
    assert_eq!(refused.status.code(), Some(2));
    let said = text(&refused.stderr);
    assert!(said.contains("maitred.toml:11:8: `root` is ") && said.contains("gone"), "{said}");
    // Nothing is left to serve.
    let one_site = text_of(&gone).replace(good.to_str().unwrap(), gone.to_str().unwrap());
    let refused = serve(one_site, &[]);
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
}

#[test]
fn check_names_logs_and_sockets_that_its_user_may_not_make() {
    if !is_root() {
        return;
    }
    let folder = public_folder();
    write_file(folder.path(), "public/index.html", b"page");
    write_file(folder.path(), "closed/old.log", b"");
    let (file, closed) = (folder.path().join("maitred.toml"), folder.path().join("closed"));
    let lines = format!(
        "listen = \"{}\"\nerror_log = \"closed/old.log\"\nadmin_socket = \"closed/admin.sock\"\n\
         [[sites]]\nroot = \"public\"\npool = \"www\"\n\
         [pools.www]\nmax_children = 1\npm = \"static\"\nslowlog = \"closed/slow.log\"\n\
         request_slowlog_timeout = \"5s\"\n",
        ports::free_address()
    );
    fs::write(&file, lines).unwrap();
    let (uid, gid) = user_ids(WEB_USER);
    let check = || {
        let mut check = Command::new(maitred_program());
        check.arg("check").arg(&file).uid(uid).gid(gid).output().expect("check runs")
    };
    let refused = check();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    let of_user = format!("is not writable for user {WEB_USER}; make it so");
    for (place, what) in [("2:13", "it"), ("3:16", "its folder"), ("10:11", "its folder")] {
        let is_named = |line: &str| {
            line.contains(&format!("maitred.toml:{place}: "))
                && line.contains(&format!(": {what} {of_user}"))
        };
        assert!(said.lines().any(is_named), "{place} {what}: {said}");
    }
    assert_eq!(fs::read_dir(&closed).unwrap().count(), 1, "a check makes no files");
    give_to_web_user(&closed);
    give_to_web_user(&closed.join("old.log"));
    let checked = check();
    assert!(checked.status.success(), "{}", text(&checked.stderr));
}

#[test]
fn a_certificate_that_cannot_be_read_closes_tls_for_its_hosts_alone() {
    let authority = Authority::default();
    let (good, lost) =
        (authority.issue("good", &["good.example"]), authority.issue("lost", &["lost.example"]));
    let hidden = lost.cert.with_extension("hidden");
    fs::rename(&lost.cert, &hidden).unwrap();
    let (root, address) = (site(), ports::free_address());
    let line = format!("certificates = [{}, {}]", good.toml(), lost.toml());
    let others =
        format!("[[sites]]\nroot = {:?}\npool = \"www\"\nhosts = \"lost.example\"", root.path());
    let server = Setup::new(root.path())
        .hosts(&["good.example"])
        .site(&others)
        .tls(address, &[line])
        .start();
    let name = |host: &str| shown(&authority, address, &["-servername", host]);
    assert_eq!(name("good.example"), "good");
    let is_closed = || {
        let said = s_client(&authority, address, &["-servername", "lost.example"]);
        said.contains("no peer certificate available")
    };
    assert!(is_closed());
    assert!(server.log_text().contains("TLS connections for its hosts are closed until then"));
    let status = succeeded(&command(&server, &["status"]));
    assert!(status.contains("FAULTS"), "{status}");
    fs::rename(&hidden, &lost.cert).unwrap();
    wait::until_true("the certificate to be used", || !is_closed());
    assert_eq!(name("lost.example"), "lost");
    // One that is lost later is used further.
    fs::rename(&lost.cert, &hidden).unwrap();
    assert!(server.reload().contains("the certificate that was read before is used"));
    assert_eq!(name("lost.example"), "lost");
    fs::rename(&hidden, &lost.cert).unwrap();
    server.stop();
}
