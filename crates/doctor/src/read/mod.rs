//! Collects the facts: from files, /proc and running servers. It changes nothing and needs no
//! privileges: a file that this user may not read is an unknown fact.

mod access_log;
mod apache;
mod applications;
mod cgroups;
mod databases;
mod fpm;
mod ini;
mod kernel_log;
mod machine;
mod nginx;
mod ours;
mod own;
mod processes;
mod status_page;
mod systemd_units;
mod world;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::addresses;
use crate::facts::{Apache, Fact, Facts, Nginx, Pass, PhpServer, Service, Throttled, Unknown};
pub use access_log::is_file;
pub use cgroups::MemoryGroup;
use machine::Counters;
pub use ours::opcache;
pub use status_page::{Counted, counted};
use world::World;

/// Default time limit of everything but the watch.
pub const DEFAULT_TIME: Duration = Duration::from_millis(1200);

/// Default time between the two readings of counters.
pub const DEFAULT_WATCH: Duration = Duration::from_millis(300);

/// After a watch of this length, a quota's use during it is more telling than that since its group
/// was created.
const LONG_WATCH: Duration = Duration::from_secs(10);

/// Where their files lie: those that cannot be read are left out with them.
const FOLDER_OF_NGINX: &str = "/etc/nginx/";
const FOLDERS_OF_APACHE: [&str; 2] = ["/etc/apache2/", "/etc/httpd/"];

/// The servers to examine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Everything configured here.
    Everything,
    /// maitred with one configuration.
    Maitred,
    /// php-fpm, nginx and Apache.
    PhpFpm,
}

/// The user that a running maitred gives a pool's workers. `None`: it is unknown, or not this
/// user's to know.
pub type UserOfPool = fn(&maitred_config::Pool, &maitred_config::Config) -> Option<u32>;

/// Options of an examination.
#[derive(Debug, Clone)]
pub struct Options {
    /// The servers to examine.
    pub which: Scope,
    /// maitred's configuration.
    pub config: PathBuf,
    /// php-fpm's configuration, if not at a path that distributions use.
    pub php_fpm: Option<PathBuf>,
    /// The admin socket of a running maitred, if not the configured one.
    pub admin_socket: Option<PathBuf>,
    /// The user of a pool of maitred that was started as root.
    pub user_of_pool: UserOfPool,
    /// Another root: an image, or files to test with. No server is queried and no program run then.
    pub root: Option<PathBuf>,
    /// The access log with the request rate.
    pub access_log: Option<PathBuf>,
    /// Time between the two readings of counters.
    pub watch: Duration,
    /// Time limit of everything else.
    pub time: Duration,
}

/// Collects the facts.
pub fn read(options: &Options) -> Facts {
    let began = Instant::now();
    let world = World::new(options.root.as_deref(), options.time);
    let before = Counters::read(&world);
    let all = processes::list(&world);
    let mut broken = Vec::new();
    let mut services = Vec::new();
    if options.which != Scope::PhpFpm {
        let config = below(options.root.as_deref(), &options.config);
        // A missing configuration is an error only if it was requested.
        if options.which == Scope::Maitred || config.exists() {
            services.extend(ours::service(&world, options, &config, &all, &mut broken));
        }
    }
    let (mut nginx, mut apache, mut broken_web) = (None, None, Vec::new());
    if options.which != Scope::Maitred {
        let files = fpm::files(&world, options.php_fpm.as_deref());
        services.extend(fpm::services(&world, &files, &all, &mut broken));
        nginx = nginx::nginx(&world, &all, &mut broken_web);
        if let Some((found, with_php)) = apache::apache(&world, &all, &mut broken_web) {
            services.extend(with_php);
            apache = Some(found);
        }
        broken.extend(broken_web.iter().cloned());
    }
    let mut installed = Vec::new();
    // Without a flag, a server that does not run is not meant.
    if let (Scope::Everything, true, Ok(all)) = (options.which, world.is_here(), &all) {
        let found = Others { services, nginx, apache, broken, broken_web };
        let running = found.that_run(all, &mut installed);
        Others { services, nginx, apache, broken, broken_web } = running;
    }
    let tenants = databases::tenants(&services, rustix::process::geteuid().as_raw());
    let mut facts = Facts {
        applications: Vec::new(),
        arrivals: options
            .access_log
            .as_deref()
            .map(|file| access_log::arrivals(&world, file))
            .transpose(),
        databases: databases::databases(&world, &all, &tenants),
        services,
        nginx,
        apache,
        broken,
        broken_web,
        installed,
        machine: machine::machine(&world, before_watch(&options.watch, began, before)),
    };
    follow_links(&world, &mut facts);
    roots(&mut facts);
    facts.applications = applications::applications(&world, &facts);
    look_again(&world, options.watch, &mut facts);
    facts
}

/// What was found of the servers of this machine.
struct Others {
    services: Vec<Service>,
    nginx: Option<Nginx>,
    apache: Option<Apache>,
    broken: Vec<(String, Unknown)>,
    broken_web: Vec<(String, Unknown)>,
}

impl Others {
    /// Without php-fpm, nginx and Apache, as far as they do not run; `installed` gets their names.
    fn that_run(self, all: &[processes::Proc], installed: &mut Vec<String>) -> Others {
        let mut left_out = Vec::new();
        let mut leave = |name: &str, files: &[String]| {
            installed.push(name.to_owned());
            left_out.extend(files.iter().cloned());
        };
        let (running, idle): (Vec<Service>, Vec<Service>) = self
            .services
            .into_iter()
            .partition(|service| service.kind == PhpServer::Maitred || service.process.is_ok());
        for service in &idle {
            leave(&service.name, &service.files);
        }
        let runs = |names: &[&str]| all.iter().any(|one| names.contains(&one.name.as_str()));
        let nginx = self.nginx.filter(|nginx| {
            let runs = runs(&["nginx"]);
            if !runs {
                leave(&format!("nginx ({})", nginx.file), &[FOLDER_OF_NGINX.to_owned()]);
            }
            runs
        });
        let apache = self.apache.filter(|apache| {
            let runs = runs(&["apache2", "httpd"]);
            if !runs {
                leave(&format!("Apache ({})", apache.file), &FOLDERS_OF_APACHE.map(str::to_owned));
            }
            runs
        });
        let is_left_out =
            |(place, _): &(String, Unknown)| left_out.iter().any(|file| place.starts_with(file));
        let without = |mut broken: Vec<(String, Unknown)>| {
            broken.retain(|one| !is_left_out(one));
            broken
        };
        Others {
            services: running,
            nginx,
            apache,
            broken: without(self.broken),
            broken_web: without(self.broken_web),
        }
    }
}

fn below(root: Option<&Path>, path: &Path) -> PathBuf {
    match root {
        Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
        None => path.to_owned(),
    }
}

/// Waits until the counters were watched for long enough.
fn before_watch(watch: &Duration, began: Instant, before: Counters) -> Counters {
    std::thread::sleep(watch.saturating_sub(began.elapsed()));
    before
}

/// The changes during the watch.
fn look_again(world: &World, watch: Duration, facts: &mut Facts) {
    for service in &mut facts.services {
        let pid = service.process.as_ref().ok().map(|process| process.pid);
        let now = cgroups::group(world, &service.name, pid).throttled;
        service.group.throttled = throttled_since(&service.group.throttled, &now, watch);
        let live = service.pools.iter_mut().filter_map(|pool| pool.live.as_mut().ok());
        for worker in live.filter_map(|live| live.workers.as_mut().ok()).flatten() {
            processes::look_again(world, worker);
        }
    }
}

fn throttled_since(
    before: &Fact<Option<Throttled>>,
    now: &Fact<Option<Throttled>>,
    watch: Duration,
) -> Fact<Option<Throttled>> {
    match (before, now) {
        (Ok(Some(before)), Ok(Some(now))) if watch >= LONG_WATCH => Ok(Some(Throttled {
            periods: now.periods.saturating_sub(before.periods),
            throttled: now.throttled.saturating_sub(before.throttled),
            seconds: Some(watch.as_secs_f64()),
        })),
        (_, now) => now.clone(),
    }
}

/// Debian's nginx passes requests to /run/php/php-fpm.sock, a link to the socket of a version;
/// others to an address of this machine, which a listener on the wildcard address has too.
fn follow_links(world: &World, facts: &mut Facts) {
    let nginx = facts.nginx.iter_mut().flat_map(|nginx| &mut nginx.passes);
    let apache = facts.apache.iter_mut().flat_map(|apache| &mut apache.passes);
    for pass in nginx.chain(apache) {
        let paths = pass.to.iter().filter(|to| to.starts_with('/'));
        let real: Vec<String> = paths.filter_map(|path| world.resolved(path)).collect();
        let new = real.into_iter().filter(|path| !pass.to.contains(path));
        let new: Vec<String> = new.collect();
        pass.to.extend(new);
        let of_here = pass.to.iter().filter(|to| world.is_here() && own::is_own(world, to));
        let all: Vec<String> = of_here.filter_map(|to| addresses::all(to)).collect();
        pass.to.extend(all);
    }
}

/// A pool that gets requests has its code in the web server's document roots.
fn roots(facts: &mut Facts) {
    let nginx = facts.nginx.as_ref();
    let passes = nginx.into_iter().flat_map(|nginx| &nginx.passes);
    let passed: Vec<Pass> = passes.cloned().collect();
    let apache = facts.apache.as_ref();
    let passes = apache.into_iter().flat_map(|apache| &apache.passes);
    let by_apache: Vec<Pass> = passes.cloned().collect();
    let nginx_roots = nginx.map(|nginx| nginx.roots.clone()).unwrap_or_default();
    let apache_roots = apache.map(|apache| apache.roots.clone()).unwrap_or_default();
    for pool in facts.services.iter_mut().flat_map(|service| &mut service.pools) {
        let Some(listen) = &pool.listen else { continue };
        if passed.iter().any(|pass| pass.meets(listen)) {
            pool.roots.extend(nginx_roots.iter().cloned());
        }
        if by_apache.iter().any(|pass| pass.meets(listen)) {
            pool.roots.extend(apache_roots.iter().cloned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checks::fixture;

    fn named(name: &str) -> processes::Proc {
        processes::Proc {
            pid: 7,
            parent: 1,
            name: name.to_owned(),
            title: name.to_owned(),
            user: None,
        }
    }

    #[test]
    fn servers_that_are_only_installed_are_named_and_not_examined() {
        let facts = fixture::php_fpm();
        let others = |is_running: bool| {
            let mut services = facts.services.clone();
            if !is_running {
                services[0].process = Unknown::because("php-fpm does not run");
            }
            let why = Unknown("a mistake".to_owned());
            let broken = vec![("/etc/nginx/nginx.conf:3".to_owned(), why)];
            let (nginx, broken_web) = (facts.nginx.clone(), broken.clone());
            Others { services, nginx, apache: None, broken, broken_web }
        };
        let mut installed = Vec::new();
        let found = others(true).that_run(&[named("nginx")], &mut installed);
        assert!(installed.is_empty() && found.nginx.is_some() && found.services.len() == 1);
        assert_eq!((found.broken.len(), found.broken_web.len()), (1, 1));
        let found = others(false).that_run(&[named("init")], &mut installed);
        assert!(found.nginx.is_none() && found.services.is_empty());
        assert!(found.broken.is_empty() && found.broken_web.is_empty());
        assert!(installed.len() == 2 && installed[0].contains("php-fpm"), "{installed:?}");
    }
}
