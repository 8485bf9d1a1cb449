//! Restricts the front before the first client (crate `maitred_sandbox`), and lists the folders
//! that it still needs.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use maitred_config::Config;
use maitred_sandbox::{Needs, Readable};

/// Least interval between two checks why files are inaccessible.
const LOOKED_EVERY: Duration = Duration::from_secs(60);

/// The folders that this process may read, for all threads; none: all.
static READABLE: OnceLock<Readable> = OnceLock::new();

/// The last check why files are inaccessible.
static LOOKED: Mutex<Option<Instant>> = Mutex::new(None);

/// Enters the sandbox, unless the configuration disables it.
///
/// # Errors
/// As [`maitred_sandbox::enter`].
pub fn enter(config: &Config) -> Result<Readable, String> {
    if !config.front_sandbox {
        return Ok(Readable::All);
    }
    let readable = maitred_sandbox::enter("the front", &needs(config))?;
    let _ = READABLE.set(readable.clone());
    Ok(readable)
}

/// Logs that a file below `root` may be inaccessible because of the sandbox, if the file system
/// that holds it has been replaced. To be called when the system has denied access to it.
pub fn log_if_replaced(root: &Path) {
    let Some(readable) = READABLE.get() else {
        return;
    };
    let now = Instant::now();
    {
        let mut looked = LOOKED.lock().unwrap_or_else(PoisonError::into_inner);
        if looked.is_some_and(|last| now.saturating_duration_since(last) < LOOKED_EVERY) {
            return;
        }
        *looked = Some(now);
    }
    if let Some(part) = readable.replaced(root, false) {
        tracing::error!("files of {} get a 403: {}", root.display(), other_than(part));
    }
}

fn other_than(part: &Path) -> String {
    format!(
        "{} is another file system or folder than when the front was restricted: restart or \
         upgrade the server (SIGUSR2), or set front_sandbox = false",
        part.display()
    )
}

fn needs(config: &Config) -> Needs {
    let mut read: Vec<PathBuf> = folders(config).map(|(_, path)| path.to_owned()).collect();
    if config.traces.as_ref().is_some_and(|traces| traces.ca_file.is_none()) {
        read.extend(maitred_sandbox::folders::of_roots());
    }
    Needs { read, sites: true, written: written(config) }
}

/// Folders in which the front creates files.
fn written(config: &Config) -> Vec<PathBuf> {
    let spool = std::iter::once(&config.spool_dir);
    spool.chain(&config.cache_dir).cloned().collect()
}

/// Folders that the front reads, each with the name of its setting.
fn folders(config: &Config) -> impl Iterator<Item = (&'static str, &Path)> {
    let roots = config.traces.iter().filter_map(|traces| traces.ca_file.as_deref());
    let of_sites = config.sites.iter().flat_map(|site| {
        let root = std::iter::once(("root", &site.root));
        let aliases = site.rules.aliases.iter();
        let users = site.rules.basic_auth.iter();
        let htaccess_users = site.rules.htaccess_users.iter();
        let sent = site.output.sendfile_roots.iter();
        root.chain(aliases.map(|alias| ("aliases", &alias.folder)))
            .chain(users.map(|auth| ("basic_auth", &auth.users)))
            .chain(htaccess_users.map(|path| ("htaccess_users", path)))
            .chain(sent.map(|root| ("sendfile_roots", &root.folder)))
            .map(|(setting, path)| (setting, path.as_path()))
    });
    of_sites.chain(roots.map(|path| ("ca_file", path)))
}

/// Warns of each folder of a new configuration that the sandbox does not let the front reach.
pub fn warn(readable: &Readable, config: &Config) {
    let spool = std::iter::once(("spool_dir", config.spool_dir.as_path(), true));
    let cache = config.cache_dir.iter();
    let written = spool.chain(cache.map(|path| ("cache_dir", path.as_path(), true)));
    let read = folders(config).map(|(setting, path)| (setting, path, false));
    for (setting, path, is_written) in written.chain(read) {
        let name = path.display();
        if !readable.has(path) {
            tracing::warn!(
                "`{setting}` {name} is outside the folders that the sandbox of the front allows \
                 since its start: restart or upgrade the server, or set \
                 front_sandbox = false"
            );
        } else if let Some(part) = readable.replaced(path, is_written) {
            tracing::warn!("`{setting}` {name} is inaccessible to the front: {}", other_than(part));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_front_needs_every_folder_that_a_site_names_and_writes_to_two() {
        let text = "[pools.www]\n[[sites]]\nroot = \"/\"\n\
                    aliases = { \"/a/\" = \"/usr\" }\n\
                    sendfile_roots = { \"/x/\" = \"/var\" }\n\
                    htaccess_users = \"/home\"\n\
                    basic_auth = [{ path = \"/b/\", realm = \"b\", users = \"/etc/passwd\" }]\n";
        let mut config = maitred_config::parse(text, Path::new("/maitred.toml")).unwrap();
        config.cache_dir = Some("/cache".into());
        config.spool_dir = "/spool".into();
        let needs = needs(&config);
        let expected = ["/", "/usr", "/etc/passwd", "/home", "/var"].map(PathBuf::from);
        assert_eq!(needs.read, expected);
        assert_eq!(needs.written, ["/spool", "/cache"].map(PathBuf::from));
    }
}
