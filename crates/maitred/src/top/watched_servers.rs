//! The servers that `maitred top` watches.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use maitred_control::admin::{Reply, Request, ServerStatus};
use maitred_text::humanize::shorten;

use crate::client::Client;
use crate::command::Reach;
use crate::top::choices::{Choices, Tab};
use crate::top::frame::{Sample, Size, log_screen};
use crate::top::log_view::{self, short_names};
use crate::top::tailed_log::{LogEnd, TailedLog};

/// How long a server that has not replied is left alone.
const RETRY: Duration = Duration::from_secs(10);

/// A watched server.
struct TopServer {
    /// Its name, where there are several.
    name: String,
    /// None: it is reached again at the next refresh.
    client: Option<Client>,
    path: Option<PathBuf>,
    /// The number of requests at the last refresh, and its time.
    before: Option<(u64, Instant)>,
    /// One that has not replied is not asked before this time.
    retry_at: Option<Instant>,
    /// What it has reported last, or why there is nothing.
    sample: Result<Sample, String>,
    /// Its log, from the first look at it on.
    log: Option<TailedLog>,
    /// What of the log is shown.
    log_end: LogEnd,
}

/// The watched servers, at least one.
pub struct Servers(Vec<TopServer>);

impl Servers {
    /// Connects to the server that the options select, and to those with these admin sockets.
    ///
    /// # Errors
    /// As [`Client::reach`], for the first one.
    pub fn reach(reach: &Reach, others: &[PathBuf]) -> Result<Servers, String> {
        let server = |client: Option<Client>, path: &Path| TopServer {
            name: path.display().to_string(),
            client,
            path: Some(path.to_owned()),
            before: None,
            retry_at: None,
            sample: Err(String::new()),
            log: None,
            log_end: LogEnd::default(),
        };
        let first = Client::reach(reach)?;
        let path = first.path().to_owned();
        let others = others.iter().map(|path| server(Client::connect(Some(path)).ok(), path));
        Ok(Servers([server(Some(first), &path)].into_iter().chain(others).collect()))
    }

    /// Their number.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// Asks all for their status.
    ///
    /// # Errors
    /// Why a single server does not reply. One of several is shown without a status.
    pub fn refresh(&mut self) -> Result<(), String> {
        let is_single = self.0.len() == 1;
        let is_due = |server: &TopServer| server.retry_at.is_none_or(|at| at <= Instant::now());
        for server in self.0.iter_mut().filter(|server| is_due(server)) {
            server.sample = server.ask();
            if let (Err(why), true) = (&server.sample, is_single) {
                return Err(why.clone());
            }
            if server.sample.is_err() {
                // It may have been restarted. One that hangs must not hold the keys up each time.
                server.client = None;
                server.retry_at = Some(Instant::now() + RETRY);
            } else {
                server.retry_at = None;
            }
        }
        Ok(())
    }

    /// Reads what the logs have by now. They are followed from the first time on.
    pub fn refresh_logs(&mut self) {
        for server in &mut self.0 {
            let path = server.path.clone().unwrap_or_default();
            let log = server.log.get_or_insert_with(|| TailedLog::follow(path));
            server.log_end = log.read();
        }
    }

    /// All lines of the first server, for an output that is no screen, after a line for each if
    /// there are several.
    pub fn lines(&self, choices: &Choices, columns: usize) -> Vec<String> {
        let mut lines = self.overview(choices, columns);
        for server in &self.0 {
            match &server.sample {
                Ok(sample) => lines.extend(sample.lines(choices, columns)),
                Err(why) => lines.push(why.clone()),
            }
        }
        lines
    }

    /// The lines of a screen: those of the chosen server, after a line for each if there are
    /// several.
    pub fn screen(&self, choices: &mut Choices, size: Size) -> Vec<String> {
        let mut lines = self.overview(choices, size.columns);
        if choices.tab == Tab::Logs {
            return self.log_screen(lines, choices, size);
        }
        let rows = size.rows.saturating_sub(lines.len());
        match self.0.get(choices.server).map(|server| &server.sample) {
            Some(Ok(sample)) => lines.extend(sample.screen(choices, Size { rows, ..size })),
            Some(Err(why)) => lines.push(shorten(why, size.columns)),
            None => {}
        }
        lines.truncate(size.rows);
        lines
    }

    /// The logs of all servers, below these lines.
    fn log_screen(&self, mut lines: Vec<String>, choices: &mut Choices, size: Size) -> Vec<String> {
        match self.0.get(choices.server).map(|server| &server.sample) {
            Some(Ok(sample)) => lines.extend(sample.head(size.columns)),
            Some(Err(why)) => lines.extend([shorten(why, size.columns), String::new()]),
            None => {}
        }
        let paths: Vec<&Path> = self.0.iter().filter_map(|one| one.path.as_deref()).collect();
        let ends: Vec<&LogEnd> = self.0.iter().map(|server| &server.log_end).collect();
        let names = short_names(&paths);
        let rows = log_view::rows(&ends, &names, &choices.filter, size.columns);
        log_screen(lines, &rows, choices, size)
    }

    fn overview(&self, choices: &Choices, columns: usize) -> Vec<String> {
        if self.0.len() == 1 {
            return Vec::new();
        }
        let line = |(index, server): (usize, &TopServer)| {
            let mark = if index == choices.server { '>' } else { ' ' };
            let state = match &server.sample {
                Ok(sample) => sample.summary(),
                Err(why) => why.clone(),
            };
            shorten(&format!("{mark} {}: {state}", server.name), columns)
        };
        self.0.iter().enumerate().map(line).collect()
    }
}

impl TopServer {
    fn ask(&mut self) -> Result<Sample, String> {
        if self.client.is_none() {
            self.client = Some(Client::connect(self.path.as_deref())?);
        }
        let Some(client) = &mut self.client else {
            return Err(String::new());
        };
        match client.ask(&Request::Status { pool: None })? {
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
}
