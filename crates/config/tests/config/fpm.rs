//! php-fpm's own files, read as php-fpm reads them.

use std::path::{Path, PathBuf};

use maitred_config::fpm::{Failed, Level, Loaded, Options, load};
use maitred_config::{Address, LogTarget, ProcessManager};
use tempfile::TempDir;

/// A folder with a configuration in it.
struct Files {
    folder: TempDir,
}

impl Files {
    /// A folder with `text` as php-fpm.conf, in which `DIR` stands for the folder.
    fn with(text: &str) -> Files {
        let files = Files {
            folder: TempDir::new().unwrap(),
        };
        files.add("php-fpm.conf", text);
        files
    }

    fn add(&self, name: &str, text: &str) {
        let text = text.replace("DIR", self.folder.path().to_str().unwrap());
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn options(&self) -> Options {
        Options {
            file: self.path("php-fpm.conf"),
            ..Options::default()
        }
    }

    fn load(&self) -> Result<Loaded, Failed> {
        load(&self.options())
    }
}

fn has(messages: &[(Level, String)], level: Level, text: &str) -> bool {
    messages
        .iter()
        .any(|(said, line)| *said == level && line == text)
}

const GOOD: &str = "
[global]
error_log = DIR/error.log
[www]
listen = DIR/www.sock
pm = static
pm.max_children = 3
";

#[test]
fn debians_own_files_are_read_unchanged() {
    let file = Path::new("/etc/php/8.2/fpm/php-fpm.conf");
    if !file.exists() || !Path::new("/run/php").exists() {
        return;
    }
    // Their log is root's, so only root can read them through to the end.
    let loaded = load(&Options {
        file: file.to_path_buf(),
        is_root: true,
        test: true,
        ..Options::default()
    });
    let loaded = match loaded {
        Ok(loaded) => loaded,
        Err(failed) => {
            let text = "failed to post process the configuration";
            assert!(has(&failed.messages, Level::Error, text), "{failed:?}");
            return;
        }
    };
    let pool = loaded.config.pool("www").unwrap();
    assert_eq!(pool.pm, ProcessManager::Dynamic);
    assert_eq!(pool.max_children, Some(5));
    let door = pool.door.as_ref().unwrap();
    assert_eq!(
        door.listen,
        Address::Unix("/run/php/php8.2-fpm.sock".into())
    );
    assert_eq!(door.owner.as_deref(), Some("www-data"));
    let fpm = loaded.config.fpm.as_ref().unwrap();
    assert_eq!(
        fpm.pid.as_deref(),
        Some(Path::new("/run/php/php8.2-fpm.pid"))
    );
}

#[test]
fn a_small_configuration_has_a_door_a_log_and_no_sites() {
    let files = Files::with(GOOD);
    let loaded = files.load().unwrap();
    let config = &loaded.config;
    assert_eq!(config.error_log, LogTarget::File(files.path("error.log")));
    assert!(config.listen.is_empty() && config.sites.is_empty());
    let pool = config.pool("www").unwrap();
    assert_eq!(pool.max_children, Some(3));
    let door = pool.door.as_ref().unwrap();
    assert_eq!(door.listen, Address::Unix(files.path("www.sock")));
    assert!(files.path("error.log").exists());
}
