//! From tables to a whole configuration: sections, and what must hold between them.

use crate::check::site::{PlacedDraft, refuse_shared_hosts, resolve};
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::admin;
use crate::check::confinement::settle_confinement;
use crate::check::listeners::{refuse_shared_addresses, settle_door};
use crate::check::mode::check_mode;
use crate::check::slowlog::check_slowlog;
use crate::check::spare_servers::settle_spares;
use crate::check::tls::check_tls;
use crate::mistakes::{Fault, quoted};
use crate::model::config::{Config, IMPLICIT_POOL};
use crate::model::pool::Pool;
use crate::model::site::Cache;
use crate::model::tls::Tls;
use crate::read::directive::{read_known, read_table};
use crate::read::directives;
use crate::read::directives::{cache, doors, output, pools, rules, sites, tls, top};
use crate::read::drafts::CacheDraft;
use crate::read::drafts::DoorDraft;
use crate::read::drafts::SiteDraft;
use crate::suggest::nearest;

/// Longest name of a pool in bytes: it is part of the titles of processes.
const MAX_POOL_NAME_BYTES: usize = 32;

/// Most pools and sites of a configuration.
const MAX_POOLS: usize = 10_000;
const MAX_SITES: usize = 100_000;

/// Builds the configuration from the whole file, or says all that is wrong with it.
pub(crate) fn assemble(table: &DeTable<'_>, base: &Path) -> Result<Config, Vec<Fault>> {
    let mut config = Config::default();
    let subtables = ["pools", "sites", "tls"];
    let section = "at the top of the file";
    let mut faults = read_table(
        top::DIRECTIVES,
        &subtables,
        section,
        table,
        base,
        &mut config,
    );
    name_sections(table, &mut faults);
    if let (Some(admin), Some(value)) = (config.admin, table.get("admin"))
        && admin.port() != 0
        && config.listen.contains(&admin)
    {
        let sentence = "`admin` is an address of `listen` too; choose another port";
        faults.push(Fault::new(value.span(), sentence.to_owned()));
    }
    faults.extend(admin::settle(&mut config, table));
    if let Some(section) = table.get("tls") {
        if !table.contains_key("listen") {
            // Who asks for TLS alone gets nothing else.
            config.listen.clear();
        }
        config.tls = read_tls(table, section, &config, base, &mut faults);
    }
    if let (true, [], Some(value)) = (
        config.proxy_protocol,
        &config.trusted_proxies[..],
        table.get("proxy_protocol"),
    ) {
        let sentence = "`proxy_protocol` is true, but nobody is trusted to speak it; add \
                        `trusted_proxies`";
        faults.push(Fault::new(value.span(), sentence.to_owned()));
    }
    read_pools_and_sites(table, base, &mut config, &mut faults);
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(faults)
    }
}

/// Says of sections that there are none of which they may be meant to be.
fn name_sections(table: &DeTable<'_>, faults: &mut [Fault]) {
    for (key, value) in table {
        let (name, value) = (key.get_ref().as_ref(), value.get_ref());
        let items = value.as_array().and_then(|items| items.iter().next());
        let is_section = value.is_table() || items.is_some_and(|item| item.get_ref().is_table());
        let is_known = directives::section_of(name).is_some() && name != "pool";
        let fault = faults.iter_mut().find(|fault| fault.span == key.span());
        if let Some(fault) = fault.filter(|_| is_section && !is_known) {
            let meant = match nearest(name, ["pools", "sites", "tls"].into_iter()) {
                Some("pools") => "did you mean [pools.NAME]?",
                Some("sites") => "did you mean [[sites]]?",
                Some(_) => "did you mean [tls]?",
                None => "expected [pools.NAME], [[sites]], [sites.cache] or [tls]",
            };
            fault.sentence = format!("unknown section `{}`; {meant}", quoted(name));
        }
    }
}

fn read_pools_and_sites(
    table: &DeTable<'_>,
    base: &Path,
    config: &mut Config,
    faults: &mut Vec<Fault>,
) {
    let mut is_implicit = true;
    if let Some(value) = table.get("pools") {
        config.pools = read_pools(value, base, faults);
        let pools = value.get_ref().as_table();
        is_implicit = pools.is_some_and(|pools| pools.is_empty());
        if let Some(pools) = pools {
            faults.extend(refuse_shared_addresses(config, pools));
        }
    }
    let drafts = match table.get("sites") {
        Some(value) => read_sites(value, base, faults),
        None if has_doors_only(table) => {
            config.listen.clear();
            Vec::new()
        }
        None => {
            let sentence = "there is no site; add [[sites]] with the `root` of one";
            faults.push(Fault::new(0..0, sentence.to_owned()));
            Vec::new()
        }
    };
    refuse_shared_hosts(&drafts, faults);
    if is_implicit && drafts.iter().any(|(draft, _)| draft.upstream.is_none()) {
        config.pools.push(Pool::named(IMPLICIT_POOL));
    }
    for (draft, span) in drafts {
        let site = resolve(draft, span, &config.pools, faults);
        config.sites.extend(site);
    }
}

fn read_tls(
    table: &DeTable<'_>,
    section: &Spanned<DeValue<'_>>,
    config: &Config,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Option<Tls> {
    let Some(settings) = section.get_ref().as_table() else {
        let sentence = "`tls` is no table; write a section [tls] with `certificates`";
        faults.push(Fault::new(section.span(), sentence.to_owned()));
        return None;
    };
    let mut read = Tls::default();
    let wrong = read_table(tls::DIRECTIVES, &[], "in [tls]", settings, base, &mut read);
    faults.extend(wrong);
    faults.extend(check_tls(&read, config, table, section));
    Some(read)
}

/// Whether every pool is reached through a door, and nothing is said of HTTP. A door that is wrong
/// has been told already.
fn has_doors_only(table: &DeTable<'_>) -> bool {
    let pools = table
        .get("pools")
        .and_then(|pools| pools.get_ref().as_table());
    let has_door = |pool: &Spanned<DeValue<'_>>| {
        let settings = pool.get_ref().as_table();
        settings.is_some_and(|settings| settings.contains_key("listen"))
    };
    let all = pools
        .is_some_and(|pools| !pools.is_empty() && pools.iter().all(|(_, pool)| has_door(pool)));
    all && !table.contains_key("listen") && !table.contains_key("tls")
}

fn read_pools(value: &Spanned<DeValue<'_>>, base: &Path, faults: &mut Vec<Fault>) -> Vec<Pool> {
    let Some(table) = value.get_ref().as_table() else {
        let sentence = "`pools` is no table; write a section such as [pools.www] for each pool";
        faults.push(Fault::new(value.span(), sentence.to_owned()));
        return Vec::new();
    };
    if table.len() > MAX_POOLS {
        let sentence = format!(
            "there are {} pools; expected at most {MAX_POOLS}",
            table.len()
        );
        faults.push(Fault::new(value.span(), sentence));
        return Vec::new();
    }
    let of_doors: Vec<_> = doors::DIRECTIVES
        .iter()
        .map(|directive| directive.name)
        .collect();
    let mut pools = Vec::new();
    for (key, value) in table.iter() {
        let name = key.get_ref();
        let Some(settings) = value.get_ref().as_table() else {
            faults.push(Fault::new(key.span(), stray_in_pools(name)));
            continue;
        };
        if !is_pool_name(name) {
            let sentence = format!(
                "the pool name `{}` cannot be used; expected 1 to {MAX_POOL_NAME_BYTES} letters, \
                 digits, `_` or `-`",
                quoted(name)
            );
            faults.push(Fault::new(key.span(), sentence));
        }
        let mut pool = Pool::named(name);
        let section = format!("in [pools.{}]", quoted(name));
        let wrong = read_table(
            pools::DIRECTIVES,
            &of_doors,
            &section,
            settings,
            base,
            &mut pool,
        );
        faults.extend(wrong);
        let mut door = DoorDraft::default();
        faults.extend(read_known(doors::DIRECTIVES, settings, base, &mut door));
        faults.extend(settle_door(&mut pool, door, settings));
        faults.extend(settle_spares(&mut pool, settings));
        faults.extend(check_slowlog(&pool, settings));
        faults.extend(check_mode(&pool, settings));
        faults.extend(settle_confinement(&pool, settings));
        pools.push(pool);
    }
    pools
}

fn stray_in_pools(name: &str) -> String {
    let name = quoted(name);
    if pools::DIRECTIVES
        .iter()
        .any(|directive| directive.name == name)
    {
        format!("`{name}` is outside of a pool; write it in a section such as [pools.www]")
    } else {
        format!("the pool `{name}` is no table; write its settings in a section [pools.{name}]")
    }
}

fn is_pool_name(name: &str) -> bool {
    (1..=MAX_POOL_NAME_BYTES).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
}

fn read_sites(
    value: &Spanned<DeValue<'_>>,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Vec<PlacedDraft> {
    let tables = value.get_ref().as_array().filter(|array| !array.is_empty());
    let Some(tables) = tables else {
        let sentence = "`sites` is not a list of sites; write [[sites]], with two brackets, \
                        before the settings of each site";
        faults.push(Fault::new(value.span(), sentence.to_owned()));
        return Vec::new();
    };
    if tables.len() > MAX_SITES {
        let found = tables.len();
        let sentence = format!("there are {found} sites; expected at most {MAX_SITES}");
        faults.push(Fault::new(value.span(), sentence));
        return Vec::new();
    }
    let mut drafts = Vec::new();
    for site in tables.iter() {
        let Some(settings) = site.get_ref().as_table() else {
            let sentence = "`sites` has an item that is no table; write [[sites]] before the \
                            settings of each site";
            faults.push(Fault::new(site.span(), sentence.to_owned()));
            continue;
        };
        let draft = read_site(settings, base, faults);
        if !settings.contains_key("root") {
            let sentence = "this site has no `root`; add the path of its document root";
            faults.push(Fault::new(site.span(), sentence.to_owned()));
        }
        drafts.push((draft, site.span()));
    }
    drafts
}

fn read_site(settings: &DeTable<'_>, base: &Path, faults: &mut Vec<Fault>) -> SiteDraft {
    let mut draft = SiteDraft::default();
    let section = "in [[sites]]";
    let of_rules = rules::DIRECTIVES.iter().map(|rule| rule.name);
    let of_output = output::DIRECTIVES.iter().map(|directive| directive.name);
    let others: Vec<_> = of_rules.chain(of_output).chain(["cache"]).collect();
    let read = read_table(
        sites::DIRECTIVES,
        &others,
        section,
        settings,
        base,
        &mut draft,
    );
    faults.extend(read);
    let read = read_known(rules::DIRECTIVES, settings, base, &mut draft.rules);
    faults.extend(read);
    let read = read_known(output::DIRECTIVES, settings, base, &mut draft.output);
    faults.extend(read);
    if let Some(section) = settings.get("cache") {
        draft.cache = read_cache(section, base, faults);
    }
    // A wrong `hosts` must not make this the default site, and so another mistake.
    if draft.hosts.is_none() && settings.contains_key("hosts") {
        draft.hosts = Some(Vec::new());
    }
    draft
}

/// Reads the settings of a site's cache.
fn read_cache(
    section: &Spanned<DeValue<'_>>,
    base: &Path,
    faults: &mut Vec<Fault>,
) -> Option<CacheDraft> {
    let Some(settings) = section.get_ref().as_table() else {
        let sentence =
            "`cache` is no table; write a section [sites.cache] after the site's settings";
        faults.push(Fault::new(section.span(), sentence.to_owned()));
        return None;
    };
    let mut read = Cache::default();
    let (of_cache, name) = (cache::DIRECTIVES, "in [sites.cache]");
    let wrong = read_table(of_cache, &[], name, settings, base, &mut read);
    faults.extend(wrong);
    Some(CacheDraft {
        cache: read,
        has_cookies: settings.contains_key("private_cookies"),
        has_public: settings.contains_key("public_cookies"),
        has_parameters: settings.contains_key("ignore_parameters"),
    })
}
