//! What Unit serves at a path: the first step that matches, and what its action leads to. It knows
//! none of the rules of the import.

use pcre2::bytes::{Regex, RegexBuilder};
use serde_json::Value;

use super::{UnitConfig, names};
use crate::escapes::percent_decoded;

/// Longest chain of actions; Unit has no such limit, but a chain of this length is a circle.
const MAX_ACTIONS: usize = 50;

/// The file of a folder, if no `index` names another.
pub(super) const DEFAULT_INDEX: &str = "index.html";

/// A request, for a host in small letters and a decoded path.
pub(super) struct UnitRequest<'r> {
    /// The host.
    pub host: &'r str,
    /// The path.
    pub path: &'r str,
}

/// What Unit serves, if there are files and scripts with all names.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct UnitReply {
    /// The files of which one is sent.
    pub files: Vec<String>,
    /// The script that runs, if no file is there.
    pub script: Option<String>,
    /// The application that has the request.
    pub application: Option<String>,
    /// Whether another server has the request.
    pub is_proxied: bool,
    /// Whether no step has the request.
    pub is_unmatched: bool,
    /// The pointers of all steps and actions on the way.
    pub by: Vec<String>,
}

/// Compiled patterns of a `match`: one of them matches, and no negated one.
#[derive(Default)]
struct TextList {
    patterns: Vec<TextPattern>,
    except: Vec<TextPattern>,
}

enum TextPattern {
    /// The texts around each `*`.
    Parts(Vec<String>),
    Regex(Regex),
}

struct SearchedStep {
    pointer: String,
    host: Option<TextList>,
    uri: Option<TextList>,
    /// Whether it is for some of these requests alone.
    is_partial: bool,
}

/// Routes whose patterns are compiled.
pub(super) struct UnitSearch<'c> {
    config: &'c UnitConfig,
    /// The steps of each route, by its pointer.
    routes: Vec<(String, Vec<SearchedStep>)>,
}

impl<'c> UnitSearch<'c> {
    /// The routes of a configuration.
    pub fn new(config: &'c UnitConfig) -> UnitSearch<'c> {
        let all = super::route_pointers(config).into_iter();
        let routes = all.map(|pointer| {
            let count = config.get(&pointer).and_then(Value::as_array).map_or(0, Vec::len);
            let steps = (0..count).map(|step| SearchedStep::new(config, &pointer, step));
            let steps = steps.collect();
            (pointer, steps)
        });
        UnitSearch { config, routes: routes.collect() }
    }

    /// What a listener with this `pass` serves. `None` if that depends on more than the host and
    /// the path.
    pub fn serve(&self, pass: &str, request: &UnitRequest<'_>) -> Option<UnitReply> {
        let mut reply = UnitReply::default();
        let mut pass = pass.to_owned();
        for _ in 0..MAX_ACTIONS {
            let action = match pass.split('/').next() {
                _ if pass.contains('$') => return None,
                Some("applications") => {
                    reply.script = self.script(&pass, request.path);
                    reply.application = pass.split('/').nth(1).map(str::to_owned);
                    return Some(reply);
                }
                Some("routes") => match self.step(&pass, request, &mut reply)? {
                    Some(action) => action,
                    None => return Some(reply),
                },
                _ => return Some(reply),
            };
            match self.action(action, request.path, &mut reply)? {
                Some(next) => pass = next,
                None => return Some(reply),
            }
        }
        None
    }

    /// The pointer of the action of the first step that matches, if one does.
    fn step(
        &self,
        pass: &str,
        request: &UnitRequest<'_>,
        reply: &mut UnitReply,
    ) -> Option<Option<String>> {
        let pointer = UnitConfig::target(pass);
        let steps = self.routes.iter().find(|(own, _)| *own == pointer);
        for step in steps.iter().flat_map(|(_, steps)| steps) {
            let is_host = step.host.as_ref().is_none_or(|list| list.matches(request.host));
            let is_uri = step.uri.as_ref().is_none_or(|list| list.matches(request.path));
            match is_host && is_uri {
                true if step.is_partial => return None,
                true => {
                    reply.by.push(step.pointer.clone());
                    return Some(Some(format!("{}/action", step.pointer)));
                }
                false => {}
            }
        }
        reply.is_unmatched = true;
        reply.by.push(pointer);
        Some(None)
    }

    /// Follows an action and those that it falls back to: what it passes the request to.
    fn action(
        &self,
        mut pointer: String,
        path: &str,
        reply: &mut UnitReply,
    ) -> Option<Option<String>> {
        for _ in 0..MAX_ACTIONS {
            reply.by.push(pointer.clone());
            let Some(action) = self.config.get(&pointer) else { return Some(None) };
            let has = |name: &str| action.get(name).is_some();
            if has("rewrite") || has("types") {
                return None;
            }
            if let Some(pass) = action.get("pass").and_then(Value::as_str) {
                return Some(Some(pass.to_owned()));
            }
            if !has("share") {
                reply.is_proxied = has("proxy");
                return Some(None);
            }
            reply.files.extend(shared(action, path)?);
            pointer += "/fallback";
        }
        None
    }

    /// The script that an application runs for a path.
    fn script(&self, pass: &str, path: &str) -> Option<String> {
        let mut parts = pass.split('/').skip(1);
        let (name, target) = (parts.next().unwrap_or_default(), parts.next());
        let application = self.config.get(&format!("/applications/{name}"))?;
        let kind = application.get("type").and_then(Value::as_str)?;
        let holder = match target {
            Some(target) => application.get("targets")?.get(target)?,
            None => application,
        };
        let root = holder.get("root").and_then(Value::as_str)?.trim_end_matches('/');
        let index = holder.get("index").and_then(Value::as_str).unwrap_or("index.php");
        match holder.get("script").and_then(Value::as_str) {
            _ if kind != "php" && !kind.starts_with("php ") => None,
            Some(script) => Some(format!("{root}/{}", script.trim_start_matches('/'))),
            None if path.ends_with('/') => Some(format!("{root}{path}{index}")),
            None => path.ends_with(".php").then(|| format!("{root}{path}")),
        }
    }
}

/// The files that a `share` looks for. `None` if they depend on more than the path.
fn shared(action: &Value, path: &str) -> Option<Vec<String>> {
    let index = action.get("index").and_then(Value::as_str).unwrap_or(DEFAULT_INDEX);
    let files = share_texts(action.get("share")?)?.into_iter().map(|text| {
        let file = match text.split_once("$uri") {
            // One file for all paths.
            None if text.ends_with('/') => format!("{text}{index}"),
            None => text.to_owned(),
            Some((folder, rest)) => format!("{}{path}{rest}", folder.trim_end_matches('/')),
        };
        (!text.replace("$uri", "").contains('$')).then_some(file)
    });
    files.collect()
}

/// The templates of a `share`.
pub(super) fn share_texts(share: &Value) -> Option<Vec<&str>> {
    match share {
        Value::String(text) => Some(vec![text.as_str()]),
        Value::Array(all) => all.iter().map(Value::as_str).collect(),
        _ => None,
    }
}

impl SearchedStep {
    fn new(config: &UnitConfig, route: &str, step: usize) -> SearchedStep {
        let pointer = format!("{route}/{step}");
        let list = |name: &str| {
            let value = config.get(&format!("{pointer}/match/{name}"));
            value.map(|value| TextList::new(value, name == "host"))
        };
        let (host, uri) = (list("host"), list("uri"));
        let is_unknown = |list: &Option<Option<TextList>>| matches!(list, Some(None));
        let mut conditions = names(config, &format!("{pointer}/match")).into_iter();
        let is_partial = conditions.any(|name| name != "host" && name != "uri")
            || is_unknown(&host)
            || is_unknown(&uri);
        SearchedStep { pointer, host: host.flatten(), uri: uri.flatten(), is_partial }
    }
}

impl TextList {
    /// `None` if a pattern is none.
    fn new(value: &Value, is_host: bool) -> Option<TextList> {
        let texts = match value {
            Value::Array(all) => all.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?,
            other => vec![other.as_str()?],
        };
        let mut list = TextList::default();
        for text in texts {
            let (text, to) = match text.strip_prefix('!') {
                Some(text) => (text, &mut list.except),
                None => (text, &mut list.patterns),
            };
            to.push(TextPattern::new(text, is_host)?);
        }
        Some(list)
    }

    fn matches(&self, text: &str) -> bool {
        (self.patterns.is_empty() || self.patterns.iter().any(|one| one.matches(text)))
            && !self.except.iter().any(|one| one.matches(text))
    }
}

impl TextPattern {
    fn new(text: &str, is_host: bool) -> Option<TextPattern> {
        if let Some(expression) = text.strip_prefix('~') {
            let regex = RegexBuilder::new().caseless(is_host).build(expression);
            return regex.ok().map(TextPattern::Regex);
        }
        let text = if is_host { text.to_ascii_lowercase() } else { text.to_owned() };
        let parts = text.split('*').map(|part| match is_host {
            true => Some(part.to_owned()),
            false => percent_decoded(part),
        });
        parts.collect::<Option<_>>().map(TextPattern::Parts)
    }

    fn matches(&self, text: &str) -> bool {
        let parts = match self {
            TextPattern::Regex(regex) => return regex.is_match(text.as_bytes()).unwrap_or(false),
            TextPattern::Parts(parts) => parts,
        };
        let [first, between @ .., last] = parts.as_slice() else {
            return parts.first().is_some_and(|only| only == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        for part in between {
            let Some((_, after)) = rest.split_once(part.as_str()) else { return false };
            rest = after;
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_of_unit_has_any_text_at_each_star() {
        let is_match = |pattern: &str, text: &str| {
            TextPattern::new(pattern, false).is_some_and(|one| one.matches(text))
        };
        for (pattern, text) in [
            ("/a", "/a"),
            ("/a*", "/a"),
            ("*.php", "/a.php"),
            ("/a/*/b*c", "/a/x/y/bzc"),
            ("*/.*", "/a/.b"),
            ("/my%20docs/*", "/my docs/a"),
            ("~^/a.+", "/ab"),
            ("**", "/"),
        ] {
            assert!(is_match(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("/a", "/ab"), ("/a*a", "/a"), ("*.php", "/a.PHP"), ("/a/*/b", "/a/b"), ("*%", "/%")]
        {
            assert!(!is_match(pattern, text), "{pattern} {text}");
        }
    }
}
