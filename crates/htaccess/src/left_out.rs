//! What a section that is left out refuses. One that only lets clients in loses nothing.

use crate::conf::alias::named_status;
use crate::handlers::{SERVER_PARSED, is_php_handler, is_program};
use crate::rewrite::refuses;
use crate::words::Words;

/// The values of `SSLVerifyClient` that let a client without a certificate in.
const OPTIONAL: [&[u8]; 3] = [b"none", b"optional", b"optional_no_ca"];

/// The settings of PHP that confine or guard scripts, of those that a file may change.
const CONFINING: [&[u8]; 2] = [b"open_basedir", b"auto_prepend_file"];

/// What a section that is left out says about access.
#[derive(Default)]
pub struct LeftOut {
    /// A line that may deny, or stop scripts.
    denies: bool,
    /// An order in which clients without an `Allow` are denied.
    denies_others: bool,
    /// `Allow from all`.
    allows_all: bool,
}

impl LeftOut {
    /// Whether a client that the section refuses could be let in without it.
    pub fn may_deny(&self) -> bool {
        self.denies || self.denies_others && !self.allows_all
    }

    /// Adds a line, which is in `<RequireNone>` if it is negated.
    pub fn add(&mut self, mut words: Words<'_>, is_negated: bool) {
        let name = words.word().to_ascii_lowercase();
        let rest = words.rest().trim_ascii().to_ascii_lowercase();
        match &name[..] {
            b"order" => self.denies_others |= rest != b"deny,allow",
            b"allow" => self.allows_all |= rest == b"from all",
            b"require" => self.denies |= is_negated || rest != b"all granted",
            _ => self.denies |= line_denies(&name, words),
        }
    }
}

/// Whether a line may refuse requests, or stop scripts.
fn line_denies(name: &[u8], mut words: Words<'_>) -> bool {
    match name {
        b"deny" | b"satisfy" | b"authmerging" | b"sslrequiressl" | b"sslrequire" => true,
        b"sslverifyclient" => !is_optional(&words.word()),
        b"rewriterule" => refuses(words.rest()),
        b"redirect" | b"redirectmatch" => {
            named_status(&words.word()).is_some_and(|status| status >= 400)
        }
        b"php_flag" | b"php_value" => confines(&words.word(), &words.word().to_ascii_lowercase()),
        b"sethandler" => !is_php_handler(&words.word().to_ascii_lowercase()),
        b"addhandler" => {
            let handler = words.word().to_ascii_lowercase();
            // Without the handler of a program its source is sent.
            let hides_source = is_program(&handler) || handler == SERVER_PARSED;
            !is_php_handler(&handler) && (hides_source || are_of_scripts(words))
        }
        b"removehandler" => are_of_scripts(words),
        _ => false,
    }
}

/// Whether a setting of PHP, with its value in lower case, stops or confines scripts.
fn confines(setting: &[u8], value: &[u8]) -> bool {
    match setting.eq_ignore_ascii_case(b"engine") {
        true => !is_on(value),
        false => CONFINING.contains(&setting) && value != b"none",
    }
}

/// Whether an extension of scripts (`.php`, `.phtml`, `.pht`) is among others, or there are none.
fn are_of_scripts(mut words: Words<'_>) -> bool {
    let is_of_script = |word: Vec<u8>| {
        let extension = word.strip_prefix(b".").unwrap_or(&word);
        extension.get(..2).is_some_and(|start| start.eq_ignore_ascii_case(b"ph"))
    };
    words.clone().next().is_none() || words.any(is_of_script)
}

/// Whether a value of a `php_flag` in lower case turns it on (php-src, `real_flag_hnd` of
/// sapi/apache2handler/apache_config.c).
pub fn is_on(value: &[u8]) -> bool {
    matches!(value, b"on" | b"1")
}

/// Whether a value of `SSLVerifyClient` lets a client without a certificate in.
pub fn is_optional(value: &[u8]) -> bool {
    OPTIONAL.iter().any(|known| value.eq_ignore_ascii_case(known))
}
