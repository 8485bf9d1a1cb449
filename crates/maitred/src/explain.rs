//! `maitred explain`: how a request would be handled.

use std::net::IpAddr;
use std::process::ExitCode;

use maitred_config::{Config, LoadedConfig};
use maitred_front::explain::Question;
use maitred_text::humanize::printable_pattern;

use crate::command::Explain;
use crate::exit_code::{EXIT_SUCCESS, complain, fail, refuse};

/// Explains how a request would be handled, rule by rule.
pub fn explain(asked: &Explain) -> ExitCode {
    let LoadedConfig { config, remarks, .. } =
        match maitred_config::load_with_remarks(&asked.config) {
            Ok(loaded) => loaded,
            Err(mistakes) => return refuse(&mistakes),
        };
    for remark in remarks {
        complain(&format!("warning: {remark}"));
    }
    let Some(question) = question(asked, &config) else {
        return refuse(
            &"this is no URL; expected one such as http://shop.example/page, or a path such as \
               /page",
        );
    };
    match maitred_front::explain::explain(&config, &question) {
        Ok(explanation) => {
            let asked = &question;
            let query = asked.query.as_ref().map(|query| format!("?{query}"));
            println!(
                "{} {}://{}{}{} from {}",
                asked.method,
                asked.scheme,
                asked.authority,
                asked.path,
                query.unwrap_or_default(),
                asked.client
            );
            for (about, what) in explanation.lines {
                // Names of folders and text of `.htaccess` files are the tenant's.
                let (about, what) = (printable_pattern(&about), printable_pattern(&what));
                println!("  {about:<16} {what}");
            }
            ExitCode::from(EXIT_SUCCESS)
        }
        Err(why) => fail(&why),
    }
}

/// The request that a URL stands for. A path alone is one of the first site.
fn question(asked: &Explain, config: &Config) -> Option<Question> {
    if asked.url.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return None;
    }
    let (scheme, rest) = match asked.url.split_once("://") {
        Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
        Some(_) => return None,
        None => (usual_scheme(config), asked.url.as_str()),
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, target) = rest.split_at(end);
    let target = target.split('#').next().unwrap_or_default();
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query.to_owned())),
        None => (target, None),
    };
    let authority = match authority {
        "" if rest == asked.url => first_host(config),
        "" => return None,
        named => named.to_owned(),
    };
    Some(Question {
        scheme: scheme.to_owned(),
        authority,
        path: if path.is_empty() { "/".to_owned() } else { path.to_owned() },
        query,
        method: asked.method.to_ascii_uppercase(),
        fields: asked.headers.iter().map(|field| named(field)).collect(),
        client: asked.client.unwrap_or(IpAddr::from([127, 0, 0, 1])),
    })
}

/// The name and the value of a header.
fn named(field: &str) -> (String, String) {
    let (name, value) = field.split_once(':').unwrap_or((field, ""));
    (name.trim().to_owned(), value.trim().to_owned())
}

/// The scheme of the site's pages.
fn usual_scheme(config: &Config) -> &'static str {
    match config.tls.as_ref().and_then(|tls| tls.redirect) {
        Some(_) => "https",
        None => "http",
    }
}

fn first_host(config: &Config) -> String {
    use maitred_config::Host;
    let host = config.sites.first().and_then(|site| site.hosts.first());
    match host {
        Some(Host::Exact(name)) => name.clone(),
        Some(Host::Below(name)) => format!("www.{name}"),
        Some(Host::Any) | None => "localhost".to_owned(),
    }
}
