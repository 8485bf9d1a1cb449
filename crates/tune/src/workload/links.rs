//! The links of a page.

use std::collections::HashSet;

use maitred_measure::plan::Endpoint;
use maitred_measure::request::RequestSpec;
use maitred_measure::url::Url;

use super::{Prober, is_file};

/// The pages of the same server that a page links to.
pub(super) fn crawl(
    prober: &mut Prober,
    endpoint: &Endpoint,
    first: &Url,
) -> Result<Vec<RequestSpec>, String> {
    let (_, body, _) = prober.get(endpoint, first)?;
    let mut seen = HashSet::from([first.path.clone()]);
    let links = links(&String::from_utf8_lossy(&body), first);
    Ok(links
        .into_iter()
        .filter(|url| seen.insert(url.path.clone()))
        .map(RequestSpec::get)
        .collect())
}

pub(super) fn links(page: &str, base: &Url) -> Vec<Url> {
    let mut found = Vec::new();
    for part in page.split("href=").skip(1) {
        let quote = part.chars().next().filter(|sign| matches!(sign, '"' | '\''));
        let Some(link) = quote.and_then(|quote| part[1..].split(quote).next()) else {
            continue;
        };
        let link = link.replace("&amp;", "&");
        if link.starts_with('#') || is_file(&link) {
            continue;
        }
        if let Some(url) = resolve(&link, base) {
            found.push(url);
        }
    }
    found
}

/// Resolves a link as a browser does, on the same server only.
fn resolve(link: &str, base: &Url) -> Option<Url> {
    if link.contains("://") {
        return Url::read(link, None).ok().filter(|url| url.same_server(base));
    }
    if link.starts_with("//") || link.split('/').next()?.contains(':') {
        return None;
    }
    let path = if link.starts_with('/') {
        link.to_owned()
    } else {
        let folder = base.path.split('?').next()?.rsplit_once('/')?.0;
        format!("{folder}/{link}")
    };
    Url::read(&path, Some(base)).ok()
}
