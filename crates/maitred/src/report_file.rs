//! Files of a report.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::Args;

use crate::exit_code::print_line;

/// Mode of a new file: a report may name what only root reads, such as addresses of access logs.
const REPORT_MODE: u32 = 0o600;

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
    let opened = OpenOptions::new().create(true).append(true).mode(REPORT_MODE).open(file);
    opened.map(drop).map_err(|why| unwritable(file, &why))
}

/// Writes a file of the report, which is its owner's alone if it is new.
///
/// # Errors
/// One sentence.
pub fn write(file: &Path, text: &str) -> Result<(), String> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(REPORT_MODE).open(file);
    let written = opened.and_then(|mut opened| opened.write_all(text.as_bytes()));
    written.map_err(|why| unwritable(file, &why))
}

fn unwritable(file: &Path, why: &io::Error) -> String {
    format!("{} cannot be written: {why}", file.display())
}

#[cfg(test)]
mod tests {
    use std::fs::{Permissions, metadata, read_to_string, set_permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_new_file_is_its_owners_alone_and_another_one_keeps_its_mode() {
        let folder = tempfile::tempdir().expect("a folder");
        let mode = |file: &Path| metadata(file).expect("a file").permissions().mode() & 0o777;
        let (new, checked) = (folder.path().join("new"), folder.path().join("checked"));
        write(&new, "a long text").expect("it can be written");
        check(&checked).expect("it can be written");
        assert_eq!([mode(&new), mode(&checked)], [REPORT_MODE; 2]);
        set_permissions(&new, Permissions::from_mode(0o644)).expect("a file of ours");
        write(&new, "text").expect("it can be written");
        assert_eq!((mode(&new), read_to_string(&new).expect("a file").as_str()), (0o644, "text"));
    }
}
