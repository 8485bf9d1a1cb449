//! Modules of Apache, by the symbol of their `LoadModule`, and their names in `<IfModule>`.

use std::collections::BTreeSet;

/// Modules that Debian and Fedora compile in.
pub(super) const BUILT_IN: [&str; 8] = [
    "core_module",
    "so_module",
    "http_module",
    "watchdog_module",
    "log_config_module",
    "logio_module",
    "unixd_module",
    "version_module",
];

/// Sources whose name is not that of the module, with its symbol.
const SOURCES: [(&str, &str); 5] = [
    ("http_core", "http_module"),
    ("prefork", "mpm_prefork_module"),
    ("event", "mpm_event_module"),
    ("worker", "mpm_worker_module"),
    ("util_ldap", "ldap_module"),
];

/// Whether one of these modules has a name of `<IfModule>`: its symbol, or the file of its source,
/// such as `rewrite_module` and `mod_rewrite.c`, or `mod_shib` and `mod_shib.cpp`.
pub(super) fn has_module(modules: &BTreeSet<String>, name: &str) -> bool {
    let Some((source, _)) = name.rsplit_once('.') else { return modules.contains(name) };
    let short = source.strip_prefix("mod_").unwrap_or(source);
    let usual = format!("{short}_module");
    let of_source = SOURCES.iter().find(|(known, _)| *known == source).map(|(_, symbol)| *symbol);
    // The file of such a module has no other name.
    let is_usual = !SOURCES.iter().any(|(_, symbol)| *symbol == usual);
    let symbol = of_source.or(is_usual.then_some(usual.as_str()));
    modules.contains(source) || symbol.is_some_and(|symbol| modules.contains(symbol))
}
