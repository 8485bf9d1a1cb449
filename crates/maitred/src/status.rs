//! `maitred status`, `reload`, `stop` and `drain`: asking a running server.

use std::io::Write;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_control::admin::{Answer, Request, ServerStatus};

use crate::client::Client;
use crate::command::{Reach, Reload, Status};
use crate::{EXIT_SUCCESS, fail, refuse, view};

/// What is said of a server that is of another mind than its commands.
pub const UNASKED: &str = "the server answers what was not asked; is it of another version?";

/// Shows how the server is.
pub fn status(status: &Status) -> ExitCode {
    let pool = status.pool.clone();
    let asked =
        Client::reach(&status.reach).and_then(|mut client| client.ask(&Request::Status { pool }));
    match asked {
        Ok(Answer::Status(server)) => {
            let text = match status.json {
                true => serde_json::to_string(&server).unwrap_or_default(),
                false => text(&server, status),
            };
            say(&text);
            ExitCode::from(EXIT_SUCCESS)
        }
        Ok(Answer::Refused { why }) => refuse(&why),
        Ok(_) => fail(&UNASKED),
        Err(why) => fail(&why),
    }
}

fn text(server: &ServerStatus, status: &Status) -> String {
    let mut lines = view::overview(server);
    lines.extend(view::split(server));
    if status.pool.is_some() {
        lines.extend(server.pools.iter().flat_map(view::details));
    }
    if status.advice {
        lines.extend(server.pools.iter().flat_map(view::advice));
    }
    lines.extend(view::copies(server));
    lines.extend(view::page_cache(server));
    lines.extend(view::proxies(server));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    lines.extend(view::certificates(server, now));
    lines.extend(view::running(server, view::MAX_RUNNING_LINES));
    lines.join("\n")
}

/// Has the server read its configuration again, and says what was done.
pub fn reload(asked: &Reload) -> ExitCode {
    let pools = asked.pools.clone();
    let answer = Client::reach(&asked.reach)
        .and_then(|mut client| client.ask_patiently(&Request::Reload { pools }));
    match answer {
        Ok(Answer::Reloaded { what }) => {
            say(&what);
            ExitCode::from(EXIT_SUCCESS)
        }
        Ok(Answer::Refused { why }) | Err(why) => fail(&why),
        Ok(_) => fail(&UNASKED),
    }
}

/// Has the server end, as `request` says, and waits for it.
pub fn end(reach: &Reach, request: &Request) -> ExitCode {
    let asked = Client::reach(reach).and_then(|mut client| Ok((client.ask(request)?, client)));
    match asked {
        Ok((Answer::Ending { running: 0 }, client)) => client.wait_for_the_end(),
        Ok((Answer::Ending { running }, client)) => {
            let scripts = if running == 1 { "script" } else { "scripts" };
            say(&format!("waiting for {running} {scripts}"));
            client.wait_for_the_end();
        }
        Ok((Answer::Refused { why }, _)) => return refuse(&why),
        Ok(_) => return fail(&UNASKED),
        Err(why) => return fail(&why),
    }
    say("stopped");
    ExitCode::from(EXIT_SUCCESS)
}

/// A text and a line's end on standard output. That nobody reads it is no error.
fn say(text: &str) {
    let _ = writeln!(std::io::stdout(), "{text}");
}
