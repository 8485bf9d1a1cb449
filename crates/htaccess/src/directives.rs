//! The directives by name.

use std::sync::Arc;

use crate::conf::Conf;
use crate::conf::access_compat::{ForMethods, NO_LOOK_UP, Source, may_be_host};
use crate::conf::authz::{Merging, Methods};
use crate::conf::core::{CoreConf, ErrorDocument, Handler, Options, PathInfo};
use crate::conf::headers::HeaderTable;
use crate::conf::mime::Property;
use crate::conf::small::{Expiry, PhpValue, SetEnvIf};
use crate::expr::Template;
use crate::expr_shown as shown;
use crate::file::Verdict;
use crate::handlers;
use crate::left_out::{is_on, is_optional};
use crate::limits::{self, MAX_IGNORED};
use crate::rewrite::{RewriteConf, RewriteOptions, parse_condition, parse_rule};
use crate::text::integer;
use crate::words::Words;

/// The values of `AuthType`, in lower case.
const AUTH_TYPES: [&[u8]; 2] = [b"basic", b"none"];

/// A line with a directive.
pub struct DirectiveLine<'l> {
    /// The directive.
    pub name: &'l [u8],
    /// Its words.
    pub words: Words<'l>,
    /// The text of them.
    pub rest: &'l [u8],
    /// Its number.
    pub number: usize,
    /// The methods of the `<Limit>` around it.
    pub methods: &'l Methods,
    /// The folder of the file.
    pub directory: &'l [u8],
    /// The options that `Options` may change.
    pub options: Options,
}

/// Why a directive was not applied.
#[derive(Debug, PartialEq, Eq)]
pub enum Unknown {
    /// There is none of this name.
    Name,
    /// Its arguments are wrong.
    Mistake(String),
    /// The arguments of a directive about access are wrong.
    Access(String),
    /// It has no effect, for this reason.
    Without(&'static str),
}

/// Of a handler that runs a file.
const NO_PROGRAM: &str =
    "no program but PHP runs here, and a request for a file with this handler gets a 403";

/// Of a filter.
const COMPRESSION: &str = "the site's `compression` says what is compressed";

/// Of the filter of server-side includes.
const NO_INCLUDES: &str =
    "server-side includes are not evaluated, and with `Options Includes` such a file gets a 403";

/// Of `SSLRequire`.
const NO_TLS_EXPRESSION: &str =
    "SSLRequire is not evaluated: write `Require expr`, or `SSLRequireSSL` for TLS alone";

/// Of `SSLVerifyClient`.
const NO_CLIENT_CERTIFICATE: &str =
    "SSLVerifyClient asks for no certificate here: `client_certificates` of the site does";

/// Directives that have no effect here, and why.
fn no_effect(name: &str) -> Option<&'static str> {
    Some(match name {
        "addoutputfilterbytype"
        | "setinputfilter"
        | "addinputfilter"
        | "filterdeclare"
        | "filterprovider"
        | "filterchain"
        | "deflatecompressionlevel"
        | "removeinputfilter" => COMPRESSION,
        "indexoptions" | "indexorderdefault" | "addicon" | "addiconbytype"
        | "addiconbyencoding" | "defaulticon" | "adddescription" | "headername" | "readmename"
        | "indexstylesheet" | "indexheadinsert" => "listings have one form",
        "enablemmap"
        | "enablesendfile"
        | "cgipassauth"
        | "qualifyredirecturl"
        | "limitxmlrequestbody" => "the server's own behaviour does not depend on it",
        "languagepriority" | "forcelanguagepriority" | "cachenegotiateddocs" => {
            "there is no negotiation"
        }
        "authbasicprovider" | "authbasicauthoritative" | "authbasicfake" => {
            "users come from AuthUserFile"
        }
        "cachelookup" | "cachekeymodify" => "the page cache has its own settings",
        "sslciphersuite" | "sslverifydepth" | "sslrenegbuffersize" => "`[tls]` has its settings",
        "sslusername" => "a client certificate makes no REMOTE_USER",
        "modmimeusepathinfo" | "multiviewsmatch" | "directorycheckhandler" => "it is rarely used",
        _ => return None,
    })
}

/// Applies a directive.
///
/// # Errors
/// Why it was not.
pub fn apply(line: &DirectiveLine<'_>, conf: &mut Conf) -> Result<Verdict, Unknown> {
    let name = String::from_utf8_lossy(line.name).to_ascii_lowercase();
    for module in [access, rewriting, core, files, headers_and_types, environment, php] {
        match module(&name, line, conf) {
            Err(Unknown::Name) => {}
            Err(Unknown::Without(why)) => return Ok(Verdict::Skipped(why.to_owned())),
            done => return done.map(|()| Verdict::Understood),
        }
    }
    match no_effect(&name) {
        Some(why) => Ok(Verdict::Skipped(why.to_owned())),
        None => Err(Unknown::Name),
    }
}

/// Whether there is a directive of this name.
pub fn is_known(name: &[u8]) -> bool {
    let lower = String::from_utf8_lossy(name).to_ascii_lowercase();
    let methods = Methods::default();
    let line = DirectiveLine {
        name,
        words: Words::of(b""),
        rest: b"",
        number: 0,
        methods: &methods,
        directory: b"",
        options: Options::EVERY,
    };
    no_effect(&lower).is_some() || !matches!(apply(&line, &mut Conf::default()), Err(Unknown::Name))
}

type LineResult = Result<(), Unknown>;

fn mistake(why: impl Into<String>) -> Unknown {
    Unknown::Mistake(why.into())
}

impl DirectiveLine<'_> {
    fn all(&self) -> Vec<Vec<u8>> {
        self.words.clone().collect()
    }

    /// The words, of which there have to be from `least` to `most`.
    fn take(&self, least: usize, most: usize) -> Result<Vec<Vec<u8>>, Unknown> {
        let words = self.all();
        match (least..=most).contains(&words.len()) {
            true => Ok(words),
            false => {
                let name = String::from_utf8_lossy(self.name);
                let expected = match (least, most) {
                    (least, most) if least == most => format!("{least}"),
                    (least, usize::MAX) => format!("at least {least}"),
                    _ => format!("{least} to {most}"),
                };
                Err(mistake(format!("{name} takes {expected} arguments, not {}", words.len())))
            }
        }
    }

    fn one(&self) -> Result<Vec<u8>, Unknown> {
        Ok(self.take(1, 1)?.remove(0))
    }

    fn flag(&self) -> Result<bool, Unknown> {
        match &self.one()?.to_ascii_lowercase()[..] {
            b"on" => Ok(true),
            b"off" => Ok(false),
            _ => Err(mistake(format!("{} must be On or Off", String::from_utf8_lossy(self.name)))),
        }
    }
}

fn access(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let denies = |why| Unknown::Access(why);
    match name {
        "order" | "satisfy" | "allow" | "deny" => {
            let done = access_compat(name, line, conf);
            if done.is_err() {
                Arc::make_mut(conf.access.get_or_insert_default()).is_wrong = true;
            }
            done
        }
        "require" => conf.authz.section_mut().require(line.rest, *line.methods).map_err(denies),
        "authmerging" => {
            conf.authz.merging = Some(match &line.one()?.to_ascii_lowercase()[..] {
                b"off" => Merging::Off,
                b"and" => Merging::And,
                b"or" => Merging::Or,
                _ => return Err(denies("AuthMerging must be one of: Off | And | Or".to_owned())),
            });
            Ok(())
        }
        "authzsendforbiddenonfailure" => {
            conf.authz.forbids_on_failure = Some(line.flag()?);
            Ok(())
        }
        "authtype" => {
            let kind = line.one()?;
            let is_known = AUTH_TYPES.iter().any(|known| kind.eq_ignore_ascii_case(known));
            if !is_known {
                let why = "only `AuthType Basic` and `None` have an effect";
                return Err(denies(format!("{why}, not '{}'", shown(&kind))));
            }
            set(&mut conf.authn.kind, kind)
        }
        "sslrequire" => Err(denies(NO_TLS_EXPRESSION.to_owned())),
        "sslverifyclient" if is_optional(&line.words.clone().word()) => {
            Err(Unknown::Without(NO_CLIENT_CERTIFICATE))
        }
        "sslverifyclient" => Err(denies(NO_CLIENT_CERTIFICATE.to_owned())),
        "authname" => set(&mut conf.authn.realm, line.one()?),
        "authuserfile" => set(&mut conf.authn.users, line.one()?),
        "authgroupfile" => set(&mut conf.authn.groups, line.one()?),
        _ => Err(Unknown::Name),
    }
}

fn access_compat(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let methods = *line.methods;
    if let "order" | "satisfy" = name {
        let word = line.one().map_err(as_access)?;
        let access = Arc::make_mut(conf.access.get_or_insert_default());
        let done = match name {
            "order" => access.order(&word, methods),
            _ => access.satisfy(&word, methods),
        };
        return done.map_err(Unknown::Access);
    }
    let words = line.take(2, usize::MAX).map_err(as_access)?;
    if !words[0].eq_ignore_ascii_case(b"from") {
        return Err(Unknown::Access("allow and deny must be followed by 'from'".to_owned()));
    }
    for word in &words[1..] {
        let source = Source::parse(word).map_err(Unknown::Access)?;
        if name == "deny" && source == Source::Host && may_be_host(word) {
            return Err(Unknown::Access(NO_LOOK_UP.to_owned()));
        }
        let is_variable = matches!(source, Source::Variable { .. });
        conf.count_variables(usize::from(is_variable)).map_err(mistake)?;
        let source = ForMethods::new(methods, source);
        let access = Arc::make_mut(conf.access.get_or_insert_default());
        match name {
            "allow" => access.allows.push(source),
            _ => access.denies.push(source),
        }
    }
    Ok(())
}

fn as_access(unknown: Unknown) -> Unknown {
    match unknown {
        Unknown::Mistake(why) => Unknown::Access(why),
        other => other,
    }
}

fn set(field: &mut Option<Vec<u8>>, value: Vec<u8>) -> LineResult {
    *field = Some(value);
    Ok(())
}

fn rewriting(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    if !name.starts_with("rewrite") {
        return Err(Unknown::Name);
    }
    let rewrite = Arc::make_mut(conf.rewrite.get_or_insert_default());
    rewrite.directory = line.directory.to_vec();
    match name {
        "rewriteengine" => rewrite.is_on = Some(line.flag()?),
        "rewritebase" => {
            let base = line.one()?;
            if !base.starts_with(b"/") {
                return Err(mistake("RewriteBase: argument is not a valid URL"));
            }
            rewrite.base = Some(base);
        }
        "rewriteoptions" => options(rewrite, line)?,
        "rewritecond" => rewrite.conditions.push(parse_condition(line.rest).map_err(mistake)?),
        "rewriterule" => {
            let conditions = std::mem::take(&mut rewrite.conditions);
            let rule = parse_rule(line.rest, line.number, conditions).map_err(mistake)?;
            let is_proxy = rule.is_proxy();
            rewrite.rules.push(Arc::new(rule));
            if is_proxy {
                return Err(Unknown::Without(
                    "the flag P responds with 403: `proxy` of the site has servers behind this one",
                ));
            }
        }
        _ => return Err(Unknown::Name),
    }
    Ok(())
}

fn options(rewrite: &mut RewriteConf, line: &DirectiveLine<'_>) -> LineResult {
    let mut options: RewriteOptions = rewrite.options.unwrap_or_default();
    for word in line.take(1, usize::MAX)? {
        match &word.to_ascii_lowercase()[..] {
            b"inherit" => options.inherits = true,
            b"inheritbefore" => options.inherits_before = true,
            b"inheritdown" => options.passes_down = true,
            b"inheritdownbefore" => options.passes_down_before = true,
            b"ignoreinherit" => options.ignores_inherited = true,
            b"allownoslash" => options.allows_no_slash = true,
            b"mergebase" => options.merges_base = true,
            b"allowanyuri"
            | b"ignorecontextinfo"
            | b"legacyprefixdocroot"
            | b"longurloptimization" => {}
            word if word.starts_with(b"maxredirects=") => {}
            _ => {
                let said = String::from_utf8_lossy(&word);
                return Err(mistake(format!("RewriteOptions: unknown option '{said}'")));
            }
        }
    }
    rewrite.options = Some(options);
    Ok(())
}

fn core(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let core = &mut conf.core;
    match name {
        "options" => core.options.set(line.words.clone(), line.options).map_err(mistake)?,
        "sethandler" => {
            let mut words = line.take(1, 2)?;
            let word = words.remove(0);
            let is_program = handlers::is_program(&word.to_ascii_lowercase());
            core.handler = Some(match word.strip_prefix(b"expr=") {
                Some(text) => {
                    let template = Template::parse(text).map_err(mistake)?;
                    Handler::Expression(Arc::new(template))
                }
                None => Handler::Name(word.to_ascii_lowercase()),
            });
            if is_program {
                return Err(Unknown::Without(NO_PROGRAM));
            }
        }
        // Apache ignores it.
        "defaulttype" => drop(line.one()?),
        "setoutputfilter" => {
            let filters = core.output_filters.insert(line.one()?.to_ascii_lowercase());
            return Err(Unknown::Without(without_filter(filters)));
        }
        "forcetype" => core.force_type = Some(line.one()?.to_ascii_lowercase()),
        "errordocument" => error_document(line, conf)?,
        "adddefaultcharset" => {
            let word = line.one()?;
            core.default_charset = Some(match &word.to_ascii_lowercase()[..] {
                b"off" => Vec::new(),
                b"on" => b"iso-8859-1".to_vec(),
                _ => word,
            });
        }
        "acceptpathinfo" => {
            core.accepts_path_info = Some(match &line.one()?.to_ascii_lowercase()[..] {
                b"on" => PathInfo::On,
                b"off" => PathInfo::Off,
                b"default" => PathInfo::Default,
                _ => return Err(mistake("AcceptPathInfo must be set to on, off or default")),
            });
        }
        "fileetag" => {
            let words = line.take(1, usize::MAX)?;
            core.sends_etag = Some(!words.iter().any(|word| word.eq_ignore_ascii_case(b"none")));
        }
        "serversignature" => {
            core.has_signature = Some(match &line.one()?.to_ascii_lowercase()[..] {
                b"on" | b"email" => true,
                b"off" => false,
                _ => return Err(mistake("ServerSignature: use one of: off | on | email")),
            });
        }
        "contentdigest" => core.sends_digest = Some(line.flag()?),
        "sslrequiressl" => core.requires_tls = line.take(0, 0).map(|_| true)?,
        "ssloptions" => return tls_options(line, core),
        "limitrequestbody" => {
            let bytes = integer(&line.one()?);
            core.body_limit = Some(u64::try_from(bytes).unwrap_or(0));
        }
        _ => return Err(Unknown::Name),
    }
    Ok(())
}

/// `SSLOptions`, of which `StrictRequire` alone has an effect.
fn tls_options(line: &DirectiveLine<'_>, core: &mut CoreConf) -> LineResult {
    let words = line.take(1, usize::MAX)?;
    let lower = words.iter().map(|word| word.to_ascii_lowercase());
    let mut has_others = false;
    for word in lower {
        match &word[..] {
            b"strictrequire" | b"+strictrequire" => core.is_tls_strict = Some(true),
            b"-strictrequire" => core.is_tls_strict = Some(false),
            [b'+' | b'-', ..] => has_others = true,
            // Without a sign, those before and those above are replaced.
            _ => (core.is_tls_strict, has_others) = (Some(false), true),
        }
    }
    match has_others {
        true => Err(Unknown::Without("the site's `redirect` says what needs TLS")),
        false => Ok(()),
    }
}

fn error_document(line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let mut words = line.words.clone();
    let code = words.word();
    let status = u16::try_from(integer(&code)).unwrap_or(0);
    // The rest is one text, quoted or not: a quote at its start without an end is left off.
    let rest = words.rest();
    if rest.is_empty() || !(400..=599).contains(&status) {
        return match rest.is_empty() || !(100..=599).contains(&status) {
            true => Err(mistake("ErrorDocument takes a status and a page")),
            false => Ok(()),
        };
    }
    let unquoted = match rest.first() {
        Some(b'"' | b'\'') => Words::of(rest).word(),
        _ => rest.to_vec(),
    };
    let is_url = unquoted.starts_with(b"http://") || unquoted.starts_with(b"https://");
    let document = match &unquoted[..] {
        text if text.eq_ignore_ascii_case(b"default") => ErrorDocument::Default,
        [b'/', ..] => ErrorDocument::Path(unquoted),
        _ if is_url => ErrorDocument::Url(unquoted),
        _ => ErrorDocument::Text(unquoted),
    };
    conf.core.error_documents.insert(status, document);
    Ok(())
}

fn files(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    match name {
        "directoryindex" => conf.dir.add_index(line.words.clone()),
        "directoryslash" => conf.dir.redirects_to_slash = Some(line.flag()?),
        "directoryindexredirect" => {
            let status = match &line.one()?.to_ascii_lowercase()[..] {
                b"on" | b"temp" => 302,
                b"off" => 0,
                b"permanent" => 301,
                b"seeother" => 303,
                other => u16::try_from(integer(other)).unwrap_or(0),
            };
            conf.dir.index_redirect = Some(status);
        }
        "fallbackresource" => conf.dir.fallback = Some(line.one()?),
        "indexignore" => {
            conf.index.ignored.extend(line.all());
            limits::check(conf.index.ignored.len(), MAX_IGNORED, "patterns of IndexIgnore")
                .map_err(mistake)?;
        }
        "indexignorereset" => conf.index.ignored.clear(),
        "redirect" => conf.alias.add(line.take(1, 3)?, 302, false).map_err(mistake)?,
        "redirectmatch" => conf.alias.add(line.take(2, 3)?, 302, true).map_err(mistake)?,
        "redirecttemp" => conf.alias.add(line.take(2, 2)?, 302, false).map_err(mistake)?,
        "redirectpermanent" => conf.alias.add(line.take(2, 2)?, 301, false).map_err(mistake)?,
        "redirectrelative" => conf.alias.is_relative = Some(line.flag()?),
        "expiresactive" => conf.expires.is_on = Some(line.flag()?),
        "expiresdefault" => {
            conf.expires.default = Some(Expiry::parse(&line.one()?).map_err(mistake)?);
        }
        "expiresbytype" => {
            let words = line.take(2, 2)?;
            conf.expires.add(&words[0], &words[1]).map_err(mistake)?;
        }
        _ => return Err(Unknown::Name),
    }
    Ok(())
}

fn headers_and_types(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let property = |kind: &str| {
        Some(match kind {
            "type" => Property::Type,
            "charset" => Property::Charset,
            "language" => Property::Language,
            "encoding" => Property::Encoding,
            "handler" => Property::Handler,
            "outputfilter" => Property::Filter,
            _ => return None,
        })
    };
    match name {
        "header" => {
            return conf.headers.add(line.words.clone(), HeaderTable::Success).map_err(mistake);
        }
        "requestheader" => {
            return conf.headers.add(line.words.clone(), HeaderTable::Request).map_err(mistake);
        }
        "defaultlanguage" => {
            conf.mime.default_language = Some(line.one()?);
            return Ok(());
        }
        _ => {}
    }
    if let Some(property) = name.strip_prefix("add").and_then(property) {
        let words = line.take(2, usize::MAX)?;
        for extension in &words[1..] {
            conf.mime.add(property, extension, &words[0]).map_err(mistake)?;
        }
        let word = words[0].to_ascii_lowercase();
        let runs = matches!(property, Property::Handler | Property::Type);
        return match property {
            Property::Filter => Err(Unknown::Without(without_filter(&word))),
            _ if runs && handlers::is_program(&word) => Err(Unknown::Without(NO_PROGRAM)),
            _ => Ok(()),
        };
    }
    if let Some(property) = name.strip_prefix("remove").and_then(property) {
        for extension in line.take(1, usize::MAX)? {
            conf.mime.add(property, &extension, b"").map_err(mistake)?;
        }
        return Ok(());
    }
    Err(Unknown::Name)
}

/// Why a filter has no effect, in lower case.
fn without_filter(filters: &[u8]) -> &'static str {
    if handlers::has_includes(filters) { NO_INCLUDES } else { COMPRESSION }
}

fn environment(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let words = || line.words.clone();
    let rule = match name {
        "setenv" => {
            let words = line.take(1, 2)?;
            conf.count_variables(1).map_err(mistake)?;
            let value = words.get(1).cloned().unwrap_or_default();
            conf.env.set.set(&words[0], value);
            return Ok(());
        }
        "unsetenv" => {
            let names = line.take(1, usize::MAX)?;
            conf.count_variables(names.len()).map_err(mistake)?;
            for name in names {
                conf.env.set.unset(&name);
                conf.env.unset.push(name);
            }
            return Ok(());
        }
        // Nothing of the server's environment is passed on by a file of a site.
        "passenv" => return line.take(1, usize::MAX).map(drop),
        "setenvif" => SetEnvIf::parse(words(), None, false),
        "setenvifnocase" => SetEnvIf::parse(words(), None, true),
        "browsermatch" => SetEnvIf::parse(words(), Some("User-Agent"), false),
        "browsermatchnocase" => SetEnvIf::parse(words(), Some("User-Agent"), true),
        "setenvifexpr" => SetEnvIf::parse_expression(words()),
        _ => return Err(Unknown::Name),
    };
    conf.setenvif.push(Arc::new(rule.map_err(mistake)?));
    Ok(())
}

fn php(name: &str, line: &DirectiveLine<'_>, conf: &mut Conf) -> LineResult {
    let mut words = match name {
        "php_value" | "php_flag" => line.take(2, 2)?,
        "php_admin_value" | "php_admin_flag" => {
            return Err(mistake(format!("{name} not allowed here")));
        }
        _ => return Err(Unknown::Name),
    };
    let (value, setting) = (words.remove(1), words.remove(0));
    let lower = value.to_ascii_lowercase();
    let is_on = is_on(&lower);
    if setting.eq_ignore_ascii_case(b"engine") {
        // A value is read as in php.ini.
        let is_on_by_value = name == "php_value" && matches!(&lower[..], b"yes" | b"true");
        conf.core.php_engine = Some(is_on || is_on_by_value);
        return Ok(());
    }
    let value = match name {
        "php_flag" => if is_on { b"1" } else { b"0" }.to_vec(),
        _ if value.eq_ignore_ascii_case(b"none") => Vec::new(),
        _ => value,
    };
    if value.iter().chain(&setting).any(|byte| matches!(byte, b'\n' | b'\r' | 0)) {
        return Err(mistake("a value of PHP may not have a line end"));
    }
    conf.php.push(Arc::new(PhpValue { name: setting, value }));
    Ok(())
}
