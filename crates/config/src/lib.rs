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
mod include;
mod mistakes;
mod model;
mod on_disk;
mod otel_settings;
mod position;
mod read;
mod reference;
mod sources;
mod suggest;

use std::fs::File;
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use env_settings::{Environment, is_env_setting};
pub use maitred_rules::settings::Upstream;
pub use mistakes::{Mistake, Mistakes, Position};
pub use model::acme::{Acme, AcmeShared, Challenge, ExternalAccount, LETS_ENCRYPT, SharedPlace};
pub use model::admin::{AdminAccess, AdminDraft, AdminToken, is_origin};
pub use model::client_limits::ClientLimits;
pub use model::collector::{Collector, Syslog, SyslogServer};
pub use model::config::{Config, Listening};
pub use model::confinement::{Confinement, CoreSize, GroupLimits, NoNewPrivileges};
pub use model::development::{DEVELOPMENT_STOP_TIMEOUT, Development};
pub use model::host::{Host, is_host_name};
pub use model::job::{IoPriority, Job, Missed, Overlap, PHP, Restart, Scaling, Schedule};
pub use model::listener::{Address, DEFAULT_SOCKET_MODE, FastcgiListener};
pub use model::log_format::{self, LogFormat};
pub use model::log_target::LogTarget;
pub use model::mode::{BootConnections, Mode};
pub use model::output::{Output, SendfileRoot};
pub use model::pool::{MAX_CHILDREN_PER_POOL, Pool, PoolAccessLog, ProcessManager};
pub use model::pool_user::PoolUser;
pub use model::private_dir::PrivateDir;
pub use model::purge_log::{Peers, PurgeLog, PurgeLogPlace};
pub use model::redis::{Redis, RedisServer};
pub use model::root_owner::RootOwner;
pub use model::site::{Destination, Site, SiteLog};
pub use model::tls::{CertificateFiles, ClientCertificates, HTTPS_PORT, Tls, TlsVersion};
pub use model::trace_export::{CollectorUrl, Traces};
pub use on_disk::{MAX_FILE_BYTES, directory_problem, file_problem};
pub use position::{Section, SettingMistake, file_of_pool, mistakes_at};
pub use read::directive::{Directive, Needs, Preset};
pub use read::directives;
pub use read::listen::parse_listen;
pub use read::value::{BadValue, Value};
pub use reference::{SettingDoc, SettingGroup, applications, reference, setting_groups};

use include::Merged;
use mistakes::Fault;
use sources::Sources;

/// A configuration that was read, with what is worth knowing about its files.
#[derive(Debug)]
pub struct LoadedConfig {
    /// The settings.
    pub config: Config,
    /// Warnings about settings that are valid but have no effect, in the order of the files.
    pub remarks: Vec<Mistake>,
    /// The files: the one that was named, and those that it includes, in their order.
    pub files: Vec<PathBuf>,
}

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

/// The setting `admin_socket` of the file at `path`, whatever mistakes the file has.
///
/// # Errors
/// The reason why it cannot be read.
pub fn admin_socket_of(path: &Path) -> Result<Option<PathBuf>, Mistakes> {
    let text = read(path)?;
    let (table, _) = DeTable::parse_recoverable(&text);
    let socket = table.get_ref().get("admin_socket").and_then(|value| value.get_ref().as_str());
    let folder = sources::folder_of(path);
    Ok(socket.filter(|socket| !socket.is_empty()).map(|socket| folder.join(socket)))
}

/// As [`load`], with warnings and the names of the files.
///
/// # Errors
/// As [`load`].
pub fn load_with_remarks(path: &Path) -> Result<LoadedConfig, Mistakes> {
    let (sources, faults) = include::gather(path, read(path)?);
    let config = build(&sources, faults, &Environment::of_process()?)?;
    let remarks = remarks_of(&sources, &config);
    let files = sources.files().iter().map(|file| file.path.clone()).collect();
    Ok(LoadedConfig { config, remarks, files })
}

/// Warnings about settings in `text` without effect, in the order of the text; `config` is the
/// result of parsing it.
pub fn remarks(text: &str, file: &Path, config: &Config) -> Vec<Mistake> {
    remarks_of(&include::gather(file, text.to_owned()).0, config)
}

fn remarks_of(sources: &Sources, config: &Config) -> Vec<Mistake> {
    let Ok(merged) = include::merged(sources, Vec::new()) else {
        return Vec::new();
    };
    let mut faults = check::remarks::remarks(&merged.table, config);
    faults.sort_by_key(|fault| fault.span.start);
    faults.into_iter().map(|fault| sources.locate(fault)).collect()
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
            let mistake = fault.located(&good, path);
            Err(Mistakes::new(vec![mistake], 0))
        }
    }
}

/// Checks the configuration in `text`. `file` names it in mistakes, and its directory is the base
/// of relative paths. Directories and files of the server itself must exist on disk; those of
/// single pools and sites are looked up later.
///
/// # Errors
/// All mistakes, in the order of the text. If a file is no TOML or cannot be read, only that.
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
    let (sources, faults) = include::gather(file, text.to_owned());
    build(&sources, faults, environment)
}

/// The configuration of these files, which could not be gathered if there are faults.
fn build(
    sources: &Sources,
    faults: Vec<Fault>,
    environment: &Environment,
) -> Result<Config, Mistakes> {
    let merged = include::merged(sources, faults);
    let Merged { mut table, mut faults } = merged.map_err(|faults| sources.mistakes(faults))?;
    let end = sources.end();
    environment.put_into(&mut table, end);
    let (config, further) = assemble::assemble(&table, sources);
    faults.extend(further);
    if faults.is_empty() {
        return Ok(config);
    }
    let (mut of_variables, mut of_files) = (Vec::new(), Vec::new());
    for fault in faults {
        match environment.locate(fault, end) {
            Ok(mistake) => of_variables.push(mistake),
            Err(fault) => of_files.push(fault),
        }
    }
    Err(sources.mistakes(of_files).with(of_variables).beside(config))
}

fn too_large(file: &Path) -> Mistakes {
    Mistakes::about(file, format!("the configuration file is larger than {MAX_FILE_BYTES} bytes"))
}
