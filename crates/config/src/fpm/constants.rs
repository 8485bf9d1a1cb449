//! PHP's constants that are useful in a configuration.

/// Levels of `error_reporting` (`Zend/zend_errors.h`).
const LEVELS: [(&str, u32); 16] = [
    ("E_ERROR", 1),
    ("E_WARNING", 2),
    ("E_PARSE", 4),
    ("E_NOTICE", 8),
    ("E_CORE_ERROR", 16),
    ("E_CORE_WARNING", 32),
    ("E_COMPILE_ERROR", 64),
    ("E_COMPILE_WARNING", 128),
    ("E_USER_ERROR", 256),
    ("E_USER_WARNING", 512),
    ("E_USER_NOTICE", 1024),
    ("E_STRICT", 2048),
    ("E_RECOVERABLE_ERROR", 4096),
    ("E_DEPRECATED", 8192),
    ("E_USER_DEPRECATED", 16384),
    ("E_ALL", 32767),
];

/// Other constants in php.ini files, with their values on Linux.
const TEXTS: [(&str, &str); 5] = [
    ("DIRECTORY_SEPARATOR", "/"),
    ("PATH_SEPARATOR", ":"),
    ("PHP_OS", "Linux"),
    ("PHP_OS_FAMILY", "Linux"),
    ("PHP_EOL", "\n"),
];

/// The value of the constant `name` as text, if it exists.
pub(super) fn value(name: &str) -> Option<String> {
    let level = LEVELS.iter().find(|(level, _)| *level == name);
    let text = TEXTS.iter().find(|(constant, _)| *constant == name);
    level.map(|(_, value)| value.to_string()).or_else(|| text.map(|(_, value)| (*value).to_owned()))
}
