//! The pages that a page links to.

use std::collections::HashSet;

use maitred_measure::place::Place;
use maitred_measure::plan::Door;
use maitred_measure::request::Wish;

use super::{Prober, is_file};

/// The pages of the same server that a page links to.
pub(super) fn crawl(prober: &mut Prober, door: &Door, first: &Place) -> Result<Vec<Wish>, String> {
    let (_, body, _) = prober.ask(door, first)?;
    let mut seen = HashSet::from([first.path.clone()]);
    let links = links(&String::from_utf8_lossy(&body), first);
    Ok(links
        .into_iter()
        .filter(|place| seen.insert(place.path.clone()))
        .map(Wish::get)
        .collect())
}

pub(super) fn links(page: &str, base: &Place) -> Vec<Place> {
    let mut found = Vec::new();
    for part in page.split("href=").skip(1) {
        let quote = part
            .chars()
            .next()
            .filter(|sign| matches!(sign, '"' | '\''));
        let Some(link) = quote.and_then(|quote| part[1..].split(quote).next()) else {
            continue;
        };
        let link = link.replace("&amp;", "&");
        if link.starts_with('#') || is_file(&link) {
            continue;
        }
        if let Some(place) = resolve(&link, base) {
            found.push(place);
        }
    }
    found
}

/// A link as a browser understands it, of the same server only.
fn resolve(link: &str, base: &Place) -> Option<Place> {
    if link.contains("://") {
        return Place::read(link, None)
            .ok()
            .filter(|place| place.same_server(base));
    }
    if link.starts_with("//") || link.split('/').next()?.contains(':') {
        return None;
    }
    let path = match link.starts_with('/') {
        true => link.to_owned(),
        false => {
            let folder = base.path.split('?').next()?.rsplit_once('/')?.0;
            format!("{folder}/{link}")
        }
    };
    Place::read(&path, Some(base)).ok()
}
