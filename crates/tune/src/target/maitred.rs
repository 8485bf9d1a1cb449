//! maitred: its configuration file with another number of workers, and `maitred reload`.

use std::path::{Path, PathBuf};

use maitred_config::{Config, ProcessManager};
use toml::{Table, Value};

use super::replaced_file::TRIAL;
use super::{Master, Reload, TunedServer};
use crate::measurement::Setting;
use crate::php_terms::php_term::{
    CACHE_SIZES, FILE_CACHE, JIT_ENTRIES, PhpTerms, VALIDATE_TIMESTAMPS,
};
use crate::php_terms::trial_folder;
use crate::site::Site;

/// Settings that a static pool does not allow.
const NOT_OF_STATIC: [&str; 3] = ["start_servers", "min_spare_servers", "max_spare_servers"];

/// php.ini entries of a pool that scripts cannot change.
const ADMIN_VALUES: &str = "php_admin_value";

/// Other tables of such entries; an entry may be in one of them only.
const OTHER_VALUES: [&str; 3] = ["php_value", "php_flag", "php_admin_flag"];

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

    fn check(&self, _: &Master, workers: Option<u32>) -> Result<(), String> {
        let config = load(&self.config)?;
        workers.map_or(Ok(()), |workers| in_force(&config, &self.section, workers))
    }

    fn refusal(&self, _: &Master) -> Option<String> {
        check(&self.config).err()
    }

    fn reload(&mut self, _: &Master, setting: Setting) -> Result<(), String> {
        let workers = match setting {
            Setting::Workers(workers) => Some(workers),
            Setting::AsItWas | Setting::Php(_) | Setting::OpcacheOff => None,
        };
        (self.reload)(workers).map(|_| ())
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
        Setting::Php(terms) => set_php(pool, terms, &trial_folder::path(section))?,
        Setting::OpcacheOff => set_entry(pool, "opcache.enable", "0")?,
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

fn set_php(pool: &mut Table, terms: PhpTerms, file_cache: &Path) -> Result<(), String> {
    if terms.preload {
        pool.insert("preload".to_owned(), Value::Boolean(true));
    }
    for size in CACHE_SIZES {
        if let Some(value) = terms.size(size) {
            set_entry(pool, size.entry(), &size.text(value))?;
        }
    }
    if terms.jit {
        for (name, value) in JIT_ENTRIES {
            set_entry(pool, name, value)?;
        }
    }
    if terms.validate_timestamps {
        set_entry(pool, VALIDATE_TIMESTAMPS, "0")?;
    }
    if terms.file_cache {
        set_entry(pool, FILE_CACHE, &file_cache.display().to_string())?;
    }
    Ok(())
}

/// Sets an entry of php.ini. The pool may have it in another table.
fn set_entry(pool: &mut Table, name: &str, value: &str) -> Result<(), String> {
    for table in OTHER_VALUES {
        if let Some(entries) = pool.get_mut(table).and_then(Value::as_table_mut) {
            entries.remove(name);
        }
    }
    let entries = pool.entry(ADMIN_VALUES).or_insert_with(|| Value::Table(Table::new()));
    let entries = entries.as_table_mut();
    let entries = entries.ok_or_else(|| format!("`{ADMIN_VALUES}` is no table"))?;
    entries.insert(name.to_owned(), Value::String(value.to_owned()));
    Ok(())
}

/// `maitred check`.
pub(super) fn check(config: &Path) -> Result<(), String> {
    load(config).map(|_| ())
}

fn load(config: &Path) -> Result<Config, String> {
    maitred_config::load(config).map_err(|mistakes| {
        let text = mistakes.to_string();
        format!("maitred check rejects the configuration: {}", text.replace('\n', "; "))
    })
}

/// Checks that a pool has this number of workers: variables of the environment replace settings of
/// the file.
fn in_force(config: &Config, section: &str, workers: u32) -> Result<(), String> {
    let pool = config.pool(section);
    let is_it = |pool: &maitred_config::Pool| {
        pool.pm == ProcessManager::Static && pool.max_children == Some(workers)
    };
    match pool.is_some_and(is_it) {
        true => Ok(()),
        false => Err(format!(
            "pool {section} does not have {workers} workers with the file of the trial: its \
             number, or its `pm`, is that of a variable such as MAITRED_POOL_MAX_CHILDREN; remove \
             it from the environment, and tune again"
        )),
    }
}

#[cfg(test)]
mod tests {
    use maitred_config::Environment;

    use super::*;
    use crate::php_terms::php_term::{CacheSize, PhpTerm};

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
    fn a_number_that_a_variable_replaces_is_not_in_force() {
        let before = "[pools.www]\n[[sites]]\nroot = \"/\"\n";
        let text = trial(before, "www", Setting::Workers(40)).unwrap();
        let with = |name: &str, value: &str| {
            let variable = [(name.to_owned(), value.to_owned())];
            let environment = Environment::of(variable.into_iter()).unwrap();
            let file = Path::new("/maitred.toml");
            let config = maitred_config::parse_with(&text, file, &environment).unwrap();
            in_force(&config, "www", 40)
        };
        assert_eq!(with("MAITRED_POOL_MAX_REQUESTS", "5"), Ok(()));
        for (name, value) in [("MAITRED_POOL_MAX_CHILDREN", "5"), ("MAITRED_POOL_PM", "ondemand")] {
            let why = with(name, value).unwrap_err();
            assert!(why.starts_with("pool www does not have 40 workers"), "{why}");
        }
    }

    #[test]
    fn settings_of_php_are_added_to_those_of_the_pool() {
        let before = "[pools.www]\nmax_children = 5\nphp_admin_value = { memory_limit = \"1G\" }\n";
        let terms = [
            PhpTerm::Preload,
            PhpTerm::Jit,
            PhpTerm::Size(CacheSize::Strings, 16),
            PhpTerm::ValidateTimestamps,
            PhpTerm::FileCache,
        ];
        let terms = terms.into_iter().fold(PhpTerms::default(), PhpTerms::with);
        let text = trial(before, "www", Setting::Php(terms)).unwrap();
        let table: Table = text.parse().unwrap();
        let pool = table["pools"]["www"].as_table().unwrap();
        assert_eq!(pool["preload"].as_bool(), Some(true));
        assert_eq!(pool["max_children"].as_integer(), Some(5));
        let entry = |name: &str| pool["php_admin_value"][name].as_str();
        assert_eq!(entry("memory_limit"), Some("1G"));
        assert_eq!(entry("opcache.jit"), Some("tracing"));
        assert_eq!(entry("opcache.jit_buffer_size"), Some("64M"));
        assert_eq!(entry("opcache.interned_strings_buffer"), Some("16"));
        assert_eq!(entry("opcache.validate_timestamps"), Some("0"));
        assert!(entry("opcache.file_cache").is_some_and(|folder| folder.contains("www")));
        let off = trial(before, "www", Setting::OpcacheOff).unwrap();
        let table: Table = off.parse().unwrap();
        let entry = table["pools"]["www"]["php_admin_value"]["opcache.enable"].as_str();
        assert_eq!(entry, Some("0"));
    }

    #[test]
    fn an_entry_of_the_pool_in_another_table_gives_way() {
        let before = "[pools.www]\nphp_value = { \"realpath_cache_size\" = \"64K\" }\n";
        let terms = PhpTerms::default().with(PhpTerm::Size(CacheSize::RealPaths, 128));
        let text = trial(before, "www", Setting::Php(terms)).unwrap();
        let table: Table = text.parse().unwrap();
        let pool = table["pools"]["www"].as_table().unwrap();
        assert!(pool["php_value"].as_table().is_some_and(Table::is_empty));
        let entry = pool["php_admin_value"]["realpath_cache_size"].as_str();
        assert_eq!(entry, Some("128K"));
    }
}
