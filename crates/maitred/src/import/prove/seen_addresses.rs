//! Addresses that clients have requested, and files below the document root.

use std::collections::{HashMap, VecDeque};
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_import::served::ServedSite;
use maitred_os::walk::{self, Rule};
use maitred_prove::probe::AddressSource;
use maitred_prove::secret_paths::encoded;
use maitred_text::access_log::Entry;

/// Bytes that are read from the end of a log.
const MAX_LOG_BYTES: u64 = 16 << 20;

/// Most addresses of a log: the most frequent ones.
const MAX_LOGGED: usize = 2_000;

/// Most entries of folders that are looked at.
const MAX_ENTRIES: usize = 20_000;

/// Most files.
const MAX_FILES: usize = 2_000;

/// Deepest folder below the document root.
const MAX_DEPTH: usize = 8;

/// A day, in seconds.
const DAY: i64 = 86_400;

/// The addresses of a site: those of its access logs of the last days, and of its files.
pub fn of_site(site: &ServedSite, days: u32) -> Vec<(String, AddressSource)> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    let since = i64::try_from(now).unwrap_or(i64::MAX) - i64::from(days) * DAY;
    let mut counts = HashMap::new();
    for log in &site.access_logs {
        for name in [log.clone(), format!("{log}.1")] {
            count(&end_of(Path::new(&name)), since, &mut counts);
        }
    }
    let logged = most_frequent(counts).into_iter().map(|path| (path, AddressSource::AccessLog));
    let of_root = site.root.iter().flat_map(|root| files(Path::new(root), ""));
    let of_aliases =
        site.aliases.iter().flat_map(|alias| files(Path::new(&alias.folder), &alias.prefix));
    let files = of_root.chain(of_aliases).map(|path| (path, AddressSource::File));
    logged.chain(files).collect()
}

/// The end of a log; nothing if it cannot be read.
fn end_of(log: &Path) -> String {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = walk::open_to_read(log, Rule::of_reader())?;
        let size = file.metadata()?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(MAX_LOG_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(MAX_LOG_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
}

fn count(text: &str, since: i64, counts: &mut HashMap<String, usize>) {
    for entry in text.lines().filter_map(Entry::parse) {
        let is_plain = entry.path.bytes().all(|byte| byte.is_ascii_graphic());
        // What was refused to a client may be allowed to this machine, and do something.
        let was_served = entry.status.is_none_or(|status| (200..400).contains(&status));
        if was_served
            && entry.second >= since
            && ["GET", "HEAD"].contains(&entry.method)
            && is_plain
        {
            *counts.entry(entry.path.to_owned()).or_default() += 1;
        }
    }
}

fn most_frequent(counts: HashMap<String, usize>) -> Vec<String> {
    let mut all: Vec<(String, usize)> = counts.into_iter().collect();
    all.sort_by(|(path, count), (other, than)| than.cmp(count).then_with(|| path.cmp(other)));
    all.into_iter().map(|(path, _)| path).take(MAX_LOGGED).collect()
}

/// Files below a folder that are no scripts, as request targets with this prefix. Links are not
/// followed.
fn files(root: &Path, prefix: &str) -> Vec<String> {
    let mut waiting: VecDeque<(PathBuf, String, usize)> =
        VecDeque::from([(root.to_owned(), prefix.to_owned(), 0)]);
    let (mut found, mut entries) = (Vec::new(), 0);
    while let Some((folder, prefix, depth)) = waiting.pop_front() {
        let Ok(list) = fs::read_dir(&folder) else { continue };
        let mut list: Vec<_> = list.flatten().take(MAX_ENTRIES).collect();
        list.sort_by_key(fs::DirEntry::file_name);
        for entry in list {
            entries += 1;
            if entries > MAX_ENTRIES || found.len() >= MAX_FILES {
                return found;
            }
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let path = format!("{prefix}/{name}");
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && depth < MAX_DEPTH => {
                    waiting.push_back((entry.path(), path, depth + 1));
                }
                Ok(kind) if kind.is_file() && !is_script(name) => found.push(encoded(&path)),
                _ => {}
            }
        }
    }
    found
}

/// Whether a request may run a file: what it does is not known.
fn is_script(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    [".php", ".phtml", ".phar", ".inc"].iter().any(|end| name.contains(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_frequent_addresses_of_the_last_days_come_first() {
        let line = |method: &str, path: &str, year: u32| {
            format!(
                "192.0.2.1 - - [22/Nov/{year}:07:00:00 +0000] \"{method} {path} HTTP/1.1\" 200 5\n"
            )
        };
        let text = line("GET", "/b", 2026)
            + &line("GET", "/a", 2026)
            + &line("HEAD", "/a", 2026)
            + &line("POST", "/send", 2026)
            + &line("GET", "/old", 2025);
        let mut counts = HashMap::new();
        count(&text, 1_795_000_000, &mut counts);
        assert_eq!(most_frequent(counts), ["/a", "/b"]);
    }

    #[test]
    fn files_below_a_root_are_found_but_for_scripts_and_links() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        fs::create_dir_all(root.join(".git")).unwrap();
        for name in ["a b.css", "index.php", ".git/HEAD"] {
            fs::write(root.join(name), "x").unwrap();
        }
        std::os::unix::fs::symlink("/etc/passwd", root.join("link")).unwrap();
        assert_eq!(files(root, "/docs"), ["/docs/a%20b.css", "/docs/.git/HEAD"]);
    }
}
