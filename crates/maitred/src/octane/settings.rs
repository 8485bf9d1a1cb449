//! Octane's environment and Caddyfile as a configuration of maitred.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use maitred_config::CertificateFiles;
use maitred_import::FileReader;
use maitred_import::caddy::CaddySource;
use maitred_import::report::{ImportReport, Outcome};
use maitred_tls::permits;
use toml::{Table, Value};

use super::log_lines::ACCESS_LOG_FORMAT;

/// The name of the Caddyfile's site in Octane's environment.
const SERVER_NAME: &str = "CADDY_SERVER_SERVER_NAME";

/// Port of Caddy's admin address if Octane names none.
const DEFAULT_ADMIN_PORT: u16 = 2019;

/// What is left out of a Caddyfile without a loss: the log of Octane has its own form.
const WITHOUT_LOSS: [&str; 2] = ["level", "format"];

/// A variable of the environment.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A configuration, and what maitred does beside serving it.
#[derive(Debug)]
pub struct OctaneSettings {
    /// The configuration without certificates.
    config: Table,
    /// The addresses of HTTPS with a certificate of the user's own authority; empty without.
    pub own_tls: Vec<SocketAddr>,
    /// Host and port of the admin address.
    pub admin: (String, u16),
    /// maitred's log level.
    pub log_level: &'static str,
    /// The worker script.
    pub script: String,
    /// The pools with a worker script.
    pub pools: Vec<String>,
    /// Directives that maitred does without, each a sentence.
    pub warnings: Vec<String>,
}

impl OctaneSettings {
    /// Reads the Caddyfile with the environment of Octane.
    ///
    /// # Errors
    /// One sentence: the Caddyfile cannot be read, or asks for what maitred does not have.
    pub fn read(
        files: &dyn FileReader,
        caddyfile: &Path,
        environment: Environment<'_>,
    ) -> Result<OctaneSettings, String> {
        let name = environment(SERVER_NAME).unwrap_or_default();
        let local = name.strip_prefix("https://").filter(|address| is_local(address));
        let plain = local.map(|address| format!("http://{address}"));
        let imported = maitred_import::caddy::import(&CaddySource {
            files,
            main: &caddyfile.display().to_string(),
            php_fpm: &[],
            environment: &|asked| match (&plain, asked) {
                // Its certificate comes from the user's own authority.
                (Some(plain), SERVER_NAME) => Some(plain.clone()),
                // Octane leaves out what an older version of its Caddyfile does not have.
                _ if asked.starts_with("CADDY_") => Some(environment(asked).unwrap_or_default()),
                _ => environment(asked),
            },
        })?;
        let warnings = judged(&imported.report)?;
        let config: Table = imported.toml.parse().map_err(|why| format!("{why}"))?;
        let own_tls = match local {
            Some(_) => addresses(&config),
            None => Vec::new(),
        };
        let admin = admin(environment)?;
        let mut settings = OctaneSettings {
            config,
            own_tls,
            admin,
            log_level: log_level(environment),
            script: String::new(),
            pools: Vec::new(),
            warnings,
        };
        settings.set_pools(environment)?;
        settings.set_logs();
        settings.set_redirect(environment);
        Ok(settings)
    }

    /// The worker pools: what the environment says of them.
    fn set_pools(&mut self, environment: Environment<'_>) -> Result<(), String> {
        let max_requests = number(environment, "MAX_REQUESTS")?;
        let seconds = number(environment, "REQUEST_MAX_EXECUTION_TIME")?;
        let pools = self.config.get_mut("pools").and_then(Value::as_table_mut);
        for (name, pool) in pools.into_iter().flatten() {
            let Some(pool) = pool.as_table_mut() else {
                continue;
            };
            pool.insert("pass_env".to_owned(), "all".into());
            let Some(script) = pool.get("script").and_then(Value::as_str) else {
                continue;
            };
            self.script = script.to_owned();
            self.pools.push(name.clone());
            if pool.contains_key("max_children") {
                pool.insert("pm".to_owned(), "static".into());
            }
            if max_requests > 0 {
                pool.insert("max_requests".to_owned(), max_requests.into());
                // The script would end before its successor has booted.
                let twice = (2 * max_requests).to_string();
                set_entry(pool, "env", "MAX_REQUESTS", twice.into());
            }
            if seconds > 0 {
                set_entry(pool, "php_value", "max_execution_time", seconds.into());
                // PHP counts processor time, Octane means all time; the script goes first.
                pool.insert("request_terminate_timeout".to_owned(), (seconds + 1).into());
            }
        }
        match self.pools.is_empty() {
            true => Err(
                "the Caddyfile has no worker script; expected the one of Octane, with `worker` in \
                 the block `frankenphp`"
                    .to_owned(),
            ),
            false => Ok(()),
        }
    }

    /// Lines of requests are of level INFO in Caddy.
    fn set_logs(&mut self) {
        self.config.insert("access_log_format".to_owned(), ACCESS_LOG_FORMAT.into());
        if !matches!(self.log_level, "debug" | "info") {
            self.config.remove("access_log");
        }
    }

    /// Caddy redirects from port 80, unless Octane switches that off.
    fn set_redirect(&mut self, environment: Environment<'_>) {
        if self.own_tls.is_empty() {
            return;
        }
        let options = environment("CADDY_GLOBAL_OPTIONS").unwrap_or_default();
        self.config.remove("listen");
        if !options.contains("disable_redirects") {
            self.config.insert("listen".to_owned(), "[::]:80".into());
        }
    }

    /// The `maitred.toml`, with this admin socket, and a certificate for `own_tls`.
    pub fn toml(&self, admin_socket: &Path, certificate: Option<&CertificateFiles>) -> String {
        let mut config = self.config.clone();
        config.insert("admin_socket".to_owned(), admin_socket.display().to_string().into());
        if let Some(files) = certificate {
            let listen: Vec<Value> =
                self.own_tls.iter().map(|one| one.to_string().into()).collect();
            let path = |file: &PathBuf| Value::from(file.display().to_string());
            let pair =
                [("cert".to_owned(), path(&files.cert)), ("key".to_owned(), path(&files.key))];
            let pair = Value::Table(pair.into_iter().collect());
            let mut tls = Table::new();
            tls.insert("listen".to_owned(), Value::Array(listen));
            tls.insert("certificates".to_owned(), Value::Array(vec![pair]));
            tls.insert("redirect".to_owned(), config.contains_key("listen").into());
            config.insert("tls".to_owned(), Value::Table(tls));
        }
        config.to_string()
    }

    /// The workers that Octane asked for; none is as many as needed.
    pub fn workers(&self) -> Option<i64> {
        let pool = self.config.get("pools")?.get(self.pools.first()?)?;
        pool.get("max_children")?.as_integer()
    }
}

/// Sets an entry of a table of the pool, beside those that the Caddyfile has set.
fn set_entry(pool: &mut Table, table: &str, name: &str, value: Value) {
    let entries = pool.entry(table).or_insert_with(|| Value::Table(Table::new()));
    if let Some(entries) = entries.as_table_mut() {
        entries.insert(name.to_owned(), value);
    }
}

/// What the import has left out: refused if a client or the application could notice.
fn judged(report: &ImportReport) -> Result<Vec<String>, String> {
    let mut warnings = Vec::new();
    for finding in report.findings() {
        let first = finding.what.split_whitespace().next().unwrap_or_default();
        let text = format!("{}: {}: {}", finding.place, finding.what, finding.why);
        match finding.outcome {
            Outcome::LeftOutAccess => return Err(text),
            Outcome::LeftOut if first == "mercure" => return Err(text),
            Outcome::LeftOut if !WITHOUT_LOSS.contains(&first) => warnings.push(text),
            _ => {}
        }
    }
    Ok(warnings)
}

/// Whether the user's own authority may certify the host of this `HOST:PORT`.
fn is_local(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.is_unspecified() || permits(ip.to_canonical()),
        Err(_) => host.is_empty() || host == "localhost",
    }
}

fn addresses(config: &Table) -> Vec<SocketAddr> {
    let listen = config.get("listen").and_then(Value::as_array);
    let texts = listen.into_iter().flatten().filter_map(Value::as_str);
    texts.filter_map(|text| text.parse().ok()).collect()
}

fn admin(environment: Environment<'_>) -> Result<(String, u16), String> {
    let named = |name: &str| environment(name).filter(|value| !value.is_empty());
    let host = named("CADDY_SERVER_ADMIN_HOST").unwrap_or_else(|| "localhost".to_owned());
    let port = match named("CADDY_SERVER_ADMIN_PORT") {
        None => DEFAULT_ADMIN_PORT,
        Some(text) => text.parse().map_err(|_| {
            format!("CADDY_SERVER_ADMIN_PORT is {text:?}; expected a port such as 2019")
        })?,
    };
    Ok((host, port))
}

fn log_level(environment: Environment<'_>) -> &'static str {
    let level = environment("CADDY_SERVER_LOG_LEVEL").unwrap_or_default();
    match level.to_ascii_uppercase().as_str() {
        "DEBUG" => "debug",
        "WARN" => "warn",
        "ERROR" | "PANIC" | "FATAL" => "error",
        _ => "info",
    }
}

/// A whole number of the environment; 0 if there is none.
fn number(environment: Environment<'_>, name: &str) -> Result<i64, String> {
    match environment(name).filter(|text| !text.trim().is_empty()) {
        None => Ok(0),
        Some(text) => match text.trim().parse::<u32>() {
            Ok(number) => Ok(number.into()),
            Err(_) => Err(format!("{name} is {text:?}; expected a whole number such as 500")),
        },
    }
}

#[cfg(test)]
#[path = "settings_tests.rs"]
mod tests;
