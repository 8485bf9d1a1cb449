//! `maitred logs`: the lines of the error log about a pool, a command, a schedule or a request.

mod line_filter;
mod log_file;
mod shown_lines;

use std::collections::BTreeSet;
use std::io::{self, BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use clap::Args;
use maitred_control::admin::{Reply, Request};
use maitred_control::log_place::{FoundLog, LogPlace};
use rustix::event::{PollFd, PollFlags, poll};

use crate::client::{Client, UNEXPECTED};
use crate::command::Reach;
use crate::exit_code::{EXIT_SUCCESS, fail, refuse};
use line_filter::{LineFilter, MAX_LINE_BYTES};
use log_file::LogFile;
use shown_lines::{MAX_LINES, ShownLines};

pub use shown_lines::plain;

/// Lines of the journal that are looked through for the last ones.
const JOURNAL_LINES: &str = "20000";

/// Before the position in the journal, which journalctl prints behind the last line.
const CURSOR: &[u8] = b"-- cursor: ";

/// The journal's own socket. Another one is that of a namespace, whose name it does not say.
const JOURNAL: &str = "/run/systemd/journal/socket";

/// Arguments of `maitred logs`.
#[derive(Debug, Args)]
pub struct LogOptions {
    /// A pool, such as shop, or one of its commands or schedules, such as shop/mails
    #[arg(value_name = "POOL[/NAME]")]
    pub name: Option<String>,
    /// Wait for further lines
    #[arg(short, long)]
    pub follow: bool,
    /// Most lines that are there already
    #[arg(short = 'n', long, value_name = "NUMBER", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(0..=MAX_LINES))]
    pub lines: u32,
    /// Only lines about the request with this id
    #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub request: Option<String>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub reach: Reach,
}

/// Prints the lines.
pub fn logs(asked: &LogOptions) -> ExitCode {
    let mut client = match Client::reach(&asked.reach) {
        Ok(client) => client,
        Err(why) => return fail(&why),
    };
    if let Some(name) = &asked.name {
        match unknown_name(&mut client, name) {
            Ok(None) => {}
            Ok(Some(why)) => return refuse(&why),
            Err(why) => return fail(&why),
        }
    }
    let (place, supervisor) = match client.ask(&Request::FindLog) {
        Ok(Reply::Log(FoundLog { place, supervisor })) => (place, supervisor),
        Ok(Reply::Refused { why }) => return refuse(&why),
        Ok(_) => return fail(&UNEXPECTED),
        Err(why) => return fail(&why),
    };
    let filter = LineFilter::of(asked.name.as_deref(), asked.request.as_deref());
    let output = ShownLines::new(filter, asked.lines);
    match read_log(FoundLog { place, supervisor }, output, asked.follow) {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(why) => fail(&why),
    }
}

/// Why `POOL` or `POOL/NAME` is nothing that the server has, with the names that exist.
///
/// # Errors
/// One sentence, if the server does not reply.
fn unknown_name(client: &mut Client, name: &str) -> Result<Option<String>, String> {
    let (pool, job) = name.split_once('/').unwrap_or((name, ""));
    let server = match client.ask(&Request::Status { pool: Some(pool.to_owned()) })? {
        Reply::Status(server) => server,
        Reply::Refused { why } => return Ok(Some(why)),
        _ => return Err(UNEXPECTED.to_owned()),
    };
    let jobs = server.jobs.iter().filter(|one| one.pool == pool);
    let names: BTreeSet<&str> = jobs.map(|one| one.name.as_str()).collect();
    if job.is_empty() || names.contains(job) {
        return Ok(None);
    }
    if names.is_empty() {
        return Ok(Some(format!("pool `{pool}` has no commands and no schedules")));
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    let names = names.join(", ");
    Ok(Some(format!("pool `{pool}` has no command or schedule `{job}`; expected one of {names}")))
}

/// Where the lines of a log go.
pub trait LogOutput {
    /// Takes a line of the log.
    fn take(&mut self, line: &[u8]);

    /// The lines that are there were taken; from now on they are those that come. Whether more are
    /// wanted.
    fn show_last(&mut self) -> bool;

    /// All lines that have come were taken. Whether more are wanted.
    fn flush(&mut self) -> bool;

    /// Where the complaints of journalctl go.
    fn complaints(&self) -> Stdio;
}

/// Reads the log of a server. With `follows`, until no more is wanted.
///
/// # Errors
/// One sentence, when it cannot be read.
pub fn read_log(
    FoundLog { place, supervisor }: FoundLog,
    output: impl LogOutput,
    follows: bool,
) -> Result<(), String> {
    match source(place, supervisor)? {
        LogSource::File(path) => of_file(&path, output, follows),
        LogSource::Journal(matches) => of_journal(&matches, output, follows),
    }
}

/// Where lines are read.
#[derive(Debug, PartialEq, Eq)]
enum LogSource {
    File(PathBuf),
    /// By these arguments of journalctl(1).
    Journal(Vec<String>),
}

fn source(place: LogPlace, supervisor: i32) -> Result<LogSource, String> {
    match place {
        LogPlace::File(path) => Ok(LogSource::File(path)),
        LogPlace::Journal(socket) if socket == Path::new(JOURNAL) => Ok(of_identifier()),
        LogPlace::Journal(socket) => Err(format!(
            "the log goes to the journal of a namespace ({}); read it with `journalctl \
             --namespace=NAME --identifier=maitred`",
            socket.display()
        )),
        LogPlace::Elsewhere(target) => Err(format!(
            "the log goes to {target}, which only that can read; with `error_log = \
             \"/var/log/maitred/error.log\"` or \"journald\" this command can"
        )),
        LogPlace::Stderr => of_stderr(supervisor),
    }
}

/// Entries of the journal's own protocol, which have no time in their text.
fn of_identifier() -> LogSource {
    let arguments = ["--output=short-iso", "--identifier=maitred"];
    LogSource::Journal(arguments.map(str::to_owned).into())
}

/// Where the standard error output of a process goes.
fn of_stderr(pid: i32) -> Result<LogSource, String> {
    let link = format!("/proc/{pid}/fd/2");
    let target = std::fs::read_link(&link)
        .map_err(|why| format!("it cannot be read where the log goes ({link}: {why})"))?;
    if target.starts_with("/") && !target.starts_with("/dev") && target.is_file() {
        return Ok(LogSource::File(target));
    }
    let shown = target.display().to_string();
    let cgroup = maitred_os::proc::read(pid, "cgroup").unwrap_or_default();
    match service_of(&cgroup) {
        // systemd gives its services a socket of the journal.
        Some(unit) if shown.starts_with("socket:") => {
            // Its lines have their own time. Further ones of a record would not be indented any
            // more behind the journal's.
            Ok(LogSource::Journal(vec!["--output=cat".to_owned(), format!("--unit={unit}")]))
        }
        _ => Err(format!(
            "the log goes to the standard error output of process {pid}, which is {shown}: it can \
             be read where that leads (a terminal, `docker logs`, `kubectl logs`); with \
             `error_log = \"/var/log/maitred/error.log\"` or \"journald\" this command can read it"
        )),
    }
}

/// The service that a process belongs to, by the contents of its file `cgroup`. It may be in a
/// group that the service has made (`Delegate=`).
fn service_of(cgroup: &str) -> Option<&str> {
    let is_unit = |name: &&str| [".service", ".scope"].iter().any(|end| name.ends_with(end));
    // systemd's own hierarchy: the only one, or beside others of the first version.
    let paths = cgroup.lines().filter_map(|line| {
        let named = || line.split_once(":name=systemd:").map(|(_, path)| path);
        line.strip_prefix("0::").or_else(named)
    });
    let mut units = paths.filter_map(|path| path.rsplit('/').find(is_unit));
    units.find(|name| name.ends_with(".service"))
}

fn of_file(path: &Path, mut output: impl LogOutput, follows: bool) -> Result<(), String> {
    let broken = |why| format!("{}: {why}; read it as a user who may", path.display());
    let mut file = LogFile::open(path).map_err(broken)?;
    file.read(&mut |line| output.take(line)).map_err(broken)?;
    let mut is_open = output.show_last();
    while follows && is_open {
        std::thread::sleep(log_file::LOOK_EVERY);
        file.read(&mut |line| output.take(line)).map_err(broken)?;
        is_open = output.flush() && !is_closed();
    }
    Ok(())
}

fn of_journal(matches: &[String], mut output: impl LogOutput, follows: bool) -> Result<(), String> {
    let journal = |arguments: &[&str], complaints: Stdio| {
        let mut command = Command::new("journalctl");
        command.args(["--quiet", "--no-pager"]).args(matches).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(complaints);
        command.spawn().map_err(|why| format!("journalctl cannot be run: {why}"))
    };
    let all = ["--show-cursor", "--lines", JOURNAL_LINES];
    let mut last = journal(&all, output.complaints())?;
    let mut cursor = Vec::new();
    let mut is_empty = true;
    pass(&mut last, &mut |line| {
        is_empty = false;
        // Only that behind the last line is journalctl's own.
        if !cursor.is_empty() {
            output.take(&std::mem::take(&mut cursor));
        }
        match line.starts_with(CURSOR) {
            true => cursor.extend_from_slice(line),
            false => output.take(line),
        }
        true
    });
    let mut ended = last.wait().map_err(|why| why.to_string())?;
    if is_empty && !ended.success() {
        // Of no lines there is no position, which journalctl 252 takes for a failure.
        let none = journal(&["--lines=0"], output.complaints());
        ended = none?.wait().map_err(|why| why.to_string())?;
    }
    if !ended.success() {
        return Err("journalctl has failed; read it as root or as one of group adm".to_owned());
    }
    if !output.show_last() || !follows {
        return Ok(());
    }
    // All lines behind the last one. Without a position there was none.
    let cursor = String::from_utf8_lossy(cursor.strip_prefix(CURSOR).unwrap_or_default());
    let after = (!cursor.is_empty()).then(|| format!("--after-cursor={cursor}"));
    let mut arguments = vec!["--no-tail", "--follow"];
    arguments.extend(after.as_deref());
    let mut next = journal(&arguments, output.complaints())?;
    pass(&mut next, &mut |line| {
        output.take(line);
        output.flush()
    });
    let _ = next.kill();
    let _ = next.wait();
    Ok(())
}

/// Passes on the lines that a program prints, until `take` returns false, or the own output is
/// closed while there are none. Longer ones are cut.
fn pass(child: &mut Child, take: &mut dyn FnMut(&[u8]) -> bool) {
    let Some(stdout) = child.stdout.take() else { return };
    let mut stdout = BufReader::new(stdout);
    loop {
        if stdout.buffer().is_empty() && !waits_for_input(stdout.get_ref()) {
            return;
        }
        let mut line = Vec::new();
        let limit = MAX_LINE_BYTES as u64;
        match Read::by_ref(&mut stdout).take(limit).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) if !take(line.strip_suffix(b"\n").unwrap_or(&line)) => return,
            Ok(_) => {}
        }
    }
}

/// Waits until there is something to read, or the end of the input. Returns false if the own output
/// is closed before.
fn waits_for_input(input: impl AsFd) -> bool {
    let stdout = io::stdout();
    loop {
        // Of an output without any event only its end is reported.
        let mut both =
            [PollFd::new(&input, PollFlags::IN), PollFd::new(&stdout, PollFlags::empty())];
        match poll(&mut both, None) {
            Ok(_) => return both[1].revents().is_empty() || !both[0].revents().is_empty(),
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return false,
        }
    }
}

/// Whether the reader of the own output has closed it, such as `head`.
fn is_closed() -> bool {
    let stdout = io::stdout();
    let mut output = [PollFd::new(&stdout, PollFlags::empty())];
    let at_once = rustix::event::Timespec::default();
    poll(&mut output, Some(&at_once)).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_cannot_be_read_is_said_with_what_to_do() {
        let said = |place| source(place, 1).unwrap_err();
        let syslog = said(LogPlace::Elsewhere("syslog:server=192.0.2.1".to_owned()));
        assert!(syslog.starts_with("the log goes to syslog:server=192.0.2.1, which"), "{syslog}");
        let other = said(LogPlace::Journal("/run/systemd/journal.shop/socket".into()));
        assert!(other.contains("journalctl --namespace=NAME"), "{other}");
        let journal = source(LogPlace::Journal(JOURNAL.into()), 1);
        assert_eq!(journal, Ok(of_identifier()));
        let file = LogPlace::File("/var/log/error.log".into());
        assert_eq!(source(file, 1), Ok(LogSource::File("/var/log/error.log".into())));
    }

    #[test]
    fn the_service_of_a_process_is_found_above_the_groups_that_it_has_made() {
        let service = |path: &str| {
            let cgroup = format!("1:name=other:/other.service\n0::{path}\n");
            service_of(&cgroup).map(str::to_owned)
        };
        let expected = Some("maitred.service".to_owned());
        assert_eq!(service("/system.slice/maitred.service"), expected);
        assert_eq!(service("/system.slice/maitred.service/maitred-supervisor"), expected);
        assert_eq!(service_of("1:name=systemd:/system.slice/a.service\n0::/\n"), Some("a.service"));
        assert_eq!(service("/user.slice/user@0.service/tmux-1.scope"), None);
        assert_eq!(service("/"), None);
    }
}
