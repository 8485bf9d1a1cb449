//! Access to files and programs, below another root if one is given, within a time limit.

use std::io::{ErrorKind, Read};
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use maitred_os::proc::held_locks;
use maitred_os::walk::{self, Rule};
use maitred_text::wildcards::{for_glob, has_literal_dots};

use crate::facts::{Fact, Unknown};

/// Most bytes of a file that are read.
pub(super) const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

/// Most links of a path that are followed below another root (Linux: 40).
const MAX_LINKS: usize = 40;

/// The share of the total time that one query may take.
const ONE_SHARE: f64 = 0.4;

/// The folder of another root with the output of programs, by their names.
const SAID: &str = "commands";

/// The root for all reads.
pub(super) struct World {
    root: Option<PathBuf>,
    end: Instant,
    patience: Duration,
}

impl World {
    pub(super) fn new(root: Option<&Path>, time: Duration) -> World {
        World {
            root: root.map(Path::to_owned),
            end: Instant::now() + time,
            patience: time.mul_f64(ONE_SHARE),
        }
    }

    /// Whether this is the machine itself.
    pub(super) fn is_here(&self) -> bool {
        self.root.is_none()
    }

    /// How long a query may take: a part of the total, so that some time is left.
    pub(super) fn patience(&self) -> Duration {
        let left = self.end.saturating_duration_since(Instant::now());
        left.min(self.patience)
    }

    /// The path without links, if it exists.
    pub(super) fn resolved(&self, path: &str) -> Option<String> {
        let found = match &self.root {
            None => std::fs::canonicalize(path).ok()?,
            Some(root) => {
                let found = self.path(path);
                PathBuf::from("/").join(found.strip_prefix(root).ok()?)
            }
        };
        found.to_str().map(str::to_owned)
    }

    /// The real location of a path. Links are followed below the other root.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        let Some(root) = &self.root else {
            return PathBuf::from(path);
        };
        let mut rest: Vec<PathBuf> = vec![PathBuf::from(path)];
        let mut found = root.clone();
        let mut links = 0;
        while let Some(part) = rest.pop() {
            let mut parts = part.components();
            let Some(first) = parts.next() else { continue };
            if !parts.as_path().as_os_str().is_empty() {
                rest.push(parts.as_path().to_owned());
            }
            match first {
                Component::RootDir => found.clone_from(root),
                Component::ParentDir => {
                    if found != *root {
                        found.pop();
                    }
                }
                Component::CurDir | Component::Prefix(_) => {}
                Component::Normal(name) => {
                    let next = found.join(name);
                    match std::fs::read_link(&next) {
                        Ok(target) if links < MAX_LINKS => {
                            links += 1;
                            rest.push(target);
                        }
                        _ => found = next,
                    }
                }
            }
        }
        found
    }

    /// The text of a file.
    pub(super) fn read(&self, path: &str) -> Fact<String> {
        self.read_or_none(path)?.ok_or_else(|| Unknown(format!("{path} is not there")))
    }

    /// The same. `None` if there is no such file.
    pub(super) fn read_or_none(&self, path: &str) -> Fact<Option<String>> {
        self.read_start(path, MAX_FILE_BYTES)
    }

    /// The same, of as many bytes at the start of the file.
    pub(super) fn read_start(&self, path: &str, most: u64) -> Fact<Option<String>> {
        start_of(&self.path(path), path, most)
    }

    /// A file of a process for which the kernel takes the lock of the process's memory.
    pub(super) fn read_locked(&self, pid: i32, name: &str, most: u64) -> Fact<String> {
        let path = format!("/proc/{pid}/{name}");
        let (file, shown) = (self.path(&path), path.clone());
        match held_locks::read(pid, move || start_of(&file, &shown, most)) {
            Some(read) => read?.ok_or_else(|| Unknown(format!("{path} is not there"))),
            None => Unknown::because(format!(
                "{path} cannot be read: the lock of the process's memory is held"
            )),
        }
    }

    /// A file that is one number.
    pub(super) fn number(&self, path: &str) -> Fact<u64> {
        let text = self.read(path)?;
        let number = text.trim().parse();
        number.map_err(|_| Unknown(format!("{path} holds no number")))
    }

    /// The paths that match a pattern, in order.
    pub(super) fn glob(&self, pattern: &str) -> Vec<String> {
        let pattern = for_glob(pattern);
        let below = match &self.root {
            None => PathBuf::from(&pattern),
            Some(root) => root.join(pattern.trim_start_matches('/')),
        };
        let options =
            glob::MatchOptions { require_literal_separator: true, ..glob::MatchOptions::new() };
        let found = glob::glob_with(&below.to_string_lossy(), options);
        let found = found.into_iter().flatten().filter_map(Result::ok);
        let found = found.filter(|path| has_literal_dots(&below, path));
        let named = found.filter_map(|path| match &self.root {
            None => path.to_str().map(str::to_owned),
            Some(root) => path.strip_prefix(root).ok()?.to_str().map(|rest| format!("/{rest}")),
        });
        named.collect()
    }

    /// The output of a program. Below another root no program runs: its output is read from the
    /// folder `commands` there.
    pub(super) fn run(&self, program: &str, arguments: &[&str]) -> Fact<String> {
        if !self.is_here() {
            let said = self.read(&format!("/{SAID}/{program}"));
            return said.map_err(|_| Unknown(format!("{program} is not run for another root")));
        }
        let child = maitred_os::spawn::command(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let mut child = child.map_err(|why| Unknown(format!("{program} cannot be run ({why})")))?;
        let output = child.stdout.take();
        let said = within(self.patience(), move || {
            let mut bytes = Vec::new();
            let output = output.map(|output| output.take(MAX_FILE_BYTES));
            let read = output.map(|mut output| output.read_to_end(&mut bytes));
            read.is_some_and(|read| read.is_ok()).then_some(bytes)
        });
        let _ = child.kill();
        let _ = child.wait();
        match said {
            Some(Some(bytes)) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
            Some(None) => Unknown::because(format!("{program} could not be read")),
            None => Unknown::because(format!("{program} took too long")),
        }
    }
}

/// The start of a file that is called `path`. `None` if there is no such file.
fn start_of(file: &Path, path: &str, most: u64) -> Fact<Option<String>> {
    let mut bytes = Vec::new();
    let opened = walk::open_to_read(file, Rule::of_reader());
    let read = opened.and_then(|opened| opened.take(most).read_to_end(&mut bytes));
    match read {
        Ok(_) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
        // A process that has ended meanwhile gives ESRCH.
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(None),
        Err(why) => Err(Unknown(format!("{path} cannot be read ({why})"))),
    }
}

/// The result of `work`, unless it takes longer than that; then it is abandoned.
pub(super) fn within<T: Send + 'static>(
    most: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || {
        // The receiver is gone if it took too long.
        let _ = done.send(work());
    });
    wait.recv_timeout(most).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_are_followed_below_another_root_and_never_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        let at = |path: &str| root.path().join(path);
        std::fs::create_dir_all(at("etc/enabled")).unwrap();
        std::fs::write(at("etc/real"), "inside").unwrap();
        symlink("/etc/real", at("etc/enabled/site")).unwrap();
        symlink("../../../../etc/real", at("etc/enabled/up")).unwrap();
        symlink("loop", at("etc/loop")).unwrap();
        let world = World::new(Some(root.path()), Duration::from_secs(1));
        assert_eq!(world.read("/etc/enabled/site").unwrap(), "inside");
        assert_eq!(world.read("/etc/enabled/up").unwrap(), "inside");
        assert_eq!(world.glob("/etc/enabled/*"), ["/etc/enabled/site", "/etc/enabled/up"]);
        // As glob(3) has them.
        assert_eq!(world.glob("/etc/enabled/[^s]*"), ["/etc/enabled/up"]);
        assert_eq!(world.glob("/**/site"), [] as [&str; 0]);
        assert_eq!(world.glob("/etc/enabled/**te"), ["/etc/enabled/site"]);
        assert!(world.read("/etc/loop").is_err());
        assert_eq!(world.read_or_none("/etc/none").unwrap(), None);
        assert!(world.read("/etc").unwrap_err().0.contains("directory"));
    }

    #[test]
    fn a_program_that_takes_too_long_is_left() {
        let hurried = World::new(None, Duration::from_millis(50));
        let slow = hurried.run("sleep", &["600"]);
        assert_eq!(slow.unwrap_err().0, "sleep took too long");
        let world = World::new(None, Duration::from_secs(60));
        let none = world.run("no-such-program-here", &[]);
        assert!(none.unwrap_err().0.contains("cannot be run"));
        assert_eq!(world.run("echo", &["here"]).unwrap(), "here\n");
        // Signals that maitred ignores may matter to other programs.
        maitred_os::signals::ignore_sigxfsz();
        let status = world.run("cat", &["/proc/self/status"]).unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        let ignored = ignored.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        // SIGXFSZ is signal 25 (signal(7)).
        assert_eq!(ignored.map(|bits| bits >> 24 & 1), Some(0), "{status}");
    }
}
