//! The schedule of a site with `app_cron`: what the makers of its application would have cron run.

use std::path::Path;
use std::time::Duration;

use maitred_rules::apps::App;
use maitred_timetable::When;

use crate::model::job::{Job, Missed, Overlap, PHP, Schedule};
use crate::model::pool::Pool;
use crate::model::site::Site;

/// Longest name of a schedule, in bytes.
const MAX_NAME_BYTES: usize = 32;

/// Most sites of a pool whose names are the same when they are cut.
const MAX_ALIKE: usize = 100;

/// Longest run. One that hangs, such as for a service that does not respond, would have all later
/// ones left out.
const TIMEOUT: Duration = Duration::from_secs(12 * 3600);

/// What an application has cron run.
struct AppCron {
    /// The arguments of PHP.
    arguments: &'static [&'static str],
    /// Whether it is run in the folder that contains the document root.
    is_above: bool,
    every: Duration,
}

fn cron_of(app: App) -> Option<AppCron> {
    const MINUTE: Duration = Duration::from_secs(60);
    match app {
        App::Wordpress => {
            Some(AppCron { arguments: &["wp-cron.php"], is_above: false, every: MINUTE })
        }
        App::Laravel => {
            Some(AppCron { arguments: &["artisan", "schedule:run"], is_above: true, every: MINUTE })
        }
        App::Nextcloud => {
            Some(AppCron { arguments: &["cron.php"], is_above: false, every: 5 * MINUTE })
        }
        App::Symfony | App::Drupal | App::Mediawiki => None,
    }
}

/// The schedule of a site, beside those that there are.
///
/// # Errors
/// One sentence.
pub(crate) fn app_cron(
    app: Option<App>,
    site: &Site,
    pools: &[Pool],
    before: &[Job],
) -> Result<Job, String> {
    let Some(cron) = app.and_then(cron_of) else {
        return Err("`app_cron` is for sites with `app = \"wordpress\"`, \"laravel\" or \
                    \"nextcloud\"; for others, write [[pools.NAME.schedules]]"
            .to_owned());
    };
    let pool = site.pools().next().and_then(|name| pools.iter().find(|pool| pool.name == name));
    let Some(pool) = pool.filter(|pool| pool.confinement.chroot.is_none()) else {
        return Err("`app_cron` is for sites whose pool has no `chroot`; write \
                    [[pools.NAME.schedules]] with a `dir` inside of it"
            .to_owned());
    };
    let above = site.root.parent().unwrap_or(Path::new("/"));
    let words = std::iter::once(&PHP).chain(cron.arguments);
    let schedule = Schedule {
        when: When::Every(cron.every),
        timezone: None,
        overlap: Overlap::Skip,
        timeout: TIMEOUT,
        jitter: Duration::ZERO,
        missed: Missed::Skip,
        one_node: false,
    };
    Ok(Job {
        pool: pool.name.clone(),
        name: free_name(site, &pool.name, before)?,
        command: words.map(|word| (*word).to_owned()).collect(),
        dir: Some(if cron.is_above { above.to_owned() } else { site.root.clone() }),
        schedule: Some(schedule),
        ..Job::default()
    })
}

/// `cron-shop-example-com`, with a number where another has that name.
fn free_name(site: &Site, pool: &str, before: &[Job]) -> Result<String, String> {
    let host = site.hosts.first().map(ToString::to_string).unwrap_or_default();
    let plain: String =
        host.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    let name = match plain.trim_matches('-') {
        "" => "cron".to_owned(),
        plain => format!("cron-{plain}"),
    };
    let is_free = |name: &String| !before.iter().any(|job| job.pool == pool && job.name == *name);
    let cut = |suffix: String| {
        let length = MAX_NAME_BYTES - suffix.len();
        format!("{}{suffix}", name.get(..length).unwrap_or(&name))
    };
    let mut names = (1..MAX_ALIKE).map(|number| match number {
        1 => cut(String::new()),
        number => cut(format!("-{number}")),
    });
    let found = names.find(is_free);
    found.ok_or_else(|| format!("pool `{pool}` has too many schedules like `{name}`"))
}
