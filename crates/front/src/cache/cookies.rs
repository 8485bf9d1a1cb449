//! The names of the cookies that sites have set, for all threads. They outlive a reload, and in
//! `cache_dir` a restart: pages that are there must not be shown to visitors who are logged in.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use maitred_pagecache::cookies::Names;

/// The file in `cache_dir`, and the one that is made to take its place.
const FILE: &str = "cookies";
const NEW_FILE: &str = "cookies.new";

/// Largest such file that is read or written, in bytes: that of some hundred sites with as many names
/// as are remembered.
const FILE_BYTES: usize = 4 << 20;

/// What a site has set.
#[derive(Debug, Default)]
pub struct SiteCookies(ArcSwap<Names>);

/// The same of all sites, by their names.
#[derive(Debug, Default)]
pub struct AllCookies {
    sites: Mutex<HashMap<String, Arc<SiteCookies>>>,
    /// One thread writes the file at a time.
    writing: Mutex<()>,
}

impl SiteCookies {
    /// The names.
    pub fn names(&self) -> arc_swap::Guard<Arc<Names>> {
        self.0.load()
    }

    /// A cookie of this name is set. True if none was before.
    pub fn learn(&self, name: &[u8]) -> bool {
        let mut is_new = false;
        self.0.rcu(|names| {
            let more = names.with(name);
            is_new = more.is_some();
            more.map_or_else(|| names.clone(), Arc::new)
        });
        is_new
    }

    /// The site sets these as well; none: more than are remembered.
    pub fn add(&self, names: Option<&[String]>) {
        let Some(names) = names else {
            return self.0.store(Arc::new(Names::too_many()));
        };
        for name in names {
            self.learn(name.as_bytes());
        }
    }
}

impl AllCookies {
    /// Those of a site.
    pub fn of(&self, site: &str) -> Arc<SiteCookies> {
        self.lock().entry(site.to_owned()).or_default().clone()
    }

    /// Adds what is written down in this folder, if there is anything.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, dir: &Path) -> io::Result<()> {
        let file = match File::open(dir.join(FILE)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let mut text = Vec::new();
        file.take(FILE_BYTES as u64).read_to_end(&mut text)?;
        // Of a site with too many there are none.
        let all: BTreeMap<String, Option<Vec<String>>> = serde_json::from_slice(&text)?;
        for (site, names) in all {
            self.of(&site).add(names.as_deref());
        }
        Ok(())
    }

    /// Writes all down in this folder.
    ///
    /// # Errors
    /// When they cannot be written.
    pub fn write(&self, dir: &Path) -> io::Result<()> {
        let _one = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let all: BTreeMap<String, Option<Vec<String>>> = {
            let sites = self.lock();
            let told = sites.iter().map(|(site, cookies)| {
                let names = cookies.names();
                let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
                let names = names.all().map(|names| names.map(text).collect());
                (site.clone(), names)
            });
            told.collect()
        };
        let text = serde_json::to_vec(&all)?;
        if text.len() > FILE_BYTES {
            return Err(io::Error::other("there are too many"));
        }
        let new = dir.join(NEW_FILE);
        fs::write(&new, text)?;
        fs::rename(&new, dir.join(FILE))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<SiteCookies>>> {
        self.sites.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_site_has_set_is_known_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let all = AllCookies::default();
        assert!(all.of("a.example").learn(b"login") && !all.of("a.example").learn(b"login"));
        for number in 0..1000 {
            all.of("b.example")
                .learn(format!("seen_{number}").as_bytes());
        }
        all.write(folder.path()).unwrap();
        let again = AllCookies::default();
        again.read(folder.path()).unwrap();
        let hold = |site: &str, name: &str| again.of(site).names().hold(name.as_bytes());
        assert!(hold("a.example", "login") && !hold("a.example", "other"));
        assert!(hold("b.example", "anything"));
    }
}
