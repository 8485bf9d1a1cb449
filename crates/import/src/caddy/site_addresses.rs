//! The addresses of Caddy's sites: names, ports, certificates.

use std::collections::BTreeSet;

use super::CaddyImport;
use super::config_tree::SiteBlock;
use super::global_options::{AutoHttps, acme};
use super::laxer_blocks::ImportedBlock;
use super::matchers::{Matchers, definitions};
use super::site_walk::{BlockContext, SiteWalk};
use super::targets::is_to_tls;
use super::text_at;
use crate::file_draft::{FileDraft, Placed, SiteDraft};
use crate::listen_addresses::{Listen, Reach, addresses, reach};
use crate::source_directive::Directive;
use crate::toml_text;

/// Endings of names that no public authority certifies.
const LOCAL_ENDINGS: [&str; 6] =
    ["localhost", ".localhost", ".local", ".internal", ".home.arpa", ".test"];

/// Directives by which a site is no welcome page.
const LEADING: [&str; 6] = ["invoke", "php", "php_fastcgi", "php_server", "redir", "reverse_proxy"];

/// A name that no configuration has.
const UNKNOWN: &str = "zz9";

/// Deepest block that is searched for names and directives.
const MAX_DEPTH: usize = 20;

/// A site, with its names and addresses.
struct AddressedSite<'c> {
    block: &'c SiteBlock,
    names: Vec<String>,
    listens: Vec<Listen>,
    /// All of it is a redirect to HTTPS.
    is_redirect: bool,
}

impl AddressedSite<'_> {
    fn has_tls(&self) -> bool {
        self.listens.iter().any(|one| one.is_tls)
    }

    /// Whether it has an address for plain HTTP.
    fn has_plain(&self) -> bool {
        self.listens.iter().any(|one| !one.is_tls)
    }

    /// Whether it responds to plain HTTP with redirects to HTTPS alone.
    fn redirects_plain(&self) -> bool {
        let named = definitions(&self.block.directives).map(|one| (one.name.clone(), one));
        let matchers = Matchers { named: named.collect(), hosts: self.names.clone() };
        let mut own = own(self.block, "redir").map(|line| matchers.of(line));
        let is_of_all = own.any(|(condition, arguments)| {
            condition.is_by_scheme() && is_to_tls(&condition, arguments)
        });
        self.is_redirect || self.has_plain() && is_of_all
    }

    /// It has plain HTTP alone, for names that no site has, and runs and passes on nothing: a
    /// welcome page.
    fn is_placeholder(&self) -> bool {
        !self.has_tls() && self.names == ["*"] && !leads(&self.block.directives, 0)
    }
}

/// Adds all sites.
pub(super) fn sites(shared: &mut CaddyImport<'_>, file: &mut FileDraft) {
    let config = shared.config;
    let blocks: Vec<AddressedSite<'_>> =
        config.sites.iter().map(|block| addressed(shared, block)).collect();
    let served: Vec<&AddressedSite<'_>> = blocks.iter().filter(|one| !one.is_redirect).collect();
    listen(shared, &blocks, file);
    let all: Vec<&[Listen]> = served.iter().map(|one| one.listens.as_slice()).collect();
    // Names with TLS first: of two sites for a name, this one stays.
    let mut ordered = served.clone();
    ordered.sort_by_key(|one| !one.has_tls());
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for one in ordered {
        let (names, twice): (Vec<String>, Vec<String>) =
            one.names.iter().cloned().partition(|name| taken.insert(name.clone()));
        if !twice.is_empty() {
            let why = format!(
                "another site has the names {} at another address, and every site is served at \
                 every address",
                twice.join(", ")
            );
            shared.report.access_left_out(&one.block.place, &one.block.addresses.join(", "), &why);
        }
        if names.is_empty() {
            continue;
        }
        for group in groups_of_hosts(&one.block.directives, &names) {
            let mut site = site(shared, one.block, &group);
            reached(shared, one, &all, &mut site);
            file.sites.push(site);
            let host = group.first().map(|one| one.replace('*', UNKNOWN)).unwrap_or_default();
            let runners = std::mem::take(&mut shared.runners);
            shared.blocks.push(ImportedBlock { host, block: one.block.clone(), runners });
        }
    }
}

/// The addresses of a block.
fn addressed<'c>(shared: &mut CaddyImport<'_>, block: &'c SiteBlock) -> AddressedSite<'c> {
    shared.report.begin_server();
    let (mut names, mut listens): (Vec<String>, Vec<Listen>) = (Vec::new(), Vec::new());
    let binds: Vec<String> = own(block, "bind").flat_map(|one| one.arguments.clone()).collect();
    let binds = if binds.is_empty() { shared.options.default_bind.clone() } else { binds };
    for address in &block.addresses {
        let (scheme, rest) = match address.split_once("://") {
            Some((scheme, rest)) => (Some(scheme), rest),
            None => (None, address.as_str()),
        };
        let (rest, path) = rest.split_once('/').unwrap_or((rest, ""));
        if !path.is_empty() {
            let why = "a path in an address has no counterpart: write `handle`";
            shared.report.access_left_out(&block.place, address, why);
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if port.parse::<u16>().is_ok() => (host, port.parse::<u16>().ok()),
            _ => (rest, None),
        };
        let is_tls = has_tls(shared, block, scheme, host, port);
        let default = match is_tls {
            true => shared.options.https_port,
            false => shared.options.http_port,
        };
        let name = match host {
            "" | "0.0.0.0" | "*" => "*".to_owned(),
            host => host.trim_matches(['[', ']']).to_ascii_lowercase(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
        let hosts = if binds.is_empty() { vec!["[::]".to_owned()] } else { binds.clone() };
        for host in hosts {
            let host = if host == "0.0.0.0" { "*".to_owned() } else { host };
            listens.push(Listen {
                host,
                port: port.unwrap_or(default),
                is_tls,
                is_default: false,
                is_proxied: false,
            });
        }
    }
    own(block, "bind").for_each(|one| shared.report.kept(&one.place, &one.shown()));
    let is_redirect = is_redirect(block) && listens.iter().all(|one| !one.is_tls);
    shared.report.kept(&block.place, &block.addresses.join(", "));
    AddressedSite { block, names, listens, is_redirect }
}

fn own<'c>(block: &'c SiteBlock, name: &'c str) -> impl Iterator<Item = &'c Directive> {
    block.directives.iter().filter(move |one| one.name == name)
}

/// Whether an address is for TLS.
fn has_tls(
    shared: &CaddyImport<'_>,
    block: &SiteBlock,
    scheme: Option<&str>,
    host: &str,
    port: Option<u16>,
) -> bool {
    // Whatever it says, it turns TLS on.
    let has_directive = own(block, "tls").next().is_some();
    match (scheme, port) {
        (Some("https"), _) => true,
        (Some(_), _) => false,
        (None, Some(port)) if port == shared.options.http_port => false,
        (None, Some(port)) if port == shared.options.https_port => true,
        (None, _) if has_directive => true,
        (None, _) => !host.is_empty() && shared.options.auto_https != AutoHttps::Off,
    }
}

/// Whether directives, or those in their blocks, pass requests to another program, or lead them
/// elsewhere.
fn leads(directives: &[Directive], depth: usize) -> bool {
    let is_one = |one: &Directive| LEADING.contains(&one.name.as_str());
    depth > MAX_DEPTH || directives.iter().any(|one| is_one(one) || leads(&one.block, depth + 1))
}

/// A site that redirects all requests to HTTPS of the same name.
fn is_redirect(block: &SiteBlock) -> bool {
    let others = block.directives.iter().filter(|one| one.name != "log");
    let all: Vec<&Directive> = others.collect();
    let [only] = all.as_slice() else { return false };
    let to = only.arguments.iter().find(|one| one.starts_with("https://"));
    let plain = |address: &String| address.trim_start_matches("http://").to_ascii_lowercase();
    let own = |host: &str| host == "{host}" || block.addresses.iter().all(|one| plain(one) == host);
    only.name == "redir"
        && to.and_then(|to| to.strip_prefix("https://")?.strip_suffix("{uri}")).is_some_and(own)
}

/// `listen`, certificates and redirects.
fn listen(shared: &mut CaddyImport<'_>, sites: &[AddressedSite<'_>], file: &mut FileDraft) {
    let Some(first) = sites.first() else { return };
    let place = first.block.place.clone();
    let from = format!("{place} and others: every site is served at every address");
    for site in sites {
        match site.has_tls() {
            true => certificates(shared, site, file),
            false => own(site.block, "tls").for_each(|line| without_tls(shared, line)),
        }
    }
    let has_tls = !file.tls.list("certificates").is_empty() || file.tls.has("acme");
    let all = || sites.iter().flat_map(|one| one.listens.iter().cloned());
    let mut plain: Vec<Listen> = all().filter(|one| !one.is_tls).collect();
    let tls: Vec<Listen> = all().filter(|one| one.is_tls).collect();
    // Caddy adds redirects for names without an address for plain HTTP.
    let is_added = |one: &AddressedSite<'_>| {
        let is_https = |listen: &Listen| listen.is_tls && listen.port == shared.options.https_port;
        !one.has_plain() && one.listens.iter().any(is_https)
    };
    let redirects = shared.options.auto_https == AutoHttps::On && sites.iter().any(is_added);
    let of_tls =
        |port: u16| tls.iter().map(move |one| Listen { port, is_tls: false, ..one.clone() });
    if !has_tls || redirects {
        plain.extend(of_tls(shared.options.http_port));
    }
    if has_tls {
        let toml = toml_text::strings(addresses(tls.iter()));
        file.tls.set("listen", Placed { toml, from: from.clone() });
        let serves_plain = |one: &&AddressedSite<'_>| one.has_plain() && !one.redirects_plain();
        let served = sites.iter().filter(serves_plain).find(|one| !one.is_placeholder());
        match (redirects || sites.iter().any(AddressedSite::redirects_plain), served) {
            (true, None) => {
                let status = Placed::new("308".to_owned(), &place);
                file.tls.set("redirect", status);
                for one in sites.iter().filter(serves_plain) {
                    let why = "plain HTTP is redirected to HTTPS for all sites, also for this one";
                    let addresses = one.block.addresses.join(", ");
                    shared.report.changed(&one.block.place, &addresses, why);
                }
            }
            (true, Some(served)) => {
                let why = format!(
                    "plain HTTP is redirected for all sites or for none, and the site at {} is \
                     served over it: set `redirect` in [tls]",
                    served.block.place
                );
                shared.report.access_left_out(&place, "redirects to HTTPS", &why);
            }
            (false, _) => {}
        }
    }
    let plain = addresses(plain.iter());
    shared.serves_plain = !plain.is_empty() && !file.tls.has("redirect");
    if !plain.is_empty() {
        file.server.set("listen", Placed { toml: toml_text::strings(plain), from });
    }
}

/// A `tls` of a site whose addresses are all for plain HTTP.
fn without_tls(shared: &mut CaddyImport<'_>, line: &Directive) {
    let why = "the addresses of its site are for plain HTTP: give them `https://`, or remove it";
    shared.report.access_left_out(&line.place, &line.shown(), why);
    shared.report.cover(line);
}

/// The certificates of a site: files, or an authority's.
fn certificates(shared: &mut CaddyImport<'_>, site: &AddressedSite<'_>, file: &mut FileDraft) {
    let place = &site.block.place;
    let is_local = |name: &String| {
        LOCAL_ENDINGS.iter().any(|end| name.ends_with(end))
            || name.parse::<std::net::IpAddr>().is_ok()
            || name == "*"
    };
    let mut is_internal = site.names.iter().all(is_local);
    let mut has_files = false;
    let mut email = None;
    for line in own(site.block, "tls") {
        match line.arguments.as_slice() {
            [cert, key] => {
                let (cert, key) = (shared.absolute(cert, line), shared.absolute(key, line));
                let fields = [("cert", toml_text::string(&cert)), ("key", toml_text::string(&key))];
                let toml = toml_text::table(fields);
                file.tls.push("certificates", Placed::new(toml, &line.place));
                shared.report.kept(&line.place, &line.shown());
                has_files = true;
            }
            [only] if only == "internal" => is_internal = true,
            [only] if only.contains('@') => {
                email = Some(only.clone());
                shared.report.kept(&line.place, &line.shown());
            }
            _ => shared.report.kept(&line.place, &line.shown()),
        }
        tls_options(shared, line, file);
    }
    if has_files {
        return;
    }
    if is_internal {
        let why = "Caddy's own authority certifies it: list a certificate in `certificates` of \
                   [tls], or it is served over plain HTTP alone";
        let name = site.block.addresses.join(", ");
        return match site.names.iter().all(|name| name.contains("localhost")) {
            true => shared.report.changed(place, &name, why),
            false => shared.report.access_left_out(place, &name, why),
        };
    }
    if site.names.iter().any(|name| name.starts_with("*.")) {
        let why = "a certificate for all names below a domain needs DNS: list one in \
                   `certificates` of [tls]";
        shared.report.left_out(place, &site.block.addresses.join(", "), why);
    }
    file.tls.set("acme", acme(&shared.options, email.as_deref(), place));
}

/// The block of `tls`.
fn tls_options(shared: &mut CaddyImport<'_>, line: &Directive, file: &mut FileDraft) {
    for one in &line.block {
        match one.name.as_str() {
            "protocols" => {
                if one.first() == "tls1.3" {
                    file.tls.set("min_version", text_at("1.3", &one.place));
                }
                shared.report.kept(&one.place, &one.shown());
            }
            "ciphers" | "curves" | "alpn" | "key_type" | "reuse_private_keys" => {
                shared.report.kept(&one.place, &one.shown());
            }
            "client_auth" => {
                let why = "client certificates are those of all sites: set `client_certificates` \
                           and `client_ca` in [tls]";
                shared.report.access_left_out(&one.place, &one.shown(), why);
            }
            _ => shared.report.left_out(&one.place, &one.shown(), "set `acme` in [tls]"),
        }
    }
}

/// Names that a matcher `host` tells apart become sites of their own.
fn groups_of_hosts(directives: &[Directive], names: &[String]) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    collect_hosts(directives, 0, &mut found);
    let is_below = |host: &String| {
        names.iter().any(|name| {
            name == host
                || name == "*"
                || name.strip_prefix('*').is_some_and(|end| end.len() > 1 && host.ends_with(end))
        })
    };
    let mut groups: Vec<Vec<String>> = Vec::new();
    let hosts = found.concat().into_iter().map(|host| host.to_ascii_lowercase());
    for host in hosts.filter(is_below) {
        if groups.iter().all(|group| !group.contains(&host)) {
            groups.push(vec![host]);
        }
    }
    let rest: Vec<String> = names
        .iter()
        .filter(|name| groups.iter().all(|group| !group.contains(name)))
        .cloned()
        .collect();
    if !rest.is_empty() {
        groups.push(rest);
    }
    groups
}

fn collect_hosts(directives: &[Directive], depth: usize, found: &mut Vec<Vec<String>>) {
    if depth > MAX_DEPTH {
        return;
    }
    for one in directives {
        if one.name == "host" {
            found.push(one.arguments.clone());
        }
        let inline = one.arguments.iter().position(|word| word == "host");
        if let (true, Some(at)) = (one.name.starts_with('@') || one.name == "not", inline) {
            found.push(one.arguments[at + 1..].to_vec());
        }
        collect_hosts(&one.block, depth + 1, found);
    }
}

fn site(shared: &mut CaddyImport<'_>, block: &SiteBlock, names: &[String]) -> SiteDraft {
    shared.report.begin_server();
    let place = block.place.clone();
    let mut draft = SiteDraft { from: place.to_string(), ..SiteDraft::default() };
    draft.settings.set("hosts", Placed::new(toml_text::strings(names), &place));
    let matchers = Matchers { hosts: names.to_vec(), ..Matchers::default() };
    let mut walk = SiteWalk {
        shared,
        site: draft,
        matchers,
        place,
        served: Vec::new(),
        pool_areas: Vec::new(),
        front: None,
        root: None,
        elsewhere: Vec::new(),
        closed: Vec::new(),
        auths: Vec::new(),
    };
    let ended = walk.block(&block.directives, &BlockContext::default(), false);
    walk.log(block);
    walk.finished(ended)
}

impl SiteWalk<'_, '_, '_> {
    /// `log`.
    fn log(&mut self, block: &SiteBlock) {
        let mut has_log = false;
        for line in own(block, "log") {
            let output = line.block.iter().find(|one| one.name == "output");
            let target = match output.map_or(("stderr", ""), |one| (one.first(), one.argument(1))) {
                ("file", path) => LogOutput::Own(path),
                ("discard", _) => LogOutput::Own("off"),
                ("stderr" | "stdout", _) => LogOutput::OfServer,
                _ => LogOutput::Unknown,
            };
            match (has_log, target) {
                (true, _) => self.left_out(line, "a site has one access log"),
                (false, LogOutput::Own(path)) => {
                    self.site.settings.set("access_log", text_at(path, &line.place));
                    self.kept(line);
                }
                (false, LogOutput::OfServer) => {
                    self.shared.access_log.get_or_insert_with(|| line.place.clone());
                    let why = "the site has the log of the server, which goes to stderr";
                    self.shared.report.changed(&line.place, &line.shown(), why);
                }
                (false, LogOutput::Unknown) => {
                    let off = "\"off\"".to_owned();
                    let off = Placed::because(off, &line.place, "no file");
                    self.site.settings.set("access_log", off);
                    self.left_out(line, "set `access_log`; it takes a file");
                }
            }
            has_log = true;
            for one in &line.block {
                match one.name.as_str() {
                    "output" if one.block.is_empty() => self.kept(one),
                    "output" => self.left_out(one, "logrotate rotates the log: see Logs"),
                    "format" => self.left_out(one, "set `access_log_format`"),
                    _ => self.left_out(one, "it has no counterpart"),
                }
            }
        }
        if !has_log {
            let off = Placed::because("\"off\"".to_owned(), &self.place, "no `log`");
            self.site.settings.set("access_log", off);
        }
    }
}

/// Where the log of a site goes.
enum LogOutput<'l> {
    /// A value of the site's `access_log`.
    Own(&'l str),
    /// The standard error output, which only the server's `access_log` can be.
    OfServer,
    /// What maitred does not have.
    Unknown,
}

/// Who reaches a site.
fn reached(
    shared: &mut CaddyImport<'_>,
    one: &AddressedSite<'_>,
    all: &[&[Listen]],
    site: &mut SiteDraft,
) {
    let place = &one.block.place;
    match reach(&one.listens, all) {
        Reach::All => {}
        Reach::ThisMachine => {
            let toml = toml_text::strings(["127.0.0.0/8", "::1"]);
            let why = "its addresses are those of this machine";
            site.settings.set("allow", Placed::because(toml, place, why));
        }
        Reach::Some(why) => {
            shared.report.access_left_out(place, &one.block.addresses.join(", "), &why);
        }
    }
}
