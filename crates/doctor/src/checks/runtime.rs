//! D15: is PHP itself set up for serving?

use crate::facts::{Facts, Ini, Opcache, PhpServer, Pool, Service, Unknown};
use crate::finding::Sheet;
use crate::opcache_shortage::{Shortage, shortages};
use maitred_text::humanize::{bytes, percent, plural};

/// File systems on which every file check may be a request to another machine.
const SLOW_FILE_SYSTEMS: [&str; 12] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "vboxsf",
    "vmhgfs",
    "9p",
    "virtiofs",
    "ceph",
    "glusterfs",
    "fuse",
];

/// OPcache is built in since this version.
const OPCACHE_IS_BUILT_IN: (u32, u32) = (8, 5);

/// D15.
pub(super) fn hygiene(facts: &Facts, sheet: &mut Sheet) {
    for (service, pool) in facts.pools() {
        match &pool.ini {
            Ok(ini) => by_ini(service, pool, ini, sheet),
            Err(why) => sheet.cannot_tell(&pool.name, "php.ini", why),
        }
        let opcache = pool.live.as_ref().and_then(|live| live.opcache.as_ref());
        match opcache {
            Ok(Some(opcache)) => filled(pool, opcache, sheet),
            Ok(None) => {}
            Err(why) => sheet.cannot_tell(&pool.name, "how full OPcache is", why),
        }
        if service.has_other_nodes {
            sessions_of_one_node(pool, sheet);
        }
        places(facts, pool, sheet);
    }
    applications(facts, sheet);
    for place in facts.nginx.iter().flat_map(|nginx| &nginx.sendfile_off) {
        sheet.report("runtime.sendfile-off", place, "sendfile off");
    }
}

fn applications(facts: &Facts, sheet: &mut Sheet) {
    for application in &facts.applications {
        let about = application.file.as_str();
        match &application.shows_errors {
            Ok(true) => {
                sheet.report(
                    "runtime.debug-mode",
                    about,
                    "APP_DEBUG, APP_ENV=dev or WP_DEBUG is on",
                );
            }
            Ok(false) => sheet.ok(about, "its debug mode is off"),
            Err(why) => sheet.cannot_tell(about, "whether its debug mode is on", why),
        }
    }
}

fn by_ini(service: &Service, pool: &Pool, ini: &Ini, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let is_there = ini.version.is_some_and(|version| version >= OPCACHE_IS_BUILT_IN)
        || ini.zend_extensions.iter().any(|name| name.contains("opcache"));
    let is_on = ini.is_on("opcache.enable", "1");
    if !is_there || !is_on {
        let seen = if is_there {
            "opcache.enable = 0".to_owned()
        } else {
            "no zend_extension = opcache".to_owned()
        };
        sheet.report("runtime.opcache-off", about, seen);
        return;
    }
    sheet.ok(about, "OPcache is on");
    validation(about, ini, sheet);
    let size = "opcache.memory_consumption";
    let is_shared = matches!(service.kind, PhpServer::PhpFpm | PhpServer::ModPhp);
    if is_shared && ini.of_pool.iter().any(|name| name == size) {
        let seen = format!("{size} is set in the pool");
        sheet.report("runtime.opcache-size-in-pool", about, seen);
    }
    debugging(about, ini, sheet);
}

fn validation(about: &str, ini: &Ini, sheet: &mut Sheet) {
    if !ini.is_on("opcache.validate_timestamps", "1") {
        return;
    }
    let every = ini.get("opcache.revalidate_freq", "2").trim();
    if every == "0" {
        sheet.report("runtime.stat-each-request", about, "opcache.revalidate_freq = 0");
    } else {
        let seen = format!("opcache.validate_timestamps = 1, every {every} s");
        sheet.report("runtime.stat-now-and-then", about, seen).so(format!(
            "a system call for each file every {every} s; a changed file is seen by itself"
        ));
    }
}

fn debugging(about: &str, ini: &Ini, sheet: &mut Sheet) {
    let debugger = ini.zend_extensions.iter().find(|name| name.contains("xdebug"));
    if let Some(debugger) = debugger {
        sheet.report("runtime.debugger-loaded", about, format!("zend_extension = {debugger}"));
    }
    if ini.is_on("display_errors", "0") {
        sheet.report("runtime.errors-displayed", about, "display_errors is on");
    }
}

fn filled(pool: &Pool, opcache: &Opcache, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let size = opcache.size();
    let more = "a larger opcache.memory_consumption";
    let found = shortages(opcache);
    for shortage in &found {
        match *shortage {
            Shortage::Emptied { memory, keys } => {
                let times = plural(memory.saturating_add(keys), "time");
                let seen = format!("OPcache was emptied {times} for lack of room");
                sheet
                    .report("runtime.opcache-restarted", about, seen)
                    .fix(format!("{more} and opcache.max_accelerated_files"));
            }
            Shortage::Memory(free) => {
                let seen = format!("{} of OPcache ({}) is free", percent(free), bytes(size));
                sheet.report("runtime.opcache-full", about, seen).fix(more);
            }
            Shortage::Keys { used, most } => {
                let seen = format!("{used} of {most} keys are used");
                sheet.report("runtime.opcache-keys-full", about, seen);
            }
            Shortage::Strings => {
                let seen = "OPcache's buffer of strings is full";
                sheet.report("runtime.opcache-strings-full", about, seen);
            }
            Shortage::Wasted(wasted) => {
                let seen = format!("{} of OPcache is wasted", percent(wasted));
                sheet.report("runtime.opcache-wasted", about, seen);
            }
        }
    }
    if found.is_empty() {
        sheet.ok(about, format!("{} of OPcache is free", percent(opcache.free / size)));
    }
}

/// Code and sessions on network file systems.
fn places(facts: &Facts, pool: &Pool, sheet: &mut Sheet) {
    let about = pool.name.as_str();
    let sessions =
        pool.ini.as_ref().ok().filter(|ini| ini.get("session.save_handler", "files") == "files");
    // `N;MODE;PATH` is allowed.
    let sessions = sessions
        .map(|ini| ini.get("session.save_path", "/tmp").rsplit(';').next().unwrap_or_default());
    let folders = pool.roots.iter().map(String::as_str).chain(sessions);
    let folders: Vec<&str> = folders.filter(|folder| folder.starts_with('/')).collect();
    let mounts = match &facts.machine.mounts {
        Ok(mounts) => mounts,
        Err(why) => return sheet.cannot_tell(about, "what its folders are mounted from", why),
    };
    for folder in folders {
        let mount = mounts.iter().find(|(at, _)| is_below(folder, at));
        let Some((at, kind)) = mount.filter(|(_, kind)| is_slow(kind)) else {
            continue;
        };
        let seen = format!("{folder} is on {at}, which is {kind}");
        sheet.report("runtime.network-file-system", about, seen);
    }
    if pool.roots.is_empty() {
        let why = Unknown("no web server's configuration here names a folder".to_owned());
        sheet.cannot_tell(about, "where its code is", &why);
    }
}

/// Sessions in files of one node.
fn sessions_of_one_node(pool: &Pool, sheet: &mut Sheet) {
    let ini = pool.ini.as_ref().ok();
    if ini.is_some_and(|ini| ini.get("session.save_handler", "files") == "files") {
        let seen = "session.save_handler = files, and purge_log is for several nodes";
        sheet.report("runtime.sessions-of-one-node", &pool.name, seen);
    }
}

fn is_below(folder: &str, mount: &str) -> bool {
    let rest = folder.strip_prefix(mount.trim_end_matches('/'));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_slow(kind: &str) -> bool {
    kind.starts_with("fuse.") || SLOW_FILE_SYSTEMS.contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::super::fixture::*;
    use crate::finding::Severity::*;

    #[test]
    fn a_missing_opcache_and_a_debugger_are_failures() {
        expect_ok("D15", &php_fpm());
        let mut facts = php_fpm();
        let ini = pool(&mut facts).ini.as_mut().unwrap();
        ini.zend_extensions.push("xdebug.so".to_owned());
        ini.entries.insert("display_errors".to_owned(), "On".to_owned());
        ini.of_pool.push("opcache.memory_consumption".to_owned());
        expect("D15", &facts, Fail, "xdebug.so");
        expect("D15", &facts, Warn, "display_errors");
        expect("D15", &facts, Warn, "is set in the pool");
        let ini = pool(&mut facts).ini.as_mut().unwrap();
        ini.zend_extensions.clear();
        expect("D15", &facts, Fail, "no zend_extension = opcache");
        pool(&mut facts).ini.as_mut().unwrap().version = Some((8, 5));
        pool(&mut facts)
            .ini
            .as_mut()
            .unwrap()
            .entries
            .insert("opcache.enable".to_owned(), "0".to_owned());
        expect("D15", &facts, Fail, "opcache.enable = 0");
        pool(&mut facts).ini = unknown();
        expect("D15", &facts, CannotTell, "php.ini");
    }

    #[test]
    fn an_application_in_debug_mode_is_a_failure() {
        let mut facts = php_fpm();
        facts.applications[0].shows_errors = Ok(true);
        expect("D15", &facts, Fail, "APP_DEBUG, APP_ENV=dev or WP_DEBUG is on");
        facts.applications[0].shows_errors = unknown();
        expect("D15", &facts, CannotTell, "whether its debug mode is on");
    }

    #[test]
    fn looking_at_files_costs_by_how_often() {
        let mut facts = php_fpm();
        pool(&mut facts).ini.as_mut().unwrap().entries.remove("opcache.validate_timestamps");
        expect("D15", &facts, Info, "every 2 s");
        let ini = pool(&mut facts).ini.as_mut().unwrap();
        ini.entries.insert("opcache.revalidate_freq".to_owned(), "0".to_owned());
        expect("D15", &facts, Warn, "revalidate_freq = 0");
    }

    #[test]
    fn an_opcache_that_is_full_is_found() {
        let mut facts = php_fpm();
        let opcache = reported(&mut facts).opcache.as_mut().unwrap().as_mut().unwrap();
        opcache.free = MB;
        opcache.wasted = 20.0 * MB;
        opcache.memory_restarts = 2;
        opcache.keys = Some((16_000, 16_229));
        opcache.strings = Some((8.0 * MB, 8.0 * MB));
        expect("D15", &facts, Fail, "1.6 % of OPcache (61 MiB) is free");
        expect("D15", &facts, Fail, "emptied 2 times");
        expect("D15", &facts, Fail, "16000 of 16229 keys");
        expect("D15", &facts, Warn, "strings is full");
        expect("D15", &facts, Warn, "33 % of OPcache is wasted");
        reported(&mut facts).opcache = unknown();
        expect("D15", &facts, CannotTell, "how full OPcache is");
    }

    #[test]
    fn sessions_in_files_of_one_of_several_nodes_are_found() {
        let mut facts = php_fpm();
        facts.services[0].has_other_nodes = true;
        expect("D15", &facts, Warn, "session.save_handler = files, and purge_log");
        let ini = pool(&mut facts).ini.as_mut().unwrap();
        ini.entries.insert("session.save_handler".to_owned(), "redis".to_owned());
        expect_ok("D15", &facts);
    }

    #[test]
    fn code_on_a_shared_folder_is_found() {
        let mut facts = php_fpm();
        let mounts = facts.machine.mounts.as_mut().unwrap();
        mounts.insert(0, ("/srv".to_owned(), "vboxsf".to_owned()));
        expect("D15", &facts, Warn, "/srv/www is on /srv, which is vboxsf");
        facts.machine.mounts = unknown();
        expect("D15", &facts, CannotTell, "mounted from");
        pool(&mut facts).roots.clear();
        facts.machine.mounts = Ok(Vec::new());
        expect("D15", &facts, CannotTell, "where its code is");
        facts.nginx.as_mut().unwrap().sendfile_off = vec!["site:3".to_owned()];
        expect("D15", &facts, Info, "sendfile off");
    }
}
