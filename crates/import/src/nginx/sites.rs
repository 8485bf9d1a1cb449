//! The servers of nginx: which of them become sites, and under which names.

use std::collections::BTreeSet;

use super::https_targets::TlsNames;
use super::location::Matcher;
use super::scope::Scope;
use super::server::{HttpContext, ServerImport};
use super::server_block::{
    MovedName, OtherName, ServerBlock, mark_defaults, move_other_names, redirect_of,
};
use crate::FileReader;
use crate::file_draft::{FileDraft, Placed, SiteDraft};
use crate::fpm::PoolPlan;
use crate::listen_addresses::{Listen, Reach, addresses, reach};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::toml_text;

/// Document roots of nginx's packages, for sites that have none.
const DEFAULT_ROOTS: [&str; 2] = ["/usr/share/nginx/html", "/usr/share/nginx"];

/// The paths of files by which a name is proven to a certificate authority (RFC 8555 §8.3).
const CHALLENGES: &str = "/.well-known/acme-challenge/";

/// The import of all servers.
pub(super) struct SitesImport<'w, 'a> {
    pub(super) files: &'w dyn FileReader,
    pub(super) report: &'w mut ImportReport,
    pub(super) pools: &'w mut PoolPlan,
    pub(super) http: &'w HttpContext,
    pub(super) scope: &'w Scope<'a>,
}

impl<'a> SitesImport<'_, 'a> {
    pub(super) fn import(&mut self, file: &mut FileDraft) {
        let directives: Vec<&'a Directive> = self.scope.own("server").collect();
        let mut servers: Vec<ServerBlock<'a>> =
            directives.into_iter().map(|one| self.block(one)).collect();
        let tls_names = TlsNames::of(&servers);
        servers.iter_mut().for_each(|one| self.whole(one, &tls_names));
        mark_defaults(&mut servers);
        move_other_names(&mut servers);
        servers.iter().for_each(|one| self.other_names(one, &servers));
        self.listen(&servers, file);
        self.tls(&servers, file);
        self.https_redirect(&servers, file);
        self.lost_conditions(&servers, file);
        // Names with TLS first: of two servers for a name, this one stays.
        let (tls, plain): (Vec<_>, Vec<_>) = servers.iter().partition(|one| one.has_tls());
        let mut taken = BTreeSet::new();
        for server in tls.into_iter().chain(plain) {
            self.site(server, &servers, &mut taken, file);
        }
        file.sites.sort_by_key(|site| {
            servers.iter().position(|one| one.directive.place.to_string() == site.from)
        });
    }

    /// Names that no site can have are those of the site for all others, if there is one.
    fn other_names(&mut self, server: &ServerBlock<'a>, all: &[ServerBlock<'a>]) {
        let is_for_all = |one: &ServerBlock<'_>| {
            one.is_default && !one.is_closed || one.names.iter().any(|name| name == "*")
        };
        let is_open = all.iter().any(is_for_all) && !is_for_all(server);
        for OtherName { text, from } in &server.other_names {
            let why = format!("`{text}` is neither a name nor `*.example.com`");
            if is_open {
                let why =
                    format!("{why}: the site with \"*\" serves these hosts, by its own rules");
                self.report.access_left_out(&from.place, &from.shown(), &why);
            } else {
                self.report.left_out(&from.place, &from.shown(), &why);
            }
        }
    }

    fn listen(&mut self, servers: &[ServerBlock<'a>], file: &mut FileDraft) {
        let Some(first) = servers.first() else { return };
        let all = || servers.iter().flat_map(|one| &one.listens);
        let plain = addresses(all().filter(|one| !one.is_tls));
        let tls = addresses(all().filter(|one| one.is_tls));
        let from = Placed::new(String::new(), &first.directive.place).from;
        let from = format!("{from} and others: every site is served at every address");
        if !plain.is_empty() || tls.is_empty() {
            let toml = toml_text::strings(&plain);
            file.server.set("listen", Placed { toml, from: from.clone() });
        }
        if !tls.is_empty() {
            file.tls.set("listen", Placed { toml: toml_text::strings(&tls), from });
        }
        if let Some(proxied) = servers.iter().find(|one| one.listens.iter().any(|l| l.is_proxied)) {
            let why = "set `proxy_protocol` and `trusted_proxies`, if all listeners have it";
            let place = &proxied.directive.place;
            self.report.access_left_out(place, "listen … proxy_protocol", why);
        }
    }

    fn tls(&mut self, servers: &[ServerBlock<'a>], file: &mut FileDraft) {
        for server in servers.iter().filter(|one| one.has_tls()) {
            let cert = server.scope.group(&["ssl_certificate"]);
            let key = server.scope.group(&["ssl_certificate_key"]);
            for (cert, key) in cert.iter().zip(&key) {
                let fields = [
                    ("cert", toml_text::string(&self.absolute(cert.first()))),
                    ("key", toml_text::string(&self.absolute(key.first()))),
                ];
                if cert.first().contains('$') {
                    let why = "its name is not fixed; list the files in `certificates`";
                    self.report.left_out(&cert.place, &cert.shown(), why);
                    continue;
                }
                let toml = toml_text::table(fields);
                file.tls.push("certificates", Placed::new(toml, &cert.place));
                self.report.kept(&cert.place, &cert.shown());
                self.report.kept(&key.place, &key.shown());
                if cert.first().starts_with("/etc/letsencrypt/") {
                    let why = "certbot's plugin for nginx renews it no longer: set `acme` in \
                               [tls], or let certbot use its webroot";
                    self.report.changed(&cert.place, &cert.shown(), why);
                }
            }
            if let Some(versions) = server.scope.get("ssl_protocols") {
                if versions.arguments == ["TLSv1.3"] {
                    let version = Placed::new("\"1.3\"".to_owned(), &versions.place);
                    file.tls.set("min_version", version);
                }
                self.report.kept(&versions.place, &versions.shown());
            }
        }
    }

    /// `redirect` in [tls], which is for all sites or for none.
    fn https_redirect(&mut self, servers: &[ServerBlock<'a>], file: &mut FileDraft) {
        let has_both = !file.tls.is_empty() && file.server.has("listen");
        let redirects = servers.iter().find_map(|one| Some((one, one.redirect_status()?)));
        let tls_alone: Vec<&ServerBlock<'a>> =
            servers.iter().filter(|one| has_both && is_over_tls_alone(one, servers)).collect();
        let alone = tls_alone.first().map(|one| (*one, 301));
        let Some((first, status)) = redirects.or(alone).filter(|_| !file.tls.is_empty()) else {
            return;
        };
        let is_open = servers.iter().any(ServerBlock::has_open_plain);
        let mut plain = servers.iter().filter(|one| one.serves_plain());
        let stays = |one: &&ServerBlock<'_>| {
            let is_redirect = one.has_tls() && one.redirect().is_some();
            (!is_open || !one.is_placeholder()) && !one.leads_to_canonical(servers) && !is_redirect
        };
        let Some(plain) = plain.find(stays) else {
            let status = if [301, 308].contains(&status) { status } else { 301 };
            let status = Placed::new(status.to_string(), &first.directive.place);
            file.tls.set("redirect", status);
            return self.redirected(servers, &tls_alone);
        };
        if redirects.is_some() {
            let why = format!(
                "plain HTTP is redirected for all sites or for none, and the server at {} is \
                 served over it: set `redirect` in [tls]",
                plain.directive.place
            );
            let what = "return 301 https://…";
            match servers.iter().find(|one| leads_to_site(one, servers)) {
                Some(one) => self.report.access_left_out(&one.directive.place, what, &why),
                None => self.report.left_out(&first.directive.place, what, &why),
            }
        }
        for one in tls_alone.iter().filter(|_| is_open) {
            let why = "it was served over TLS alone, and plain HTTP serves it here: set \
                       `redirect` in [tls]";
            self.report.access_left_out(&one.directive.place, "listen", why);
        }
    }

    /// Says which servers serve over plain HTTP what their `if` led to HTTPS. A `return` of the
    /// server is in the file.
    fn lost_conditions(&mut self, servers: &[ServerBlock<'a>], file: &FileDraft) {
        let is_written = |one: &&ServerBlock<'_>| one.to_https.is_none() || one.scope.has("return");
        let is_redirected = file.tls.has("redirect");
        for one in servers.iter().filter(|one| !is_redirected && !is_written(one)) {
            let why = "it redirects plain HTTP to HTTPS, and all of the site is served over plain \
                       HTTP here: set `redirect` in [tls]";
            for condition in &one.conditions {
                self.report.access_left_out(&condition.place, &condition.shown(), why);
            }
        }
    }

    /// Says what the redirect of all plain HTTP changes for servers that have none.
    fn redirected(&mut self, servers: &[ServerBlock<'a>], tls_alone: &[&ServerBlock<'a>]) {
        for one in tls_alone {
            let why = "plain HTTP is redirected to it, which had nothing to serve";
            self.report.changed(&one.directive.place, "listen", why);
        }
        for one in servers.iter().filter(|one| one.is_closed && one.has_plain()) {
            for back in one.scope.own("return") {
                let why = "plain HTTP is redirected to HTTPS, whatever the name";
                self.report.changed(&back.place, &back.shown(), why);
            }
        }
        for one in servers.iter().filter(|one| one.serves_plain()) {
            let why = "plain HTTP is redirected to HTTPS for all sites, also for this one";
            self.report.changed(&one.directive.place, "listen", why);
        }
        for one in servers.iter().filter(|one| one.to_one_name.is_some()) {
            let why = "plain HTTP is redirected to HTTPS of the requested name, also of one \
                       without a certificate";
            self.report.changed(&one.directive.place, "return", why);
        }
    }

    fn absolute(&self, path: &str) -> String {
        match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{}/{path}", self.http.folder),
        }
    }

    /// A folder for sites that serve no files. It is that of no other site.
    fn fallback_root(&self) -> String {
        let exists = DEFAULT_ROOTS.iter().find(|root| self.files.resolved(root).is_some());
        exists.map_or(DEFAULT_ROOTS[0], |root| root).to_owned()
    }

    fn site(
        &mut self,
        server: &ServerBlock<'a>,
        all: &[ServerBlock<'a>],
        taken: &mut BTreeSet<String>,
        file: &mut FileDraft,
    ) {
        let place = &server.directive.place;
        let has_tls = |name: &String| {
            let is_of_it =
                |one: &ServerBlock<'_>| one.covers(name) || one.is_default || one.is_nameless();
            all.iter().any(|one| one.has_tls() && is_of_it(one))
        };
        let is_redirected = !server.has_tls() && file.tls.has("redirect");
        let is_known =
            is_redirected && server.is_only_redirect() && server.names.iter().all(has_tls);
        let is_to_one = is_redirected && server.to_one_name.is_some();
        if is_known || is_to_one {
            self.challenges(server, all, file);
        }
        if is_known {
            self.report.drop_server(server.directive);
            return;
        }
        let mut hosts = server.names.clone();
        if server.is_default {
            hosts.push("*".to_owned());
        }
        if server.is_closed && server.is_default {
            let why = "a name that no site has gets a 404";
            self.report.changed(place, "server", why);
            hosts.retain(|host| host != "*");
            if hosts.is_empty() {
                self.report.drop_server(server.directive);
                return;
            }
        }
        for moved in &server.moved {
            hosts.retain(|host| *host != moved.host);
            let is_known = |one: &ServerBlock<'_>| one.has_tls() && one.moves(moved);
            let is_lost = moved.to.starts_with("https://") && !file.tls.has("redirect");
            if taken.contains(&moved.host) && is_lost && !all.iter().any(is_known) {
                let why = "another server has this name, and is served over plain HTTP: set \
                           `redirect` in [tls]";
                self.report.access_left_out(&moved.from.place, &moved.from.shown(), why);
            }
            if taken.insert(moved.host.clone()) {
                file.sites.push(moved_site(moved, place, &self.fallback_root()));
            }
        }
        let known: Vec<String> =
            hosts.iter().filter(|host| taken.contains(*host)).cloned().collect();
        hosts.retain(|host| taken.insert(host.clone()));
        if !known.is_empty() && !server.is_only_redirect() && known != ["*"] {
            let why =
                format!("another server has {} already, and is its site here", known.join(", "));
            self.report.access_left_out(place, "server", &why);
        }
        if hosts.is_empty() {
            if !is_to_one {
                self.second_default(server, all);
            }
            self.report.drop_server(server.directive);
            return;
        }
        let fallback = self.fallback_root();
        self.report.begin_server();
        self.report.imports(server.directive);
        server.conditions.iter().for_each(|one| self.report.cover(one));
        let mut import = ServerImport::new(
            self.files,
            self.report,
            self.pools,
            self.http,
            &server.scope,
            server.directive,
        );
        import.has_plain_http = server.has_plain() && !file.tls.has("redirect");
        let mut site = import.import(&hosts, &fallback);
        self.reach(server, all, &mut site);
        file.sites.push(site);
    }

    /// The files by which a name is proven to a certificate authority, over plain HTTP in nginx.
    /// The redirect comes first here, and leads such a client to the site.
    fn challenges(
        &mut self,
        server: &ServerBlock<'a>,
        all: &[ServerBlock<'a>],
        file: &mut FileDraft,
    ) {
        let is_one = |one: &&Directive| one.shown().contains(CHALLENGES.trim_end_matches('/'));
        for location in server.scope.own("location").filter(is_one) {
            let Directive { place, .. } = location;
            let Some(folder) = challenge_folder(&server.scope.inside(location), location) else {
                let why =
                    "plain HTTP is redirected, and renewals find no file: set `acme` in [tls]";
                self.report.left_out(place, &location.shown(), why);
                continue;
            };
            let is_of_it = |one: &ServerBlock<'_>| {
                let has_name = server.names.iter().any(|name| one.covers(name));
                one.has_tls() && (has_name || server.names.is_empty())
            };
            let has_site = all.iter().any(is_of_it);
            let is_of_it = |one: &ServerBlock<'_>| {
                is_of_it(one) || !has_site && one.has_tls() && one.is_default
            };
            let places: Vec<String> = all
                .iter()
                .filter(|one| is_of_it(one))
                .map(|one| one.directive.place.to_string())
                .collect();
            for site in file.sites.iter_mut().filter(|site| places.contains(&site.from)) {
                let settings = &mut site.settings;
                let alias = toml_text::string(&folder);
                let known = settings.value_in("aliases", CHALLENGES);
                if known.is_some_and(|known| known != alias) {
                    let why = "the site has the folder of another server for challenges: set \
                               `acme` in [tls]";
                    self.report.left_out(place, &location.shown(), why);
                    continue;
                }
                settings.entry("aliases", CHALLENGES, Placed::new(alias, place));
                let why = "no PHP in this location";
                let scripts = toml_text::string(&format!("{CHALLENGES}*"));
                settings.push("deny_php", Placed::because(scripts, place, why));
            }
            let why = "plain HTTP is redirected, also for renewals of certificates, which find the \
                       file over HTTPS: try one, or set `acme` in [tls]";
            self.report.changed(place, &location.shown(), why);
        }
    }

    /// Names a server without a name that nginx has for unknown names at addresses of its own.
    fn second_default(&mut self, server: &ServerBlock<'a>, all: &[ServerBlock<'a>]) {
        let is_nameless = server.names.is_empty() && server.other_names.is_empty();
        let is_empty = server.is_closed || server.is_only_redirect();
        if !is_nameless || is_empty || !is_default_of_address(server, all) {
            return;
        }
        let why = "it has no name, and another server is the site for unknown names at all \
                   addresses: give it a `server_name`, or serve it with a second maitred";
        let place = &server.directive.place;
        let is_refused =
            server.is_placeholder() && all.iter().any(|one| one.is_default && one.is_closed);
        match is_refused || redirect_of(&server.directive.block).is_some() {
            true => self.report.left_out(place, "server", why),
            false => self.report.access_left_out(place, "server", why),
        }
    }

    /// Who reaches the site: every site is served at every address.
    fn reach(&mut self, server: &ServerBlock<'a>, all: &[ServerBlock<'a>], site: &mut SiteDraft) {
        let place = &server.directive.place;
        let others: Vec<&[Listen]> = all.iter().map(|one| one.listens.as_slice()).collect();
        match reach(&server.listens, &others) {
            Reach::All => {}
            Reach::ThisMachine => {
                let local = toml_text::strings(["127.0.0.0/8", "::1"]);
                let why = "only this machine reached it";
                site.settings.set("allow", Placed::because(local, place, why));
                self.report.changed(place, "listen", "the site allows this machine alone");
            }
            Reach::Some(why) => self.report.access_left_out(place, "listen", &why),
        }
    }
}

/// A site for a name that is redirected.
fn moved_site(
    moved: &MovedName<'_>,
    place: &crate::report::SourceLine,
    fallback: &str,
) -> SiteDraft {
    let mut site = SiteDraft { from: place.to_string(), ..SiteDraft::default() };
    let at = &moved.from.place;
    site.settings.set("hosts", Placed::new(toml_text::strings([&moved.host]), at));
    site.settings.set("root", Placed::because(toml_text::string(fallback), at, "not used"));
    let fields = [
        ("from", toml_text::string("/*")),
        ("to", toml_text::string(&moved.to)),
        ("status", moved.status.clone()),
    ];
    site.settings.push("redirects", Placed::new(toml_text::table(fields), at));
    site
}

/// The folder of a location for the files of challenges.
fn challenge_folder(scope: &Scope<'_>, location: &Directive) -> Option<String> {
    if ["return", "proxy_pass", "fastcgi_pass", "rewrite"].iter().any(|name| scope.has(name)) {
        return None;
    }
    let fixed = |one: &&Directive| !one.first().contains('$') && one.first().starts_with('/');
    if let Some(alias) = scope.own("alias").next() {
        let path = Matcher::of(location).literal()?;
        let is_all =
            !path.is_exact && path.text.trim_end_matches('/') == CHALLENGES.trim_end_matches('/');
        let folder = Some(alias).filter(|_| is_all).filter(fixed)?;
        return Some(folder.first().trim_end_matches('/').to_owned());
    }
    let root = scope.get("root").filter(fixed)?.first().trim_end_matches('/');
    Some(format!("{root}{}", CHALLENGES.trim_end_matches('/')))
}

/// Whether a server redirects plain HTTP of a site that is served over TLS.
fn leads_to_site(server: &ServerBlock<'_>, all: &[ServerBlock<'_>]) -> bool {
    let has_site = |tls: &ServerBlock<'_>| {
        tls.has_tls()
            && !tls.is_closed
            && (server.names.is_empty()
                || tls.is_nameless()
                || server.names.iter().any(|name| tls.covers(name))
                || tls.names.iter().any(|name| server.covers(name)))
    };
    server.redirect_status().is_some() && (server.has_tls() || all.iter().any(has_site))
}

/// Whether a server has names that no plain HTTP leads to.
fn is_over_tls_alone(server: &ServerBlock<'_>, all: &[ServerBlock<'_>]) -> bool {
    let is_other = !server.has_tls() || server.has_plain() || server.is_closed;
    if is_other || redirect_of(&server.directive.block).is_some() {
        return false;
    }
    let plain = || all.iter().filter(|one| one.has_open_plain() && !one.is_closed);
    let leads = |one: &ServerBlock<'_>, name: &String| {
        let is_redirect = one.redirect_status().is_some();
        one.names.contains(name) || is_redirect && (one.names.is_empty() || one.covers(name))
    };
    match server.names.is_empty() {
        true => !plain().any(|one| one.names.is_empty()),
        false => server.names.iter().any(|name| !plain().any(|one| leads(one, name))),
    }
}

/// Whether a server is nginx's default at one of its addresses: that with `default_server`, or the
/// first one.
fn is_default_of_address(server: &ServerBlock<'_>, all: &[ServerBlock<'_>]) -> bool {
    server.listens.iter().any(|own| {
        let same = all.iter().filter_map(|one| {
            let listen = one.listens.iter().find(|other| other.key() == own.key())?;
            Some((one, listen.is_default))
        });
        let same: Vec<(&ServerBlock<'_>, bool)> = same.collect();
        let set = same.iter().find(|(_, is_default)| *is_default).or(same.first());
        set.is_some_and(|(one, _)| std::ptr::eq(*one, server))
    })
}
