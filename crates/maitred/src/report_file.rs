//! Files of a report.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::exit_code::print_line;

/// `--json` of a command.
#[derive(Debug, Clone, Default, Args)]
pub struct JsonOption {
    /// Print JSON instead of text, or with =FILE write it to a file as well
    #[arg(
        long,
        value_name = "FILE",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "-"
    )]
    json: Option<PathBuf>,
}

impl JsonOption {
    /// Whether JSON is printed instead of text.
    pub fn is_stdout(&self) -> bool {
        self.json.as_deref() == Some(Path::new("-"))
    }

    /// The file for JSON.
    pub fn file(&self) -> Option<&Path> {
        self.json.as_deref().filter(|_| !self.is_stdout())
    }

    /// Prints `json` or `text`, and writes the file.
    ///
    /// # Errors
    /// One sentence, if the file cannot be written.
    pub fn publish(&self, json: &str, text: impl FnOnce() -> String) -> Result<(), String> {
        if self.is_stdout() {
            print_line(json);
            return Ok(());
        }
        print_line(&text());
        self.file().map_or(Ok(()), |file| write(file, &format!("{json}\n")))
    }
}

/// Checks that a file of the report can be written, before a long run.
///
/// # Errors
/// One sentence.
pub fn check(file: &Path) -> Result<(), String> {
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.map(drop).map_err(|why| unwritable(file, &why))
}

/// Writes a file of the report.
///
/// # Errors
/// One sentence.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    std::fs::write(file, text).map_err(|why| unwritable(file, &why))
}

fn unwritable(file: &Path, why: &io::Error) -> String {
    format!("{} cannot be written: {why}", file.display())
}
