//! `maitred status`, `reload`, `stop` and `drain`: commands to a running server.

use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use maitred_control::admin::{Reply, Request, ServerStatus};
use maitred_supervisor::is_version;

use crate::client::{Client, UNEXPECTED};
use crate::command::{Reach, Reload, Status};
use crate::exit_code::{EXIT_SUCCESS, fail, print_line, refuse};
use crate::view;

/// Prints the status of the server.
pub fn status(status: &Status) -> ExitCode {
    let pool = status.pool.clone();
    let asked =
        Client::reach(&status.reach).and_then(|mut client| client.ask(&Request::Status { pool }));
    match asked {
        Ok(Reply::Status(server)) => {
            let json = serde_json::to_string(&server).unwrap_or_default();
            match status.json.publish(&json, || text(&server, status)) {
                Ok(()) => ExitCode::from(EXIT_SUCCESS),
                Err(why) => fail(&why),
            }
        }
        Ok(Reply::Refused { why }) => refuse(&why),
        Ok(_) => fail(&UNEXPECTED),
        Err(why) => fail(&why),
    }
}

fn text(server: &ServerStatus, status: &Status) -> String {
    let columns = view::screen_columns();
    let all = status.all || status.pool.is_some();
    let pools = view::PoolView { columns, order: view::PoolOrder::Load, all };
    let mut lines = vec![view::server_line(server, columns)];
    lines.extend(view::pool_table(server, &pools));
    lines.extend(view::faults(server));
    lines.extend(view::jobs(&server.jobs, columns));
    lines.extend(view::split(server, columns));
    let mut of_pools = Vec::new();
    if status.pool.is_some() {
        of_pools.extend(server.pools.iter().flat_map(view::details));
    }
    if status.advice {
        of_pools.extend(server.pools.iter().flat_map(view::advice));
    }
    lines.extend(view::fitting(of_pools, columns));
    lines.extend(view::copies(server, columns));
    lines.extend(view::page_cache(server, columns));
    lines.extend(view::proxies(server, columns));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_secs();
    lines.extend(view::certificates(server, now, columns));
    lines.extend(view::purge_log(server));
    lines.extend(view::nodes(server, columns));
    let running = view::RunningScripts::of(server, view::MAX_RUNNING_LINES, columns);
    lines.extend(running.show(usize::MAX));
    lines.join("\n")
}

/// Reloads the server's configuration, and prints the result.
pub fn reload(asked: &Reload) -> ExitCode {
    let pools = match &asked.php {
        None => asked.pools.clone(),
        Some(version) => match pools_of_php(asked, version) {
            Ok(pools) if pools.is_empty() => {
                print_line(&format!("no pool runs PHP {version}"));
                return ExitCode::from(EXIT_SUCCESS);
            }
            Ok(pools) => pools,
            Err(why) => return fail(&why),
        },
    };
    let reply = Client::reach(&asked.reach)
        .and_then(|mut client| client.ask_patiently(&Request::Reload { pools }));
    match reply {
        Ok(Reply::Reloaded { what }) => {
            print_line(&what);
            ExitCode::from(EXIT_SUCCESS)
        }
        Ok(Reply::Refused { why }) | Err(why) => fail(&why),
        Ok(_) => fail(&UNEXPECTED),
    }
}

/// The names of the pools with this PHP version, as the running server reports them.
fn pools_of_php(asked: &Reload, version: &str) -> Result<Vec<String>, String> {
    let request = Request::Status { pool: None };
    let Reply::Status(server) = Client::reach(&asked.reach)?.ask(&request)? else {
        return Err(UNEXPECTED.to_owned());
    };
    let runs = |php: &Option<String>| php.as_deref().is_some_and(|php| is_version(php, version));
    let pools = server.pools.into_iter().filter(|pool| runs(&pool.php));
    Ok(pools.map(|pool| pool.name).collect())
}

/// Stops or drains the server, as `request` says, and waits until it has exited.
pub fn end(reach: &Reach, request: &Request) -> ExitCode {
    let asked = Client::reach(reach).and_then(|mut client| Ok((client.ask(request)?, client)));
    match asked {
        Ok((Reply::Ending { running: 0 }, client)) => client.wait_for_exit(),
        Ok((Reply::Ending { running }, client)) => {
            let scripts = if running == 1 { "script" } else { "scripts" };
            print_line(&format!("waiting for {running} {scripts}"));
            client.wait_for_exit();
        }
        Ok((Reply::Refused { why }, _)) => return refuse(&why),
        Ok(_) => return fail(&UNEXPECTED),
        Err(why) => return fail(&why),
    }
    print_line("stopped");
    ExitCode::from(EXIT_SUCCESS)
}
