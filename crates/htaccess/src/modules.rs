//! The modules and the version of Apache that files may ask for.

use crate::regex::Regex;
use crate::text::integer;
use crate::words::Words;

/// Modules that the server has, by the name of their source.
const MODULES: [&str; 23] = [
    "access_compat",
    "alias",
    "auth_basic",
    "authn_core",
    "authn_file",
    "authz_core",
    "authz_groupfile",
    "authz_host",
    "authz_user",
    "autoindex",
    "deflate",
    "dir",
    "env",
    "expires",
    "filter",
    "headers",
    "mime",
    "negotiation",
    "rewrite",
    "setenvif",
    "ssl",
    "version",
    "php",
];

/// The major version of PHP here, for `<IfModule mod_php7.c>`.
pub const PHP_MAJOR: u8 = 8;

/// The version of Apache whose behaviour this is.
const VERSION: [i64; 3] = [2, 4, 62];

/// Whether `<IfModule>`, `<IfDefine>` or `<IfVersion>` is entered.
///
/// # Errors
/// What is wrong with its arguments.
pub fn is_entered(section: &[u8], arguments: &[u8], php_major: u8) -> Result<bool, String> {
    let mut words = Words::of(arguments);
    if section == b"ifversion" {
        return version_holds(words);
    }
    let argument = words.word();
    let (negated, name) = match argument.strip_prefix(b"!") {
        Some(rest) => (true, rest),
        None => (false, &argument[..]),
    };
    let holds = section == b"ifmodule" && has_module(name, php_major);
    Ok(holds != negated)
}

fn has_module(name: &[u8], php_major: u8) -> bool {
    let name = String::from_utf8_lossy(name).into_owned();
    let short = name.strip_prefix("mod_").and_then(|rest| rest.strip_suffix(".c"));
    let short = short.or_else(|| name.strip_suffix("_module")).unwrap_or(&name);
    let php = format!("php{php_major}");
    MODULES.contains(&short) || short == php || short == "lsapi" || name == "core.c"
}

fn version_holds(mut words: Words<'_>) -> Result<bool, String> {
    let first = words.word();
    let (operator, version) = match words.next_word() {
        Some(version) => (first, version),
        None => (b"=".to_vec(), first),
    };
    let (negated, operator) = match operator.strip_prefix(b"!") {
        Some(rest) => (true, rest.to_vec()),
        None => (false, operator),
    };
    let holds = match (&operator[..], version.strip_prefix(b"/")) {
        (b"~", _) => version_matches(&version)?,
        (b"=" | b"==", Some(text)) => match text.strip_suffix(b"/") {
            Some(text) => version_matches(text)?,
            None => return Err("missing delimiting / of regular expression".to_owned()),
        },
        (operator, _) => version_compares(operator, &version)?,
    };
    Ok(holds != negated)
}

fn version_matches(expression: &[u8]) -> Result<bool, String> {
    let version = VERSION.map(|part| part.to_string()).join(".");
    let expression = Regex::new(expression, false)?;
    let matched = expression.is_match(version.as_bytes());
    matched.map_err(|_| "the regular expression takes too many steps".to_owned())
}

fn version_compares(operator: &[u8], version: &[u8]) -> Result<bool, String> {
    let mut wanted = version.split(|byte| *byte == b'.').map(integer);
    let parts: [i64; 3] = std::array::from_fn(|_| wanted.next().unwrap_or(0));
    let order = VERSION.cmp(&parts);
    Ok(match operator {
        b"=" | b"==" => order.is_eq(),
        b">" => order.is_gt(),
        b">=" => order.is_ge(),
        b"<" => order.is_lt(),
        b"<=" => order.is_le(),
        _ => return Err("unrecognized operator".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_compared_with_numbers_and_expressions() {
        let of = |arguments: &str| is_entered(b"ifversion", arguments.as_bytes(), PHP_MAJOR);
        for arguments in [
            ">= 2.4",
            "!< 2.4",
            r"~ ^2\.4",
            r"!~ ^2\.2",
            r"= /^2\.4/",
            r"== /^2\.4/",
            r"!= /^2\.2/",
            r"/^2\.4/",
        ] {
            assert_eq!(of(arguments), Ok(true), "{arguments}");
        }
        for arguments in ["< 2.4", "2.4", r"~ ^2\.2", r"= /^2\.2/", r"!~ ^2\.4", r"~ /^2\.4/"] {
            assert_eq!(of(arguments), Ok(false), "{arguments}");
        }
        for arguments in ["~ [", r"= /^2\.4", "=~ 2", "! 2.4"] {
            assert!(of(arguments).is_err(), "{arguments}");
        }
    }
}
