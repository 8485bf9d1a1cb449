//! What must hold between the settings of a site, its pool and the other sites.

use maitred_rules::settings::Upstream;
use std::collections::HashMap;
use std::ops::Range;

use maitred_rules::SiteRules;

use crate::check::cache::settle_cache;
use crate::mistakes::{Fault, quoted};
use crate::model::host::Host;
use crate::model::pool::Pool;
use crate::model::site::{Destination, Site, outside_of_chroot};
use crate::read::drafts::Placed;
use crate::read::drafts::RulesDraft;
use crate::read::drafts::SiteDraft;
use crate::suggest::{enumerate, nearest};

/// A site's draft, and where its table stands.
pub(crate) type PlacedDraft = (SiteDraft, Range<usize>);

/// Refuses a host that two sites have, at every place where it stands.
pub(crate) fn refuse_shared_hosts(drafts: &[PlacedDraft], faults: &mut Vec<Fault>) {
    const ANY: &str = "another site has no `hosts` or \"*\" too, and only one site can answer for \
                       all names that are left; add `hosts`";
    let shared = |host: &Host| {
        format!("`hosts` has \"{host}\", which another site has too; leave it out of one")
    };
    // The site that has a host first, where it says so, and the sentence if that is one too many.
    let mut owners: HashMap<&Host, (usize, Option<Fault>)> = HashMap::new();
    for (index, (draft, span)) in drafts.iter().enumerate() {
        let named = draft.hosts.iter().flatten();
        let named = named.map(|Placed(host, span)| (host, span, shared(host)));
        let unnamed = draft
            .hosts
            .is_none()
            .then(|| (&Host::Any, span, ANY.to_owned()));
        for (host, span, sentence) in named.chain(unnamed) {
            let fault = Fault::new(span.clone(), sentence);
            match owners.get_mut(host) {
                None => drop(owners.insert(host, (index, Some(fault)))),
                Some((owner, _)) if *owner == index => {}
                Some((_, first)) => faults.extend(first.take().into_iter().chain([fault])),
            }
        }
    }
}

/// The site of a draft. `None` if something is wrong with it, which is then among `faults`.
pub(crate) fn resolve(
    draft: SiteDraft,
    span: Range<usize>,
    pools: &[Pool],
    faults: &mut Vec<Fault>,
) -> Option<Site> {
    let destination = destination_of(draft.pool, draft.upstream, &span, pools, faults)?;
    let mut site = Site::at(draft.root?, destination);
    if let Some(hosts) = draft.hosts {
        site.hosts = hosts.into_iter().map(|Placed(host, _)| host).collect();
    }
    site.index = draft.index.unwrap_or(site.index);
    site.output = draft.output;
    let app = draft.rules.app;
    site.cache = draft.cache.map(|cache| settle_cache(cache, app));
    site.cache.take_if(|cache| cache.is_off);
    if let Some(app) = draft.rules.app {
        site.front_controller = app.preset().front_controller.map(str::to_owned);
    }
    site.front_controller = draft.front_controller.unwrap_or(site.front_controller);
    let wrong = faults.len();
    settle_rules(&mut site, draft.rules, &span, pools, faults);
    if faults.len() > wrong {
        return None;
    }
    site.max_body_size = draft.max_body_size.unwrap_or(site.max_body_size);
    site.access_log = draft.access_log;
    let mut its_pools = pools
        .iter()
        .filter(|pool| site.pools().any(|name| name == pool.name));
    if let Some(sentence) = its_pools.find_map(|pool| outside_of_chroot(&site, pool)) {
        faults.push(Fault::new(span, sentence));
        return None;
    }
    Some(site)
}

/// Where the scripts of a site run. `None` if that cannot be told, and why is among `faults` then.
fn destination_of(
    pool: Option<(String, Range<usize>)>,
    upstream: Option<(Upstream, Range<usize>)>,
    site: &Range<usize>,
    pools: &[Pool],
    faults: &mut Vec<Fault>,
) -> Option<Destination> {
    let (span, sentence) = match (pool, upstream) {
        (None, Some((upstream, _))) => return Some(Destination::Upstream(upstream)),
        (Some(_), Some((_, span))) => {
            let sentence = "this site has both `pool` and `upstream`; leave one out";
            (span, sentence.to_owned())
        }
        (Some((name, span)), None) => match pools.iter().any(|pool| pool.name == name) {
            true => return Some(Destination::Pool(name)),
            false => (span, unknown_pool(&name, pools)),
        },
        (None, None) => match pools {
            [only] => return Some(Destination::Pool(only.name.clone())),
            // Wrong pools have been complained about; what the site may name is not known.
            [] => return None,
            [_, _, ..] => {
                let names = enumerate(pools.iter().map(|pool| pool.name.as_str()));
                let sentence = format!("this site has no `pool`; expected one of {names}");
                (site.clone(), sentence)
            }
        },
    };
    faults.push(Fault::new(span, sentence));
    None
}

/// The rules of a site, with those of its application, if all of them hold together.
fn settle_rules(
    site: &mut Site,
    draft: RulesDraft,
    span: &Range<usize>,
    pools: &[Pool],
    faults: &mut Vec<Fault>,
) {
    for (name, span) in draft.pools {
        if !pools.iter().any(|pool| pool.name == name) {
            faults.push(Fault::new(span, unknown_pool(&name, pools)));
        }
    }
    site.rules = draft.rules;
    // They come before the other paths, since the first that matches holds.
    site.rules
        .paths
        .splice(0..0, draft.classic.into_settings(pools, faults));
    let added = match draft.app {
        Some(app) => app.add_to(&mut site.rules).map_err(|why| ("app", why)),
        None => Ok(()),
    };
    if let Err((setting, why)) = added.and_then(|()| SiteRules::compile(&site.rules).map(drop)) {
        let place = draft.spans.iter().find(|(name, _)| *name == setting);
        let place = place.map_or(span, |(_, place)| place);
        faults.push(Fault::new(place.clone(), format!("`{setting}` {why}")));
    }
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
