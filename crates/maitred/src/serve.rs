//! `maitred serve`: finds the configuration, and runs the supervisor with it.

mod folder;
pub mod https;
pub mod open_browser;
pub mod options;
mod terminal_port;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::rc::Rc;

use maitred_config::Config;
use maitred_supervisor::{CAN_TAKE_OVER, Host, Invocation, TAKE_OVER};
use tracing::{info, warn};

use crate::command::DEFAULT_CONFIG;
use crate::exit_code::{EXIT_FAILURE, EXIT_SUCCESS, complain, fail, refuse};
use crate::log;
use open_browser::BrowserOpener;
use options::{ListenFlag, Serve};
use terminal_port::Terminal;

/// The variable in which a container sets `listen`.
const LISTEN_VARIABLE: &str = "MAITRED_LISTEN";

/// The source of the configuration.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Folder(PathBuf),
}

/// Serves until the server is stopped. `arguments` are those of this program, its name first.
pub fn serve(serve: Serve, arguments: &[OsString], log_level: &str) -> ExitCode {
    if let Some(parent) = serve.stop_with_parent {
        maitred_os::fork::stop_with_parent(parent);
    }
    let Some(source) = source(&serve, Path::new(DEFAULT_CONFIG), Path::new("")) else {
        return refuse(
            &"there is nothing to serve: neither public/, web/ nor this folder holds an index.php \
              or index.html, and there is no /etc/maitred/maitred.toml; name a folder, as in \
              `maitred serve DIR`",
        );
    };
    if serve.watch && matches!(source, Source::Folder(_)) {
        return refuse(
            &"--watch is for a configuration file, and a folder has none: changed scripts are seen \
              at once; leave --watch out, or name the file with --config",
        );
    }
    if serve.https && matches!(source, Source::File(_)) {
        return refuse(&https::FOR_FOLDERS);
    }
    let (take_over, trial, strict) = (serve.take_over, serve.try_take_over, serve.strict);
    let mut host = CollectedHost::default();
    if take_over.is_none() && trial.is_none() {
        remark(&serve, &source);
        host = match CollectedHost::new(&serve, log_level) {
            Ok(host) => host,
            Err(why) => return fail(&why),
        };
    }
    let source = Rc::new(Reread::new(serve, source));
    let terminal_port = source.clone();
    let source = source.source();
    if let Some(state) = trial {
        return match maitred_supervisor::try_take_over(state, &source) {
            Ok(()) => ExitCode::from(u8::try_from(CAN_TAKE_OVER).unwrap_or(EXIT_FAILURE)),
            Err(error) => refuse(&error),
        };
    }
    let invocation = match invocation(arguments, take_over, host) {
        Ok(invocation) => Invocation { strict, ..terminal_port.keep_address(invocation) },
        Err(why) => return fail(&format!("the file of this program cannot be found: {why}")),
    };
    match maitred_supervisor::serve(source, invocation, log_level) {
        Ok(0) => ExitCode::from(EXIT_SUCCESS),
        Ok(_) => ExitCode::from(EXIT_FAILURE),
        Err(error) if error.is_configuration() => refuse(&error),
        Err(error) => fail(&error),
    }
}

/// Says which folder is served if that is another than the named one, or if it is no site.
fn remark(serve: &Serve, source: &Source) {
    let Source::Folder(root) = source else {
        return;
    };
    if let Some(named) = serve.dir.as_ref().filter(|named| *named != root) {
        let (named, root) = (named.display(), root.display());
        complain(&format!("{named} is a project; its public folder {root} is served"));
    }
    if let Some(remark) = folder::remark(root) {
        complain(&remark);
    }
}

/// What the configuration is read from, at the start and at each reload.
#[derive(Debug)]
struct Reread {
    serve: Serve,
    source: Source,
    terminal: Option<Terminal>,
}

impl Reread {
    fn new(serve: Serve, source: Source) -> Reread {
        let terminal = terminal_port::of(&serve, matches!(source, Source::Folder(_)));
        Reread { serve, source, terminal }
    }

    fn source(self: &Rc<Reread>) -> maitred_supervisor::Source {
        let reread = self.clone();
        let source = maitred_supervisor::Source::new(move || reread.configuration());
        match &self.source {
            Source::File(file) => source.of_file(file).watched(self.serve.watch),
            Source::Folder(_) => source,
        }
    }

    /// An upgrade starts the next program at the same address, which is in use then.
    fn keep_address(&self, mut invocation: Invocation) -> Invocation {
        if let Some(address) = self.free_address() {
            invocation.arguments.push(format!("--listen={address}").into());
        }
        invocation
    }

    fn free_address(&self) -> Option<SocketAddr> {
        let is_folder = matches!(self.source, Source::Folder(_));
        let is_open = self.serve.listen.is_empty() && std::env::var_os(LISTEN_VARIABLE).is_none();
        let starts = self.serve.take_over.is_none() && self.serve.try_take_over.is_none();
        let terminal = self.terminal.as_ref().filter(|_| is_folder && is_open && starts);
        terminal.and_then(Terminal::free_address)
    }

    fn configuration(&self) -> Result<Config, String> {
        let serve = &self.serve;
        let mut config = self.read().map_err(|mistakes| mistakes.to_string())?;
        if serve.https {
            config = https::secured(config)?;
        }
        if let Some(path) = &serve.admin_socket {
            config.admin_socket = Some(std::path::absolute(path).unwrap_or_else(|_| path.clone()));
        }
        if let Some(terminal) = &self.terminal {
            config = config.for_development(terminal.colors);
        }
        let variables: Vec<(String, String)> = serve.env.iter().filter_map(valued).collect();
        Ok(config.with_php(&serve.define, &variables))
    }

    fn read(&self) -> Result<Config, maitred_config::Mistakes> {
        let (listen, workers) = (self.serve.listen.iter(), self.serve.workers);
        match &self.source {
            Source::File(file) => {
                info!("configuration: {}", file.display());
                let listen = listen.map(|flag| flag.address).collect();
                let config = maitred_config::load(file)?.with_listen(listen);
                workers.map_or(Ok(config.clone()), |workers| config.with_workers(workers))
            }
            Source::Folder(dir) => {
                let listen = listen.copied().map(ListenFlag::for_folder);
                let listen = listen.chain(self.free_address()).collect();
                maitred_config::load_directory(dir, listen, workers)
            }
        }
    }
}

/// A variable of `--env`, with the server's own value if it has none.
fn valued(variable: &(String, Option<String>)) -> Option<(String, String)> {
    let (name, value) = variable;
    let value = value.clone().or_else(|| std::env::var(name).ok())?;
    Some((name.clone(), value))
}

/// A server whose messages go to the configured collector.
#[derive(Debug, Default)]
struct CollectedHost {
    /// What the user has to do once the server serves.
    next_step: Option<&'static str>,
    /// Opens the browser then.
    browser: Option<BrowserOpener>,
}

impl CollectedHost {
    /// That of a new server.
    ///
    /// # Errors
    /// One sentence, if `--https` has no authority.
    fn new(serve: &Serve, log_level: &str) -> Result<CollectedHost, String> {
        let next_step = if serve.https { https::prepare()? } else { None };
        let is_terminal = std::io::stderr().is_terminal();
        if serve.open && !is_terminal {
            warn!("--open: without a terminal no browser is opened");
        }
        let opens = serve.open && is_terminal;
        let browser = opens.then(|| BrowserOpener::start(log_level)).flatten();
        Ok(CollectedHost { next_step, browser })
    }
}

impl Host for CollectedHost {
    fn set_up(&mut self, config: &Config) -> Result<(), String> {
        log::collected::follow(&config.error_log);
        Ok(())
    }

    fn serves(&mut self, url: Option<&str>) {
        if let Some(next_step) = self.next_step.take() {
            complain(&next_step);
        }
        if let Some((browser, url)) = self.browser.take().zip(url) {
            browser.open(url);
        }
    }

    fn follow(&mut self, config: &Config) -> Option<String> {
        log::collected::follow(&config.error_log);
        None
    }
}

/// How this program was started. An upgrade runs the file that is at the same path then, so links
/// in it are not resolved here.
fn invocation(
    arguments: &[OsString],
    take_over: Option<RawFd>,
    host: CollectedHost,
) -> std::io::Result<Invocation> {
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
    Ok(Invocation { program, arguments, take_over, strict: false, host: Box::new(host) })
}

/// The source on the command line, or else `default_config`, or a site in the folder `here`.
fn source(serve: &Serve, default_config: &Path, here: &Path) -> Option<Source> {
    if let Some(file) = &serve.config {
        return Some(Source::File(file.clone()));
    }
    if let Some(dir) = &serve.dir {
        return Some(Source::Folder(folder::root_in(dir)));
    }
    if default_config.exists() {
        return Some(Source::File(default_config.to_owned()));
    }
    folder::root_here(here).map(Source::Folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(here: &Path) -> Option<Source> {
        source(&Serve::default(), &here.join("maitred.toml"), here)
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
