//! A zygote lists OPcache's scripts, and is filled with those of another.
#![allow(clippy::unwrap_used, reason = "helpers of tests may panic as tests do")]

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use maitred_control::{
    FromZygote, Received, ToZygote, ZygoteSettings, hear_report, order, scripts,
};
use maitred_os::channel::{Channel, SupervisorEnd};
use maitred_os::{shared, signals, spawn};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tempfile::TempDir;

/// Longer than any answer should take.
const LONG: Duration = Duration::from_secs(60);

/// A zygote that this test is the supervisor of, and the folder its scripts are in.
struct ZygoteProcess {
    folder: TempDir,
    control: RefCell<SupervisorEnd>,
    ended: OwnedFd,
}

impl ZygoteProcess {
    fn start(ini: &str) -> Self {
        let folder = TempDir::new().unwrap();
        let ini = format!("zend_extension=opcache\nopcache.file_update_protection=0\n{ini}");
        fs::write(folder.path().join("php.ini"), ini).unwrap();
        fs::create_dir(folder.path().join("no-ini-files")).unwrap();
        let (control, theirs) = Channel::pair().unwrap();
        let pid = spawn::start(&spawn::Program {
            path: Path::new(env!("CARGO_BIN_EXE_maitred-php")),
            name: OsStr::new("maitred-php"),
            arguments: &[OsStr::new("zygote")],
            environment: &[],
            inherit: &theirs.descriptors(),
            output: None,
            group: None,
        })
        .unwrap();
        let ended = signals::pidfd(pid).unwrap();
        drop(theirs);
        let zygote = Self { folder, control: RefCell::new(control), ended };
        let memory = maitred_seat::create("www", 1, 1).unwrap();
        let configure = ToZygote::Configure(Box::new(zygote.settings()));
        let event = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        order(&zygote.control.borrow(), &configure, &[memory.as_fd(), event.as_fd()]).unwrap();
        let reply = zygote.reply();
        assert!(matches!(reply, FromZygote::Started { .. }), "{reply:?}");
        zygote
    }

    fn settings(&self) -> ZygoteSettings {
        ZygoteSettings {
            pool: "www".to_owned(),
            process_manager: "static".to_owned(),
            supervisor: i32::try_from(std::process::id()).unwrap(),
            identity: None,
            php_ini: Some(self.path("php.ini")),
            php_ini_scan_dir: Some(self.path("no-ini-files")),
            php_values: Vec::new(),
            php_admin_values: Vec::new(),
            env: Vec::new(),
            confinement: maitred_control::Confinement::default(),
            max_requests: 0,
            max_private_memory: 0,
            request_terminate_timeout: None,
            seats: 1,
            fpm: false,
            output: None,
            measures_cpu: false,
            accounts: false,
            no_php_ini: false,
            defines: Vec::new(),
            extensions: Vec::new(),
            limit_extensions: Vec::new(),
            dumpable: false,
            preload: false,
            direct_calls: false,
            counts: false,
            apparmor_hat: None,
            sapi_name: None,
            worker_script: None,
            snapshot: None,
            shows_errors: false,
            private_folder: None,
            cache_size: None,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        fs::write(self.path(name), content).unwrap();
        self.path(name)
    }

    fn reply(&self) -> FromZygote {
        let mut control = self.control.borrow_mut();
        let mut watched = [PollFd::from_borrowed_fd(control.reports(), PollFlags::IN)];
        let long = Timespec::try_from(LONG).unwrap();
        assert_eq!(poll(&mut watched, Some(&long)), Ok(1), "nothing was heard");
        match hear_report(&mut control).unwrap() {
            Received::Message(response, _) => response,
            other => panic!("expected an answer, got {other:?}"),
        }
    }

    fn warm(&self, paths: &[&Path]) -> FromZygote {
        let (list, _) = scripts::write(paths.iter().copied());
        self.warm_with(&list)
    }

    fn warm_with(&self, list: &[u8]) -> FromZygote {
        let list = shared::file_with("list", list).unwrap();
        order(&self.control.borrow(), &ToZygote::Warm, &[list.as_fd()]).unwrap();
        self.reply()
    }

    /// The answer, and the paths that the file has then.
    fn list_into(&self, list: &File) -> (FromZygote, Vec<PathBuf>) {
        order(&self.control.borrow(), &ToZygote::ListScripts, &[list.as_fd()]).unwrap();
        let response = self.reply();
        let mut bytes = vec![0; usize::try_from(list.metadata().unwrap().len()).unwrap()];
        list.read_exact_at(&mut bytes, 0).unwrap();
        (response, scripts::read(&bytes))
    }

    fn list(&self) -> (FromZygote, Vec<PathBuf>) {
        self.list_into(&File::from(shared::file_with("list", b"old").unwrap()))
    }

    /// Lets go of it, and waits until it has ended.
    fn leave(self) {
        drop(self.control);
        let mut watched = [PollFd::new(&self.ended, PollFlags::IN)];
        let long = Timespec::try_from(LONG).unwrap();
        assert_eq!(poll(&mut watched, Some(&long)), Ok(1), "the zygote goes on alone");
        let _ = signals::send_to(self.ended.as_fd(), signals::Signal::SIGKILL);
    }
}

/// A script in a FIFO without a writer, for which PHP waits.
fn hanging_script(zygote: &ZygoteProcess) -> PathBuf {
    let pipe = zygote.path("pipe.phar");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status();
    assert!(made.unwrap().success());
    PathBuf::from(format!("phar://{}/a.php", pipe.display()))
}

#[test]
fn what_one_zygote_holds_the_next_one_gets() {
    let old = ZygoteProcess::start("");
    let (a, b) = (old.file("a.php", "<?php class A {}"), old.file("b.php", "b"));
    assert_eq!(old.list(), (FromZygote::ScriptsListed { count: 0 }, vec![]));
    assert_eq!(old.warm(&[&a, &b]), FromZygote::Warmed { compiled: 2 });
    let list = File::from(shared::file_with("list", b"").unwrap());
    let (response, paths) = old.list_into(&list);
    assert_eq!(response, FromZygote::ScriptsListed { count: 2 });
    assert_eq!(paths, [a.clone(), b.clone()]);

    let new = ZygoteProcess::start("");
    // The descriptor is that which the old one has written to.
    order(&new.control.borrow(), &ToZygote::Warm, &[list.as_fd()]).unwrap();
    assert_eq!(new.reply(), FromZygote::Warmed { compiled: 2 });
    let (response, paths) = new.list();
    assert_eq!(response, FromZygote::ScriptsListed { count: 2 });
    assert_eq!(paths, [a, b]);
    // It holds them now.
    let again = new.warm(&[&paths[0], &paths[1]]);
    assert_eq!(again, FromZygote::Warmed { compiled: 0 });
    old.leave();
    new.leave();
}

#[test]
fn orders_that_cannot_be_carried_out_are_answered() {
    let zygote = ZygoteProcess::start("");
    for (said, response) in [
        (ToZygote::Warm, FromZygote::Warmed { compiled: 0 }),
        (ToZygote::ListScripts, FromZygote::ScriptsListed { count: 0 }),
    ] {
        order(&zygote.control.borrow(), &said, &[]).unwrap();
        assert_eq!(zygote.reply(), response);
        let (_read, write) = rustix::pipe::pipe().unwrap();
        order(&zygote.control.borrow(), &said, &[write.as_fd()]).unwrap();
        assert_eq!(zygote.reply(), response);
    }
    let missing = zygote.path("missing.php");
    assert_eq!(zygote.warm(&[&missing]), FromZygote::Warmed { compiled: 0 });
    assert_eq!(zygote.warm_with(&[0xff; 4096]), FromZygote::Warmed { compiled: 0 });
    zygote.leave();
}

#[test]
fn a_list_is_cut_at_its_bound() {
    let zygote = ZygoteProcess::start("");
    let a = zygote.file("a.php", "a");
    let (mut list, _) = scripts::write([a.as_path()]);
    list.resize(scripts::LIST_BYTES_MAX, b'/');
    list.extend_from_slice(b"\0/beyond.php\0");
    assert_eq!(zygote.warm_with(&list), FromZygote::Warmed { compiled: 1 });
    zygote.leave();
}

#[test]
fn a_script_that_ends_the_child_ends_the_warming_and_nothing_else() {
    let zygote = ZygoteProcess::start("memory_limit=8M");
    let a = zygote.file("a.php", "a");
    let large =
        zygote.file("large.php", &format!("<?php return [{}];", "[1, [2]],".repeat(60_000)));
    let b = zygote.file("b.php", "b");
    let response = zygote.warm(&[&a, &large, &b]);
    assert_eq!(response, FromZygote::Warmed { compiled: 1 });
    let response = zygote.warm(&[&a, &b]);
    assert_eq!(response, FromZygote::Warmed { compiled: 1 });
    zygote.leave();
}

#[test]
fn a_script_that_hangs_is_given_up_and_what_was_compiled_stays() {
    let zygote = ZygoteProcess::start("extension=phar");
    let (a, b) = (zygote.file("a.php", "a"), zygote.file("b.php", "b"));
    let hanging = hanging_script(&zygote);
    let response = zygote.warm(&[&a, &hanging, &b]);
    assert_eq!(response, FromZygote::Warmed { compiled: 1 });
    let (response, paths) = zygote.list();
    assert_eq!(response, FromZygote::ScriptsListed { count: 1 });
    assert_eq!(paths, [a]);
    zygote.leave();
}

#[test]
fn an_unneeded_zygote_does_not_wait_for_a_hanging_script() {
    let zygote = ZygoteProcess::start("extension=phar");
    let hanging = hanging_script(&zygote);
    let (list, _) = scripts::write([hanging.as_path()]);
    let list = shared::file_with("list", &list).unwrap();
    order(&zygote.control.borrow(), &ToZygote::Warm, &[list.as_fd()]).unwrap();
    let begun = std::time::Instant::now();
    zygote.leave();
    // The zygote's own patience is ten seconds.
    assert!(begun.elapsed() < Duration::from_secs(9));
}
