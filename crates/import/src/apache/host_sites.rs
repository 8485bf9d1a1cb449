//! Which virtual hosts are sites of their own, and which are one site with another.

use super::host_import::{HostImport, moved_site};
use super::virtual_host::VirtualHost;
use super::virtual_hosts::HostsImport;
use crate::file_draft::{FileDraft, Placed, SiteDraft};
use crate::listen_addresses::{Listen, Reach, reach};
use crate::toml_text;

/// The name that stands for all others.
const ANY: &str = "*";

impl<'a> HostsImport<'_, 'a> {
    /// A site for each virtual host, or for several that are one.
    pub(super) fn sites(&mut self, hosts: &[VirtualHost<'a>], file: &mut FileDraft) {
        let mut ordered: Vec<&VirtualHost<'a>> = hosts.iter().collect();
        // One that no name leads to is compared with the site that its clients reach here.
        ordered.sort_by_key(|one| (one.names.is_empty() && !one.is_default, !one.has_tls()));
        let mut names_of_sites = Vec::new();
        for host in ordered {
            self.site(host, hosts, &mut names_of_sites, file);
        }
        file.sites
            .sort_by_key(|site| hosts.iter().position(|one| one.place.to_string() == site.from));
    }

    /// Adds the site of a virtual host, and its names to those of the sites in the file.
    fn site(
        &mut self,
        host: &VirtualHost<'a>,
        all: &[VirtualHost<'a>],
        names_of_sites: &mut Vec<Vec<String>>,
        file: &mut FileDraft,
    ) {
        let has_tls = |name: &String| {
            all.iter().any(|one| one.has_tls() && (one.has_name(name) || one.is_default))
        };
        let is_redirected = file.tls.value("redirect").is_some();
        if host.is_only_redirect() && is_redirected && host.names.iter().all(has_tls) {
            host.section.into_iter().for_each(|one| self.report.drop_server(one));
            return;
        }
        let mut hosts = self.reached_names(host, all);
        if host.is_default {
            hosts.push(ANY.to_owned());
        }
        for moved in &host.moved {
            hosts.retain(|name| *name != moved.host);
            if !names_of_sites.iter().any(|names| names.contains(&moved.host)) {
                names_of_sites.push(vec![moved.host.clone()]);
                file.sites.push(moved_site(moved, &host.place));
            }
        }
        self.report.begin_server();
        let own = host.directives.iter().filter(|one| !one.is("<VirtualHost"));
        own.for_each(|one| self.report.imports(one));
        let import = HostImport::new(self, host);
        let mut site = import.import(&hosts);
        let mut twins = twins(&hosts, names_of_sites);
        if twins.is_empty() && host.names.is_empty() {
            twins.extend(file.sites.iter().position(|one| is_same(one, &site)));
        }
        if let Some(first) = twins.first() {
            match twins.iter().find(|at| !is_same(&file.sites[**at], &site)) {
                Some(other) => self.differs(host, &hosts, &file.sites[*other].from),
                None => add_names(*first, &hosts, names_of_sites, file),
            }
            return;
        }
        if hosts.is_empty() {
            let why = "it has no name that leads to it";
            return self.report.access_left_out(&host.place, "<VirtualHost", why);
        }
        let others: Vec<&[Listen]> = all.iter().map(|one| one.listens.as_slice()).collect();
        self.reach(host, &others, &mut site);
        names_of_sites.push(hosts);
        file.sites.push(site);
    }

    /// Names a virtual host whose clients reach the site from `place`, which is another one.
    fn differs(&mut self, host: &VirtualHost<'a>, hosts: &[String], place: &str) {
        let of = if hosts.is_empty() { "its address".to_owned() } else { hosts.join(", ") };
        let why = format!(
            "the virtual host at {place} is the site of {of} here, and does something else"
        );
        self.report.access_left_out(&host.place, "<VirtualHost", &why);
    }

    /// The names of a virtual host that lead to it: in Apache the first match wins, and in the site
    /// the longest one.
    fn reached_names(&mut self, host: &VirtualHost<'a>, all: &[VirtualHost<'a>]) -> Vec<String> {
        let mut names = host.names.clone();
        for other in all.iter().take_while(|other| other.place != host.place) {
            if !other.may_precede(host) {
                continue;
            }
            names.retain(|name| {
                let is_hidden = other.wildcards.iter().any(|pattern| pattern.is_match(name));
                if is_hidden {
                    let why = format!(
                        "`{name}` leads to the virtual host at {}, which precedes it and has a \
                         wildcard for it: put the one with the name first if it is to serve it",
                        other.place
                    );
                    self.report.access_left_out(&host.place, "<VirtualHost", &why);
                }
                !is_hidden
            });
        }
        names
    }

    /// Who reaches the site: every site is served at every address.
    fn reach(&mut self, host: &VirtualHost<'a>, all: &[&[Listen]], site: &mut SiteDraft) {
        match reach(&host.listens, all) {
            Reach::All => {}
            Reach::ThisMachine => {
                let local = toml_text::strings(["127.0.0.0/8", "::1"]);
                let why = "only this machine reached it";
                site.settings.set("allow", Placed::because(local, &host.place, why));
                let why = "the site allows this machine alone";
                self.report.changed(&host.place, "<VirtualHost", why);
            }
            Reach::Some(why) => self.report.access_left_out(&host.place, "<VirtualHost", &why),
        }
    }
}

/// The sites that have the names of a virtual host already; without names, the one that its clients
/// reach. A second virtual host of a name, for another port, may be the same site.
fn twins(hosts: &[String], names_of_sites: &[Vec<String>]) -> Vec<usize> {
    let has_any = |names: &Vec<String>| names.iter().any(|name| name == ANY);
    let shares = |names: &Vec<String>| hosts.iter().any(|one| one != ANY && names.contains(one));
    let at = |is_one: &dyn Fn(&Vec<String>) -> bool| -> Vec<usize> {
        (0..names_of_sites.len()).filter(|at| is_one(&names_of_sites[*at])).collect()
    };
    match at(&has_any).as_slice() {
        _ if !hosts.is_empty() => at(&shares),
        [] => at(&|_| true).into_iter().take(1).collect(),
        found => found.to_vec(),
    }
}

/// Whether two sites differ by their names alone.
fn is_same(one: &SiteDraft, other: &SiteDraft) -> bool {
    one.settings.has_values_of(&other.settings, &["hosts"])
}

/// Adds the names that no site has to those of a site.
fn add_names(
    at: usize,
    hosts: &[String],
    names_of_sites: &mut [Vec<String>],
    file: &mut FileDraft,
) {
    let is_free = |name: &&String| names_of_sites.iter().all(|names| !names.contains(name));
    let free: Vec<String> = hosts.iter().filter(is_free).cloned().collect();
    if free.is_empty() {
        return;
    }
    names_of_sites[at].extend(free);
    let site = &mut file.sites[at];
    let value = Placed { toml: toml_text::strings(&names_of_sites[at]), from: site.from.clone() };
    site.settings.replace("hosts", value);
}
