//! Live progress of a run on the terminal. Each update overwrites the one before, and the last is
//! erased; the terminal stays in its normal mode.

use std::io::{self, IsTerminal, Write};

use crossterm::{cursor, queue, style, terminal};
use maitred_measure::generate::Progress;
use maitred_measure::live;

/// The display, if standard error is a terminal.
pub struct Live {
    url: String,
    drawn: u16,
    shown: bool,
}

impl Live {
    /// The display of a run against `url`.
    pub fn new(url: &str) -> Live {
        Live { url: url.to_owned(), drawn: 0, shown: io::stderr().is_terminal() }
    }

    /// Draws the progress. After a failure it draws nothing more.
    pub fn show(&mut self, progress: &Progress<'_>) {
        if self.shown {
            self.shown = self.draw(&live::picture(progress, &self.url)).is_ok();
        }
    }

    fn draw(&mut self, lines: &[String]) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let mut out = io::stderr().lock();
        self.go_back(&mut out)?;
        // The last row is where the cursor stays.
        for line in lines.iter().take(rows.saturating_sub(1).into()) {
            let line: String = line.chars().take(columns.into()).collect();
            let rest = terminal::Clear(terminal::ClearType::UntilNewLine);
            queue!(out, style::Print(line), rest, style::Print("\r\n"))?;
            self.drawn += 1;
        }
        out.flush()
    }

    fn go_back(&mut self, out: &mut impl Write) -> io::Result<()> {
        let drawn = std::mem::take(&mut self.drawn);
        if drawn > 0 {
            queue!(out, cursor::MoveToPreviousLine(drawn))?;
        }
        Ok(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let mut out = io::stderr().lock();
        if self.drawn > 0 && self.go_back(&mut out).is_ok() {
            let _ = queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown));
            let _ = out.flush();
        }
    }
}
