//! The output of `php-fpm -tt` (`fpm_conf_dump`).

use super::draft::{Draft, PoolDraft};
use super::entries::{GLOBAL, POOL};

/// Where php-fpm has `access.suppress_path`: after this setting.
const BEFORE_SUPPRESSED_PATHS: &str = "access.format";

/// php-fpm does not print this setting.
const UNPRINTED: &str = "apparmor_hat";

/// php-fpm prints this time without its unit.
const WITHOUT_UNIT: &str = "pm.process_idle_timeout";

/// The lines, without their time and level.
pub(super) fn dump(draft: &Draft) -> Vec<String> {
    let mut globals = draft.globals.clone();
    globals.events_mechanism.get_or_insert_with(|| "epoll".to_owned());
    let mut lines = vec!["[global]".to_owned()];
    lines.extend(GLOBAL.iter().map(|entry| entry.line(&mut globals)));
    lines.push(" ".to_owned());
    let pools = draft.pools.iter().filter(|pool| pool.status_of.is_none());
    for pool in pools {
        dump_pool(pool.clone(), &mut lines);
    }
    lines
}

fn dump_pool(mut pool: PoolDraft, lines: &mut Vec<String>) {
    pool.limit_extensions.get_or_insert_default();
    lines.push(format!("[{}]", pool.name));
    for entry in POOL.iter().filter(|entry| entry.name != UNPRINTED) {
        let mut line = entry.line(&mut pool);
        if entry.name == WITHOUT_UNIT {
            line.pop();
        }
        lines.push(line);
        if entry.name == BEFORE_SUPPRESSED_PATHS {
            // php-fpm stores lists in reverse.
            let paths = pool.access_suppress_paths.iter().rev();
            lines.extend(paths.map(|path| format!("\taccess.suppress_path[] = {path}")));
        }
    }
    let lists = [
        ("env", &pool.env),
        ("php_value", &pool.php_values),
        ("php_admin_value", &pool.php_admin_values),
    ];
    for (name, list) in lists {
        let list = list.iter().rev();
        lines.extend(list.map(|(key, value)| format!("\t{name}[{key}] = {value}")));
    }
    lines.push(" ".to_owned());
}
