//! The command `maitred`: subcommands, messages and exit codes.

mod acme;
mod bench;
mod check;
mod client;
mod command;
mod doctor;
mod exit_code;
mod explain;
mod foreign_words;
mod fpm;
mod front;
mod import;
mod jobs;
mod leaks;
mod log;
mod log_lines;
mod log_opener;
mod man_pages;
mod memory_reader;
mod octane;
mod pipe_reader;
mod private_server;
mod profile_command;
mod purge;
mod purge_log;
mod report_file;
mod serve;
mod slowlog_writer;
mod status;
mod status_diff;
mod top;
mod trust;
mod tune;
mod version_command;
mod view;
mod wait_ready;
mod warm;
mod wordpress_cron;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;

use maitred_control::admin::Request;

use command::{Command, Maitred};
use exit_code::refuse;

fn main() -> ExitCode {
    // Before the process title overwrites them.
    let arguments: Vec<OsString> = std::env::args_os().collect();
    maitred_os::title::prepare();
    // The file size limit is to be an error, as a full disk is, not a fatal signal: logs resume
    // later, pages are cached in memory, `tune` restores its changes.
    maitred_os::signals::ignore_sigxfsz();
    if let Some(started) = fpm::is_meant(&arguments) {
        return fpm::run(started);
    }
    if octane::is_meant(&arguments) {
        return octane::run(&arguments);
    }
    let Maitred { log_level, command } = match Maitred::try_parse_from(&arguments) {
        Ok(parsed) => parsed,
        Err(error) if error.kind() == ErrorKind::DisplayVersion => {
            return version_command::version();
        }
        Err(error) => match foreign_words::advice(&error, &arguments) {
            Some(advice) => return refuse(&advice),
            None => error.exit(),
        },
    };
    if let Some(role) = role_of(&command)
        && log::follow_fpm()
    {
        return role();
    }
    let log_level = match log::set_up(log_level) {
        Ok(log_level) => log_level,
        Err(why) => return refuse(&why),
    };
    match command {
        Command::Serve(serve) => serve::serve(serve, &arguments, &log_level),
        Command::Check(check) => check::check(&check),
        Command::Explain(asked) => explain::explain(&asked),
        Command::Status(asked) => status::status(&asked),
        Command::Commands(asked) => jobs::commands(&asked),
        Command::Run(asked) => jobs::run(&asked),
        Command::Logs(asked) => log_lines::logs(&asked),
        Command::Diff(asked) => status_diff::diff(&asked),
        Command::Top(asked) => top::top(&asked),
        Command::Wait(asked) => wait_ready::wait(&asked),
        Command::Profile(asked) => profile_command::profile(&asked),
        Command::Reload(asked) => status::reload(&asked),
        Command::Stop(reach) => status::end(&reach, &Request::Stop),
        Command::Drain(reach) => status::end(&reach, &Request::Drain),
        Command::Purge(asked) => purge::purge(&asked),
        Command::Warm(asked) => warm::warm(&asked),
        Command::Leaks(asked) => leaks::leaks(&asked),
        Command::Bench(asked) => bench::bench(&asked),
        Command::Doctor(asked) => doctor::doctor(&asked),
        Command::Tune(asked) => tune::tune(&asked),
        Command::Import(asked) => import::import(&asked),
        Command::Trust(asked) => trust::trust(&asked),
        Command::Octane(asked) => octane::install::octane(&asked),
        Command::Fpm(_) => refuse(&"`fpm` comes first: maitred fpm [FLAGS]"),
        Command::Completions { shell } => man_pages::completions(shell),
        Command::Manual { folder } => man_pages::manual(&folder),
        Command::Front => front::front(),
        Command::Acme => acme::acme(),
        Command::SharedCertificates => acme::shared_certificates(),
        Command::PurgeLog => purge_log::purge_log(),
        Command::MemoryReader => memory_reader::memory_reader(),
        Command::SlowlogWriter => slowlog_writer::slowlog_writer(),
        Command::LogOpener => log_opener::log_opener(),
        Command::PipeReader => pipe_reader::pipe_reader(),
        Command::OpenBrowser => serve::open_browser::run(),
    }
}

/// The processes of ours that a server has that was started as php-fpm.
fn role_of(command: &Command) -> Option<fn() -> ExitCode> {
    match command {
        Command::Front => Some(front::front),
        Command::MemoryReader => Some(memory_reader::memory_reader),
        Command::PipeReader => Some(pipe_reader::pipe_reader),
        Command::SlowlogWriter => Some(slowlog_writer::slowlog_writer),
        Command::LogOpener => Some(log_opener::log_opener),
        _ => None,
    }
}
