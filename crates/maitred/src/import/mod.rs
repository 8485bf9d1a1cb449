//! `maitred import`: another server's configuration as a `maitred.toml`.

mod found_servers;
mod named_files;
pub mod options;
mod prove;
mod unlisted_files;

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::ExitCode;

use maitred_import::caddy::CaddySource;
use maitred_import::user_files::UserFile;
use maitred_import::{FileReader, Imported};
use maitred_os::walk::{self, Rule};
use maitred_text::wildcards;

use crate::exit_code::{EXIT_SUCCESS, complain, fail, refuse};
use options::{ForeignServer, Import};
use prove::OldServer;

/// php-fpm's configuration, at the paths of distributions.
const PHP_FPM: [&str; 4] = [
    "/etc/php/*/fpm/php-fpm.conf",
    "/etc/php-fpm.conf",
    "/etc/opt/remi/php*/php-fpm.conf",
    "/usr/local/etc/php-fpm.conf",
];

/// Largest file of a configuration, in bytes.
const MAX_FILE_BYTES: u64 = 16 << 20;

/// Most files that a pattern names.
const MAX_FILES: usize = 10_000;

/// Mode of a file with users.
const USER_FILE_MODE: u32 = 0o640;

/// Its mode until it has its group: it holds hashes of passwords.
const PRIVATE_MODE: u32 = 0o600;

/// Mode of a new configuration, less what the umask takes.
const CONFIG_MODE: u32 = 0o666;

/// The groups of the front, in the order of `front_user`.
const FRONT_GROUPS: [&str; 2] = ["maitred", "www-data"];

/// Exit code if something is left out that decides who may see what.
const EXIT_ACCESS_LEFT_OUT: u8 = 3;

/// The file system.
pub struct Disk;

impl FileReader for Disk {
    fn read(&self, path: &str) -> Result<String, String> {
        let file = walk::open_to_read(Path::new(path), Rule::of_reader())
            .map_err(|why| why.to_string())?;
        let mut bytes = Vec::new();
        let limited = file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes);
        match limited.map_err(|why| why.to_string())? as u64 {
            size if size > MAX_FILE_BYTES => {
                Err(format!("it is larger than {} MB", MAX_FILE_BYTES >> 20))
            }
            _ => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        if !pattern.contains(['*', '?', '[']) {
            return vec![pattern.to_owned()];
        }
        let pattern = wildcards::for_glob(pattern);
        let found = glob::glob(&pattern).into_iter().flatten().flatten();
        let shown = found.filter(|path| wildcards::has_literal_dots(Path::new(&pattern), path));
        shown.take(MAX_FILES).map(|path| path.to_string_lossy().into_owned()).collect()
    }

    fn unlisted(&self, pattern: &str) -> Option<String> {
        unlisted_files::unlisted(pattern)
    }

    fn below(&self, folder: &str, name: &str) -> Option<Vec<String>> {
        named_files::below(Path::new(folder), name)
    }

    fn has_links(&self, folder: &str) -> Option<bool> {
        named_files::has_links(Path::new(folder))
    }

    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }

    fn resolved(&self, path: &str) -> Option<String> {
        let real = std::fs::canonicalize(path).ok()?;
        real.to_str().map(str::to_owned)
    }
}

/// Imports a configuration: the result to a file or standard output, the report to standard error.
pub fn import(asked: &Import) -> ExitCode {
    let named: Vec<String> = asked.php_fpm.iter().map(|file| file.display().to_string()).collect();
    let fpm = match named.is_empty() {
        true => {
            let found = PHP_FPM.iter().flat_map(|pattern| Disk.glob(pattern));
            found.filter(|file| Path::new(file).exists()).collect()
        }
        false => named,
    };
    let server = match asked.server.or_else(found_servers::found) {
        Some(server) => server,
        None => {
            return refuse(
                &"no nginx, Apache, Unit or Caddy is installed here; name the server and its file",
            );
        }
    };
    let places = found_servers::places(server);
    let exists = |place: &&&str| Path::new(place).exists();
    let default = places.iter().find(exists).or(places.first()).copied().unwrap_or_default();
    let main = asked.path.as_deref().unwrap_or(Path::new(default));
    let main = std::path::absolute(main).unwrap_or_else(|_| main.to_owned());
    let main = main.display().to_string();
    let imported = match server {
        ForeignServer::Nginx => maitred_import::nginx::import(&Disk, &main, &fpm),
        ForeignServer::Apache => maitred_import::apache::import(&Disk, &main, &fpm),
        ForeignServer::Unit => maitred_import::unit::import(&Disk, &main),
        ForeignServer::Caddy => maitred_import::caddy::import(&CaddySource {
            files: &Disk,
            main: &main,
            php_fpm: &fpm,
            environment: &|name| std::env::var(name).ok(),
        }),
    };
    let imported = match imported {
        Ok(imported) => imported,
        Err(why) => return refuse(&why),
    };
    if !asked.prove.prove {
        return finish(asked, &imported);
    }
    let sites = match server {
        ForeignServer::Nginx => maitred_import::nginx::served_sites(&Disk, &main),
        ForeignServer::Apache => maitred_import::apache::served_sites(&Disk, &main),
        ForeignServer::Unit | ForeignServer::Caddy => {
            return refuse(
                &"--prove compares with nginx and Apache only; for other servers, leave it out",
            );
        }
    };
    match sites {
        Ok(sites) => {
            let old = OldServer {
                name: found_servers::name(server),
                service: found_servers::service(server, &main),
                sites: &sites,
                php_fpm: &fpm,
            };
            prove_import(asked, &imported, &old)
        }
        Err(why) => refuse(&why),
    }
}

/// Writes the result as without `--prove`, but not to standard output, and compares both servers.
fn prove_import(asked: &Import, imported: &Imported, old: &OldServer<'_>) -> ExitCode {
    let mut text = imported.toml.clone();
    let mut is_complete = true;
    if let Some(file) = &asked.prove.config {
        text = match std::fs::read_to_string(file) {
            Ok(text) => text,
            Err(why) => return refuse(&format!("{} cannot be read: {why}", file.display())),
        };
    } else {
        let code = finish(asked, imported);
        is_complete = code == ExitCode::from(EXIT_SUCCESS);
        if !is_complete && code != ExitCode::from(EXIT_ACCESS_LEFT_OUT) {
            return code;
        }
    }
    let named = asked.prove.config.as_deref().or(asked.output.as_deref());
    let file = named.unwrap_or(Path::new("maitred.toml"));
    let config = match maitred_config::parse(&text, file) {
        Ok(config) => config,
        Err(mistakes) => return refuse(&mistakes),
    };
    let claim = prove::Claim {
        toml: &text,
        name: &file.display().to_string(),
        is_written: named.is_some(),
        config: &config,
        report: &imported.report,
        old,
    };
    let code = prove::prove(&asked.prove, &claim);
    match is_complete || code != ExitCode::from(EXIT_SUCCESS) {
        true => code,
        false => ExitCode::from(EXIT_ACCESS_LEFT_OUT),
    }
}

fn finish(asked: &Import, imported: &Imported) -> ExitCode {
    let written = match &asked.output {
        Some(file) => write(file, &imported.toml, CONFIG_MODE).map(drop),
        None if asked.prove.prove => Ok(()),
        None => std::io::stdout()
            .write_all(imported.toml.as_bytes())
            .map_err(|why| format!("standard output cannot be written: {why}")),
    };
    if let Err(why) = written {
        return fail(&why);
    }
    let _ = write!(std::io::stderr(), "{}", imported.report);
    let file = asked.output.as_deref().unwrap_or(Path::new("maitred.toml"));
    let shown = file.display();
    let checked = match user_files(asked, &imported.user_files) {
        Ok(folder) => {
            let beside = folder.as_ref().map(|folder| folder.path().join("maitred.toml"));
            maitred_config::parse(&imported.toml, beside.as_deref().unwrap_or(file))
        }
        Err(why) => return fail(&why),
    };
    if let Err(mistakes) = checked {
        complain(&format!("the result is not right yet; correct it:\n{mistakes}"));
        return ExitCode::from(crate::exit_code::EXIT_FAILURE);
    }
    if !imported.report.keeps_access() {
        complain(
            &"something that decides who may see what is left out (see above): write it by hand \
              before this configuration serves",
        );
        return ExitCode::from(EXIT_ACCESS_LEFT_OUT);
    }
    if asked.output.is_some() {
        complain(&format!("{shown} is written; next: maitred check {shown}"));
    }
    ExitCode::from(EXIT_SUCCESS)
}

/// Writes the files with users beside the result. Without `--output`, they are printed, and are in
/// a temporary folder, where the result is checked.
fn user_files(asked: &Import, files: &[UserFile]) -> Result<Option<tempfile::TempDir>, String> {
    if files.is_empty() {
        return Ok(None);
    }
    if let Some(output) = &asked.output {
        let folder = output.parent().unwrap_or(Path::new(""));
        files.iter().try_for_each(|one| write_users(&folder.join(&one.name), &one.text))?;
        return Ok(None);
    }
    let made = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    for one in files {
        complain(&format!("the file {} beside the result needs these lines:", one.name));
        let _ = std::io::stderr().write_all(one.text.as_bytes());
        write_users(&made.path().join(&one.name), &one.text)?;
    }
    Ok(Some(made))
}

/// Writes a file with users for its owner, and for the group of the front, which reads it.
fn write_users(file: &Path, text: &str) -> Result<(), String> {
    let written = write(file, text, PRIVATE_MODE)?;
    let groups = FRONT_GROUPS.iter().find_map(|name| maitred_os::users::group_named(name).ok());
    if let Some(group) = groups {
        // Who cannot give it to the group runs the server as the same user.
        let _ = std::os::unix::fs::fchown(&written, None, Some(group));
    }
    let readable = std::fs::Permissions::from_mode(USER_FILE_MODE);
    let changed = written.set_permissions(readable);
    changed.map_err(|why| format!("the mode of {} cannot be set: {why}", file.display()))
}

/// Creates a file with these permission bits. A configuration that exists is not replaced.
fn write(file: &Path, text: &str, mode: u32) -> Result<File, String> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(file);
    let written = opened.and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        Ok(file)
    });
    written.map_err(|why| match why.kind() {
        ErrorKind::AlreadyExists => {
            format!("{} exists already; delete it, or name another file", file.display())
        }
        _ => format!("{} cannot be written: {why}", file.display()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The result for a folder of sites, which a file of a server includes.
    fn including(server: ForeignServer, text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text);
        std::fs::create_dir(folder.path().join("sites")).unwrap();
        for (name, host) in [("shop", "shop.example"), (".old", "old.example")] {
            let site = match server {
                ForeignServer::Nginx => format!("server {{ root /srv; server_name {host}; }}"),
                ForeignServer::Apache => format!(
                    "<VirtualHost *:80>\nDocumentRoot /srv\nServerName {host}\n</VirtualHost>"
                ),
                _ => format!("{host} {{\nroot * /srv\nfile_server\n}}"),
            };
            write(&format!("sites/{name}.conf"), site).unwrap();
        }
        let here = folder.path().display().to_string();
        write("main", text.replace("HERE", &here)).unwrap();
        let main = format!("{here}/main");
        let imported = match server {
            ForeignServer::Nginx => maitred_import::nginx::import(&Disk, &main, &[]),
            ForeignServer::Apache => maitred_import::apache::import(&Disk, &main, &[]),
            _ => maitred_import::caddy::import(&CaddySource {
                files: &Disk,
                main: &main,
                php_fpm: &[],
                environment: &|_| None,
            }),
        };
        imported.unwrap().toml
    }

    #[test]
    fn a_wildcard_includes_no_hidden_file_and_a_folder_of_apache_all_of_its_files() {
        use ForeignServer::{Apache, Caddy, Nginx};
        for (server, text, is_hidden_read) in [
            (Nginx, "http { include HERE/sites/*; }", false),
            (Nginx, "http { include HERE/sites/*; include HERE/sites/.*.conf; }", true),
            (Apache, "IncludeOptional HERE/sites/*\n", false),
            (Apache, "Include HERE/sites\n", true),
            (Caddy, "import HERE/sites/*\n", false),
            (Caddy, "import HERE/sites/*\nimport HERE/sites/.*\n", true),
        ] {
            let toml = including(server, text);
            assert!(toml.contains("shop.example"), "{text}\n{toml}");
            assert_eq!(toml.contains("old.example"), is_hidden_read, "{text}\n{toml}");
        }
    }

    #[test]
    fn a_file_with_passwords_is_the_owners_alone_until_it_has_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let mode = |file: &Path| file.metadata().unwrap().permissions().mode() & 0o777;
        let created = folder.path().join("created");
        write(&created, "anna:$2y$05$x", PRIVATE_MODE).unwrap();
        assert_eq!(mode(&created) & 0o077, 0);
        let users = folder.path().join("users");
        write_users(&users, "anna:$2y$05$x").unwrap();
        assert_eq!(mode(&users), USER_FILE_MODE);
        assert!(write_users(&users, "").unwrap_err().contains("exists already"));
    }
}
