//! Maps host names to sites.

use std::collections::HashMap;

use maitred_config::{HTTPS_PORT, Host, Site};

/// All hosts of a configuration, each with the number of its site.
#[derive(Debug, Default)]
pub struct Hosts {
    exact: HashMap<String, usize>,
    below: HashMap<String, usize>,
    any: Option<usize>,
}

impl Hosts {
    /// The hosts of `sites`.
    pub fn of(sites: &[Site]) -> Hosts {
        let mut hosts = Hosts::default();
        for (number, site) in sites.iter().enumerate() {
            for host in &site.hosts {
                match host {
                    Host::Exact(name) => drop(hosts.exact.insert(name.clone(), number)),
                    Host::Below(name) => drop(hosts.below.insert(name.clone(), number)),
                    Host::Any => hosts.any = Some(number),
                }
            }
        }
        hosts
    }

    /// The site for the authority of a request: by the exact name, then by the longest matching
    /// `*.example.com`, then the default site (`*`).
    pub fn site_for(&self, authority: &str) -> Option<usize> {
        if self.exact.is_empty() && self.below.is_empty() {
            return self.any;
        }
        let name = normal_name(authority);
        if let Some(&site) = self.exact.get(&name) {
            return Some(site);
        }
        let mut rest = &name[..];
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(&site) = self.below.get(parent) {
                return Some(site);
            }
            rest = parent;
        }
        self.any
    }
}

/// The host of an authority, without its port (RFC 3986 §3.2.2).
pub fn host_name(authority: &str) -> &str {
    if authority.starts_with('[') {
        return authority.find(']').map_or(authority, |end| &authority[..=end]);
    }
    authority.split_once(':').map_or(authority, |(host, _)| host)
}

/// The host of an authority as sites and certificates name it: in lower case, without port and
/// final dot.
pub fn normal_name(authority: &str) -> String {
    let mut name = host_name(authority).to_ascii_lowercase();
    if name.ends_with('.') {
        name.pop();
    }
    name
}

/// The URL of a target over HTTPS.
pub fn https_address(host: &str, port: u16, target: &str) -> String {
    match port {
        HTTPS_PORT => format!("https://{host}{target}"),
        port => format!("https://{host}:{port}{target}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(any: Option<usize>) -> Hosts {
        Hosts {
            exact: [("example.com".to_owned(), 0)].into(),
            below: [("example.com".to_owned(), 1), ("shop.example.com".to_owned(), 2)].into(),
            any,
        }
    }

    #[test]
    fn the_exact_name_comes_before_the_longest_wildcard_before_the_default() {
        let hosts = hosts(Some(3));
        assert_eq!(hosts.site_for("EXAMPLE.com:8080"), Some(0));
        assert_eq!(hosts.site_for("example.com."), Some(0));
        assert_eq!(hosts.site_for("www.example.com"), Some(1));
        assert_eq!(hosts.site_for("a.b.shop.example.com"), Some(2));
        assert_eq!(hosts.site_for("other.org"), Some(3));
        assert_eq!(hosts.site_for("[::1]:80"), Some(3));
    }

    #[test]
    fn a_host_that_nobody_serves_has_no_site() {
        assert_eq!(hosts(None).site_for("other.org"), None);
    }

    #[test]
    fn the_port_is_no_part_of_the_name() {
        assert_eq!(host_name("[::1]:80"), "[::1]");
        assert_eq!(host_name("a:1"), "a");
        assert_eq!(host_name("a"), "a");
    }
}
