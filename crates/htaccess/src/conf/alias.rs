//! Redirect and RedirectMatch (mod_alias).

use std::sync::Arc;

use crate::expr::{Evaluation, Template};
use crate::process::{Scope, Stop};
use crate::regex::Regex;
use crate::text::{escape_path, integer};
use crate::weight::{Shared, Weight, weight_of};

/// The configuration of mod_alias.
#[derive(Debug, Clone, Default)]
pub struct AliasConf {
    redirects: Vec<Arc<Redirect>>,
    /// A redirect of every path.
    whole: Option<Arc<WholeRedirect>>,
    /// `RedirectRelative`.
    pub is_relative: Option<bool>,
}

#[derive(Debug, Clone)]
struct Redirect {
    from: From,
    to: Option<Vec<u8>>,
    status: u16,
}

#[derive(Debug, Clone)]
enum From {
    Prefix(Vec<u8>),
    Regex(Regex),
}

#[derive(Debug, Clone)]
struct WholeRedirect {
    to: Option<Template>,
    status: u16,
}

/// The status that the first word of a redirect names.
pub fn named_status(word: &[u8]) -> Option<u16> {
    Some(match &word.to_ascii_lowercase()[..] {
        b"permanent" => 301,
        b"temp" => 302,
        b"seeother" => 303,
        b"gone" => 410,
        digits if digits.first().is_some_and(u8::is_ascii_digit) => {
            u16::try_from(integer(digits)).unwrap_or(0)
        }
        _ => return None,
    })
}

impl AliasConf {
    /// The configuration below another one: own redirects come first.
    pub fn below(&self, base: &AliasConf) -> AliasConf {
        AliasConf {
            redirects: [&self.redirects[..], &base.redirects].concat(),
            whole: self.whole.as_ref().or(base.whole.as_ref()).cloned(),
            is_relative: self.is_relative.or(base.is_relative),
        }
    }

    /// Adds a directive (`add_redirect_internal`); `default` is its status without one.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn add(
        &mut self,
        mut words: Vec<Vec<u8>>,
        default: u16,
        is_regex: bool,
    ) -> Result<(), String> {
        let named = named_status(&words[0]);
        if words.len() == 3 && named.is_none() {
            return Err("Redirect: invalid first argument (of three)".to_owned());
        }
        let status = named.unwrap_or(default);
        let redirects = (300..400).contains(&status);
        if named.is_some() {
            words.remove(0);
        }
        match (words.len(), redirects) {
            (0, false) => {
                self.whole = Some(Arc::new(WholeRedirect { to: None, status }));
                return Ok(());
            }
            (0, true) => return Err("URL to redirect to is missing".to_owned()),
            (1, true) => {
                let to = Some(Template::parse(&words[0])?);
                self.whole = Some(Arc::new(WholeRedirect { to, status }));
                return Ok(());
            }
            (2, false) => return Err("Redirect URL not valid for this status".to_owned()),
            _ => {}
        }
        let to = words.get(1).cloned();
        let from = match is_regex {
            true => From::Regex(
                Regex::new(&words[0], false)
                    .map_err(|why| format!("Regular expression could not be compiled: {why}"))?,
            ),
            false => From::Prefix(words[0].clone()),
        };
        let is_target = |to: &Vec<u8>| to.starts_with(b"/") || is_url(to);
        if !is_regex && to.as_ref().is_some_and(|to| !is_target(to)) {
            return Err("Redirect to non-URL".to_owned());
        }
        self.redirects.push(Arc::new(Redirect { from, to, status }));
        Ok(())
    }

    /// The redirect of a request: the status, and its `Location` in the request.
    ///
    /// # Errors
    /// When an expression is too costly, or the target is no URL.
    pub fn apply(&self, scope: &Scope<'_>) -> Result<Option<Target>, Stop> {
        let Some(found) = self.find(scope)? else { return Ok(None) };
        let status = found.status;
        if !(300..400).contains(&status) {
            return Ok(Some(Target { status, location: None }));
        }
        let mut location = found.location.unwrap_or_default();
        if location.starts_with(b"/") && self.is_relative != Some(true) {
            location = [scope.client.origin(), location].concat();
        }
        if !location.starts_with(b"/") && !is_url(&location) {
            return Err(Stop::Status(500));
        }
        if let Some(args) = &scope.request.args
            && !location.contains(&b'?')
        {
            location = [&location[..], b"?", args].concat();
        }
        Ok(Some(Target { status, location: Some(location) }))
    }

    fn find(&self, scope: &Scope<'_>) -> Result<Option<Target>, Stop> {
        if let Some(whole) = &self.whole {
            let to = whole.to.as_ref().map(|to| Evaluation::new(scope).text(to)).transpose()?;
            let location = to.map(|to| escape_target(&to));
            return Ok(Some(Target { status: whole.status, location }));
        }
        let uri = &scope.request.uri;
        for redirect in &self.redirects {
            scope.check_time()?;
            let location = match &redirect.from {
                From::Prefix(prefix) => match matched_length(uri, prefix) {
                    Some(length) => redirect
                        .to
                        .as_ref()
                        .map(|to| [&to[..], &escape_path(&uri[length..])].concat()),
                    None => continue,
                },
                From::Regex(regex) => match regex.captures(uri)? {
                    Some(groups) => {
                        let to = redirect.to.as_ref().map(|to| groups.expand(to)).transpose()?;
                        to.map(|to| escape_target(&to))
                    }
                    None => continue,
                },
            };
            return Ok(Some(Target { status: redirect.status, location }));
        }
        Ok(None)
    }
}

/// A status, and where a redirect leads.
#[derive(Debug, PartialEq, Eq)]
pub struct Target {
    /// The status.
    pub status: u16,
    /// The URL.
    pub location: Option<Vec<u8>>,
}

/// Escapes a target up to its query.
fn escape_target(target: &[u8]) -> Vec<u8> {
    let end = target.iter().position(|byte| matches!(byte, b'?' | b'#')).unwrap_or(target.len());
    [&escape_path(&target[..end]), &target[end..]].concat()
}

fn is_url(text: &[u8]) -> bool {
    let colon = memchr::memchr(b':', text).unwrap_or(0);
    let is_scheme = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
    colon > 0 && text[..colon].iter().all(is_scheme) && text[colon..].starts_with(b"://")
}

/// The length of a path's start that is `prefix`, with any number of slashes for one
/// (`alias_matches`).
fn matched_length(path: &[u8], prefix: &[u8]) -> Option<usize> {
    let (mut at, mut read) = (0, 0);
    while at < prefix.len() {
        if prefix[at] != *path.get(read)? {
            return None;
        }
        let is_slash = prefix[at] == b'/';
        at += 1;
        read += 1;
        if is_slash {
            at += prefix[at..].iter().take_while(|byte| **byte == b'/').count();
            read += path[read..].iter().take_while(|byte| **byte == b'/').count();
        }
    }
    let is_whole = prefix.ends_with(b"/") || matches!(path.get(read), None | Some(b'/'));
    is_whole.then_some(read)
}

weight_of!(AliasConf: redirects, whole);
weight_of!(Redirect: from, to);
weight_of!(WholeRedirect: to);

impl Weight for From {
    fn heap(&self, shared: Shared) -> usize {
        match self {
            From::Prefix(prefix) => prefix.heap(shared),
            From::Regex(regex) => regex.heap(shared),
        }
    }
}
