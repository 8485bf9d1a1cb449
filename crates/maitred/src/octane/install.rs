//! `maitred octane install`: maitred as `frankenphp` in a Laravel application.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::exit_code::{EXIT_SUCCESS, print_line, refuse};

/// The name that Octane looks for.
const NAME: &str = "frankenphp";

/// Arguments of `maitred octane`.
#[derive(Debug, Args)]
pub struct OctaneOptions {
    /// The subcommand.
    #[command(subcommand)]
    pub command: OctaneSubcommand,
}

/// A subcommand of `maitred octane`.
#[derive(Debug, Subcommand)]
pub enum OctaneSubcommand {
    /// Make the link `frankenphp` to maitred in a Laravel application
    Install {
        /// The application, with its `artisan`
        #[arg(value_name = "FOLDER", default_value = ".")]
        folder: PathBuf,
    },
}

/// Makes the link.
pub fn octane(options: &OctaneOptions) -> ExitCode {
    let OctaneSubcommand::Install { folder } = &options.command;
    match std::env::current_exe().map_err(|why| why.to_string()) {
        Ok(program) => match install(folder, &program) {
            Ok(line) => {
                print_line(&line);
                ExitCode::from(EXIT_SUCCESS)
            }
            Err(why) => refuse(&why),
        },
        Err(why) => refuse(&format!("the file of this program cannot be found: {why}")),
    }
}

fn install(folder: &Path, program: &Path) -> Result<String, String> {
    if !folder.join("artisan").is_file() {
        let folder = folder.display();
        return Err(format!("{folder} has no `artisan`; expected the folder of an application"));
    }
    let link = folder.join(NAME);
    match std::os::unix::fs::symlink(program, &link) {
        Ok(()) => {}
        Err(why) if why.kind() == ErrorKind::AlreadyExists => {
            if std::fs::read_link(&link).is_ok_and(|target| target == program) {
                return Ok(format!("{} is maitred already", link.display()));
            }
            let link = link.display();
            return Err(format!("{link} exists; remove it if maitred is to take its place"));
        }
        Err(why) => return Err(format!("{} cannot be made: {why}", link.display())),
    }
    let link = link.display();
    Ok(format!("{link} is maitred; next: php artisan octane:start --server=frankenphp"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_made_in_an_application_and_replaces_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let program = Path::new("/usr/bin/maitred");
        assert!(install(folder.path(), program).unwrap_err().contains("artisan"));
        std::fs::write(folder.path().join("artisan"), "").unwrap();
        assert!(install(folder.path(), program).is_ok());
        assert!(install(folder.path(), program).unwrap().ends_with("already"));
        assert!(install(folder.path(), Path::new("/bin/true")).unwrap_err().contains("exists"));
        assert_eq!(std::fs::read_link(folder.path().join(NAME)).unwrap(), program);
    }
}
