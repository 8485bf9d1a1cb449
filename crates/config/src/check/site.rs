//! Checks between the settings of a site, its pool and the other sites.

use std::collections::HashMap;
use std::ops::Range;

use maitred_rules::SiteRules;

use crate::check::cache::settle_cache;
use crate::mistakes::{Fault, quoted};
use crate::model::host::Host;
use crate::model::pool::Pool;
use crate::model::site::{Destination, Site};
use crate::read::drafts::{RulesDraft, SiteDraft, WithSpan};
use crate::sources::Sources;
use crate::suggest::{enumerate, nearest};

/// A site's draft and the position of its table.
pub(crate) struct SpannedDraft {
    pub(crate) site: SiteDraft,
    pub(crate) span: Range<usize>,
}

/// Refuses a host of two sites, at the position of the second one.
pub(crate) fn refuse_shared_hosts(
    drafts: &[SpannedDraft],
    sources: &Sources,
    faults: &mut Vec<Fault>,
) {
    // The first site of each host, and the position of the host there.
    let mut owners: HashMap<&Host, (usize, usize)> = HashMap::new();
    for (index, SpannedDraft { site, span }) in drafts.iter().enumerate() {
        let named = site.hosts.iter().flatten().map(|WithSpan(host, span)| (host, span));
        let unnamed = site.hosts.is_none().then_some((&Host::Any, span));
        for (host, span) in named.chain(unnamed) {
            match owners.get(host) {
                None => drop(owners.insert(host, (index, span.start))),
                Some((owner, _)) if *owner == index => {}
                Some((_, first)) => {
                    let sentence = shared_host(host, &sources.place(*first));
                    faults.push(Fault::new(span.clone(), sentence));
                }
            }
        }
    }
}

fn shared_host(host: &Host, first: &str) -> String {
    match host {
        Host::Any => format!(
            "the site at {first} has no `hosts` or \"*\" too, and only one site can serve all \
             other names; add `hosts`"
        ),
        host => format!(
            "`hosts` has \"{host}\", which the site at {first} has too; leave it out of one"
        ),
    }
}

/// The site of a draft. `None` if it has faults, which are added to `faults`.
pub(crate) fn settle_site(
    draft: SpannedDraft,
    pools: &[Pool],
    faults: &mut Vec<Fault>,
) -> Option<Site> {
    let SpannedDraft { site: draft, span } = draft;
    let destination = match destination_of(&draft, &span, pools) {
        Ok(destination) => destination?,
        Err(fault) => {
            faults.push(fault);
            return None;
        }
    };
    let mut site = Site::at(draft.root?, destination);
    if let Some(hosts) = draft.hosts {
        site.hosts = hosts.into_iter().map(|WithSpan(host, _)| host).collect();
    }
    site.index = draft.index.unwrap_or(site.index);
    site.output = draft.output;
    let app = draft.rules.app;
    site.cache = draft.cache.map(|cache| settle_cache(cache, app));
    site.cache.take_if(|cache| cache.is_off);
    if let Some(app) = app {
        site.front_controller = app.preset().front_controller.map(str::to_owned);
    }
    site.front_controller = draft.front_controller.unwrap_or(site.front_controller);
    let wrong = settle_rules(&mut site, draft.rules, &span, pools);
    if !wrong.is_empty() {
        faults.extend(wrong);
        return None;
    }
    site.max_body_size = draft.max_body_size.unwrap_or(site.max_body_size);
    site.access_log = draft.access_log;
    Some(site)
}

/// The pool or upstream of a site; none if all pools have faults, which are reported already.
fn destination_of(
    draft: &SiteDraft,
    site: &Range<usize>,
    pools: &[Pool],
) -> Result<Option<Destination>, Fault> {
    match (&draft.pool, &draft.upstream) {
        (None, Some((upstream, _))) => Ok(Some(Destination::Upstream(upstream.clone()))),
        (Some(_), Some((_, span))) => {
            let sentence = "this site has both `pool` and `upstream`; leave one out";
            Err(Fault::new(span.clone(), sentence))
        }
        (Some((name, _)), None) if pools.iter().any(|pool| pool.name == *name) => {
            Ok(Some(Destination::Pool(name.clone())))
        }
        (Some((name, span)), None) => Err(Fault::new(span.clone(), unknown_pool(name, pools))),
        (None, None) => match pools {
            [only] => Ok(Some(Destination::Pool(only.name.clone()))),
            [] => Ok(None),
            [_, _, ..] => {
                let names = enumerate(pools.iter().map(|pool| pool.name.as_str()));
                let sentence = format!("this site has no `pool`; expected one of {names}");
                Err(Fault::new(site.clone(), sentence))
            }
        },
    }
}

/// Gives the site its rules and those of its application.
fn settle_rules(
    site: &mut Site,
    draft: RulesDraft,
    span: &Range<usize>,
    pools: &[Pool],
) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (name, span) in draft.pools {
        if !pools.iter().any(|pool| pool.name == name) {
            faults.push(Fault::new(span, unknown_pool(&name, pools)));
        }
    }
    site.rules = draft.rules;
    // Before the other paths, since the pool of the first match runs a script.
    let classic = draft.classic.into_settings(pools, &mut faults);
    site.rules.paths.splice(0..0, classic);
    let added = match draft.app {
        Some(app) => app.add_to(&mut site.rules).map_err(|why| ("app", why)),
        None => Ok(()),
    };
    if let Err((setting, why)) = added.and_then(|()| SiteRules::compile(&site.rules).map(drop)) {
        let found = draft.spans.iter().find(|(name, _)| *name == setting);
        let span = found.map_or(span, |(_, span)| span);
        faults.push(Fault::new(span.clone(), format!("`{setting}` {why}")));
    }
    faults
}

fn unknown_pool(name: &str, pools: &[Pool]) -> String {
    let what = format!("`pool` is \"{}\", but there is no pool of that name", quoted(name));
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
