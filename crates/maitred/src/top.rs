//! `maitred top`: the server's status on the terminal, refreshed every second.

mod frame;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};
use maitred_control::admin::{Reply, Request, ServerStatus};
use maitred_os::signals::{self, Awaited, Signal};

use crate::client::Client;
use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, fail};
use crate::view::{self, PoolOrder};

use frame::{Choices, Sample, Size};

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
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Shows the server until q is pressed.
pub fn top(top: &Top) -> ExitCode {
    let shown = Client::reach(&top.reach).and_then(|client| {
        let choices =
            Choices { order: PoolOrder::Load, all: top.all, is_paused: false, scrolled: 0 };
        let mut watch = Monitor { client, before: None, choices };
        if top.once || !io::stdout().is_terminal() {
            let lines = watch.sample()?.lines(&choices, view::screen_columns());
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

/// A watched server.
struct Monitor {
    client: Client,
    /// The number of requests at the last refresh, and its time.
    before: Option<(u64, Instant)>,
    choices: Choices,
}

impl Monitor {
    fn until_quit(&mut self) -> Result<(), String> {
        let mut sample = self.sample()?;
        let mut until = Instant::now() + REFRESH;
        loop {
            self.draw(&sample).map_err(unusable)?;
            let left = until.saturating_duration_since(Instant::now());
            if event::poll(left).map_err(unusable)? {
                let event = event::read().map_err(unusable)?;
                if self.handle(&event) == AfterKey::Quit {
                    return Ok(());
                }
                continue;
            }
            if !self.choices.is_paused {
                sample = self.sample()?;
            }
            until = Instant::now() + REFRESH;
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
        let choices = &mut self.choices;
        let scrolled = choices.scrolled;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return AfterKey::Quit,
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                return AfterKey::Quit;
            }
            KeyCode::Char('p') => choices.is_paused = !choices.is_paused,
            KeyCode::Char('s') => choices.order = choices.order.next(),
            KeyCode::Char('a') => choices.all = !choices.all,
            KeyCode::Up | KeyCode::Char('k') => choices.scrolled = scrolled.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => choices.scrolled = scrolled.saturating_add(1),
            KeyCode::PageUp => choices.scrolled = scrolled.saturating_sub(page),
            KeyCode::PageDown => choices.scrolled = scrolled.saturating_add(page),
            KeyCode::Home => choices.scrolled = 0,
            KeyCode::End => choices.scrolled = usize::MAX,
            _ => {}
        }
        AfterKey::Continue
    }

    fn sample(&mut self) -> Result<Sample, String> {
        match self.client.ask(&Request::Status { pool: None })? {
            Reply::Status(server) => {
                let rate = self.rate(&server);
                Ok(Sample { server: *server, rate })
            }
            Reply::Refused { why } => Err(why),
            _ => Err(crate::client::UNEXPECTED.to_owned()),
        }
    }

    /// Requests per second since the last refresh, or since the server's start.
    fn rate(&mut self, server: &ServerStatus) -> f64 {
        let now = Instant::now();
        let requests: u64 = server.pools.iter().map(|pool| pool.requests).sum();
        let (more, seconds) = match self.before.replace((requests, now)) {
            Some((before, at)) => (requests.saturating_sub(before), (now - at).as_secs_f64()),
            None => (requests, server.uptime_seconds),
        };
        more as f64 / seconds.max(0.001)
    }

    fn draw(&mut self, sample: &Sample) -> io::Result<()> {
        let (columns, rows) = terminal::size()?;
        let size = Size { columns: columns.into(), rows: rows.into() };
        draw(&sample.screen(&mut self.choices, size))
    }
}

/// What a key leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AfterKey {
    Continue,
    Quit,
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
