//! mod_remoteip: the proxies before Apache.

use maitred_rules::networks::parse_network;

use super::config_reader::ApacheConfig;
use crate::file_draft::{FileDraft, Placed, SiteDraft};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::toml_text;

/// The networks whose addresses Apache takes from an internal proxy alone.
const PRIVATE: [&str; 5] =
    ["10.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16"];

/// All other addresses of IPv6 are private to it.
const PUBLIC_V6: &str = "2000::/3";

/// `RemoteIPTrustedProxy` and relatives.
pub(super) fn remote_ip(config: &ApacheConfig, file: &mut FileDraft, report: &mut ImportReport) {
    let is_proxy = |one: &&Directive| {
        ["RemoteIPTrustedProxy", "RemoteIPInternalProxy"].iter().any(|name| one.is(name))
    };
    let proxies: Vec<&Directive> = config.tree.iter().filter(is_proxy).collect();
    let header = config.tree.iter().rev().find(|one| one.is("RemoteIPHeader"));
    let Some(header) = header else { return };
    let Some(first) = proxies.first() else {
        let why = "Apache takes the address of clients from any of them, as it names no proxy: set \
                   `trusted_proxies` and `trusted_headers`, or rules about addresses are those of \
                   the proxy";
        return report.access_left_out(&header.place, &header.shown(), why);
    };
    let all = proxies.iter().flat_map(|one| &one.arguments);
    file.server.set("trusted_proxies", Placed::new(toml_text::strings(all), &first.place));
    let headers = toml_text::strings([header.first()]);
    file.server.set("trusted_headers", Placed::new(headers, &header.place));
    let lets_in_private = file.sites.iter().any(lets_in_private);
    for one in proxies.into_iter().chain([header]) {
        match one.is("RemoteIPTrustedProxy") {
            false => report.kept(&one.place, &one.shown()),
            true if lets_in_private => {
                let why = "a private address in the header counts here, which Apache takes from an \
                           internal proxy alone, and a rule lets such addresses in: take them out \
                           of `except`, or let the proxy drop the header of its clients";
                report.access_left_out(&one.place, &one.shown(), why);
            }
            true => {
                let why = "a private address in the header counts, as with `RemoteIPInternalProxy`";
                report.changed(&one.place, &one.shown(), why);
            }
        }
    }
}

/// Whether a rule of a site lets in some addresses alone, of which some are private.
fn lets_in_private(site: &SiteDraft) -> bool {
    let rules = site.settings.list("deny").iter().map(|item| item.toml.as_str());
    let excepted = rules.filter_map(|rule| rule.split_once("except = [")).map(|(_, rest)| rest);
    let mut lists = excepted.chain(site.settings.value("allow"));
    lists.any(|list| {
        let list = list.split(']').next().unwrap_or_default();
        list.split('"').skip(1).step_by(2).any(is_private)
    })
}

/// Whether a network has private addresses.
fn is_private(network: &str) -> bool {
    let Ok(network) = parse_network(network) else { return true };
    let is_within = |other: &str| parse_network(other).is_ok_and(|other| other.contains(&network));
    let has = |other: &str| parse_network(other).is_ok_and(|other| network.contains(&other));
    match network.addr().is_ipv4() {
        true => PRIVATE.iter().any(|one| is_within(one) || has(one)),
        false => !is_within(PUBLIC_V6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_with_addresses_that_apache_takes_from_internal_proxies_alone_are_private() {
        for network in ["10.1.2.3", "172.16.0.0/12", "0.0.0.0/0", "::1", "fd00::/8", "::/0"] {
            assert!(is_private(network), "{network}");
        }
        for network in ["192.0.2.1", "172.32.0.0/16", "2001:db8::/32"] {
            assert!(!is_private(network), "{network}");
        }
    }
}
