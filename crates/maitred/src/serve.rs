//! `maitred serve`: which configuration is meant, and the supervisor that serves it.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maitred_config::{Config, Mistakes};
use tracing::info;

use crate::command::Serve;
use crate::{EXIT_FAILURE, EXIT_SUCCESS, fail, refuse};

/// The configuration file that is looked for where none is named.
pub const DEFAULT_CONFIG: &str = "/etc/maitred/maitred.toml";

/// Folders that are looked for a site where nothing is named.
const DEFAULT_ROOTS: [&str; 2] = ["public", "."];

/// Files that make a folder a site.
const INDEXES: [&str; 2] = ["index.php", "index.html"];

/// What is to be served.
#[derive(Debug, PartialEq, Eq)]
enum Source {
    File(PathBuf),
    Folder(PathBuf),
}

/// Serves until the server is stopped.
pub fn serve(serve: Serve, log_level: &str) -> ExitCode {
    let Some(source) = source(&serve, Path::new(DEFAULT_CONFIG), Path::new("")) else {
        return refuse(
            &"there is nothing to serve: neither public/ nor this folder holds an index.php or \
              index.html, and there is no /etc/maitred/maitred.toml; name a folder, as in \
              `maitred serve DIR`",
        );
    };
    let source = maitred_supervisor::Source::new(move || {
        configuration(&serve, &source).map_err(|mistakes| mistakes.to_string())
    });
    match maitred_supervisor::serve(source, log_level) {
        Ok(0) => ExitCode::from(EXIT_SUCCESS),
        Ok(_) => ExitCode::from(EXIT_FAILURE),
        Err(error) if error.is_configuration() => refuse(&error),
        Err(error) => fail(&error),
    }
}

/// What is named, or else what is found: `default_config`, or a site in the folder `here`.
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
    let listen = serve.listen.clone();
    match source {
        Source::File(file) => {
            info!("configuration: {}", file.display());
            let config = maitred_config::load(file)?.with_listen(listen);
            serve
                .workers
                .map_or(Ok(config.clone()), |workers| config.with_workers(workers))
        }
        Source::Folder(dir) => Config::for_directory(dir, listen, serve.workers),
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
        assert_eq!(
            found(here),
            Some(Source::Folder(here.join("."))),
            "public/ is empty"
        );
        std::fs::write(here.join("public/index.php"), "").unwrap();
        assert_eq!(found(here), Some(Source::Folder(here.join("public"))));
        std::fs::write(here.join("maitred.toml"), "").unwrap();
        assert_eq!(found(here), Some(Source::File(here.join("maitred.toml"))));
    }
}
