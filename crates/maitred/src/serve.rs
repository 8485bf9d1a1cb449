//! `maitred serve`: finds the configuration, and runs the supervisor with it.

use std::ffi::OsString;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maitred_config::{Config, Mistakes};
use maitred_supervisor::{CAN_TAKE_OVER, Host, Invocation, TAKE_OVER};
use tracing::info;

use crate::command::{DEFAULT_CONFIG, Serve};
use crate::exit_code::{EXIT_FAILURE, EXIT_SUCCESS, fail, refuse};
use crate::log;

/// Default folders of a site.
const DEFAULT_ROOTS: [&str; 2] = ["public", "."];

/// Index files: a folder with one of them is a site.
const INDEXES: [&str; 2] = ["index.php", "index.html"];

/// The source of the configuration.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Folder(PathBuf),
}

/// Serves until the server is stopped. `arguments` are those of this program, its name first.
pub fn serve(serve: Serve, arguments: &[OsString], log_level: &str) -> ExitCode {
    let Some(source) = source(&serve, Path::new(DEFAULT_CONFIG), Path::new("")) else {
        return refuse(
            &"there is nothing to serve: neither public/ nor this folder holds an index.php or \
              index.html, and there is no /etc/maitred/maitred.toml; name a folder, as in \
              `maitred serve DIR`",
        );
    };
    let (take_over, trial, strict) = (serve.take_over, serve.try_take_over, serve.strict);
    let source = read_again(serve, source);
    if let Some(state) = trial {
        return match maitred_supervisor::try_take_over(state, &source) {
            Ok(()) => ExitCode::from(u8::try_from(CAN_TAKE_OVER).unwrap_or(EXIT_FAILURE)),
            Err(error) => refuse(&error),
        };
    }
    let invocation = match invocation(arguments, take_over) {
        Ok(invocation) => Invocation { strict, ..invocation },
        Err(why) => return fail(&format!("the file of this program cannot be found: {why}")),
    };
    match maitred_supervisor::serve(source, invocation, log_level) {
        Ok(0) => ExitCode::from(EXIT_SUCCESS),
        Ok(_) => ExitCode::from(EXIT_FAILURE),
        Err(error) if error.is_configuration() => refuse(&error),
        Err(error) => fail(&error),
    }
}

fn read_again(serve: Serve, source: Source) -> maitred_supervisor::Source {
    let file = match &source {
        Source::File(file) => Some(file.clone()),
        Source::Folder(_) => None,
    };
    let source = maitred_supervisor::Source::new(move || {
        configuration(&serve, &source).map_err(|mistakes| mistakes.to_string())
    });
    match file {
        Some(file) => source.of_file(&file),
        None => source,
    }
}

/// A server whose messages go to the configured collector.
#[derive(Debug)]
struct CollectedHost;

impl Host for CollectedHost {
    fn set_up(&mut self, config: &Config) -> Result<(), String> {
        log::collected::follow(&config.error_log);
        Ok(())
    }

    fn follow(&mut self, config: &Config) -> Option<String> {
        log::collected::follow(&config.error_log);
        None
    }
}

/// How this program was started. An upgrade runs the file that is at the same path then, so links
/// in it are not resolved here.
fn invocation(arguments: &[OsString], take_over: Option<RawFd>) -> std::io::Result<Invocation> {
    let name = arguments.first().map(Path::new);
    let path = name.filter(|name| name.components().count() > 1);
    let program = match path {
        Some(path) => std::path::absolute(path)?,
        None => std::env::current_exe()?,
    };
    let mut rest = arguments.iter().skip(1);
    let mut arguments = Vec::new();
    while let Some(argument) = rest.next() {
        if argument == TAKE_OVER {
            rest.next();
        } else {
            arguments.push(argument.clone());
        }
    }
    let host = Box::new(CollectedHost);
    Ok(Invocation { program, arguments, take_over, strict: false, host })
}

/// The source on the command line, or else `default_config`, or a site in the folder `here`.
fn source(serve: &Serve, default_config: &Path, here: &Path) -> Option<Source> {
    if let Some(file) = &serve.config {
        return Some(Source::File(file.clone()));
    }
    if let Some(dir) = &serve.dir {
        return Some(Source::Folder(dir.clone()));
    }
    if default_config.exists() {
        return Some(Source::File(default_config.to_owned()));
    }
    let roots = DEFAULT_ROOTS.iter().map(|root| here.join(root));
    let is_site = |root: &PathBuf| INDEXES.iter().any(|index| root.join(index).is_file());
    roots.into_iter().find(is_site).map(Source::Folder)
}

fn configuration(serve: &Serve, source: &Source) -> Result<Config, Mistakes> {
    let mut config = from_source(serve, source)?;
    if let Some(path) = &serve.admin_socket {
        config.admin_socket = Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
    }
    Ok(config)
}

fn from_source(serve: &Serve, source: &Source) -> Result<Config, Mistakes> {
    let listen = serve.listen.clone();
    match source {
        Source::File(file) => {
            info!("configuration: {}", file.display());
            let config = maitred_config::load(file)?.with_listen(listen);
            serve.workers.map_or(Ok(config.clone()), |workers| config.with_workers(workers))
        }
        Source::Folder(dir) => maitred_config::load_directory(dir, listen, serve.workers),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Serve = Serve {
        dir: None,
        listen: Vec::new(),
        workers: None,
        config: None,
        strict: false,
        take_over: None,
        try_take_over: None,
        admin_socket: None,
    };

    fn found(here: &Path) -> Option<Source> {
        source(&NOTHING, &here.join("maitred.toml"), here)
    }

    #[test]
    fn without_words_the_default_file_comes_before_public_and_public_before_here() {
        let here = tempfile::tempdir().unwrap();
        let here = here.path();
        assert_eq!(found(here), None, "an empty folder is no site");
        std::fs::write(here.join("index.html"), "").unwrap();
        assert_eq!(found(here), Some(Source::Folder(here.join("."))));
        std::fs::create_dir(here.join("public")).unwrap();
        assert_eq!(found(here), Some(Source::Folder(here.join("."))), "public/ is empty");
        std::fs::write(here.join("public/index.php"), "").unwrap();
        assert_eq!(found(here), Some(Source::Folder(here.join("public"))));
        std::fs::write(here.join("maitred.toml"), "").unwrap();
        assert_eq!(found(here), Some(Source::File(here.join("maitred.toml"))));
    }
}
