//! The files of a test that has one.

use crate::FileReader;

/// One file, under any name.
pub struct OnlyFile(pub String);

impl FileReader for OnlyFile {
    fn read(&self, _: &str) -> Result<String, String> {
        Ok(self.0.clone())
    }

    fn glob(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn resolved(&self, _: &str) -> Option<String> {
        None
    }
}
