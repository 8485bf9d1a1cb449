//! The virtual hosts: which of them become sites, and under which names.

use std::ptr;

use super::config_reader::ApacheConfig;
use super::host_addresses::{self, address};
use super::mod_php_pools::ModPhpPools;
use super::rewrite_chain::{CondTest, RewriteChain, RewriteScope, chains};
use super::virtual_host::{MovedHost, NamesOverTls, VirtualHost, wildcards};
use crate::FileReader;
use crate::file_draft::{FileDraft, Placed};
use crate::fpm::PoolPlan;
use crate::listen_addresses::{Listen, addresses};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::toml_text;

/// The requested path in the target of a rule.
const PATHS: [&str; 3] = ["%{REQUEST_URI}", "/$1", "$1"];

/// What a redirect to HTTPS of one name becomes.
const OF_THE_SAME_NAME: &str = "plain HTTP is redirected to HTTPS of the requested name";

/// The import of all virtual hosts.
pub(super) struct HostsImport<'w, 'a> {
    pub(super) files: &'w dyn FileReader,
    pub(super) report: &'w mut ImportReport,
    pub(super) pools: &'w mut PoolPlan,
    pub(super) mod_php: &'w mut ModPhpPools,
    pub(super) config: &'a ApacheConfig,
}

impl<'a> HostsImport<'_, 'a> {
    /// All virtual hosts, and the server itself where none is.
    pub(super) fn hosts(&mut self) -> Vec<VirtualHost<'a>> {
        let listens = self.listen_directives();
        let sections = self.config.tree.iter().filter(|one| one.is("<VirtualHost"));
        let sections: Vec<&'a Directive> = sections.collect();
        let mut hosts: Vec<VirtualHost<'a>> =
            sections.into_iter().map(|one| self.host(one, &listens)).collect();
        self.server_itself(&listens, &mut hosts);
        let tls = NamesOverTls::of(&hosts);
        hosts.iter_mut().for_each(|host| self.redirected(host, &tls));
        let first = hosts.iter().position(|one| !one.is_only_redirect());
        let named = hosts.iter().any(|one| one.names.iter().any(|name| name == "*"));
        if let Some(first) = first.filter(|_| !named) {
            hosts[first].is_default = true;
        }
        hosts
    }

    pub(super) fn import(&mut self, file: &mut FileDraft) {
        let hosts = self.hosts();
        self.listen(&hosts, file);
        self.tls(&hosts, file);
        self.sites(&hosts, file);
    }

    /// The addresses of `Listen`.
    fn listen_directives(&mut self) -> Vec<Listen> {
        let mut found = Vec::new();
        for listen in self.config.tree.iter().filter(|one| one.is("Listen")) {
            if let Some(one) = address(listen.first()) {
                let is_tls = listen.argument(1).eq_ignore_ascii_case("https");
                found.push(Listen { is_tls, ..one });
                self.report.kept(&listen.place, &listen.shown());
                self.named(listen, listen.first());
            }
        }
        found
    }

    /// A name in place of an address can be that of a private one.
    fn named(&mut self, line: &'a Directive, text: &str) {
        if host_addresses::has_name(text) {
            let why = "the address of the name is unknown here, and the site is served at every \
                       address: write the address in place of the name";
            self.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    fn host(&mut self, section: &'a Directive, listens: &[Listen]) -> VirtualHost<'a> {
        self.report.kept(&section.place, &section.shown());
        let engine = last(&section.block, "SSLEngine").or(last(&self.config.tree, "SSLEngine"));
        let is_tls = engine.is_some_and(|one| one.first().eq_ignore_ascii_case("on"));
        let (mut own, mut for_all) = (Vec::new(), Vec::new());
        for text in &section.arguments {
            self.named(section, text);
            let found = host_addresses::served_at(text, listens).into_iter();
            let found: Vec<Listen> = found.map(|listen| Listen { is_tls, ..listen }).collect();
            if host_addresses::is_for_all(text) {
                for_all.extend(found.iter().cloned());
            }
            own.extend(found);
        }
        if own.is_empty() {
            let why = "no `Listen` has its port, and Apache does not serve it";
            self.report.changed(&section.place, &section.shown(), why);
        }
        VirtualHost {
            section: Some(section),
            place: section.place.clone(),
            directives: &section.block,
            listens: own,
            for_all,
            names: self.names(&section.block),
            wildcards: wildcards(&section.block),
            is_default: false,
            to_https: None,
            moved: Vec::new(),
            moved_lines: Vec::new(),
        }
    }

    /// The server itself, where no virtual host is.
    fn server_itself(&mut self, listens: &[Listen], hosts: &mut Vec<VirtualHost<'a>>) {
        let free: Vec<Listen> = listens
            .iter()
            .filter(|one| {
                !hosts.iter().any(|host| host.listens.iter().any(|its| its.port == one.port))
            })
            .cloned()
            .collect();
        let root = last(&self.config.tree, "DocumentRoot");
        if !hosts.is_empty() && (free.is_empty() || root.is_none()) {
            for listen in free {
                let place = self.config.tree.iter().find(|one| {
                    one.is("Listen") && address(one.first()).is_some_and(|a| a.port == listen.port)
                });
                if let Some(line) = place {
                    let why = "no virtual host serves this port";
                    self.report.changed(&line.place, &line.shown(), why);
                }
            }
            return;
        }
        let place = root.or(self.config.tree.first());
        let Some(place) = place.map(|one| one.place.clone()) else { return };
        let listens = if free.is_empty() { listens.to_vec() } else { free };
        let host = VirtualHost {
            section: None,
            place,
            directives: &self.config.tree,
            for_all: listens.clone(),
            listens,
            names: self.names(&self.config.tree),
            wildcards: wildcards(&self.config.tree),
            is_default: false,
            to_https: None,
            moved: Vec::new(),
            moved_lines: Vec::new(),
        };
        hosts.push(host);
    }

    fn names(&mut self, directives: &'a [Directive]) -> Vec<String> {
        let mut names = Vec::new();
        for directive in directives {
            if !directive.is("ServerName") && !directive.is("ServerAlias") {
                continue;
            }
            let mut is_kept = true;
            for name in &directive.arguments {
                let name = name.to_ascii_lowercase();
                let name = name.split_once("://").map_or(name.as_str(), |(_, rest)| rest);
                let name = name.split(':').next().unwrap_or_default();
                let inner = name.strip_prefix("*.").unwrap_or(name);
                match inner {
                    "*" => names.push("*".to_owned()),
                    _ if inner.contains(['*', '?']) || inner.is_empty() => {
                        is_kept = false;
                        let why = format!("`{name}` is neither a name nor `*.example.com`");
                        let (place, shown) = (&directive.place, directive.shown());
                        match self.is_first(directives) {
                            true => self.report.left_out(place, &shown, &why),
                            false => {
                                let why = format!("{why}: its requests lead to the first site");
                                self.report.access_left_out(place, &shown, &why);
                            }
                        }
                    }
                    _ => names.push(name.to_owned()),
                }
            }
            if is_kept {
                self.report.kept(&directive.place, &directive.shown());
            }
        }
        names.dedup();
        names
    }

    /// Whether directives are those of the first virtual host, which has all unknown names.
    fn is_first(&self, directives: &[Directive]) -> bool {
        let first = self.config.tree.iter().find(|one| one.is("<VirtualHost"));
        first.is_none_or(|one| ptr::eq(one.block.as_slice(), directives))
    }

    /// What a virtual host redirects as a whole, or for some of its names. `tls` are the names that
    /// have TLS.
    fn redirected(&mut self, host: &mut VirtualHost<'a>, tls: &NamesOverTls) {
        for directive in host.directives {
            let (status, from, to) = match directive.arguments.as_slice() {
                [status, from, to] => (status.as_str(), from.as_str(), to.as_str()),
                [from, to] => ("302", from.as_str(), to.as_str()),
                _ => continue,
            };
            let status = match status.to_ascii_lowercase().as_str() {
                "permanent" => "301".to_owned(),
                "temp" => "302".to_owned(),
                other => other.to_owned(),
            };
            let status = if directive.is("RedirectPermanent") { "301".to_owned() } else { status };
            let is_all = match directive.name.to_ascii_lowercase().as_str() {
                "redirect" | "redirectpermanent" | "redirecttemp" => from == "/",
                "redirectmatch" => ["^/(.*)$", "^(.*)$", "^/?(.*)$", "(.*)"].contains(&from),
                _ => false,
            };
            let name = to.strip_prefix("https://").map(|rest| rest.trim_end_matches("$1"));
            let name = name.map(|rest| self.without_own_port(rest.trim_end_matches('/')));
            let Some(name) = name.filter(|_| is_all && !host.has_tls()) else { continue };
            if host.names.is_empty() || only(&host.names, name) {
                host.to_https = status.parse().ok();
                self.report.kept(&directive.place, &directive.shown());
            } else if tls.have_all(&host.names, name) {
                host.to_https = status.parse().ok();
                self.report.changed(&directive.place, &directive.shown(), OF_THE_SAME_NAME);
            }
        }
        if !is_on(self.of_host(host, "RewriteEngine")) {
            return;
        }
        let own: Vec<&'a Directive> = host.directives.iter().collect();
        for chain in chains(&own, &RewriteScope::default()) {
            self.redirected_by(&chain, host, tls);
        }
    }

    /// A name without the port of a `Listen`.
    fn without_own_port<'n>(&self, name: &'n str) -> &'n str {
        let Some((host, port)) = name.rsplit_once(':') else { return name };
        let mut listens = self.config.tree.iter().filter(|one| one.is("Listen"));
        let is_own = |one: &Directive| {
            address(one.first()).is_some_and(|listen| listen.port.to_string() == port)
        };
        if listens.any(is_own) { host } else { name }
    }

    fn redirected_by(
        &mut self,
        chain: &RewriteChain<'a>,
        host: &mut VirtualHost<'a>,
        tls: &NamesOverTls,
    ) {
        let Some(status) = chain.redirect().filter(|_| chain.is_for_all()) else { return };
        let mut hosts = host.names.clone();
        let mut has_host = false;
        for test in &chain.tests {
            match test {
                CondTest::IsPlain | CondTest::IsPlainOrElse if !host.has_tls() => {}
                CondTest::Path(text, true) if text.contains("well-known") => {}
                CondTest::Host(text, is_negated) => {
                    has_host = true;
                    let Ok(pattern) = regex::Regex::new(text) else { return };
                    if chain.tests.len() == 1 {
                        hosts.retain(|name| pattern.is_match(name) != *is_negated);
                    } else if *is_negated {
                        return;
                    }
                }
                _ => return,
            }
        }
        let to = chain.rule.argument(1);
        let rest = to.strip_prefix("https://").unwrap_or_default();
        let is_same = PATHS.iter().any(|end| {
            let Some(name) = rest.strip_suffix(end) else { return false };
            ["%{HTTP_HOST}", "%{SERVER_NAME}"].contains(&name)
                || only(&hosts, name.trim_end_matches('/'))
        });
        let is_known = |name: &str| tls.have_all(&host.names, name.trim_end_matches('/'));
        let is_to_one = !has_host
            && !host.has_tls()
            && PATHS.iter().any(|end| rest.strip_suffix(end).is_some_and(is_known));
        if is_same && !host.has_tls() || is_to_one {
            host.to_https = status.parse().ok();
        } else if has_host && hosts.len() < host.names.len().max(1) {
            let Ok(to) = chain.target("", "\0") else { return };
            let to = to.replace("$1", "$0").replace("/$0", "$0");
            for name in hosts {
                let (status, to) = (status.to_owned(), to.clone());
                host.moved.push(MovedHost { host: name, to, status, from: chain.rule });
            }
            host.moved_lines.extend(chain.conditions.iter().chain([&chain.rule]));
        } else {
            return;
        }
        let (place, shown) = (&chain.rule.place, chain.rule.shown());
        match is_to_one && !is_same {
            true => self.report.changed(place, &shown, OF_THE_SAME_NAME),
            false => self.report.kept(place, &shown),
        }
        chain.conditions.iter().for_each(|one| self.report.kept(&one.place, &one.shown()));
    }

    fn listen(&mut self, hosts: &[VirtualHost<'a>], file: &mut FileDraft) {
        let Some(first) = hosts.first() else { return };
        let all = || hosts.iter().flat_map(|one| &one.listens);
        let plain = addresses(all().filter(|one| !one.is_tls));
        let tls = addresses(all().filter(|one| one.is_tls));
        let from = format!("{} and others: every site is served at every address", first.place);
        if !plain.is_empty() || tls.is_empty() {
            let toml = toml_text::strings(&plain);
            file.server.set("listen", Placed { toml, from: from.clone() });
        }
        if !tls.is_empty() {
            file.tls.set("listen", Placed { toml: toml_text::strings(&tls), from });
        }
    }

    fn tls(&mut self, hosts: &[VirtualHost<'a>], file: &mut FileDraft) {
        for host in hosts.iter().filter(|one| one.has_tls()) {
            self.certificates(host, file);
            if let Some(versions) = self.of_host(host, "SSLProtocol") {
                let all: Vec<&str> = versions.arguments.iter().map(String::as_str).collect();
                let without = |name: &str| all.iter().any(|one| one.eq_ignore_ascii_case(name));
                if all.last() == Some(&"TLSv1.3")
                    || all.last() == Some(&"+TLSv1.3") && all.len() < 3
                    || without("-TLSv1.2")
                {
                    let version = Placed::new("\"1.3\"".to_owned(), &versions.place);
                    file.tls.set("min_version", version);
                }
                self.report.kept(&versions.place, &versions.shown());
            }
        }
        self.redirect_to_https(hosts, file);
        self.client_certificates(hosts, file);
    }

    fn redirect_to_https(&mut self, hosts: &[VirtualHost<'a>], file: &mut FileDraft) {
        let redirects = hosts.iter().find_map(|one| Some((one, one.to_https?)));
        let is_plain = |one: &&VirtualHost<'_>| one.has_plain() && one.to_https.is_none();
        let stays = |one: &&VirtualHost<'_>| is_plain(one) && !one.is_welcome_page();
        let plain = hosts.iter().find(stays);
        match (redirects.filter(|_| !file.tls.is_empty()), plain) {
            (Some((first, status)), None) => {
                let status = if [301, 308].contains(&status) { status } else { 301 };
                file.tls.set("redirect", Placed::new(status.to_string(), &first.place));
                for page in hosts.iter().filter(is_plain) {
                    let why = "plain HTTP is redirected to HTTPS for all sites, also for this one";
                    self.report.changed(&page.place, "<VirtualHost", why);
                }
            }
            (Some((first, _)), Some(plain)) => {
                let why = format!(
                    "plain HTTP is redirected for all sites or for none, and the host at {} is \
                     served over it: set `redirect` in [tls]",
                    plain.place
                );
                let what = "redirect to https";
                match hosts.iter().find(|one| one.leads_to_site(hosts)) {
                    Some(one) => self.report.access_left_out(&one.place, what, &why),
                    None => self.report.left_out(&first.place, what, &why),
                }
            }
            (None, _) => {}
        }
        let is_alone = |one: &&VirtualHost<'_>| one.is_over_tls_alone(hosts);
        let is_open = |one: &VirtualHost<'_>| one.has_open_plain() && one.to_https.is_none();
        let is_served = hosts.iter().any(is_open) && !file.tls.has("redirect");
        for host in hosts.iter().filter(|_| is_served).filter(is_alone) {
            let why = "it was served over TLS alone, and plain HTTP serves it here: set \
                       `redirect` in [tls]";
            self.report.access_left_out(&host.place, "<VirtualHost", why);
        }
    }

    fn certificates(&mut self, host: &VirtualHost<'a>, file: &mut FileDraft) {
        let all = |name: &str| -> Vec<&'a Directive> {
            let own: Vec<_> = host.directives.iter().filter(|one| one.is(name)).collect();
            match own.is_empty() {
                true => self.config.tree.iter().filter(|one| one.is(name)).collect(),
                false => own,
            }
        };
        let (certs, keys) = (all("SSLCertificateFile"), all("SSLCertificateKeyFile"));
        let chains = all("SSLCertificateChainFile");
        for (at, cert) in certs.iter().enumerate() {
            // Without a file of its own, the key is in the one of the certificate.
            let key = keys.get(at).unwrap_or(cert);
            let fields = [
                ("cert", toml_text::string(&self.config.absolute(cert.first()))),
                ("key", toml_text::string(&self.config.absolute(key.first()))),
            ];
            file.tls.push("certificates", Placed::new(toml_text::table(fields), &cert.place));
            self.report.kept(&cert.place, &cert.shown());
            self.report.kept(&key.place, &key.shown());
            if cert.first().starts_with("/etc/letsencrypt/") {
                let why = "certbot's plugin for Apache renews it no longer: set `acme` in [tls], \
                           or let certbot use its webroot";
                self.report.changed(&cert.place, &cert.shown(), why);
            }
        }
        for chain in chains {
            let why = "the certificates of a chain stand in the file of the certificate: append \
                       this one to it";
            self.report.left_out(&chain.place, &chain.shown(), why);
        }
    }

    /// `SSLVerifyClient`, which all virtual hosts must have.
    fn client_certificates(&mut self, hosts: &[VirtualHost<'a>], file: &mut FileDraft) {
        let tls: Vec<&VirtualHost<'a>> = hosts.iter().filter(|one| one.has_tls()).collect();
        let of = |host: &&VirtualHost<'a>| {
            let verify = self.of_host(host, "SSLVerifyClient");
            let authority = self.of_host(host, "SSLCACertificateFile");
            (verify.map(|one| one.first().to_ascii_lowercase()), authority.map(Directive::first))
        };
        let Some(first) = tls.first() else { return };
        let (wanted, authority) = of(first);
        let how = match wanted.as_deref() {
            Some("require") => "required",
            Some("optional") => "optional",
            _ => return,
        };
        let Some(authority) = authority.filter(|_| tls.iter().all(|one| of(one) == of(first)))
        else {
            return;
        };
        for name in ["SSLVerifyClient", "SSLCACertificateFile"] {
            if let Some(line) = self.of_host(first, name) {
                self.report.kept(&line.place, &line.shown());
            }
        }
        let place = &first.place;
        file.tls.set("client_certificates", Placed::new(toml_text::string(how), place));
        let authority = toml_text::string(&self.config.absolute(authority));
        file.tls.set("client_ca", Placed::new(authority, place));
        let is_plain = hosts.iter().flat_map(|one| &one.listens).any(|one| !one.is_tls);
        let verify = self.of_host(first, "SSLVerifyClient");
        if let Some(line) = verify.filter(|_| is_plain && file.tls.value("redirect").is_none()) {
            let why = "every site is served over plain HTTP as well, without a certificate: set \
                       `redirect` in [tls], or leave out `listen`";
            self.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    /// The last directive of a virtual host, or of the server.
    fn of_host(&self, host: &VirtualHost<'a>, name: &str) -> Option<&'a Directive> {
        last(host.directives, name).or(last(&self.config.tree, name))
    }
}

/// Whether a `RewriteEngine` turns rewriting on.
pub(super) fn is_on(engine: Option<&Directive>) -> bool {
    engine.is_some_and(|one| one.first().eq_ignore_ascii_case("on"))
}

/// The last directive of a name.
pub(super) fn last<'a>(directives: &'a [Directive], name: &str) -> Option<&'a Directive> {
    directives.iter().rev().find(|one| one.is(name))
}

/// Whether a name is the only one of a list, or the first of its names.
fn only(names: &[String], name: &str) -> bool {
    names == [name.to_owned()]
}
