//! What serves files and scripts, and the document root that follows from it.

use super::path_areas::{BlockPaths, CaddyPath};
use super::php_directives::ANY_SCRIPT;
use super::site_walk::{Asked, BlockContext, SiteWalk};
use super::text_at;
use crate::file_draft::{Placed, SiteDraft};
use crate::report::SourceLine;
use crate::source_directive::Directive;
use crate::toml_text;

/// A file and a script that no configuration names.
const ANY_FILE: &str = "/zz9/zz9.zz9";

/// The document root of a site that serves no files.
const NO_ROOT: &str = "/srv";

/// What serves the files or the scripts of some paths.
#[derive(Debug, Clone)]
pub(super) struct ServedArea {
    /// The paths.
    pub area: BlockPaths,
    root: Option<(String, SourceLine)>,
    /// Its directive.
    pub line: Directive,
    is_php: bool,
    /// Whether it sends files.
    pub sends_files: bool,
}

impl ServedArea {
    /// What runs scripts.
    pub fn php(
        area: &BlockPaths,
        root: Option<&(String, SourceLine)>,
        line: &Directive,
    ) -> ServedArea {
        let (area, line) = (area.clone(), line.clone());
        ServedArea { area, root: root.cloned(), line, is_php: true, sends_files: false }
    }

    /// What sends files.
    pub fn files(
        area: &BlockPaths,
        root: Option<&(String, SourceLine)>,
        line: &Directive,
    ) -> ServedArea {
        ServedArea { is_php: false, sends_files: true, ..ServedArea::php(area, root, line) }
    }

    /// A document root of some paths, whatever serves them.
    pub fn folder(area: &BlockPaths, root: &str, line: &Directive) -> ServedArea {
        let root = (root.to_owned(), line.place.clone());
        ServedArea { is_php: false, ..ServedArea::php(area, Some(&root), line) }
    }

    /// What serves neither: another server, or nothing.
    pub fn elsewhere(area: &BlockPaths, line: &Directive) -> ServedArea {
        ServedArea { is_php: false, ..ServedArea::php(area, None, line) }
    }

    /// Whether it runs scripts.
    pub fn runs_php(&self) -> bool {
        self.is_php
    }

    fn is_general(&self) -> bool {
        self.area.stripped.is_empty() && self.area.has(ANY_FILE)
    }

    fn folder_name(&self) -> Option<&str> {
        self.root.as_ref().map(|(root, _)| root.as_str())
    }
}

impl SiteWalk<'_, '_, '_> {
    /// `file_server`. Whether no later directive sees these requests.
    pub(super) fn file_server(&mut self, asked: &Asked<'_>, context: &BlockContext) -> bool {
        let line = asked.line;
        if let Some(other) = asked.condition.beside_paths() {
            let why = format!("it is for some requests alone (`{other}`): deny the others");
            self.shared.report.access_left_out(&line.place, &line.shown(), &why);
            return false;
        }
        let mut root = context.root.clone();
        self.browse(asked);
        for one in &line.block {
            match one.name.as_str() {
                "root" => {
                    let path = self.shared.filled(one.first());
                    root = Some((self.shared.absolute(&path, one), one.place.clone()));
                }
                "index" => {
                    let toml = toml_text::strings(&one.arguments);
                    self.site.settings.set("index", Placed::new(toml, &one.place));
                }
                "hide" => {
                    let root = root.as_ref().map(|(root, _)| root.as_str());
                    self.hide(one, root, &asked.area.stripped);
                    continue;
                }
                "precompressed" => {
                    let on = Placed::new("true".to_owned(), &one.place);
                    self.site.settings.set("precompressed", on);
                }
                "browse" => {}
                "pass_thru"
                | "status"
                | "disable_canonical_uris"
                | "fs"
                | "etag_file_extensions" => {
                    self.left_out(one, "it has no counterpart");
                    continue;
                }
                _ => {
                    let why = "it is unknown: see what it does";
                    self.shared.report.access_left_out(&one.place, &one.shown(), why);
                    continue;
                }
            }
            self.kept(one);
        }
        self.served.push(ServedArea::files(&asked.area, root.as_ref(), line));
        self.kept(line);
        true
    }

    /// `browse`: lists of files.
    fn browse(&mut self, asked: &Asked<'_>) {
        let line = asked.line;
        let browses = asked.arguments.iter().any(|one| one == "browse");
        let of_block = line.block.iter().any(|one| one.name == "browse");
        if browses || of_block {
            match asked.area.patterns() {
                Ok(_) if asked.area.is_all() => {
                    let on = Placed::new("true".to_owned(), &line.place);
                    self.site.settings.set("autoindex", on);
                }
                Ok(patterns) => {
                    let toml = toml_text::strings(patterns);
                    self.site.settings.set("autoindex", Placed::new(toml, &line.place));
                }
                Err(why) => self.left_out(line, &why),
            }
        }
    }

    /// `hide`: names of files and folders, or paths of the file system below `root`, which clients
    /// write after `stripped`.
    fn hide(&mut self, line: &Directive, root: Option<&str>, stripped: &str) {
        for name in &line.arguments {
            let name = self.shared.filled(name);
            let part = |text: &str| {
                let text = regex::escape(text).replace("\\*", "[^/]*").replace("\\?", "[^/]");
                format!("{text}(?:/|$)")
            };
            let is_fixed = !name.contains(['[', '\\', '{']);
            let pattern = match (name.contains('/'), root) {
                _ if !is_fixed => None,
                (false, _) => Some(format!("~/{}", part(&name))),
                (true, Some(root)) => {
                    let below = name.strip_prefix(root).or(name.strip_prefix("./"));
                    let begin = regex::escape(stripped);
                    below.map(|below| format!("~^{begin}/{}", part(below.trim_start_matches('/'))))
                }
                (true, None) => None,
            };
            match pattern.filter(|one| crate::regexes::check_regex(one).is_ok()) {
                Some(pattern) => {
                    let fields =
                        [("path", toml_text::string(&pattern)), ("status", "404".to_owned())];
                    self.push("deny", line, toml_text::table(fields));
                    self.kept(line);
                }
                None => {
                    let why = format!(
                        "`{name}` is no file of the document root, or has no pattern: write `deny`"
                    );
                    self.shared.report.access_left_out(&line.place, &line.shown(), &why);
                }
            }
        }
    }

    /// The site with its document root.
    pub(super) fn finished(mut self, ended: bool) -> SiteDraft {
        let general: Vec<ServedArea> =
            self.served.iter().filter(|one| one.is_general()).cloned().collect();
        let main = general.iter().find(|one| one.sends_files).or(general.first());
        let main = main.cloned();
        let place = self.place.clone();
        let root = main.as_ref().and_then(|one| one.root.clone()).or(self.root.clone());
        let root = root.unwrap_or_else(|| (NO_ROOT.to_owned(), place.clone()));
        match &main {
            Some(main) if main.root.is_none() => {
                let why = "its document root is Caddy's working directory: write `root`";
                self.shared.report.access_left_out(&main.line.place, &main.line.shown(), why);
            }
            _ => {}
        }
        self.site.settings.set("root", text_at(&root.0, &root.1));
        self.hide_own_file(&root.0);
        self.scripts(&root.0);
        self.deny_unsent(ended);
        for one in self.served.clone() {
            self.alias(&one, &root.0);
        }
        for rule in self.auths.drain(..).flat_map(|one| one.rules) {
            self.site.settings.push("basic_auth", rule);
        }
        self.defaults(&place);
        self.site
    }

    /// Caddy never sends its own configuration.
    fn hide_own_file(&mut self, root: &str) {
        let below = self.shared.main.strip_prefix(&format!("{}/", root.trim_end_matches('/')));
        if let Some(below) = below {
            let toml = toml_text::table([
                ("path", toml_text::string(&format!("/{below}"))),
                ("status", "404".to_owned()),
            ]);
            let why = "Caddy never sends its own configuration";
            self.site.settings.push("deny", Placed::because(toml, &self.place, why));
        }
    }

    /// The front controller, and which scripts run.
    fn scripts(&mut self, root: &str) {
        let php: Vec<ServedArea> = self.served.iter().filter(|one| one.is_php).cloned().collect();
        let place = self.place.clone();
        if php.is_empty() {
            let all = Placed::because(toml_text::string("/*"), &place, "no PHP");
            self.site.settings.push("deny_php", all);
        } else if !php.iter().any(|one| one.area.has(ANY_SCRIPT)) {
            self.allow_php(&php);
        }
        self.deny_unrun(&php);
        for one in php.iter().filter(|one| one.area.stripped.is_empty()) {
            let own = one.folder_name().unwrap_or("the working directory of Caddy");
            if own != root && one.is_general() {
                let why = format!(
                    "its scripts are below {own}, and those below {root} run here: write `root`, \
                     or a site for each"
                );
                self.shared.report.access_left_out(&one.line.place, &one.line.shown(), &why);
            }
        }
        let front = self.front.clone();
        let front = match (front, php.is_empty()) {
            (Some((script, place)), _) => text_at(&script, &place),
            (None, _) => Placed::because("\"\"".to_owned(), &place, "no script for other paths"),
        };
        if let (Some(script), false) = (self.site_front(&front), php.is_empty()) {
            self.front_for_some(&php, &script);
        }
        self.site.settings.set("front_controller", front);
    }

    fn site_front(&self, front: &Placed) -> Option<String> {
        let script = front.toml.trim_matches('"').to_owned();
        (!script.is_empty()).then_some(script)
    }

    /// The front controller is for all paths here.
    fn front_for_some(&mut self, php: &[ServedArea], script: &str) {
        if !script.ends_with(".php") || php.iter().any(ServedArea::is_general) {
            return;
        }
        if let Some(first) = php.first() {
            let why = format!("{script} serves all paths without a file, and not these alone");
            self.shared.report.changed(&first.line.place, &first.line.shown(), &why);
        }
        let toml = toml_text::string(script);
        if self.site.settings.list("allow_php").iter().all(|one| one.toml != toml)
            && !self.site.settings.list("allow_php").is_empty()
            && let Some(first) = php.first()
        {
            let line = first.line.clone();
            self.push("allow_php", &line, toml);
        }
    }

    /// Paths with a document root of their own.
    fn alias(&mut self, one: &ServedArea, root: &str) {
        let Some(own) = one.folder_name().map(str::to_owned) else { return };
        let has_alias = !one.area.stripped.is_empty() || own != root;
        if !has_alias || one.is_general() {
            return;
        }
        for path in &one.area.paths {
            let folder = match path {
                CaddyPath::Prefix(text) if text.ends_with('/') => text.clone(),
                _ => {
                    let why = "its document root is for paths of no folder: write `aliases`; the \
                               paths are a 404";
                    self.shared.report.left_out(&one.line.place, &one.line.shown(), why);
                    if let Ok(pattern) = path.guard() {
                        let fields =
                            [("path", toml_text::string(&pattern)), ("status", "404".to_owned())];
                        self.push("deny", &one.line, toml_text::table(fields));
                    }
                    continue;
                }
            };
            let inner = folder.strip_prefix(one.area.stripped.as_str()).unwrap_or(&folder);
            let target = format!("{}{}", own.trim_end_matches('/'), inner.trim_end_matches('/'));
            let value = text_at(&target, &one.line.place);
            self.site.settings.entry("aliases", &folder, value);
            let runs = |php: &&ServedArea| php.is_php && php.folder_name() == Some(own.as_str());
            if one.sends_files && !self.served.iter().filter(runs).any(|php| php.area.has(&folder))
            {
                let why = "files of this folder are sent, and no script of it runs";
                let folder = toml_text::string(&format!("{folder}*"));
                let item = Placed::because(folder, &one.line.place, why);
                self.site.settings.push("deny_php", item);
            }
            if one.is_php {
                let why = "paths without a file are a 404 there: give it a site of its own if it \
                           has a front controller";
                self.shared.report.changed(&one.line.place, &one.line.shown(), why);
            }
        }
    }

    /// Caddy's defaults that differ from those here.
    fn defaults(&mut self, place: &SourceLine) {
        let has_php = self.served.iter().any(|one| one.is_php && one.is_general());
        let front = self.front.as_ref().map(|(script, _)| script.trim_start_matches('/'));
        match front.filter(|script| has_php && script.ends_with(".php") && !script.contains('/')) {
            // A folder without it is one of the front controller, whatever else it has.
            Some(script) => {
                let why = "a folder without it is one of the front controller";
                let index = Placed::because(toml_text::strings([script]), place, why);
                self.site.settings.replace("index", index);
            }
            None => {
                let names = toml_text::strings(["index.html", "index.txt"]);
                let index = Placed::because(names, place, "Caddy's default");
                self.site.settings.set("index", index);
            }
        }
        let none = Placed::because("false".to_owned(), place, "no `encode`");
        self.site.settings.set("compression", none);
        let none = Placed::because("false".to_owned(), place, "Caddy's default");
        self.site.settings.set("precompressed", none);
    }
}
