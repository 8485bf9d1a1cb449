//! Whether the cron of WordPress runs beside its requests: what `maitred check` says of sites.

use std::io::Read;
use std::path::Path;

use maitred_config::{Config, Site};
use maitred_os::walk::{self, Rule};

/// The constant that has visitors run no cron.
const DISABLED: &[u8] = b"DISABLE_WP_CRON";

/// Most bytes of a configuration that are read: that of WordPress has a few thousand.
const MAX_CONFIG_BYTES: u64 = 1 << 20;

/// The program of the schedule.
const SCRIPT: &str = "wp-cron.php";

/// One sentence for each WordPress whose visitors run its cron.
pub fn notes(config: &Config) -> Vec<String> {
    config.sites.iter().filter_map(|site| note(site, config)).collect()
}

fn note(site: &Site, config: &Config) -> Option<String> {
    let root = &site.root;
    if !root.join(SCRIPT).is_file() {
        return None;
    }
    // WordPress looks into the folder above as well.
    let folders = [Some(root.as_path()), root.parent()];
    let text = folders.into_iter().flatten().find_map(|folder| read(&folder.join("wp-config.php")));
    let is_disabled = text?.windows(DISABLED.len()).any(|window| window == DISABLED);
    let runs_here = config.jobs.iter().any(|job| {
        let folder = job.dir.as_deref().unwrap_or(Path::new("/"));
        job.command.iter().any(|word| folder.join(word) == root.join(SCRIPT))
    });
    let shown = root.display();
    match (runs_here, is_disabled) {
        (_, true) => None,
        (true, false) => Some(format!(
            "the cron of WordPress in {shown} has a schedule, and visitors run it as well; add \
             define('DISABLE_WP_CRON', true); to wp-config.php"
        )),
        (false, false) => Some(format!(
            "the cron of WordPress in {shown} runs when visitors come; `app_cron = true` in the \
             site and define('DISABLE_WP_CRON', true); in wp-config.php run it each minute beside \
             them"
        )),
    }
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let file = walk::open_to_read(path, Rule::of_reader()).ok()?;
    let mut text = Vec::new();
    file.take(MAX_CONFIG_BYTES).read_to_end(&mut text).ok()?;
    Some(text)
}
