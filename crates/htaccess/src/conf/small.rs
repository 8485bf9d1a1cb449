//! The smaller modules: mod_env, mod_setenvif, mod_dir, mod_expires, mod_autoindex, PHP's settings
//! and authentication.

use std::sync::Arc;

use crate::expr::{Condition, Evaluation};
use crate::limits::{self, MAX_EXPIRIES, MAX_VARIABLES};
use crate::process::{Scope, Stop};
use crate::regex::Regex;
use crate::table::Table;
use crate::text::{Glob, integer};
use crate::weight::{Shared, Weight, weight_of};
use crate::words::Words;

/// SetEnv, UnsetEnv and PassEnv.
#[derive(Debug, Clone, Default)]
pub struct EnvConf {
    /// Variables to set.
    pub set: Table,
    /// Variables of the directories above that are not set (`merge_env_dir_configs`).
    pub unset: Vec<Vec<u8>>,
}

impl EnvConf {
    /// The configuration below another one.
    pub fn below(&self, base: &EnvConf) -> EnvConf {
        let mut set = base.set.clone();
        for name in &self.unset {
            set.unset(name);
        }
        set.set_all(self.set.iter().map(|(name, value)| (name.to_vec(), value.to_vec())));
        EnvConf { set, unset: Vec::new() }
    }
}

/// SetEnvIf and its relatives.
#[derive(Debug, Clone)]
pub struct SetEnvIf {
    test: EnvTest,
    /// Whether values have groups: those of a pattern without special characters are literal.
    expands: bool,
    /// Names, and values; none: unset.
    variables: Vec<EnvVariable>,
}

/// A variable.
#[derive(Debug, Clone)]
pub struct EnvVariable {
    /// The name.
    pub name: Vec<u8>,
    /// The value; none: it is unset.
    pub value: Option<Vec<u8>>,
}

#[derive(Debug, Clone)]
enum EnvTest {
    Attribute { attribute: Attribute, regex: Regex },
    Expression(Arc<Condition>),
}

#[derive(Debug, Clone)]
enum Attribute {
    Variable(&'static [u8]),
    Header(Vec<u8>),
    Headers(Regex),
}

impl SetEnvIf {
    /// `SetEnvIf ATTRIBUTE REGEX VARIABLE…`; with `header`, the attribute is that header.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(
        mut words: Words<'_>,
        header: Option<&str>,
        ignores_case: bool,
    ) -> Result<SetEnvIf, String> {
        let name = match header {
            Some(header) => header.as_bytes().to_vec(),
            None => words.next_word().ok_or("Missing header-field name")?,
        };
        let pattern = words.next_word().ok_or("Missing regular expression")?;
        let attribute = match &name.to_ascii_lowercase()[..] {
            b"remote_addr" => Attribute::Variable(b"REMOTE_ADDR"),
            b"remote_host" => Attribute::Variable(b"REMOTE_HOST"),
            b"request_uri" => Attribute::Variable(b"REQUEST_URI"),
            b"request_method" => Attribute::Variable(b"REQUEST_METHOD"),
            b"request_protocol" => Attribute::Variable(b"SERVER_PROTOCOL"),
            b"server_addr" => Attribute::Variable(b"SERVER_ADDR"),
            // `is_header_regex` matches plain names: those are expressions to Apache, which makes
            // no difference but that they match parts of names.
            _ if is_plain(&name) => Attribute::Header(name),
            _ => Attribute::Headers(Regex::new(&name, ignores_case)?),
        };
        let regex = Regex::new(&pattern, ignores_case)?;
        let test = EnvTest::Attribute { attribute, regex };
        let expands = has_special(&pattern);
        Ok(SetEnvIf { test, expands, variables: variables(words)? })
    }

    /// `SetEnvIfExpr EXPRESSION VARIABLE…`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse_expression(mut words: Words<'_>) -> Result<SetEnvIf, String> {
        let text = words.next_word().ok_or("Missing expression")?;
        let test = EnvTest::Expression(Arc::new(Condition::parse(&text)?));
        Ok(SetEnvIf { test, expands: true, variables: variables(words)? })
    }

    /// What it sets, with a value, and unsets.
    ///
    /// # Errors
    /// When a regular expression is too costly.
    pub fn changes(&self, scope: &Scope<'_>) -> Result<Vec<EnvVariable>, Stop> {
        let groups = match &self.test {
            EnvTest::Attribute { attribute, regex } => {
                scope.check_time()?;
                let value = attribute.value(scope)?;
                match regex.captures(&value)? {
                    Some(groups) => groups,
                    None => return Ok(Vec::new()),
                }
            }
            EnvTest::Expression(condition) => {
                let mut evaluation = Evaluation::new(scope);
                if !evaluation.holds(condition)? {
                    return Ok(Vec::new());
                }
                evaluation.groups.unwrap_or_default()
            }
        };
        let mut all = self.variables.clone();
        if self.expands {
            for value in all.iter_mut().filter_map(|variable| variable.value.as_mut()) {
                *value = groups.expand(value)?;
            }
        }
        Ok(all)
    }
}

/// Whether a pattern has a special character that no backslash escapes (`non_regex_pattern`).
fn has_special(pattern: &[u8]) -> bool {
    let mut is_escaped = false;
    pattern.iter().any(|byte| {
        let is_special = b"^.$|()[]*+?{}".contains(byte) && !is_escaped;
        is_escaped = *byte == b'\\' && !is_escaped;
        is_special
    })
}

fn is_plain(name: &[u8]) -> bool {
    name.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

fn variables(words: Words<'_>) -> Result<Vec<EnvVariable>, String> {
    let all: Vec<EnvVariable> = words
        .map(|word| match memchr::memchr(b'=', &word) {
            // A value that begins so unsets its variable.
            Some(at) if word.get(at + 1) == Some(&b'!') => {
                EnvVariable { name: word[..at].to_vec(), value: None }
            }
            Some(at) if at + 1 < word.len() => {
                EnvVariable { name: word[..at].to_vec(), value: Some(word[at + 1..].to_vec()) }
            }
            at => {
                let name = &word[..at.unwrap_or(word.len())];
                match name.strip_prefix(b"!") {
                    Some(name) => EnvVariable { name: name.to_vec(), value: None },
                    None => EnvVariable { name: name.to_vec(), value: Some(b"1".to_vec()) },
                }
            }
        })
        .collect();
    if all.is_empty() {
        return Err("Missing envariable expression".to_owned());
    }
    limits::check(all.len(), MAX_VARIABLES, "variables in a line")?;
    Ok(all)
}

impl Attribute {
    fn value(&self, scope: &Scope<'_>) -> Result<Vec<u8>, Stop> {
        let env = &scope.request.env;
        let headers = &scope.request.headers_in;
        Ok(match self {
            Attribute::Variable(name) => scope.variable(name),
            Attribute::Header(name) => {
                headers.get(name).or_else(|| env.get(name)).unwrap_or_default().to_vec()
            }
            Attribute::Headers(regex) => {
                let mut value = Vec::new();
                for (name, found) in headers.iter() {
                    if regex.is_match(name)? {
                        value = found.to_vec();
                    }
                }
                value
            }
        })
    }
}

/// mod_dir.
#[derive(Debug, Clone, Default)]
pub struct DirConf {
    /// `DirectoryIndex`; an empty list: disabled.
    pub index: Option<Vec<Vec<u8>>>,
    /// `DirectorySlash`.
    pub redirects_to_slash: Option<bool>,
    /// `DirectoryIndexRedirect`; 0: off.
    pub index_redirect: Option<u16>,
    /// `FallbackResource`.
    pub fallback: Option<Vec<u8>>,
}

impl DirConf {
    /// The configuration below another one.
    pub fn below(&self, base: &DirConf) -> DirConf {
        DirConf {
            index: self.index.as_ref().or(base.index.as_ref()).cloned(),
            redirects_to_slash: self.redirects_to_slash.or(base.redirects_to_slash),
            index_redirect: self.index_redirect.or(base.index_redirect),
            fallback: self.fallback.as_ref().or(base.fallback.as_ref()).cloned(),
        }
    }

    /// Adds names of `DirectoryIndex` (`add_index`).
    pub fn add_index(&mut self, words: Words<'_>) {
        let names: Vec<Vec<u8>> = words.collect();
        let list = self.index.get_or_insert_with(Vec::new);
        if names.len() == 1 && names[0].eq_ignore_ascii_case(b"disabled") {
            list.clear();
        } else {
            list.extend(names);
        }
    }
}

/// mod_expires.
#[derive(Debug, Clone, Default)]
pub struct ExpiresConf {
    /// `ExpiresActive`.
    pub is_on: Option<bool>,
    /// `ExpiresDefault`.
    pub default: Option<Expiry>,
    by_type: Vec<TypeExpiry>,
}

#[derive(Debug, Clone)]
struct TypeExpiry {
    media_type: Vec<u8>,
    expiry: Expiry,
}

/// A lifetime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Expiry {
    /// From the file's modification, not from the request.
    pub from_modification: bool,
    /// Seconds.
    pub seconds: i64,
}

impl ExpiresConf {
    /// The configuration below another one.
    pub fn below(&self, base: &ExpiresConf) -> ExpiresConf {
        ExpiresConf {
            is_on: self.is_on.or(base.is_on),
            default: self.default.or(base.default),
            by_type: [&self.by_type[..], &base.by_type].concat(),
        }
    }

    /// `ExpiresByType`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(&mut self, media_type: &[u8], code: &[u8]) -> Result<(), String> {
        if !media_type.contains(&b'/') {
            return Err("Invalid mimetype: should contain a slash".to_owned());
        }
        let expiry = Expiry::parse(code)?;
        self.by_type.retain(|own| !own.media_type.eq_ignore_ascii_case(media_type));
        self.by_type.push(TypeExpiry { media_type: media_type.to_vec(), expiry });
        limits::check(self.by_type.len(), MAX_EXPIRIES, "types of ExpiresByType")
    }

    /// The lifetime of a response with this media type.
    pub fn expiry(&self, media_type: &[u8]) -> Option<Expiry> {
        if self.is_on != Some(true) {
            return None;
        }
        let own = media_type.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        let find = |wanted: &[u8]| {
            let found = self.by_type.iter().find(|own| own.media_type.eq_ignore_ascii_case(wanted));
            found.map(|own| own.expiry)
        };
        let wildcard = memchr::memchr(b'/', own).map(|at| [&own[..=at], b"*"].concat());
        find(own).or_else(|| find(&wildcard?)).or(self.default)
    }
}

impl Expiry {
    /// `A3600`, `M3600` or `access plus 1 month 2 days` (`check_code`).
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(code: &[u8]) -> Result<Expiry, String> {
        if let Some(base @ (b'A' | b'M')) = code.first() {
            let seconds = integer(&code[1..]);
            return Ok(Expiry { from_modification: *base == b'M', seconds });
        }
        let mut words = Words::of(code);
        let base = words.word();
        let from_modification = match base.first().map(u8::to_ascii_lowercase) {
            Some(b'n' | b'a') => false,
            Some(b'm') => true,
            _ => return Err("bad expires code, unrecognised <base>".to_owned()),
        };
        let mut word = words.word();
        if word.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&b'p')) {
            word = words.word();
        }
        let mut seconds = 0;
        while !word.is_empty() {
            if !word[0].is_ascii_digit() {
                return Err("bad expires code, numeric value expected <num>".to_owned());
            }
            let number = integer(&word);
            let unit = words.word().to_ascii_lowercase();
            let factor = match &unit[..] {
                [b'y', ..] => 365 * 86_400,
                [b'm', b'o', ..] => 30 * 86_400,
                [b'w', ..] => 7 * 86_400,
                [b'd', ..] => 86_400,
                [b'h', ..] => 3600,
                [b'm', b'i', ..] => 60,
                [b's', ..] => 1,
                [] => return Err("bad expires code, missing <type>".to_owned()),
                _ => return Err("bad expires code, unrecognised <type>".to_owned()),
            };
            seconds += factor * number;
            word = words.word();
        }
        Ok(Expiry { from_modification, seconds })
    }
}

/// mod_autoindex: what a listing leaves out.
#[derive(Debug, Clone, Default)]
pub struct IndexConf {
    /// `IndexIgnore`.
    pub ignored: Vec<Vec<u8>>,
}

impl IndexConf {
    /// The configuration below another one.
    pub fn below(&self, base: &IndexConf) -> IndexConf {
        IndexConf { ignored: [&self.ignored[..], &base.ignored].concat() }
    }

    /// Whether a name is left out (`ignore_entry`).
    pub fn ignores(&self, name: &[u8]) -> bool {
        self.ignored.iter().any(|pattern| {
            let slash = memchr::memrchr(b'/', pattern);
            Glob::Text.matches(&pattern[slash.map_or(0, |at| at + 1)..], name)
        })
    }
}

/// php_value and php_flag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhpValue {
    /// The directive of PHP.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// AuthType, AuthName, AuthUserFile and AuthGroupFile.
#[derive(Debug, Clone, Default)]
pub struct AuthnConf {
    /// `AuthType`.
    pub kind: Option<Vec<u8>>,
    /// `AuthName`.
    pub realm: Option<Vec<u8>>,
    /// `AuthUserFile`.
    pub users: Option<Vec<u8>>,
    /// `AuthGroupFile`.
    pub groups: Option<Vec<u8>>,
}

impl AuthnConf {
    /// The configuration below another one.
    pub fn below(&self, base: &AuthnConf) -> AuthnConf {
        let either = |own: &Option<Vec<u8>>, base: &Option<Vec<u8>>| own.clone().or(base.clone());
        AuthnConf {
            kind: either(&self.kind, &base.kind),
            realm: either(&self.realm, &base.realm),
            users: either(&self.users, &base.users),
            groups: either(&self.groups, &base.groups),
        }
    }

    /// Whether a type of authentication is set, other than `None`.
    pub fn is_set(&self) -> bool {
        self.kind.as_ref().is_some_and(|kind| !kind.eq_ignore_ascii_case(b"none"))
    }
}

weight_of!(EnvConf: set, unset);
weight_of!(SetEnvIf: test, variables);
weight_of!(EnvVariable: name, value);
weight_of!(DirConf: index, fallback);
weight_of!(ExpiresConf: by_type);
weight_of!(TypeExpiry: media_type);
weight_of!(IndexConf: ignored);
weight_of!(PhpValue: name, value);
weight_of!(AuthnConf: kind, realm, users, groups);

impl Weight for EnvTest {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            EnvTest::Attribute { attribute, regex } => attribute.heap(shared) + regex.heap(shared),
            EnvTest::Expression(condition) => condition.heap(shared),
        }
    }
}

impl Weight for Attribute {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            Attribute::Variable(_) => 0,
            Attribute::Header(name) => name.heap(shared),
            Attribute::Headers(regex) => regex.heap(shared),
        }
    }
}
