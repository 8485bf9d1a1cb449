//! A server for `maitred leaks`: one worker, which is looked at after each request.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use maitred_config::{Pool, Site};
use serde_json::json;

use super::findings::Look;

/// The script that looks.
const LOOK: &str = include_str!("look.php");

/// Longest that a request, or what follows it, may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is looked whether something is there.
const PAUSE: Duration = Duration::from_millis(10);

/// What the server says when it serves.
const SERVES: &str = "on http://";

/// The server, with a folder of its own; both go when it is dropped.
pub struct Watched {
    child: Child,
    folder: Folder,
    address: SocketAddr,
    report: BufReader<File>,
}

impl Watched {
    /// Starts it, and waits until the application has booted.
    ///
    /// # Errors
    /// Why it does not serve, in one sentence and the server's own words.
    pub fn start(site: &Site, pool: &Pool) -> Result<Watched, String> {
        let cannot = |why: std::io::Error| format!("a server cannot be started for this: {why}");
        let folder = Folder::make().map_err(cannot)?;
        let report = folder.file("report");
        fs::write(&report, "").map_err(cannot)?;
        // The pool's user writes it.
        fs::set_permissions(&report, fs::Permissions::from_mode(0o666)).map_err(cannot)?;
        let look = folder.file("look.php");
        fs::write(&look, look_script(&report, pool)).map_err(cannot)?;
        let config = folder.file("maitred.toml");
        fs::write(&config, configuration(site, pool, &look)).map_err(cannot)?;
        let log = File::create(folder.file("log")).map_err(cannot)?;
        let program = std::env::current_exe().map_err(cannot)?;
        let child = Command::new(program)
            .args(["serve", "--config"])
            .arg(&config)
            .arg("--admin-socket")
            .arg(folder.file("admin.sock"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(cannot)?)
            .stderr(log)
            .spawn()
            .map_err(cannot)?;
        let report = BufReader::new(File::open(&report).map_err(cannot)?);
        let mut watched = Watched {
            child,
            folder,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            report,
        };
        let patience = PATIENCE + pool.boot_timeout;
        watched.address = watched.when(patience, "it does not serve", Watched::address)?;
        watched.when(patience, "the script does not boot", Watched::next_look)?;
        Ok(watched)
    }

    /// Sends a request; returns the status of its answer.
    ///
    /// # Errors
    /// Why there is none.
    pub fn get(&mut self, host: &str, target: &str) -> Result<u16, String> {
        let answer = self.exchange(host, target);
        let answer = answer.map_err(|why| format!("{target} was not answered: {why}"))?;
        let status = answer.split(|byte| *byte == b' ').nth(1);
        let status = status.and_then(|status| std::str::from_utf8(status).ok()?.parse().ok());
        status.ok_or_else(|| format!("{target} was not answered over HTTP"))
    }

    fn exchange(&self, host: &str, target: &str) -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let request = format!(
            "GET {target} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: maitred-leaks\r\nConnection: close\r\n\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    }

    /// What is seen after the last request.
    ///
    /// # Errors
    /// When the worker does not ask for another one, nor does one that takes its place.
    pub fn look(&mut self) -> Result<Look, String> {
        self.when(
            PATIENCE,
            "the worker does not ask for another request",
            Watched::next_look,
        )
    }

    fn address(&mut self) -> Option<SocketAddr> {
        let log = self.log();
        let (_, rest) = log.split_once(SERVES)?;
        rest.split(' ').next()?.parse().ok()
    }

    fn next_look(&mut self) -> Option<Look> {
        let mut line = String::new();
        self.report.read_line(&mut line).ok()?;
        if !line.ends_with('\n') {
            // It is being written.
            let back = i64::try_from(line.len()).ok()?;
            self.report.seek_relative(-back).ok()?;
            return None;
        }
        serde_json::from_str(&line).ok()
    }

    fn when<T>(
        &mut self,
        patience: Duration,
        otherwise: &str,
        mut there: impl FnMut(&mut Watched) -> Option<T>,
    ) -> Result<T, String> {
        let until = Instant::now() + patience;
        loop {
            if let Some(found) = there(self) {
                return Ok(found);
            }
            let ended = !matches!(self.child.try_wait(), Ok(None));
            let in_vain = self.log().contains("further deaths are counted");
            if ended || in_vain || Instant::now() > until {
                return Err(format!("{otherwise}; its server says:\n{}", self.log()));
            }
            std::thread::sleep(PAUSE);
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.file("log")).unwrap_or_default()
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let pid = i32::try_from(self.child.id()).ok();
        if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}

/// A folder that goes with this program.
struct Folder(PathBuf);

impl Folder {
    fn make() -> std::io::Result<Folder> {
        let path = std::env::temp_dir().join(format!("maitred-leaks-{}", std::process::id()));
        // A folder that is there already is somebody else's.
        fs::DirBuilder::new().mode(0o711).create(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o711))?;
        Ok(Folder(path))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The looking script, which knows where to write, and what the pool itself has precede its scripts.
fn look_script(report: &Path, pool: &Pool) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut script = format!(
        "{LOOK}\nconst REPORT = {};\n",
        quoted(&report.to_string_lossy())
    );
    let values = pool.php_admin_value.get("auto_prepend_file");
    if let Some(own) = values.or(pool.php_value.get("auto_prepend_file")) {
        let _ = writeln!(script, "require {};", quoted(own));
    }
    script
}

/// The site with one worker of the pool. Strings of JSON are such of TOML.
fn configuration(site: &Site, pool: &Pool, look: &Path) -> String {
    let text = |path: &Path| json!(path.to_string_lossy()).to_string();
    let table = |entries: &mut dyn Iterator<Item = (&String, &String)>| {
        let entries = entries.map(|(name, value)| format!("{} = {}", json!(name), json!(value)));
        format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
    };
    let mut out = format!(
        "listen = [\"127.0.0.1:0\"]\n[pools.{}]\nmode = \"worker\"\nmax_children = 1\n\
         boot_timeout = {}\nrequest_queue_timeout = \"60s\"\n",
        pool.name,
        pool.boot_timeout.as_secs()
    );
    let mut line = |name: &str, value: String| {
        let _ = writeln!(out, "{name} = {value}");
    };
    if let Some(script) = &pool.script {
        line("script", text(script));
    }
    for (name, value) in [
        ("user", &pool.user),
        ("group", &pool.group),
        ("php", &pool.php),
    ] {
        if let Some(value) = value {
            line(name, json!(value).to_string());
        }
    }
    for (name, path) in [
        ("php_ini", &pool.php_ini),
        ("php_ini_scan_dir", &pool.php_ini_scan_dir),
    ] {
        if let Some(path) = path {
            line(name, text(path));
        }
    }
    line(
        "env",
        table(&mut pool.env.iter().map(|(name, value)| (name, value))),
    );
    line(
        "php_value",
        table(
            &mut pool
                .php_value
                .iter()
                .filter(|(name, _)| *name != "auto_prepend_file"),
        ),
    );
    let ours = ["auto_prepend_file", "open_basedir"];
    let (name, value) = (ours[0].to_owned(), look.to_string_lossy().into_owned());
    let kept = pool
        .php_admin_value
        .iter()
        .filter(|(name, _)| !ours.contains(&name.as_str()));
    line("php_admin_value", table(&mut kept.chain([(&name, &value)])));
    let _ = write!(
        out,
        "[[sites]]\nroot = {}\nindex = {}\nfront_controller = {}\n",
        text(&site.root),
        json!(site.index),
        json!(site.front_controller.as_deref().unwrap_or_default())
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_server_has_one_worker_of_the_pool_with_all_that_its_php_is_told() {
        let text = "[pools.shop]\nmode = \"worker\"\nscript = \"/etc/passwd\"\nmax_children = 9\n\
                    env = { A = \"b \\\"c\\\"\" }\nphp_value = { auto_prepend_file = \"/own.php\" }\n\
                    php_admin_value = { memory_limit = \"64M\", open_basedir = \"/srv\" }\n\
                    [[sites]]\nroot = \"/\"\nfront_controller = \"\"\n";
        let config = maitred_config::parse(text, Path::new("/maitred.toml")).unwrap();
        let (site, pool) = (&config.sites[0], &config.pools[0]);
        let written = configuration(site, pool, Path::new("/tmp/look.php"));
        let read = maitred_config::parse(&written, Path::new("/maitred.toml")).unwrap();
        let again = &read.pools[0];
        assert_eq!((again.max_children, &again.script), (Some(1), &pool.script));
        assert_eq!(again.env, pool.env);
        assert_eq!(again.php_admin_value["auto_prepend_file"], "/tmp/look.php");
        assert_eq!(again.php_admin_value["memory_limit"], "64M");
        assert!(!again.php_admin_value.contains_key("open_basedir"));
        assert_eq!(read.sites[0].front_controller, None);
        assert!(look_script(Path::new("/r"), pool).ends_with("require '/own.php';\n"));
    }
}
