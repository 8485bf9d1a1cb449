//! A server for `maitred leaks`, with one worker that is inspected after each request.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpStream};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use maitred_config::Pool;
use rustix::rand::{GetRandomFlags, getrandom};
use tempfile::TempDir;

use super::findings::{Inspection, printable};
use super::watched_config::{PATIENCE, Trial, watched_config};
use crate::private_server::{CONFIG, LOG, PrivateServer};

/// The inspecting script.
const LOOK: &str = include_str!("look.php");

/// Polling interval.
const PAUSE: Duration = Duration::from_millis(10);

/// Longest wait for a piece of a response before a signal is acted on.
const PIECE_PATIENCE: Duration = Duration::from_millis(100);

/// The first byte of the client's address: one that no network routes (RFC 4193 §3.1).
const PRIVATE_ADDRESS: u8 = 0xfd;

/// Most bytes of inspections that are read from the pool's scripts, of all together.
const LOOKS_BYTES_MAX: usize = 64 << 20;

/// Most bytes of a response.
const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The bytes of a response that have its status.
const STATUS_BYTES: usize = 256;

/// Most bytes of the server's log that are read; the pool's scripts write to it, too.
const LOG_BYTES_MAX: u64 = 1 << 20;

/// Why there is no response or inspection after a signal.
const INTERRUPTED: &str = "it was interrupted";

/// Part of the log line about limits that this machine does not enforce.
const NOT_KEPT: &str = "cannot be kept: ";

/// Part of the log line with which the server reports that it serves.
const SERVES: &str = "on http://";

/// The server and its folder; dropping it stops and removes both.
pub struct WatchedServer {
    server: PrivateServer,
    folder: TempDir,
    stopped: Arc<AtomicBool>,
    /// The client that it serves.
    client: Ipv6Addr,
    address: SocketAddr,
    report: BufReader<File>,
    /// The incomplete line that is being written.
    line: Vec<u8>,
    /// How many bytes of inspections are still read.
    looks_left: usize,
}

impl WatchedServer {
    /// Starts it in its folder, and waits until the application has booted. It waits for nothing
    /// once it is `stopped`.
    ///
    /// # Errors
    /// Why it does not serve: one sentence and the server's log.
    pub fn start(
        trial: &Trial<'_>,
        folder: TempDir,
        stopped: &Arc<AtomicBool>,
    ) -> Result<WatchedServer, String> {
        let pool = trial.pool;
        let file = |name: &str| folder.path().join(name);
        let report = file("report");
        let look = file("look.php");
        let config = watched_config(trial, &look);
        write(&file(CONFIG), OURS, &config).map_err(cannot)?;
        write(&look, EVERYBODYS, &look_script(&report, pool)).map_err(cannot)?;
        let written = write(&report, OURS, "").map_err(cannot)?;
        if let Some(uid) = uid_of_pool(&config)? {
            fchown(&written, Some(uid), None).map_err(cannot)?;
        }
        let report = BufReader::new(File::open(&report).map_err(cannot)?);
        let server = PrivateServer::start(folder.path()).map_err(cannot)?;
        let mut watched = WatchedServer {
            server,
            folder,
            stopped: Arc::clone(stopped),
            client: trial.client,
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
        let (client, port) = (self.client, self.address.port());
        let request = format!(
            "PROXY TCP6 {client} ::1 1 {port}\r\nGET {target} HTTP/1.1\r\nHost: {host}\r\n\
             User-Agent: maitred-leaks\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        read_response(&mut stream, until, &self.stopped)
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
            if self.stopped.load(Ordering::SeqCst) {
                return Err(format!("{otherwise}: {INTERRUPTED}"));
            }
            if self.looks_left == 0 {
                return Err(format!(
                    "{otherwise}: scripts have written more than {LOOKS_BYTES_MAX} bytes to {}; \
                     send fewer requests",
                    self.folder.path().join("report").display()
                ));
            }
            let ended = self.server.has_ended();
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
        if let Ok(file) = File::open(self.folder.path().join(LOG)) {
            // After an error the log is what has been read.
            let _ = file.take(LOG_BYTES_MAX).read_to_end(&mut log);
        }
        String::from_utf8_lossy(&log).into_owned()
    }
}

/// Mode of files for the owner only: the configuration holds the pool's secrets.
const OURS: u32 = 0o600;

/// Mode of files that the pool's user reads, too.
const EVERYBODYS: u32 = 0o644;

/// A temporary folder. The pool's user can open files in it by name, but not list it.
///
/// # Errors
/// It cannot be made.
pub fn new_folder() -> Result<TempDir, String> {
    let folder = tempfile::Builder::new().prefix("maitred-leaks-").tempdir().map_err(cannot)?;
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o711)).map_err(cannot)?;
    Ok(folder)
}

/// A random address for the only client of a server.
///
/// # Errors
/// The kernel has no random bytes.
pub fn new_client() -> Result<Ipv6Addr, String> {
    let mut bytes = [0; 16];
    let filled =
        getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|why| cannot(why.into()))?;
    if filled < bytes.len() {
        return Err(cannot(ErrorKind::UnexpectedEof.into()));
    }
    bytes[0] = PRIVATE_ADDRESS;
    Ok(Ipv6Addr::from(bytes))
}

fn cannot(why: std::io::Error) -> String {
    format!("a server cannot be started for this: {why}")
}

/// Creates a file with this mode, whatever the umask is.
fn write(path: &Path, mode: u32, text: &str) -> std::io::Result<File> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(OURS).open(path)?;
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    file.write_all(text.as_bytes())?;
    Ok(file)
}

/// The user of the pool's workers; `None`: that of this process.
fn uid_of_pool(config: &str) -> Result<Option<u32>, String> {
    let config = maitred_config::parse(config, Path::new(CONFIG))
        .map_err(|why| format!("a server cannot be started for this: {why}"))?;
    let Some(pool) = config.pools.first() else {
        return Ok(None);
    };
    let user = maitred_supervisor::user_of_pool(pool, &config).map_err(|why| why.to_string())?;
    Ok(user.map(|user| user.uid))
}

/// The start of a response, which is read to its end unless it is `stopped`.
fn read_response(
    stream: &mut TcpStream,
    until: Instant,
    stopped: &AtomicBool,
) -> std::io::Result<Vec<u8>> {
    let (mut start, mut left) = (Vec::new(), RESPONSE_BYTES_MAX);
    let mut buffer = vec![0; 64 << 10];
    stream.set_read_timeout(Some(PIECE_PATIENCE))?;
    while !stopped.load(Ordering::SeqCst) {
        let is_late = Instant::now() > until;
        let read = match stream.read(&mut buffer) {
            Ok(0) => return Ok(start),
            Ok(read) if !is_late => read,
            Err(why) if !matches!(why.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => {
                return Err(why);
            }
            Err(_) if !is_late => continue,
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
    Err(std::io::Error::other(INTERRUPTED))
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
        let folder = new_folder().unwrap();
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
