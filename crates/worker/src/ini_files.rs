//! The INI files of a pool.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use maitred_control::ZygoteSettings;
use rustix::fs::OFlags;

/// Checks that the configured INI files can be read: without them PHP starts all the same, with
/// fewer limits, perhaps. php-fpm has it so.
///
/// # Errors
/// One sentence: which one cannot.
pub fn find_ini_files(settings: &ZygoteSettings) -> Result<(), String> {
    if settings.fpm {
        return Ok(());
    }
    let cannot = |setting: &str, path: &Path, error: io::Error| {
        let path = path.display();
        format!("`{setting}` cannot be {path}: {error}; the pool's user must be able to read it")
    };
    if let Some(path) = &settings.php_ini {
        read_file(path).map_err(|error| cannot("php_ini", path, error))?;
    }
    if let Some(path) = &settings.php_ini_scan_dir {
        fs::read_dir(path).map_err(|error| cannot("php_ini_scan_dir", path, error))?;
    }
    Ok(())
}

fn read_file(path: &Path) -> io::Result<()> {
    // A FIFO in its place would otherwise have no reader before it has a writer.
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let kind = file.metadata()?.file_type();
    // `/dev/null` is a file without settings.
    match kind.is_file() || kind.is_char_device() {
        true => Ok(()),
        false => Err(io::Error::other("it is no regular file")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_without_settings_can_be_read_and_a_fifo_and_a_folder_cannot() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("php.ini"), "").unwrap();
        let made = std::process::Command::new("mkfifo").arg(path("fifo")).status();
        assert!(made.unwrap().success());
        for file in [path("php.ini"), "/dev/null".into()] {
            assert!(read_file(&file).is_ok(), "{}", file.display());
        }
        for file in [path("fifo"), path("missing"), folder.path().to_owned()] {
            assert!(read_file(&file).is_err(), "{}", file.display());
        }
    }
}
