//! From the sections of the file to a whole configuration.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::admin;
use crate::check::app_cron::app_cron;
use crate::check::confinement::check_confinement;
use crate::check::jobs::settle_job;
use crate::check::listeners::{refuse_shared_addresses, settle_listeners};
use crate::check::mode::check_mode;
use crate::check::site::{SpannedDraft, refuse_shared_hosts, settle_site};
use crate::check::slowlog::check_slowlog;
use crate::check::spare_servers::settle_spare_servers;
use crate::check::tls::check_tls;
use crate::mistakes::{Fault, quoted};
use crate::model::config::{Config, IMPLICIT_POOL};
use crate::model::job::Job;
use crate::model::pool::Pool;
use crate::model::site::Cache;
use crate::model::tls::Tls;
use crate::model::trace_export::Traces;
use crate::read::directive::{Directive, SectionTable, read_settings};
use crate::read::directives::jobs::JobDraft;
use crate::read::directives::{
    self, cache, global, jobs, listeners, output, pools, rules, sites, tls, trace_export,
};
use crate::read::drafts::{CacheDraft, ListenerDraft, SiteDraft};
use crate::read::foreign::foreign_setting;
use crate::read::pool_defaults::{inherited, is_at_default, refuse_settings_of_one_pool};
use crate::sources::Sources;
use crate::suggest::nearest;

/// Longest name of a pool in bytes: it is part of the titles of processes.
const MAX_POOL_NAME_BYTES: usize = 32;

/// Most pools and sites of a configuration.
const MAX_POOLS: usize = 10_000;
const MAX_SITES: usize = 100_000;

/// A value with its position in the file.
type SpannedValue<'a> = Spanned<DeValue<'a>>;

/// Builds the configuration from the whole file.
///
/// The faults of all files come with it; it lacks what has one.
pub(crate) fn assemble<'a>(table: &DeTable<'a>, sources: &'a Sources) -> (Config, Vec<Fault>) {
    let mut assembler = Assembler {
        sources,
        jobs: Vec::new(),
        decides_runs: table.get("purge_log").is_some_and(|log| {
            log.get_ref().as_table().is_none_or(|log| !log.contains_key("peers"))
        }),
        defaults: DeTable::new(),
        faults: Vec::new(),
    };
    let config = assembler.config(table);
    (config, assembler.faults)
}

struct Assembler<'a> {
    sources: &'a Sources,
    /// The commands and schedules of the pools.
    jobs: Vec<Job>,
    /// There is a purge log that can decide which node runs a schedule.
    decides_runs: bool,
    /// `[pool_defaults]`.
    defaults: DeTable<'a>,
    faults: Vec<Fault>,
}

impl<'a> Assembler<'a> {
    fn fault(&mut self, span: Range<usize>, sentence: impl Into<String>) {
        self.faults.push(Fault::new(span, sentence));
    }

    fn refuse_unknown(&mut self, section: &SectionTable, table: &DeTable<'_>, title: &str) {
        let unknown = section.unknown(table, title, directives::section_of);
        self.faults.extend(unknown);
    }

    fn read<T>(&mut self, directives: &[Directive<T>], table: &DeTable<'_>, target: &mut T) {
        self.faults.extend(read_settings(directives, table, self.sources, target));
    }

    fn config(&mut self, table: &DeTable<'a>) -> Config {
        let mut config = Config::new();
        self.refuse_unknown(&directives::TOP, table, "at the top of the file");
        self.suggest_sections(table);
        self.read(global::DIRECTIVES, table, &mut config);
        if let Some(admin) = config.admin
            && admin.port() != 0
            && config.listen.contains(&admin)
        {
            let sentence = "`admin` is an address of `listen` too; choose another port";
            self.faults.push(Fault::at(table, "admin", sentence));
        }
        if let Some(agent) = config.agent_check.filter(|agent| agent.port() != 0)
            && (config.listen.contains(&agent) || config.admin == Some(agent))
        {
            let sentence = "`agent_check` is an address of `listen` or `admin` too; choose \
                            another port";
            self.faults.push(Fault::at(table, "agent_check", sentence));
        }
        self.faults.extend(admin::settle(&mut config, table));
        if let Some(section) = table.get("tls") {
            if !table.contains_key("listen") {
                // With [tls] alone, there is no plain HTTP.
                config.listen.clear();
            }
            config.tls = self.tls(section, &config, table);
        }
        if let Some(section) = table.get("traces") {
            config.traces = self.traces(section);
        }
        if config.proxy_protocol && config.trusted_proxies.is_empty() {
            let sentence = "`proxy_protocol` is true, but no proxy is trusted to send it; add \
                            `trusted_proxies`";
            self.faults.push(Fault::at(table, "proxy_protocol", sentence));
        }
        self.pools_and_sites(table, &mut config);
        config
    }

    /// Replaces "unknown setting" for sections by a suggestion of the section that was meant.
    fn suggest_sections(&mut self, table: &DeTable<'_>) {
        for (key, whole) in table {
            let (name, value) = (key.get_ref().as_ref(), whole.get_ref());
            let items = value.as_array().and_then(|items| items.iter().next());
            let is_section =
                value.is_table() || items.is_some_and(|item| item.get_ref().is_table());
            let is_known = directives::section_of(name).is_some() && name != "pool";
            let has_own_sentence = foreign_setting(name, whole).is_some();
            let is_section = is_section && !is_known && !has_own_sentence;
            let fault = self.faults.iter_mut().find(|fault| fault.span == key.span());
            if let Some(fault) = fault.filter(|_| is_section) {
                let meant = match nearest(name, directives::TOP.subsections.iter().copied()) {
                    Some("pools") => "did you mean [pools.NAME]?",
                    Some("sites") => "did you mean [[sites]]?",
                    Some("tls") => "did you mean [tls]?",
                    Some("traces") => "did you mean [traces]?",
                    Some(_) => "did you mean [pool_defaults]?",
                    None => {
                        "expected [pools.NAME], [pool_defaults], [[sites]], [sites.cache] or [tls]"
                    }
                };
                fault.sentence = format!("unknown section `{}`; {meant}", quoted(name));
            }
        }
    }

    fn tls(
        &mut self,
        section: &SpannedValue<'_>,
        config: &Config,
        table: &DeTable<'_>,
    ) -> Option<Tls> {
        let Some(settings) = section.get_ref().as_table() else {
            let sentence = "`tls` is no table; write a section [tls] with `certificates`";
            self.fault(section.span(), sentence);
            return None;
        };
        let mut tls = Tls::default();
        self.refuse_unknown(&directives::TLS, settings, "in [tls]");
        self.read(tls::DIRECTIVES, settings, &mut tls);
        self.faults.extend(check_tls(&tls, config, table, section));
        Some(tls)
    }

    fn traces(&mut self, section: &SpannedValue<'_>) -> Option<Traces> {
        let Some(settings) = section.get_ref().as_table() else {
            let sentence = "`traces` is no table; write a section [traces]";
            self.fault(section.span(), sentence);
            return None;
        };
        let mut traces = Traces::default();
        self.refuse_unknown(&directives::TRACES, settings, "in [traces]");
        self.read(trace_export::DIRECTIVES, settings, &mut traces);
        if !settings.contains_key("service_name")
            && let Some((_, name)) = traces.resource.iter().find(|(key, _)| key == "service.name")
        {
            traces.service_name.clone_from(name);
        }
        traces.resource.retain(|(key, _)| key != "service.name");
        Some(traces)
    }

    fn pools_and_sites(&mut self, table: &DeTable<'a>, config: &mut Config) {
        if let Some(section) = table.get(directives::POOL_DEFAULTS) {
            self.pool_defaults(section);
        }
        let mut is_implicit = true;
        if let Some(value) = table.get("pools") {
            config.pools = self.pools(value);
            config.jobs = std::mem::take(&mut self.jobs);
            let pools = value.get_ref().as_table();
            is_implicit = pools.is_some_and(|pools| pools.is_empty());
            if let Some(pools) = pools {
                self.faults.extend(refuse_shared_addresses(config, pools));
            }
        }
        let drafts = match table.get("sites") {
            Some(value) => self.sites(value),
            None if has_listeners_only(table) => {
                config.listen.clear();
                Vec::new()
            }
            None => {
                self.fault(0..0, "there is no site; add [[sites]] with the `root` of one");
                Vec::new()
            }
        };
        refuse_shared_hosts(&drafts, self.sources, &mut self.faults);
        if is_implicit && drafts.iter().any(|draft| draft.site.upstream.is_none()) {
            let pool = self.pool(IMPLICIT_POOL, 0..0, &DeTable::new());
            config.pools.push(pool);
        }
        for draft in drafts {
            let span = draft.span.clone();
            let cron = draft.site.rules.app_cron.then_some(draft.site.rules.app);
            let site = settle_site(draft, &config.pools, &mut self.faults);
            if let (Some(site), Some(app)) = (&site, cron) {
                match app_cron(app, site, &config.pools, &config.jobs) {
                    Ok(job) => config.jobs.push(job),
                    Err(why) => self.fault(span, why),
                }
            }
            config.sites.extend(site);
        }
    }

    fn pools(&mut self, value: &SpannedValue<'a>) -> Vec<Pool> {
        let Some(table) = value.get_ref().as_table() else {
            let sentence = "`pools` is no table; write a section such as [pools.www] for each pool";
            self.fault(value.span(), sentence);
            return Vec::new();
        };
        let found = table.len();
        if found > MAX_POOLS {
            let sentence = format!("there are {found} pools; expected at most {MAX_POOLS}");
            self.fault(value.span(), sentence);
            return Vec::new();
        }
        let mut pools = Vec::new();
        for (key, value) in table.iter() {
            match value.get_ref().as_table() {
                Some(settings) => {
                    pools.push(self.pool(key.get_ref(), key.span(), settings));
                    self.jobs(key.get_ref(), settings);
                }
                None => self.fault(key.span(), stray_in_pools(key.get_ref())),
            }
        }
        pools
    }

    fn pool(&mut self, name: &str, span: Range<usize>, settings: &DeTable<'a>) -> Pool {
        if !is_pool_name(name) {
            let sentence = format!(
                "the pool name `{}` cannot be used; expected 1 to {MAX_POOL_NAME_BYTES} letters, \
                 digits, `_` or `-`",
                quoted(name)
            );
            self.fault(span, sentence);
        }
        let mut pool = Pool::named(name);
        let title = format!("in [pools.{}]", quoted(name));
        self.refuse_unknown(&directives::POOL, settings, &title);
        let settings = &inherited(settings, &self.defaults);
        self.read(pools::DIRECTIVES, settings, &mut pool);
        let mut listener = ListenerDraft::default();
        self.read(listeners::DIRECTIVES, settings, &mut listener);
        let unused = settle_listeners(&mut pool, listener, settings).into_iter();
        // Defaults of listeners apply to pools with such a listener.
        let unused = unused.filter(|fault| !is_at_default(fault, &self.defaults));
        self.faults.extend(unused);
        let known = self.faults.len();
        let faults = &mut self.faults;
        faults.extend(settle_spare_servers(&mut pool, settings));
        faults.extend(check_slowlog(&pool, settings));
        faults.extend(check_mode(&pool, settings));
        faults.extend(check_confinement(&pool, settings));
        let at_default = |fault: &&mut Fault| is_at_default(fault, &self.defaults);
        for fault in faults.iter_mut().skip(known).filter(at_default) {
            fault.sentence = format!("of pool `{}`: {}", quoted(name), fault.sentence);
        }
        pool
    }

    /// Reads the commands and the schedules of a pool.
    fn jobs(&mut self, pool: &str, settings: &DeTable<'_>) {
        let kinds = [
            ("commands", &directives::COMMANDS, jobs::COMMANDS),
            ("schedules", &directives::SCHEDULES, jobs::SCHEDULES),
        ];
        for (list, section, directives) in kinds {
            let Some(value) = settings.get(list) else { continue };
            let Some(tables) = value.get_ref().as_array() else {
                self.fault(value.span(), no_list(list, pool));
                continue;
            };
            for item in tables.iter() {
                let Some(table) = item.get_ref().as_table() else {
                    self.fault(item.span(), no_list(list, pool));
                    continue;
                };
                let is_schedule = list == "schedules";
                let mut draft = JobDraft { is_schedule, ..JobDraft::default() };
                self.refuse_unknown(section, table, &format!("in [[pools.{pool}.{list}]]"));
                self.read(directives, table, &mut draft);
                let settled = settle_job(draft, pool, table, item.span(), &self.jobs);
                match settled {
                    Ok(job) if job.runs_on_one_node() && !self.decides_runs => self.fault(
                        item.span(),
                        "this schedule has `one_node`, which needs a `purge_log` with `url`: its \
                         Redis decides which node runs",
                    ),
                    Ok(job) => self.jobs.push(job),
                    Err(fault) => self.faults.extend(fault),
                }
            }
        }
    }

    /// Reads `[pool_defaults]`, whose faults are those of pools that inherit them, too.
    fn pool_defaults(&mut self, section: &SpannedValue<'a>) {
        let Some(defaults) = section.get_ref().as_table() else {
            let sentence = "`pool_defaults` is no table; write a section [pool_defaults]";
            self.fault(section.span(), sentence);
            return;
        };
        self.refuse_unknown(&directives::POOL, defaults, "in [pool_defaults]");
        self.faults.extend(refuse_settings_of_one_pool(defaults));
        self.read(pools::DIRECTIVES, defaults, &mut Pool::default());
        self.read(listeners::DIRECTIVES, defaults, &mut ListenerDraft::default());
        self.defaults = defaults.clone();
    }

    fn sites(&mut self, value: &SpannedValue<'_>) -> Vec<SpannedDraft> {
        let tables = value.get_ref().as_array().filter(|array| !array.is_empty());
        let Some(tables) = tables else {
            let sentence = "`sites` is not a list of sites; write [[sites]], with two brackets, \
                            before the settings of each site";
            self.fault(value.span(), sentence);
            return Vec::new();
        };
        let found = tables.len();
        if found > MAX_SITES {
            let sentence = format!("there are {found} sites; expected at most {MAX_SITES}");
            self.fault(value.span(), sentence);
            return Vec::new();
        }
        let mut drafts = Vec::new();
        for table in tables.iter() {
            let Some(settings) = table.get_ref().as_table() else {
                let sentence = "`sites` has an item that is no table; write [[sites]] before the \
                                settings of each site";
                self.fault(table.span(), sentence);
                continue;
            };
            let site = self.site(settings);
            if !settings.contains_key("root") {
                let sentence = "this site has no `root`; add the path of its document root";
                self.fault(table.span(), sentence);
            }
            let span = table.span();
            drafts.push(SpannedDraft { site, span });
        }
        drafts
    }

    fn site(&mut self, settings: &DeTable<'_>) -> SiteDraft {
        let mut draft = SiteDraft::default();
        self.refuse_unknown(&directives::SITE, settings, "in [[sites]]");
        self.read(sites::DIRECTIVES, settings, &mut draft);
        self.read(rules::DIRECTIVES, settings, &mut draft.rules);
        self.read(output::DIRECTIVES, settings, &mut draft.output);
        draft.cache = settings.get("cache").and_then(|section| self.cache(section));
        // A wrong `hosts` must not make this the default site, and so another mistake.
        if draft.hosts.is_none() && settings.contains_key("hosts") {
            draft.hosts = Some(Vec::new());
        }
        draft
    }

    fn cache(&mut self, section: &SpannedValue<'_>) -> Option<CacheDraft> {
        let Some(settings) = section.get_ref().as_table() else {
            let sentence =
                "`cache` is no table; write a section [sites.cache] after the site's settings";
            self.fault(section.span(), sentence);
            return None;
        };
        let mut cache = Cache::default();
        self.refuse_unknown(&directives::CACHE, settings, "in [sites.cache]");
        self.read(cache::DIRECTIVES, settings, &mut cache);
        Some(CacheDraft {
            cache,
            has_cookies: settings.contains_key("private_cookies"),
            has_public: settings.contains_key("public_cookies"),
            has_parameters: settings.contains_key("ignore_parameters"),
        })
    }
}

/// Whether every pool has a FastCGI listener and the file has no setting about HTTP.
fn has_listeners_only(table: &DeTable<'_>) -> bool {
    let pools = table.get("pools").and_then(|pools| pools.get_ref().as_table());
    let has_listener = |pool: &SpannedValue<'_>| {
        let settings = pool.get_ref().as_table();
        settings.is_some_and(|settings| settings.contains_key("listen"))
    };
    let all = pools
        .is_some_and(|pools| !pools.is_empty() && pools.iter().all(|(_, pool)| has_listener(pool)));
    all && !table.contains_key("listen") && !table.contains_key("tls")
}

fn no_list(list: &str, pool: &str) -> String {
    format!("`{list}` is no list of sections; write [[pools.{}.{list}]] for each", quoted(pool))
}

fn stray_in_pools(name: &str) -> String {
    let name = quoted(name);
    if pools::DIRECTIVES.iter().any(|directive| directive.name == name) {
        format!("`{name}` is outside of a pool; write it in a section such as [pools.www]")
    } else {
        format!("the pool `{name}` is no table; write its settings in a section [pools.{name}]")
    }
}

fn is_pool_name(name: &str) -> bool {
    let fit = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=MAX_POOL_NAME_BYTES).contains(&name.len()) && name.bytes().all(fit)
}
