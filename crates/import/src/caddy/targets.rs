//! Where requests go: `redir`, `rewrite`, `uri`, `try_files`, `reverse_proxy`.

use super::matchers::Condition;
use super::path_areas::{BlockPaths, CaddyPath};
use super::placeholders::{TargetPlace, target};
use super::served_areas::ServedArea;
use super::site_walk::{Asked, SiteWalk};
use super::text_at;
use crate::regexes::whole_match;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values::is_identity_header;

/// Directives of `reverse_proxy` that need no counterpart.
const NOT_NEEDED: [&str; 25] = [
    "buffer_requests",
    "buffer_responses",
    "dynamic",
    "fail_duration",
    "flush_interval",
    "health_body",
    "health_headers",
    "health_interval",
    "health_path",
    "health_port",
    "health_status",
    "health_timeout",
    "health_uri",
    "lb_policy",
    "lb_retries",
    "lb_try_duration",
    "lb_try_interval",
    "max_fails",
    "request_buffers",
    "response_buffers",
    "stream_close_delay",
    "stream_timeout",
    "transport",
    "unhealthy_latency",
    "trusted_proxies",
];

/// Directives of `transport http` with which it is HTTP/1 in clear.
const OF_PLAIN_HTTP: [&str; 16] = [
    "compression",
    "dial_fallback_delay",
    "dial_timeout",
    "expect_continue_timeout",
    "keepalive",
    "keepalive_idle_conns",
    "keepalive_idle_conns_per_host",
    "keepalive_interval",
    "max_conns_per_host",
    "max_response_header",
    "read_buffer",
    "read_timeout",
    "resolvers",
    "response_header_timeout",
    "write_buffer",
    "write_timeout",
];

/// Headers of a client that no proxied server gets.
const DROPPED: [&str; 2] = ["X-Real-IP", "Proxy"];

/// Whether a `redir` redirects plain HTTP to the same address of HTTPS.
pub(super) fn is_to_tls(condition: &Condition, arguments: &[String]) -> bool {
    let is_same = |to: &String| to.starts_with("https://{host}") && to.ends_with("{uri}");
    let is_plain = condition.scheme.as_deref() == Some("http") && condition.other.is_none();
    is_plain && arguments.first().is_some_and(is_same)
}

impl SiteWalk<'_, '_, '_> {
    /// The path as a directive sees it, in the words of a target.
    fn whole(area: &BlockPaths) -> &'static str {
        if area.stripped.is_empty() { "$0" } else { "/$1" }
    }

    /// `redir`. Whether no later directive sees these requests.
    pub(super) fn redir(&mut self, asked: &Asked<'_>) -> bool {
        let line = asked.line;
        let condition = &asked.condition;
        let to = asked.arguments.first().cloned().unwrap_or_default();
        if is_to_tls(condition, asked.arguments) {
            match self.shared.serves_plain {
                false => self.kept(line),
                true => {
                    let why = "plain HTTP is redirected for all paths and sites here or for none: \
                               set `redirect` in [tls]";
                    self.shared.report.access_left_out(&line.place, &line.shown(), why);
                }
            }
            return false;
        }
        let status = match asked.arguments.get(1).map(String::as_str) {
            None | Some("temporary") => Some(302),
            Some("permanent") => Some(301),
            Some(code) => code.parse::<u16>().ok(),
        };
        let status = status.filter(|code| [301, 302, 303, 307, 308].contains(code));
        let (Some(status), None) = (status, condition.beside_paths()) else {
            if let Some(other) = condition.beside_paths() {
                let why = format!(
                    "it is for some requests alone (`{other}`): write `redirects` of the site"
                );
                self.left_out_for_some(asked, &why);
                return false;
            }
            let why = "its status is none of a redirect; its paths are a 404: write `redirects`";
            self.left_out(line, why);
            self.nothing_here(asked);
            return true;
        };
        let to = self.shared.filled(&to);
        let whole = Self::whole(&asked.area);
        let to = target(&to, TargetPlace::Redirect, &condition.regex_name, whole);
        let found = to.and_then(|to| Ok((to, asked.area.patterns()?)));
        match found {
            Ok((to, patterns)) => {
                for pattern in patterns {
                    let fields = [
                        ("from", toml_text::string(&whole_match(&pattern, &to))),
                        ("to", toml_text::string(&to)),
                        ("status", status.to_string()),
                    ];
                    self.push("redirects", line, toml_text::table(fields));
                }
                self.kept(line);
                true
            }
            Err(why) => {
                self.left_out(line, &format!("{why}; its paths are a 404"));
                self.nothing_here(asked);
                true
            }
        }
    }

    /// `rewrite`.
    pub(super) fn rewrite(&mut self, asked: &Asked<'_>) {
        let line = asked.line;
        let condition = &asked.condition;
        let to = asked.arguments.first().cloned().unwrap_or_default();
        if let Some((false, _)) = condition.file {
            // What has no file.
            let files = ["{path}".to_owned(), to];
            return self.try_files(&files, line, &asked.area);
        }
        if let Some((true, files)) = &condition.file
            && to.contains("file.relative}")
        {
            return self.try_files(&files.clone(), line, &asked.area);
        }
        if let Some(other) = condition.beside_paths() {
            let why = format!("it is for some requests alone (`{other}`): write `rewrite`");
            return self.left_out_for_some(asked, &why);
        }
        let to = match to.starts_with('?') {
            true => format!("{{path}}{to}"),
            false => self.shared.filled(&to),
        };
        let whole = Self::whole(&asked.area);
        let to = target(&to, TargetPlace::Rewrite, &condition.regex_name, whole);
        match to.and_then(|to| Ok((to, asked.area.patterns()?))) {
            Ok((to, patterns)) => {
                for pattern in patterns {
                    self.push_rewrite(&whole_match(&pattern, &to), &to, line);
                }
                self.kept(line);
            }
            // What it hides is sent.
            Err(why) => self.shared.report.access_left_out(&line.place, &line.shown(), &why),
        }
    }

    fn push_rewrite(&mut self, from: &str, to: &str, line: &Directive) {
        let fields = [
            ("from", toml_text::string(from)),
            ("to", toml_text::string(to)),
            ("end", "true".to_owned()),
        ];
        self.push("rewrite", line, toml_text::table(fields));
    }

    /// `uri strip_prefix`, `uri strip_suffix`, `uri path_regexp`.
    pub(super) fn uri(&mut self, asked: &Asked<'_>) {
        let line = asked.line;
        let is_simple = asked.condition == super::matchers::Condition::default();
        let found = match asked.arguments {
            // Caddy compares it with the path as it was sent.
            [_, part] if part.contains('%') => None,
            [how, part] if how == "strip_prefix" && is_simple && asked.area.is_all() => {
                let part = regex::escape(part.trim_end_matches('/'));
                Some((format!("~^{part}/(.*)$"), "/$1"))
            }
            [how, part] if how == "strip_suffix" && is_simple && asked.area.is_all() => {
                Some((format!("~^(.+){}$", regex::escape(part)), "$1"))
            }
            _ => None,
        };
        match found.filter(|(from, _)| crate::regexes::check_regex(from).is_ok()) {
            Some((from, to)) => {
                self.push_rewrite(&from, to, line);
                self.kept(line);
            }
            None if asked.arguments.first().is_some_and(|how| how == "query") => {
                self.left_out(line, "scripts get the query as it was sent");
            }
            // It decides which files and scripts these paths lead to.
            None => {
                let why = "write `rewrite` of the site";
                self.shared.report.access_left_out(&line.place, &line.shown(), why);
            }
        }
    }

    /// A `try_files` that never leads to the file of the path.
    pub(super) fn files_of_others(&mut self, line: &Directive) {
        let is_own = |file: &String| file.contains("{path}") || file.contains("uri.path}");
        let is_file = line.arguments.iter().any(|file| !file.starts_with('='));
        if is_file && !line.arguments.iter().any(is_own) {
            let why = "it runs for all paths, while files that exist are served here: check that \
                       the document root has none that must not be seen";
            self.shared.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    /// `try_files`: what serves paths without a file.
    pub(super) fn try_files(&mut self, files: &[String], line: &Directive, area: &BlockPaths) {
        let short = |file: &String| file.replace("{http.request.uri.path}", "{path}");
        let files: Vec<String> = files.iter().map(short).collect();
        let (others, last): (Vec<&String>, Vec<&String>) =
            files.iter().partition(|file| file.contains("{path}"));
        let unknown = others.iter().find(|file| {
            !["{path}", "{path}/", "{path}/index.php", "{path}/index.html"]
                .contains(&file.split('?').next().unwrap_or_default())
        });
        if let Some(unknown) = unknown {
            let why = format!("`{unknown}` has no counterpart: write `rewrite` for its paths");
            self.left_out(line, &why);
        } else {
            self.kept(line);
        }
        let Some(last) = last.first() else { return };
        if !area.paths.is_empty() && !last.starts_with('=') {
            let why = "a site has one file for paths without one, and these are a 404: serve them \
                       as a site of their own";
            return self.left_out(line, why);
        }
        if last.starts_with('=') {
            self.front = Some((String::new(), line.place.clone()));
            return;
        }
        let script = last.split('?').next().unwrap_or_default();
        let script = format!("/{}", script.trim_start_matches('/'));
        if script.contains('{') {
            return self.left_out(line, "the file for paths without one is not fixed");
        }
        self.front = Some((script, line.place.clone()));
    }

    /// `reverse_proxy`. Whether no later directive sees these requests.
    pub(super) fn reverse_proxy(&mut self, asked: &Asked<'_>) -> bool {
        let line = asked.line;
        let of_block = line.block.iter().filter(|one| one.name == "to");
        let servers: Vec<String> = asked
            .arguments
            .iter()
            .chain(of_block.flat_map(|one| &one.arguments))
            .cloned()
            .collect();
        if let Some(other) = asked.condition.beside_paths() {
            let why = format!("it is for some requests alone (`{other}`): write `proxy`");
            self.left_out_for_some(asked, &why);
            return false;
        }
        let first = servers.first().map(|one| self.shared.filled(one)).unwrap_or_default();
        let to = plain_http(line).and_then(|()| proxy_address(&first));
        let found = to.and_then(|to| Ok((to, proxied(&asked.area)?)));
        let (to, paths) = match found {
            Ok(found) => found,
            Err(why) => {
                let why = format!("{why}; its paths are a 404");
                self.shared.report.left_out(&line.place, &line.shown(), &why);
                self.nothing_here(asked);
                return true;
            }
        };
        self.elsewhere.push(ServedArea::elsewhere(&asked.area, line));
        let host = self.proxy_host(line, &to);
        for path in paths {
            let mut fields = Vec::new();
            if path != "/*" {
                fields.push(("path", toml_text::string(&path)));
            }
            fields.push(("to", toml_text::string(&to)));
            if !asked.area.stripped.is_empty() {
                fields.push(("strip_prefix", "true".to_owned()));
            }
            fields.extend(host.clone().map(|host| ("host", text_at(&host, &line.place).toml)));
            self.push("proxy", line, toml_text::table(fields));
        }
        match servers.len() {
            0 | 1 => self.kept(line),
            count => {
                let why = format!("one server of {count}; the others are left out");
                self.shared.report.changed(&line.place, &line.shown(), &why);
            }
        }
        true
    }

    /// A header of requests: clients can send those that are not dropped, as some are for a proxy.
    pub(super) fn header_up(&mut self, one: &Directive, is_proxied: bool) {
        let name = one.first().trim_start_matches(['-', '+']);
        let is_known = DROPPED.iter().any(|known| name.eq_ignore_ascii_case(known));
        let is_dropped = is_proxied && is_known;
        let is_forwarded = is_proxied && name.to_ascii_uppercase().starts_with("X-FORWARDED-");
        match is_forwarded || is_dropped || !is_identity_header(name) {
            true if is_forwarded => self.kept(one),
            true => self.left_out(one, "it has no counterpart; write it for the server itself"),
            false => {
                let why = "it has no counterpart, and clients can send this header: see whether \
                           the application trusts it";
                self.shared.report.access_left_out(&one.place, &one.shown(), why);
            }
        }
    }

    /// The `Host` header for the server, and a report of the other directives.
    fn proxy_host(&mut self, line: &Directive, to: &str) -> Option<String> {
        let mut host = None;
        for one in &line.block {
            let is_host = one.name == "header_up" && one.first().eq_ignore_ascii_case("Host");
            match one.name.as_str() {
                "to" => {}
                _ if is_host => {
                    let value = one.argument(1);
                    let address = to.trim_start_matches("http://");
                    let value = value
                        .replace("{upstream_hostport}", address)
                        .replace("{http.reverse_proxy.upstream.hostport}", address);
                    match value.contains('{') {
                        true if value != "{host}" => self.left_out(one, "its value is not fixed"),
                        true => {}
                        false => host = Some(value),
                    }
                }
                name if NOT_NEEDED.contains(&name) => {}
                "header_up" => {
                    self.header_up(one, true);
                    continue;
                }
                "header_down" | "rewrite" | "method" => {
                    self.left_out(one, "it has no counterpart; write it for the server itself");
                    continue;
                }
                _ => {
                    let why = "it is unknown or has no counterpart: see what it does";
                    self.shared.report.access_left_out(&one.place, &one.shown(), why);
                    continue;
                }
            }
            self.kept(one);
        }
        host
    }
}

/// Patterns of a proxied area; where a begin is removed, it is the folder.
fn proxied(area: &BlockPaths) -> Result<Vec<String>, String> {
    let folder = format!("{}/", area.stripped);
    let is_folder = |one: &CaddyPath| matches!(one, CaddyPath::Prefix(text) if *text == folder);
    match area.stripped.is_empty() || area.paths.iter().all(is_folder) {
        true => area.patterns(),
        false => Err("its paths and the removed begin differ: write `proxy`".to_owned()),
    }
}

/// Nothing if a `reverse_proxy` is for HTTP/1 in clear, and else the `transport` for which it is
/// not.
fn plain_http(line: &Directive) -> Result<(), String> {
    let is_plain = |one: &&Directive| match one.name.as_str() {
        "versions" => one.arguments.iter().all(|version| version == "1.1"),
        name => OF_PLAIN_HTTP.contains(&name),
    };
    for one in line.block.iter().filter(|one| one.name == "transport") {
        let other = match one.first() {
            "http" => one.block.iter().find(|inner| !is_plain(inner)),
            _ => Some(one),
        };
        if let Some(other) = other {
            return Err(format!("`{}` is no plain HTTP/1", other.shown()));
        }
    }
    Ok(())
}

/// The address of a server as `to` of `proxy` has it.
fn proxy_address(text: &str) -> Result<String, String> {
    if let Some(path) = text.strip_prefix("unix/") {
        return Ok(format!("unix:{path}"));
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (scheme, rest),
        None => ("http", text),
    };
    if scheme != "http" || rest.contains(['{', '/']) || rest.is_empty() {
        return Err(format!("`{text}` is no server over plain HTTP"));
    }
    let rest = match rest.strip_prefix(':') {
        Some(port) => format!("127.0.0.1:{port}"),
        None => rest.to_owned(),
    };
    match rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) {
        true => Ok(format!("http://{rest}")),
        false => Ok(format!("http://{rest}:80")),
    }
}
