//! `maitred warm`: requests pages, so that the page cache stores them.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::process::ExitCode;

use maitred_config::Config;
use maitred_front::Hosts;
use maitred_measure::endpoints::{self, EndpointError, TlsTrust};
use maitred_measure::plan::Endpoint;
use maitred_measure::url::Url;
use maitred_text::humanize::printable_pattern;
use maitred_warm::client;
use maitred_warm::run::{self, Plan, Report, SiteFinder};
use maitred_warm::sitemap::Sitemap;
use maitred_warm::verdict::Verdict;
use serde_json::json;

use crate::command::Warm;
use crate::exit_code::{EXIT_SUCCESS, fail, refuse};

/// Some of the pages are not cached.
const EXIT_NOT_ALL: u8 = 3;

/// ALPN: requests use HTTP/1.1.
const PROTOCOLS: [&[u8]; 1] = [b"http/1.1"];

/// The `User-Agent`, which identifies the requests in a log.
const USER_AGENT: &str = concat!("maitred-warm/", env!("CARGO_PKG_VERSION"));

/// Requests pages, and prints the results.
pub fn warm(asked: &Warm) -> ExitCode {
    let config = (!asked.any_host).then(|| maitred_config::load(&asked.config));
    let config = match config.transpose() {
        Ok(config) => config,
        Err(mistakes) => return refuse(&mistakes),
    };
    let plan = match plan(asked) {
        Ok(plan) => plan,
        Err(why) => return refuse(&why),
    };
    let finder = ServerFinder::new(asked, config.as_ref());
    let report = match run::warm(plan, &finder) {
        Ok(report) => report,
        Err(why) => return fail(&format!("cannot send requests: {why}")),
    };
    let json = as_json(&report).to_string();
    if let Err(why) = asked.json.publish(&json, || as_text(&report, asked.verbose)) {
        return fail(&why);
    }
    exit_code(&report)
}

fn plan(asked: &Warm) -> Result<Plan, String> {
    let mut plan = Plan {
        urls: asked.urls.clone(),
        rate: asked.rate,
        connections: usize::from(asked.concurrency),
        limit: usize::try_from(asked.limit).unwrap_or(usize::MAX),
        ..Plan::default()
    };
    for text in [format!("User-Agent: {USER_AGENT}")].iter().chain(&asked.header) {
        let (name, value) = client::header(text)?;
        plan.headers.append(name, value);
    }
    if let Some(file) = &asked.urls_file {
        let list = read(file).and_then(|bytes| Sitemap::list(&bytes));
        let list = list.map_err(|why| format!("{}: {why}", file.display()))?;
        plan.urls.extend(list.pages);
    }
    for sitemap in &asked.sitemap {
        if sitemap.contains("://") {
            plan.sitemaps.push(sitemap.clone());
            continue;
        }
        let read = read(Path::new(sitemap)).and_then(|bytes| Sitemap::read(&bytes));
        let read = read.map_err(|why| format!("{sitemap}: {why}"))?;
        plan.urls.extend(read.pages);
        plan.sitemaps.extend(read.further);
    }
    if plan.urls.is_empty() && plan.sitemaps.is_empty() {
        return Err("name URLs, a --sitemap or a --urls-file".to_owned());
    }
    Ok(plan)
}

fn read(file: &Path) -> Result<Vec<u8>, String> {
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map(|_| bytes)
    } else {
        fs::read(file)
    };
    bytes.map_err(|why| format!("it cannot be read: {why}"))
}

/// Finds the server for a URL.
struct ServerFinder<'a> {
    config: Option<(&'a Config, Hosts)>,
    connect: Option<SocketAddr>,
    trust: TlsTrust,
}

impl<'a> ServerFinder<'a> {
    fn new(asked: &Warm, config: Option<&'a Config>) -> ServerFinder<'a> {
        ServerFinder {
            config: config.map(|config| (config, Hosts::of(&config.sites))),
            connect: asked.connect,
            trust: TlsTrust { insecure: asked.insecure, ca: asked.ca.clone() },
        }
    }
}

impl SiteFinder for ServerFinder<'_> {
    fn find(&self, place: &Url) -> Result<Endpoint, String> {
        let listens = match &self.config {
            Some((config, hosts)) => Some(listens(config, hosts, place)?),
            None => None,
        };
        match self.connect.or(listens) {
            Some(address) => endpoints::at(address, place, &self.trust, &PROTOCOLS),
            None => {
                endpoints::find(place, None, &self.trust, &PROTOCOLS, true).map_err(|why| match why
                {
                    EndpointError::Remote(address) => format!("{address} is on another machine"),
                    EndpointError::Failed(why) => why,
                })
            }
        }
    }

    fn is_same_site(&self, one: &Url, other: &Url) -> bool {
        match &self.config {
            Some((_, hosts)) => hosts.site_for(&one.host) == hosts.site_for(&other.host),
            // Another port may be another server; those of http and https are one.
            None => {
                let is_usual = |place: &Url| place.port == if place.tls { 443 } else { 80 };
                one.host.eq_ignore_ascii_case(&other.host)
                    && (one.port == other.port || (is_usual(one) && is_usual(other)))
            }
        }
    }
}

/// The address of the configured server for a URL whose pages it caches: at the URL's port, since
/// the port is part of the cache key, or else its first one.
fn listens(config: &Config, hosts: &Hosts, place: &Url) -> Result<SocketAddr, String> {
    let site = hosts.site_for(&place.host);
    let site = site.and_then(|number| config.sites.get(number));
    match site {
        None => return Err(format!("{} is no host of the configuration", place.host)),
        Some(site) if site.cache.is_none() => {
            return Err(format!("the site of {} has no cache", place.host));
        }
        Some(_) => {}
    }
    let listens = if place.tls {
        config.tls.as_ref().map(|tls| &tls.listen[..])
    } else {
        Some(&config.listen[..])
    };
    let listens = listens.unwrap_or_default();
    let same_port = listens.iter().find(|one| one.port() == place.port);
    let mut address = *same_port.or(listens.first()).ok_or_else(|| {
        let scheme = if place.tls { "https" } else { "http" };
        format!("the server does not listen for {scheme}")
    })?;
    // A wildcard address includes loopback.
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(loopback()),
        _ => {}
    }
    Ok(address)
}

/// `[::]` means IPv4 as well, and a machine may have no IPv6.
fn loopback() -> IpAddr {
    match std::net::UdpSocket::bind((Ipv6Addr::LOCALHOST, 0)) {
        Ok(_) => Ipv6Addr::LOCALHOST.into(),
        Err(_) => Ipv4Addr::LOCALHOST.into(),
    }
}

/// Pages that were stored, were cached already, were not stored, could not be requested.
fn counts(report: &Report) -> [usize; 4] {
    [
        report.count(|one| *one == Verdict::Stored),
        report.count(|one| *one == Verdict::There),
        report.count(|one| matches!(one, Verdict::NotStored(_))),
        report.count(|one| matches!(one, Verdict::Failed(_))),
    ]
}

fn exit_code(report: &Report) -> ExitCode {
    let [stored, there, not_stored, failed] = counts(report);
    if stored + there + not_stored == 0 {
        return fail(&"no page could be requested");
    }
    let is_all = not_stored + failed + report.left_out == 0 && report.troubles.is_empty();
    ExitCode::from(if is_all { EXIT_SUCCESS } else { EXIT_NOT_ALL })
}

fn as_text(report: &Report, verbose: bool) -> String {
    let [stored, there, not_stored, failed] = counts(report);
    let mut lines = Vec::new();
    if verbose {
        for (url, verdict) in &report.pages {
            lines.push(match verdict {
                Verdict::Stored => format!("stored      {url}"),
                Verdict::There => format!("there       {url}"),
                Verdict::NotStored(why) => format!("not stored  {url}: {why}"),
                Verdict::Failed(why) => format!("failed      {url}: {why}"),
            });
        }
    }
    lines.push(format!(
        "{stored} stored, {there} there already, {not_stored} not stored, {failed} failed"
    ));
    for (why, count, url) in report.reasons() {
        lines.push(format!("{count:>8}  {why}, such as {url}"));
    }
    lines.extend(report.troubles.iter().map(|why| format!("          {why}")));
    if report.left_out > 0 {
        lines.push(format!("{:>8}  left out (--limit)", report.left_out));
    }
    // Addresses and reasons have text of sites' sitemaps and pages.
    lines.iter().map(|line| printable_pattern(line)).collect::<Vec<_>>().join("\n")
}

fn as_json(report: &Report) -> serde_json::Value {
    let [stored, there, not_stored, failed] = counts(report);
    let reasons = report.reasons().into_iter();
    let reasons: Vec<_> = reasons
        .map(|(why, count, url)| {
            BTreeMap::from([("why", json!(why)), ("count", json!(count)), ("first", json!(url))])
        })
        .collect();
    json!({
        "stored": stored,
        "there": there,
        "not_stored": not_stored,
        "failed": failed,
        "left_out": report.left_out,
        "reasons": reasons,
        "troubles": report.troubles,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let text = "listen = [\"0.0.0.0:8080\", \"127.0.0.2:8081\"]\n[pools.www]\n[[sites]]\n\
                    hosts = [\"a.example\"]\nroot = \"/\"\npool = \"www\"\n[sites.cache]\n\
                    [[sites]]\nhosts = [\"b.example\"]\nroot = \"/\"\npool = \"www\"\n";
        maitred_config::parse(text, Path::new("maitred.toml")).unwrap()
    }

    #[test]
    fn only_hosts_with_a_cache_are_asked_for_at_the_servers_own_address() {
        let config = config();
        let hosts = Hosts::of(&config.sites);
        let at = |url: &str| listens(&config, &hosts, &Url::read(url, None).unwrap());
        assert_eq!(at("http://A.example/x").unwrap().to_string(), "127.0.0.1:8080");
        assert_eq!(at("http://a.example:8081/").unwrap().to_string(), "127.0.0.2:8081");
        assert!(at("http://b.example/").unwrap_err().contains("has no cache"));
        assert!(at("http://c.example/").unwrap_err().contains("no host"));
        assert!(at("https://a.example/").unwrap_err().contains("https"));
    }

    #[test]
    fn hosts_of_one_site_are_one_and_without_a_configuration_each_host_is_a_site() {
        let mut finder = ServerFinder { config: None, connect: None, trust: TlsTrust::default() };
        let same = |finder: &ServerFinder<'_>, one: &str, other: &str| {
            let place = |url: &str| Url::read(url, None).unwrap();
            finder.is_same_site(&place(one), &place(other))
        };
        assert!(same(&finder, "http://a.example/x", "https://A.example/"));
        assert!(!same(&finder, "http://a.example/", "http://a.example:9200/"));
        assert!(!same(&finder, "http://a.example/", "http://b.example/"));
        let text = "[pools.www]\n[[sites]]\nhosts = [\"a.example\", \"www.a.example\"]\n\
                    root = \"/\"\n[[sites]]\nhosts = [\"b.example\"]\nroot = \"/\"\n";
        let config = maitred_config::parse(text, Path::new("maitred.toml")).unwrap();
        finder.config = Some((&config, Hosts::of(&config.sites)));
        assert!(same(&finder, "http://a.example/", "https://www.a.example:8443/"));
        assert!(!same(&finder, "http://a.example/", "http://b.example/"));
        assert!(!same(&finder, "http://a.example/", "http://c.example/"));
    }

    #[test]
    fn the_report_says_how_many_and_why_not() {
        let report = Report {
            pages: vec![
                ("a".to_owned(), Verdict::Stored),
                ("b".to_owned(), Verdict::There),
                ("c".to_owned(), Verdict::NotStored("private".to_owned())),
            ],
            troubles: vec!["sitemap \u{1b}x: it was answered with 404".to_owned()],
            left_out: 2,
        };
        assert_eq!(
            as_text(&report, false),
            "1 stored, 1 there already, 1 not stored, 0 failed\n       \
             1  private, such as c\n          \
             sitemap \\u{1b}x: it was answered with 404\n       2  left out (--limit)"
        );
        assert!(as_text(&report, true).starts_with("stored      a\nthere       b\nnot stored  c"));
        assert_eq!(as_json(&report)["reasons"][0]["first"], "c");
    }
}
