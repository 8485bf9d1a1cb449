//! `maitred tune --php`: tries settings of PHP in place of numbers of workers.

use std::io::{self, Write};

use maitred_config::{Mode, Pool};
use maitred_control::admin::{Reply, Request};
use maitred_doctor::facts::PhpServer;
use maitred_tune::php_terms::report::PhpReport;
use maitred_tune::php_terms::trial::{PhpRunner, PreloadState};
use maitred_tune::php_terms::{JIT_ENTRIES, PHP_TERMS, PhpCourse, PhpInput, PhpTerm};
use maitred_tune::runner::Runner;
use maitred_tune::site::Site;

use super::options::{Tune, TuneOutputOptions};
use super::{EXIT_NOT_PROVEN, TuneError, config, reach};
use crate::client::{Client, UNEXPECTED};
use crate::exit_code::{EXIT_SUCCESS, complain};
use crate::report_file;

/// The settings to try in a pool, and why each of the others is not.
pub(super) struct Candidates {
    terms: Vec<PhpTerm>,
    not_tried: Vec<String>,
}

impl Candidates {
    /// Those of the tuned pool.
    ///
    /// # Errors
    /// The server has no pools with a PHP of their own, or its configuration cannot be read.
    pub(super) fn of(asked: &Tune, site: &Site) -> Result<Candidates, TuneError> {
        if site.service.kind != PhpServer::Maitred {
            return Err(TuneError::Usage(format!(
                "--php tunes a pool of maitred, whose pools have a PHP of their own; {} is one of \
                 {}, which starts one PHP for all pools",
                site.pool.name, site.service.name
            )));
        }
        let name = &site.pool.section;
        let loaded = maitred_config::load(&config(&asked.server)).map_err(|why| why.to_string())?;
        let pool = loaded.pools.iter().find(|pool| &pool.name == name);
        let pool = pool.ok_or_else(|| format!("the configuration has no pool {name}"))?;
        let mut found = Candidates { terms: Vec::new(), not_tried: Vec::new() };
        for term in PHP_TERMS {
            match why_not(pool, term) {
                None => found.terms.push(term),
                Some(why) => found.not_tried.push(format!("{}: {why}", term.words())),
            }
        }
        Ok(found)
    }
}

/// Why a setting is not tried in a pool.
fn why_not(pool: &Pool, term: PhpTerm) -> Option<&'static str> {
    let sets = |name: &str| {
        let defined = pool.defines.iter().any(|(other, _)| other == name);
        defined || pool.php_admin_value.contains_key(name) || pool.php_value.contains_key(name)
    };
    match term {
        PhpTerm::Preload if pool.mode != Mode::Classic => Some("the pool boots its script once"),
        PhpTerm::Preload if pool.preload || sets("opcache.preload") => Some("the pool preloads"),
        PhpTerm::Preload if pool.confinement.chroot.is_some() => Some("it excludes chroot"),
        PhpTerm::Jit if JIT_ENTRIES.iter().any(|(name, _)| sets(name)) => {
            Some("the configuration sets it")
        }
        _ => None,
    }
}

/// Tries the settings. Returns the exit code.
pub(super) fn tune_php(
    asked: &Tune,
    site: &Site,
    candidates: Candidates,
    seconds: f64,
    runner: Runner<'_>,
) -> Result<u8, TuneError> {
    let load = runner.workload.source.clone();
    let mut course = PhpCourse::new(PhpInput {
        seconds,
        cores: site.cores,
        workers: site.pool.max_children,
        candidates: candidates.terms,
        seed: asked.course.seed,
    });
    let mut preloading = || preload_state(asked, &site.pool.section);
    PhpRunner::new(runner, &mut preloading).run(&mut course)?;
    let report = PhpReport::of(site, &load, &course, candidates.not_tried);
    if let Err(why) = publish(&report, &asked.output) {
        complain(&why);
    }
    Ok(if report.verdict == "no_gain" { EXIT_NOT_PROVEN } else { EXIT_SUCCESS })
}

fn preload_state(asked: &Tune, pool: &str) -> Result<PreloadState, String> {
    let request = Request::Status { pool: Some(pool.to_owned()) };
    let Reply::Status(status) = Client::reach(&reach(&asked.server))?.ask(&request)? else {
        return Err(UNEXPECTED.to_owned());
    };
    let found = status.pools.into_iter().find(|found| found.name == pool);
    let preloading = found.and_then(|found| found.preloading).unwrap_or_default();
    Ok(PreloadState { classes: preloading.classes, state: preloading.state })
}

/// Prints the report, and writes its file.
fn publish(report: &PhpReport, output: &TuneOutputOptions) -> Result<(), String> {
    // A closed reader is no error.
    if output.json.is_stdout() {
        return report.json().map(|text| drop(writeln!(io::stdout(), "{text}")));
    }
    let _ = writeln!(io::stdout(), "{}", report.lines().join("\n"));
    output.json.file().map_or(Ok(()), |file| report_file::write(file, &report.json()?))
}
