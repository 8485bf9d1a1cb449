//! The entries of php-fpm's configuration, and the settings of a pool that they become.

use maitred_rules::path::is_php_source;

use crate::file_draft::{Placed, PoolDraft};
use crate::report::{ImportReport, SourceLine};
use crate::toml_text;
use crate::values;

/// Settings of PHP that disable something. Their values add up, while of other settings php-fpm
/// takes the first value.
pub(crate) const ADDING_UP: [&str; 2] = ["disable_functions", "disable_classes"];

/// An entry of a section.
#[derive(Debug, Clone)]
pub(crate) struct FpmEntry {
    /// The name, or that of its table.
    pub name: String,
    /// The key in the table.
    pub key: Option<String>,
    /// The value.
    pub value: String,
    /// Its place.
    pub place: SourceLine,
}

/// A section of php-fpm's configuration.
#[derive(Debug, Clone)]
pub(crate) struct FpmSection {
    /// Its name.
    pub name: String,
    /// Its name here: two versions of PHP may have a pool of one name each.
    pub name_here: String,
    /// Its place.
    pub place: SourceLine,
    /// The number of its php-fpm among all.
    pub server: usize,
    /// Its entries.
    pub entries: Vec<FpmEntry>,
}

impl FpmEntry {
    /// Whether its value and those of others add up.
    pub fn adds_up(&self) -> bool {
        let is_list = |key: &String| ADDING_UP.contains(&key.as_str());
        ["php_value", "php_admin_value"].contains(&self.name.as_str())
            && self.key.as_ref().is_some_and(is_list)
    }

    /// The variable of php-fpm's environment that has the value of an `env` (`fpm_env_conf_wp`).
    pub fn variable(&self) -> Option<&str> {
        self.value.strip_prefix('$').filter(|_| self.name == "env" && self.key.is_some())
    }

    /// Whether that variable has the same name, and `pass_env` takes it.
    pub fn is_passed(&self) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let is_name =
            |name: &str| !["", "all", "none"].contains(&name) && name.chars().all(is_part);
        self.variable().is_some_and(|name| self.key.as_deref() == Some(name) && is_name(name))
    }

    /// The entry as written, without the value of a table's.
    pub fn shown(&self) -> String {
        match &self.key {
            Some(key) => format!("{}[{key}]", self.name),
            None => format!("{} = {}", self.name, self.value),
        }
    }
}

impl FpmSection {
    /// Whether its scripts get all of php-fpm's environment.
    fn passes_all(&self) -> bool {
        let off = ["", "0", "no", "off", "false"];
        self.get("clear_env").is_some_and(|entry| off.contains(&entry.value.as_str()))
    }

    /// Whether no later entry of a table has the same name and key.
    fn is_last(&self, entry: &FpmEntry) -> bool {
        let is_same = |one: &&FpmEntry| one.name == entry.name && one.key == entry.key;
        self.entries.iter().rfind(is_same).is_some_and(|last| std::ptr::eq(last, entry))
    }

    /// The last entry of a name.
    pub fn get(&self, name: &str) -> Option<&FpmEntry> {
        self.entries.iter().rev().find(|entry| entry.name == name && entry.key.is_none())
    }
}

/// Settings whose name and value are the same here, but for `pm.`.
const TEXTS: [&str; 4] = ["user", "group", "chroot", "chdir"];
const NUMBERS: [&str; 8] = [
    "pm.max_children",
    "pm.start_servers",
    "pm.min_spare_servers",
    "pm.max_spare_servers",
    "pm.max_spawn_rate",
    "pm.max_requests",
    "rlimit_files",
    "request_slowlog_trace_depth",
];

/// Settings of php-fpm that need no counterpart.
const NOT_NEEDED: [&str; 9] = [
    "catch_workers_output",
    "clear_env",
    "decorate_workers_output",
    "prefix",
    "process.dumpable",
    "request_terminate_timeout",
    "request_terminate_timeout_track_finished",
    "request_slowlog_timeout",
    "security.limit_extensions",
];

/// Adds an entry to a pool, and reports it.
pub(crate) fn convert(
    entry: &FpmEntry,
    pool: &FpmSection,
    draft: &mut PoolDraft,
    report: &mut ImportReport,
) {
    let FpmEntry { name, key, value, place } = entry;
    let shown = entry.shown();
    let mut set = |name: &str, toml: String| {
        draft.settings.replace(name, Placed::new(toml, place));
    };
    let dynamic = pool.get("pm").is_some_and(|pm| pm.value.eq_ignore_ascii_case("dynamic"));
    match (name.as_str(), key) {
        // The last value of a variable counts, unlike that of a setting of PHP.
        ("env", Some(_)) if !pool.is_last(entry) => {}
        ("env", Some(key)) if entry.is_passed() && !pool.passes_all() => {
            draft.settings.push("pass_env", Placed::new(toml_text::string(key), place));
            let why = format!("set {key} in the environment of maitred, as in that of php-fpm");
            return report.changed(place, &shown, &why);
        }
        ("env", Some(_)) if entry.is_passed() => {}
        ("php_value" | "php_admin_value" | "env", Some(key)) => {
            let value = Placed::new(toml_text::string(value), place);
            draft.settings.entry(name, key, value);
        }
        ("php_flag" | "php_admin_flag", Some(key)) => {
            let is_on = ["1", "on", "true", "yes"].contains(&value.to_ascii_lowercase().as_str());
            draft.settings.entry(name, key, Placed::new(is_on.to_string(), place));
        }
        ("pm", _) => set("pm", toml_text::string(&value.to_ascii_lowercase())),
        (text, _) if TEXTS.contains(&text) => set(text, toml_text::string(value)),
        ("pm.start_servers" | "pm.min_spare_servers" | "pm.max_spare_servers", _) if !dynamic => {}
        (number, _) if NUMBERS.contains(&number) => {
            // As TOML has it: without the zeros that php-fpm accepts before it.
            if let Ok(count) = value.parse::<u32>() {
                set(number.trim_start_matches("pm."), count.to_string());
            }
        }
        ("pm.process_idle_timeout", _) => {
            if let Some(time) = values::time(value).filter(|time| time.as_secs() > 0) {
                set("process_idle_timeout", toml_text::string(&values::duration(time)));
            }
        }
        ("process.priority", _) => match value.parse::<i32>() {
            Ok(priority) => set("process_priority", priority.to_string()),
            Err(_) => return report.left_out(place, &shown, "it is no number"),
        },
        ("rlimit_core", _) => {
            let number = value.parse::<u64>().map(|number| number.to_string());
            set("rlimit_core", number.unwrap_or_else(|_| toml_text::string("unlimited")));
        }
        ("slowlog", _) if value.starts_with('/') => set("slowlog", toml_text::string(value)),
        ("clear_env", _) if pool.passes_all() => {
            set("pass_env", toml_text::string("all"));
        }
        ("pm.status_path" | "ping.path" | "ping.response" | "pm.status_listen", _) => {
            let why = "a status path here is open to all clients of the site; use `maitred status` \
                       and `admin`";
            return report.left_out(place, &shown, why);
        }
        ("access.log" | "access.format" | "access.suppress_path[]", _) => {
            let why = "set `access_log` of the site, and `access_log_format`";
            return report.left_out(place, &shown, why);
        }
        ("security.limit_extensions", _) if has_other_ending(value) => {
            let why = "only names that end in .php run here, and others are sent as files: rename \
                       the scripts among them, or let php-fpm run them";
            return report.access_left_out(place, &shown, why);
        }
        ("apparmor_hat", _) => {
            let why = "it confines scripts, and pools have none: write a profile of AppArmor for \
                       maitred-php";
            return report.access_left_out(place, &shown, why);
        }
        (other, _) if other.starts_with("listen") || NOT_NEEDED.contains(&other) => {}
        _ => {
            return report.left_out(place, &shown, "it has no counterpart in a pool");
        }
    }
    report.kept(place, &shown);
}

/// Whether a list of endings has one that is none of PHP's source, which is never sent. Without a
/// list, the old server alone says which files run.
fn has_other_ending(list: &str) -> bool {
    let mut endings = list.split_whitespace().filter(|ending| ending.starts_with('.'));
    endings.any(|ending| !is_php_source(format!("a{ending}").as_bytes()))
}
