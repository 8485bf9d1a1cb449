//! The names of the cookies that sites have set, for all threads. They survive a reload and, in
//! `cache_dir`, a restart: cached pages must not be served to logged-in visitors.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use maitred_config::Config;
use maitred_os::own_files;
use maitred_pagecache::cookies::CookieNames;
use maitred_pagecache::settings::Settings;
use serde::{Deserialize, Serialize};

/// The file in `cache_dir`.
const FILE: &str = "cookies";

/// Largest file that is read or written, in bytes: enough for some 240 sites with the most names
/// that are remembered, each of the largest length.
const FILE_BYTES: usize = 4 << 20;

/// The cookies that a site has set.
#[derive(Debug, Default)]
pub struct SiteCookies(ArcSwap<CookieNames>);

/// The cookies of all sites that guard cookies, by the site's key ([`maitred_config::Site::key`]).
#[derive(Debug, Default)]
pub struct AllCookies {
    sites: Mutex<HashMap<String, GuardedSite>>,
    writer: Mutex<CookieWriter>,
}

/// The thread that writes the file: one at a time, however many names are new.
#[derive(Debug, Default)]
struct CookieWriter {
    is_running: bool,
    has_more: bool,
}

#[derive(Debug, Default)]
struct GuardedSite {
    cookies: Arc<SiteCookies>,
    /// The settings that decide which cookies count; none if no configuration in use has the site
    /// yet.
    rules: Option<Settings>,
}

/// A site in the file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedSite {
    names: Vec<String>,
    are_too_many: bool,
    /// The settings under which there are too many cookies ([`Settings::cookie_mark`]).
    mark: u64,
}

impl SiteCookies {
    /// The names.
    pub fn names(&self) -> arc_swap::Guard<Arc<CookieNames>> {
        self.0.load()
    }

    /// Adds a name. True if it is new.
    pub fn learn(&self, name: &[u8]) -> bool {
        // Most names are known, and a read costs other threads nothing.
        if self.0.load().contains(name) {
            return false;
        }
        let mut is_new = false;
        self.0.rcu(|names| {
            let more = names.with(name);
            is_new = more.is_some();
            more.map_or_else(|| names.clone(), Arc::new)
        });
        is_new
    }

    /// Notes that the site sets more cookies than are remembered.
    fn are_too_many(&self) {
        self.0.rcu(|names| CookieNames::clone(names).as_too_many());
    }
}

impl GuardedSite {
    /// Adds names.
    fn add(&self, names: &[String]) {
        let counts = |name: &&[u8]| {
            let rules = self.rules.as_ref();
            rules.is_none_or(|rules| rules.counts_cookie(name))
        };
        for name in names.iter().map(String::as_bytes).filter(counts) {
            self.cookies.learn(name);
        }
    }

    fn written(&self) -> Option<SavedSite> {
        let names = self.cookies.names();
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let is_empty = names.all().next().is_none() && !names.are_too_many();
        let rules = self.rules.as_ref().filter(|_| !is_empty)?;
        Some(SavedSite {
            names: names.all().map(text).collect(),
            are_too_many: names.are_too_many(),
            mark: rules.cookie_mark(),
        })
    }
}

impl AllCookies {
    /// The cookies of a site with these settings. Without `guard_cookies` they are not stored.
    pub fn of(&self, site_key: &str, settings: &Settings) -> Arc<SiteCookies> {
        if settings.guards_cookies {
            let mut sites = self.lock();
            let guarded = sites.entry(site_key.to_owned()).or_default();
            guarded.cookies.clone()
        } else {
            Arc::default()
        }
    }

    /// Applies a new configuration. A site whose cookie settings have changed starts to count its
    /// names again; a site that no longer guards cookies, or is another tenant's, has none.
    pub fn follow(&self, config: &Config) {
        let mut sites = self.lock();
        let mut before = std::mem::take(&mut *sites);
        for site in &config.sites {
            let cache = site.cache.as_ref();
            let Some(cache) = cache.filter(|cache| cache.rules.guards_cookies) else {
                continue;
            };
            let key = site.key(config);
            let mut guarded = before.remove(&key).unwrap_or_default();
            let mark = guarded.rules.as_ref().map(Settings::cookie_mark);
            if mark != Some(cache.rules.cookie_mark()) {
                let names = &guarded.cookies.0;
                names.rcu(|names| names.under(&cache.rules));
            }
            guarded.rules = Some(cache.rules.clone());
            sites.insert(key, guarded);
        }
    }

    /// Adds names that another front has seen; none: more than can be stored.
    pub fn add(&self, site_key: &str, names: Option<&[String]>) {
        match (self.lock().get(site_key), names) {
            (Some(guarded), Some(names)) => guarded.add(names),
            (Some(guarded), None) => guarded.cookies.are_too_many(),
            (None, _) => {}
        }
    }

    /// Adds the names of the file in this folder, if there is one.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, dir: &Path) -> io::Result<()> {
        let Some(text) = own_files::read(&dir.join(FILE), FILE_BYTES as u64)? else {
            return Ok(());
        };
        let all: BTreeMap<String, SavedSite> = serde_json::from_slice(&text)?;
        let sites = self.lock();
        for (site, written) in all {
            let Some(guarded) = sites.get(&site) else {
                continue;
            };
            guarded.add(&written.names);
            let mark = guarded.rules.as_ref().map(Settings::cookie_mark);
            if written.are_too_many && mark == Some(written.mark) {
                guarded.cookies.are_too_many();
            }
        }
        Ok(())
    }

    /// Notes that the file lacks names. True if the caller has to write it: no other thread does.
    pub fn want_writer(&self) -> bool {
        let mut writer = self.writer();
        writer.has_more = true;
        !std::mem::replace(&mut writer.is_running, true)
    }

    /// Whether the thread that writes the file has to write it once more. Otherwise it is none any
    /// more.
    pub fn writer_continues(&self) -> bool {
        let mut writer = self.writer();
        writer.is_running = std::mem::take(&mut writer.has_more);
        writer.is_running
    }

    fn writer(&self) -> MutexGuard<'_, CookieWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the file in this folder. One thread at a time does.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let all: BTreeMap<String, SavedSite> = {
            let sites = self.lock();
            let written = |(site, guarded): (&String, &GuardedSite)| {
                let written = guarded.written()?;
                Some((site.clone(), written))
            };
            sites.iter().filter_map(written).collect()
        };
        let text = fitting(all)?;
        own_files::replace(&dir.join(FILE), &text)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, GuardedSite>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The text of the file. If it is too large, the sites with most names are written as having too
/// many: few sites must not displace the names of all others.
fn fitting(mut all: BTreeMap<String, SavedSite>) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(&all)?;
    if text.len() <= FILE_BYTES {
        return Ok(text);
    }
    let length = |written: &SavedSite| written.names.iter().map(String::len).sum::<usize>();
    let mut sites: Vec<&mut SavedSite> = all.values_mut().collect();
    sites.sort_by_key(|written| std::cmp::Reverse(length(written)));
    let mut excess = text.len() - FILE_BYTES;
    for written in sites {
        if excess == 0 {
            break;
        }
        excess = excess.saturating_sub(length(written));
        (written.names, written.are_too_many) = (Vec::new(), true);
    }
    text = serde_json::to_vec(&all)?;
    if text.len() <= FILE_BYTES {
        Ok(text)
    } else {
        Err(io::Error::other("there are too many sites"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(sites: &[(&str, &str)]) -> Config {
        let text = sites.iter().map(|(host, lines)| {
            format!(
                "[[sites]]\nhosts = \"{host}\"\nroot = \"/\"\n[sites.cache]\n\
                 valid = \"10m\"\n{lines}\n"
            )
        });
        let text: String = text.collect();
        maitred_config::parse(&text, Path::new("/maitred.toml")).unwrap()
    }

    fn followed(sites: &[(&str, &str)]) -> AllCookies {
        let all = AllCookies::default();
        all.follow(&config(sites));
        all
    }

    fn learn(all: &AllCookies, site: &str, names: impl Iterator<Item = String>) {
        all.add(&key(site), Some(&names.collect::<Vec<_>>()));
    }

    fn key(host: &str) -> String {
        let config = config(&[(host, "")]);
        config.sites[0].key(&config)
    }

    fn holds(all: &AllCookies, site: &str, name: &str) -> bool {
        let sites = all.lock();
        let guarded = sites.get(&key(site));
        guarded.is_some_and(|guarded| guarded.cookies.names().contains(name.as_bytes()))
    }

    fn seen(count: usize) -> impl Iterator<Item = String> {
        (0..count).map(|number| format!("seen_{number}"))
    }

    #[test]
    fn what_a_site_has_set_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let sites = [("a.example", ""), ("b.example", "")];
        let all = followed(&sites);
        learn(&all, "a.example", ["login".to_owned()].into_iter());
        learn(&all, "b.example", seen(1000));
        all.write(folder.path()).unwrap();
        let again = followed(&sites);
        again.read(folder.path()).unwrap();
        assert!(holds(&again, "a.example", "login") && !holds(&again, "a.example", "other"));
        assert!(holds(&again, "b.example", "anything"));
        // The remedy that the warning names helps, and no name is lost by it.
        let public = [("a.example", ""), ("b.example", "public_cookies = \"x\"")];
        let changed = followed(&public);
        changed.read(folder.path()).unwrap();
        assert!(!holds(&changed, "b.example", "anything"));
        assert!(holds(&changed, "b.example", "seen_0"));
    }

    #[test]
    fn a_site_with_too_many_names_is_as_others_once_its_settings_are_others() {
        let all = followed(&[("a.example", "")]);
        learn(&all, "a.example", ["login".to_owned()].into_iter().chain(seen(1000)));
        all.follow(&config(&[("a.example", "")]));
        assert!(holds(&all, "a.example", "anything"));
        all.follow(&config(&[("a.example", "public_cookies = \"seen_*\"")]));
        assert!(!holds(&all, "a.example", "anything") && holds(&all, "a.example", "login"));
        // Public ones do not count.
        learn(&all, "a.example", seen(1000));
        assert!(!holds(&all, "a.example", "anything"));
        all.follow(&config(&[("a.example", "private_cookies = \"login\"")]));
        assert!(!holds(&all, "a.example", "login"));
    }

    #[test]
    fn many_sites_with_many_names_do_not_keep_others_from_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let hosts: Vec<String> = (0..300).map(|number| format!("h{number}.example")).collect();
        let hostile = hosts.iter().map(|host| (host.as_str(), ""));
        let sites: Vec<(&str, &str)> = hostile.chain([("a.example", "")]).collect();
        let all = followed(&sites);
        let long = |number: usize| format!("{number:03}{}", "\u{1}\"é".repeat(40));
        for host in &hosts {
            learn(&all, host, (0..256).map(long));
        }
        learn(&all, "a.example", ["login".to_owned()].into_iter());
        all.write(folder.path()).unwrap();
        let again = followed(&sites);
        again.read(folder.path()).unwrap();
        assert!(holds(&again, "a.example", "login") && !holds(&again, "a.example", "other"));
        let first = long(0);
        assert!(hosts.iter().all(|host| holds(&again, host, &first)));
    }

    #[test]
    fn one_thread_writes_and_writes_again_what_is_new_meanwhile() {
        let all = AllCookies::default();
        assert!(all.want_writer() && all.writer_continues());
        assert!(!all.want_writer() && !all.want_writer(), "it is being written");
        assert!(all.writer_continues() && !all.writer_continues());
        assert!(all.want_writer());
    }
}
