//! Files of a report.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;

/// Whether `--json` goes to standard output.
pub fn is_stdout(json: Option<&Path>) -> bool {
    json == Some(Path::new("-"))
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
