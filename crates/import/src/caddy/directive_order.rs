//! The order in which Caddy evaluates the directives of a block.

use std::cmp::Ordering;

use super::matchers::Matchers;
use super::stable_merge::sort_stable;
use crate::source_directive::Directive;

/// Caddy's order, with FrankenPHP's directives.
const DEFAULT_ORDER: [&str; 42] = [
    "tracing",
    "map",
    "vars",
    "fs",
    "root",
    "log_append",
    "log_skip",
    "skip_log",
    "log_name",
    "header",
    "copy_response_headers",
    "request_body",
    "redir",
    "method",
    "rewrite",
    "uri",
    "try_files",
    "basic_auth",
    "basicauth",
    "forward_auth",
    "request_header",
    "encode",
    "push",
    "intercept",
    "templates",
    "vulcain",
    "mercure",
    "invoke",
    "handle",
    "handle_path",
    "route",
    "abort",
    "error",
    "copy_response",
    "respond",
    "metrics",
    "reverse_proxy",
    "php_fastcgi",
    "php_server",
    "php",
    "file_server",
    "acme_server",
];

/// Directives that are several routes if they have no matcher.
const SUBROUTES: [&str; 2] = ["php_fastcgi", "php_server"];

/// The order, with the changes of the global option `order`.
#[derive(Debug, Clone)]
pub(super) struct DirectiveOrder(Vec<String>);

impl DirectiveOrder {
    /// The order of a configuration with these options.
    pub fn new(options: &[Directive]) -> DirectiveOrder {
        let mut all: Vec<String> = DEFAULT_ORDER.map(str::to_owned).to_vec();
        for option in options.iter().filter(|one| one.name == "order") {
            let [name, how, rest @ ..] = option.arguments.as_slice() else { continue };
            all.retain(|known| known != name);
            let of = |other: Option<&String>| all.iter().position(|known| Some(known) == other);
            let at = match how.as_str() {
                "first" => Some(0),
                "before" => of(rest.first()),
                "after" => of(rest.first()).map(|at| at + 1),
                _ => None,
            };
            all.insert(at.unwrap_or(all.len()), name.clone());
        }
        DirectiveOrder(all)
    }

    /// Whether a directive has a place in it.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|known| known == name)
    }

    /// The directives of a block as Caddy evaluates them: by name, those for longer paths first.
    /// Those without a place are last.
    pub fn sorted<'d>(
        &self,
        directives: &'d [Directive],
        matchers: &Matchers<'_>,
    ) -> Vec<&'d Directive> {
        let keyed = directives.iter().map(|one| (self.place_of(one, matchers), one));
        let (others, mut ordered): (Vec<_>, Vec<_>) =
            keyed.partition(|(place, _)| place.at == self.0.len());
        sort_stable(&mut ordered, &|(one, _), (other, _)| one.precedes(other));
        ordered.into_iter().chain(others).map(|(_, one)| one).collect()
    }

    fn place_of<'d>(&self, one: &'d Directive, matchers: &Matchers<'d>) -> OrderedPlace<'d> {
        // `handle_path` is a `handle`.
        let name = if one.name == "handle_path" { "handle" } else { &one.name };
        let at = self.0.iter().position(|known| known == name).unwrap_or(self.0.len());
        let first = one.first();
        let matcher = first.strip_prefix('@').and_then(|_| matchers.named.get(first));
        let paths: Vec<&str> = match matcher {
            _ if first.starts_with('/') => vec![first],
            Some(named) => named_paths(named),
            None => Vec::new(),
        };
        let has_matcher = first.starts_with(['/', '@']) && !is_single_root(one);
        OrderedPlace {
            at,
            path: paths.first().copied().filter(|_| paths.len() == 1 && has_matcher),
            has_matcher,
            is_subroute: !has_matcher && SUBROUTES.contains(&name),
        }
    }
}

/// What the place of a directive depends on.
struct OrderedPlace<'d> {
    /// That of its name.
    at: usize,
    /// The path of its matcher, if it has one alone.
    path: Option<&'d str>,
    has_matcher: bool,
    /// Whether it is several routes, which stay together.
    is_subroute: bool,
}

impl OrderedPlace<'_> {
    /// Whether it is evaluated before another one, as Caddy compares two of them (`sortRoutes`).
    fn precedes(&self, other: &OrderedPlace<'_>) -> bool {
        if self.at != other.at {
            return self.at < other.at;
        }
        if self.is_subroute || other.is_subroute {
            return false;
        }
        let (Some(own), Some(its)) = (self.path, other.path) else {
            return self.has_matcher && !other.has_matcher;
        };
        let (own_begin, its_begin) = (begin(own), begin(its));
        match own_begin.len().cmp(&its_begin.len()) {
            _ if own_begin == its_begin => own.len() < its.len(),
            Ordering::Equal => own_begin < its_begin,
            order => order == Ordering::Greater,
        }
    }
}

fn begin(path: &str) -> &str {
    path.strip_suffix('*').unwrap_or(path)
}

/// `root /srv`: its path is no matcher.
fn is_single_root(one: &Directive) -> bool {
    one.name == "root" && one.arguments.len() == 1
}

/// The texts of the paths of a named matcher.
fn named_paths(matcher: &Directive) -> Vec<&str> {
    let inline = match matcher.arguments.split_first() {
        Some((name, paths)) if name == "path" => paths,
        _ => &[],
    };
    let of_block = matcher.block.iter().filter(|one| one.name == "path");
    inline.iter().chain(of_block.flat_map(|one| &one.arguments)).map(String::as_str).collect()
}
