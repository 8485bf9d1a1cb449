//! How a process reaches Redis: its settings, with the contents of the files that they name.

use std::path::Path;

use maitred_config::{Redis, RedisServer as Configured};
use maitred_control::acme::Secret;
use maitred_control::redis_access::{RedisAccess, RedisServer};

/// Longest password, in bytes.
const MAX_PASSWORD_BYTES: usize = 4096;

/// Reads what the settings name.
///
/// # Errors
/// One sentence, when a file cannot be read or holds no password.
pub fn redis_access(redis: &Redis) -> Result<RedisAccess, String> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|why| format!("{}: {why}", path.display()))
    };
    let password = redis.password_file.as_deref().map(|path| {
        let text = read(path)?;
        let password = text.trim_end_matches(['\r', '\n']);
        match password.is_empty() || password.len() > MAX_PASSWORD_BYTES {
            true => Err(format!("{} holds no password", path.display())),
            false => Ok(Secret(password.to_owned())),
        }
    });
    let server = match &redis.server {
        Configured::Unix(path) => RedisServer::Unix(path.clone()),
        Configured::Tcp { host, port, has_tls } => RedisServer::Tcp {
            host: host.clone(),
            port: *port,
            has_tls: *has_tls,
            roots: redis.ca_file.as_deref().map(read).transpose()?,
        },
    };
    Ok(RedisAccess {
        server,
        username: redis.username.clone(),
        password: password.transpose()?,
        database: redis.database,
    })
}
