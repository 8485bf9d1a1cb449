//! A server of nginx as a whole: its addresses and names, and whether it redirects or refuses.

use super::https_targets::{TlsNames, covers, https_host, is_same_over_https};
use super::listeners;
use super::redirect_target::{TargetKind, target};
use super::scope::Scope;
use super::sites::SitesImport;
use crate::listen_addresses::Listen;
use crate::source_directive::Directive;

/// A server, and what it is as a whole.
pub(super) struct ServerBlock<'a> {
    pub(super) directive: &'a Directive,
    pub(super) scope: Scope<'a>,
    pub(super) listens: Vec<Listen>,
    pub(super) names: Vec<String>,
    /// Those that are expressions, or end in `*`, with their directives.
    pub(super) other_names: Vec<OtherName<'a>>,
    pub(super) is_default: bool,
    /// Plain HTTP is redirected to HTTPS of the same name, with this status.
    pub(super) to_https: Option<u16>,
    /// Plain HTTP of all unknown names is redirected to HTTPS of one name, with this status.
    pub(super) to_one_name: Option<u16>,
    /// It refuses every request.
    pub(super) is_closed: bool,
    /// Names that are redirected elsewhere: the name, the target, the status, the directive.
    pub(super) moved: Vec<MovedName<'a>>,
    /// The only name that is not redirected.
    pub(super) canonical: Option<CanonicalName<'a>>,
    /// The `if` blocks that these come from.
    pub(super) conditions: Vec<&'a Directive>,
}

/// A name of a server that no site can have.
pub(super) struct OtherName<'a> {
    pub(super) text: String,
    pub(super) from: &'a Directive,
}

/// The name to which a server redirects all others.
pub(super) struct CanonicalName<'a> {
    name: String,
    others: MovedName<'a>,
}

/// A name of a server that is redirected.
#[derive(Clone)]
pub(super) struct MovedName<'a> {
    pub(super) host: String,
    pub(super) to: String,
    pub(super) status: String,
    pub(super) from: &'a Directive,
}

impl ServerBlock<'_> {
    pub(super) fn has_tls(&self) -> bool {
        self.listens.iter().any(|one| one.is_tls)
    }

    pub(super) fn has_plain(&self) -> bool {
        self.listens.iter().any(|one| !one.is_tls)
    }

    /// Others than this machine reach it over plain HTTP.
    pub(super) fn has_open_plain(&self) -> bool {
        self.listens.iter().any(|one| !one.is_tls && !one.is_loopback())
    }

    /// Its plain HTTP is neither a redirect to HTTPS nor closed.
    pub(super) fn serves_plain(&self) -> bool {
        self.has_plain() && self.redirect_status().is_none() && !self.is_closed
    }

    /// It redirects a name as another server does.
    pub(super) fn moves(&self, other: &MovedName<'_>) -> bool {
        self.moved.iter().any(|one| one.host == other.host && one.to == other.to)
    }

    /// All of its plain HTTP is redirected to HTTPS of its canonical name, and that by another
    /// server.
    pub(super) fn leads_to_canonical(&self, all: &[ServerBlock<'_>]) -> bool {
        self.canonical.as_ref().is_some_and(|CanonicalName { name, others }| {
            let leads = |one: &ServerBlock<'_>| one.is_only_redirect() && one.names.contains(name);
            others.to.starts_with("https://") && all.iter().any(leads)
        })
    }

    /// It runs and passes on nothing, and is for names that no server has, or for this machine: a
    /// welcome page, or the state of the server.
    pub(super) fn is_placeholder(&self) -> bool {
        // The name of nginx's own package.
        let is_localhost = self.other_names.is_empty() && self.names == ["localhost"];
        let is_other = self.is_nameless() || is_localhost || !self.has_open_plain();
        !self.has_tls() && is_other && !leads(self.directive)
    }

    /// Plain HTTP is redirected to HTTPS, of whatever name, with this status.
    pub(super) fn redirect_status(&self) -> Option<u16> {
        self.to_https.or(self.to_one_name)
    }

    /// It has no name, not even an expression.
    pub(super) fn is_nameless(&self) -> bool {
        self.names.is_empty() && self.other_names.is_empty()
    }

    /// It does nothing but refuse requests, or handshakes.
    pub(super) fn refuses(&self) -> bool {
        let mut rejects = self.scope.own("ssl_reject_handshake");
        let is_status = |text: &str| text.parse().is_ok_and(|status: u16| status >= 400);
        rejects.any(|one| one.first() == "on")
            || self
                .scope
                .own("return")
                .next()
                .is_some_and(|one| one.arguments.len() == 1 && is_status(one.first()))
    }

    /// The target and the status, if it does nothing but redirect, and serve challenges of
    /// certificate authorities.
    pub(super) fn redirect(&self) -> Option<(String, String)> {
        let is_simple = self.scope.own("location").all(|one| {
            one.shown().contains("/.well-known/acme-challenge")
                || one.argument(0) == "/" && redirect_of(&one.block).is_some()
        });
        let of_location = || {
            let all = self.scope.own("location").find(|one| one.argument(0) == "/");
            all.and_then(|one| redirect_of(&one.block))
        };
        redirect_of(&self.directive.block).or_else(of_location).filter(|_| is_simple)
    }

    /// All of it is a redirect to HTTPS.
    pub(super) fn is_only_redirect(&self) -> bool {
        self.to_https.is_some() && !self.has_tls()
    }
}

impl<'a> ServerBlock<'a> {
    /// Each of its names has an `if` that leads it to HTTPS, or all other requests get its
    /// `return`, as certbot writes it.
    fn leads_all_to_https(&self) -> bool {
        let leads = |name: &String| {
            self.scope.own("if").any(|one| {
                let test = unquoted(one);
                let is_name = test.split_whitespace().last() == Some(name) && !test.contains('!');
                let to = redirect_of(&one.block).map(|(to, _)| to).unwrap_or_default();
                is_name && is_same_over_https(&to, &self.names)
            })
        };
        self.scope.has("return") || self.names.iter().all(leads)
    }

    /// The variable `$server_name`; empty if it is no name of a host.
    pub(super) fn server_name(&self) -> &'a str {
        let first = self.scope.own("server_name").next().map(Directive::first).unwrap_or_default();
        let first = first.strip_prefix('.').unwrap_or(first);
        if self.names.iter().any(|name| name == first && !name.contains('*')) { first } else { "" }
    }

    /// Whether an address is one of the server, which nginx then chooses by name.
    fn is_at(&self, address: &Listen) -> bool {
        self.listens.iter().any(|own| own.key() == address.key())
    }

    /// Whether a name is one of the server, or below a wildcard of it.
    pub(super) fn covers(&self, name: &str) -> bool {
        covers(&self.names, name)
    }
}

impl<'a> SitesImport<'_, 'a> {
    pub(super) fn block(&mut self, directive: &'a Directive) -> ServerBlock<'a> {
        let scope = self.scope.inside(directive);
        self.report.kept(&directive.place, &directive.shown());
        let (listens, others) = listeners::of(&scope);
        for listen in scope.own("listen") {
            match others.contains(&listen.shown()) {
                true => self.report.left_out(
                    &listen.place,
                    &listen.shown(),
                    "only TCP addresses serve sites; HTTP/3 is not served",
                ),
                false => self.report.kept(&listen.place, &listen.shown()),
            }
        }
        let (names, other_names) = self.names(&scope);
        ServerBlock {
            directive,
            listens,
            is_default: false,
            to_https: None,
            to_one_name: None,
            is_closed: false,
            moved: Vec::new(),
            canonical: None,
            conditions: Vec::new(),
            names,
            other_names,
            scope,
        }
    }

    fn names(&mut self, scope: &Scope<'a>) -> (Vec<String>, Vec<OtherName<'a>>) {
        let (mut names, mut others) = (Vec::new(), Vec::new());
        for directive in scope.own("server_name") {
            let before = others.len();
            for name in &directive.arguments {
                let name = name.to_ascii_lowercase();
                match name.as_str() {
                    "" | "_" => {}
                    "*" => names.push("*".to_owned()),
                    _ if name.starts_with('.') => {
                        names.extend([name[1..].to_owned(), format!("*{name}")]);
                    }
                    _ if name.starts_with('~') || name.ends_with('*') || name.contains('$') => {
                        others.push(OtherName { text: name, from: directive });
                    }
                    _ => names.push(name),
                }
            }
            if others.len() == before {
                self.report.kept(&directive.place, &directive.shown());
            }
        }
        (names, others)
    }

    /// What a server is as a whole: a redirect, or closed. `tls` has the names of all servers.
    pub(super) fn whole(&mut self, block: &mut ServerBlock<'a>, tls: &TlsNames) {
        let conditions: Vec<&'a Directive> = block.scope.own("if").collect();
        for condition in conditions {
            let test = unquoted(condition);
            let parts: Vec<&str> = test.split_whitespace().collect();
            let Some((to, status)) = redirect_of(&condition.block) else { continue };
            match parts.as_slice() {
                ["$scheme", "=", "http"]
                | ["$scheme", "~" | "~*", "^http$"]
                | ["$https", "=", ""]
                | ["$https", "=" | "!=", "on"]
                | ["$https"]
                | ["$server_port", "=", "80"]
                | ["$server_port", "!=", "443"]
                | ["$scheme", "!=", "https"]
                    if tls.has_target(&to, block) =>
                {
                    self.leads_to_https(block, condition, &to, &status);
                }
                ["$host" | "$http_host", "=", name]
                    if is_same_over_https(&to, &block.names)
                        && !block.has_tls()
                        && block.names.iter().any(|one| one == name)
                        && block.leads_all_to_https() =>
                {
                    block.to_https = status.parse().ok();
                }
                ["$host" | "$http_host", how @ ("=" | "!="), name] => {
                    let own = block.server_name();
                    let Ok(to) = target(&to, TargetKind::Return, own, false) else { continue };
                    let name = if *name == "$server_name" { own } else { name };
                    if name.is_empty() || name.contains('$') {
                        continue;
                    }
                    let (name, host) = (name.to_owned(), "*".to_owned());
                    let moved = MovedName { host, to, status, from: condition };
                    match *how {
                        "=" => block.moved.push(MovedName { host: name, ..moved }),
                        _ => block.canonical = Some(CanonicalName { name, others: moved }),
                    }
                }
                _ => continue,
            }
            self.report.kept(&condition.place, &condition.shown());
            block.conditions.push(condition);
            condition.block.iter().for_each(|one| self.report.cover(one));
        }
        self.whole_redirect(block, tls);
        block.is_closed = block.refuses() && !block.is_only_redirect();
    }

    /// A server for plain HTTP that does nothing but redirect to HTTPS.
    fn whole_redirect(&mut self, block: &mut ServerBlock<'a>, tls: &TlsNames) {
        let redirect = block.redirect().filter(|_| !block.has_tls());
        let Some((to, status)) = redirect else { return };
        if tls.has_target(&to, block) {
            self.leads_to_https(block, block.directive, &to, &status);
        } else if block.is_nameless() && https_host(&to).is_some_and(|host| tls.has(&host)) {
            block.to_one_name = status.parse().ok();
        }
    }

    /// A server redirects its plain HTTP to HTTPS.
    fn leads_to_https(
        &mut self,
        block: &mut ServerBlock<'a>,
        from: &Directive,
        to: &str,
        status: &str,
    ) {
        block.to_https = status.parse().ok();
        if !is_same_over_https(to, &block.names) {
            let why = "plain HTTP is redirected to HTTPS of the requested name";
            self.report.changed(&from.place, &from.shown(), why);
        }
    }
}

/// nginx's default server of each address; only one of all can be that here.
pub(super) fn mark_defaults(servers: &mut [ServerBlock<'_>]) {
    let named = servers.iter().position(|one| one.names.iter().any(|name| name == "*"));
    let serves_unknown =
        |one: &ServerBlock<'_>| one.has_tls() && one.is_nameless() && !one.is_closed;
    let has_unknown = servers.iter().any(serves_unknown);
    let is_site = |one: &ServerBlock<'_>| {
        !one.is_only_redirect() && (one.to_one_name.is_none() || !has_unknown)
    };
    let is_set = |one: &ServerBlock<'_>| one.listens.iter().any(|listen| listen.is_default);
    let set = servers.iter().position(|one| is_set(one) && is_site(one));
    let first = servers.iter().position(is_site);
    if named.is_none()
        && let Some(index) = set.or(first)
    {
        servers[index].is_default = true;
    }
}

/// Redirects the names of servers to the canonical ones. An unknown name is one of the default
/// server, and the canonical one may be such a name, or below a wildcard.
pub(super) fn move_other_names(servers: &mut [ServerBlock<'_>]) {
    for index in 0..servers.len() {
        let server = &servers[index];
        let Some(CanonicalName { name, others }) = &server.canonical else { continue };
        let is_closer = |one: &&ServerBlock<'_>| {
            one.names.contains(name) || !server.covers(name) && one.covers(name)
        };
        let is_closer = |one: &&ServerBlock<'_>| {
            is_closer(one) && !one.is_only_redirect() && !std::ptr::eq(*one, server)
        };
        let mut free = server
            .listens
            .iter()
            .filter(|own| !servers.iter().filter(is_closer).any(|one| one.is_at(own)));
        let is_of_other = free.next().is_none() && !server.listens.is_empty();
        let gets_unknown = server.is_default && !server.is_closed;
        let is_own = server.names.contains(name);
        let is_new = !is_own && !is_of_other && (gets_unknown || server.covers(name));
        let hosts = server.names.iter().filter(|one| *one != name).cloned();
        let hosts = hosts.chain(gets_unknown.then(|| "*".to_owned()));
        let moved: Vec<_> = hosts.map(|host| MovedName { host, ..others.clone() }).collect();
        let name = name.clone();
        servers[index].moved.extend(moved);
        if is_new {
            servers[index].names.push(name);
        }
    }
}

/// The test of an `if`.
fn unquoted(condition: &Directive) -> String {
    condition.arguments.join(" ").replace(['(', ')', '"', '\''], "")
}

/// Whether a block, or one in it, passes requests to another program, or leads them elsewhere.
fn leads(block: &Directive) -> bool {
    let is_elsewhere = |one: &Directive| one.name == "rewrite" || one.name.ends_with("_pass");
    redirect_of(&block.block).is_some()
        || block.block.iter().any(|one| is_elsewhere(one) || leads(one))
}

/// The target and the status, if a block does nothing but redirect.
pub(super) fn redirect_of(block: &[Directive]) -> Option<(String, String)> {
    let back = block.iter().find(|one| one.name == "return");
    if let Some(back) = back {
        return match back.argument(0) {
            status @ ("301" | "302" | "303" | "307" | "308") => {
                Some((back.argument(1).to_owned(), status.to_owned()))
            }
            url if url.starts_with("http") => Some((url.to_owned(), "302".to_owned())),
            _ => None,
        };
    }
    let rewrite = block.iter().find(|one| one.name == "rewrite")?;
    let status = match rewrite.argument(2) {
        "permanent" => "301",
        "redirect" => "302",
        _ => return None,
    };
    let to = rewrite.argument(1).replace("/$1", "$request_uri").replace("$1", "$request_uri");
    let is_all = ["^", "^(.*)$", "^(.*)", "^/(.*)$", "^/(.*)", ".*", "^.*$"];
    is_all
        .contains(&rewrite.first())
        .then(|| (to.trim_end_matches('?').to_owned(), status.to_owned()))
}
