//! Compressed variants of a cached page: created once per content encoding, and cached next to the
//! page.

use std::sync::Arc;

use bytes::Bytes;
use maitred_pagecache::headers;
use maitred_pagecache::key::Key;
use maitred_pagecache::stored::Stored;
use maitred_pagestore::{Lookup, Object};

use crate::cache::Cache;
use crate::cache::compressing::lock;
use crate::handler::context::RequestContext;
use crate::site::compress::{Effort, Encoder, Plan};

/// Bytes of the largest page that is compressed while its client waits: brotli takes 2 ms for as
/// much, and other clients of the thread wait as well.
const AT_ONCE_BYTES: usize = 128 * 1024;

/// Most pages that are compressed at a time while their clients get them as they are.
const MAX_COMPRESSIONS: usize = 2;

/// The variant of a cached page in a content encoding that the client accepts. The page itself if
/// it is not compressed, or if compression takes so long that only later clients get the result.
pub fn compressed(
    cache: &Arc<Cache>,
    context: &RequestContext<'_>,
    key: &Key,
    page: Arc<Object>,
) -> Arc<Object> {
    // The page has the `Vary` header already, if it needs it.
    if context.head.header("accept-encoding").is_none() {
        return page;
    }
    let Some(plan) = plan(context, &page) else {
        return page;
    };
    let name = plan.coding.map_or("identity", |coding| coding.name());
    // The time tells versions of the page apart.
    let Ok(variant_key) = key.coded(&format!("{name} {}", page.stored.came)) else {
        return page;
    };
    if let Lookup::Page { page, .. } = cache.store.lookup(&variant_key, [].into_iter()) {
        return page;
    }
    if plan.coding.is_some() && page.body.len() > AT_ONCE_BYTES {
        compress_later(cache, variant_key, &page, plan);
        return page;
    }
    let Some(made) = compress(&page, &plan, Effort::Passing) else {
        return page;
    };
    match cache.store.insert_derived(variant_key, made) {
        Ok(stored) => stored,
        // Its body is that of the page.
        Err(unstored) if plan.coding.is_none() => unstored,
        // Each client that reads a copy without a place would have one of its own.
        Err(_) => page,
    }
}

/// Compresses a page on another thread, if the result fits into memory.
fn compress_later(cache: &Arc<Cache>, variant_key: Key, page: &Arc<Object>, plan: Plan) {
    let fits = page.body.len() as u64 <= cache.store.largest_in_memory();
    let Some(turn) = CompressionTurn::take(cache, &variant_key).filter(|_| fits) else {
        return;
    };
    let page = page.clone();
    tokio::task::spawn_blocking(move || {
        if let Some(made) = compress(&page, &plan, Effort::Kept) {
            // Without a place for it, clients get the page as it is.
            let _ = turn.cache.store.insert_derived(variant_key, made);
        }
    });
}

/// The right to compress the page for a key.
struct CompressionTurn {
    cache: Arc<Cache>,
    key: Key,
}

impl CompressionTurn {
    fn take(cache: &Arc<Cache>, key: &Key) -> Option<CompressionTurn> {
        let mut compressing = lock(&cache.compressing);
        if compressing.len() >= MAX_COMPRESSIONS || compressing.contains(key) {
            return None;
        }
        compressing.push(key.clone());
        let (cache, key) = (cache.clone(), key.clone());
        Some(CompressionTurn { cache, key })
    }
}

impl Drop for CompressionTurn {
    fn drop(&mut self) {
        lock(&self.cache.compressing).retain(|key| *key != self.key);
    }
}

/// The compressed page. None if there is no memory for it.
fn compress(page: &Object, plan: &Plan, effort: Effort) -> Option<Object> {
    let body = match plan.coding {
        None => page.body.clone(),
        Some(coding) => {
            let compressed = match effort {
                Effort::Passing => Encoder::whole(coding, &page.body),
                Effort::Kept => {
                    Encoder::new(coding, effort).and_then(|encoder| encoder.last(&page.body))
                }
            };
            Bytes::from(compressed.ok()?.into_boxed_slice()).into()
        }
    };
    let mut lines = Vec::with_capacity(page.stored.lines.len() + 64);
    write_lines(&mut lines, &page.stored, plan);
    let stored = Stored { lines: lines.into(), ..page.stored.clone() };
    Some(Object::new(page.subject.clone(), stored, body).of_cost(page.cost))
}

/// How a page changes for a client. None if it does not.
fn plan(context: &RequestContext<'_>, page: &Object) -> Option<Plan> {
    let plan = plan_of(context, &page.stored, page.body.len());
    let changes = plan.fields().next().is_some();
    changes.then_some(plan)
}

fn plan_of(context: &RequestContext<'_>, stored: &Stored, length: usize) -> Plan {
    let compression = context.site.compression.as_deref();
    let (status, length) = (stored.status, Some(length as u64));
    Plan::make(compression, context.head, stored.fields(), status, length)
}

/// Adds `Vary` to a page before it is stored, if its content encoding depends on the client. A
/// client that accepts the page as it is then gets it without a second copy.
pub fn add_vary(context: &RequestContext<'_>, stored: &mut Stored, length: usize) {
    let mut plan = plan_of(context, stored, length);
    plan.give_up();
    if plan.fields().next().is_some() {
        let mut lines = Vec::with_capacity(stored.lines.len() + 32);
        write_lines(&mut lines, stored, &plan);
        stored.lines = lines.into();
        stored.server_compresses = true;
    }
}

fn write_lines(lines: &mut Vec<u8>, stored: &Stored, plan: &Plan) {
    let kept = stored.fields().filter(|(name, _)| !plan.replaces(name));
    for (name, value) in kept.chain(plan.fields()) {
        headers::write_line(lines, name, value);
    }
}
