use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// One php.ini directive of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IniValue {
    /// The directive, such as `memory_limit`.
    pub name: String,
    /// Its value in php.ini syntax, such as `256M`.
    pub value: String,
    /// `php_admin_value`: no `.user.ini` and no `ini_set()` can change it.
    pub admin: bool,
}

/// The settings for starting PHP.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The result of `php_sapi_name()`. OPcache before 8.5 starts only under names on its own list.
    pub sapi_name: String,
    /// A php.ini, or its folder; `None`: libphp's default.
    pub ini_path: Option<PathBuf>,
    /// The folder of additional `*.ini` files; `None`: `PHP_INI_SCAN_DIR`, or libphp's default.
    pub ini_scan_dir: Option<PathBuf>,
    /// Search no php.ini and no files in its folder (`-n` of php-fpm): only `ini_path` is read, if
    /// it is set.
    pub no_ini_files: bool,
    /// php.ini lines after the files, as from php-fpm's `-d`: name and value.
    pub defines: Vec<(String, String)>,
    /// Extensions to load after those of php.ini.
    pub extensions: Vec<String>,
    /// `php_value` and `php_admin_value`, in order; of two values for one directive the later
    /// applies.
    pub values: Vec<IniValue>,
    /// PHP presents itself as in php-fpm: no pcntl, unless the php.ini entry `maitred.pcntl` is 1,
    /// and php-fpm's name.
    pub fpm: bool,
    /// The mode of its scripts.
    pub mode: Mode,
    /// The scripts that PHP preloads; empty: those of php.ini's own `opcache.preload`.
    pub preload: Vec<PathBuf>,
}

/// The mode of scripts: it determines which functions exist, since applications detect the mode by
/// them. The numbers are those of `enum maitred_mode` in shim.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(i32)]
pub enum Mode {
    /// Each request runs its script from the start.
    #[default]
    Classic,
    /// A script takes one request after the other ([`crate::Engine::work`]).
    Worker,
    /// A script is booted once and copied ([`crate::Engine::boot`]).
    Snapshot,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sapi_name: "fpm-fcgi".to_owned(),
            ini_path: None,
            ini_scan_dir: None,
            no_ini_files: false,
            defines: Vec::new(),
            extensions: Vec::new(),
            values: Vec::new(),
            fpm: false,
            mode: Mode::Classic,
            preload: Vec::new(),
        }
    }
}

/// Directives whose pool value extends that of php.ini instead of replacing it (as in php-fpm).
const ADDING: [&str; 2] = ["disable_functions", "disable_classes"];

/// The script is no file: `preload.c` passes its text to PHP's compiler under this name.
const PRELOAD_ENTRY: &str = "opcache.preload='maitred-preload'\n";

impl Settings {
    /// The values as php.ini text. PHP reads it after its files, so that settings which count at
    /// startup (extensions, OPcache's memory) can be set per pool, too.
    pub(crate) fn ini_entries(&self) -> String {
        let defines = self.defines.iter().map(|(name, value)| define(name, value));
        let extensions = self.extensions.iter().map(|name| {
            let name = name.replace(['\'', '\n', '\r'], "");
            format!("extension='{name}'\n")
        });
        let values =
            self.values.iter().filter(|value| !ADDING.contains(&value.name.as_str())).filter_map(
                |value| {
                    if value.name == "error_reporting" {
                        return Some(format!("{}={}\n", value.name, value.value));
                    }
                    // Within single quotes no character is special, and a single quote cannot be
                    // written.
                    let plain = !value.value.contains(['\'', '\n', '\r']);
                    plain.then(|| format!("{}='{}'\n", value.name, value.value))
                },
            );
        let preload = (!self.preload.is_empty()).then_some(PRELOAD_ENTRY.to_owned());
        defines.chain(extensions).chain(values).chain(preload).collect()
    }

    /// The script that PHP runs to preload, if there is anything. A file that does not compile is
    /// no error here: the request that includes it fails as it would without preloading.
    pub(crate) fn preload_script(&self) -> Option<Vec<u8>> {
        let mut script = b"<?php\nerror_reporting(0);\n".to_vec();
        for file in &self.preload {
            script.extend_from_slice(b"try { opcache_compile_file('");
            for byte in file.as_os_str().as_bytes() {
                if matches!(byte, b'\\' | b'\'') {
                    script.push(b'\\');
                }
                script.push(*byte);
            }
            script.extend_from_slice(b"'); } catch (\\Throwable) {}\n");
        }
        (!self.preload.is_empty()).then_some(script)
    }
}

/// A line of php.ini: quoted, unless quotes could remove an intended meaning
/// (`php_ini_builder_define` in main/php_ini_builder.c).
fn define(name: &str, value: &str) -> String {
    let is_left = |first: char| first.is_ascii_alphanumeric() || matches!(first, '"' | '\'');
    if value.chars().next().is_none_or(is_left) {
        format!("{name}={value}\n")
    } else {
        format!("{name}=\"{value}\"\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_with_quotes_stays_one_text_of_the_script_that_preloads() {
        let preload = vec![PathBuf::from("/a'); evil('\\.php")];
        let settings = Settings { preload, ..Settings::default() };
        let script = String::from_utf8(settings.preload_script().unwrap()).unwrap();
        assert!(script.contains(r"opcache_compile_file('/a\'); evil(\'\\.php');"), "{script}");
        assert_eq!(Settings::default().preload_script(), None);
    }

    fn entries(name: &str, value: &str) -> String {
        let value = IniValue { name: name.to_owned(), value: value.to_owned(), admin: false };
        Settings { values: vec![value], ..Settings::default() }.ini_entries()
    }

    #[test]
    fn a_value_is_quoted_so_that_nothing_in_it_is_special() {
        assert_eq!(
            entries("sendmail_path", "/bin/x; \"${A}\""),
            "sendmail_path='/bin/x; \"${A}\"'\n"
        );
    }

    #[test]
    fn a_value_that_cannot_be_quoted_is_left_to_be_applied_later() {
        assert_eq!(entries("date.timezone", "it's"), "");
        assert_eq!(entries("date.timezone", "a\nmemory_limit=-1"), "");
    }

    #[test]
    fn what_the_command_line_defines_is_quoted_as_by_php_fpm() {
        assert_eq!(define("memory_limit", "1G"), "memory_limit=1G\n");
        assert_eq!(
            define("error_reporting", "E_ALL & ~E_NOTICE"),
            "error_reporting=E_ALL & ~E_NOTICE\n"
        );
        assert_eq!(define("error_log", "/dev/null"), "error_log=\"/dev/null\"\n");
        assert_eq!(define("auto_prepend_file", ""), "auto_prepend_file=\n");
        assert_eq!(define("a", "\"b\""), "a=\"b\"\n");
    }

    #[test]
    fn extensions_come_after_what_is_defined_and_before_the_values() {
        let settings = Settings {
            defines: vec![("a".to_owned(), "1".to_owned())],
            extensions: vec!["x.so".to_owned()],
            values: vec![IniValue { name: "a".to_owned(), value: "2".to_owned(), admin: false }],
            ..Settings::default()
        };
        assert_eq!(settings.ini_entries(), "a=1\nextension='x.so'\na='2'\n");
    }

    #[test]
    fn error_reporting_is_written_as_an_expression() {
        assert_eq!(
            entries("error_reporting", "E_ALL & ~E_NOTICE"),
            "error_reporting=E_ALL & ~E_NOTICE\n"
        );
    }

    #[test]
    fn lists_of_disabled_functions_do_not_replace_that_of_php_ini() {
        assert_eq!(entries("disable_functions", "exec"), "");
    }
}
