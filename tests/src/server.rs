//! maitred under test: started on a free port, and on stopping searched for anything it left.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::Duration;

use tempfile::TempDir;

use crate::guard::Guarded;
use crate::log::Log;
use crate::processes::{self, Process, Signal};
use crate::wait::{self, DEADLINE};
use crate::{Target, maitred_program, ports};

/// How long the processes of a stopped server may take to disappear after their supervisor.
const REMAINS_DEADLINE: Duration = Duration::from_secs(30);

/// Name of the admin socket in a server's folder.
const ADMIN_SOCKET: &str = "admin.sock";
/// Its state directory, as systemd would name it.
const STATE: &str = "state";

/// How titles of its processes begin.
const FRONT: &str = "maitred: front";
const ZYGOTE: &str = "maitred-php: zygote pool www";
const WORKER: &str = "maitred-php: worker pool www";

/// Whether it is the zygote of pool `www`, and no copy of it that has no title of its own yet: that
/// leads no session.
fn is_zygote(process: &Process) -> bool {
    process.title.starts_with(ZYGOTE) && process.session == process.pid
}

/// The user that serves when tests run as root.
pub const WEB_USER: &str = "www-data";

/// Whether this process is root.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A temporary folder that the web user may enter.
pub fn public_folder() -> TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    set_mode(folder.path(), 0o755);
    folder
}

/// A temporary document root with the given files in it; folders are made as needed.
pub fn document_root(files: &[(&str, &str)]) -> TempDir {
    let root = public_folder();
    for (name, text) in files {
        write_file(root.path(), name, text.as_bytes());
    }
    root
}

/// Writes a file beneath a root, readable for all; folders are made as needed.
pub fn write_file(root: &Path, name: &str, bytes: &[u8]) {
    let path = root.join(name);
    fs::create_dir_all(path.parent().expect("a file lies in a folder"))
        .expect("folders can be made");
    fs::write(&path, bytes).expect("a file can be written");
    set_mode(&path, 0o644);
}

/// Sets the permission bits of a file or folder.
pub fn set_mode(path: &Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode can be set");
}

/// Gives a file or folder to the web user when tests run as root.
pub fn give_to_web_user(path: &Path) {
    if is_root() {
        let (uid, gid) = user_ids(WEB_USER);
        std::os::unix::fs::chown(path, Some(uid), Some(gid)).expect("root can give a file away");
    }
}

/// The user and group id of a user in /etc/passwd.
pub fn user_ids(name: &str) -> (u32, u32) {
    let passwd = fs::read_to_string("/etc/passwd").expect("/etc/passwd can be read");
    let line = passwd.lines().find(|line| line.split(':').next() == Some(name));
    let line = line.unwrap_or_else(|| panic!("there is no user {name}"));
    let id = |at| line.split(':').nth(at).and_then(|id| id.parse().ok()).expect("ids are numbers");
    (id(2), id(3))
}

/// A server to be: one site, one pool `www`, with further settings as TOML lines.
#[derive(Debug, Clone)]
pub struct Setup {
    root: PathBuf,
    hosts: Vec<String>,
    served_by: String,
    pm: String,
    workers: u32,
    top: Vec<String>,
    pool: Vec<String>,
    site: Vec<String>,
    spool: Option<PathBuf>,
    under: Vec<String>,
    program: Option<PathBuf>,
    listen: Option<String>,
    address: Option<SocketAddr>,
    tls: Vec<String>,
}

impl Setup {
    /// A server of this document root with two workers.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_path_buf(),
            hosts: Vec::new(),
            served_by: "pool = \"www\"".into(),
            pm: "static".into(),
            workers: 2,
            top: Vec::new(),
            pool: Vec::new(),
            site: Vec::new(),
            spool: None,
            under: Vec::new(),
            program: None,
            listen: None,
            address: None,
            tls: Vec::new(),
        }
    }

    /// Speaks TLS at an address, with further lines for `[tls]`.
    pub fn tls(mut self, address: SocketAddr, lines: &[String]) -> Self {
        self.tls = vec![format!("listen = \"{address}\"")];
        self.tls.extend(lines.iter().cloned());
        self
    }

    /// Listens here instead of on a free port.
    pub fn at(mut self, address: SocketAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Runs this maitred instead of the one under test.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_path_buf());
        self
    }

    /// The line that says where it listens, instead of the one with the server's address.
    pub fn listen(mut self, line: &str) -> Self {
        self.listen = Some(line.into());
        self
    }

    /// Sets how the pool grows (`pm`); without, it is static.
    pub fn pm(mut self, pm: &str) -> Self {
        self.pm = pm.into();
        self
    }

    /// Sets the number of workers (`max_children`, which a static pool always has).
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// Names the site's hosts; without, it answers for every host.
    pub fn hosts(mut self, hosts: &[&str]) -> Self {
        self.hosts = hosts.iter().map(|&host| host.to_owned()).collect();
        self
    }

    /// Has a FastCGI server run the scripts instead of the pool.
    pub fn upstream(mut self, address: &str) -> Self {
        self.served_by = format!("upstream = {address:?}");
        self
    }

    /// Adds a line at the top of the file.
    pub fn top(mut self, line: &str) -> Self {
        self.top.push(line.into());
        self
    }

    /// Adds a line to `[pools.www]`.
    pub fn pool(mut self, line: &str) -> Self {
        self.pool.push(line.into());
        self
    }

    /// Adds a line to `[[sites]]`.
    pub fn site(mut self, line: &str) -> Self {
        self.site.push(line.into());
        self
    }

    /// Spools to this folder instead of one of the testbed's.
    pub fn spool(mut self, folder: &Path) -> Self {
        self.spool = Some(folder.to_path_buf());
        self
    }

    /// Starts the server with this program and its arguments, such as `setpriv`, which has to
    /// execute what follows them in its own stead.
    pub fn under(mut self, program: &[&str]) -> Self {
        self.under = program.iter().map(|&word| word.to_owned()).collect();
        self
    }

    fn toml(&self, address: SocketAddr, admin: &Path, spool: &Path) -> String {
        let listen = format!("listen = [\"{address}\"]");
        let listen = self.listen.as_ref().unwrap_or(&listen);
        let mut text = format!("{listen}\nspool_dir = {spool:?}\n");
        let _ = writeln!(text, "admin_socket = {admin:?}");
        for line in &self.top {
            let _ = writeln!(text, "{line}");
        }
        let _ =
            write!(text, "\n[pools.www]\npm = {:?}\nmax_children = {}\n", self.pm, self.workers);
        for line in &self.pool {
            let _ = writeln!(text, "{line}");
        }
        let _ = write!(text, "\n[[sites]]\nroot = {:?}\n{}\n", self.root, self.served_by);
        if !self.hosts.is_empty() {
            let _ = writeln!(text, "hosts = {:?}", self.hosts);
        }
        for line in &self.site {
            let _ = writeln!(text, "{line}");
        }
        if !self.tls.is_empty() {
            let _ = write!(text, "\n[tls]\n{}\n", self.tls.join("\n"));
        }
        text
    }

    /// Starts the server and waits until it says that it serves.
    ///
    /// # Panics
    /// When it ends, or says nothing within the deadline.
    pub fn start(self) -> Server {
        let folder = public_folder();
        let address = self.address.unwrap_or_else(ports::free_address);
        let spool = self.spool.clone().unwrap_or_else(|| folder.path().join("spool"));
        fs::create_dir_all(&spool).expect("a spool folder can be made");
        give_to_web_user(&spool);
        let file = folder.path().join("maitred.toml");
        let admin = folder.path().join(ADMIN_SOCKET);
        fs::write(&file, self.toml(address, &admin, &spool))
            .expect("a configuration can be written");
        let mut words = self.under.iter().map(Into::into).collect::<Vec<OsString>>();
        let program = self.program.clone().unwrap_or_else(maitred_program);
        words.push(program.into());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        command.arg("serve").arg("--config").arg(&file);
        Server::spawn(command, address, spool, folder)
    }
}

/// A running maitred. Dropping it stops it politely and insists that nothing of it is left.
#[derive(Debug)]
pub struct Server {
    supervisor: Guarded,
    address: SocketAddr,
    log: Log,
    spool: PathBuf,
    seen: Mutex<HashSet<Process>>,
    stopped: bool,
    folder: TempDir,
}

impl Server {
    /// Serves a document root with two workers.
    pub fn start(root: &Path) -> Self {
        Setup::new(root).start()
    }

    /// Runs `maitred serve ROOT --listen ADDRESS` with further flags, as a user without a
    /// configuration file would.
    pub fn serve(root: &Path, flags: &[&str]) -> Self {
        let folder = public_folder();
        let address = ports::free_address();
        let spool = folder.path().join("spool");
        fs::create_dir_all(&spool).expect("a spool folder can be made");
        let mut command = Command::new(maitred_program());
        command
            .arg("serve")
            .arg(root)
            .arg("--listen")
            .arg(address.to_string())
            .arg("--admin-socket")
            .arg(folder.path().join(ADMIN_SOCKET))
            .args(flags);
        Self::spawn(command, address, spool, folder)
    }

    fn spawn(mut command: Command, address: SocketAddr, spool: PathBuf, folder: TempDir) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.env("STATE_DIRECTORY", folder.path().join(STATE));
        let mut supervisor = Guarded::spawn(&mut command, Signal::TERM);
        let pipe = supervisor.child().stderr.take().expect("stderr is a pipe");
        let log = Log::collect(pipe);
        let ready = format!(" on http://{address}");
        let says_ready = |line: &str| line.contains("maitred: serving ") && line.contains(&ready);
        wait::until("maitred to say that it serves, or to end", || {
            if let Some(status) = supervisor.ended() {
                panic!("maitred ended before it served ({status}):\n{}", log.lines().join("\n"));
            }
            log.find_since(0, Duration::ZERO, says_ready)
        });
        // A worker has its zygote's title until it gives itself its own.
        let pid = supervisor.pid();
        wait::until_true("every worker to have its title", || {
            let family = processes::family(pid);
            let zygotes = family.iter().map(|process| process.title.trim_end());
            let mut zygotes: Vec<&str> = zygotes.filter(|title| title.contains("zygote")).collect();
            let all = zygotes.len();
            zygotes.sort_unstable();
            zygotes.dedup();
            zygotes.len() == all
        });
        let seen = Mutex::default();
        Self { supervisor, address, log, spool, seen, stopped: false, folder }
    }

    /// Writes another configuration, which holds from the next reload on. It listens where this
    /// server listens.
    pub fn configure(&self, setup: &Setup) {
        let text = setup.toml(self.address, &self.admin_socket(), &self.spool);
        self.configure_as(&text);
    }

    /// Writes this text in place of the configuration.
    pub fn configure_as(&self, text: &str) {
        fs::write(self.folder.path().join("maitred.toml"), text)
            .expect("a configuration can be written");
    }

    /// Sends SIGHUP and waits until the reload is over; the line that says how it went.
    pub fn reload(&self) -> String {
        let mark = self.log.mark();
        self.signal(Signal::HUP);
        let over = |line: &str| line.contains("reloaded: ") || line.contains("reload is refused");
        let line = self.log.find_since(mark, DEADLINE, over);
        line.unwrap_or_else(|| panic!("the reload is not over:\n{}", self.log_text()))
    }

    /// What it writes on stderr.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Its configuration file.
    pub fn configuration(&self) -> PathBuf {
        self.folder.path().join("maitred.toml")
    }

    /// Where its commands reach it.
    pub fn admin_socket(&self) -> PathBuf {
        self.folder.path().join(ADMIN_SOCKET)
    }

    /// Its state directory.
    pub fn state(&self) -> PathBuf {
        self.folder.path().join(STATE)
    }

    /// Where it spools bodies too large for memory.
    pub fn spool(&self) -> &Path {
        &self.spool
    }

    /// All its processes now. Each is remembered: none may outlive the server.
    pub fn processes(&self) -> Vec<Process> {
        let family = processes::family(self.supervisor.pid());
        self.seen.lock().expect("no thread panics").extend(family.iter().cloned());
        family
    }

    fn titled(&self, start: &str) -> Vec<Process> {
        self.processes().into_iter().filter(|p| p.title.starts_with(start)).collect()
    }

    /// The supervisor.
    pub fn supervisor(&self) -> Process {
        Process::read(self.supervisor.pid()).expect("the supervisor runs")
    }

    /// The front, if it runs now.
    pub fn front(&self) -> Option<Process> {
        self.titled(FRONT).pop()
    }

    /// The memory of the front without the pages of files, in bytes.
    ///
    /// # Panics
    /// When no front runs.
    pub fn front_memory(&self) -> u64 {
        self.front().expect("the front runs").memory("RssAnon")
    }

    /// The most memory that the front has had, without the pages of files, in bytes.
    ///
    /// # Panics
    /// When no front runs.
    pub fn front_peak(&self) -> u64 {
        let front = self.front().expect("the front runs");
        front.memory("VmHWM") - front.memory("RssFile")
    }

    /// The zygote of pool `www`, if it runs now.
    pub fn zygote(&self) -> Option<Process> {
        self.processes().into_iter().rfind(is_zygote)
    }

    /// The workers of pool `www` that run now.
    pub fn workers(&self) -> Vec<Process> {
        self.titled(WORKER)
    }

    /// Whether one of its processes has this file open. What was removed ends in ` (deleted)`.
    pub fn holds(&self, file: &Path) -> bool {
        self.processes().iter().any(|process| {
            let fds = fs::read_dir(format!("/proc/{}/fd", process.pid));
            let mut fds = fds.into_iter().flatten().flatten();
            fds.any(|fd| fs::read_link(fd.path()).is_ok_and(|target| target == file))
        })
    }

    /// Waits until exactly `count` workers, a zygote and a front run.
    ///
    /// # Panics
    /// When that is not so within the deadline; the message names the processes that run.
    pub fn wait_for_full_strength(&self, count: usize, within: Duration) {
        let full = wait::poll(within, || {
            let all = self.processes();
            let titled = |start: &str| all.iter().filter(|p| p.title.starts_with(start)).count();
            let full = titled(WORKER) == count && all.iter().any(is_zygote) && titled(FRONT) > 0;
            full.then_some(())
        });
        let running = || self.processes().into_iter().map(|process| (process.pid, process.title));
        full.unwrap_or_else(|| {
            let running = running().collect::<Vec<_>>();
            panic!(
                "waited {within:?} in vain for {count} workers, a zygote and a front: {running:?}"
            )
        });
    }

    /// Waits for a line on stderr after `mark` that contains `text`.
    ///
    /// # Panics
    /// When none comes within the deadline.
    pub fn expect_log(&self, mark: usize, text: &str) -> String {
        let found = self.log.find_since(mark, DEADLINE, |line| line.contains(text));
        found.unwrap_or_else(|| {
            let lines = self.log.since(mark).join("\n");
            panic!("no line with {text:?} came; what came:\n{lines}")
        })
    }

    /// Sends the supervisor a signal.
    pub fn signal(&self, signal: Signal) {
        self.supervisor().signal(signal);
    }

    /// Insists that nothing is left of a server whose supervisor was killed or told to stop at
    /// once.
    pub fn expect_killed(mut self) {
        self.stopped = true;
        self.wait_for_end();
        self.assert_nothing_left();
    }

    /// Waits for the supervisor to end by itself or by an earlier signal.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        self.supervisor.wait(DEADLINE).expect("the supervisor ends within the deadline")
    }

    /// Stops the server and insists that it ends with exit code 0 and leaves nothing.
    pub fn stop(mut self) {
        self.finish();
    }

    /// Stops the server as [`Server::stop`], and starts it again with its configuration and its
    /// state, which `between` gets.
    pub fn restart(mut self, between: impl FnOnce(&Path)) -> Server {
        self.finish();
        between(&self.state());
        let folder = std::mem::replace(&mut self.folder, public_folder());
        let mut command = Command::new(maitred_program());
        command.arg("serve").arg("--config").arg(folder.path().join("maitred.toml"));
        Server::spawn(command, self.address, self.spool.clone(), folder)
    }

    fn finish(&mut self) {
        self.stopped = true;
        self.processes();
        let status = self.supervisor.stop();
        let status = status.unwrap_or_else(|| panic!("maitred did not stop:\n{}", self.log_text()));
        assert!(status.success(), "maitred stopped with {status}:\n{}", self.log_text());
        self.assert_nothing_left();
    }

    /// Insists that no process, listening socket or spooled file of the server is left.
    pub fn assert_nothing_left(&self) {
        let group = self.supervisor.pid();
        let left = || {
            let seen = self.seen.lock().expect("no thread panics").clone();
            let mut left: Vec<Process> = seen.into_iter().filter(Process::is_running).collect();
            left.extend(processes::in_group(group));
            left
        };
        let gone = wait::poll(REMAINS_DEADLINE, || left().is_empty().then_some(()));
        assert!(gone.is_some(), "processes outlived the supervisor: {:#?}", left());
        // A process that was killed is a zombie before the kernel has closed what its threads had.
        let closed =
            wait::poll(REMAINS_DEADLINE, || ports::is_free_again(self.address).then_some(()));
        assert!(closed.is_some(), "a process still listens on {}", self.address);
        let spooled: Vec<_> = fs::read_dir(&self.spool).into_iter().flatten().flatten().collect();
        assert!(spooled.is_empty(), "files are left in the spool folder: {spooled:?}");
    }
}

impl Target for Server {
    fn address(&self) -> SocketAddr {
        self.address
    }

    fn log_text(&self) -> String {
        self.log.lines().join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.stopped {
            return;
        }
        if std::thread::panicking() {
            eprintln!("maitred at {} wrote:\n{}", self.address, self.log_text());
        } else {
            self.finish();
        }
    }
}
