//! `maitred top`: the status of servers on the terminal, refreshed every second.

mod choices;
mod frame;
mod log_view;
mod tailed_log;
mod watched_servers;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};
use maitred_os::signals::{self, Awaited, Signal};

use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, fail, refuse};
use crate::view;

use choices::{AfterKey, Choices, Tab};
use frame::Size;
use watched_servers::Servers;

/// Refresh interval.
const REFRESH: Duration = Duration::from_secs(1);

/// Signals that end it. In raw mode Control-C is a key; from other processes SIGINT is a signal.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Arguments of `maitred top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Print once and exit
    #[arg(long)]
    pub once: bool,
    /// Show each idle pool on a line of its own, from the start
    #[arg(long)]
    pub all: bool,
    /// Watch the server with this admin socket as well; may be given several times
    #[arg(long = "and", value_name = "PATH")]
    pub others: Vec<PathBuf>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Most servers that are watched together.
const MAX_SERVERS: usize = 8;

/// Shows the servers until q is pressed.
pub fn top(top: &Top) -> ExitCode {
    if top.others.len() >= MAX_SERVERS {
        return refuse(&format!("--and: at most {MAX_SERVERS} servers are watched together"));
    }
    let shown = Servers::reach(&top.reach, &top.others).and_then(|servers| {
        let choices = Choices { all: top.all, ..Choices::default() };
        let mut watch = Monitor { servers, choices };
        watch.servers.refresh()?;
        if top.once || !io::stdout().is_terminal() {
            let lines = watch.servers.lines(&watch.choices, view::screen_columns());
            let _ = writeln!(io::stdout(), "{}", lines.join("\n"));
            return Ok(());
        }
        restore_on_signals().map_err(|why| format!("cannot wait for signals: {why}"))?;
        let screen = Screen::take().map_err(unusable)?;
        let ended = watch.until_quit();
        drop(screen);
        ended
    });
    match shown {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(why) => fail(&why),
    }
}

fn unusable(why: io::Error) -> String {
    format!("the terminal cannot be used: {why}")
}

/// The watched servers, and what the keys have chosen.
struct Monitor {
    servers: Servers,
    choices: Choices,
}

impl Monitor {
    fn until_quit(&mut self) -> Result<(), String> {
        let mut until = Instant::now() + REFRESH;
        loop {
            self.draw().map_err(unusable)?;
            let left = until.saturating_duration_since(Instant::now());
            if event::poll(left).map_err(unusable)? {
                let event = event::read().map_err(unusable)?;
                let tab = self.choices.tab;
                if self.handle(&event) == AfterKey::Quit {
                    return Ok(());
                }
                if tab != self.choices.tab {
                    self.refresh_logs();
                }
                continue;
            }
            if !self.choices.is_paused {
                self.servers.refresh()?;
                self.refresh_logs();
            }
            until = Instant::now() + REFRESH;
        }
    }

    /// Looks at the logs while they are shown, and not while earlier lines are looked at.
    fn refresh_logs(&mut self) {
        if self.choices.tab == Tab::Logs && self.choices.scrolled == 0 {
            self.servers.refresh_logs();
        }
    }

    fn handle(&mut self, event: &Event) -> AfterKey {
        let page = terminal::size().map_or(1, |(_, rows)| usize::from(rows / 2).max(1));
        let Event::Key(key) = event else {
            return AfterKey::Continue;
        };
        if key.kind == KeyEventKind::Release {
            return AfterKey::Continue;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return AfterKey::Quit;
        }
        self.choices.press(key.code, page, self.servers.count())
    }

    fn draw(&mut self) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let size = Size { columns: columns.into(), rows: rows.into() };
        draw(&self.servers.screen(&mut self.choices, size))
    }
}

/// Draws lines that fit, from the top left corner.
fn draw(lines: &[String]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0))?;
    for (row, line) in (0..).zip(lines) {
        queue!(
            out,
            cursor::MoveTo(0, row),
            style::Print(line),
            terminal::Clear(terminal::ClearType::UntilNewLine)
        )?;
    }
    queue!(out, terminal::Clear(terminal::ClearType::FromCursorDown))?;
    out.flush()
}

/// The terminal in raw mode. It is restored however the program ends.
struct Screen;

impl Screen {
    fn take() -> io::Result<Screen> {
        terminal::enable_raw_mode()?;
        let screen = Screen;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&mut io::stdout());
    }
}

fn restore(out: &mut impl Write) {
    let _ = execute!(out, cursor::Show, terminal::LeaveAlternateScreen);
    let _ = terminal::disable_raw_mode();
}

/// Restores the terminal at once when a signal ends the program: a thread waits for it, since the
/// main thread may be waiting for the server.
fn restore_on_signals() -> io::Result<()> {
    let signals = Awaited::take_over(&ENDING)?;
    std::thread::Builder::new().spawn(move || {
        let signal = signals.wait();
        // While this is held, nothing is drawn.
        let mut out = io::stdout().lock();
        restore(&mut out);
        if let Ok(signal) = signal {
            signals::end_by(signal);
        }
        std::process::exit(1)
    })?;
    Ok(())
}
