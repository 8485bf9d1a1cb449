//! What `maitred tune` is at work on, and a tuning that goes on.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::chown;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};

use crate::guard::Guarded;
use crate::peer::PeerSetup;
use crate::processes::{Process, Signal};
use crate::wait;
use crate::web::Web;

/// nginx and php-fpm with two dynamic workers, whose pool reads further files from a folder.
pub fn peer(root: &Path, pools: &Path) -> PeerSetup {
    PeerSetup::new(root)
        .workers(2)
        .pool("pm = dynamic\npm.min_spare_servers = 1\npm.max_spare_servers = 2")
        .pool(&format!("include = {}/*.conf", pools.display()))
}

/// php-fpm alone, with two workers, whose pool reads further files from a folder.
#[derive(Debug)]
pub struct Fpm {
    _process: Guarded,
    /// Its configuration.
    pub config: PathBuf,
    /// Where it listens.
    pub socket: PathBuf,
    /// The folder with further files.
    pub pools: PathBuf,
}

impl Fpm {
    /// Starts `program` with all of its files in `folder`, and with `lines` in the configuration of
    /// its pool; as a user and group, who own the files then, or as the user of the test.
    pub fn start(program: &Path, folder: &Path, lines: &str, owner: Option<(u32, u32)>) -> Fpm {
        let file = |name: &str| folder.join(name);
        let (config, socket, pools) = (file("fpm.conf"), file("fpm.sock"), file("pools"));
        fs::create_dir(&pools).expect("a folder");
        let conf = format!(
            "[global]\nerror_log = {}\ndaemonize = no\n[www]\nlisten = {}\nlisten.mode = 0666\n\
             pm.max_children = 2\n{lines}\ninclude = {}/*.conf\n",
            file("fpm.log").display(),
            socket.display(),
            pools.display()
        );
        fs::write(&config, conf).expect("it can be written");
        let mut command = Command::new(program);
        command.args(["--nodaemonize", "--fpm-config"]).arg(&config);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        if let Some((user, group)) = owner {
            for path in [&pools, &config] {
                chown(path, Some(user), Some(group)).expect("it is ours");
            }
            command.uid(user).gid(group);
        }
        let process = Guarded::spawn(&mut command, Signal::TERM);
        wait::until_true("php-fpm to listen", || UnixStream::connect(&socket).is_ok());
        Fpm { _process: process, config, socket, pools }
    }

    /// nginx that passes every request to it.
    pub fn behind_nginx(&self, root: &Path) -> Web {
        let server = format!(
            "root {}; location / {{ include /etc/nginx/fastcgi.conf; fastcgi_pass unix:{}; }}",
            root.display(),
            self.socket.display()
        );
        Web::nginx("", &server)
    }

    /// Nothing of a trial is left.
    #[track_caller]
    pub fn expect_no_trial(&self) {
        let left = fs::read_dir(&self.pools).expect("it can be listed");
        assert_eq!(left.count(), 0);
    }
}

/// A tuning that goes on.
#[derive(Debug)]
pub struct Going {
    child: Child,
    said: BufReader<ChildStderr>,
}

impl Going {
    /// Starts it.
    pub fn start(mut command: Command) -> Going {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program can be started");
        let said = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        Going { child, said }
    }

    /// Waits until it says something; what it has said since it was waited for before.
    pub fn until(&mut self, part: &str) -> String {
        let mut all = String::new();
        while !all.contains(part) {
            let read = self.said.read_line(&mut all).expect("it says something");
            assert!(read > 0, "'{part}' is expected of\n{all}");
        }
        all
    }

    /// Signals it.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a pid");
        Process::read(pid).expect("it runs").signal(signal);
    }

    /// What it says further, and its exit code.
    pub fn end(mut self) -> (String, Option<i32>) {
        let mut said = String::new();
        self.said.read_to_string(&mut said).expect("it ends");
        let status = self.child.wait().expect("it ends");
        (said, status.code())
    }
}
