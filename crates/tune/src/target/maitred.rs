//! maitred: its configuration file with another number of workers, and `maitred reload`.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::replaced_file::TRIAL;
use super::{Master, Reload, TunedServer};
use crate::measurement::Setting;
use crate::php_terms::{JIT_ENTRIES, PhpTerms};
use crate::site::Site;

/// Settings that a static pool does not allow.
const NOT_OF_STATIC: [&str; 3] = ["start_servers", "min_spare_servers", "max_spare_servers"];

/// php.ini entries of a pool that scripts cannot change.
const ADMIN_VALUES: &str = "php_admin_value";

/// maitred as the server.
pub(super) struct MaitredServer {
    /// The path as the server knows it, since paths in the file may be relative to it.
    pub(super) config: PathBuf,
    pub(super) section: String,
    pub(super) reload: Reload,
}

impl MaitredServer {
    pub(super) fn of(site: &Site, config: &Path, reload: Reload) -> MaitredServer {
        MaitredServer { config: config.to_owned(), section: site.pool.section.clone(), reload }
    }
}

impl TunedServer for MaitredServer {
    fn name(&self) -> &'static str {
        "maitred"
    }

    fn takes_file(&self) -> bool {
        false
    }

    fn trial(&self, before: &[u8], setting: Setting) -> Result<String, String> {
        trial(&String::from_utf8_lossy(before), &self.section, setting)
    }

    fn check(&self, _: &Master, _: Option<u32>) -> Result<(), String> {
        check(&self.config)
    }

    fn refusal(&self, _: &Master) -> Option<String> {
        check(&self.config).err()
    }

    fn reload(&mut self, _: &Master, _: Setting) -> Result<(), String> {
        (self.reload)().map(|_| ())
    }

    fn start_command(&self) -> String {
        "systemctl start maitred".to_owned()
    }
}

fn trial(before: &str, section: &str, setting: Setting) -> Result<String, String> {
    let mut table: Table =
        before.parse().map_err(|why| format!("the configuration cannot be parsed: {why}"))?;
    let pools = table.entry("pools").or_insert_with(|| Value::Table(Table::new()));
    let pool = pools
        .as_table_mut()
        .map(|pools| pools.entry(section).or_insert_with(|| Value::Table(Table::new())));
    let pool = pool.and_then(Value::as_table_mut);
    let pool = pool.ok_or_else(|| format!("[pools.{section}] is no section"))?;
    match setting {
        Setting::AsItWas => {}
        Setting::Workers(workers) => set_workers(pool, workers),
        Setting::Php(terms) => set_php(pool, terms)?,
    }
    let text = toml::to_string(&table)
        .map_err(|why| format!("the configuration cannot be written: {why}"))?;
    Ok(format!(
        "# {TRIAL} and restores the original; if it has not, run maitred tune --undo\n{text}"
    ))
}

fn set_workers(pool: &mut Table, workers: u32) {
    for name in NOT_OF_STATIC {
        pool.remove(name);
    }
    pool.insert("pm".to_owned(), Value::String("static".to_owned()));
    pool.insert("max_children".to_owned(), Value::Integer(i64::from(workers)));
}

fn set_php(pool: &mut Table, terms: PhpTerms) -> Result<(), String> {
    if terms.preload {
        pool.insert("preload".to_owned(), Value::Boolean(true));
    }
    if terms.jit {
        let entries = pool.entry(ADMIN_VALUES).or_insert_with(|| Value::Table(Table::new()));
        let entries = entries.as_table_mut();
        let entries = entries.ok_or_else(|| format!("`{ADMIN_VALUES}` is no table"))?;
        for (name, value) in JIT_ENTRIES {
            entries.insert(name.to_owned(), Value::String(value.to_owned()));
        }
    }
    Ok(())
}

/// `maitred check`.
pub(super) fn check(config: &Path) -> Result<(), String> {
    match maitred_config::load(config) {
        Ok(_) => Ok(()),
        Err(mistakes) => {
            let text = mistakes.to_string();
            Err(format!("maitred check rejects the configuration: {}", text.replace('\n', "; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_pools_workers_change() {
        let before = "listen = [\"127.0.0.1:80\"]\n# mine\n[pools.www]\npm = \
                      \"dynamic\"\nmax_children = 5\nstart_servers = 2\nuser = \
                      \"www-data\"\n[[sites]]\nroot = \"/srv\"\n";
        let text = trial(before, "www", Setting::Workers(40)).unwrap();
        assert!(text.contains(TRIAL));
        let table: Table = text.parse().unwrap();
        let pool = table["pools"]["www"].as_table().unwrap();
        assert_eq!(pool["max_children"].as_integer(), Some(40));
        assert_eq!(
            (pool["pm"].as_str(), pool["user"].as_str()),
            (Some("static"), Some("www-data"))
        );
        assert!(!pool.contains_key("start_servers"));
        assert_eq!(table["sites"][0]["root"].as_str(), Some("/srv"));
        assert!(trial("pools = 1", "www", Setting::Workers(4)).is_err());
    }

    #[test]
    fn settings_of_php_are_added_to_those_of_the_pool() {
        let before = "[pools.www]\nmax_children = 5\nphp_admin_value = { memory_limit = \"1G\" }\n";
        let terms = PhpTerms { preload: true, jit: true };
        let text = trial(before, "www", Setting::Php(terms)).unwrap();
        let table: Table = text.parse().unwrap();
        let pool = table["pools"]["www"].as_table().unwrap();
        assert_eq!(pool["preload"].as_bool(), Some(true));
        assert_eq!(pool["max_children"].as_integer(), Some(5));
        let entry = |name: &str| pool["php_admin_value"][name].as_str();
        assert_eq!(entry("memory_limit"), Some("1G"));
        assert_eq!(entry("opcache.jit"), Some("tracing"));
        assert_eq!(entry("opcache.jit_buffer_size"), Some("64M"));
    }
}
