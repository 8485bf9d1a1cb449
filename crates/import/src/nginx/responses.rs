//! Headers, lifetimes, error pages, compression, limits, upstream HTTP servers.

use std::time::Duration;

use super::location::{Location, Matcher};
use super::scope::Scope;
use super::server::ServerImport;
use crate::file_draft::Placed;
use crate::regex_shapes::shapes;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values;

/// The longest lifetime that maitred knows: 366 days.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

/// nginx's default of `client_max_body_size`.
const BODY: &str = "\"1M\"";

/// What stands for `client_max_body_size 0`.
const ANY_BODY: &str = "\"1024G\"";

/// Headers for upstream servers that maitred sends itself, or drops.
const USUAL: [&str; 7] = [
    "host",
    "upgrade",
    "connection",
    "accept-encoding",
    "proxy",
    "x-forwarded-for",
    "x-forwarded-proto",
];

/// Values of a header that are the host of the request.
const REQUESTED_HOST: [&str; 3] = ["$host", "$http_host", "$host:$server_port"];

/// Headers by which no application knows a user that the proxy has found.
const NO_TRUST: [&str; 13] = [
    "accept",
    "accept-language",
    "cache-control",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "origin",
    "pragma",
    "range",
    "referer",
    "user-agent",
    "x-nginx-proxy",
    "x-request-id",
];

impl<'a> ServerImport<'_, 'a> {
    /// Settings of responses that the whole server has.
    pub(super) fn server_responses(&mut self) {
        let scope = self.scope.clone();
        self.compression(&scope);
        self.error_pages(&scope);
        let hides = scope.own("fastcgi_hide_header");
        for hide in hides {
            let toml = toml_text::table([("unset", toml_text::strings([hide.first()]))]);
            self.push("headers", hide, toml);
        }
        for header in scope.group(&["add_header"]) {
            self.header(header, None, "add");
        }
        let body = scope.get("client_max_body_size");
        let (toml, place) = match body {
            Some(body) => (self.body_size(body), body.place.clone()),
            None => (BODY.to_owned(), self.place.clone()),
        };
        let why = if body.is_none() { "nginx's default" } else { "" };
        let value = match why {
            "" => Placed::new(toml, &place),
            why => Placed::because(toml, &place, why),
        };
        self.site.settings.set("max_body_size", value);
        self.limits(&scope, None);
    }

    fn body_size(&mut self, body: &Directive) -> String {
        self.keep(body);
        let size = values::size(body.first());
        size.unwrap_or_else(|| ANY_BODY.to_owned())
    }

    /// `default_type` of fixed paths without an ending, such as those of licences.
    fn default_types(&mut self, location: &Location<'a>) {
        for kind in location.scope.own("default_type") {
            let paths: Vec<String> = match &location.matcher {
                Matcher::Exact(text) => vec![text.clone()],
                Matcher::Regex(text) => {
                    let found = shapes(text).unwrap_or_default();
                    let fixed = found.iter().all(|one| one.path.is_exact);
                    let found = found.into_iter().filter(|_| fixed);
                    found.map(|one| one.path.text).collect()
                }
                _ => Vec::new(),
            };
            let has_ending = |path: &String| path.rsplit('/').next().unwrap_or(path).contains('.');
            if paths.is_empty() || paths.iter().any(has_ending) {
                let why = "the type of a file is that of its ending";
                self.report.changed(&kind.place, &kind.shown(), why);
                continue;
            }
            for path in paths {
                let set = toml_text::table([("Content-Type", toml_text::string(kind.first()))]);
                let fields = [("path", toml_text::string(&path)), ("set", set)];
                self.push("headers", kind, toml_text::table(fields));
            }
        }
    }

    /// Settings of responses that a location has for itself.
    pub(super) fn location_responses(&mut self, location: &Location<'a>) {
        let scope = location.scope.clone();
        let Ok(path) = location.pattern_without(&[]) else { return self.proxy(location) };
        let is_php = scope.own("fastcgi_pass").next().is_some();
        let is_all = path == "/*"
            || is_php
                && super::php_locations::matches_path(
                    location,
                    super::server::ANY_SCRIPT.as_bytes(),
                );
        let path = (!is_all).then_some(path);
        let of_server: Vec<String> =
            self.scope.group(&["add_header"]).iter().map(|one| one.shown()).collect();
        let front = self.site.settings.value("front_controller").unwrap_or("\"\"").to_owned();
        let is_shared = front != "\"\"" && !is_php;
        for header in scope.own("add_header") {
            let same_name = of_server.iter().any(|one| {
                one.split(' ').nth(1).is_some_and(|name| name.eq_ignore_ascii_case(header.first()))
            });
            match of_server.contains(&header.shown()) {
                true => self.keep(header),
                false => {
                    self.header(header, path.as_deref(), if same_name { "set" } else { "add" });
                    if is_shared && !header.argument(1).contains('$') {
                        let why =
                            "responses of the front controller to these paths have it as well";
                        self.report.changed(&header.place, &header.shown(), why);
                    }
                }
            }
        }
        if scope.own("add_header").next().is_some() && !of_server.is_empty() {
            let why = "the headers of the server are sent here as well: tables add up";
            self.report.changed(&location.directive.place, &location.directive.shown(), why);
        }
        for expires in scope.own("expires") {
            self.expires(expires, path.as_deref());
            if is_shared {
                let why = "responses of the front controller to these paths have it as well, \
                           unless they have a Cache-Control";
                self.report.changed(&expires.place, &expires.shown(), why);
            }
        }
        self.default_types(location);
        for body in scope.own("client_max_body_size") {
            let size = self.body_size(body);
            match &path {
                Some(path) => {
                    let fields = [("path", toml_text::string(path)), ("max_body_size", size)];
                    self.push("paths", body, toml_text::table(fields));
                }
                None => {
                    let why = "it is the limit of the whole site";
                    self.site.settings.replace("max_body_size", Placed::new(size, &body.place));
                    self.report.changed(&body.place, &body.shown(), why);
                }
            }
        }
        self.limits(&scope, path.as_deref());
        self.proxy(location);
    }

    /// `expires` of the server, after those of its locations.
    pub(super) fn server_expires(&mut self) {
        if let Some(expires) = self.scope.get("expires") {
            self.expires(expires, None);
        }
    }

    fn header(&mut self, header: &Directive, path: Option<&str>, how: &str) {
        let (name, value) = (header.argument(0), header.argument(1));
        if value.contains('$') {
            let why = "its value is not fixed";
            return self.report.left_out(&header.place, &header.shown(), why);
        }
        let is_always = header.argument(2) == "always";
        if value.is_empty() {
            return self.keep(header);
        }
        let table = toml_text::table([(name, toml_text::string(value))]);
        let path = path.map(|path| ("path", toml_text::string(path)));
        let fields = path.into_iter().chain([(how, table)]);
        self.push("headers", header, toml_text::table(fields));
        if !is_always {
            let why = "errors have the header, too (as with `always`)";
            self.report.changed(&header.place, &header.shown(), why);
        }
        if self.prevents_caching(name, value) {
            let why = "the page cache stores no response with it, unlike nginx's: see the guide's \
                       page on fastcgi_cache";
            self.report.changed(&header.place, &header.shown(), why);
        }
    }

    /// Whether the site has a page cache that stores no response with this header.
    fn prevents_caching(&self, name: &str, value: &str) -> bool {
        let Some(cache) = &self.site.cache else { return false };
        let ignored = cache.value("ignore_headers").unwrap_or_default();
        let value = value.to_ascii_lowercase();
        name.eq_ignore_ascii_case("set-cookie")
            || name.eq_ignore_ascii_case("cache-control")
                && !ignored.contains("\"Cache-Control\"")
                && ["private", "no-store", "no-cache"].iter().any(|one| value.contains(one))
    }

    fn expires(&mut self, expires: &Directive, path: Option<&str>) {
        let path = path.unwrap_or("/*");
        let time = match expires.first() {
            "off" => return self.keep(expires),
            "epoch" => Some(Duration::ZERO),
            "max" => Some(LONGEST),
            before if before.starts_with('-') => Some(Duration::ZERO),
            time => values::time(time.trim_start_matches('+')),
        };
        let Some(time) = time.filter(|_| expires.arguments.len() == 1) else {
            let why = "its value is not fixed; write `expires` of the site";
            return self.report.left_out(&expires.place, &expires.shown(), why);
        };
        let after = toml_text::string(&values::duration(time.min(LONGEST)));
        let toml = toml_text::table([("path", toml_text::string(path)), ("after", after)]);
        self.push("expires", expires, toml);
        if expires.first() == "max" || time > LONGEST {
            let why = "366 days are the longest lifetime here";
            self.report.changed(&expires.place, &expires.shown(), why);
        }
    }

    fn error_pages(&mut self, scope: &Scope<'a>) {
        for page in scope.group(&["error_page"]) {
            let (target, codes) = match page.arguments.split_last() {
                Some((target, codes)) => (target.as_str(), codes),
                None => continue,
            };
            let changes_status = codes.iter().any(|code| code.starts_with('='));
            if !target.starts_with('/') || target.contains(['$', '?']) || changes_status {
                let why = "an error page is a path of the site, and never changes the status";
                self.report.left_out(&page.place, &page.shown(), why);
                continue;
            }
            for code in codes.iter().filter(|code| code.parse::<u16>().is_ok_and(|n| n != 499)) {
                let page = Placed::new(toml_text::string(target), &page.place);
                self.site.settings.entry("error_pages", code, page);
            }
            self.keep(page);
        }
    }

    fn compression(&mut self, scope: &Scope<'a>) {
        match scope.get("gzip") {
            Some(gzip) if gzip.first() == "off" => {
                self.site.settings.set("compression", Placed::new("false".to_owned(), &gzip.place));
                return self.keep(gzip);
            }
            Some(gzip) => self.keep(gzip),
            None => {
                let place = self.place.clone();
                let why = "responses are compressed, unlike by nginx's default; `compression = \
                           false` turns it off";
                self.report.changed(&place, "server", why);
            }
        }
        if let Some(types) = scope.get("gzip_types") {
            let is_all = types.first() == "*";
            if !is_all {
                let all = types.arguments.iter().map(String::as_str).chain(["text/html"]);
                let toml = toml_text::strings(all);
                self.site.settings.set("compression_types", Placed::new(toml, &types.place));
            }
            self.keep(types);
        }
        if let Some(least) = scope.get("gzip_min_length") {
            let size = values::size(least.first()).unwrap_or("0".to_owned());
            self.site.settings.set("compression_min_length", Placed::new(size, &least.place));
            self.keep(least);
        }
    }

    /// `limit_req` and `limit_conn` of a location, or without a path those of the server, which may
    /// be those of `http`.
    fn limits(&mut self, scope: &Scope<'a>, path: Option<&str>) {
        let all = |name: &str| match path {
            Some(_) => scope.own(name).collect(),
            None => scope.group(&[name]),
        };
        for limit in all("limit_req") {
            let zone = limit.arguments.iter().find_map(|one| one.strip_prefix("zone="));
            let Some(rate) = zone.and_then(|zone| self.rates.get(zone)).cloned() else {
                let why = "its zone does not count clients by address; write `rate_limit`";
                self.report.left_out(&limit.place, &limit.shown(), why);
                continue;
            };
            let burst = limit.arguments.iter().find_map(|one| one.strip_prefix("burst="));
            let path = path.map(|path| ("path", toml_text::string(path)));
            let mut fields: Vec<_> = path.into_iter().collect();
            fields.push(("rate", toml_text::string(&rate)));
            if let Some(burst) = burst.filter(|burst| burst.parse::<u32>().is_ok()) {
                fields.push(("burst", burst.to_owned()));
            }
            self.push("rate_limit", limit, toml_text::table(fields));
            let why = "further requests get a 429 at once, where nginx delays them or sends a 503";
            self.report.changed(&limit.place, &limit.shown(), why);
        }
        for limit in all("limit_conn") {
            let is_address = self.by_address.contains(limit.first());
            if !is_address || path.is_some() {
                let why = "only a number of requests for each client and site can be limited \
                           (`connection_limit`)";
                self.report.left_out(&limit.place, &limit.shown(), why);
                continue;
            }
            let number = Placed::new(limit.argument(1).to_owned(), &limit.place);
            self.site.settings.set("connection_limit", number);
            self.keep(limit);
        }
    }

    fn proxy(&mut self, location: &Location<'a>) {
        let Some(pass) = location.scope.own("proxy_pass").next() else { return };
        match self.proxy_item(location, pass) {
            Ok(toml) => {
                self.push("proxy", pass, toml);
                self.precedence(pass, Some(location));
            }
            Err(why) => {
                let why = format!("{why}; write `[[sites.proxy]]` in place of the `deny`");
                self.report.left_out(&pass.place, &pass.shown(), &why);
                self.nothing_here(pass, Some(location));
            }
        }
    }

    fn proxy_item(&mut self, location: &Location<'a>, pass: &Directive) -> Result<String, String> {
        let Some(rest) = pass.first().strip_prefix("http://") else {
            return Err("only servers with plain HTTP can be behind this one".to_owned());
        };
        if rest.contains('$') {
            return Err("the server is not fixed".to_owned());
        }
        let (server, uri) = match rest.strip_prefix("unix:") {
            Some(path) => match path.split_once(':') {
                Some((path, uri)) => (format!("unix:{path}"), uri),
                None => (format!("unix:{path}"), ""),
            },
            None => match rest.find('/') {
                Some(end) => (rest[..end].to_owned(), &rest[end..]),
                None => (rest.to_owned(), ""),
            },
        };
        let named = server.clone();
        let server = match self.upstreams.get(&server).map(Vec::as_slice) {
            Some([one]) => one.clone(),
            Some(several) => {
                let why = format!("one server of {}; the others are left out", several.len());
                self.report.changed(&pass.place, &pass.shown(), &why);
                several.first().cloned().unwrap_or_default()
            }
            None => server,
        };
        let to = match server.starts_with("unix:") {
            true => server.clone(),
            false => format!("http://{server}"),
        };
        let path = match &location.matcher {
            // As a plain text it is refused: it is rarely meant.
            Matcher::Exact(text) if text.ends_with('/') => format!("~^{}$", regex::escape(text)),
            _ => location.pattern_without(&self.literals)?,
        };
        let strips = match (&location.matcher, uri) {
            (_, "") => false,
            (Matcher::Prefix { text, .. }, uri) if text == uri => false,
            (Matcher::Prefix { text, .. }, "/") if text.ends_with('/') && path.ends_with("/*") => {
                true
            }
            _ => return Err(format!("the path cannot be replaced by {uri}")),
        };
        let mut fields = vec![("path", toml_text::string(&path)), ("to", toml_text::string(&to))];
        if strips {
            fields.push(("strip_prefix", "true".to_owned()));
        }
        let headers = location.scope.group(&["proxy_set_header"]);
        let host = headers.iter().find(|one| one.first().eq_ignore_ascii_case("host"));
        if let Some(host) = self.host_for_upstream(host.map(|one| one.argument(1)), &named)? {
            fields.push(("host", toml_text::string(&host)));
        }
        headers.iter().for_each(|one| self.proxy_header(one));
        if let Some(time) = location.scope.get("proxy_read_timeout") {
            if let Some(time) = values::time(time.first()).filter(|time| !time.is_zero()) {
                fields.push(("read_timeout", toml_text::string(&values::duration(time))));
            }
            self.keep(time);
        }
        Ok(toml_text::table(fields))
    }

    /// The Host header that an upstream server gets, which the configuration names like this:
    /// nothing if it is that of the request.
    fn host_for_upstream(
        &self,
        value: Option<&str>,
        named: &str,
    ) -> Result<Option<String>, String> {
        let value = value.map(|value| value.replace("${", "$").replace('}', ""));
        match value.as_deref() {
            Some(value) if REQUESTED_HOST.contains(&value) => Ok(None),
            None | Some("$proxy_host") if named.starts_with("unix:") => {
                Ok(Some("localhost".to_owned()))
            }
            None | Some("$proxy_host") => Ok(Some(named.to_owned())),
            Some("$server_name") if !self.name().is_empty() => Ok(Some(self.name().to_owned())),
            Some(value) if value.contains('$') => Err(format!("its Host `{value}` is not fixed")),
            Some(fixed) => Ok(Some(fixed.to_owned())),
        }
    }

    /// `X-Forwarded-…`, `Upgrade` and `Connection` are what maitred sends anyway.
    fn proxy_header(&mut self, header: &Directive) {
        let (name, value) = (header.first().to_ascii_lowercase(), header.argument(1));
        let is_host = name == "x-forwarded-host"
            && (REQUESTED_HOST.contains(&value) || self.has_only_host(value));
        let is_usual = USUAL.contains(&name.as_str()) || is_host;
        if is_usual || value == format!("$http_{}", name.replace('-', "_")) {
            return self.keep(header);
        }
        if name == "x-forwarded-host" {
            let why = "the upstream server gets the Host header of clients: list the names of the \
                       site in `hosts`";
            return self.report.access_left_out(&header.place, &header.shown(), why);
        }
        if name == "x-real-ip" || name.starts_with("x-forwarded-") {
            let why = "the upstream server gets no such header: X-Forwarded-For has the client's \
                       address";
            return self.report.left_out(&header.place, &header.shown(), why);
        }
        if NO_TRUST.contains(&name.as_str()) {
            let why = "the upstream server gets the header of the client";
            return self.report.left_out(&header.place, &header.shown(), why);
        }
        let why = "the upstream server gets this header as clients send it: it must not trust it";
        self.report.access_left_out(&header.place, &header.shown(), why);
    }
}
