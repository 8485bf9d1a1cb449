//! The order in which Caddy evaluates the directives of a block.

use super::matchers::Matchers;
use super::path_areas::CaddyPath;
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
    pub fn sorted<'d>(
        &self,
        directives: &'d [Directive],
        matchers: &Matchers<'_>,
    ) -> Vec<&'d Directive> {
        let mut found: Vec<&Directive> = directives.iter().collect();
        found.sort_by_key(|one| {
            // `handle_path` is a `handle`.
            let name = if one.name == "handle_path" { "handle" } else { &one.name };
            let at = self.0.iter().position(|known| known == name).unwrap_or(self.0.len());
            let (condition, arguments) = matchers.of(one);
            let has_matcher = arguments.len() < one.arguments.len() && one.first() != "*";
            let length = match condition.paths.as_slice() {
                [CaddyPath::Exact(path) | CaddyPath::Prefix(path)] => path.len(),
                [CaddyPath::Regex { text, .. }] => text.len(),
                _ => 0,
            };
            (at, usize::MAX - length, !has_matcher)
        });
        found
    }
}
