//! What a development server does differently.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::model::config::Config;
use crate::model::log_format::LogFormat;
use crate::model::log_target::LogTarget;

/// How long a stop of a development server waits for running requests. With what workers may take
/// to end after it, a stop takes two seconds.
pub const DEVELOPMENT_STOP_TIMEOUT: Duration = Duration::from_millis(1500);

/// Entries of php.ini: changed scripts are seen at once, and errors are logged. PHP ignores those
/// of an extension that is not loaded.
const INI: [(&str, &str); 3] =
    [("opcache.validate_timestamps", "1"), ("opcache.revalidate_freq", "0"), ("log_errors", "1")];

/// The server is one for development, on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Development {
    /// Lines on the terminal have colours.
    pub colors: bool,
    /// The page about a fatal error is shown to clients on this machine: no proxy is trusted, so
    /// that a client's address is that of its connection.
    pub shows_errors: bool,
}

impl Config {
    /// This configuration for development: a line for each request on the terminal, unless there
    /// is an access log; PHP's fatal errors in the page; the environment of this process; changed
    /// scripts at once; a short stop.
    #[must_use]
    pub fn for_development(mut self, colors: bool) -> Config {
        self.development =
            Some(Development { colors, shows_errors: self.trusted_proxies.is_empty() });
        if self.access_log.is_none() {
            self.access_log = Some(LogTarget::Stderr);
            self.access_log_format = LogFormat::terminal(colors);
        }
        self.process_control_timeout = self.process_control_timeout.min(DEVELOPMENT_STOP_TIMEOUT);
        self.stop_delay = Duration::ZERO;
        for pool in &mut self.pools {
            let own = INI.map(|(name, value)| (name.to_owned(), value.to_owned()));
            pool.defines.extend(own);
            pool.development = self.development;
            if pool.pass_env.is_empty() {
                pool.pass_env = vec!["*".to_owned()];
            }
        }
        self
    }

    /// This configuration with further PHP settings (`php_value`) and environment variables (`env`)
    /// of every pool, which replace those of the same name.
    #[must_use]
    pub fn with_php(mut self, values: &[(String, String)], env: &[(String, String)]) -> Config {
        for pool in &mut self.pools {
            for (name, value) in values {
                pool.php_admin_value.remove(name);
                pool.php_value.insert(name.clone(), value.clone());
            }
            for (name, value) in env {
                pool.env.retain(|(other, _)| other != name);
                pool.env.push((name.clone(), value.clone()));
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    fn shows_errors(text: &str) -> Option<bool> {
        let config = crate::parse(text, Path::new("a.toml")).unwrap().for_development(false);
        config.pools.first().and_then(|pool| pool.development).map(|of| of.shows_errors)
    }

    #[test]
    fn pages_about_errors_need_addresses_that_no_proxy_has_set() {
        let site = "[[sites]]\nroot = \"/srv\"\n";
        assert_eq!(shows_errors(site), Some(true));
        let proxied = format!("trusted_proxies = [\"127.0.0.1\"]\n{site}");
        assert_eq!(shows_errors(&proxied), Some(false));
    }
}
