//! The PHP settings of a pool that PHP has not taken.

use maitred_control::ZygoteSettings;
use maitred_php::{Engine, IniValue};

/// A setting that PHP rejects is an error; with php-fpm's rules, unknown ones are only reported,
/// and rejected ones keep their previous values.
pub fn judge_values(settings: &ZygoteSettings, engine: &Engine) -> Result<(), String> {
    let unknown = engine.unknown_values();
    if settings.fpm {
        for value in unknown {
            let kind = if value.admin { "php_admin_value" } else { "php_value" };
            eprintln!("ERROR: Unable to set {kind} '{}'", value.name);
        }
        return Ok(());
    }
    let unknown = unknown.iter().map(|IniValue { name, .. }| {
        format!(
            "PHP does not know the setting `{name}` of this pool; correct its name, or load the \
             extension that has it"
        )
    });
    let refused = engine.refused_values().iter().map(|IniValue { name, value, .. }| {
        let remedy = remedy_for(value).unwrap_or_default();
        format!("PHP does not take `{name} = {value}` of this pool, or not after its start{remedy}")
    });
    let all: Vec<String> = unknown.chain(refused).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

/// What to write in place of a size that PHP does not take (`zend_ini_parse_quantity`).
fn remedy_for(value: &str) -> Option<String> {
    let digits = value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    match &value[digits.len()..] {
        _ if !is_number => None,
        "" => Some(format!("; {value} is a number of bytes: is {value}M meant?")),
        unit if unit.len() == 2 && unit.to_ascii_uppercase().ends_with('B') => {
            Some(format!("; PHP's units are K, M and G: write {digits}{}", &unit[..1]))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_that_php_does_not_take_gets_its_remedy() {
        let remedy = |value| remedy_for(value).unwrap_or_default();
        assert_eq!(remedy("256"), "; 256 is a number of bytes: is 256M meant?");
        assert_eq!(remedy("256MB"), "; PHP's units are K, M and G: write 256M");
        assert_eq!(remedy("256M"), "");
        assert_eq!(remedy("/srv/a"), "");
    }
}
