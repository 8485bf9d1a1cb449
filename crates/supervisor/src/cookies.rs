//! The names of cookies that sites have set: a front learns them from responses, and the supervisor
//! passes them on to the fronts after it. What a front says is bounded here, since it may say anything.

use std::collections::{BTreeMap, BTreeSet};

use maitred_control::{FromFront, ToFront};

use crate::run::Supervisor;

/// Most names of a site; a front remembers fewer.
const MAX_NAMES: usize = 512;

/// Longest name, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Most sites whose names are remembered.
const MAX_SITES: usize = 10_000;

/// Names in one message, which has a bound of its own.
const NAMES_PER_MESSAGE: usize = 64;

/// By the name of the site; none: more than are remembered, so that every cookie counts.
pub(crate) type CookieNames = BTreeMap<String, Option<BTreeSet<String>>>;

/// Adds what a front has said. False if that is not to be believed.
fn add(all: &mut CookieNames, site: &str, names: Option<&[String]>) -> bool {
    let is_known = all.contains_key(site);
    if !is_known && all.len() >= MAX_SITES {
        return false;
    }
    let entry = all
        .entry(site.to_owned())
        .or_insert_with(|| Some(BTreeSet::new()));
    let (Some(known), Some(names)) = (entry.as_mut(), names) else {
        *entry = None;
        return true;
    };
    known.extend(names.iter().cloned());
    let is_long = known.iter().any(|name| name.len() > MAX_NAME_BYTES);
    if known.len() > MAX_NAMES || is_long {
        *entry = None;
    }
    true
}

impl Supervisor {
    /// A front has seen cookies being set: the others are told as well.
    pub(crate) fn cookies_learned(&mut self, line: u32, report: FromFront) {
        let FromFront::CookieNames { site, names } = report else {
            return;
        };
        let sites = &self.plan.config.sites;
        let is_ours = |host: &maitred_config::Host| host.to_string() == site;
        let is_configured = sites
            .iter()
            .any(|one| one.hosts.first().is_some_and(is_ours));
        if !is_configured || !add(&mut self.cookies, &site, names.as_deref()) {
            return;
        }
        let others: Vec<u32> = self.fronts().map(|(other, _)| other).collect();
        for other in others.into_iter().filter(|other| *other != line) {
            let (site, names) = (site.clone(), names.clone());
            if let Some(peer) = self.peer_of_line(other) {
                peer.say(ToFront::CookieNames { site, names }, &[]);
            }
        }
    }

    /// What a front that is being started has to know of them.
    pub(crate) fn cookies_for_new_front(&self) -> Vec<ToFront> {
        let mut orders = Vec::new();
        for (site, names) in &self.cookies {
            let order = |names| ToFront::CookieNames {
                site: site.clone(),
                names,
            };
            let Some(names) = names else {
                orders.push(order(None));
                continue;
            };
            let names: Vec<String> = names.iter().cloned().collect();
            let pieces = names.chunks(NAMES_PER_MESSAGE);
            orders.extend(pieces.map(|piece| order(Some(piece.to_vec()))));
        }
        orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_front_says_is_bounded() {
        let mut all = CookieNames::new();
        assert!(add(&mut all, "a", Some(&["login".to_owned()])));
        assert!(add(
            &mut all,
            "a",
            Some(&["login".to_owned(), "lang".to_owned()])
        ));
        assert_eq!(all["a"].as_ref().map(BTreeSet::len), Some(2));
        let many: Vec<String> = (0..=MAX_NAMES).map(|number| number.to_string()).collect();
        assert!(add(&mut all, "a", Some(&many)));
        assert_eq!(all["a"], None);
        assert!(add(&mut all, "b", Some(&["x".repeat(MAX_NAME_BYTES + 1)])));
        assert_eq!(all["b"], None);
        assert!(add(&mut all, "a", Some(&["login".to_owned()])));
        assert_eq!(all["a"], None);
    }
}
