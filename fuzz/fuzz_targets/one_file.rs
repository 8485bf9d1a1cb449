//! A configuration of one file, to import.

use maitred_import::{FileReader, Imported};

/// The file, and nothing beside it.
pub struct OneFile<'t> {
    pub path: &'t str,
    pub text: &'t str,
}

impl FileReader for OneFile<'_> {
    fn read(&self, path: &str) -> Result<String, String> {
        match path == self.path {
            true => Ok(self.text.to_owned()),
            false => Err("there is none".to_owned()),
        }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        vec![pattern.to_owned()]
    }

    fn resolved(&self, _path: &str) -> Option<String> {
        None
    }
}

/// What is imported is a `maitred.toml`, and the report says of what.
pub fn check(imported: Result<Imported, String>) {
    match imported {
        Ok(imported) => {
            toml::from_str::<toml::Table>(&imported.toml).expect("it is TOML");
            assert!(!imported.report.findings().is_empty());
        }
        Err(why) => assert!(!why.is_empty()),
    }
}
