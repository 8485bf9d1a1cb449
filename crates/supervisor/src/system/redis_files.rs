//! How a process reaches Redis: its settings, with the contents of the files that they name.

use std::io::Read;
use std::path::Path;

use maitred_config::Redis;
use maitred_control::acme::Secret;
use maitred_control::redis_access::RedisAccess;
use maitred_os::walk::{self, Rule};

/// Longest file, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Longest password, in bytes.
const MAX_PASSWORD_BYTES: usize = 4096;

/// Reads what the settings name.
///
/// # Errors
/// One sentence, when a file cannot be read or holds no password.
pub fn redis_access(redis: &Redis) -> Result<RedisAccess, String> {
    let password = redis.password_file.as_deref().map(|path| {
        let text = read(path)?;
        let password = text.trim_end_matches(['\r', '\n']);
        match password.is_empty() || password.len() > MAX_PASSWORD_BYTES {
            true => Err(format!("{} holds no password", path.display())),
            false => Ok(Secret(password.to_owned())),
        }
    });
    let roots = redis.ca_file.as_deref().filter(|_| redis.server.has_tls());
    Ok(RedisAccess {
        server: redis.server.clone(),
        username: redis.username.clone(),
        password: password.transpose()?,
        database: redis.database,
        roots: roots.map(read).transpose()?,
    })
}

/// Reads a file as root: a link of another user leads to no file of root.
///
/// # Errors
/// One sentence, when it cannot be read or is too long.
pub fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = walk::open_to_read(path, Rule::of_reader());
    let read = opened.and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text));
    match read {
        Err(why) => Err(format!("{}: {why}", path.display())),
        Ok(_) if text.len() as u64 > MAX_FILE_BYTES => {
            Err(format!("{} has more than {MAX_FILE_BYTES} bytes", path.display()))
        }
        Ok(_) => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_long_irregular_or_missing_is_an_error() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1_048_577).unwrap();
        let too_long = read(file.path()).unwrap_err();
        assert_eq!(too_long, format!("{} has more than 1048576 bytes", file.path().display()));
        assert_eq!(read(Path::new("/dev/zero")).unwrap_err(), "/dev/zero: it is no regular file");
        assert!(read(Path::new("/nonexistent")).unwrap_err().starts_with("/nonexistent: "));
    }
}
