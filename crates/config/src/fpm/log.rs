//! php-fpm's messages about errors in its configuration files.

use std::io;

use crate::model::fpm::Level;

/// The lines so far.
#[derive(Debug, Default)]
pub(super) struct Log(pub(super) Vec<(Level, String)>);

/// The configuration is refused; the reason is logged.
#[derive(Debug)]
pub(super) struct Refused;

impl Log {
    pub(super) fn debug(&mut self, text: String) {
        self.0.push((Level::Debug, text));
    }

    pub(super) fn notice(&mut self, text: String) {
        self.0.push((Level::Notice, text));
    }

    pub(super) fn warning(&mut self, text: String) {
        self.0.push((Level::Warning, text));
    }

    pub(super) fn error(&mut self, text: impl Into<String>) -> Refused {
        self.0.push((Level::Error, text.into()));
        Refused
    }

    pub(super) fn alert(&mut self, text: String) -> Refused {
        self.0.push((Level::Alert, text));
        Refused
    }
}

/// A system error as the end of a line in php-fpm's log (`ZLOG_SYSERROR`).
pub(super) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match (error.raw_os_error(), text.split_once(" (os error")) {
        (Some(code), Some((text, _))) => format!("{text} ({code})"),
        _ => text,
    }
}
