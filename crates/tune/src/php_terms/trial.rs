//! Executes the trials: changes the settings of PHP, compares pages, measures, and restores
//! everything.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use maitred_measure::slo::Slo;
use maitred_measure::url::Url;

use super::cache_sizes::PoolCaches;
use super::pages::{PageResponse, SteadyPage};
use super::trial_folder::{self, TrialFolder};
use super::{Comparison, PhpCourse, PhpStep};
use crate::measurement::{Measurement, Setting, Task};
use crate::processes::ProcessOwner;
use crate::runner::{Abort, LoadContext, Runner, with_restored};
use crate::timeline::Timeline;

/// How long the site may take to respond after a reload.
const RETURN: Duration = Duration::from_secs(60);

/// How long a pool may take to preload its classes: it learns them from its requests.
const LEARNING: Duration = Duration::from_secs(60);

/// The load of a pool that learns, in seconds at a time.
const LEARNING_LOAD: f64 = 1.0;

/// The load before a pool's report of its caches, in seconds.
const CACHE_LOAD: f64 = 1.0;

/// How long a report may take that is of after that load. The server queries a pool every ten
/// seconds at most.
const REPORT: Duration = Duration::from_secs(12);

/// How long a pool may take to report an OPcache at all: not all have one.
const ANY_REPORT: Duration = Duration::from_secs(2);

/// How often it is read.
const LOOK: Duration = Duration::from_millis(200);

/// Most pages that are compared.
const MOST_PAGES: usize = 50;

/// The seed of the order of requests; the same for all runs.
const SEED: u64 = 1;

/// Most comparisons of pages that change by themselves.
const TRIES: usize = 3;

/// What the pool reports.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PhpReportedState {
    /// The number of preloaded classes.
    pub classes: u32,
    /// Why there are none, for people.
    pub preloading: String,
    /// Its caches.
    pub caches: PoolCaches,
    /// The age of the report on OPcache.
    pub age: Duration,
}

/// Reads what the pool reports.
pub type PhpStateProbe<'a> = &'a mut dyn FnMut() -> Result<PhpReportedState, String>;

/// The pool of the trials.
#[derive(Debug, Clone, Copy)]
pub struct TrialPool<'p> {
    /// The name of its section.
    pub section: &'p str,
    /// Its user as the server has it, if that is another one than this process's. What processes
    /// of the machine look like is no proof: PHP executes what this user stores.
    pub owner: Option<ProcessOwner>,
}

/// Executes the trials.
pub struct PhpRunner<'a, 'p> {
    runner: Runner<'a>,
    pool: TrialPool<'p>,
    state: PhpStateProbe<'p>,
    watch: Timeline,
    /// Compiled scripts, once a trial needs them. It is removed after the settings are restored.
    folder: Option<TrialFolder>,
}

/// Why a step has no result.
enum Obstacle {
    /// The whole tuning ends.
    Abort(Abort),
    /// The setting cannot be used, and why.
    Unusable(String),
}

impl From<Abort> for Obstacle {
    fn from(abort: Abort) -> Obstacle {
        Obstacle::Abort(abort)
    }
}

impl<'a, 'p> PhpRunner<'a, 'p> {
    /// Measures `pool` with `runner`, and reads what it reports with `state`.
    pub fn new(
        runner: Runner<'a>,
        pool: TrialPool<'p>,
        state: PhpStateProbe<'p>,
    ) -> PhpRunner<'a, 'p> {
        trial_folder::remove_left(pool.section);
        PhpRunner { runner, pool, state, watch: Timeline::begin(), folder: None }
    }

    /// Executes the course to its end or until an error. Afterwards the settings are restored, or
    /// the error says that they are not.
    ///
    /// # Errors
    /// Why it was aborted.
    pub fn run(&mut self, course: &mut PhpCourse) -> Result<(), Abort> {
        let done = self.steps(course);
        with_restored(done, self.runner.target.restore())
    }

    fn steps(&mut self, course: &mut PhpCourse) -> Result<(), Abort> {
        loop {
            self.check_stop()?;
            course.at(self.runner.began.elapsed().as_secs_f64());
            let done = match course.next() {
                PhpStep::Over => return Ok(()),
                PhpStep::Compare(settings) => {
                    let what = format!("comparing pages: {}", settings.new.words());
                    (self.runner.progress)(&what, course.left());
                    self.compare(settings, course).map(|outcome| course.compared(outcome))
                }
                PhpStep::Measure(task) => {
                    let what = format!("{}: {}", task.what, task.setting.words());
                    (self.runner.progress)(&what, course.left());
                    self.measure(&task, course).map(|seen| course.seen(seen))
                }
                PhpStep::Look(setting) => {
                    let what = format!("reading the state of the caches: {}", setting.words());
                    (self.runner.progress)(&what, course.left());
                    self.look(setting, course).map(|caches| course.looked(&caches))
                }
                PhpStep::ColdStart(setting) => {
                    let what = format!("the first page of a cold start: {}", setting.words());
                    (self.runner.progress)(&what, course.left());
                    self.cold_start(setting).map(|seconds| course.started(seconds))
                }
            };
            match done {
                Ok(()) => {}
                Err(Obstacle::Unusable(why)) => course.reject(why),
                Err(Obstacle::Abort(abort)) => return Err(abort),
            }
        }
    }

    fn check_stop(&self) -> Result<(), Abort> {
        match self.runner.stop.load(Ordering::Relaxed) {
            true => Err(Abort::Stopped),
            false => Ok(()),
        }
    }

    fn measure(&mut self, task: &Task, course: &PhpCourse) -> Result<Measurement, Obstacle> {
        self.set(task.setting, course)?;
        Ok(self.send(task)?)
    }

    fn send(&mut self, task: &Task) -> Result<Measurement, Abort> {
        let context = LoadContext { slo: Slo::default(), seed: SEED, rest: None };
        self.runner.measure(task, &context, &mut self.watch)
    }

    /// Sends a load, and reads what the pool reports of its caches after it.
    fn look(&mut self, setting: Setting, course: &PhpCourse) -> Result<PoolCaches, Obstacle> {
        self.set(setting, course)?;
        self.send(&course.learning_task(setting, CACHE_LOAD))?;
        let began = Instant::now();
        loop {
            let PhpReportedState { caches, age, .. } = (self.state)().map_err(Abort::Failed)?;
            let waited = began.elapsed();
            let is_new = match caches.opcache {
                Some(_) => age <= waited || waited > REPORT,
                None => waited > ANY_REPORT,
            };
            if is_new {
                return Ok(caches);
            }
            self.check_stop()?;
            std::thread::sleep(LOOK);
        }
    }

    /// The time of the first page of a generation with an empty OPcache, in seconds.
    fn cold_start(&mut self, setting: Setting) -> Result<f64, Obstacle> {
        self.apply(Setting::OpcacheOff)?;
        self.serves(Setting::OpcacheOff)?;
        let is_new = matches!(setting, Setting::Php(terms) if terms.file_cache);
        if let Some(folder) = self.folder.as_ref().filter(|folder| is_new && !folder.is_filled()) {
            let why = format!("PHP has stored no script in {}", folder.shown());
            return Err(Obstacle::Unusable(why));
        }
        self.apply(setting)?;
        let (endpoint, url) = &self.runner.workload.first;
        let response = self.runner.prober.get_within(endpoint, url, RETURN, self.runner.stop);
        self.check_stop()?;
        let (status, seconds) = match response {
            Ok(response) => response,
            Err(why) => return Err(unusable(setting, format!("{url}: {why}"))),
        };
        match self.runner.workload.plan.expect.judge(status, true, None) {
            Some(cause) => Err(unusable(setting, format!("{url} returns {cause}"))),
            None => Ok(seconds),
        }
    }

    /// Applies a setting, with the folder that it needs.
    fn apply(&mut self, setting: Setting) -> Result<(), Obstacle> {
        let needs_folder = matches!(setting, Setting::Php(terms) if terms.file_cache);
        if needs_folder {
            self.ready_folder().map_err(Obstacle::Unusable)?;
        }
        let done = self.runner.target.set(setting);
        done.map_err(|why| self.refused(setting, why))
    }

    /// Makes the folder of compiled scripts, or checks the one that is there: the server is about
    /// to be reloaded with it.
    fn ready_folder(&mut self) -> Result<(), String> {
        match &self.folder {
            Some(folder) => folder.check(),
            None => {
                let TrialPool { section, owner } = self.pool;
                self.folder = Some(TrialFolder::create(section, owner)?);
                Ok(())
            }
        }
    }

    /// A server that does not reload with a setting of PHP goes on without it, and so does the
    /// tuning; unless something else is wrong.
    fn refused(&mut self, setting: Setting, why: String) -> Obstacle {
        let Runner { target, workload, prober, .. } = &mut self.runner;
        if target.is_restored() && workload.is_served(prober, RETURN).is_ok() {
            unusable(setting, why)
        } else {
            Obstacle::Abort(Abort::Failed(why))
        }
    }

    /// Applies a setting, and waits until the site is served with it.
    fn set(&mut self, setting: Setting, course: &PhpCourse) -> Result<(), Obstacle> {
        if self.runner.target.now() == setting {
            return Ok(());
        }
        self.apply(setting)?;
        self.serves(setting)?;
        match setting {
            Setting::Php(terms) if terms.preload => self.learn(setting, course),
            _ => Ok(()),
        }
    }

    /// Waits until the site is served.
    fn serves(&mut self, setting: Setting) -> Result<(), Obstacle> {
        let served = self.runner.workload.is_served(self.runner.prober, RETURN);
        if let Err(why) = served {
            self.check_stop()?;
            return Err(unusable(setting, why));
        }
        Ok(())
    }

    /// Sends requests until the pool has learned what to preload.
    fn learn(&mut self, setting: Setting, course: &PhpCourse) -> Result<(), Obstacle> {
        let began = Instant::now();
        let task = course.learning_task(setting, LEARNING_LOAD);
        loop {
            let PhpReportedState { classes, preloading, .. } =
                (self.state)().map_err(Abort::Failed)?;
            if classes > 0 {
                return Ok(());
            }
            if began.elapsed() > LEARNING {
                return Err(Obstacle::Unusable(format!("no class is preloaded: {preloading}")));
            }
            self.send(&task)?;
        }
    }

    /// Compares the pages of two settings. A page that differs with the old setting as well, since
    /// it has changed meanwhile, is compared once more.
    fn compare(
        &mut self,
        Comparison { old, new }: Comparison,
        course: &PhpCourse,
    ) -> Result<Result<(), String>, Obstacle> {
        for _ in 0..TRIES {
            self.set(old, course)?;
            let steady = self.steady()?;
            self.set(new, course)?;
            let outcome = self.differs(&steady)?;
            if outcome.is_ok() {
                return Ok(outcome);
            }
            self.set(old, course)?;
            if self.differs(&steady)?.is_ok() {
                return Ok(outcome);
            }
        }
        Ok(Err("the pages change by themselves, so that they cannot be compared".to_owned()))
    }

    /// The pages of the current setting.
    fn steady(&mut self) -> Result<Vec<(Url, SteadyPage)>, Obstacle> {
        let requests = self.runner.workload.plan.requests.iter();
        let urls = requests.filter(|request| request.spec.method == "GET");
        let urls: Vec<Url> =
            urls.map(|request| request.spec.url.clone()).take(MOST_PAGES).collect();
        let mut pages = Vec::new();
        for url in urls {
            let [first, second] = [self.page(&url)?, self.page(&url)?];
            let page = SteadyPage::of(&first, &second);
            let why =
                || Obstacle::Unusable(format!("{url}: no two responses have a part in common"));
            pages.push((url.clone(), page.ok_or_else(why)?));
        }
        Ok(pages)
    }

    /// The first page that differs from an earlier setting's.
    fn differs(&mut self, steady: &[(Url, SteadyPage)]) -> Result<Result<(), String>, Obstacle> {
        for (url, expected) in steady {
            let page = self.page(url)?;
            if let Err(how) = expected.matches(&page) {
                return Ok(Err(format!("{url} differs: {how}")));
            }
        }
        Ok(Ok(()))
    }

    fn page(&mut self, url: &Url) -> Result<PageResponse, Obstacle> {
        self.check_stop()?;
        let (endpoint, _) = &self.runner.workload.first;
        let received = self.runner.prober.get(endpoint, url);
        let (status, body, _) =
            received.map_err(|why| Obstacle::Unusable(format!("{url}: {why}")))?;
        Ok(PageResponse { status, body: String::from_utf8_lossy(&body).into_owned() })
    }
}

/// The site is not served with a setting: that ends the trial or, with the original one, all.
fn unusable(setting: Setting, why: String) -> Obstacle {
    match setting {
        Setting::Php(_) => Obstacle::Unusable(why),
        _ => Obstacle::Abort(Abort::Failed(why)),
    }
}
