//! mod_rewrite of a virtual host and of folders, and `FallbackResource`.

use super::config_reader;
use super::host_import::{AreaSection, HostImport};
use super::host_paths::REDIRECTS;
use super::host_scripts::PHP_VARIABLES;
use super::path_area::PathArea;
use super::rewrite_chain::{
    CondTest, RewriteChain, RewriteScope, chains, front_controller, handlers_of,
};
use super::virtual_hosts::is_on;
use crate::file_draft::Placed;
use crate::hidden_names::are_hidden;
use crate::regex_shapes::ends_otherwise as ends_otherwise_than_php;
use crate::regexes;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values::alternatives;

/// Why a folder has no front controller.
const OTHER_FRONT: &str = "a site has one front controller, which is a script at its top; serve \
                           the folder as a site of its own";

/// The value of `FallbackResource` for none.
const DISABLED: &str = "disabled";

/// The line that turns rewriting on.
const ON: &str = "RewriteEngine on";

/// What stands for the text of a group.
const ANY_GROUP: &str = "zz9";

/// The variable that excepts a request from the servers of `ProxyPass`.
const NO_PROXY: &str = "no-proxy";

/// An earlier rule that ends the rules for some requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlierEnd {
    None,
    /// For paths of files.
    IfFile,
    /// For others.
    Unknown,
}

impl<'a> HostImport<'_, 'a> {
    /// mod_rewrite of the host and of folders, and `FallbackResource`.
    pub(super) fn rewriting(&mut self) {
        // Virtual hosts inherit no rules of the server, but its `RewriteEngine`.
        let host: Vec<&'a Directive> = self.host.iter().collect();
        let scope = RewriteScope { is_on: is_on(self.of_host("RewriteEngine")), ..<_>::default() };
        self.rules_of(&host, &scope);
        let sections = self.sections.clone();
        for (at, section) in sections.iter().enumerate().filter(|(_, one)| one.section.is_some()) {
            match self.folder_scope(at) {
                Some(scope) => self.rules_of(&section.directives, &scope),
                None => self.rules_elsewhere(section),
            }
        }
        self.fallback_resources(&sections);
        self.rules_of_server();
        self.rules_of_files();
        self.inheritance_of_files();
        if !self.site.settings.has("front_controller") && !self.site.settings.has("htaccess") {
            let none = Placed::because("\"\"".to_owned(), &self.place.clone(), "no fallback");
            self.site.settings.set("front_controller", none);
        }
    }

    /// Rules of the server that a virtual host inherits (`RewriteOptions Inherit`, `InheritDown`).
    fn rules_of_server(&mut self) {
        let has_rules = self.config.tree.iter().any(|one| one.is("RewriteRule"));
        let is_inherit = |word: &String| word.to_ascii_lowercase().starts_with("inherit");
        let options = self.all_of_host(&["RewriteOptions"]).into_iter();
        let options = options.filter(|one| one.arguments.iter().any(is_inherit));
        for line in options.filter(|_| has_rules && !self.is_server_itself) {
            let why = "the rules of the server are not inherited: write them in the virtual host";
            self.report.access_left_out(&line.place, &line.shown(), why);
        }
    }

    /// `.htaccess` files whose rules are on by a `RewriteEngine` outside of them.
    fn rules_of_files(&mut self) {
        let last = self.sections.len().checked_sub(1);
        let engine = last.and_then(|at| self.inherited(at, &PathArea::all(), "RewriteEngine"));
        let Some(line) = engine.filter(|line| is_on(Some(line))) else { return };
        if !self.site.settings.has("htaccess") {
            return;
        }
        let own = format!("{}/.htaccess", self.root);
        let found = self.files.below(&self.root, ".htaccess").unwrap_or_else(|| vec![own]);
        let has = |file: &str, name: &str| {
            let lines = config_reader::htaccess(self.files, file, self.config);
            lines.iter().flatten().any(|one| one.is(name))
        };
        let on = found.iter().filter(|file| has(file, "RewriteEngine"));
        let on: Vec<&str> = on.map(|file| file.trim_end_matches(".htaccess")).collect();
        let is_off = |file: &&String| !on.iter().any(|folder| file.starts_with(folder));
        for file in found.iter().filter(is_off).filter(|file| has(file, "RewriteRule")) {
            let why = format!("{file} has rules, which are off here: write `{ON}` into it");
            self.report.access_left_out(&line.place, &line.shown(), &why);
        }
    }

    /// What the rules of a section for a folder begin with; none for other sections.
    pub(super) fn folder_scope(&self, at: usize) -> Option<RewriteScope> {
        let section = self.sections.get(at)?;
        let PathArea::Below(prefix) = &section.area else { return None };
        let name = section.section.filter(|_| section.is_folder)?.first();
        let own = self.config.absolute(name).trim_end_matches('/') == self.folder_of(prefix)?;
        let base = section.last("RewriteBase").map(|line| line.first().trim_end_matches('/'));
        Some(RewriteScope {
            is_on: is_on(self.inherited(at, &section.area, "RewriteEngine")),
            folder: Some(prefix.clone()),
            base: base.unwrap_or(prefix).to_owned(),
            is_around: !own,
        })
    }

    fn rules_elsewhere(&mut self, section: &AreaSection<'a>) {
        for rule in section.all("RewriteRule") {
            let why = "rules in this section have no counterpart; write `rewrite`, `redirects` or \
                       `deny` of the site";
            self.report.access_left_out(&rule.place, &rule.shown(), why);
        }
    }

    /// `FallbackResource`: the last section for all paths decides.
    fn fallback_resources(&mut self, sections: &[AreaSection<'a>]) {
        let lines = sections.iter().map(|one| (one, one.last("FallbackResource")));
        let lines = lines.filter_map(|(one, line)| Some((one, line?)));
        let (of_root, others): (Vec<_>, Vec<_>) = lines.partition(|(one, _)| one.area.is_all());
        of_root.iter().rev().skip(1).for_each(|(_, line)| self.keep(line));
        if let Some((_, line)) = of_root.last() {
            match line.first() {
                DISABLED => self.keep(line),
                script if script.starts_with('/') && script.contains(".php") => {
                    self.front_controller(line, script, "");
                }
                _ => self.report.left_out(&line.place, &line.shown(), OTHER_FRONT),
            }
        }
        let front = self.site.settings.value("front_controller");
        let has_front = front.is_some_and(|script| script != "\"\"");
        for (_, line) in others {
            match line.first() {
                DISABLED if !has_front => self.keep(line),
                DISABLED => {
                    let why = "the front controller is for the whole site: `deny` the missing \
                               files of the folder, or serve it as a site of its own";
                    self.report.left_out(&line.place, &line.shown(), why);
                }
                _ => self.report.left_out(&line.place, &line.shown(), OTHER_FRONT),
            }
        }
    }

    /// The script for paths without a file.
    fn front_controller(&mut self, line: &Directive, script: &str, more: &str) {
        if self.site.settings.has("htaccess") {
            let file = format!("{}/.htaccess", self.root);
            if self.files.resolved(&file).is_none() {
                let why = format!(
                    "with `.htaccess` files the site has no front controller: write \
                     `FallbackResource {script}` into {file}"
                );
                return self.report.left_out(&line.place, &line.shown(), &why);
            }
            let why = format!("{file} decides about paths without a file");
            return self.report.changed(&line.place, &line.shown(), &why);
        }
        let value = Placed::new(toml_text::string(script), &line.place);
        self.site.settings.set("front_controller", value);
        let is_plain = ["", "?%{QUERY_STRING}", "/$1", "/"].contains(&more);
        match is_plain {
            true => self.keep(line),
            false => {
                let why =
                    format!("`{more}` is not passed; the script finds the path in REQUEST_URI");
                self.report.changed(&line.place, &line.shown(), &why);
            }
        }
    }

    fn rules_of(&mut self, directives: &[&'a Directive], scope: &RewriteScope) {
        for name in ["RewriteEngine", "RewriteBase", "RewriteOptions"] {
            directives.iter().filter(|one| one.is(name)).for_each(|one| self.keep(one));
        }
        let mut end = EarlierEnd::None;
        for mut chain in chains(directives, scope) {
            let lines = chain.conditions.iter().chain([&chain.rule]);
            if !scope.is_on {
                lines.for_each(|one| self.report.kept(&one.place, &one.shown()));
                continue;
            }
            if self.is_moved(chain.rule) {
                continue;
            }
            match end {
                EarlierEnd::None => {}
                EarlierEnd::IfFile => chain.tests.push(CondTest::IsMissing),
                EarlierEnd::Unknown => chain.tests.push(CondTest::Other),
            }
            end = match end_for_files(&chain, scope) {
                Some(of_files) => {
                    self.keep(chain.rule);
                    if end == EarlierEnd::None { of_files } else { end }
                }
                None if self.rule(&chain, scope) => end,
                None if ends_otherwise(&chain, scope) => EarlierEnd::Unknown,
                None => end,
            };
            for condition in &chain.conditions {
                self.report.cover(condition);
            }
        }
    }

    /// Whether the rule is written.
    fn rule(&mut self, chain: &RewriteChain<'a>, scope: &RewriteScope) -> bool {
        let rule = chain.rule;
        if let Some((script, more)) = front_controller(chain, &scope.base) {
            match scope.folder.as_deref().unwrap_or_default() {
                "" => self.front_controller(rule, &script, &more),
                _ => self.report.left_out(&rule.place, &rule.shown(), OTHER_FRONT),
            }
            return true;
        }
        let refuses = chain.flag(&["F", "FORBIDDEN"]).is_some()
            || chain.flag(&["G", "GONE"]).is_some()
            || chain.redirect().is_some_and(|status| !REDIRECTS.contains(&status))
            || self.sets_handler(chain)
            || sets_deciding_variable(chain);
        if let Err(why) = self.written(chain, scope) {
            let why = format!(
                "{why}; write `rewrite`, `redirects` or `deny` of the site, or the rule into a \
                 `.htaccess` file with `htaccess = true`"
            );
            let is_proxied = chain.flag(&["P", "PROXY"]).is_some() && chain.conditions.is_empty();
            if let Some(paths) = chain.expression(scope).ok().filter(|_| is_proxied) {
                self.nothing_here(rule, &PathArea::Regex(paths), &why);
                return false;
            }
            match refuses || chain.hides_paths() {
                true => self.report.access_left_out(&rule.place, &rule.shown(), &why),
                false => self.report.left_out(&rule.place, &rule.shown(), &why),
            }
            return false;
        }
        true
    }

    fn written(&mut self, chain: &RewriteChain<'a>, scope: &RewriteScope) -> Result<(), String> {
        let rule = chain.rule;
        let is_nothing = rule.argument(1) == "-";
        if is_of_hidden_files(chain, scope.folder.is_some()) {
            self.report.changed(&rule.place, &rule.shown(), "hidden files are a 404");
            return Ok(());
        }
        let passes_authorization = chain.flags.iter().any(|(name, value)| {
            ["E", "ENV"].contains(&name.as_str()) && value.starts_with("HTTP_AUTHORIZATION")
        });
        let does_more = self.sets_handler(chain) || sets_deciding_variable(chain);
        if is_nothing && passes_authorization && !does_more {
            self.keep(rule);
            return Ok(());
        }
        let mut expression = chain.expression(scope)?;
        let mut has_path = false;
        for test in &chain.tests {
            match test {
                CondTest::Nothing => {}
                CondTest::IsPlain | CondTest::IsPlainOrElse if !self.has_tls => {}
                CondTest::IsPlain => {
                    // Never true at this host.
                    self.keep(rule);
                    return Ok(());
                }
                CondTest::Host(..) if self.is_any_host(chain) => {}
                CondTest::Path(text, true)
                    if text.contains("well-known") && chain.redirect().is_some() => {}
                // One expression for all of it: in a folder the rule is for fewer paths.
                CondTest::Path(text, false)
                    if chain.is_for_all()
                        && !rule.argument(1).contains('$')
                        && scope.folder.as_deref().unwrap_or_default().is_empty()
                        && !std::mem::replace(&mut has_path, true) =>
                {
                    text.clone_into(&mut expression);
                }
                _ if is_trace(chain) => {
                    self.keep(rule);
                    return Ok(());
                }
                _ => return Err("its conditions have no counterpart".to_owned()),
            }
        }
        let pattern = format!("~{expression}");
        regexes::check_regex(&pattern)?;
        if let Some(unknown) = chain.flags.iter().find(|(name, _)| !is_known(name)) {
            return Err(format!("its flag {} has no counterpart", unknown.0));
        }
        if let Some(status) = refusal(chain) {
            let path = toml_text::string(&pattern);
            let toml = match status {
                "403" => path,
                status => toml_text::table([("path", path), ("status", status.to_owned())]),
            };
            self.push("deny", rule, toml);
            return Ok(());
        }
        if is_nothing {
            // It ends the rules for these paths.
            let script = rule.first().trim_matches(['^', '$']).replace('\\', "");
            let is_script = script.trim_start_matches('/') == "index.php";
            return match is_script || chain.flag(&["L", "END"]).is_none() {
                true => {
                    self.keep(rule);
                    Ok(())
                }
                false => Err("a rule that only ends the others has no counterpart".to_owned()),
            };
        }
        let to = chain.target(&scope.base, &self.root)?;
        if chain.flag(&["P", "PROXY"]).is_some() {
            return self.proxied_rule(chain, &to);
        }
        let from = toml_text::string(&regexes::whole_match(&pattern, &to));
        if let Some(status) = chain.redirect() {
            let fields =
                [("from", from), ("to", toml_text::string(&to)), ("status", status.to_owned())];
            self.push("redirects", rule, toml_text::table(fields));
            return Ok(());
        }
        let mut fields = vec![("from", from), ("to", toml_text::string(&to))];
        let is_last = chain.flag(&["L", "LAST", "END"]).is_some();
        // In a virtual host Apache goes through its rules once, and in a folder until the path
        // stays the same.
        let is_fixed = scope.folder.is_none() || !to.contains('$');
        let ends = is_last || is_fixed && matches_target(&expression, &to);
        if ends {
            fields.push(("end", "true".to_owned()));
        }
        if !is_last {
            let why = match ends {
                true => "it matches its own target, and ends the rules",
                false => "after it, the rules start over",
            };
            self.report.changed(&rule.place, &rule.shown(), why);
        }
        self.push("rewrite", rule, toml_text::table(fields));
        Ok(())
    }

    /// Whether a rule may decide that a script does not run, or what runs in place of a file, by a
    /// handler or a type.
    fn sets_handler(&self, chain: &RewriteChain<'_>) -> bool {
        let names = handlers_of(chain.rule);
        let is_other = || !ends_otherwise_than_php(chain.rule.first());
        !names.is_empty() && (is_other() || names.iter().any(|name| self.runs_files(name)))
    }

    /// Whether the conditions about the host hold for all names of the site.
    fn is_any_host(&self, chain: &RewriteChain<'a>) -> bool {
        let patterns = chain.tests.iter().filter_map(|test| match test {
            CondTest::Host(text, is_negated) => Some((regex::Regex::new(text).ok()?, is_negated)),
            _ => None,
        });
        let patterns: Vec<_> = patterns.collect();
        let holds = |name: &String| {
            let mut all = patterns.iter();
            all.all(|(pattern, is_negated)| pattern.is_match(name) != **is_negated)
        };
        let hosts = self.site.settings.value("hosts").unwrap_or_default();
        !hosts.contains("\"*\"") && !self.names.is_empty() && self.names.iter().all(holds)
    }

    /// `RewriteRule … http://127.0.0.1:3000/$1 [P]`.
    fn proxied_rule(&mut self, chain: &RewriteChain<'a>, to: &str) -> Result<(), String> {
        let rule = chain.rule;
        let rest = to.strip_prefix("http://").filter(|_| chain.is_for_all());
        let server = rest.and_then(|rest| rest.strip_suffix("/$1").or(rest.strip_suffix("$0")));
        let server = server.filter(|server| !server.contains(['/', '$']));
        let server = server.ok_or("only a server for all paths can be written")?;
        let fields = [("to", toml_text::string(&format!("http://{server}")))];
        self.push("proxy", rule, toml_text::table(fields));
        Ok(())
    }
}

/// How a rule ends the rules for paths of files or folders, if it does nothing else.
fn end_for_files(chain: &RewriteChain<'_>, scope: &RewriteScope) -> Option<EarlierEnd> {
    let is_test = |one: &&Directive, tests: &[&str]| {
        let is_file = one.first().contains("REQUEST_FILENAME") && !scope.is_no_file(one.first());
        is_file && tests.contains(&one.argument(1))
    };
    let mut conditions = chain.conditions.iter();
    let is_end = chain.rule.argument(1) == "-"
        && chain.is_for_all()
        && chain.flag(&["L", "LAST", "END"]).is_some()
        && !chain.conditions.is_empty()
        && chain.needs_any()
        && conditions.clone().all(|one| is_test(one, &["-f", "-d", "-l", "-s"]));
    let is_for_files = conditions.any(|one| is_test(one, &["-f", "-s"]));
    is_end.then_some(if is_for_files { EarlierEnd::IfFile } else { EarlierEnd::None })
}

/// Whether a rule ends the rules for some requests and does nothing else. One for the paths of
/// another folder ends none.
fn ends_otherwise(chain: &RewriteChain<'_>, scope: &RewriteScope) -> bool {
    let is_elsewhere = scope.is_around && chain.expression(scope).is_err();
    !is_elsewhere
        && chain.rule.argument(1) == "-"
        && chain.flag(&["L", "LAST", "END"]).is_some()
        && refusal(chain).is_none()
}

/// Whether a rule excepts paths from the servers of `ProxyPass`, or has settings of PHP for them.
fn sets_deciding_variable(chain: &RewriteChain<'_>) -> bool {
    let is_variable = |name: &str| ["E", "ENV"].contains(&name);
    chain.flags.iter().any(|(name, value)| is_variable(name) && decides(value))
}

/// Whether a text begins with a variable that excepts a request from other servers, or that has
/// settings of PHP.
pub(super) fn decides(variable: &str) -> bool {
    let mut names = PHP_VARIABLES.into_iter().chain([NO_PROXY]);
    names.any(|name| variable.starts_with(name))
}

/// Whether an expression matches the path that a target leads to.
fn matches_target(expression: &str, to: &str) -> bool {
    let path = to.split('?').next().unwrap_or_default();
    let mut parts = path.split('$');
    let first = parts.next().unwrap_or_default().to_owned();
    let of_group = |part: &str| format!("{ANY_GROUP}{}", part.trim_start_matches(is_digit));
    PathArea::Regex(expression.to_owned()).has(&(first + &parts.map(of_group).collect::<String>()))
}

fn is_digit(letter: char) -> bool {
    letter.is_ascii_digit()
}

/// Whether a rule refuses hidden files, which are never served anyway.
fn is_of_hidden_files(chain: &RewriteChain<'_>, is_in_folder: bool) -> bool {
    let expression = chain.rule.first().replace("\\/", "/");
    // A path in a folder begins with a name, and only the first one may be `.well-known`.
    let is_nested = |part: &str| {
        let rest = part.strip_prefix("/\\.").filter(|_| is_in_folder);
        rest.is_some_and(|rest| !rest.starts_with(['?', '*', '{']))
    };
    let all = alternatives(&expression);
    let are_all = all.iter().all(|part| is_nested(part) || are_hidden(part));
    refusal(chain).is_some() && are_all && chain.conditions.is_empty()
}

/// Whether a rule refuses TRACE and TRACK alone, which maitred does anyway.
fn is_trace(chain: &RewriteChain<'_>) -> bool {
    let is_method = |one: &&&Directive| one.first() == "%{REQUEST_METHOD}";
    let methods = chain.conditions.iter().filter(is_method);
    let methods: Vec<&str> = methods.map(|one| one.argument(1)).collect();
    chain.conditions.len() == 1
        && methods.len() == 1
        && methods[0]
            .trim_matches(['^', '$', '(', ')'])
            .split('|')
            .all(|name| ["TRACE", "TRACK"].contains(&name.trim_matches(['^', '$', '(', ')'])))
}

/// The status of a rule that refuses.
pub(super) fn refusal<'c>(chain: &'c RewriteChain<'_>) -> Option<&'c str> {
    if chain.flag(&["F", "FORBIDDEN"]).is_some() {
        return Some("403");
    }
    if chain.flag(&["G", "GONE"]).is_some() {
        return Some("410");
    }
    let status = chain.redirect().filter(|status| !REDIRECTS.contains(status))?;
    Some(if ["404", "410"].contains(&status) { status } else { "403" })
}

/// Flags that have a counterpart, or need none.
fn is_known(name: &str) -> bool {
    let known = [
        "L",
        "LAST",
        "END",
        "R",
        "REDIRECT",
        "F",
        "FORBIDDEN",
        "G",
        "GONE",
        "NC",
        "NOCASE",
        "QSA",
        "QSAPPEND",
        "QSD",
        "QSDISCARD",
        "NE",
        "NOESCAPE",
        "NS",
        "PT",
        "P",
        "PROXY",
        "B",
        "DPI",
    ];
    known.contains(&name)
}
