//! `LogFormat` and `CustomLog`: access logs.

use super::config_reader::ApacheConfig;
use crate::file_draft::{FileDraft, Placed};
use crate::report::ImportReport;
use crate::source_directive::Directive;
use crate::toml_text;

/// Apache's format without a name, which `common` names.
const COMMON: &str = "%h %l %u %t \"%r\" %>s %b";

/// Writes `access_log` of the server and of the sites, and their format, which all logs share.
pub(super) fn access_log(config: &ApacheConfig, file: &mut FileDraft, report: &mut ImportReport) {
    let mut formats: Vec<(&str, &str)> = vec![("common", COMMON)];
    for line in config.tree.iter().filter(|one| one.is("LogFormat")) {
        formats.push((line.argument(1), line.first()));
        report.kept(&line.place, &line.shown());
    }
    let of_hosts = config.tree.iter().filter(|one| one.is("<VirtualHost"));
    let mut chosen: Option<String> = None;
    let levels = of_hosts.map(|host| (Some(host), host.block.as_slice()));
    for (host, directives) in levels.chain([(None, config.tree.as_slice())]) {
        let is_log = |one: &&Directive| one.is("CustomLog") || one.is("TransferLog");
        for line in directives.iter().filter(is_log) {
            if report.is_known(&line.place, &line.name) {
                continue;
            }
            let name = line.argument(1);
            let named = formats.iter().rev().find(|(known, _)| *known == name);
            let format = named.map_or(name, |(_, format)| format);
            let format = if format.is_empty() { COMMON } else { format };
            let has_condition = line.arguments.len() > 2;
            let path = config.absolute(line.first());
            let converted = converted(format);
            let why = match &converted {
                _ if line.first().starts_with('|') => "a log is a file, `syslog` or `journald`",
                _ if has_condition => "all requests are logged; write `access_log`",
                Err(_) => "its format has no counterpart; write `access_log_format`",
                Ok(text) if chosen.as_ref().is_some_and(|known| known != text) => {
                    "all logs have one format here; write `access_log`"
                }
                Ok(_) => "",
            };
            if !why.is_empty() {
                report.left_out(&line.place, &line.shown(), why);
                continue;
            }
            let Ok(text) = converted else { continue };
            let toml = toml_text::string(&text);
            file.server.set("access_log_format", Placed::new(toml, &line.place));
            chosen = Some(text);
            let log = Placed::new(toml_text::string(&path), &line.place);
            match host {
                None => file.server.set("access_log", log),
                Some(host) => {
                    let place = host.place.to_string();
                    let site = file.sites.iter_mut().find(|site| site.from == place);
                    site.into_iter().for_each(|site| site.settings.set("access_log", log.clone()));
                }
            }
            let why = "logrotate has to send SIGUSR1 to maitred for this file, in place of \
                       Apache's reload";
            report.changed(&line.place, &line.shown(), why);
        }
    }
}

/// A format in nginx's variables, which maitred's formats have.
fn converted(format: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('%') {
        out += &before.replace("\\\"", "\"").replace("\\t", "\t");
        let after = after.trim_start_matches(['>', '<']);
        let (name, after) = match after.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or("a brace is open")?,
            None => ("", after),
        };
        let kind = after.chars().next().ok_or("it ends with `%`")?;
        let variable = name.to_ascii_lowercase().replace('-', "_");
        out += &match kind {
            'h' | 'a' => "$remote_addr".to_owned(),
            'l' => "-".to_owned(),
            'u' => "$remote_user".to_owned(),
            't' if name.is_empty() => "[$time_local]".to_owned(),
            'r' => "$request".to_owned(),
            's' => "$status".to_owned(),
            'O' => "$bytes_sent".to_owned(),
            'I' => "$request_length".to_owned(),
            'b' | 'B' => "$body_bytes_sent".to_owned(),
            'v' | 'V' => "$host".to_owned(),
            'm' => "$request_method".to_owned(),
            'U' => "$uri".to_owned(),
            'q' => "$is_args$args".to_owned(),
            'H' => "$server_protocol".to_owned(),
            'P' if name.is_empty() => "$pid".to_owned(),
            'i' => format!("$http_{variable}"),
            'T' if name == "ms" => "$request_ms".to_owned(),
            'x' if name == "SSL_PROTOCOL" => "$ssl_protocol".to_owned(),
            'x' if name == "SSL_CIPHER" => "$ssl_cipher".to_owned(),
            '%' => return Err("`%%` has no counterpart".to_owned()),
            other => return Err(format!("`%{other}` has no counterpart")),
        };
        rest = &after[kind.len_utf8()..];
    }
    out += &rest.replace("\\\"", "\"").replace("\\t", "\t");
    maitred_config::LogFormat::parse(&out).map(|_| out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_formats_of_apache_have_the_variables_of_nginx() {
        let combined = "%h %l %u %t \"%r\" %>s %O \"%{Referer}i\" \"%{User-Agent}i\"";
        let expected = "$remote_addr - $remote_user [$time_local] \"$request\" $status $bytes_sent \
                        \"$http_referer\" \"$http_user_agent\"";
        assert_eq!(converted(combined).as_deref(), Ok(expected));
        assert!(converted("%D").is_err());
    }
}
