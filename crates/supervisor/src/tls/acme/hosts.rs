//! The hosts with certificates by ACME, and their stored certificates.

use std::time::SystemTime;

use maitred_config::{Acme, Config, Host};
use maitred_tls::{Material, Server, examine};

use crate::error::Error;
use crate::tls::acme::schedule::{AcmeHost, renewal_of};
use crate::tls::acme::shared_process::{key_note, key_text};
use crate::tls::acme::store::Store;
use crate::tls::host_owners::HostOwners;

/// The hosts of a configuration with certificates by ACME.
#[derive(Debug, Default)]
pub struct AcmeHosts {
    /// Those hosts.
    pub wanted: Vec<AcmeHost>,
    /// Warnings about other hosts, and about unusable files: one sentence each.
    pub notes: Vec<String>,
}

/// Adds the stored certificates to those of files, which `server` was made of.
///
/// # Errors
/// Sites with hosts that ACME issues no certificate for.
pub fn add_kept(
    config: &Config,
    acme: &Acme,
    server: &Server,
    material: &mut Material,
) -> Result<AcmeHosts, Error> {
    let mut found = AcmeHosts::default();
    let open = open_wildcards(config, server, &material.closed);
    if let Some(name) = open.first() {
        let sentence = without_certificate(name);
        if !has_files(config) {
            return Err(Error::Configuration(sentence));
        }
        // A tenant may have left the name out of its file.
        found.notes.push(format!("{sentence}; TLS is closed for it until then"));
        material.closed.extend(open);
    }
    if let Some(shared) = &acme.shared {
        key_text(shared).map_err(Error::Configuration)?;
    }
    found.notes.extend(acme.shared.as_ref().and_then(key_note));
    for (host, why) in acme.left_out(config) {
        if !server.covers(host) {
            let sentence = format!("no certificate is requested for {host}: it {why}");
            found.notes.push(sentence);
        }
    }
    let (store, owners) = (Store::of(acme), HostOwners::of(config));
    for name in acme.names(config) {
        if server.covers_first(name) {
            continue;
        }
        // Until then the file has TLS for it, though it yields to the certificate.
        let is_awaited = !server.covers_at(name, SystemTime::now())
            || !owners.have_interim(name, &material.certificates);
        let is_closed = material.closed.iter().any(|closed| closed == name);
        let mut valid = None;
        match store.load(name).and_then(|pair| {
            let examined = pair.map(|pair| Ok((examine(&pair, name)?, pair)));
            examined.transpose()
        }) {
            Ok(Some((validity, pair))) => {
                valid = Some(validity);
                material.certificates.push(pair);
                // The file that cannot be used has covered other hosts.
                material.closed.retain(|closed| closed != name);
            }
            _ if is_closed => continue,
            Ok(None) => material.awaited.extend(is_awaited.then(|| name.to_owned())),
            Err(fault) => {
                material.awaited.extend(is_awaited.then(|| name.to_owned()));
                let sentence = format!("{fault}; a new certificate is requested");
                found.notes.push(sentence);
            }
        }
        found.wanted.push(AcmeHost { name: name.to_owned(), valid });
    }
    let is_empty = material.certificates.is_empty() && material.closed.is_empty();
    if is_empty && found.wanted.is_empty() {
        let sentence = "`acme` has no host to get a certificate for: no site names one that it can \
                        be asked for; add `hosts` to a site";
        let notes = found.notes.iter().map(|note| format!("; {note}"));
        let notes: String = notes.collect();
        return Err(Error::Configuration(format!("{sentence}{notes}")));
    }
    Ok(found)
}

/// The state of a host, for people.
pub fn in_words(host: &AcmeHost) -> String {
    let name = &host.name;
    match &host.valid {
        None => format!("{name}: no certificate is stored; the running server requests one"),
        Some(valid) => {
            let expires = httpdate::fmt_http_date(valid.until);
            let renewed = httpdate::fmt_http_date(renewal_of(name, valid));
            format!("{name}: its certificate expires {expires} and is renewed {renewed}")
        }
    }
}

/// Whether certificates come from files as well: what they cover changes with them.
fn has_files(config: &Config) -> bool {
    config.tls.as_ref().is_some_and(|tls| !tls.certificates.is_empty())
}

/// Wildcard names (`*.`) without a certificate: only DNS could prove that they are ours.
fn open_wildcards(config: &Config, server: &Server, closed: &[String]) -> Vec<String> {
    let hosts = config.sites.iter().flat_map(|site| &site.hosts);
    let names = hosts.filter(|host| matches!(host, Host::Below(_))).map(ToString::to_string);
    names.filter(|name| !server.covers(name) && !closed.contains(name)).collect()
}

fn without_certificate(name: &str) -> String {
    format!(
        "a site has the host `{name}`, for which `acme` can get no certificate: authorities want \
         it shown by DNS, which maitred does not do; name the hosts one by one, or add a \
         certificate for `{name}` to `certificates`"
    )
}
