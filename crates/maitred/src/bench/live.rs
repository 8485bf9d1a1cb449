//! A run on the terminal while it goes on. The picture is drawn over the one before and taken away
//! at the end; the terminal is in no mode that somebody would have to give back.

use std::io::{self, IsTerminal, Write};

use crossterm::{cursor, queue, style, terminal};
use maitred_measure::generate::Progress;
use maitred_measure::live;

/// What is drawn, if standard error is a terminal.
pub struct Live {
    url: String,
    drawn: u16,
    shown: bool,
}

impl Live {
    /// Of a run that asks for this.
    pub fn new(url: &str) -> Live {
        Live {
            url: url.to_owned(),
            drawn: 0,
            shown: io::stderr().is_terminal(),
        }
    }

    /// Draws how it is going. Where that fails, nothing more is drawn.
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
