//! The sites to compare, at the addresses of both servers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use maitred_import::served::{ServedAddress, ServedSite};
use maitred_measure::endpoints::{self, TlsTrust};
use maitred_measure::plan::Endpoint;
use maitred_measure::url::Url;
use maitred_prove::difference::ComparedSite;
use maitred_prove::probe::AddressSource;
use maitred_prove::run::SiteTarget;

use super::super::options::Prove;
use super::seen_addresses;
use super::trial_config::TrialAddresses;

/// ALPN: requests use HTTP/1.1.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

/// Most names of a site.
const MAX_NAMES: usize = 4;

/// A name that no site has.
const UNKNOWN_HOST: &str = "unknown.invalid";

/// The sites, each over plain HTTP and over TLS as far as it has both.
///
/// # Errors
/// One sentence: an address of a site cannot be used.
pub fn targets<'s>(
    sites: &'s [ServedSite],
    trial: &TrialAddresses,
    asked: &Prove,
) -> Result<Vec<SiteTarget<'s>>, String> {
    let mut found = Vec::new();
    for site in sites {
        let mut seen = seen_addresses::of_site(site, asked.days);
        seen.extend(asked.also.iter().map(|path| (path.clone(), AddressSource::Named)));
        let mut names: Vec<&str> = site.names.iter().map(String::as_str).take(MAX_NAMES).collect();
        if names.is_empty() {
            names.push(UNKNOWN_HOST);
        }
        for is_tls in [true, false] {
            let Some(address) = site.addresses.iter().find(|one| one.is_tls == is_tls) else {
                continue;
            };
            for (index, name) in names.iter().enumerate() {
                let first = index == 0;
                let found_here = if first { seen.clone() } else { Vec::new() };
                let addresses = [address, &other_address(site, is_tls, sites)];
                found.push(target(site, name, addresses, trial, found_here)?);
            }
        }
    }
    Ok(found)
}

fn target<'s>(
    site: &'s ServedSite,
    name: &str,
    addresses: [&ServedAddress; 2],
    trial: &TrialAddresses,
    found: Vec<(String, AddressSource)>,
) -> Result<SiteTarget<'s>, String> {
    let [address, other] = addresses;
    let is_tls = address.is_tls;
    let usual = usual_port(is_tls);
    let authority = match address.port == usual {
        true => name.to_owned(),
        false => format!("{name}:{}", address.port),
    };
    let (own_new, other_new) = match is_tls {
        true => (trial.tls, trial.plain),
        false => (trial.plain, trial.tls),
    };
    let endpoint = |server: SocketAddr| -> Result<Endpoint, String> {
        let scheme = if is_tls { "https" } else { "http" };
        let url = Url::read(&format!("{scheme}://{authority}/"), None)?;
        let trust = TlsTrust { insecure: true, ca: None };
        endpoints::at(server, &url, &trust, &PROTOCOLS)
    };
    Ok(SiteTarget {
        site,
        compared: ComparedSite {
            authority: authority.clone(),
            is_tls,
            old_ports: vec![address.port, other.port],
            new_ports: vec![own_new.port(), other_new.port()],
        },
        old: endpoint(reachable(address))?,
        new: endpoint(own_new)?,
        found,
    })
}

/// The address of the same site for the other of plain HTTP and TLS, which another section may
/// have.
fn other_address(site: &ServedSite, is_tls: bool, sites: &[ServedSite]) -> ServedAddress {
    let has_name = |other: &&ServedSite| other.names.iter().any(|name| site.names.contains(name));
    let alike = [site].into_iter().chain(sites.iter().filter(has_name));
    let mut addresses = alike.flat_map(|one| &one.addresses);
    let usual = ServedAddress { host: "*".to_owned(), port: usual_port(!is_tls), is_tls: !is_tls };
    addresses.find(|one| one.is_tls != is_tls).cloned().unwrap_or(usual)
}

fn usual_port(is_tls: bool) -> u16 {
    if is_tls { 443 } else { 80 }
}

/// The address as this machine reaches it.
fn reachable(address: &ServedAddress) -> SocketAddr {
    let host = match address.host.trim_matches(['[', ']']) {
        "*" | "0.0.0.0" | "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        "::" => IpAddr::V6(Ipv6Addr::LOCALHOST),
        host => host.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)),
    };
    SocketAddr::new(host, address.port)
}
