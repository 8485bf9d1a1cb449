//! Names of settings that another program has: what to write in their place.

use toml::Spanned;
use toml::de::DeValue;

use crate::mistakes::quoted;
use crate::read::foreign_names::{
    FOREIGN_NAMES, PHP_LOADERS, PHP_PREFIXES, PHP_SETTINGS, PhpSetting,
};

/// php-fpm's tables, as in `php_admin_value[memory_limit]`.
const FPM_TABLES: [&str; 5] = ["php_value", "php_flag", "php_admin_value", "php_admin_flag", "env"];

/// php.ini's shorter spelling of names in the table, where the full name has a dot.
const SHORT_NAMES: [(&str, &str); 1] = [("timezone", "date.timezone")];

/// The sentence about the name of another program's setting: whose it is and what to write.
pub(crate) fn foreign_name(name: &str) -> Option<String> {
    let shown = quoted(name);
    if let Some((table, entry)) = fpm_table(name) {
        return Some(format!(
            "`{shown}` is written as php-fpm has it: write `{table} = {{ {entry} = \"…\" }}`"
        ));
    }
    let plain = plain(name);
    if PHP_LOADERS.iter().any(|known| self::plain(known) == plain) {
        return Some(format!(
            "`{shown}` is a setting of PHP: write it in a file of the folder that \
             `php_ini_scan_dir` of the pool names"
        ));
    }
    if let Some(setting) = PHP_SETTINGS.iter().find(|known| self::plain(known.name) == plain) {
        return Some(of_php(&shown, setting));
    }
    let named = |is_it: &dyn Fn(&str) -> bool| {
        FOREIGN_NAMES.iter().find(|known| known.names.iter().any(|name| is_it(name)))
    };
    let exact = named(&|known| known == name);
    let known = exact.or_else(|| named(&|known| self::plain(known) == plain));
    if let Some(known) = known {
        return Some(format!("`{shown}` is a setting of {}: {}", known.of, known.remedy));
    }
    let (prefix, rest) = name.split_once('.')?;
    (PHP_PREFIXES.contains(&prefix) && !rest.is_empty()).then(|| {
        format!(
            "`{shown}` is a setting of PHP: write `php_value = {{ \"{shown}\" = … }}` in the pool"
        )
    })
}

/// As [`foreign_name`], for a setting with its value: `pm.max_children = 5` is a table `pm`.
pub(crate) fn foreign_setting(name: &str, value: &Spanned<DeValue<'_>>) -> Option<String> {
    let below = match value.get_ref() {
        DeValue::Table(table) => table.iter().next().map(|(key, _)| key.get_ref().to_string()),
        _ => None,
    };
    let whole = below.and_then(|below| foreign_name(&format!("{name}.{below}")));
    whole.or_else(|| foreign_name(name))
}

fn of_php(shown: &str, setting: &PhpSetting) -> String {
    let short = SHORT_NAMES.iter().find(|(short, _)| *short == setting.name);
    let name = short.map_or(setting.name, |(_, full)| full);
    let name = if name.contains('.') { format!("\"{name}\"") } else { name.to_owned() };
    let see = match setting.see {
        "" => String::new(),
        see => format!("; see also {see}"),
    };
    format!(
        "`{shown}` is a setting of PHP: write `php_value = {{ {name} = {} }}` in the pool{see}",
        setting.example
    )
}

/// The table and the entry in `php_admin_value[memory_limit]`.
pub(crate) fn fpm_table(text: &str) -> Option<(&str, &str)> {
    let (table, rest) = text.split_once('[')?;
    let (entry, _) = rest.split_once(']')?;
    FPM_TABLES.contains(&table).then_some((table, entry.trim()))
}

/// A name without what differs among programs: `DocumentRoot` is `document_root`.
fn plain(name: &str) -> String {
    let letters = name.chars().filter(|c| !matches!(c, '_' | '-'));
    letters.map(|c| c.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::read::directives::section_of;

    fn all_names() -> impl Iterator<Item = &'static str> {
        let servers = FOREIGN_NAMES.iter().flat_map(|known| known.names.iter().copied());
        servers.chain(PHP_SETTINGS.iter().map(|setting| setting.name))
    }

    #[test]
    fn more_than_a_hundred_names_have_one_sentence_each() {
        let names: Vec<&str> = all_names().collect();
        assert!(names.len() > 100, "{}", names.len());
        let plain_names: HashSet<String> = names.iter().map(|name| plain(name)).collect();
        // nginx and Apache both have `server_name` and `proxy_pass`.
        assert_eq!(plain_names.len(), names.len() - 2);
        for name in names {
            let sentence = foreign_name(name).unwrap();
            assert!(sentence.starts_with(&format!("`{name}` is a setting of ")), "{sentence}");
        }
    }

    #[test]
    fn no_name_of_ours_is_in_the_table() {
        for name in all_names() {
            assert_eq!(section_of(name), None, "{name}");
        }
    }

    #[test]
    fn every_setting_that_a_remedy_names_exists() {
        let php: HashSet<&str> = PHP_SETTINGS.iter().map(|setting| setting.name).collect();
        for known in FOREIGN_NAMES {
            let named = known.remedy.split('`').skip(1).step_by(2);
            for setting in named.map(|code| code.split([' ', '=']).next().unwrap()) {
                let exists = section_of(setting).is_some()
                    || setting.starts_with("--")
                    || ["read_timeout", "LimitNOFILE", "clear_env"].contains(&setting)
                    || php.contains(setting);
                assert!(exists, "{setting} of {:?}", known.names);
            }
        }
    }

    #[test]
    fn a_name_is_known_in_any_spelling() {
        for name in ["documentroot", "DocumentRoot", "document_root", "DOCUMENT-ROOT"] {
            assert_eq!(
                foreign_name(name).unwrap(),
                format!(
                    "`{name}` is a setting of Apache: write `root = \"/srv/shop/public\"` in \
                     [[sites]]"
                )
            );
        }
        assert_eq!(foreign_name("rooot"), None);
        assert_eq!(foreign_name("a.b"), None);
    }
}
