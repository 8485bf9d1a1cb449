//! Exit codes and error texts, as php-fpm has them.

/// Exit codes, as php-fpm's `fpm.h` has them.
pub const EXIT_OK: u8 = 0;
pub const EXIT_USAGE: u8 = 64;
pub const EXIT_SOFTWARE: u8 = 70;
pub const EXIT_CONFIG: u8 = 78;

/// The system's error, as php-fpm appends it to a message.
pub fn system_error(why: &std::io::Error) -> String {
    let Some(number) = why.raw_os_error() else {
        return format!(": {why}");
    };
    let text = why.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    format!(": {text} ({number})")
}
