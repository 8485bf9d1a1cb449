//! What a path leads to: `try_files`, `return`, `rewrite`, `if`, `alias`, `proxy_pass`.

use super::location::{Location, Matcher};
use super::own_paths::{leads_elsewhere, tries_own_file};
use super::php_locations::scripts_of;
use super::redirect_target::{TargetKind, fallback_script, target};
use super::scope::Scope;
use super::server::ServerImport;
use crate::file_draft::Placed;
use crate::regexes;
use crate::source_directive::Directive;
use crate::toml_text;

/// The statuses of `return` that are redirects.
pub(super) const REDIRECTS: [&str; 5] = ["301", "302", "303", "307", "308"];

/// Files that nginx does not send.
const FILES_EXIST: &str = "it runs for all paths, while files that exist are served here: check \
                           that the document root has none that must not be seen";

impl<'a> ServerImport<'_, 'a> {
    /// The script for paths without a file: that of `/`, or of the server.
    pub(super) fn front_controller(&mut self, locations: &[Location<'a>]) {
        let is_root = |one: &&Location<'_>| {
            one.matcher.literal().is_some_and(|path| path.text == "/" && !path.is_exact)
        };
        let root = locations.iter().find(is_root);
        let scope = root.map_or(&self.scope, |root| &root.scope).clone();
        if root.is_some() {
            self.missing_at_server(locations);
        }
        if let Some(try_files) = scope.get("try_files") {
            self.files_of_others(try_files);
            let last = try_files.arguments.last().map(String::as_str).unwrap_or_default();
            self.fallback(try_files, last, locations);
            return;
        }
        for condition in scope.own("if") {
            let is_missing = condition.arguments.join(" ").replace(['(', ')'], "");
            if !["!-e $request_filename", "!-f $request_filename"].contains(&is_missing.trim()) {
                continue;
            }
            let rewrites: Vec<&'a Directive> =
                condition.block.iter().filter(|one| one.name == "rewrite").collect();
            let is_front = rewrites.iter().all(|one| fallback_script(one.argument(1)).is_some());
            if !is_front
                && rewrites.len() == condition.block.len()
                && self.rewrites_of_missing(&rewrites, locations)
            {
                self.keep(condition);
                condition.block.iter().for_each(|one| self.report.cover(one));
                continue;
            }
            let rewrite = rewrites.first().copied();
            if let (Some(rewrite), 1) = (rewrite, condition.block.len()) {
                self.keep(condition);
                self.fallback(rewrite, rewrite.argument(1), locations);
                return;
            }
        }
        let rewrite = root.and_then(|root| root.scope.own("rewrite").last());
        if let Some(rewrite) = rewrite.filter(|one| ["^", "^(.*)$", ".*"].contains(&one.first()))
            && fallback_script(rewrite.argument(1)).is_some()
        {
            self.report.access_left_out(&rewrite.place, &rewrite.shown(), FILES_EXIST);
            self.front_rewrite = Some(rewrite);
            self.fallback(rewrite, rewrite.argument(1), locations);
            return;
        }
        let place = root.map_or(&self.place, |root| &root.directive.place);
        let none = Placed::because("\"\"".to_owned(), place, "no fallback");
        self.site.settings.set("front_controller", none);
    }

    /// `if (!-e $request_filename)` of the server, before a `try_files` of its location `/`.
    fn missing_at_server(&mut self, locations: &[Location<'a>]) {
        for condition in self.scope.clone().own("if") {
            let test = condition.arguments.join(" ").replace(['(', ')'], "");
            let is_missing = test.trim() == "!-e $request_filename";
            let rewrites: Vec<&'a Directive> =
                condition.block.iter().filter(|one| one.name == "rewrite").collect();
            if is_missing
                && rewrites.len() == condition.block.len()
                && self.rewrites_of_missing(&rewrites, locations)
            {
                self.keep(condition);
                condition.block.iter().for_each(|one| self.report.cover(one));
            }
        }
    }

    /// A `try_files` that never sends the file of the path.
    fn files_of_others(&mut self, try_files: &Directive) {
        if !tries_own_file(try_files) {
            self.report.access_left_out(&try_files.place, &try_files.shown(), FILES_EXIST);
        }
    }

    /// A `try_files` for one path. Whether it is written, as it is for one other file.
    fn file_in_place(&mut self, path: &str, try_files: &Directive) -> bool {
        let is_other = |file: &str| {
            file.starts_with('/') && !file.contains('$') && !file.contains(".php") && file != path
        };
        if let [file, last] = try_files.arguments.as_slice()
            && is_other(file)
            && last.starts_with('=')
        {
            let (from, to) = (toml_text::string(path), toml_text::string(file));
            let fields = [("from", from), ("to", to), ("end", "true".to_owned())];
            self.push("rewrite", try_files, toml_text::table(fields));
            return true;
        }
        let name = path.rsplit('/').next().unwrap_or_default();
        // A path without an ending is that of a file for few sites.
        if name.contains('.') && !name.ends_with(".php") {
            self.files_of_others(try_files);
        }
        false
    }

    fn fallback(&mut self, from: &Directive, last: &str, locations: &[Location<'a>]) {
        if let Some((script, more)) = fallback_script(last) {
            let script = Placed::new(toml_text::string(&script), &from.place);
            self.site.settings.set("front_controller", script);
            match more.is_empty() {
                true => self.keep(from),
                false => self.report.changed(
                    &from.place,
                    &from.shown(),
                    &format!("`{more}` is not passed; the script finds the path in REQUEST_URI"),
                ),
            }
            return;
        }
        let named = locations.iter().find(|one| one.matcher == Matcher::Named(last.to_owned()));
        if let Some(named) = named {
            let rewrites: Vec<&'a Directive> = named.scope.own("rewrite").collect();
            let passes = |one: &&&Directive| {
                fallback_script(one.argument(1)).is_none_or(|(_, more)| !more.is_empty())
            };
            let is_written = rewrites.iter().any(|one| passes(&one))
                && self.rewrites_of_missing(&rewrites, locations);
            let rewrite = named.scope.own("rewrite").last().map(|one| (one, one.argument(1)));
            let by_param = named.scope.own("fastcgi_param").find(|param| {
                param.first() == "SCRIPT_FILENAME" && param.argument(1).ends_with(".php")
            });
            let script = by_param.map(|param| {
                let name = param.argument(1);
                (
                    param,
                    name.trim_start_matches("$document_root").trim_start_matches("$realpath_root"),
                )
            });
            if let Some((directive, script)) = rewrite.or(script)
                && fallback_script(script).is_some()
            {
                self.keep(from);
                self.keep(named.directive);
                // What the rewrites pass in the query is in them.
                let script = if is_written { script.split('?').next() } else { Some(script) };
                self.fallback(directive, script.unwrap_or_default(), &[]);
                return;
            }
        }
        let none = Placed::new("\"\"".to_owned(), &from.place);
        self.site.settings.set("front_controller", none);
        match last {
            "=404" => self.keep(from),
            _ => self.report.left_out(
                &from.place,
                &from.shown(),
                "only a script can be the fallback; paths without a file are a 404",
            ),
        }
    }

    /// `return` and `rewrite` of a block. Tells whether all requests are redirected or refused.
    pub(super) fn rewrites(&mut self, scope: &Scope<'a>, location: Option<&Location<'a>>) -> bool {
        for directive in scope.directives() {
            match directive.name.as_str() {
                "rewrite" if self.front_rewrite.is_some_and(|one| std::ptr::eq(one, directive)) => {
                }
                "rewrite" => self.rewrite(directive, location),
                "if" => self.condition(directive, location),
                "return" => {
                    self.return_status(directive, location);
                    return true;
                }
                "break" => self.keep(directive),
                _ => {}
            }
        }
        location.is_some_and(|location| self.denies_all(location))
    }

    fn return_status(&mut self, back: &Directive, location: Option<&Location<'a>>) {
        let (status, text) = match back.argument(0) {
            url if url.starts_with("http") || url.starts_with('$') => ("302", url),
            status => (status, back.argument(1)),
        };
        if REDIRECTS.contains(&status) {
            let all = Ok("/*".to_owned());
            let pattern = location.map_or(all, |one| one.pattern_without(&self.not_redirected));
            let has_groups = location.is_some_and(|one| matches!(one.matcher, Matcher::Regex(_)));
            let to = target(text, TargetKind::Return, self.name(), has_groups);
            match pattern.and_then(|pattern| Ok((pattern, to?))) {
                Ok((pattern, to)) => {
                    self.redirect(back, &pattern, &to, status);
                    self.precedence(back, location);
                }
                Err(why) => {
                    let why = format!("{why}; write `redirects` in place of the `deny`");
                    self.report.left_out(&back.place, &back.shown(), &why);
                    self.nothing_here(back, location);
                }
            }
            return;
        }
        let is_refusal = status.parse().is_ok_and(|status: u16| status >= 400);
        match (location, is_refusal) {
            (Some(location), true) => {
                self.refusal(location, back, status);
                // `return` comes before `deny`.
                location.scope.own("deny").for_each(|one| self.keep(one));
            }
            (None, true) => {
                self.push("deny", back, toml_text::string("/*"));
            }
            (_, false) => {
                let why = "a fixed response needs a file or a script; the path is a 404";
                self.report.left_out(&back.place, &back.shown(), why);
                self.nothing_here(back, location);
            }
        }
    }

    /// Paths that lead elsewhere in nginx do not lead to the document root: they are a 404.
    pub(super) fn nothing_here(&mut self, from: &Directive, location: Option<&Location<'a>>) {
        let all = Ok("/*".to_owned());
        let pattern = location.map_or(all, |one| one.pattern_without(&self.literals));
        match pattern {
            Ok(pattern) => {
                let fields = [("path", toml_text::string(&pattern)), ("status", "404".to_owned())];
                let why = "it leads elsewhere in nginx";
                let item = Placed::because(toml_text::table(fields), &from.place, why);
                self.site.settings.push("deny", item);
            }
            Err(why) => self.report.access_left_out(&from.place, &from.shown(), &why),
        }
    }

    pub(super) fn redirect(&mut self, from: &Directive, pattern: &str, to: &str, status: &str) {
        let fields = [
            ("from", toml_text::string(&regexes::whole_match(pattern, to))),
            ("to", toml_text::string(to)),
            ("status", status.to_owned()),
        ];
        self.push("redirects", from, toml_text::table(fields));
    }

    fn rewrite(&mut self, rewrite: &Directive, location: Option<&Location<'a>>) {
        let (expression, to) = (rewrite.argument(0), rewrite.argument(1));
        let flag = rewrite.argument(2);
        let made = within(expression, location).and_then(|pattern| {
            regexes::check_regex(&pattern)?;
            Ok((pattern, target(to, TargetKind::Rewrite, self.name(), true)?))
        });
        let (pattern, to) = match made {
            Ok(made) => made,
            Err(why) => return self.no_rewrite(rewrite, location, &why),
        };
        let is_url = ["http://", "https://", "$scheme"].iter().any(|start| to.starts_with(start));
        match flag {
            "permanent" => self.redirect(rewrite, &pattern, &to, "301"),
            "redirect" => self.redirect(rewrite, &pattern, &to, "302"),
            _ if is_url => self.redirect(rewrite, &pattern, &to, "302"),
            _ if !to.starts_with(['/', '$']) => {
                self.no_rewrite(rewrite, location, "the target is no path");
            }
            flag => {
                let from = toml_text::string(&regexes::whole_match(&pattern, &to));
                let mut fields = vec![("from", from), ("to", toml_text::string(&to))];
                if flag == "break" {
                    fields.push(("end", "true".to_owned()));
                }
                self.push("rewrite", rewrite, toml_text::table(fields));
            }
        }
    }

    /// A rewrite without a counterpart. In a location with PHP it decides which scripts run.
    fn no_rewrite(&mut self, rewrite: &Directive, location: Option<&Location<'a>>, why: &str) {
        let has_php = location.is_some_and(|one| one.scope.own("fastcgi_pass").next().is_some());
        let Directive { place, .. } = rewrite;
        if has_php && let Some(scripts) = self.other_scripts(rewrite) {
            let item = Placed::new(toml_text::string(&scripts), place);
            self.site.settings.push("allow_php", item);
            let why = "these scripts run, and paths of others are those of the front controller";
            return self.report.changed(place, &rewrite.shown(), why);
        }
        let is_gate = leads_elsewhere(rewrite);
        let why = format!("{why}; write `rewrite` or `redirects` of the site");
        match has_php || is_gate {
            true => self.report.access_left_out(place, &rewrite.shown(), &why),
            false => self.report.left_out(place, &rewrite.shown(), &why),
        }
    }

    /// The scripts that `rewrite ^/(?!a|b) /index.php` leaves alone, as Nextcloud's manual has it.
    fn other_scripts(&self, rewrite: &Directive) -> Option<String> {
        let front = self.site.settings.value("front_controller").unwrap_or_default();
        let (script, _) = fallback_script(rewrite.argument(1))?;
        let inner = rewrite.first().strip_prefix("^/(?!")?.strip_suffix(')')?;
        let pattern = format!("~^/(?:{inner})");
        let is_right = front.trim_matches('"') == script && regexes::check_regex(&pattern).is_ok();
        is_right.then_some(pattern)
    }

    /// Locations for files whose missing files are those of the front controller here.
    fn without_fallback(&mut self, locations: &[Location<'a>]) {
        const OTHERS: [&str; 6] =
            ["return", "rewrite", "fastcgi_pass", "proxy_pass", "internal", "deny"];
        for location in locations {
            let is_named = matches!(location.matcher, Matcher::Named(_));
            let has = |name: &str| location.scope.own(name).next().is_some();
            if is_named || OTHERS.iter().any(|name| has(name)) {
                continue;
            }
            if !has("try_files") {
                let why = "the front controller runs where a file is missing";
                let Directive { place, .. } = location.directive;
                self.report.changed(place, &location.directive.shown(), why);
            }
        }
    }

    /// `try_files` of locations: what they fall back to is the front controller of the site.
    pub(super) fn missing_files(&mut self, locations: &[Location<'a>]) {
        let front = self.site.settings.value("front_controller").unwrap_or("\"\"").to_owned();
        let front = front.trim_matches('"');
        if !front.is_empty() {
            self.without_fallback(locations);
        }
        for location in locations {
            let runs_php = location.scope.own("fastcgi_pass").next().is_some();
            for try_files in location.scope.own("try_files") {
                // Of each location that includes the same file.
                let is_written = match &location.matcher {
                    Matcher::Exact(path) if !runs_php => self.file_in_place(path, try_files),
                    Matcher::Prefix { .. } | Matcher::Regex(_) if !runs_php => {
                        self.files_of_others(try_files);
                        false
                    }
                    _ => false,
                };
                if is_written || self.report.is_covered(&try_files.place, "try_files") {
                    continue;
                }
                let last = try_files.arguments.last().map(String::as_str).unwrap_or_default();
                let script = fallback_script(last).filter(|(script, _)| script == front);
                let is_front = script.is_some();
                match last {
                    _ if script.is_some_and(|(_, more)| !more.is_empty()) => self.report.changed(
                        &try_files.place,
                        &try_files.shown(),
                        "the script finds the path in REQUEST_URI",
                    ),
                    _ if is_front || runs_php => self.keep(try_files),
                    "=404" if front.is_empty() => self.keep(try_files),
                    "=404" => self.report.changed(
                        &try_files.place,
                        &try_files.shown(),
                        "the front controller runs where a file is missing",
                    ),
                    _ => self.report.left_out(
                        &try_files.place,
                        &try_files.shown(),
                        "a site has one front controller; serve the path as a site of its own, or \
                         write `rewrite`",
                    ),
                }
            }
        }
    }

    /// `alias`, and a `root` of its own. Tells whether only scripts send its files.
    pub(super) fn folder(&mut self, location: &Location<'a>, locations: &[Location<'a>]) -> bool {
        let alias = location.scope.own("alias").next();
        let root = location.scope.own("root").next();
        let Some(from) = alias.or(root) else { return false };
        let folder = self.absolute(from.first());
        let Some(prefix) = location.matcher.literal().filter(|path| !path.is_exact) else {
            // The group of an expression stands for the path below the folder.
            let fixed = folder.trim_end_matches("$1").trim_end_matches('/');
            let around = location.scope.outer().group(&["root", "alias"]).pop();
            let around = around.map(|one| self.absolute(one.first()));
            let is_around = around.is_some_and(|one| one.trim_end_matches('/') == fixed);
            let is_same = folder.trim_end_matches('/') == self.root.trim_end_matches('/');
            if is_same || is_around && location.around.is_some() {
                self.keep(from);
                return false;
            }
            let why = "only the paths below a prefix can have a folder of their own (`aliases`); \
                       these are a 404";
            self.report.left_out(&from.place, &from.shown(), why);
            self.nothing_here(from, Some(location));
            return false;
        };
        if folder == self.root && alias.is_none() || prefix.text == "/" {
            self.keep(from);
            return false;
        }
        if folder.contains('$') {
            let why =
                "the folder is not fixed; write `aliases` of the site, in place of the `deny`";
            self.report.left_out(&from.place, &from.shown(), why);
            self.nothing_here(from, Some(location));
            return false;
        }
        let folder = match alias {
            Some(_) => folder,
            None => format!("{}{}", folder.trim_end_matches('/'), prefix.text),
        };
        let path = format!("{}/", prefix.text.trim_end_matches('/'));
        let folder = Placed::new(toml_text::string(folder.trim_end_matches('/')), &from.place);
        if location.scope.own("internal").next().is_some() {
            self.site.settings.entry("sendfile_roots", &path, folder);
            location.scope.own("internal").for_each(|one| self.report.cover(one));
            self.keep(from);
            return true;
        }
        self.site.settings.entry("aliases", &path, folder);
        self.folder_scripts(location, from, &path, locations);
        self.keep(from);
        false
    }

    /// `internal` without a folder, also of the location around: clients get a 404.
    pub(super) fn internal(&mut self, location: &Location<'a>) {
        let Some(internal) = location.scope.get("internal") else { return };
        if !location.scope.has("fastcgi_pass") {
            return self.refusal(location, internal, "404");
        }
        let front = self.site.settings.value("front_controller").unwrap_or_default();
        let scripts = scripts_of(location);
        let is_front = |script: &String| script == front.trim_matches('"');
        if !scripts.is_empty() && scripts.iter().all(is_front) {
            let why = "clients may request the script by its own name";
            return self.report.changed(&internal.place, &internal.shown(), why);
        }
        let why = "clients may request these scripts by their own names: write `deny` of the site";
        self.report.access_left_out(&internal.place, &internal.shown(), why);
    }
}

/// The pattern of a `rewrite` within its location.
fn within(expression: &str, location: Option<&Location<'_>>) -> Result<String, String> {
    let Some(location) = location else { return Ok(format!("~{expression}")) };
    let Some(prefix) = location.matcher.literal() else {
        return match (&location.matcher, expression) {
            (Matcher::Regex(_), "^" | ".*" | "^.*$") => location.pattern(),
            _ => Err("a rewrite within this location has no counterpart".to_owned()),
        };
    };
    let begin = expression.trim_start_matches('^').trim_start_matches('(');
    if !prefix.is_exact && prefix.text == "/" || begin.starts_with(prefix.text.as_str()) {
        return Ok(format!("~{expression}"));
    }
    match expression {
        "^" | ".*" | "^.*$" => location.pattern(),
        "^(.*)$" => {
            let more = if prefix.is_exact { "" } else { ".*" };
            Ok(format!("~^({}{more})$", regex::escape(&prefix.text)))
        }
        _ => Err(format!("it applies only below {}", prefix.text)),
    }
}
