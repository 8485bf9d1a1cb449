//! `maitred commands` and `maitred run`: the commands and schedules of a running server.

use std::ffi::OsString;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use maitred_control::admin::{JobStatus, Reply, Request};
use maitred_control::launch::{LAUNCH_ROLE, Launch};
use maitred_os::{shared, spawn};

use crate::client::{Client, UNEXPECTED};
use crate::command::{Commands, Run};
use crate::exit_code::{EXIT_SUCCESS, fail, refuse};
use crate::view;

/// The name of the process until it is the command.
const NAME: &str = "maitred-php";

/// Prints the commands and schedules.
pub fn commands(asked: &Commands) -> ExitCode {
    let pool = asked.pool.clone();
    let reply =
        Client::reach(&asked.reach).and_then(|mut client| client.ask(&Request::Status { pool }));
    match reply {
        Ok(Reply::Status(server)) => {
            let json = serde_json::to_string(&server.jobs).unwrap_or_default();
            match asked.json.publish(&json, || text(&server.jobs)) {
                Ok(()) => ExitCode::from(EXIT_SUCCESS),
                Err(why) => fail(&why),
            }
        }
        Ok(Reply::Refused { why }) => refuse(&why),
        Ok(_) => fail(&UNEXPECTED),
        Err(why) => fail(&why),
    }
}

fn text(jobs: &[JobStatus]) -> String {
    if jobs.is_empty() {
        return "there are no commands and no schedules; [[pools.NAME.commands]] and \
                [[pools.NAME.schedules]] add them"
            .to_owned();
    }
    view::jobs(jobs, view::screen_columns()).join("\n").trim_start().to_owned()
}

/// Becomes a command, as its pool would run it.
pub fn run(asked: &Run) -> ExitCode {
    let Some((pool, name)) = asked.name.split_once('/') else {
        return refuse(&format!("`{}` is no POOL/NAME; `maitred commands` lists them", asked.name));
    };
    let request = Request::Launch { pool: pool.to_owned(), name: name.to_owned() };
    match Client::reach(&asked.reach).and_then(|mut client| client.ask(&request)) {
        Ok(Reply::Launch { launch, program, group }) => {
            let mut launch = Launch { is_supervised: false, ..*launch };
            launch.command.extend(asked.arguments.iter().cloned());
            let why = become_command(&launch, &program, group);
            fail(&format!("{} cannot be started: {why}", asked.name))
        }
        Ok(Reply::Refused { why }) => refuse(&why),
        Ok(_) => fail(&UNEXPECTED),
        Err(why) => fail(&why),
    }
}

/// Returns only if that failed.
fn become_command(launch: &Launch, program: &Path, group: Option<PathBuf>) -> io::Error {
    if let Some(group) = group
        && let Err(why) = std::fs::write(&group, "0")
    {
        return why;
    }
    let json = match serde_json::to_vec(launch) {
        Ok(json) => json,
        Err(why) => return why.into(),
    };
    let arguments: [OsString; 2] = [NAME.into(), LAUNCH_ROLE.into()];
    match shared::file_with("maitred-launch", &json) {
        Ok(file) => spawn::become_program_with(program, &arguments, file.as_fd()),
        Err(why) => why,
    }
}
