//! The listeners of Unit: addresses, proxies before them, and what they pass requests to.

use serde_json::Value;

use super::json_places::pointer_part;
use super::{UnitConfig, host_steps, names};
use crate::file_draft::{FileDraft, Placed};
use crate::report::{ImportReport, SourceLine};
use crate::toml_text;

/// The members of a listener (`nxt_conf_vldt_listener_members`).
const MEMBERS: [&str; 6] = ["pass", "application", "forwarded", "client_ip", "backlog", "tls"];

/// The members of `tls`.
const OF_TLS: [&str; 3] = ["certificate", "conf_commands", "session"];

/// Commands of OpenSSL that are about the connection alone, and not about certificates of clients.
const OF_CONNECTION: [&str; 10] = [
    "Ciphersuites",
    "CipherString",
    "Curves",
    "ECDHParameters",
    "Groups",
    "MaxProtocol",
    "MinProtocol",
    "Options",
    "Protocol",
    "SignatureAlgorithms",
];

/// What the listeners pass requests to, each once, with the place of the first listener.
pub(super) fn passes(config: &UnitConfig) -> Vec<(String, SourceLine)> {
    let mut found: Vec<(String, SourceLine)> = Vec::new();
    for name in names(config, "/listeners").into_iter().filter(|name| !name.starts_with("unix:")) {
        let pointer = format!("/listeners/{}", pointer_part(&name));
        let text = |member: &str| config.get(&format!("{pointer}/{member}"))?.as_str();
        // The older spelling of a pass to an application.
        let application =
            || text("application").map(|name| format!("applications/{}", name.replace('/', "%2F")));
        let pass = text("pass").map(str::to_owned).or_else(application);
        if let Some(pass) = pass.filter(|pass| found.iter().all(|(known, _)| known != pass)) {
            found.push((pass, config.place(&pointer)));
        }
    }
    found
}

/// The listeners and their sites. Whether a site serves something.
pub(super) fn listeners(
    config: &UnitConfig,
    file: &mut FileDraft,
    report: &mut ImportReport,
) -> bool {
    let (mut plain, mut tls, mut proxies) = (Vec::new(), Vec::new(), None);
    for name in names(config, "/listeners") {
        let pointer = format!("/listeners/{}", pointer_part(&name));
        let place = config.place(&pointer);
        let address = name.replace("*:", "0.0.0.0:");
        if name.starts_with("unix:") {
            let why = "only TCP addresses serve sites";
            report.left_out(&place, &name, why);
            continue;
        }
        let has_tls = config.get(&format!("{pointer}/tls")).is_some();
        if has_tls { &mut tls } else { &mut plain }.push(address);
        if has_tls {
            tls_settings(config, &format!("{pointer}/tls"), report);
        }
        unknown_members(config, &pointer, &MEMBERS, report);
        let own = proxies_of(config, &pointer).map(|(pointer, _)| config.get(&pointer));
        if *proxies.get_or_insert(own) != own {
            let why = "each listener has its own trusted proxies in Unit, and all have the same \
                       here: write `trusted_proxies` by hand";
            report.access_left_out(&place, "forwarded", why);
        }
        forwarded(config, &pointer, file, report);
        report.kept(&place, &format!("listeners {name}"));
    }
    let from = config.place("/listeners");
    if !plain.is_empty() {
        file.server.set("listen", Placed::new(toml_text::strings(plain), &from));
    }
    if !tls.is_empty() {
        file.tls.set("listen", Placed::new(toml_text::strings(tls), &from));
    }
    let mut serves = false;
    for (index, (pass, place)) in passes(config).iter().enumerate() {
        if index > 0 {
            let why = format!(
                "each listener has its own routes in Unit, and every site is served at every \
                 address here: give the site of `{pass}` its own names in `hosts`, or serve it \
                 with a second maitred"
            );
            report.access_left_out(place, "listeners", &why);
            continue;
        }
        serves |= host_steps::sites(config, pass, file, report);
    }
    serves
}

/// Names the members of an object that are unknown.
fn unknown_members(config: &UnitConfig, at: &str, known: &[&str], report: &mut ImportReport) {
    for name in names(config, at).into_iter().filter(|name| !known.contains(&name.as_str())) {
        let why = "it is unknown; see what it does, and write it by hand";
        let place = config.place(&format!("{at}/{}", pointer_part(&name)));
        report.access_left_out(&place, &name, why);
    }
}

/// `tls` of a listener.
fn tls_settings(config: &UnitConfig, at: &str, report: &mut ImportReport) {
    let why = "Unit has the certificate in its own store: list its files in `certificates` of \
               [tls], or set `acme`";
    report.left_out(&config.place(at), "tls", why);
    unknown_members(config, at, &OF_TLS, report);
    let commands = format!("{at}/conf_commands");
    for name in names(config, &commands) {
        let place = config.place(&format!("{commands}/{}", pointer_part(&name)));
        match OF_CONNECTION.iter().any(|known| known.eq_ignore_ascii_case(&name)) {
            true => report.left_out(&place, &name, "set `min_version` in [tls]"),
            false => {
                let why = "it may require certificates of clients: set `client_certificates` and \
                           `client_ca` in [tls]";
                report.access_left_out(&place, &name, why);
            }
        }
    }
}

/// The pointer of a listener's proxies, and the member of it with the header for addresses:
/// `client_ip` is the older spelling of `forwarded`.
fn proxies_of(config: &UnitConfig, listener: &str) -> Option<(String, &'static str)> {
    let spellings = [("forwarded", "client_ip"), ("client_ip", "header")];
    let mut all =
        spellings.map(|(name, header)| (format!("{listener}/{name}"), header)).into_iter();
    all.find(|(pointer, _)| config.get(pointer).is_some())
}

/// `forwarded` or `client_ip`: the proxies before Unit.
fn forwarded(config: &UnitConfig, listener: &str, file: &mut FileDraft, report: &mut ImportReport) {
    let Some((pointer, address)) = proxies_of(config, listener) else { return };
    let Some(forwarded) = config.get(&pointer) else { return };
    let name = pointer.rsplit('/').next().unwrap_or_default();
    let place = config.place(&pointer);
    let texts = |value: Option<&Value>| match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(all)) => {
            all.iter().filter_map(Value::as_str).map(str::to_owned).collect()
        }
        _ => Vec::new(),
    };
    let sources = texts(forwarded.get("source"));
    if sources.iter().any(|one| one.starts_with('!') || one.contains('-')) || sources.is_empty() {
        let why = "set `trusted_proxies` to addresses and networks";
        return report.access_left_out(&place, name, why);
    }
    file.server.set("trusted_proxies", Placed::new(toml_text::strings(sources), &place));
    if forwarded.get("recursive").and_then(Value::as_bool) != Some(true) {
        file.server.set("trusted_recursive", Placed::new("false".to_owned(), &place));
    }
    let headers = [forwarded.get(address), forwarded.get("protocol")];
    let headers: Vec<&str> = headers.into_iter().flatten().filter_map(Value::as_str).collect();
    if !headers.is_empty() {
        file.server.set("trusted_headers", Placed::new(toml_text::strings(headers), &place));
    }
    report.kept(&place, name);
}

#[cfg(test)]
mod tests {
    use crate::Imported;
    use crate::only_file::OnlyFile;

    const FILES: &str = r#""pass": "routes""#;

    /// The result for two listeners, beside two applications.
    fn of(first: &str, second: &str) -> Imported {
        let text = format!(
            r#"{{"listeners": {{"*:80": {{{first}}}, "*:8080": {{{second}}}}},
            "routes": [{{"action": {{"share": "/srv/a$uri"}}}}], "applications": {{
            "a": {{"type": "php", "user": "web", "root": "/srv/a", "script": "index.php"}},
            "x": {{"type": "php", "user": "web", "root": "/srv/x", "script": "index.php"}}}}}}"#
        );
        crate::unit::import(&OnlyFile(text), "unit.json").expect("it can be imported")
    }

    #[test]
    fn the_older_spelling_of_proxies_is_read() {
        let own =
            format!(r#"{FILES}, "client_ip": {{"header": "X-Real-IP", "source": ["10.0.0.0/8"]}}"#);
        let imported = of(&own, &own);
        for line in ["trusted_proxies = [\"10.0.0.0/8\"]", "trusted_headers = [\"X-Real-IP\"]"] {
            assert!(imported.toml.contains(line), "{line}\n{}", imported.toml);
        }
        assert!(imported.toml.contains("trusted_recursive = false"), "{}", imported.toml);
        assert!(imported.report.keeps_access(), "{}", imported.report);
        assert!(!of(&own, FILES).report.keeps_access());
    }

    #[test]
    fn a_listener_of_an_application_is_one_that_passes_to_it() {
        let alone = of(r#""application": "x""#, r#""pass": "applications/x""#);
        assert!(alone.toml.contains("root = \"/srv/x\""), "{}", alone.toml);
        let beside = of(FILES, r#""application": "a""#);
        assert!(!beside.report.keeps_access(), "{}", beside.toml);
        let report = beside.report.to_string();
        assert!(report.contains("give the site of `applications/a` its own names"), "{report}");
    }

    #[test]
    fn an_unknown_member_and_certificates_of_clients_decide_about_access() {
        for (member, is_alike) in [
            (r#""backlog": 100"#, true),
            (r#""frobnicate": 1"#, false),
            (r#""tls": {"certificate": "a", "session": {"timeout": 9}}"#, true),
            (r#""tls": {"certificate": "a", "frobnicate": 1}"#, false),
            (r#""tls": {"conf_commands": {"MinProtocol": "TLSv1.3", "curves": "P-256"}}"#, true),
            (r#""tls": {"conf_commands": {"VerifyMode": "Require"}}"#, false),
            (r#""tls": {"conf_commands": {"ClientCAFile": "/ca.pem"}}"#, false),
        ] {
            let own = format!("{FILES}, {member}");
            let report = of(&own, &own).report;
            assert_eq!(report.keeps_access(), is_alike, "{member}\n{report}");
        }
    }
}
