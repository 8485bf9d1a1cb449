//! `maitred check`: is this configuration right?

use std::process::ExitCode;

use crate::command::Check;
use crate::{EXIT_SUCCESS, complain, refuse};

/// Says what is wrong with a configuration file, or that nothing is.
pub fn check(check: &Check) -> ExitCode {
    match maitred_config::load(&check.config) {
        Ok(config) => {
            let mistakes = maitred_supervisor::check(&config);
            if !mistakes.is_empty() {
                let lines: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
                return refuse(&lines.join("\n"));
            }
            for warning in maitred_supervisor::warnings(&config) {
                complain(&format!("warning: {warning}"));
            }
            let (sites, pools) = (config.sites.len(), config.pools.len());
            let file = check.config.display();
            println!(
                "{file} is right: {}, {}",
                count(sites, "site"),
                count(pools, "pool")
            );
            ExitCode::from(EXIT_SUCCESS)
        }
        Err(mistakes) => refuse(&mistakes),
    }
}

fn count(number: usize, thing: &str) -> String {
    match number {
        1 => format!("1 {thing}"),
        _ => format!("{number} {thing}s"),
    }
}
