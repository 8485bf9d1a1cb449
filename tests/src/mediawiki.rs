//! MediaWiki as Debian packages it, with a database in a file.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::server::{give_to_web_user, public_folder};

/// Where Debian's package puts MediaWiki.
const PACKAGE: &str = "/usr/share/mediawiki";

/// An installed wiki: its settings, its database and what it keeps; all go when this is dropped.
#[derive(Debug)]
pub struct Wiki {
    folder: TempDir,
}

impl Wiki {
    /// Installs a wiki that is reached at `address` and tells it of each change.
    ///
    /// # Panics
    /// When Debian's `mediawiki` is not installed, or its installer fails.
    pub fn install(address: SocketAddr) -> Self {
        let package = Path::new(PACKAGE);
        assert!(package.is_dir(), "{PACKAGE} does not exist: apt install mediawiki");
        let wiki = Self { folder: public_folder() };
        for name in ["data", "cache"] {
            fs::create_dir(wiki.folder.path().join(name)).expect("a folder can be made");
        }
        let installed = Command::new("php")
            .arg(package.join("maintenance/install.php"))
            .args(["--dbtype", "sqlite", "--dbname", "house"])
            .arg("--dbpath")
            .arg(wiki.folder.path().join("data"))
            .args(["--server", &format!("http://{address}"), "--scriptpath", ""])
            .args(["--pass", "a long pass phrase, for loopback only"])
            .arg("--confpath")
            .arg(wiki.folder.path())
            .args(["The Guest House", "Keeper"])
            .output()
            .expect("php can be started (apt install php-cli)");
        let said = String::from_utf8_lossy(&installed.stdout);
        assert!(installed.status.success(), "not installed: {said}");
        let mut settings = fs::read_to_string(wiki.settings()).expect("there are settings");
        settings.push_str(&format!(
            "$wgUseCdn = true;\n\
             $wgCdnServers = ['{address}'];\n\
             $wgCdnMaxAge = 3600;\n\
             $wgArticlePath = '/wiki/$1';\n\
             $wgCacheDirectory = {:?};\n",
            wiki.folder.path().join("cache")
        ));
        fs::write(wiki.settings(), settings).expect("settings can be written");
        let data = fs::read_dir(wiki.folder.path().join("data")).expect("there is a database");
        for entry in data.flatten() {
            give_to_web_user(&entry.path());
        }
        for name in ["data", "cache"] {
            give_to_web_user(&wiki.folder.path().join(name));
        }
        wiki
    }

    /// The document root.
    pub fn root(&self) -> PathBuf {
        PathBuf::from(PACKAGE)
    }

    /// The settings, which `MW_CONFIG_FILE` names.
    pub fn settings(&self) -> PathBuf {
        self.folder.path().join("LocalSettings.php")
    }
}
