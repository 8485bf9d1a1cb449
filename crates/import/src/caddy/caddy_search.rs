//! What Caddy serves at a path: its directives in their order, with their matchers, up to the first
//! that responds. It knows none of the rules of the import but that order.

use super::config_tree::Environment;
use super::directive_order::DirectiveOrder;
use super::matchers::Matchers;
use super::placeholders::filled;
use super::request_tests::{RequestTest, TestScope, TestedPath, is_glob};
use crate::escapes::percent_decoded;
use crate::source_directive::Directive;

/// Deepest block.
const MAX_DEPTH: usize = 20;

/// Directives of which a block evaluates the first one with the request alone.
const EXCLUSIVE: [&str; 3] = ["handle", "rewrite", "root"];

/// Directives that respond without a file of the document root.
const RESPONDERS: [&str; 7] =
    ["abort", "acme_server", "copy_response", "error", "metrics", "redir", "respond"];

/// Directives that change nothing about which file or script responds.
const BESIDE: [&str; 22] = [
    "bind",
    "copy_response_headers",
    "encode",
    "handle_errors",
    "header",
    "intercept",
    "log",
    "log_append",
    "log_name",
    "log_skip",
    "map",
    "mercure",
    "method",
    "push",
    "request_body",
    "request_header",
    "skip_log",
    "templates",
    "tls",
    "tracing",
    "vars",
    "vulcain",
];

/// What the directives of a configuration are evaluated with.
#[derive(Clone, Copy)]
pub(super) struct CaddySearch<'c> {
    /// Variables of the environment.
    pub environment: Environment<'c>,
    /// The Caddyfile.
    pub main: &'c str,
    /// The order of directives.
    pub order: &'c DirectiveOrder,
}

/// A directive with its test, and those in its block.
struct SearchedLine<'c> {
    line: &'c Directive,
    test: RequestTest,
    arguments: &'c [String],
    inner: Vec<SearchedLine<'c>>,
}

/// A site whose directives are in order, with their tests.
pub(super) struct SearchedBlock<'c> {
    search: CaddySearch<'c>,
    lines: Vec<SearchedLine<'c>>,
}

/// What Caddy sends, if there is a file with the name of the path.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct CaddyReply<'c> {
    /// The file.
    pub file: Option<String>,
    /// The script that runs.
    pub script: Option<String>,
    /// Whether another server has the request.
    pub is_proxied: bool,
    /// Whether a user is required.
    pub needs_user: bool,
    /// The directives on the way.
    pub by: Vec<&'c Directive>,
}

/// Where a directive leads.
enum CaddyFlow {
    /// To the next one.
    Next,
    /// Nowhere else.
    End,
    /// It depends on more than the host and the path.
    Unknown,
}

/// A request on its way.
struct CaddyState<'c> {
    path: TestedPath,
    root: Option<String>,
    reply: CaddyReply<'c>,
}

impl<'c> CaddySearch<'c> {
    /// The directives of a site, for a host.
    pub fn block(self, directives: &'c [Directive], host: &'c str) -> SearchedBlock<'c> {
        let scope = TestScope { named: std::collections::BTreeMap::new(), host };
        SearchedBlock { search: self, lines: self.lines(directives, false, &scope, 0) }
    }

    fn lines(
        self,
        directives: &'c [Directive],
        is_route: bool,
        scope: &TestScope<'c>,
        depth: usize,
    ) -> Vec<SearchedLine<'c>> {
        if depth > MAX_DEPTH {
            return Vec::new();
        }
        let mut scope = scope.clone();
        for one in directives.iter().filter(|one| one.name.starts_with('@')) {
            scope.named.insert(one.name.as_str(), one);
        }
        let named = scope.named.iter().map(|(name, one)| ((*name).to_owned(), *one)).collect();
        let matchers = Matchers { named, hosts: vec![scope.host.to_owned()] };
        let ordered = match is_route {
            true => directives.iter().collect(),
            false => self.order.sorted(directives, &matchers),
        };
        let own = ordered.into_iter().filter(|one| !one.name.starts_with('@'));
        let all = own.map(|line| {
            let (test, arguments) = scope.test(line);
            let inner = match line.name.as_str() {
                "handle" | "handle_path" => self.lines(&line.block, false, &scope, depth + 1),
                "route" => self.lines(&line.block, true, &scope, depth + 1),
                _ => Vec::new(),
            };
            SearchedLine { line, test, arguments, inner }
        });
        all.collect()
    }

    /// A path from the folder of the Caddyfile. `None` if it is not fixed.
    fn folder(self, text: &str) -> Option<String> {
        let text = filled(self.environment, text);
        let path = text.trim_end_matches('/');
        let above = self.main.rsplit_once('/').map_or(".", |(folder, _)| folder);
        match path.strip_prefix("./").unwrap_or(path) {
            _ if text.contains('{') => None,
            _ if text.starts_with('/') => Some(path.to_owned()),
            "" | "." => Some(above.to_owned()),
            inner => Some(format!("{above}/{inner}")),
        }
    }
}

impl<'c> SearchedBlock<'c> {
    /// What any client gets at a path. `None` if that depends on more.
    pub fn serve(&self, path: &TestedPath) -> Option<CaddyReply<'c>> {
        let mut state = CaddyState { path: path.clone(), root: None, reply: CaddyReply::default() };
        match self.walk(&self.lines, &mut state) {
            CaddyFlow::Unknown => None,
            CaddyFlow::End | CaddyFlow::Next => Some(state.reply),
        }
    }

    fn walk(&self, lines: &[SearchedLine<'c>], state: &mut CaddyState<'c>) -> CaddyFlow {
        let mut done: Vec<&str> = Vec::new();
        for one in lines {
            let name = one.line.name.as_str();
            let kind = if name == "handle_path" { "handle" } else { name };
            if BESIDE.contains(&name) || done.contains(&kind) {
                continue;
            }
            match one.test.holds(&state.path) {
                Some(true) => {}
                Some(false) => continue,
                None => return CaddyFlow::Unknown,
            }
            if EXCLUSIVE.contains(&kind) {
                done.push(kind);
            }
            let length = state.reply.by.len();
            state.reply.by.push(one.line);
            match self.line(one, state) {
                CaddyFlow::Next => state.reply.by.truncate(length),
                end => return end,
            }
        }
        CaddyFlow::Next
    }

    /// One directive whose matcher has the request.
    fn line(&self, one: &SearchedLine<'c>, state: &mut CaddyState<'c>) -> CaddyFlow {
        let first = one.arguments.first().map(String::as_str).unwrap_or_default();
        match one.line.name.as_str() {
            name if RESPONDERS.contains(&name) => return CaddyFlow::End,
            "reverse_proxy" => {
                state.reply.is_proxied = true;
                return CaddyFlow::End;
            }
            "handle" | "route" => return self.walk(&one.inner, state),
            "handle_path" => {
                let begin = percent_decoded(one.line.first()).unwrap_or_default();
                strip(&mut state.path.text, begin.trim_end_matches('*').trim_end_matches('/'));
                return self.walk(&one.inner, state);
            }
            "basic_auth" | "basicauth" => state.reply.needs_user = true,
            "root" => match self.search.folder(first) {
                Some(root) => state.root = Some(root),
                None => return CaddyFlow::Unknown,
            },
            "rewrite" => {
                let to = first.split('?').next().unwrap_or_default();
                let to = to.replace("{path}", &state.path.text);
                match to.replace("{uri}", &state.path.text) {
                    to if to.contains('{') => return CaddyFlow::Unknown,
                    to if to.is_empty() => {}
                    to => state.path.text = to,
                }
            }
            "uri" => match one.arguments {
                [how, part] if how == "strip_prefix" && !part.contains('%') => {
                    strip(&mut state.path.text, part.trim_end_matches('/'));
                }
                [how, ..] if how == "query" => {}
                _ => return CaddyFlow::Unknown,
            },
            "try_files" => return tried(one.arguments, state),
            "php" | "php_fastcgi" | "php_server" => return self.php(one.line, state),
            "file_server" => return self.file(one.line, state),
            _ => return CaddyFlow::Unknown,
        }
        CaddyFlow::Next
    }

    /// PHP: a file stays, and what has none is the front controller's.
    fn php(&self, line: &'c Directive, state: &mut CaddyState<'c>) -> CaddyFlow {
        let option = |name: &str| line.block.iter().find(|one| one.name == name);
        let Some(root) = self.root(line, state) else { return CaddyFlow::Unknown };
        let index = option("index").map_or("index.php", Directive::first);
        let usual = ["{path}".to_owned(), index.to_owned()];
        let flow = match option("try_files") {
            Some(files) => tried(&files.arguments, state),
            None if index == "off" || line.name == "php" => CaddyFlow::Next,
            None => tried(&usual, state),
        };
        if !matches!(flow, CaddyFlow::Next) {
            return flow;
        }
        if option("split").is_some() || option("split_path").is_some() {
            return CaddyFlow::Unknown;
        }
        if state.path.text.to_lowercase().ends_with(".php") {
            state.reply.script = Some(named(&root, state));
            return CaddyFlow::End;
        }
        if line.name == "php" {
            return CaddyFlow::Unknown;
        }
        let is_off = option("file_server").is_some_and(|one| one.first() == "off");
        match line.name == "php_server" && !is_off {
            true => self.send(&root, &[], state),
            false => CaddyFlow::Next,
        }
    }

    fn file(&self, line: &'c Directive, state: &mut CaddyState<'c>) -> CaddyFlow {
        let Some(root) = self.root(line, state) else { return CaddyFlow::Unknown };
        let hidden = line.block.iter().filter(|one| one.name == "hide");
        let hidden: Vec<&String> = hidden.flat_map(|one| &one.arguments).collect();
        self.send(&root, &hidden, state)
    }

    fn send(&self, root: &str, hidden: &[&String], state: &mut CaddyState<'c>) -> CaddyFlow {
        let file = named(root, state);
        for name in hidden {
            match name.starts_with('/') && !name.contains(['{', '*']) {
                true if file == **name || file.starts_with(&format!("{name}/")) => {
                    return CaddyFlow::End;
                }
                true => {}
                false if name.contains(['/', '{', '[', '\\']) => return CaddyFlow::Unknown,
                false => {
                    let is_own = |part: &str| is_glob(name.as_bytes(), part.as_bytes());
                    if file.split('/').any(is_own) {
                        return CaddyFlow::End;
                    }
                }
            }
        }
        state.reply.file = Some(file).filter(|file| file != self.search.main);
        CaddyFlow::End
    }

    /// The document root of a directive. `None` if it is not fixed.
    fn root(&self, line: &Directive, state: &CaddyState<'c>) -> Option<String> {
        match line.block.iter().find(|one| one.name == "root") {
            Some(own) => self.search.folder(own.first()),
            None => state.root.clone(),
        }
    }
}

/// The file with the name of the path below a root.
fn named(root: &str, state: &CaddyState<'_>) -> String {
    format!("{root}/{}", state.path.text.trim_start_matches('/'))
}

/// `try_files`, if no other file exists than that of the path.
fn tried(files: &[String], state: &mut CaddyState<'_>) -> CaddyFlow {
    let is_own = |file: &String| ["{path}", "{http.request.uri.path}"].contains(&file.as_str());
    match files.last().map(|last| last.split('?').next().unwrap_or_default()) {
        _ if state.path.is_file && files.iter().any(is_own) => CaddyFlow::Next,
        Some(status) if status.starts_with('=') => CaddyFlow::End,
        Some(last) if !last.contains('{') => {
            state.path.text = format!("/{}", last.trim_start_matches('/'));
            CaddyFlow::Next
        }
        _ => CaddyFlow::Unknown,
    }
}

/// Removes the begin of a path, whatever its case.
fn strip(path: &mut String, begin: &str) {
    let is_begin = path.get(..begin.len()).is_some_and(|own| own.eq_ignore_ascii_case(begin));
    if is_begin {
        let rest = path.split_off(begin.len());
        *path = if rest.starts_with('/') { rest } else { format!("/{rest}") };
    }
}
