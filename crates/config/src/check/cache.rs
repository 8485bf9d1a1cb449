//! Merges the cache settings of a site with the preset of its application.

use maitred_pagecache::apps::cache_of;
use maitred_pagecache::settings::{Pattern, TRACKING_PARAMETERS};
use maitred_rules::apps::App;

use crate::model::site::Cache;
use crate::read::drafts::CacheDraft;

/// Adds the preset of the site's application to the settings of its cache.
pub(crate) fn settle_cache(draft: CacheDraft, app: Option<App>) -> Cache {
    let of =
        |names: &[&str]| -> Vec<Pattern> { names.iter().map(|name| Pattern::new(name)).collect() };
    let mut cache = draft.cache;
    let rules = &mut cache.rules;
    let is_configured = app.is_some() || draft.has_cookies;
    let keeps_untold = !rules.valid.is_empty() || rules.heuristic;
    rules.guards_cookies = draft.has_public || (keeps_untold && !is_configured);
    let Some(app) = app else {
        return cache;
    };
    let preset = cache_of(app.name());
    let rules = &mut cache.rules;
    if !draft.has_cookies {
        rules.private_cookies.extend(of(preset.cookies));
    }
    if !draft.has_parameters {
        rules.key.ignore_parameters = of(&TRACKING_PARAMETERS);
    }
    rules.varies_by_session = preset.varies_by_session;
    rules.no_store.paths.extend(of(preset.paths));
    rules.no_store.parameters.extend(of(preset.parameters));
    cache
}
