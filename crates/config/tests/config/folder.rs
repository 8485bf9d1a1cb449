//! A directory with a configuration file and the files of the reference's examples.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use maitred_config::{Config, Mistakes};
use tempfile::TempDir;

pub struct Folder(TempDir);

impl Folder {
    pub fn new() -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for name in ["public", "spool", "cache", "php/conf.d", "manual", "files"] {
            fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for name in
            ["php/shop.ini", "public/worker.php", "site.pem", "site.key", "clients.pem", "users"]
        {
            fs::write(folder.path().join(name), "").unwrap();
        }
        for name in ["admin.token", "purge.token"] {
            let token = folder.path().join(name);
            fs::write(&token, "uHqUJ3tnW6rQ0T1kVbcz\n").unwrap();
            fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        }
        folder
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Writes a file, with the folders of its path.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub fn parse(&self, text: &str) -> Result<Config, Mistakes> {
        maitred_config::parse(text, &self.path().join("maitred.toml"))
    }

    /// The configuration of a valid text.
    pub fn good(&self, text: &str) -> Config {
        self.parse(text).unwrap_or_else(|mistakes| panic!("{mistakes}\n--- in ---\n{text}"))
    }

    /// The mistakes of a text, with `DIR` for the directory and without the file's path before it.
    pub fn mistakes(&self, text: &str) -> String {
        let mistakes = self.parse(text).expect_err(text).to_string();
        let folder = self.path().to_str().unwrap();
        let mistakes = mistakes.replace(&format!("{folder}/maitred.toml"), "maitred.toml");
        mistakes.replace(folder, "DIR")
    }
}
