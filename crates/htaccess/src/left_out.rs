//! What a section that is left out refuses. One that only lets clients in loses nothing.

use crate::conf::alias::named_status;
use crate::handlers::is_php_handler;
use crate::rewrite::refuses;
use crate::words::Words;

/// The values of `SSLVerifyClient` that let a client without a certificate in.
const OPTIONAL: [&[u8]; 3] = [b"none", b"optional", b"optional_no_ca"];

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
        b"php_flag" | b"php_value" => words.word().eq_ignore_ascii_case(b"engine"),
        b"sethandler" | b"addhandler" => !is_php_handler(&words.word().to_ascii_lowercase()),
        b"removehandler" => true,
        _ => false,
    }
}

/// Whether a value of `SSLVerifyClient` lets a client without a certificate in.
pub fn is_optional(value: &[u8]) -> bool {
    OPTIONAL.iter().any(|known| value.eq_ignore_ascii_case(known))
}
