//! The walk through the directives of a site, in the order in which Caddy evaluates them.

use super::CaddyImport;
use super::guards::AuthArea;
use super::matchers::{Condition, Matchers, definitions};
use super::path_areas::BlockPaths;
use super::placeholders::filled;
use super::served_areas::ServedArea;
use crate::escapes::percent_decoded;
use crate::file_draft::{Placed, SiteDraft};
use crate::report::SourceLine;
use crate::source_directive::Directive;

/// Deepest block of a route.
const MAX_DEPTH: usize = 20;

/// Directives that decide who may see what.
const GUARDS: [&str; 9] = [
    "abort",
    "basic_auth",
    "basicauth",
    "error",
    "forward_auth",
    "invoke",
    "request_header",
    "respond",
    "templates",
];

/// Directives that change nothing about what is served.
const HARMLESS: [&str; 3] = ["encode", "header", "request_body"];

/// Directives that refuse or redirect requests.
const REFUSALS: [&str; 4] = ["abort", "error", "redir", "respond"];

/// Directives of a site that its addresses and certificates need, and that no path has.
const OF_SITE: [&str; 3] = ["bind", "log", "tls"];

/// Directives to write by hand.
const BY_HAND: [(&str, &str); 18] = [
    ("copy_response", "it has no counterpart"),
    ("copy_response_headers", "it has no counterpart"),
    ("fs", "it has no counterpart"),
    ("intercept", "set `error_pages` and `intercept_errors`"),
    ("log_append", "set `access_log_format`"),
    ("log_name", "set `access_log` of the site"),
    ("log_skip", "all requests are logged"),
    ("map", "write `redirects` or `rewrite` for each path"),
    ("mercure", "run the Mercure hub by itself, and write `proxy` for its path"),
    ("method", "it has no counterpart"),
    ("metrics", "set `admin`, whose `/metrics` are for Prometheus"),
    ("push", "scripts send early hints with `headers_send()`"),
    ("skip_log", "all requests are logged"),
    ("templates", "files are sent as they are, with what Caddy evaluates in them: deny them"),
    ("tracing", "set `send_request_id`"),
    ("vars", "write its value where it is used"),
    ("vulcain", "it has no counterpart"),
    ("acme_server", "it has no counterpart"),
];

/// What a block of directives is for.
#[derive(Debug, Clone, Default)]
pub(super) struct BlockContext {
    /// Its paths.
    pub area: BlockPaths,
    /// The document root.
    pub root: Option<(String, SourceLine)>,
    /// The paths of its earlier `root`s: no later one is evaluated for them.
    rooted: Vec<BlockPaths>,
    depth: usize,
}

/// A directive, with the requests that it is for.
pub(super) struct Asked<'d> {
    /// The directive.
    pub line: &'d Directive,
    /// Its condition.
    pub condition: Condition,
    /// Its paths.
    pub area: BlockPaths,
    /// Its arguments after the matcher.
    pub arguments: &'d [String],
}

/// The walk.
pub(super) struct SiteWalk<'w, 's, 'a> {
    /// What all sites share.
    pub shared: &'w mut CaddyImport<'s>,
    /// The site.
    pub site: SiteDraft,
    /// Its named matchers and names.
    pub matchers: Matchers<'a>,
    /// Its place.
    pub place: SourceLine,
    /// What serves files and scripts.
    pub served: Vec<ServedArea>,
    /// Paths whose scripts the pool of the site runs.
    pub pool_areas: Vec<BlockPaths>,
    /// The script or the file for paths without a file.
    pub front: Option<(String, SourceLine)>,
    /// The document root of the site.
    pub root: Option<(String, SourceLine)>,
    /// Paths that lead elsewhere, or nowhere.
    pub elsewhere: Vec<ServedArea>,
    /// Paths that all clients are refused.
    pub closed: Vec<BlockPaths>,
    /// Each `basic_auth`, inner ones before those around them.
    pub auths: Vec<AuthArea>,
}

impl<'a> SiteWalk<'_, '_, 'a> {
    pub(super) fn kept(&mut self, line: &Directive) {
        self.shared.report.kept(&line.place, &line.shown());
    }

    pub(super) fn left_out(&mut self, line: &Directive, why: &str) {
        match GUARDS.contains(&line.name.as_str()) {
            true => self.shared.report.access_left_out(&line.place, &line.shown(), why),
            false => self.shared.report.left_out(&line.place, &line.shown(), why),
        }
    }

    /// Leaves out a directive that is for some requests alone: who the client is may decide what
    /// it sees.
    pub(super) fn left_out_for_some(&mut self, asked: &Asked<'_>, why: &str) {
        let Asked { line, condition, .. } = asked;
        match condition.is_about_client() {
            true => self.shared.report.access_left_out(&line.place, &line.shown(), why),
            false => self.left_out(line, why),
        }
    }

    pub(super) fn push(&mut self, list: &str, line: &Directive, toml: String) {
        self.site.settings.push(list, Placed::new(toml, &line.place));
    }

    /// Directives, in Caddy's order or as they are written. Whether they respond to all requests.
    pub(super) fn block(
        &mut self,
        directives: &'a [Directive],
        context: &BlockContext,
        is_route: bool,
    ) -> bool {
        let outer = self.matchers.named.clone();
        for one in definitions(directives) {
            self.matchers.named.insert(one.name.clone(), one);
            self.kept(one);
        }
        let ended = self.directives(directives, context, is_route);
        // A matcher of the block is none of those after it.
        self.matchers.named = outer;
        ended
    }

    fn directives(
        &mut self,
        directives: &'a [Directive],
        context: &BlockContext,
        is_route: bool,
    ) -> bool {
        let ordered = match is_route {
            true => directives.iter().collect(),
            false => self.shared.order.sorted(directives, &self.matchers),
        };
        let mut context = BlockContext { rooted: Vec::new(), ..context.clone() };
        let mut handled = context.area.clone();
        let mut ordered = ordered.into_iter();
        while let Some(one) = ordered.next() {
            if one.name.starts_with('@') {
                continue;
            }
            if context.depth > MAX_DEPTH {
                self.left_out(one, "blocks are too deep");
                continue;
            }
            let ended = match one.name.as_str() {
                "handle" | "handle_path" if handled.is_none => {
                    self.unreachable(one);
                    None
                }
                "handle" | "handle_path" => {
                    let others = BlockPaths {
                        except: handled.except.clone(),
                        paths: handled.paths.clone(),
                        ..context.area.clone()
                    };
                    let inner = BlockContext { area: others, ..context.clone() };
                    let (area, ended) = self.handle(one, &inner);
                    match area {
                        Some(area) if area == inner.area => {
                            // All that remains: no later `handle` is evaluated.
                            handled.is_none = true;
                            ended.then_some(area)
                        }
                        Some(area) => {
                            if !handled.remove(&area) {
                                self.has_no_rest(one);
                            }
                            ended.then_some(area)
                        }
                        None => None,
                    }
                }
                _ => self.directive(one, &mut context),
            };
            if let Some(area) = ended {
                if area == context.area {
                    ordered.for_each(|one| self.unreachable(one));
                    return true;
                }
                // Refusals and redirects come first here as well.
                if !REFUSALS.contains(&one.name.as_str()) && !context.area.remove(&area) {
                    self.has_no_rest(one);
                }
            }
        }
        false
    }

    /// Later directives are imported for paths that this one has responded to.
    fn has_no_rest(&mut self, line: &Directive) {
        let why = "later directives are not for its paths, and the others have no pattern: write \
                   `deny`, `deny_php` or `proxy` of the site";
        self.shared.report.access_left_out(&line.place, &line.shown(), why);
    }

    /// A directive that no request reaches.
    fn unreachable(&mut self, line: &Directive) {
        let is_known = self.shared.order.has(&line.name)
            || line.name.starts_with('@')
            || OF_SITE.contains(&line.name.as_str());
        match (is_known, line.name.as_str()) {
            (_, "handle_errors") => self.handle_errors(line),
            (true, _) => {
                self.kept(line);
                self.shared.report.cover(line);
            }
            (false, _) => self.unknown(line),
        }
    }

    fn unknown(&mut self, line: &Directive) {
        let why = "it is unknown: see what it does, and write it by hand";
        self.shared.report.access_left_out(&line.place, &line.shown(), why);
    }

    /// The paths of a `handle`, and whether it responds to all of their requests.
    fn handle(
        &mut self,
        line: &'a Directive,
        context: &BlockContext,
    ) -> (Option<BlockPaths>, bool) {
        let Some(asked) = self.asked(line, context) else { return (None, false) };
        if let Some(other) = asked.condition.beside_paths() {
            self.unknown_requests(line, &other);
            return (None, false);
        }
        let mut inner = BlockContext { area: asked.area.clone(), ..context.clone() };
        inner.depth += 1;
        if line.name == "handle_path" {
            let begin = percent_decoded(line.first()).unwrap_or_default();
            let begin = begin.trim_end_matches('*').trim_end_matches('/');
            inner.area.stripped = format!("{}{begin}", context.area.stripped);
        }
        self.kept(line);
        let ended = self.block(&line.block, &inner, false);
        (Some(asked.area), ended)
    }

    /// A block for requests that differ by more than their paths.
    fn unknown_requests(&mut self, line: &Directive, other: &str) {
        let why = format!(
            "requests differ by their host, path and client alone here, and not by `{other}`: see \
             what the block does, and write it by hand"
        );
        self.shared.report.access_left_out(&line.place, &line.shown(), &why);
        self.shared.report.cover(line);
    }

    /// A directive with its requests; `None` if there are none, or no pattern has them.
    pub(super) fn asked<'d>(
        &mut self,
        line: &'d Directive,
        context: &BlockContext,
    ) -> Option<Asked<'d>> {
        let (condition, arguments) = self.matchers.of(line);
        if condition.is_never {
            self.kept(line);
            return None;
        }
        let (is_never, why) = match context.area.narrowed(&condition.paths, &condition.except) {
            Ok(Some(area)) => return Some(Asked { line, condition, area, arguments }),
            Ok(None) => {
                // Matchers see the path of an earlier `rewrite`.
                let is_rewritten = !self.site.settings.list("rewrite").is_empty();
                (!is_rewritten, "none of its paths is one of the block around it".to_owned())
            }
            Err(why) => (false, why),
        };
        match is_never || HARMLESS.contains(&line.name.as_str()) {
            true => self.left_out(line, &why),
            false => self.shared.report.access_left_out(&line.place, &line.shown(), &why),
        }
        None
    }

    /// A directive that is no `handle`: the paths to whose requests it has responded.
    fn directive(&mut self, line: &'a Directive, context: &mut BlockContext) -> Option<BlockPaths> {
        let name = line.name.as_str();
        if OF_SITE.contains(&name) {
            return None;
        }
        if let Some((_, why)) = BY_HAND.iter().find(|(known, _)| *known == name) {
            self.left_out(line, why);
            return None;
        }
        match name {
            "root" => self.root(line, context),
            "route" | "invoke" => return self.route(line, context),
            "handle_errors" => self.handle_errors(line),
            _ => {
                let asked = self.asked(line, context)?;
                return self.of_requests(&asked, context);
            }
        }
        None
    }

    fn of_requests(&mut self, asked: &Asked<'_>, context: &BlockContext) -> Option<BlockPaths> {
        let ended = || Some(asked.area.clone());
        match asked.line.name.as_str() {
            "header" => self.header(asked),
            "request_body" => self.request_body(asked),
            "encode" => self.encode(asked),
            "rewrite" => self.rewrite(asked),
            "try_files" => match asked.condition.beside_paths() {
                None => {
                    self.files_of_others(asked.line);
                    self.try_files(asked.arguments, asked.line, &asked.area);
                }
                Some(_) => self.left_out_for_some(asked, "it is for some requests alone"),
            },
            "uri" => self.uri(asked),
            "basic_auth" | "basicauth" => self.basic_auth(asked),
            "redir" => return self.redir(asked).then(ended)?,
            "respond" | "error" | "abort" => return self.respond(asked).then(ended)?,
            "reverse_proxy" => return self.reverse_proxy(asked).then(ended)?,
            "php_fastcgi" => self.php_fastcgi(asked, context),
            "php_server" | "php" => return self.php_server(asked, context).then(ended)?,
            "file_server" => return self.file_server(asked, context).then(ended)?,
            "forward_auth" => self.unknown_guard(asked, "another server decides who may see it"),
            "request_header" => {
                self.unknown_guard(asked, "scripts may trust this header, and clients can send it");
            }
            _ => self.unknown(asked.line),
        }
        None
    }

    fn unknown_guard(&mut self, asked: &Asked<'_>, why: &str) {
        let why = format!("{why}; it has no counterpart");
        self.shared.report.access_left_out(&asked.line.place, &asked.line.shown(), &why);
    }

    /// Directives as they are written.
    fn route(&mut self, line: &'a Directive, context: &BlockContext) -> Option<BlockPaths> {
        let asked = self.asked(line, context)?;
        if let Some(other) = asked.condition.beside_paths() {
            self.unknown_requests(line, &other);
            return None;
        }
        let config = self.shared.config;
        let mut inner = BlockContext { area: asked.area.clone(), ..context.clone() };
        inner.depth += 1;
        self.kept(line);
        if line.name == "route" {
            return self.block(&line.block, &inner, true).then_some(asked.area);
        }
        let name = asked.arguments.first().cloned().unwrap_or_default();
        match config.routes.get(&name) {
            Some(_) => {
                let why = "write its directives in place of `invoke`";
                self.shared.report.access_left_out(&line.place, &line.shown(), why);
            }
            None => self.left_out(line, "there is no such route"),
        }
        None
    }

    fn root(&mut self, line: &Directive, context: &mut BlockContext) {
        // `root PATH` without a matcher has a path that looks like one.
        let (condition, path) = match line.arguments.as_slice() {
            [path] => (Condition::default(), path.clone()),
            _ => {
                let (condition, rest) = self.matchers.of(line);
                (condition, rest.first().cloned().unwrap_or_default())
            }
        };
        if condition.is_never {
            return self.kept(line);
        }
        let path = self.shared.filled(&path);
        if path.contains('{') {
            let why = "the document root is not fixed: write a site for each host";
            return self.shared.report.access_left_out(&line.place, &line.shown(), why);
        }
        if let Some(other) = condition.beside_paths() {
            return self.unknown_requests(line, &other);
        }
        let area = match context.area.narrowed(&condition.paths, &condition.except) {
            Ok(Some(area)) => area,
            Ok(None) => {
                return self.left_out(line, "none of its paths is one of the block around it");
            }
            Err(why) => {
                return self.shared.report.access_left_out(&line.place, &line.shown(), &why);
            }
        };
        self.kept(line);
        if context.rooted.iter().any(|earlier| earlier.covers(&area)) {
            return;
        }
        let path = self.shared.absolute(&path, line);
        match condition.paths.is_empty() && condition.except.is_empty() {
            true => {
                let root = (path, line.place.clone());
                if context.depth == 0 {
                    self.root = Some(root.clone());
                }
                context.root = Some(root);
            }
            false => self.served.push(ServedArea::folder(&area, &path, line)),
        }
        context.rooted.push(area);
    }
}

impl CaddyImport<'_> {
    /// A value with variables of the environment in place of `{env.NAME}`.
    pub(super) fn filled(&self, text: &str) -> String {
        filled(self.environment, text)
    }

    /// A path, from the folder of the Caddyfile.
    pub(super) fn absolute(&mut self, path: &str, line: &Directive) -> String {
        let path = match path.trim_end_matches('/') {
            "" => "/",
            path => path,
        };
        if path.starts_with('/') {
            return path.to_owned();
        }
        let folder = self.main.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let inner = path.strip_prefix("./").unwrap_or(path);
        let why = "it is relative to the working directory of Caddy, and taken as relative to the \
                   folder of the Caddyfile";
        self.report.changed(&line.place, &line.shown(), why);
        match inner {
            "." => folder.to_owned(),
            inner => format!("{folder}/{inner}"),
        }
    }
}
