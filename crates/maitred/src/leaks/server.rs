//! A server for `maitred leaks`, with one worker that is inspected after each request.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use maitred_config::Pool;
use rustix::process::Signal;
use tempfile::TempDir;

use super::findings::{Inspection, printable};
use super::watched_config::{Trial, watched_config};

/// The inspecting script.
const LOOK: &str = include_str!("look.php");

/// Timeout of a request and of the inspection after it.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long requests may take to end before the server is stopped at once.
const STOP_PATIENCE: Duration = Duration::from_secs(5);

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(10);

/// Most bytes of inspections that are read from the pool's scripts, of all together.
const LOOKS_BYTES_MAX: usize = 64 << 20;

/// Most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The bytes of a response that have its status.
const STATUS_BYTES: usize = 256;

/// Most bytes of the server's log that are read; the pool's scripts write to it, too.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Part of the log line about limits that this machine does not enforce.
const NOT_KEPT: &str = "cannot be kept: ";

/// Part of the log line with which the server reports that it serves.
const SERVES: &str = "on http://";

/// The server and its folder; dropping it stops and removes both.
pub struct WatchedServer {
    child: Child,
    folder: TempDir,
    address: SocketAddr,
    report: BufReader<File>,
    /// The incomplete line that is being written.
    line: Vec<u8>,
    /// How many bytes of inspections are still read.
    looks_left: usize,
}

impl WatchedServer {
    /// Starts it, and waits until the application has booted.
    ///
    /// # Errors
    /// Why it does not serve: one sentence and the server's log.
    pub fn start(trial: &Trial<'_>) -> Result<WatchedServer, String> {
        let pool = trial.pool;
        let cannot = |why: std::io::Error| format!("a server cannot be started for this: {why}");
        let folder = folder().map_err(cannot)?;
        let file = |name: &str| folder.path().join(name);
        let report = file("report");
        let look = file("look.php");
        let config = file("maitred.toml");
        write(&config, OURS, &watched_config(trial, &look)).map_err(cannot)?;
        write(&look, EVERYBODYS, &look_script(&report, pool)).map_err(cannot)?;
        let written = write(&report, OURS, "").map_err(cannot)?;
        if let Some(uid) = uid_of_pool(&config)? {
            fchown(&written, Some(uid), None).map_err(cannot)?;
        }
        let log = write(&file("log"), OURS, "").map_err(cannot)?;
        let program = std::env::current_exe().map_err(cannot)?;
        let child = maitred_os::spawn::command(program)
            .args(["serve", "--config"])
            .arg(&config)
            .arg("--admin-socket")
            .arg(file("admin.sock"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(cannot)?)
            .stderr(log)
            .spawn()
            .map_err(cannot)?;
        let report = BufReader::new(File::open(&report).map_err(cannot)?);
        let mut watched = WatchedServer {
            child,
            folder,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            report,
            line: Vec::new(),
            looks_left: LOOKS_BYTES_MAX,
        };
        let patience = PATIENCE + pool.boot_timeout;
        watched.address = watched.when(patience, "it does not serve", WatchedServer::address)?;
        watched.when(patience, "the script does not boot", WatchedServer::next_look)?;
        Ok(watched)
    }

    /// Why the pool's limits do not all apply here, as the server has logged it.
    pub fn limits_not_kept(&self) -> Option<String> {
        let log = self.log();
        let line = log.lines().find(|line| line.contains(NOT_KEPT));
        line.map(printable)
    }

    /// Sends a request; returns the response status.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&mut self, host: &str, target: &str) -> Result<u16, String> {
        let response = self.exchange(host, target);
        let response = response.map_err(|why| format!("the response to {target}: {why}"))?;
        let status = response.split(|byte| *byte == b' ').nth(1);
        let status = status.and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        status.ok_or_else(|| format!("the response to {target} is no HTTP"))
    }

    /// The start of a response.
    fn exchange(&self, host: &str, target: &str) -> std::io::Result<Vec<u8>> {
        let until = Instant::now() + PATIENCE;
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: maitred-leaks\r\n\
             Connection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        read_response(&mut stream, until)
    }

    /// The inspection after the last request.
    ///
    /// # Errors
    /// If neither the worker nor its replacement gets ready for another one.
    pub fn look(&mut self) -> Result<Inspection, String> {
        self.when(PATIENCE, "the worker does not accept another request", WatchedServer::next_look)
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let log = self.log();
        let (_, rest) = log.split_once(SERVES)?;
        rest.split(' ').next()?.parse().ok()
    }

    fn next_look(&mut self) -> Option<Inspection> {
        let begun = self.line.len();
        let whole = read_line(&mut self.report, &mut self.line, self.looks_left);
        self.looks_left -= self.line.len() - begun;
        whole?;
        let look = serde_json::from_slice(&self.line).ok();
        self.line.clear();
        look
    }

    fn when<T>(
        &mut self,
        patience: Duration,
        otherwise: &str,
        mut there: impl FnMut(&mut WatchedServer) -> Option<T>,
    ) -> Result<T, String> {
        let until = Instant::now() + patience;
        loop {
            if let Some(found) = there(self) {
                return Ok(found);
            }
            if self.looks_left == 0 {
                return Err(format!(
                    "{otherwise}: scripts have written more than {LOOKS_BYTES_MAX} bytes to {}; \
                     send fewer requests",
                    self.folder.path().join("report").display()
                ));
            }
            let ended = !matches!(self.child.try_wait(), Ok(None));
            let in_vain = self.log().contains("further deaths are counted");
            if ended || in_vain || Instant::now() > until {
                let log = self.log();
                let lines: Vec<String> = log.lines().map(printable).collect();
                return Err(format!("{otherwise}; the log of its server:\n{}", lines.join("\n")));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn log(&self) -> String {
        let mut log = Vec::new();
        if let Ok(file) = File::open(self.folder.path().join("log")) {
            // After an error the log is what has been read.
            let _ = file.take(LOG_BYTES_MAX).read_to_end(&mut log);
        }
        String::from_utf8_lossy(&log).into_owned()
    }
}

impl Drop for WatchedServer {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        let stop = || pid.map(|pid| rustix::process::kill_process(pid, Signal::TERM));
        stop();
        let until = Instant::now() + STOP_PATIENCE;
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(PAUSE);
        }
        // A second signal ends scripts that do not end.
        if matches!(self.child.try_wait(), Ok(None)) {
            stop();
        }
        let _ = self.child.wait();
    }
}

/// Mode of files for the owner only: the configuration holds the pool's secrets.
const OURS: u32 = 0o600;

/// Mode of files that the pool's user reads, too.
const EVERYBODYS: u32 = 0o644;

/// A temporary folder. The pool's user can open files in it by name, but not list it.
fn folder() -> std::io::Result<TempDir> {
    let folder = tempfile::Builder::new().prefix("maitred-leaks-").tempdir()?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711))?;
    Ok(folder)
}

/// Creates a file with this mode, whatever the umask is.
fn write(path: &Path, mode: u32, text: &str) -> std::io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OURS).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// The user of the pool's workers; `None`: that of this process.
fn uid_of_pool(config: &Path) -> Result<Option<u32>, String> {
    let config = maitred_config::load(config)
        .map_err(|why| format!("a server cannot be started for this: {why}"))?;
    let Some(pool) = config.pools.first() else {
        return Ok(None);
    };
    let user = maitred_supervisor::user_of_pool(pool, &config).map_err(|why| why.to_string())?;
    Ok(user.map(|user| user.uid))
}

/// The start of a response, which is read to its end.
fn read_response(stream: &mut TcpStream, until: Instant) -> std::io::Result<Vec<u8>> {
    let (mut start, mut left) = (Vec::new(), RESPONSE_BYTES_MAX);
    let mut buffer = vec![0; 64 << 10];
    loop {
        let patience = until.saturating_duration_since(Instant::now());
        // A timeout of zero would be none.
        stream.set_read_timeout(Some(patience.max(PAUSE)))?;
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Ok(start),
            Err(why) if why.kind() == ErrorKind::Interrupted => continue,
            Err(why) if why.kind() != ErrorKind::WouldBlock => return Err(why),
            Ok(read) if !patience.is_zero() => read,
            _ => {
                let limit = PATIENCE.as_secs();
                let why = format!("it has no end within {limit} s; leave this URL out");
                return Err(std::io::Error::new(ErrorKind::TimedOut, why));
            }
        };
        let room = STATUS_BYTES.saturating_sub(start.len()).min(read);
        start.extend_from_slice(&buffer[..room]);
        left = left.checked_sub(read).ok_or_else(|| {
            let why = format!("it has more than {RESPONSE_BYTES_MAX} bytes; leave this URL out");
            std::io::Error::other(why)
        })?;
    }
}

/// Continues reading a line; `None` while it has no end. It reads `most` bytes at most.
fn read_line(from: &mut impl BufRead, line: &mut Vec<u8>, most: usize) -> Option<()> {
    from.take(most as u64).read_until(b'\n', line).ok()?;
    (line.last() == Some(&b'\n')).then_some(())
}

/// The inspecting script: with the path of its report, and the pool's own `auto_prepend_file`.
fn look_script(report: &Path, pool: &Pool) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut script = format!("{LOOK}\nconst REPORT = {};\n", quoted(&report.to_string_lossy()));
    let values = pool.php_admin_value.get("auto_prepend_file");
    if let Some(own) = values.or(pool.php_value.get("auto_prepend_file")) {
        let _ = writeln!(script, "require {};", quoted(own));
    }
    script
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_the_owners_and_a_line_without_end_is_not_read_on() {
        let folder = folder().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(folder.path()), 0o711);
        let config = folder.path().join("maitred.toml");
        write(&config, OURS, "secret").unwrap();
        assert_eq!(mode(&config), 0o600);
        assert!(write(&config, OURS, "again").is_err());

        let mut line = Vec::new();
        let (mut begun, mut rest) = (&b"{\"a\""[..], &b": 1}\n{"[..]);
        assert_eq!(read_line(&mut begun, &mut line, 64), None);
        assert_eq!(read_line(&mut rest, &mut line, 64), Some(()));
        assert_eq!((line.as_slice(), rest), (&b"{\"a\": 1}\n"[..], &b"{"[..]));
        line.clear();
        assert_eq!(read_line(&mut &[b'x'; 99][..], &mut line, 64), None);
        assert_eq!(line.len(), 64);
        assert_eq!(read_line(&mut &[b'x'; 99][..], &mut line, 0), None);
        assert_eq!(line.len(), 64);
    }

    #[test]
    fn the_pools_own_prepended_file_is_read_by_the_inspecting_one() {
        let mut pool = Pool::named("shop");
        pool.php_value.insert("auto_prepend_file".to_owned(), "/own.php".to_owned());
        assert!(look_script(Path::new("/r"), &pool).ends_with("require '/own.php';\n"));
    }
}
