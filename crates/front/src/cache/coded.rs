//! A kept page in the coding that a client takes: made once, and kept beside the page.

use std::sync::Arc;

use bytes::Bytes;
use maitred_http1::Head;
use maitred_pagecache::fields;
use maitred_pagecache::key::Key;
use maitred_pagecache::stored::Stored;
use maitred_pagestore::{Looked, Object, Store};

use crate::compress::{Encoder, Plan};
use crate::request::Way;

/// The page under a key as the client takes it; the page itself if nothing is to be coded.
pub fn coded(
    store: &Store,
    (head, way): (&Head, &Way<'_>),
    (key, page): (&Key, Arc<Object>),
) -> Arc<Object> {
    // It says Vary already, if it has to.
    if head.header("accept-encoding").is_none() {
        return page;
    }
    let Some(plan) = plan(head, way, &page) else {
        return page;
    };
    let name = plan.coding.map_or("identity", |coding| coding.name());
    // Of another version of the page it is another one.
    let Ok(beside) = key.coded(&format!("{name} {}", page.stored.came)) else {
        return page;
    };
    if let Looked::Page { page, .. } = store.look(&beside, [].into_iter()) {
        return page;
    }
    let body = match plan.coding.map(|coding| Encoder::whole(coding, &page.body)) {
        None => page.body.clone(),
        Some(Ok(body)) => Bytes::from(body),
        // There is no memory for it.
        Some(Err(_)) => return page,
    };
    let mut lines = Vec::with_capacity(page.stored.lines.len() + 64);
    write_lines(&mut lines, &page.stored, &plan);
    let stored = Stored {
        lines: lines.into(),
        ..page.stored.clone()
    };
    let made = Object::new(page.subject.clone(), stored, body).of_cost(page.cost);
    let made = Arc::new(made);
    store.keep_beside(beside, made.clone());
    made
}

/// What is to be done to a page for a client, if anything is.
fn plan(head: &Head, way: &Way<'_>, page: &Object) -> Option<Plan> {
    let plan = plan_of(head, way, &page.stored, page.body.len());
    let changes = plan.fields().next().is_some();
    changes.then_some(plan)
}

fn plan_of(head: &Head, way: &Way<'_>, stored: &Stored, length: usize) -> Plan {
    let compression = way.site.compression.as_deref();
    let (status, length) = (stored.status, Some(length as u64));
    Plan::make(compression, head, stored.fields(), status, length)
}

/// Has a page that is to be kept say that its coding depends on the client, if it does: those who take
/// it as it is are then answered with it, without another beside it.
pub fn say_that_it_varies(head: &Head, way: &Way<'_>, stored: &mut Stored, length: usize) {
    let mut plan = plan_of(head, way, stored, length);
    plan.give_up();
    if plan.fields().next().is_some() {
        let mut lines = Vec::with_capacity(stored.lines.len() + 32);
        write_lines(&mut lines, stored, &plan);
        stored.lines = lines.into();
    }
}

fn write_lines(lines: &mut Vec<u8>, stored: &Stored, plan: &Plan) {
    let kept = stored.fields().filter(|(name, _)| !plan.replaces(name));
    for (name, value) in kept.chain(plan.fields()) {
        fields::write_line(lines, name, value);
    }
}
