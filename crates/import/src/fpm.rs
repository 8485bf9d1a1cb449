//! Pools of php-fpm, and which of them a web server's address means.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::FileReader;
use crate::file_draft::{Placed, PoolDraft};
use crate::fpm_entries::{ADDING_UP, FpmEntry, FpmSection, convert};
use crate::fpm_php::FpmPhp;
use crate::fpm_reader::FpmReader;
use crate::report::{ImportReport, Outcome, SourceLine};
use crate::toml_text;
use crate::values;

/// Settings of PHP that confine scripts. A script that runs before all others may be their login.
pub const CONFINING: [&str; 5] = [
    "open_basedir",
    "disable_functions",
    "disable_classes",
    "allow_url_include",
    "auto_prepend_file",
];

/// Settings of a pool that are the rights of its scripts.
const RIGHTS: [&str; 4] = ["user", "group", "chroot", "apparmor_hat"];

/// The web server before php-fpm, which waits for its scripts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WebServer {
    /// nginx.
    #[default]
    Nginx,
    /// Apache's httpd.
    Apache,
    /// Caddy.
    Caddy,
}

impl WebServer {
    fn name(self) -> &'static str {
        match self {
            WebServer::Nginx => "nginx",
            WebServer::Apache => "Apache",
            WebServer::Caddy => "Caddy",
        }
    }

    /// The directive with the timeout.
    fn directive(self) -> &'static str {
        match self {
            WebServer::Nginx => "fastcgi_read_timeout",
            WebServer::Apache => "ProxyTimeout",
            WebServer::Caddy => "read_timeout",
        }
    }

    /// The default of that directive: nginx's `fastcgi_read_timeout`, Apache's `Timeout`. Caddy has
    /// none, and the import gives none.
    fn default_timeout(self) -> Duration {
        Duration::from_secs(60)
    }
}

/// What runs the scripts of a location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PassTarget {
    /// A pool of php-fpm, by its name here.
    Pool(String),
    /// Another FastCGI server, as `upstream` has it.
    Upstream(String),
}

/// The pools that were found, and what the sites want of those that they use.
#[derive(Debug, Default)]
pub struct PoolPlan {
    web_server: WebServer,
    global: Vec<FpmEntry>,
    pools: Vec<FpmSection>,
    /// The PHP of each php-fpm.
    phps: Vec<FpmPhp>,
    used: Vec<String>,
    entries: BTreeMap<(String, String, String), Placed>,
    waits: BTreeMap<String, (Duration, SourceLine, bool)>,
    sites: BTreeMap<String, BTreeSet<SourceLine>>,
    params: Vec<SiteParam>,
}

/// A parameter of a site that becomes a setting of its pool.
#[derive(Debug)]
struct SiteParam {
    pool: String,
    place: SourceLine,
    what: String,
}

impl PoolPlan {
    /// The same plan behind another web server than nginx.
    #[must_use]
    pub fn behind(self, web_server: WebServer) -> PoolPlan {
        PoolPlan { web_server, ..self }
    }

    /// Reads php-fpm's configuration: all of these files, and what they include.
    pub fn read(files: &dyn FileReader, roots: &[String], report: &mut ImportReport) -> PoolPlan {
        let mut reader = FpmReader::new(files, report);
        for (server, root) in roots.iter().enumerate() {
            reader.read_root(server, root);
        }
        let FpmReader { global, pools, .. } = reader;
        let phps = roots.iter().map(|root| FpmPhp::of(root, files)).collect();
        PoolPlan { global, pools, phps, ..PoolPlan::default() }
    }

    /// The pool that listens on the address of a `fastcgi_pass`. A site uses it.
    pub fn target(&mut self, address: &str, files: &dyn FileReader) -> PassTarget {
        let target = self.listening(address, files);
        if let PassTarget::Pool(name) = &target
            && !self.used.contains(name)
        {
            self.used.push(name.clone());
        }
        target
    }

    /// The pool that listens on an address.
    pub fn listening(&self, address: &str, files: &dyn FileReader) -> PassTarget {
        let wanted = one_address(address, files);
        let found = self.pools.iter().find(|pool| {
            pool.get("listen").is_some_and(|listen| one_address(&listen.value, files) == wanted)
        });
        match found {
            Some(pool) => PassTarget::Pool(pool.name_here.clone()),
            None => PassTarget::Upstream(address.to_owned()),
        }
    }

    /// The root directory of a pool's scripts, if it has one of its own.
    pub fn chroot(&self, name: &str) -> Option<String> {
        let index = self.index(name)?;
        self.pools[index].get("chroot").map(|entry| entry.value.clone())
    }

    fn index(&self, name: &str) -> Option<usize> {
        self.pools.iter().position(|pool| pool.name_here == name)
    }

    /// Whether it is a pool of php-fpm.
    pub fn has(&self, name: &str) -> bool {
        self.index(name).is_some()
    }

    /// Whether the scripts of two pools have the same rights.
    pub fn have_same_rights(&self, one: &str, other: &str) -> bool {
        let rights = self.rights(one);
        rights.is_some() && rights == self.rights(other)
    }

    /// The rights of a pool's scripts by setting. Without a user of its own, a pool has that of its
    /// php-fpm.
    fn rights(&self, name: &str) -> Option<BTreeMap<(&str, &str), String>> {
        let pool = &self.pools[self.index(name)?];
        let mut rights: BTreeMap<(&str, &str), String> = BTreeMap::new();
        for entry in &pool.entries {
            match &entry.key {
                // Of PHP's settings, the first value counts; of the pool's own, the last.
                Some(key) if CONFINING.contains(&key.as_str()) => {
                    let right = rights.entry((&entry.name, key));
                    right.or_insert_with(|| entry.value.clone());
                }
                None if RIGHTS.contains(&entry.name.as_str()) => {
                    rights.insert((&entry.name, ""), entry.value.clone());
                }
                _ => {}
            }
        }
        let of_sites = self.entries.iter().filter_map(|((pool, table, key), value)| {
            let is_right = pool == name && CONFINING.contains(&key.as_str());
            is_right.then_some((
                (table.as_str(), key.as_str()),
                value.toml.trim_matches('"').to_owned(),
            ))
        });
        rights.extend(of_sites);
        for key in ADDING_UP {
            rights.remove(&("php_value", key));
            let all = self.disabled(pool, key).map(|all| all.toml).unwrap_or_default();
            rights.insert(("php_admin_value", key), all);
        }
        let of_server = || format!("that of php-fpm {}", pool.server);
        rights.entry(("user", "")).or_insert_with(of_server);
        if let Some(ini) = self.phps.get(pool.server).and_then(|php| php.ini.clone()) {
            rights.insert(("php_ini", ""), ini);
        }
        Some(rights)
    }

    /// All that a setting of [`ADDING_UP`] disables, in the pool and by the web server.
    fn disabled(&self, pool: &FpmSection, key: &str) -> Option<Placed> {
        let is_own = |entry: &&FpmEntry| entry.adds_up() && entry.key.as_deref() == Some(key);
        let own = pool.entries.iter().filter(is_own);
        let own = own.map(|entry| (entry.value.as_str(), entry.place.to_string()));
        let is_of_site = |((name, _, entry), _): &(&(String, String, String), &Placed)| {
            *name == pool.name_here && entry == key
        };
        let of_sites = self.entries.iter().filter(is_of_site);
        let of_sites =
            of_sites.map(|(_, value)| (value.toml.trim_matches('"'), value.from.clone()));
        let all = own.chain(of_sites).filter(|(value, _)| !value.is_empty());
        let (values, places): (Vec<&str>, Vec<String>) = all.unzip();
        let from = places.into_iter().next()?;
        Some(Placed { toml: toml_text::string(&values.join(",")), from })
    }

    /// The time that a web server waits for a pool. Without a timeout of its own, it has a default.
    pub fn waits(
        &mut self,
        target: &PassTarget,
        time: Option<(&str, &SourceLine)>,
        pass: &SourceLine,
    ) {
        let PassTarget::Pool(name) = target else { return };
        let (time, place, is_own) = match time {
            Some((text, place)) => {
                let time = values::time(text);
                (time.unwrap_or_else(|| self.web_server.default_timeout()), place, true)
            }
            None => (self.web_server.default_timeout(), pass, false),
        };
        let new = (time, place.clone(), is_own);
        match self.waits.get_mut(name) {
            Some(known) if known.0 >= time => {}
            Some(known) => *known = new,
            None => drop(self.waits.insert(name.clone(), new)),
        }
    }

    /// A site whose scripts a pool runs.
    pub fn used_by(&mut self, target: &PassTarget, site: &SourceLine) {
        if let PassTarget::Pool(name) = target {
            self.sites.entry(name.clone()).or_default().insert(site.clone());
        }
    }

    /// A parameter of a site that is an entry of its pool now.
    pub fn param(&mut self, pool: &str, place: &SourceLine, what: &str) {
        let (pool, place, what) = (pool.to_owned(), place.clone(), what.to_owned());
        self.params.push(SiteParam { pool, place, what });
    }

    /// Reports parameters of one site that others get as well.
    fn shared_params(&self, report: &mut ImportReport) {
        for SiteParam { pool, place, what } in &self.params {
            let count = self.sites.get(pool).map_or(0, BTreeSet::len);
            if count > 1 {
                let why = format!(
                    "all {count} sites of the pool {pool} get it; give the site a pool of its own"
                );
                report.changed(place, what, &why);
            }
        }
    }

    /// Adds an entry to a table of a pool.
    ///
    /// # Errors
    /// Why it cannot be added, as a sentence.
    pub fn entry(
        &mut self,
        pool: &str,
        table: &str,
        name: &str,
        value: Placed,
    ) -> Result<(), String> {
        if !self.used.iter().any(|used| used == pool) {
            return Err("the FastCGI server of the site is no pool here".to_owned());
        }
        let key = (pool.to_owned(), table.to_owned(), name.to_owned());
        match self.entries.get(&key) {
            Some(known) if known.toml != value.toml => {
                Err(format!("the pool has another value from {}; use a pool for each", known.from))
            }
            Some(_) => Ok(()),
            None => {
                self.entries.insert(key, value);
                Ok(())
            }
        }
    }

    /// The sections of the used pools.
    pub fn sections(&self, report: &mut ImportReport) -> (Vec<PoolDraft>, Option<Placed>) {
        self.shared_params(report);
        let mut drafts = Vec::new();
        for pool in &self.pools {
            let name = &pool.name_here;
            if !self.used.contains(name) {
                let why = "no site uses this pool; php-fpm can go on serving it";
                report.left_out(&pool.place, &format!("[{}]", pool.name), why);
                continue;
            }
            let mut draft = PoolDraft {
                name: name.clone(),
                from: pool.place.to_string(),
                ..PoolDraft::default()
            };
            self.php(pool, &mut draft, report);
            for key in ADDING_UP {
                if let Some(all) = self.disabled(pool, key) {
                    draft.settings.entry("php_admin_value", key, all);
                }
            }
            for entry in &pool.entries {
                if entry.adds_up() {
                    report.kept(&entry.place, &entry.shown());
                    continue;
                }
                let key = entry.key.clone().unwrap_or_default();
                if self.entries.contains_key(&(name.clone(), entry.name.clone(), key.clone())) {
                    let is_shared = self.sites.get(name).is_some_and(|sites| sites.len() > 1);
                    let why = "the value that the web server sends is in its place";
                    let outcome = match is_shared && CONFINING.contains(&key.as_str()) {
                        true => Outcome::LeftOutAccess,
                        false => Outcome::Changed,
                    };
                    report.add(outcome, &entry.place, &entry.shown(), why);
                    continue;
                }
                convert(entry, pool, &mut draft, report);
            }
            self.timeouts(pool, name, &mut draft, report);
            for ((_, table, entry), value) in
                self.entries.iter().filter(|((pool, ..), _)| pool == name)
            {
                if ADDING_UP.contains(&entry.as_str()) {
                    continue;
                }
                draft.settings.entry(table, entry, value.clone());
            }
            drafts.push(draft);
        }
        (drafts, control_timeout(&self.global, report))
    }

    /// The version and the php.ini of a pool's php-fpm, which may confine its scripts.
    fn php(&self, pool: &FpmSection, draft: &mut PoolDraft, report: &mut ImportReport) {
        let Some(php) = self.phps.get(pool.server) else { return };
        let settings =
            [("php", &php.version), ("php_ini", &php.ini), ("php_ini_scan_dir", &php.scan_dir)];
        for (name, value) in settings {
            if let Some(value) = value {
                draft.settings.set(name, Placed::new(toml_text::string(value), &pool.place));
            }
        }
        if php.is_unknown {
            let why = "the php.ini of its php-fpm was not found: set `php_ini` of the pool";
            report.access_left_out(&pool.place, &format!("[{}]", pool.name), why);
        }
    }

    /// The ladder of timeouts: what the web server waited, and when the script is ended.
    fn timeouts(
        &self,
        pool: &FpmSection,
        name: &str,
        draft: &mut PoolDraft,
        report: &mut ImportReport,
    ) {
        let own = pool.get("request_terminate_timeout");
        let ends = own.and_then(|entry| values::time(&entry.value)).filter(|time| !time.is_zero());
        let wait = self.waits.get(name);
        let shown = |time: Duration| values::duration(time);
        if let (Some(own), Some(ends)) = (own, ends) {
            let toml = toml_text::string(&shown(ends));
            draft.settings.set("request_terminate_timeout", Placed::new(toml, &own.place));
        }
        let ends = match (ends, wait) {
            (None, Some((wait, place, is_own))) => {
                let toml = toml_text::string(&shown(*wait));
                draft.settings.set("request_terminate_timeout", Placed::new(toml, place));
                let default = if *is_own { "" } else { " (its default)" };
                let why = format!(
                    "{} gave up after {}{default} and the script went on; here it is ended then",
                    self.web_server.name(),
                    shown(*wait)
                );
                report.changed(place, self.web_server.directive(), &why);
                Some(*wait)
            }
            (Some(ends), Some((wait, place, _))) if ends > *wait => {
                let why = format!(
                    "{} gave up after {}, before php-fpm ended the script after {}; clients wait \
                     for the script here",
                    self.web_server.name(),
                    shown(*wait),
                    shown(ends)
                );
                report.changed(place, self.web_server.directive(), &why);
                Some(ends)
            }
            (ends, _) => ends,
        };
        let slow = pool.get("request_slowlog_timeout");
        let Some((slow, time)) = slow.and_then(|slow| Some((slow, values::time(&slow.value)?)))
        else {
            return;
        };
        match ends {
            Some(ends) if time > ends => {
                let why = format!("scripts are ended after {}, before that", shown(ends));
                report.changed(&slow.place, "request_slowlog_timeout", &why);
            }
            _ => {
                let toml = toml_text::string(&shown(time));
                let slow = Placed::new(toml, &slow.place);
                draft.settings.set("request_slowlog_timeout", slow);
            }
        }
    }
}

fn control_timeout(global: &[FpmEntry], report: &mut ImportReport) -> Option<Placed> {
    let entry = global.iter().rev().find(|entry| entry.name == "process_control_timeout")?;
    report.kept(&entry.place, &entry.name);
    let time = values::time(&entry.value).filter(|time| !time.is_zero())?;
    Some(Placed::new(toml_text::string(&values::duration(time)), &entry.place))
}

/// One spelling of an address.
fn one_address(address: &str, files: &dyn FileReader) -> String {
    let address = address.strip_prefix("unix:").unwrap_or(address);
    if address.starts_with('/') {
        return files.resolved(address).unwrap_or_else(|| address.to_owned());
    }
    let local = ["127.0.0.1:", "localhost:", "[::1]:", "0.0.0.0:", "[::]:", "*:"];
    let port = local.iter().find_map(|start| address.strip_prefix(start)).unwrap_or(address);
    port.to_owned()
}
