//! From the text of `maitred.toml` to checked settings.
//!
//! Every setting is one [`Directive`]: its name, default, documentation, parser and what
//! applies a change of it. The tables of directives are in [`directives`], one file per group; the
//! reference page is generated from them ([`reference()`]). The result is a fully checked
//! [`Config`], or all the [`Mistakes`] at once, each with its line and column.

mod assemble;
mod check;
mod env_settings;
pub mod fpm;
mod mistakes;
mod model;
mod on_disk;
mod read;
mod reference;
mod suggest;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;

use toml::de::DeTable;

pub use env_settings::Environment;
pub use maitred_rules::settings::Upstream;
pub use mistakes::{Mistake, Mistakes, Position};
pub use model::acme::{Acme, Challenge, ExternalAccount, LETS_ENCRYPT};
pub use model::admin::{AdminAccess, AdminDraft, AdminToken};
pub use model::client_limits::ClientLimits;
pub use model::collector::{Collector, Syslog, SyslogServer};
pub use model::config::{Config, Listening};
pub use model::confinement::{Confinement, CoreSize, GroupLimits, NoNewPrivileges};
pub use model::host::Host;
pub use model::listener::{Address, DEFAULT_SOCKET_MODE, FastcgiListener};
pub use model::log_format::{self, LogFormat};
pub use model::log_target::LogTarget;
pub use model::mode::{BootConnections, Mode};
pub use model::output::{Output, SendfileRoot};
pub use model::pool::{MAX_CHILDREN_PER_POOL, Pool, PoolAccessLog, ProcessManager};
pub use model::site::{Destination, Site, SiteLog};
pub use model::tls::{CertificateFiles, ClientCertificates, HTTPS_PORT, Tls, TlsVersion};
pub use on_disk::directory_problem;
pub use read::directive::{Directive, Needs, Preset};
pub use read::directives;
pub use read::listen::parse_listen;
pub use read::position::{Section, place_of_setting};
pub use read::value::{BadValue, Value};
pub use reference::{SettingDoc, SettingGroup, applications, reference, setting_groups};

use mistakes::Fault;
use read::syntax::syntax_faults;

/// The largest configuration file that is read, in bytes. Ten thousand sites need two million.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;

/// Reads and checks the configuration file at `path`.
///
/// # Errors
/// All mistakes of the file, or the reason why it cannot be read.
pub fn load(path: &Path) -> Result<Config, Mistakes> {
    parse_with(&read(path)?, path, &Environment::of_process()?)
}

/// The configuration for one directory: [`Config::for_directory`], with the settings in the
/// environment.
///
/// # Errors
/// As [`Config::for_directory`], and mistakes in variables.
pub fn load_directory(
    dir: &Path,
    listen: Vec<SocketAddr>,
    workers: Option<u32>,
) -> Result<Config, Mistakes> {
    let config = Config::for_directory(dir, listen.clone(), workers)?;
    let environment = Environment::of_process()?;
    if environment.is_empty() {
        return Ok(config);
    }
    let root = std::path::absolute(dir).unwrap_or_else(|_| dir.to_path_buf());
    let text = format!("[[sites]]\nroot = {:?}\n", root.display().to_string());
    let config = parse_with(&text, &root, &environment)?.with_listen(listen);
    workers.map_or(Ok(config.clone()), |workers| config.with_workers(workers))
}

/// As [`load`], with warnings about settings that are valid but have no effect.
///
/// # Errors
/// As [`load`].
pub fn load_with_remarks(path: &Path) -> Result<(Config, Vec<Mistake>), Mistakes> {
    let text = read(path)?;
    let config = parse_with(&text, path, &Environment::of_process()?)?;
    let remarks = remarks(&text, path, &config);
    Ok((config, remarks))
}

/// Warnings about settings in `text` without effect, in the order of the text; `config` is the
/// result of parsing it.
pub fn remarks(text: &str, file: &Path, config: &Config) -> Vec<Mistake> {
    let (table, _) = DeTable::parse_recoverable(text);
    let mut faults = check::remarks::remarks(table.get_ref(), config);
    faults.sort_by_key(|fault| fault.span.start);
    let faults = faults.into_iter();
    faults.map(|fault| fault.located(text, file)).collect()
}

/// The text of a configuration file.
fn read(path: &Path) -> Result<String, Mistakes> {
    let unreadable = |error: std::io::Error| {
        let remedy = match error.kind() {
            std::io::ErrorKind::NotFound => "; name one that is there with --config",
            _ => "",
        };
        let sentence = format!("the configuration file cannot be read: {error}{remedy}");
        Mistakes::about(path, sentence)
    };
    let mut bytes = Vec::new();
    // One byte more than the limit, so that `parse` detects larger files.
    let limit = MAX_FILE_BYTES as u64 + 1;
    File::open(path)
        .and_then(|file| file.take(limit).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(too_large(path));
    }
    match String::from_utf8(bytes) {
        Ok(text) => Ok(text),
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let good = String::from_utf8_lossy(&error.as_bytes()[..valid]);
            let fault = Fault::new(
                good.len()..good.len(),
                "this byte is not UTF-8; save the file as UTF-8 text".to_owned(),
            );
            Err(Mistakes::locate(vec![fault], &good, path))
        }
    }
}

/// Checks the configuration in `text`. `file` names it in mistakes, and its directory is the base
/// of relative paths. Directories and files in it must exist on disk.
///
/// # Errors
/// All mistakes, in the order of the text. If the text is no TOML, only syntax errors.
pub fn parse(text: &str, file: &Path) -> Result<Config, Mistakes> {
    parse_with(text, file, &Environment::default())
}

/// As [`parse`], with settings in variables, which replace those in `text`.
///
/// # Errors
/// As [`parse`]; those in variables come last.
pub fn parse_with(text: &str, file: &Path, environment: &Environment) -> Result<Config, Mistakes> {
    if text.len() > MAX_FILE_BYTES {
        return Err(too_large(file));
    }
    let (table, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        return Err(Mistakes::locate(syntax_faults(&errors, text), text, file));
    }
    let mut table = table.into_inner();
    environment.put_into(&mut table, text.len());
    assemble::assemble(&table, folder_of(file).as_path()).map_err(|faults| {
        let end = text.len();
        let (mut of_variables, mut of_text) = (Vec::new(), Vec::new());
        for fault in faults {
            match environment.locate(fault, end) {
                Ok(mistake) => of_variables.push(mistake),
                Err(fault) => of_text.push(fault),
            }
        }
        Mistakes::locate(of_text, text, file).with(of_variables)
    })
}

fn too_large(file: &Path) -> Mistakes {
    Mistakes::about(file, format!("the configuration file is larger than {MAX_FILE_BYTES} bytes"))
}

/// The base of relative paths in `file`, absolute if the system provides it.
fn folder_of(file: &Path) -> std::path::PathBuf {
    let folder = match file.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf())
}
