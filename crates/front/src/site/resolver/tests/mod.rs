mod hostile;

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::*;
use crate::runtime::lookup_turns::AllTurns;
use std::os::unix::ffi::OsStrExt;

use rustix::fs::Mode;

/// A directory that holds a document root `public`, and what lies beside it.
struct TestSite {
    home: TempDir,
    resolver: Resolver,
}

impl TestSite {
    fn new(files: &[(&str, &str)]) -> TestSite {
        TestSite::with(files, Some("/index.php"), TableLimits::default())
    }

    fn without_front_controller(files: &[(&str, &str)]) -> TestSite {
        TestSite::with(files, None, TableLimits::default())
    }

    fn with(
        files: &[(&str, &str)],
        front_controller: Option<&str>,
        limits: TableLimits,
    ) -> TestSite {
        let home = TempDir::new().unwrap();
        let root = home.path().join("public");
        fs::create_dir(&root).unwrap();
        for (name, contents) in files {
            write(&root.join(name), contents);
        }
        let site = SiteFiles {
            root,
            index: vec!["index.php".into(), "index.html".into()],
            front_controller: front_controller.map(String::from),
            front: rustix::process::geteuid().as_raw(),
            prefix: String::new(),
            chroot: None,
            other_chroots: Vec::new(),
        };
        TestSite { home, resolver: Resolver::new(site, &tenant(), limits) }
    }

    fn root(&self) -> PathBuf {
        self.home.path().join("public")
    }

    /// The route in a few words, so that a test reads as a table.
    fn get(&mut self, target: &str) -> String {
        let (path, query) = match target.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (target, None),
        };
        let root = self.root();
        match self.resolver.resolve(path, query) {
            Route::File(entry) => format!("file {}", contents(&entry)),
            Route::Script(script) => {
                let name = String::from_utf8_lossy(&script.script_name).into_owned();
                let file = [root.as_os_str().as_bytes(), &script.script_name].concat();
                assert_eq!(script.script_filename, file);
                format!("script {name} {}", String::from_utf8_lossy(&script.path_info))
            }
            Route::RedirectSlash(location) => format!("redirect {location}"),
            Route::Refused(refused) => format!("refused {}", refused.status),
        }
    }

    /// Asks until the route is kept: what changed in the last ticks of the kernel's clock is not.
    fn get_until_kept(&mut self, target: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(20);
        let before = self.resolver.kept().0;
        loop {
            let response = self.get(target);
            if self.resolver.kept().0 > before {
                return response;
            }
            assert!(Instant::now() < deadline, "{target} was never kept");
            std::thread::yield_now();
        }
    }
}

fn tenant() -> Arc<Tenant> {
    AllTurns::default().of("")
}

fn write(path: &Path, contents: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, contents).unwrap();
}

fn contents(entry: &StaticFile) -> String {
    match entry.body() {
        FileBody::Memory(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
        FileBody::File(_) => format!("of {} bytes", entry.len()),
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The link's owner and the target's differ, and the link is not root's. Anybody can link to a file
/// of root's; root has to give both away.
fn link_to_another_owner(home: &Path, link: &Path) {
    if is_root() {
        let target = home.join("neighbour.txt");
        write(&target, "SECRET");
        chown(&target, Some(4321), None).unwrap();
        symlink(target, link).unwrap();
        std::os::unix::fs::lchown(link, Some(1234), None).unwrap();
    } else {
        symlink("/etc/hostname", link).unwrap();
    }
}

#[test]
fn a_path_names_a_file_a_script_or_the_front_controller() {
    let mut site = TestSite::new(&[("index.php", ""), ("a.txt", "A"), ("sub/x.php", "")]);
    for (target, route) in [
        ("/", "script /index.php "),
        ("/index.php", "script /index.php "),
        ("/a.txt", "file A"),
        ("/a.txt?v=3", "file A"),
        ("//a.txt", "file A"),
        ("/./sub/../a.txt", "file A"),
        ("/%61.txt", "file A"),
        ("/a.txt/", "script /index.php "),
        ("/a.txt/more", "script /index.php "),
        ("/sub/x.php", "script /sub/x.php "),
        ("/sub/x.php/", "script /sub/x.php /"),
        ("/sub/x.php/in/fo", "script /sub/x.php /in/fo"),
        ("/sub/x.php/in%2Ffo", "script /sub/x.php /in/fo"),
        ("/sub/x.php/.info", "script /sub/x.php /.info"),
        ("/index.php/a.txt", "script /index.php /a.txt"),
        ("/missing.jpg", "script /index.php "),
        ("/missing.php", "script /index.php "),
        ("/missing.php/info", "script /index.php "),
        ("/pretty/url", "script /index.php "),
        ("/pretty%2Furl", "script /index.php "),
        ("/sub%2Fx.php", "script /index.php "),
        ("/%252e%252e/a", "script /index.php "),
    ] {
        assert_eq!(site.get(target), route, "{target}");
        assert_eq!(site.get(target), route, "{target}, asked again");
    }
}

#[test]
fn without_a_front_controller_a_path_that_is_no_file_is_not_found() {
    let mut site = TestSite::without_front_controller(&[("a.txt", "A"), ("empty/x.txt", "")]);
    for target in ["/", "/b.txt", "/b.php", "/a.txt/", "/empty", "/empty/", "/a%2Ftxt"] {
        assert_eq!(site.get(target), "refused 404", "{target}");
    }
}

#[test]
fn a_directory_is_redirected_to_its_slash_and_keeps_its_query() {
    let mut site =
        TestSite::new(&[("index.php", ""), ("blog/index.html", "BLOG"), ("ä b/index.php", "")]);
    assert_eq!(site.get("/blog"), "redirect /blog/");
    assert_eq!(site.get("/blog?page=2&x"), "redirect /blog/?page=2&x");
    assert_eq!(site.get("/blog?"), "redirect /blog/?");
    assert_eq!(site.get("/blog/"), "file BLOG");
    assert_eq!(site.get("/%C3%A4%20b"), "redirect /%C3%A4%20b/");
    assert_eq!(site.get("/%C3%A4%20b/"), "script /ä b/index.php ");
}

#[test]
fn a_redirect_never_leads_to_another_host() {
    let mut site = TestSite::new(&[("evil.com/index.html", ""), ("\\evil.com/index.html", "")]);
    assert_eq!(site.get("//evil.com"), "redirect /evil.com/");
    assert_eq!(site.get("/\\evil.com"), "redirect /%5Cevil.com/");
    let Route::RedirectSlash(location) = site.resolver.resolve("/evil.com", Some("a\r\nb")) else {
        panic!("no redirect");
    };
    assert_eq!(location, "/evil.com/?a%0D%0Ab");
}

#[test]
fn a_directory_without_an_index_belongs_to_the_application() {
    let mut site = TestSite::new(&[("index.php", ""), ("admin/logo.png", "")]);
    assert_eq!(site.get("/admin"), "script /index.php ");
    assert_eq!(site.get("/admin/"), "script /index.php ");
    write(&site.root().join("admin/index.html"), "ADMIN");
    assert_eq!(site.get("/admin"), "redirect /admin/");
    assert_eq!(site.get("/admin/"), "file ADMIN");
    write(&site.root().join("admin/index.php"), "");
    assert_eq!(site.get("/admin/"), "script /admin/index.php ");
}

#[test]
fn a_front_controller_may_be_a_page() {
    let mut site =
        TestSite::with(&[("app.html", "APP")], Some("/app.html"), TableLimits::default());
    assert_eq!(site.get("/any/thing"), "file APP");
    write(&site.root().join("any/thing"), "THING");
    assert_eq!(site.get("/any/thing"), "file THING");
}

#[test]
fn links_to_the_same_owner_are_followed_out_of_the_root() {
    let mut site = TestSite::new(&[("index.php", ""), ("real/a.txt", "A")]);
    let (home, root) = (site.home.path().to_owned(), site.root());
    write(&home.join("storage/app/public/photo.jpg"), "PHOTO");
    write(&home.join("storage/app/public/deep/index.php"), "");
    write(&home.join("shared.php"), "");
    symlink("../storage/app/public", root.join("storage")).unwrap();
    symlink(home.join("shared.php"), root.join("shared.php")).unwrap();
    symlink("real", root.join("alias")).unwrap();
    symlink(home.join("storage/app/public/photo.jpg"), root.join("absolute.jpg")).unwrap();
    symlink(root.join("alias/a.txt"), home.join("storage/app/public/back.txt")).unwrap();
    for (target, route) in [
        ("/storage/photo.jpg", "file PHOTO"),
        ("/storage/deep", "redirect /storage/deep/"),
        ("/storage/deep/", "script /storage/deep/index.php "),
        ("/storage/deep/index.php/info", "script /storage/deep/index.php /info"),
        ("/shared.php", "script /shared.php "),
        ("/alias/a.txt", "file A"),
        ("/absolute.jpg", "file PHOTO"),
        ("/storage/back.txt", "file A"),
        ("/storage/none.jpg", "script /index.php "),
        ("/storage/../../secret", "refused 400"),
    ] {
        assert_eq!(site.get(target), route, "{target}");
    }
}

#[test]
fn a_file_that_may_not_be_read_is_forbidden_and_a_script_is_the_workers_business() {
    if is_root() {
        return;
    }
    let mut site = TestSite::new(&[("a.txt", "A"), ("x.php", "")]);
    for name in ["a.txt", "x.php"] {
        fs::set_permissions(site.root().join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    assert_eq!(site.get("/a.txt"), "refused 403");
    assert_eq!(site.get("/x.php"), "script /x.php ");
}

#[test]
fn a_kept_file_is_not_opened_again_and_a_changed_one_is() {
    let mut site = TestSite::new(&[("a.txt", "one")]);
    let path = site.root().join("a.txt");
    assert_eq!(site.get_until_kept("/a.txt"), "file one");
    let Route::File(first) = site.resolver.resolve("/a.txt", None) else { panic!("no file") };
    let Route::File(second) = site.resolver.resolve("/a.txt", None) else { panic!("no file") };
    assert!(Arc::ptr_eq(&first, &second));
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(&path).unwrap();
    rustix::io::pwrite(&file, b"two", 0).unwrap();
    file.set_modified(modified).unwrap();
    assert_eq!(site.get("/a.txt"), "file two", "same size, same time of modification");
    fs::remove_file(&path).unwrap();
    assert_eq!(site.get("/a.txt"), "refused 404");
    write(&path, "three");
    assert_eq!(site.get("/a.txt"), "file three");
}

#[test]
fn scripts_that_come_and_go_are_seen() {
    let mut site = TestSite::new(&[("index.php", ""), ("d/keep", "")]);
    let root = site.root();
    assert_eq!(site.get("/d/x.php/info"), "script /index.php ");
    assert_eq!(site.get("/d/x.php"), "script /index.php ");
    write(&root.join("d/x.php"), "");
    assert_eq!(site.get("/d/x.php/info"), "script /d/x.php /info");
    assert_eq!(site.get("/d/x.php"), "script /d/x.php ");
    fs::remove_file(root.join("d/x.php")).unwrap();
    assert_eq!(site.get("/d/x.php/info"), "script /index.php ");
    assert_eq!(site.get("/d/x.php"), "script /index.php ");
    fs::remove_file(root.join("index.php")).unwrap();
    assert_eq!(site.get("/d/y"), "refused 404");
    write(&root.join("index.php"), "");
    assert_eq!(site.get("/d/y"), "script /index.php ");
}

#[test]
fn what_was_seen_in_a_moment_holds_for_that_moment_and_no_longer() {
    let mut site = TestSite::new(&[("index.php", "")]);
    let root = site.root();
    site.resolver.set_moment(1);
    assert_eq!(site.get("/x.php"), "script /index.php ");
    assert_eq!(site.get("/x.php"), "script /index.php ");
    write(&root.join("x.php"), "");
    assert_eq!(site.get("/x.php"), "script /index.php ");
    site.resolver.set_moment(2);
    assert_eq!(site.get("/x.php"), "script /x.php ");
}

#[test]
fn a_root_that_is_moved_by_a_deployment_is_followed() {
    let home = TempDir::new().unwrap();
    write(&home.path().join("1/a.txt"), "one");
    write(&home.path().join("2/a.txt"), "two");
    write(&home.path().join("2/b.txt"), "new");
    let current = home.path().join("current");
    symlink("1", &current).unwrap();
    let site = SiteFiles {
        root: current.clone(),
        index: vec![],
        front_controller: None,
        chroot: None,
        other_chroots: Vec::new(),
        front: rustix::process::geteuid().as_raw(),
        prefix: String::new(),
    };
    let mut site =
        TestSite { home, resolver: Resolver::new(site, &tenant(), TableLimits::default()) };
    assert_eq!(site.get("/a.txt"), "file one");
    assert_eq!(site.get("/b.txt"), "refused 404");
    symlink("2", site.home.path().join("next")).unwrap();
    fs::rename(site.home.path().join("next"), &current).unwrap();
    assert_eq!(site.get("/a.txt"), "file two");
    assert_eq!(site.get("/b.txt"), "file new");
    fs::remove_file(&current).unwrap();
    assert_eq!(site.get("/a.txt"), "refused 503");
}

#[test]
fn a_document_root_that_appears_later_is_served_from_then_on() {
    let home = TempDir::new().unwrap();
    let root = home.path().join("public");
    let site = SiteFiles {
        root: root.clone(),
        index: vec![],
        front_controller: None,
        chroot: None,
        other_chroots: Vec::new(),
        front: rustix::process::geteuid().as_raw(),
        prefix: String::new(),
    };
    let mut site =
        TestSite { home, resolver: Resolver::new(site, &tenant(), TableLimits::default()) };
    assert_eq!(site.get("/a.txt"), "refused 503");
    write(&root.join("a.txt"), "one");
    assert_eq!(site.get("/a.txt"), "file one");
}

#[test]
fn names_that_are_not_utf8_are_served() {
    let mut site = TestSite::new(&[]);
    let name = std::ffi::OsStr::from_bytes(b"caf\xe9.txt");
    fs::write(site.root().join(name), "LATIN").unwrap();
    assert_eq!(site.get("/caf%E9.txt"), "file LATIN");
    let script = std::ffi::OsStr::from_bytes(b"caf\xe9.php");
    fs::write(site.root().join(script), "").unwrap();
    let Route::Script(script) = site.resolver.resolve("/caf%E9.php/%FF", None) else {
        panic!("no script");
    };
    assert_eq!(
        (&script.script_name[..], &script.path_info[..]),
        (&b"/caf\xe9.php"[..], &b"/\xff"[..])
    );
}

#[test]
fn what_is_kept_stays_within_its_limits() {
    let limits = TableLimits { routes: 8, memory: 1000, open_files: 2, ..Default::default() };
    let mut site = TestSite::with(&[("index.php", "")], Some("/index.php"), limits);
    for number in 0..6 {
        write(&site.root().join(format!("{number}.txt")), &"x".repeat(300));
        write(&site.root().join(format!("{number}.bin")), &"x".repeat(70_000));
    }
    let mut most = (0, 0, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    while most != (8, 900, 2) {
        for number in 0..6 {
            site.get(&format!("/{number}.txt"));
            site.get(&format!("/{number}.bin"));
            site.get(&format!("/made/up/{number}"));
            let (routes, memory, open_files) = site.resolver.kept();
            most = (most.0.max(routes), most.1.max(memory), most.2.max(open_files));
        }
        assert!(most.0 <= 8 && most.1 <= 1000 && most.2 <= 2, "{most:?}");
        assert!(Instant::now() < deadline, "the limits were never reached: {most:?}");
    }
}

#[test]
fn a_deleted_large_file_is_closed_when_it_was_not_requested_for_a_while() {
    let large = "x".repeat(70_000);
    let names = ["a.css", "a.css.gz", "hot.bin"];
    let mut site = TestSite::new(&names.map(|name| (name, &*large)));
    site.get_until_kept("/hot.bin");
    site.get_until_kept("/a.css");
    let deadline = Instant::now() + Duration::from_secs(20);
    while open_below(&site.root()) != names {
        assert!(Instant::now() < deadline, "{:?} are open", open_below(&site.root()));
        if let Route::File(entry) = site.resolver.resolve("/a.css", None) {
            site.resolver.sibling(&entry, ContentEncoding::Gzip);
        }
    }
    fs::remove_file(site.root().join("a.css")).unwrap();
    fs::remove_file(site.root().join("a.css.gz")).unwrap();
    site.resolver.close_idle();
    assert_eq!(open_below(&site.root()).len(), 3, "all were requested");
    site.get("/hot.bin");
    site.resolver.close_idle();
    assert_eq!(open_below(&site.root()), ["hot.bin"]);
    site.resolver.close_idle();
    assert_eq!(open_below(&site.root()), [""; 0]);
    assert_eq!(site.get("/hot.bin"), "file of 70000 bytes");
}

/// The names below a folder of which this process has an open descriptor, sorted.
fn open_below(folder: &Path) -> Vec<String> {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    let files = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    let names = files.filter_map(|file| Some(file.strip_prefix(folder).ok()?.to_owned()));
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| !name.is_empty()).collect();
    names.sort();
    names
}

#[test]
fn a_flood_of_made_up_paths_does_not_push_out_what_is_asked_for() {
    let limits = TableLimits { routes: 8, ..TableLimits::default() };
    let files = [("index.php", ""), ("hot.txt", "HOT")];
    let mut site = TestSite::with(&files, Some("/index.php"), limits);
    site.get_until_kept("/hot.txt");
    let Route::File(hot) = site.resolver.resolve("/hot.txt", None) else { panic!("no file") };
    for round in 0..100 {
        site.get(&format!("/made/up/{round}"));
        let Route::File(now) = site.resolver.resolve("/hot.txt", None) else { panic!("no file") };
        assert!(Arc::ptr_eq(&hot, &now), "it was resolved again in round {round}");
        assert!(site.resolver.kept().0 <= 8);
    }
}

#[test]
fn the_walk_without_openat2_finds_the_same_files() {
    let site = TestSite::new(&[("a/b/c.txt", "C")]);
    let (home, root) = (site.home.path(), site.root());
    write(&home.join("out/d.txt"), "D");
    symlink("../../out", root.join("a/out")).unwrap();
    link_to_another_owner(home, &root.join("a/other"));
    let root = Root::open(&root, b"", 0).unwrap();
    let read = |path: &[u8]| {
        crate::site::openat::walk(&root, path, crate::site::openat::READ).map(|opened| {
            assert_eq!(opened.kind(), FileType::RegularFile);
            opened.through_link
        })
    };
    assert_eq!(read(b"a/b/c.txt"), Ok(false));
    assert_eq!(read(b"a/out/d.txt"), Ok(true));
    assert_eq!(read(b"a/other"), Err(Errno::XDEV));
    assert_eq!(read(b"a/none"), Err(Errno::NOENT));
    assert_eq!(read(b"a/b/c.txt/d"), Err(Errno::NOTDIR));
    let top = crate::site::openat::walk(&root, b".", crate::site::openat::LOOK).unwrap();
    assert_eq!(top.kind(), FileType::Directory);
}

#[test]
fn a_resolver_may_move_between_threads() {
    fn is_send<T: Send>() {}
    is_send::<Resolver>();
    is_send::<Route>();
}

#[test]
fn scripts_are_told_names_beneath_their_chroot_and_none_that_is_not_there() {
    let home = TempDir::new().unwrap();
    let real = home.path().canonicalize().unwrap();
    write(&real.join("jail/public/a.php"), "");
    write(&real.join("jail/a.php"), "");
    write(&real.join("jailer/a.php"), "");
    let told = |root: &str| {
        let site = SiteFiles {
            root: real.join(root),
            index: vec![],
            front_controller: None,
            chroot: Some(real.join("jail")),
            other_chroots: Vec::new(),
            front: rustix::process::geteuid().as_raw(),
            prefix: String::new(),
        };
        match Resolver::new(site, &tenant(), TableLimits::default()).resolve("/a.php", None) {
            Route::Script(script) => {
                let told = [&script.script_filename, &b" "[..], &script.document_root].concat();
                String::from_utf8(told).unwrap()
            }
            Route::Refused(refused) => refused.status.to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told("jail/public"), "/public/a.php /public");
    assert_eq!(told("jail"), "/a.php /");
    assert_eq!(told("jailer"), "503");
}
