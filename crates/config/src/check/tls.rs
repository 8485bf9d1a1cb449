//! Checks of `[tls]`, and between it and the top of the file.

use std::net::SocketAddr;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::check::acme::check_acme;
use crate::mistakes::Fault;
use crate::model::config::Config;
use crate::model::tls::{ClientCertificates, Tls};

/// Least `max-age` for the preload list of browsers (hstspreload.org).
const PRELOAD_AGE: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Faults of `[tls]`, which is `section`, and between it and the top of the file. Settings with a
/// fault of their own are reported already.
pub(crate) fn check_tls(
    tls: &Tls,
    config: &Config,
    table: &DeTable<'_>,
    section: &Spanned<DeValue<'_>>,
) -> Vec<Fault> {
    let settings = section.get_ref().as_table();
    let value = |name: &str| settings.and_then(|settings| settings.get(name));
    let mut faults = Vec::new();
    let mut fault = |name: &str, sentence: &str| {
        let span = value(name).map_or(section.span(), Spanned::span);
        faults.push(Fault::new(span, sentence));
    };
    if value("certificates").is_none() && value("acme").is_none() {
        let sentence = "[tls] has no `certificates`; add the files of at least one, such as \
                        certificates = [{ cert = \"site.pem\", key = \"site.key\" }], or \
                        `acme` to have them issued";
        fault("certificates", sentence);
    }
    if let Some(sentence) = check_acme(tls, config) {
        fault("acme", sentence);
    }
    let asks = tls.client_certificates != ClientCertificates::Off;
    if asks && value("client_ca").is_none() {
        let sentence = "`client_certificates` needs `client_ca`; add the file with the CA \
                        certificates";
        fault("client_certificates", sentence);
    }
    if !asks && value("client_ca").is_some() && value("client_certificates").is_none() {
        let sentence = "`client_ca` is for `client_certificates`; add that, or leave this out";
        fault("client_ca", sentence);
    }
    if tls.hsts_include_subdomains && tls.hsts.is_none() {
        let sentence = "`hsts_include_subdomains` is for `hsts`; add that, or leave this out";
        fault("hsts_include_subdomains", sentence);
    }
    let is_for_all = tls.hsts_include_subdomains && tls.hsts.is_some_and(|age| age >= PRELOAD_AGE);
    if tls.hsts_preload && !is_for_all {
        let sentence = "`hsts_preload` needs `hsts` of at least \"365d\" and \
                        `hsts_include_subdomains`; the preload list of browsers requires it \
                        (hstspreload.org)";
        fault("hsts_preload", sentence);
    }
    if tls.redirect.is_some() && !table.contains_key("listen") {
        let sentence = "`redirect` is for plain HTTP, and the file has no `listen`; add one \
                        before the first section, such as listen = \":80\"";
        fault("redirect", sentence);
    }
    if tls.redirect.is_some() && tls.port() == 0 {
        let sentence = "`redirect` needs a port; give `listen` in [tls] one other than \
                        0";
        fault("redirect", sentence);
    }
    let shared = |address: &&SocketAddr| {
        let taken = config.listen.contains(address) || config.admin == Some(**address);
        address.port() != 0 && taken
    };
    if let Some(shared) = tls.listen.iter().find(shared) {
        let sentence = format!(
            "`listen` has {shared}, which is also an address of plain HTTP; choose another port"
        );
        fault("listen", &sentence);
    }
    faults
}
