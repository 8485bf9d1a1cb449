//! Errors of `maitred bench`.

/// The error of a command.
#[derive(Debug)]
pub enum BenchError {
    /// The command line is wrong.
    Usage(String),
    /// The command failed.
    Now(String),
}

impl From<String> for BenchError {
    fn from(why: String) -> BenchError {
        BenchError::Usage(why)
    }
}
