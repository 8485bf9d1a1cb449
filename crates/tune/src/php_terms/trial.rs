//! Executes the trials: changes the settings of PHP, compares pages, measures, and restores
//! everything.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use maitred_measure::slo::Slo;
use maitred_measure::url::Url;

use super::pages::{PageResponse, SteadyPage};
use super::{Comparison, PhpCourse, PhpStep};
use crate::measurement::{Measurement, Setting, Task};
use crate::runner::{Abort, LoadContext, Runner, with_restored};
use crate::timeline::Timeline;

/// How long the site may take to respond after a reload.
const RETURN: Duration = Duration::from_secs(60);

/// How long a pool may take to preload its classes: it learns them from its requests.
const LEARNING: Duration = Duration::from_secs(60);

/// The load of a pool that learns, in seconds at a time.
const LEARNING_LOAD: f64 = 1.0;

/// Most pages that are compared.
const MOST_PAGES: usize = 50;

/// The seed of the order of requests; the same for all runs.
const SEED: u64 = 1;

/// Most comparisons of pages that change by themselves.
const TRIES: usize = 3;

/// The state of preloading in the pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreloadState {
    /// The number of preloaded classes.
    pub classes: u32,
    /// Why there are none, for people.
    pub state: String,
}

/// Reads the state of preloading.
pub type PreloadProbe<'a> = &'a mut dyn FnMut() -> Result<PreloadState, String>;

/// Executes the trials.
pub struct PhpRunner<'a, 'p> {
    runner: Runner<'a>,
    preloading: PreloadProbe<'p>,
    watch: Timeline,
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
    /// Measures with `runner`, and reads the state of preloading with `preloading`.
    pub fn new(runner: Runner<'a>, preloading: PreloadProbe<'p>) -> PhpRunner<'a, 'p> {
        PhpRunner { runner, preloading, watch: Timeline::begin() }
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

    /// Applies a setting, and waits until the site is served with it.
    fn set(&mut self, setting: Setting, course: &PhpCourse) -> Result<(), Obstacle> {
        if self.runner.target.now() == setting {
            return Ok(());
        }
        self.runner.target.set(setting).map_err(Abort::Failed)?;
        let served = self.runner.workload.is_served(self.runner.prober, RETURN);
        if let Err(why) = served {
            self.check_stop()?;
            return Err(match setting {
                Setting::Php(_) => Obstacle::Unusable(why),
                _ => Obstacle::Abort(Abort::Failed(why)),
            });
        }
        match setting {
            Setting::Php(terms) if terms.preload => self.learn(setting, course),
            _ => Ok(()),
        }
    }

    /// Sends requests until the pool has learned what to preload.
    fn learn(&mut self, setting: Setting, course: &PhpCourse) -> Result<(), Obstacle> {
        let began = Instant::now();
        let task = course.learning_task(setting, LEARNING_LOAD);
        loop {
            let PreloadState { classes, state } = (self.preloading)().map_err(Abort::Failed)?;
            if classes > 0 {
                return Ok(());
            }
            if began.elapsed() > LEARNING {
                return Err(Obstacle::Unusable(format!("no class is preloaded: {state}")));
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
