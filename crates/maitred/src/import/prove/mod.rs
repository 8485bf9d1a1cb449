//! `maitred import --prove`: maitred with the imported configuration beside the old server.

mod new_rules;
mod seen_addresses;
mod site_targets;
mod switch_over;
mod trial_config;
mod trial_server;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use maitred_config::Config;
use maitred_import::report::ImportReport;
use maitred_import::served::ServedSite;
use maitred_prove::causes::Proof;
use maitred_prove::report_text;
use maitred_prove::run::{self, ProofPlan};
use tempfile::TempDir;

use super::options::Prove;
use crate::exit_code::{EXIT_STOPPED, EXIT_SUCCESS, complain, fail, print_line};
use crate::private_server::stop_on_signals;
use new_rules::NewRules;
use trial_server::TrialServer;

/// Exit code if something differs that nothing explains.
const EXIT_DIFFERS: u8 = 4;

/// An imported configuration, and the old server.
pub struct Claim<'a> {
    /// The `maitred.toml`.
    pub toml: &'a str,
    /// Its name in the report.
    pub name: &'a str,
    /// Whether it is a file.
    pub is_written: bool,
    /// Its settings.
    pub config: &'a Config,
    /// The report of the import.
    pub report: &'a ImportReport,
    /// The old server.
    pub old: &'a OldServer<'a>,
}

/// The server that runs.
pub struct OldServer<'a> {
    /// Its name.
    pub name: &'a str,
    /// The name of its service.
    pub service: &'a str,
    /// Its sites.
    pub sites: &'a [ServedSite],
    /// The configuration files of php-fpm.
    pub php_fpm: &'a [String],
}

/// Compares both servers, and prints what differs and how to switch over.
pub fn prove(asked: &Prove, claim: &Claim<'_>) -> ExitCode {
    let posts = match asked.post.iter().map(|text| post(text)).collect::<Result<Vec<_>, _>>() {
        Ok(posts) => posts,
        Err(why) => return crate::exit_code::refuse(&why),
    };
    let folder = match trial_server::new_folder() {
        Ok(folder) => folder,
        Err(why) => return fail(&why),
    };
    let stopped = match stop_on_signals(folder.path()) {
        Ok(stopped) => stopped,
        Err(why) => return fail(&format!("cannot wait for signals: {why}")),
    };
    match compare(asked, claim, TrialRun { folder, posts, stopped: &stopped }) {
        Ok(proof) => finish(asked, claim, &proof, stopped.load(Ordering::SeqCst)),
        Err(why) => fail(&why),
    }
}

/// What a comparison uses besides the two servers.
struct TrialRun<'a> {
    /// The folder of the trial.
    folder: TempDir,
    /// Forms to be sent.
    posts: Vec<(String, String)>,
    /// Whether a signal has arrived.
    stopped: &'a AtomicBool,
}

fn compare(asked: &Prove, claim: &Claim<'_>, run: TrialRun<'_>) -> Result<Proof, String> {
    let TrialRun { folder, posts, stopped } = run;
    let trial = TrialServer::start(folder, claim.toml, claim.config)?;
    let sites = site_targets::targets(claim.old.sites, &trial.addresses, asked)?;
    complain(&format!(
        "comparing {} with maitred on {}; {} requests a second, GET and HEAD only; no setting of \
         a running server changes",
        maitred_text::humanize::plural(claim.old.sites.len() as u64, "site"),
        trial.addresses,
        asked.rate,
    ));
    let limit = usize::try_from(asked.limit).unwrap_or(usize::MAX);
    let plan = ProofPlan { sites, rate: asked.rate, limit, posts, report: claim.report };
    let rules = NewRules::new(claim.toml, claim.name, claim.config);
    let compared =
        run::run(&plan, &|site, target, method| rules.find(site, target, method), stopped);
    compared.map_err(|why| format!("requests cannot be sent: {why}"))
}

/// A path, and the body of a form after a space.
fn post(text: &str) -> Result<(String, String), String> {
    let (path, body) = text.split_once(' ').unwrap_or((text, ""));
    match path.starts_with('/') {
        true => Ok((path.to_owned(), body.to_owned())),
        false => Err(format!("'{text}' is no path; expected one such as '/search q=a'")),
    }
}

fn finish(asked: &Prove, claim: &Claim<'_>, proof: &Proof, is_stopped: bool) -> ExitCode {
    let unexplained = proof.unexplained().count();
    let text = || {
        let mut text = report_text::text(proof, claim.old.name);
        let commands = switch_over::commands(&switch_over::Facts::of(claim));
        let is_complete = proof.compared > 0 && proof.troubles.is_empty() && !is_stopped;
        text += &match unexplained {
            _ if !is_complete => String::new(),
            0 => format!("\nNothing differs that is not explained above. {commands}"),
            count => format!(
                "\n{} to look at before the switch-over. {commands}",
                maitred_text::humanize::plural(count as u64, "difference")
            ),
        };
        text.trim_end().to_owned()
    };
    if let Err(why) = asked.json.publish(&proof.to_json().to_string(), text) {
        return fail(&why);
    }
    if is_stopped {
        print_line("It was interrupted: the comparison is not complete.");
        return ExitCode::from(EXIT_STOPPED);
    }
    if proof.compared == 0 {
        return fail(&"nothing could be compared: is the old server running?");
    }
    match unexplained == 0 && proof.troubles.is_empty() {
        true => ExitCode::from(EXIT_SUCCESS),
        false => ExitCode::from(EXIT_DIFFERS),
    }
}
