//! `maitred tune --php`: tries settings of PHP in place of numbers of workers.

use std::time::Duration;

use maitred_config::{Mode, Pool};
use maitred_control::admin::{PoolStatus, Reply, Request};
use maitred_doctor::facts::PhpServer;
use maitred_os::users;
use maitred_text::humanize;
use maitred_tune::php_terms::cache_sizes::{PoolCaches, RealPaths};
use maitred_tune::php_terms::conditions::PhpConditions;
use maitred_tune::php_terms::php_term::{CacheSize, PHP_TERMS, PhpTerm, TunedPool};
use maitred_tune::php_terms::report::PhpReport;
use maitred_tune::php_terms::trial::{PhpReportedState, PhpRunner, TrialPool};
use maitred_tune::php_terms::{PhpCourse, PhpInput};
use maitred_tune::processes::ProcessOwner;
use maitred_tune::runner::Runner;
use maitred_tune::site::Site;

use super::options::{SIZES, Tune, TuneOutputOptions};
use super::{EXIT_NOT_PROVEN, TuneError, config, reach};
use crate::client::{Client, UNEXPECTED};
use crate::exit_code::{EXIT_SUCCESS, complain, print_line};
use crate::report_file;

/// The settings to try in a pool, and why each of the others is not.
pub(super) struct Candidates {
    pool: Pool,
    owner: Option<ProcessOwner>,
    terms: Vec<PhpTerm>,
    sizes: Vec<CacheSize>,
    not_tried: Vec<String>,
}

impl Candidates {
    /// Those of the tuned pool.
    ///
    /// # Errors
    /// The server has no pools with a PHP of their own, or its configuration cannot be read.
    pub(super) fn of(
        asked: &Tune,
        site: &Site,
        owner: Option<ProcessOwner>,
    ) -> Result<Candidates, TuneError> {
        if site.service.kind != PhpServer::Maitred {
            return Err(TuneError::Usage(format!(
                "--php tunes a pool of maitred, whose pools have a PHP of their own; {} is one of \
                 {}, which starts one PHP for all pools",
                site.pool.name, site.service.name
            )));
        }
        let name = &site.pool.section;
        let loaded = maitred_config::load(&config(&asked.server)).map_err(|why| why.to_string())?;
        let pool = loaded.pools.into_iter().find(|pool| &pool.name == name);
        let pool = pool.ok_or_else(|| format!("the configuration has no pool {name}"))?;
        let conditions = PhpConditions {
            pool: &pool,
            ini: site.pool.ini.as_ref().ok(),
            deploys_reload: asked.course.deploys_reload,
        };
        let wanted = asked.course.php.as_deref().unwrap_or_default();
        let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|other| other == name);
        let (mut terms, mut not_tried) = (Vec::new(), Vec::new());
        let (sizes, others) = match is_wanted(SIZES) {
            true => conditions.sizes(),
            false => (Vec::new(), Vec::new()),
        };
        not_tried.extend(others);
        for term in PHP_TERMS.into_iter().filter(|term| is_wanted(term.name())) {
            match conditions.why_not(term) {
                None => terms.push(term),
                Some(why) => not_tried.push(format!("{}: {why}", term.words())),
            }
        }
        Ok(Candidates { pool, owner, terms, sizes, not_tried })
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
    let section = &site.pool.section;
    let owner = candidates.owner;
    let mut course = PhpCourse::new(PhpInput {
        seconds,
        cores: site.cores,
        workers: site.pool.max_children,
        candidates: candidates.terms,
        sizes: candidates.sizes,
        memory: site.memory.budget.as_ref().ok().map(|(bytes, _)| *bytes),
        pool: TunedPool {
            section: section.clone(),
            user: user(&candidates.pool, owner),
            watches: candidates.pool.watch && candidates.pool.mode != Mode::Classic,
        },
        seed: asked.course.seed,
    });
    let mut state = || reported(asked, section);
    let pool = TrialPool { section, owner };
    PhpRunner::new(runner, pool, &mut state).run(&mut course)?;
    let report = PhpReport::of(site, &load, &course, candidates.not_tried);
    if let Err(why) = publish(&report, &asked.output) {
        complain(&why);
    }
    Ok(if report.verdict == "no_gain" { EXIT_NOT_PROVEN } else { EXIT_SUCCESS })
}

/// The name of the user that runs the pool's PHP, if that is another one than this process's.
fn user(pool: &Pool, owner: Option<ProcessOwner>) -> Option<String> {
    let ours = users::current();
    match owner {
        Some(owner) => (owner.uid != ours.uid).then(|| users::name_of(owner.uid)),
        None => pool.user.clone().filter(|name| *name != ours.name),
    }
}

/// What the pool reports.
fn reported(asked: &Tune, pool: &str) -> Result<PhpReportedState, String> {
    let request = Request::Status { pool: Some(pool.to_owned()) };
    let Reply::Status(status) = Client::reach(&reach(&asked.server))?.ask(&request)? else {
        return Err(UNEXPECTED.to_owned());
    };
    let found = status.pools.into_iter().find(|found| found.name == pool);
    Ok(found.map(state).unwrap_or_default())
}

fn state(pool: PoolStatus) -> PhpReportedState {
    let preloading = pool.preloading.unwrap_or_default();
    let opcache = pool.opcache.as_ref();
    let real_paths = pool
        .realpath_cache
        .map(|cache| RealPaths { used: cache.used_bytes as f64, limit: cache.limit_bytes as f64 });
    PhpReportedState {
        classes: preloading.classes,
        preloading: preloading.state,
        caches: PoolCaches {
            opcache: opcache.map(|cache| maitred_doctor::read::opcache(&cache.figures)),
            real_paths,
        },
        age: opcache.map_or(Duration::ZERO, |cache| {
            Duration::try_from_secs_f64(cache.age_seconds).unwrap_or_default()
        }),
    }
}

/// Prints the report, and writes its file.
fn publish(report: &PhpReport, output: &TuneOutputOptions) -> Result<(), String> {
    // A closed reader is no error.
    if output.json.is_stdout() {
        return report.json().map(|text| print_line(&text));
    }
    print_line(&humanize::printable_lines(&report.lines().join("\n")));
    output.json.file().map_or(Ok(()), |file| report_file::write(file, &report.json()?))
}
