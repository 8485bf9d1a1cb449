//! Caddy's global options.

use super::matchers::PRIVATE_RANGES;
use super::text_at;
use crate::file_draft::{FileDraft, Placed};
use crate::report::{ImportReport, SourceLine};
use crate::source_directive::Directive;
use crate::{toml_text, values};

/// What Caddy does about certificates by itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum AutoHttps {
    /// Certificates and redirects.
    #[default]
    On,
    /// Certificates alone.
    WithoutRedirects,
    /// Nothing.
    Off,
}

/// The options that decide about sites.
#[derive(Debug, Clone, Default)]
pub(super) struct GlobalOptions {
    /// The port for plain HTTP.
    pub http_port: u16,
    /// The port for TLS.
    pub https_port: u16,
    /// Certificates and redirects.
    pub auto_https: AutoHttps,
    /// The address for the certificate authority.
    pub email: Option<(String, SourceLine)>,
    /// Another certificate authority.
    pub directory: Option<(String, SourceLine)>,
    /// The addresses of sites without `bind`.
    pub default_bind: Vec<String>,
    /// FrankenPHP's options.
    pub frankenphp: Option<Directive>,
    /// Whether the file has `trusted_proxies`.
    pub trusts_proxies: bool,
    /// Whether Caddy takes the first address of a header, which the client may have written.
    pub takes_first: bool,
}

/// Options without a counterpart that is needed.
const NOT_NEEDED: [&str; 20] = [
    "admin",
    "auto_https",
    "debug",
    "default_bind",
    "email",
    "frankenphp",
    "http_port",
    "https_port",
    "key_type",
    "ocsp_interval",
    "ocsp_stapling",
    "order",
    "persist_config",
    "php_ini",
    "preferred_chains",
    "renew_interval",
    "skip_install_trust",
    "storage",
    "storage_clean_interval",
    "acme_ca",
];

/// Options to write by hand.
const BY_HAND: [(&str, &str); 10] = [
    ("log", "set `error_log` at the top of the file"),
    ("local_certs", "list certificates in `certificates` of [tls]"),
    ("default_sni", "the first of `certificates` is for clients without a name"),
    ("fallback_sni", "the first of `certificates` is for clients without a name"),
    ("cert_issuer", "set `acme` in [tls]"),
    ("acme_dns", "certificates are for names that port 80 or 443 reaches: set `acme` in [tls]"),
    ("acme_eab", "set `acme` in [tls]"),
    ("acme_ca_root", "set `ca` in `acme` of [tls]"),
    ("on_demand_tls", "certificates are ordered for the hosts of sites: list them in `hosts`"),
    ("events", "it has no counterpart"),
];

/// Options with a time, and ours.
const TIMES: [(&str, &str); 2] =
    [("shutdown_delay", "stop_delay"), ("grace_period", "process_control_timeout")];

/// Reads the options.
pub(super) fn read(
    options: &[Directive],
    file: &mut FileDraft,
    report: &mut ImportReport,
) -> GlobalOptions {
    let mut found = GlobalOptions { http_port: 80, https_port: 443, ..GlobalOptions::default() };
    let is_of_all = have_same_proxies(options);
    for option in options {
        let (first, place) = (option.first(), &option.place);
        match option.name.as_str() {
            "http_port" => found.http_port = first.parse().unwrap_or(80),
            "https_port" => found.https_port = first.parse().unwrap_or(443),
            "email" => found.email = Some((first.to_owned(), place.clone())),
            "acme_ca" => found.directory = Some((first.to_owned(), place.clone())),
            "auto_https" => {
                found.auto_https = match first {
                    "off" | "disable_certs" => AutoHttps::Off,
                    "disable_redirects" => AutoHttps::WithoutRedirects,
                    _ => AutoHttps::On,
                };
            }
            "default_bind" => found.default_bind.clone_from(&option.arguments),
            "frankenphp" => found.frankenphp = Some(option.clone()),
            "servers" => servers(option, is_of_all, file, report),
            _ => {}
        }
        let name = option.name.as_str();
        if let Some((_, ours)) = TIMES.iter().find(|(known, _)| *known == name) {
            stop_time(option, ours, file, report);
            continue;
        }
        let by_hand = BY_HAND.iter().find(|(known, _)| *known == name);
        match by_hand {
            Some((_, why)) => report.left_out(place, &option.shown(), why),
            None if name == "servers" || NOT_NEEDED.contains(&name) => {
                report.kept(place, &option.shown());
            }
            None => {
                let why = "it is unknown: see what it does, and write it by hand";
                report.access_left_out(place, &option.shown(), why);
            }
        }
    }
    found.trusts_proxies = file.server.has("trusted_proxies");
    found.takes_first = found.trusts_proxies && !options.iter().all(is_strict);
    found
}

/// Whether these options take the last address of a header that is no proxy, as maitred does.
fn is_strict(option: &Directive) -> bool {
    let has = |name: &str| option.block.iter().any(|one| one.name == name);
    !has("trusted_proxies") || has("trusted_proxies_strict")
}

/// Whether all listeners have the same proxies before them.
fn have_same_proxies(options: &[Directive]) -> bool {
    let proxies = |option: &Directive| {
        let words = |name: &str| {
            let own = option.block.iter().filter(|one| one.name == name);
            own.map(|one| one.arguments.clone()).collect::<Vec<_>>()
        };
        [words("trusted_proxies"), words("client_ip_headers")]
    };
    let mut all = options.iter().filter(|one| one.name == "servers");
    let has_others = all.clone().any(|one| one.arguments.is_empty());
    let first = all.next().map(proxies);
    has_others && all.all(|one| Some(proxies(one)) == first)
}

/// A time of the stop. 0 is none of `shutdown_delay`, and no limit of `grace_period`.
fn stop_time(option: &Directive, ours: &str, file: &mut FileDraft, report: &mut ImportReport) {
    let (place, first) = (&option.place, option.first());
    let has_unit = first.chars().any(|c| c.is_ascii_alphabetic());
    match values::time(first).filter(|_| has_unit || first == "0") {
        Some(time) if !time.is_zero() => {
            let toml = toml_text::string(&values::duration(time));
            file.server.set(ours, Placed::new(toml, place));
        }
        Some(_) if option.name == "shutdown_delay" => {}
        _ => {
            let why = format!("set `{ours}` at the top of the file");
            report.left_out(place, &option.shown(), &why);
            return;
        }
    }
    report.kept(place, &option.shown());
}

/// `servers`: the proxies before Caddy, if they are those of all listeners, and what needs no
/// counterpart.
fn servers(option: &Directive, is_of_all: bool, file: &mut FileDraft, report: &mut ImportReport) {
    for one in &option.block {
        let place = &one.place;
        match one.name.as_str() {
            "trusted_proxies" if !is_of_all => {
                let why = "every listener has the same `trusted_proxies` here, and not with \
                           Caddy: set it if all of them are behind these proxies";
                report.access_left_out(place, &one.shown(), why);
                continue;
            }
            "trusted_proxies" if one.first() == "static" => {
                let ranges = one.arguments.iter().skip(1).flat_map(|range| match range.as_str() {
                    "private_ranges" => PRIVATE_RANGES.map(str::to_owned).to_vec(),
                    range => vec![range.to_owned()],
                });
                let toml = toml_text::strings(ranges);
                file.server.set("trusted_proxies", Placed::new(toml, place));
                let headers = option.block.iter().find(|one| one.name == "client_ip_headers");
                let names = headers.map(|one| one.arguments.clone()).unwrap_or_default();
                let names = match names.is_empty() {
                    true => vec!["X-Forwarded-For".to_owned(), "X-Forwarded-Proto".to_owned()],
                    false => names,
                };
                let toml = toml_text::strings(names);
                file.server.set("trusted_headers", Placed::new(toml, place));
                if !is_strict(option) {
                    let why = "Caddy takes the first address of the header for that of the \
                               client, who may have written it, and maitred the last one that is \
                               no proxy, as with `trusted_proxies_strict`: list all proxies";
                    report.changed(place, &one.shown(), why);
                    continue;
                }
            }
            "trusted_proxies" => {
                let why = "set `trusted_proxies` to addresses and networks";
                report.access_left_out(place, &one.shown(), why);
                continue;
            }
            "client_ip_headers"
            | "trusted_proxies_strict"
            | "protocols"
            | "protocol"
            | "timeouts"
            | "keepalive_interval"
            | "max_header_size"
            | "metrics"
            | "log_credentials"
            | "strict_sni_host"
            | "name"
            | "enable_full_duplex" => {}
            "listener_wrappers" => {
                let has_proxy = one.block.iter().any(|inner| inner.name == "proxy_protocol");
                if has_proxy {
                    let why = "set `proxy_protocol` and `trusted_proxies`";
                    report.access_left_out(place, &one.shown(), why);
                    continue;
                }
            }
            _ => {
                let why = "it is unknown: see what it does, and write it by hand";
                report.access_left_out(place, &one.shown(), why);
                continue;
            }
        }
        report.kept(place, &one.shown());
    }
}

/// `acme` of [tls] for these options.
pub(super) fn acme(options: &GlobalOptions, email: Option<&str>, place: &SourceLine) -> Placed {
    let own = options.email.as_ref().map(|(email, _)| email.as_str());
    let mut fields = Vec::new();
    if let Some(email) = email.or(own) {
        fields.push(("email", toml_text::string(email)));
    }
    fields.push(("terms_agreed", "true".to_owned()));
    if let Some((directory, _)) = &options.directory {
        fields.push(("directory", text_at(directory, place).toml));
    }
    Placed::because(toml_text::table(fields), place, "Caddy agrees to the authority's terms")
}
