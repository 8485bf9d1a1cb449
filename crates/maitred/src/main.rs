//! The command `maitred`: words for people, exit codes, and which role this process plays.

mod acme;
mod bench;
mod check;
mod client;
mod command;
mod doctor;
mod explain;
mod fpm;
mod front;
mod leaks;
mod log;
mod purge;
mod serve;
mod status;
mod top;
mod tune;
mod view;
mod warm;

use std::ffi::OsString;
use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use maitred_control::admin::Request;

use command::{Command, Maitred};

/// All went well.
const EXIT_SUCCESS: u8 = 0;

/// What was asked for is right, and could not be done here and now.
const EXIT_FAILURE: u8 = 1;

/// What was asked for is wrong: usage or configuration. Clap's own code for usage errors.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    // Collected before the title, which is written over them.
    let arguments: Vec<OsString> = std::env::args_os().collect();
    maitred_os::title::prepare();
    // A file that may not grow any more is an error as a full disk is: a log goes on later, a page is kept
    // in memory, what `tune` has changed is changed back.
    maitred_os::signals::ignore_sigxfsz();
    if let Some(started) = fpm::is_meant(&arguments) {
        return fpm::run(started);
    }
    let Maitred { log_level, command } = Maitred::parse_from(&arguments);
    if matches!(command, Command::Front) && log::follow_fpm() {
        return front::front();
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
        Command::Top(asked) => top::top(&asked),
        Command::Reload(asked) => status::reload(&asked),
        Command::Stop(reach) => status::end(&reach, &Request::Stop),
        Command::Drain(reach) => status::end(&reach, &Request::Drain),
        Command::Purge(asked) => purge::purge(&asked),
        Command::Warm(asked) => warm::warm(&asked),
        Command::Leaks(asked) => leaks::leaks(&asked),
        Command::Bench(asked) => bench::bench(&asked),
        Command::Doctor(asked) => doctor::doctor(&asked),
        Command::Tune(asked) => tune::tune(&asked),
        Command::Fpm(_) => refuse(&"`fpm` comes first: maitred fpm [FLAGS]"),
        Command::Front => front::front(),
        Command::Acme => acme::acme(),
    }
}

/// Says on standard error why the command or the configuration is wrong.
fn refuse(why: &impl Display) -> ExitCode {
    complain(why);
    ExitCode::from(EXIT_USAGE)
}

/// Says on standard error why what is right failed.
fn fail(why: &impl Display) -> ExitCode {
    complain(why);
    ExitCode::from(EXIT_FAILURE)
}

/// One line on standard error. `eprintln!` would panic where nobody reads it, and the exit code
/// with it would be another.
fn complain(why: &impl Display) {
    let _ = writeln!(std::io::stderr(), "maitred: {why}");
}
