//! `access_log` and `log_format`.

use super::scope::Scope;
use crate::file_draft::{FileDraft, Placed};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::toml_text;

/// nginx's log without `access_log`, as its packages build it.
const DEFAULT_LOG: &str = "/var/log/nginx/access.log";

/// nginx's format without a name.
const COMBINED: &str = "$remote_addr - $remote_user [$time_local] \"$request\" $status \
                        $body_bytes_sent \"$http_referer\" \"$http_user_agent\"";

/// Writes `access_log` of the server and of the sites, and their format, which all logs share.
pub(super) fn access_logs(http: &Scope<'_>, file: &mut FileDraft, report: &mut ImportReport) {
    let defined: Vec<&Directive> = http.own("log_format").collect();
    let mut chosen: Option<String> = None;
    let mut used = Vec::new();
    let servers: Vec<&Directive> = http.own("server").collect();
    let levels = servers.iter().map(|server| (Some(*server), http.inside(server)));
    let levels: Vec<(Option<&Directive>, Scope<'_>)> =
        [(None, http.clone())].into_iter().chain(levels).collect();
    for (server, scope) in levels {
        let mut logs = scope.own("access_log");
        let Some(line) = logs.next() else { continue };
        logs.for_each(|other| {
            report.left_out(&other.place, &other.shown(), "a site has one access log");
        });
        let value = match value(line, &defined, &mut chosen) {
            Ok(value) => value,
            Err(why) => {
                report.left_out(&line.place, &line.shown(), why);
                continue;
            }
        };
        used.push(line.argument(1).to_owned());
        let log = Placed::new(toml_text::string(&value), &line.place);
        match server {
            None => file.server.set("access_log", log),
            Some(server) => {
                let place = server.place.to_string();
                let sites = file.sites.iter_mut().filter(|site| site.from == place);
                sites.for_each(|site| site.settings.set("access_log", log.clone()));
            }
        }
        match value.as_str() {
            "off" => report.kept(&line.place, &line.shown()),
            _ => {
                let why = "logrotate has to send SIGUSR1 to maitred for this file, in place of \
                           nginx";
                report.changed(&line.place, &line.shown(), why);
            }
        }
    }
    if let Some(text) = chosen {
        let place = defined.iter().find(|one| used.iter().any(|name| name == one.first()));
        let toml = toml_text::string(&text);
        let format = match place {
            Some(one) => Placed::new(toml, &one.place),
            None => Placed { toml, from: "nginx's format".to_owned() },
        };
        file.server.set("access_log_format", format);
    }
    for one in defined.iter().filter(|one| used.iter().any(|name| name == one.first())) {
        report.kept(&one.place, &one.shown());
    }
}

/// The value of `access_log`, with the format that all logs share.
fn value(
    line: &Directive,
    defined: &[&Directive],
    chosen: &mut Option<String>,
) -> Result<String, &'static str> {
    let path = line.first();
    if path == "off" {
        return Ok("off".to_owned());
    }
    if path.starts_with("syslog:") || path.contains('$') {
        return Err("set `access_log`: a file, \"syslog\" or \"journald\"");
    }
    if line.arguments.iter().any(|one| one.starts_with("if=")) {
        return Err("all requests are logged; set `access_log` of the site");
    }
    let name = line.arguments.get(1).filter(|name| !name.contains('='));
    let name = name.map_or("combined", String::as_str);
    let own = defined.iter().find(|one| one.first() == name);
    let text = match own {
        Some(own) => {
            let parts = own.arguments.iter().skip(1).filter(|one| !one.starts_with("escape="));
            parts.cloned().collect::<String>()
        }
        None if name == "combined" => COMBINED.to_owned(),
        None => return Err("its format is not defined"),
    };
    if maitred_config::LogFormat::parse(&text).is_err() {
        return Err("its format has a variable that has no counterpart: set `access_log` and \
                    `access_log_format`");
    }
    if chosen.as_ref().is_some_and(|known| *known != text) {
        return Err("all logs have one format here: set `access_log` of the site");
    }
    *chosen = Some(text);
    match path {
        "logs/access.log" => Ok(DEFAULT_LOG.to_owned()),
        path if path.starts_with('/') => Ok(path.to_owned()),
        _ => Err("its path starts from nginx's prefix: set `access_log`"),
    }
}
