//! The configuration of the trial: the imported one at spare addresses, with few workers, and with
//! all logs in a folder of its own.

use std::net::SocketAddr;
use std::path::Path;

use toml::{Table, Value};

/// Most workers of a pool: requests come one after the other, and may call the site themselves.
const MAX_CHILDREN: i64 = 4;

/// Settings of the server that belong to the real one: its files, its addresses, and the services
/// that it joins.
const OF_SERVER: [&str; 9] = [
    "access_log",
    "admin",
    "admin_socket",
    "agent_check",
    "cache_dir",
    "error_log",
    "purge_log",
    "traces",
    "user_settings",
];

/// Jobs, which would work on live data beside those of the real server.
const JOBS: [&str; 2] = ["commands", "schedules"];

/// Settings of a pool that the trial does not have.
const OF_POOL: [&str; 9] = [
    "start_servers",
    "min_spare_servers",
    "max_spare_servers",
    "max_spawn_rate",
    "slowlog",
    "request_slowlog_timeout",
    "access_log",
    "listen",
    "error_log",
];

/// The addresses of the trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrialAddresses {
    /// Plain HTTP.
    pub plain: SocketAddr,
    /// TLS.
    pub tls: SocketAddr,
}

impl std::fmt::Display for TrialAddresses {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} and {}", self.plain, self.tls.port())
    }
}

/// The configuration of the trial. `folder` gets its logs and spooled bodies.
///
/// # Errors
/// The configuration is no TOML, or includes other files, of which no trial is made.
pub fn trial_config(
    toml: &str,
    addresses: TrialAddresses,
    folder: &Path,
) -> Result<String, String> {
    let mut all: Table = toml.parse().map_err(|why| format!("the configuration: {why}"))?;
    if all.contains_key("include") {
        return Err("a configuration with `include` cannot be tried: its other files have the \
                    addresses, logs and jobs of the real server; write all of it into one file"
            .to_owned());
    }
    let text = |path: &Path| Value::String(path.to_string_lossy().into_owned());
    OF_SERVER.iter().for_each(|name| drop(all.remove(*name)));
    all.insert("listen".to_owned(), list(addresses.plain));
    all.insert("spool_dir".to_owned(), text(&folder.join("spool")));
    if let Some(Value::Table(tls)) = all.get_mut("tls") {
        tls.insert("listen".to_owned(), list(addresses.tls));
        tls.remove("acme");
    }
    if let Some(Value::Table(defaults)) = all.get_mut("pool_defaults") {
        OF_POOL.iter().for_each(|name| drop(defaults.remove(*name)));
        for table in ["php_value", "php_admin_value"] {
            let values = defaults.get_mut(table).and_then(Value::as_table_mut);
            drop(values.map(|values| values.remove("error_log")));
        }
    }
    for (name, pool) in all.get_mut("pools").and_then(Value::as_table_mut).into_iter().flatten() {
        let Value::Table(pool) = pool else { continue };
        OF_POOL.iter().chain(&JOBS).for_each(|name| drop(pool.remove(*name)));
        let children = pool.get("max_children").and_then(Value::as_integer);
        let children = children.unwrap_or(MAX_CHILDREN).min(MAX_CHILDREN);
        pool.insert("max_children".to_owned(), Value::Integer(children));
        pool.insert("pm".to_owned(), Value::String("ondemand".to_owned()));
        for table in ["php_value", "php_admin_value"] {
            let values = pool.get_mut(table).and_then(Value::as_table_mut);
            if let Some(log) = values.and_then(|values| values.get_mut("error_log")) {
                *log = text(&folder.join(php_log(name)));
            }
        }
    }
    for site in all.get_mut("sites").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Value::Table(site) = site {
            site.remove("access_log");
            site.remove("app_cron");
        }
    }
    Ok(all.to_string())
}

/// The name of the file with PHP's log of a pool.
pub fn php_log(pool: &str) -> String {
    format!("php-{pool}.log")
}

fn list(address: SocketAddr) -> Value {
    Value::Array(vec![Value::String(address.to_string())])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trial_has_spare_addresses_few_workers_and_logs_of_its_own() {
        let toml = "listen = [\"0.0.0.0:80\"]\nerror_log = \"/var/log/m.log\"\n[tls]\n\
                    listen = [\"0.0.0.0:443\"]\n[pools.www]\nuser = \"www-data\"\n\
                    pm = \"dynamic\"\n\
                    max_children = 50\nstart_servers = 20\nslowlog = \"/var/log/slow\"\n\
                    php_admin_value.error_log = \"/var/log/php.log\"\n[[sites]]\nroot = \"/srv\"\n\
                    access_log = \"/var/log/a.log\"\n";
        let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
        let addresses = TrialAddresses { plain: address(1080), tls: address(1443) };
        let made = trial_config(toml, addresses, Path::new("/tmp/trial")).unwrap();
        for old in [":80\"", ":443\"", "/var/log", "dynamic", "start_servers", "= 50"] {
            assert!(!made.contains(old), "{old}: {made}");
        }
        let made: Table = made.parse().unwrap();
        assert_eq!(made["pools"]["www"]["user"].as_str(), Some("www-data"));
        assert_eq!(made["pools"]["www"]["max_children"].as_integer(), Some(4));
        assert_eq!(made["listen"][0].as_str(), Some("127.0.0.1:1080"));
        assert_eq!(made["tls"]["listen"][0].as_str(), Some("127.0.0.1:1443"));
    }

    #[test]
    fn the_trial_runs_no_jobs_and_joins_no_service_of_the_real_server() {
        let toml = "cache_dir = \"/var/cache/m\"\nagent_check = \"0.0.0.0:99\"\n\
                    [purge_log]\nredis = \"redis://shared\"\n[traces]\nendpoint = \"http://t\"\n\
                    [pool_defaults]\nslowlog = \"/var/log/slow\"\n\
                    php_admin_value.error_log = \"/var/log/php.log\"\n\
                    [[pools.a.commands]]\nname = \"queue\"\ncommand = [\"work\"]\n\
                    [[pools.a.schedules]]\nname = \"run\"\ncommand = [\"run\"]\n\
                    [[sites]]\nroot = \"/srv\"\napp_cron = true\n";
        let address = SocketAddr::from(([127, 0, 0, 1], 1080));
        let addresses = TrialAddresses { plain: address, tls: address };
        let made = trial_config(toml, addresses, Path::new("/tmp/trial")).unwrap();
        for real in ["/var/", ":99", "redis", "http://t", "commands", "schedules", "cron"] {
            assert!(!made.contains(real), "{real}: {made}");
        }
        let toml = "include = \"sites.d/*.toml\"\n[pools.a]\n";
        let why = trial_config(toml, addresses, Path::new("/tmp/trial")).unwrap_err();
        assert!(why.contains("`include`"), "{why}");
    }

    #[test]
    fn each_pool_has_a_php_log_of_its_own() {
        let toml = "[pools.a]\nphp_value.error_log = \"/var/log/a\"\n\
                    [pools.b]\nphp_admin_value.error_log = \"/var/log/b\"\n[pools.c]\n";
        let address = SocketAddr::from(([127, 0, 0, 1], 1080));
        let addresses = TrialAddresses { plain: address, tls: address };
        let made = trial_config(toml, addresses, Path::new("/tmp/trial")).unwrap();
        let made: Table = made.parse().unwrap();
        let log = |pool: &str, table: &str| made["pools"][pool][table]["error_log"].clone();
        assert_eq!(log("a", "php_value").as_str(), Some("/tmp/trial/php-a.log"));
        assert_eq!(log("b", "php_admin_value").as_str(), Some("/tmp/trial/php-b.log"));
        assert!(made["pools"]["c"].get("php_value").is_none());
    }
}
