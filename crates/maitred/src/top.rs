//! `maitred top`: the server's status on the terminal, refreshed every second.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use crossterm::{cursor, execute, queue, style, terminal};
use maitred_control::admin::{Reply, Request, ServerStatus};
use maitred_os::signals::{self, Awaited, Signal};

use crate::client::Client;
use crate::command::Top;
use crate::exit_code::{EXIT_SUCCESS, fail};
use crate::view;

/// Refresh interval.
const REFRESH: Duration = Duration::from_secs(1);

/// Most running scripts that are shown.
const MAX_SCRIPTS: usize = 100;

/// Signals that end it. In raw mode Control-C is a key; from other processes SIGINT is a signal.
const ENDING: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// Shows the server until q is pressed.
pub fn top(top: &Top) -> ExitCode {
    let shown = Client::reach(&top.reach).and_then(|client| {
        let mut watch = Monitor { client, before: None };
        if top.once || !io::stdout().is_terminal() {
            let lines = watch.frame()?;
            let _ = writeln!(io::stdout(), "{}", lines.join("\n"));
            return Ok(());
        }
        restore_on_signals().map_err(|why| format!("cannot wait for signals: {why}"))?;
        let screen = Screen::take().map_err(|why| format!("the terminal cannot be used: {why}"))?;
        let ended = watch.until_quit();
        drop(screen);
        ended
    });
    match shown {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(why) => fail(&why),
    }
}

/// A watched server.
struct Monitor {
    client: Client,
    /// The number of requests at the last refresh, and its time.
    before: Option<(u64, Instant)>,
}

impl Monitor {
    fn until_quit(&mut self) -> Result<(), String> {
        let unusable = |why: io::Error| format!("the terminal cannot be used: {why}");
        let mut paused = false;
        loop {
            if !paused {
                let lines = self.frame()?;
                draw(&lines).map_err(unusable)?;
            }
            let until = Instant::now() + REFRESH;
            while event::poll(until.saturating_duration_since(Instant::now())).map_err(unusable)? {
                match event::read().map_err(unusable)? {
                    Event::Key(key) if key.kind == KeyEventKind::Press => match key.code {
                        KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                            return Ok(());
                        }
                        KeyCode::Char('p') => paused = !paused,
                        _ => {}
                    },
                    Event::Resize(..) => break,
                    _ => {}
                }
            }
        }
    }

    fn frame(&mut self) -> Result<Vec<String>, String> {
        match self.client.ask(&Request::Status { pool: None })? {
            Reply::Status(server) => {
                let mut lines = view::overview(&server);
                lines.extend(view::split(&server));
                let rate = self.rate(&server);
                lines.push(format!("{rate}; q quits, p pauses"));
                lines.extend(view::copies(&server));
                lines.extend(view::page_cache(&server));
                lines.extend(view::proxies(&server));
                lines.extend(view::running(&server, MAX_SCRIPTS));
                Ok(lines)
            }
            Reply::Refused { why } => Err(why),
            _ => Err(crate::client::UNEXPECTED.to_owned()),
        }
    }

    /// Requests per second since the last refresh, or since the server's start.
    fn rate(&mut self, server: &ServerStatus) -> String {
        let now = Instant::now();
        let requests: u64 = server.pools.iter().map(|pool| pool.requests).sum();
        let (more, seconds) = match self.before.replace((requests, now)) {
            Some((before, at)) => (requests.saturating_sub(before), (now - at).as_secs_f64()),
            None => (requests, server.uptime_seconds),
        };
        format!("{:.1} requests/s", more as f64 / seconds.max(0.001))
    }
}

/// Draws as many lines as fit, from the top left corner.
fn draw(lines: &[String]) -> io::Result<()> {
    let (columns, rows) = terminal::size()?;
    let mut out = io::stdout().lock();
    queue!(out, cursor::MoveTo(0, 0))?;
    for (row, line) in (0..rows).zip(lines) {
        let line: String = line.chars().take(columns.into()).collect();
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
