//! php-fpm's `-v`, `-m` and `-i`, the default of `-y`, and values of php.ini: run by `maitred fpm`
//! from this program, which has PHP.

use std::io::{self, BufRead, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use maitred_php::{Engine, PHP_BRANCH, Settings, Show};

use crate::zygote::fpm_folder;

/// Arguments: the requested information, then `-c FILE`, `-n` and `-d NAME=VALUE`.
pub fn run(mut arguments: impl Iterator<Item = String>) -> ExitCode {
    let what = arguments.next().unwrap_or_default();
    let engine = match Engine::start(&settings(arguments)) {
        Ok(engine) => engine,
        Err(why) => {
            eprintln!("php-fpm: {why}");
            return ExitCode::FAILURE;
        }
    };
    let show = match what.as_str() {
        "version" => Show::Version,
        "modules" => Show::Modules,
        "phpinfo" => Show::Info,
        "entries" => {
            return match tell_entries(&engine) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        _ => {
            println!("{PHP_BRANCH}\n{}", engine.fpm_config().unwrap_or_default());
            return ExitCode::SUCCESS;
        }
    };
    if engine.show(show) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Replies to each line, a name of php.ini, with its value after a `=`, or with nothing, and a NUL.
fn tell_entries(engine: &Engine) -> io::Result<()> {
    for name in io::stdin().lock().lines() {
        let value = engine.configured(&name?);
        let value = value.map_or_else(String::new, |value| format!("={value}"));
        let mut out = io::stdout().lock();
        write!(out, "{value}\0")?;
        out.flush()?;
    }
    Ok(())
}

fn settings(mut arguments: impl Iterator<Item = String>) -> Settings {
    let fpm = fpm_folder();
    let beside = |name: &str| fpm.as_ref().map(|folder| folder.join(name));
    let mut settings = Settings {
        ini_scan_dir: match std::env::var_os("PHP_INI_SCAN_DIR") {
            Some(_) => None,
            None => beside("conf.d"),
        },
        fpm: true,
        ..Settings::default()
    };
    while let Some(flag) = arguments.next() {
        match flag.as_str() {
            "-c" => settings.ini_path = arguments.next().map(PathBuf::from),
            "-n" => settings.no_ini_files = true,
            _ => {
                let define = arguments.next().unwrap_or_default();
                let (name, value) = define.split_once('=').unwrap_or((&define, "1"));
                let define = (name.to_owned(), value.to_owned());
                settings.defines.push(define);
            }
        }
    }
    if !settings.no_ini_files {
        settings.ini_path = settings.ini_path.or_else(|| beside("php.ini"));
    }
    settings
}
