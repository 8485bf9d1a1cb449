//! From tables to a whole configuration: sections, and what must hold between them.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::confinement::{outside_of_chroot, settle_confinement};
use crate::directive::{enumerate, nearest, read_known, read_table};
use crate::directives::doors::DoorDraft;
use crate::directives::sites::{Placed, SiteDraft};
use crate::directives::{doors, pools, sites, tls, top};
use crate::doors::{refuse_shared_addresses, settle_door};
use crate::host::Host;
use crate::mistakes::{Fault, quoted};
use crate::settings::{Config, Destination, IMPLICIT_POOL, Pool, Site};
use crate::slowlog::check_slowlog;
use crate::spares::settle_spares;
use crate::tls::{Tls, check_tls};

/// Longest name of a pool in bytes: it is part of the titles of processes.
const MAX_POOL_NAME_BYTES: usize = 32;

/// Most pools and sites of a configuration.
const MAX_POOLS: usize = 10_000;
const MAX_SITES: usize = 100_000;

/// A site's draft, and where its table stands.
type PlacedDraft = (SiteDraft, Range<usize>);

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
    if let (Some(admin), Some(value)) = (config.admin, table.get("admin"))
        && admin.port() != 0
        && config.listen.contains(&admin)
    {
        let sentence = "`admin` is an address of `listen` too; choose another port";
        faults.push(Fault::new(value.span(), sentence.to_owned()));
    }
    if let Some(section) = table.get("tls") {
        if !table.contains_key("listen") {
            // Who asks for TLS alone gets nothing else.
            config.listen.clear();
        }
        config.tls = read_tls(table, section, &config, base, &mut faults);
    }
    if let Some(value) = table.get("pools") {
        config.pools = read_pools(value, base, &mut faults);
        if let Some(pools) = value.get_ref().as_table() {
            faults.extend(refuse_shared_addresses(&config, pools));
        }
    }
    let drafts = match table.get("sites") {
        Some(value) => read_sites(value, base, &mut faults),
        None if has_doors_only(table) => {
            config.listen.clear();
            Vec::new()
        }
        None => {
            faults.push(Fault::new(
                0..0,
                "there is no site; add [[sites]] with the `root` of one".to_owned(),
            ));
            Vec::new()
        }
    };
    refuse_shared_hosts(&drafts, &mut faults);
    let implicit = match table.get("pools") {
        Some(value) => value
            .get_ref()
            .as_table()
            .is_some_and(|pools| pools.is_empty()),
        None => true,
    };
    if implicit && drafts.iter().any(|(draft, _)| draft.upstream.is_none()) {
        config.pools.push(Pool::named(IMPLICIT_POOL));
    }
    for (draft, span) in drafts {
        config
            .sites
            .extend(resolve(draft, span, &config.pools, &mut faults));
    }
    if faults.is_empty() {
        Ok(config)
    } else {
        Err(faults)
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
    let tables = value
        .get_ref()
        .as_array()
        .map(|array| array.iter().collect::<Vec<_>>());
    let tables = match tables {
        Some(tables) if !tables.is_empty() && tables.len() <= MAX_SITES => tables,
        Some(tables) if tables.len() > MAX_SITES => {
            let found = tables.len();
            let sentence = format!("there are {found} sites; expected at most {MAX_SITES}");
            faults.push(Fault::new(value.span(), sentence));
            return Vec::new();
        }
        _ => {
            let sentence = "`sites` is not a list of sites; write [[sites]], with two brackets, \
                            before the settings of each site";
            faults.push(Fault::new(value.span(), sentence.to_owned()));
            return Vec::new();
        }
    };
    let mut drafts = Vec::new();
    for site in tables {
        let Some(settings) = site.get_ref().as_table() else {
            let sentence = "`sites` has an item that is no table; write [[sites]] before the \
                            settings of each site";
            faults.push(Fault::new(site.span(), sentence.to_owned()));
            continue;
        };
        let mut draft = SiteDraft::default();
        let section = "in [[sites]]";
        let wrong = read_table(sites::DIRECTIVES, &[], section, settings, base, &mut draft);
        faults.extend(wrong);
        if !settings.contains_key("root") {
            let sentence = "this site has no `root`; add the path of its document root";
            faults.push(Fault::new(site.span(), sentence.to_owned()));
        }
        // A wrong `hosts` must not make this the default site, and so another mistake.
        if draft.hosts.is_none() && settings.contains_key("hosts") {
            draft.hosts = Some(Vec::new());
        }
        drafts.push((draft, site.span()));
    }
    drafts
}

fn refuse_shared_hosts(drafts: &[PlacedDraft], faults: &mut Vec<Fault>) {
    let mut owners: HashMap<&Host, usize> = HashMap::new();
    for (index, (draft, span)) in drafts.iter().enumerate() {
        let Some(hosts) = &draft.hosts else {
            if owners.insert(&Host::Any, index).is_some() {
                let sentence = "another site has no `hosts` or \"*\" too, and only one site can \
                                answer for all names that are left; add `hosts`";
                faults.push(Fault::new(span.clone(), sentence.to_owned()));
            }
            continue;
        };
        for Placed(host, span) in hosts {
            if owners
                .insert(host, index)
                .is_some_and(|owner| owner != index)
            {
                let sentence = format!("`hosts` has \"{host}\", which another site has too");
                faults.push(Fault::new(span.clone(), sentence));
            }
        }
    }
}

/// The site of a draft. `None` if something is wrong with it, which is then among `faults`.
fn resolve(
    draft: SiteDraft,
    span: Range<usize>,
    pools: &[Pool],
    faults: &mut Vec<Fault>,
) -> Option<Site> {
    let destination = match (draft.pool, draft.upstream) {
        (Some(_), Some((_, span))) => {
            let sentence = "this site has both `pool` and `upstream`; leave one out";
            faults.push(Fault::new(span, sentence.to_owned()));
            return None;
        }
        (None, Some((upstream, _))) => Destination::Upstream(upstream),
        (Some((name, span)), None) => match pools.iter().find(|pool| pool.name == name) {
            Some(_) => Destination::Pool(name),
            None => {
                faults.push(Fault::new(span, unknown_pool(&name, pools)));
                return None;
            }
        },
        (None, None) => match pools {
            [only] => Destination::Pool(only.name.clone()),
            // Wrong pools have been complained about; what the site may name is not known.
            [] => return None,
            [_, _, ..] => {
                let names = enumerate(pools.iter().map(|pool| pool.name.as_str()));
                let sentence = format!("this site has no `pool`; expected one of {names}");
                faults.push(Fault::new(span, sentence));
                return None;
            }
        },
    };
    let mut site = Site::at(draft.root?, destination);
    if let Some(hosts) = draft.hosts {
        site.hosts = hosts.into_iter().map(|Placed(host, _)| host).collect();
    }
    site.index = draft.index.unwrap_or(site.index);
    site.front_controller = draft.front_controller.unwrap_or(site.front_controller);
    site.max_body_size = draft.max_body_size.unwrap_or(site.max_body_size);
    let pool = pools
        .iter()
        .find(|pool| site.destination == Destination::Pool(pool.name.clone()));
    if let Some(sentence) = pool.and_then(|pool| outside_of_chroot(&site, pool)) {
        faults.push(Fault::new(span, sentence));
        return None;
    }
    Some(site)
}

fn unknown_pool(name: &str, pools: &[Pool]) -> String {
    let what = format!(
        "`pool` is \"{}\", but there is no pool of that name",
        quoted(name)
    );
    let names = || pools.iter().map(|pool| pool.name.as_str());
    match nearest(name, names()) {
        Some(nearest) => format!("{what}; did you mean \"{nearest}\"?"),
        None if pools.is_empty() => format!("{what}; add a section [pools.{}]", quoted(name)),
        None => {
            let (names, name) = (enumerate(names()), quoted(name));
            format!("{what}; expected one of {names}, or a section [pools.{name}]")
        }
    }
}
