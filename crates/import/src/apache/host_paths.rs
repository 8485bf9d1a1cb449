//! What a path leads to: `Alias`, `Redirect`, mod_rewrite.

use super::host_import::{AreaSection, HostImport};
use super::path_area::{MappedFolder, PathArea};
use super::rewrite_chain::{CondTest, RewriteChain, chains, front_controller};
use super::virtual_hosts::is_on;
use crate::file_draft::Placed;
use crate::hidden_names::are_hidden;
use crate::regexes;
use crate::source_directive::Directive;
use crate::toml_text;
use crate::values::alternatives;

/// The statuses of redirects.
const REDIRECTS: [&str; 5] = ["301", "302", "303", "307", "308"];

/// Why a folder has no front controller.
const OTHER_FRONT: &str = "a site has one front controller, which is a script at its top; serve \
                           the folder as a site of its own";

/// An earlier rule that ends the rules for some requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlierEnd {
    None,
    /// For paths of files and folders.
    IfFile,
    /// For others.
    Unknown,
}

impl<'a> HostImport<'_, 'a> {
    /// `Alias` and `ScriptAlias`: the first one of a path decides; those of the host come first.
    pub(super) fn aliases(&mut self) {
        self.mapped = vec![MappedFolder { prefix: String::new(), folder: self.root.clone() }];
        for alias in self.all_of_host(&["Alias", "ScriptAlias", "AliasMatch", "ScriptAliasMatch"]) {
            let prefix = alias.first().trim_end_matches('/').to_owned();
            let folder = self.config.absolute(alias.argument(1));
            let folder = folder.trim_end_matches('/').to_owned();
            if alias.name.to_ascii_lowercase().ends_with("match") || folder.contains('$') {
                let why = "only the paths below a prefix can have a folder of their own \
                           (`aliases`); the paths are a 404";
                let pattern = PathArea::Regex(alias.first().to_owned());
                self.nothing_here(alias, &pattern, why);
                continue;
            }
            if alias.is("ScriptAlias") {
                let why = "CGI programs do not run here; the paths are a 404";
                self.nothing_here(alias, &PathArea::Below(prefix), why);
                continue;
            }
            if self.mapped.iter().any(|known| known.prefix == prefix) {
                self.keep(alias);
                continue;
            }
            if !alias.first().ends_with('/') && self.files.read(&folder).is_ok() {
                let why = "only folders can have paths of their own (`aliases`): copy or link the \
                           file into the document root";
                self.report.left_out(&alias.place, &alias.shown(), why);
                continue;
            }
            let placed = Placed::new(toml_text::string(&folder), &alias.place);
            self.site.settings.entry("aliases", &format!("{prefix}/"), placed);
            self.keep(alias);
            self.mapped.push(MappedFolder { prefix, folder });
        }
    }

    /// `Redirect` and `RedirectMatch`: those of the host first, then those of the server.
    pub(super) fn redirects(&mut self) {
        let names = ["Redirect", "RedirectMatch", "RedirectPermanent", "RedirectTemp"];
        let mut found: Vec<(Option<PathArea>, &'a Directive)> =
            self.all_of_host(&names).into_iter().map(|one| (None, one)).collect();
        for section in self.sections.iter().filter(|one| one.section.is_some()) {
            let own = names.iter().flat_map(|name| section.all(name));
            found.extend(own.map(|one| (Some(section.area.clone()), one)));
        }
        for (area, line) in found {
            if self.is_moved(line) {
                continue;
            }
            if let Err(why) = self.redirect(area, line) {
                let why = format!("{why}; write `redirects` or `deny` of the site");
                self.report.access_left_out(&line.place, &line.shown(), &why);
            }
        }
    }

    fn redirect(&mut self, area: Option<PathArea>, line: &'a Directive) -> Result<(), String> {
        let words: Vec<&str> = line.arguments.iter().map(String::as_str).collect();
        let is_status = |word: &str| {
            let named = ["permanent", "temp", "seeother", "gone"];
            named.contains(&word) || word.len() == 3 && word.parse::<u16>().is_ok()
        };
        let (status, words) = match words.split_first() {
            Some((first, rest)) if is_status(&first.to_ascii_lowercase()) => (*first, rest),
            _ if line.is("RedirectPermanent") => ("permanent", words.as_slice()),
            _ => ("temp", words.as_slice()),
        };
        let status = match status.to_ascii_lowercase().as_str() {
            "permanent" => "301".to_owned(),
            "temp" => "302".to_owned(),
            "seeother" => "303".to_owned(),
            "gone" => "410".to_owned(),
            other => other.to_owned(),
        };
        let is_redirect = REDIRECTS.contains(&status.as_str());
        // In `<Location>`, the path is the one of the section.
        let (from, to) = match (words, &area) {
            ([from, to], _) => (Some(*from), *to),
            ([from], _) if !is_redirect => (Some(*from), ""),
            ([to], Some(_)) if is_redirect => (None, *to),
            ([], Some(_)) if !is_redirect => (None, ""),
            _ => return Err("its arguments are unknown".to_owned()),
        };
        let (pattern, group) = match from {
            None => {
                let area = area.unwrap_or_else(PathArea::all);
                (area.whole_pattern(), "")
            }
            Some(from) if line.is("RedirectMatch") => {
                regexes::check_regex(&format!("~{from}"))?;
                (format!("~{from}"), "")
            }
            Some("/") => ("/*".to_owned(), "$1"),
            Some(from) if from.ends_with('/') => (format!("{from}*"), "$1"),
            Some(from) => (format!("~^{}(/.*)?$", regex::escape(from)), "$1"),
        };
        if !is_redirect {
            let here =
                if ["404", "410"].contains(&status.as_str()) { status.as_str() } else { "403" };
            let path = toml_text::string(&pattern);
            let fields = [("path", path), ("status", here.to_owned())];
            self.push("deny", line, toml_text::table(fields));
            if here != status {
                self.report.changed(&line.place, &line.shown(), "the status is 403 here");
            }
            return Ok(());
        }
        if to.contains("%{") {
            return Err("its target is not fixed".to_owned());
        }
        let to = format!("{to}{group}");
        let fields = [
            ("from", toml_text::string(&pattern)),
            ("to", toml_text::string(&to)),
            ("status", status),
        ];
        self.push("redirects", line, toml_text::table(fields));
        Ok(())
    }

    /// mod_rewrite of the host and of folders, and `FallbackResource`.
    pub(super) fn rewriting(&mut self) {
        // Virtual hosts inherit no rules of the server.
        let host: Vec<&'a Directive> = self.host.iter().collect();
        self.rules_of(&host, "", false);
        let sections = self.sections.clone();
        let of_files = |one: &&AreaSection<'a>| one.section.is_some();
        for section in sections.iter().filter(of_files) {
            match &section.area {
                PathArea::Below(prefix) if section.is_folder => {
                    let base = section.last("RewriteBase").map(Directive::first);
                    let base =
                        base.map_or(prefix.clone(), |base| base.trim_end_matches('/').into());
                    self.rules_of(&section.directives, &base, true);
                }
                _ => self.rules_elsewhere(section),
            }
            self.fallback_resource(section);
        }
        let server: Vec<AreaSection<'a>> =
            sections.into_iter().filter(|one| one.section.is_none()).collect();
        server.iter().for_each(|section| self.fallback_resource(section));
        if !self.site.settings.has("front_controller") && !self.site.settings.has("htaccess") {
            let none = Placed::because("\"\"".to_owned(), &self.place.clone(), "no fallback");
            self.site.settings.set("front_controller", none);
        }
    }

    fn rules_elsewhere(&mut self, section: &AreaSection<'a>) {
        for rule in section.all("RewriteRule") {
            let why = "rules in this section have no counterpart; write `rewrite`, `redirects` or \
                       `deny` of the site";
            self.report.access_left_out(&rule.place, &rule.shown(), why);
        }
    }

    fn fallback_resource(&mut self, section: &AreaSection<'a>) {
        let Some(line) = section.last("FallbackResource") else { return };
        let is_script = line.first().starts_with('/') && line.first().contains(".php");
        match section.area.is_all() && is_script {
            true => self.front_controller(line, line.first(), ""),
            false if line.first() == "disabled" => self.keep(line),
            false => {
                self.report.left_out(&line.place, &line.shown(), OTHER_FRONT);
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

    fn rules_of(&mut self, directives: &[&'a Directive], base: &str, is_in_folder: bool) {
        let is_active = is_on(directives);
        for name in ["RewriteEngine", "RewriteBase", "RewriteOptions"] {
            directives.iter().filter(|one| one.is(name)).for_each(|one| self.keep(one));
        }
        let mut end = EarlierEnd::None;
        for mut chain in chains(directives) {
            let lines = chain.conditions.iter().chain([&chain.rule]);
            if !is_active {
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
            end = match ends_for_files(&chain) {
                true => {
                    self.keep(chain.rule);
                    EarlierEnd::IfFile
                }
                false if self.rule(&chain, base, is_in_folder) => end,
                false if ends_otherwise(&chain) => EarlierEnd::Unknown,
                false => end,
            };
            for condition in &chain.conditions {
                self.report.cover(condition);
            }
        }
    }

    /// Whether the rule is written.
    fn rule(&mut self, chain: &RewriteChain<'a>, base: &str, is_in_folder: bool) -> bool {
        let rule = chain.rule;
        if let Some((script, more)) = front_controller(chain, base) {
            match base {
                "" => self.front_controller(rule, &script, &more),
                _ => self.report.left_out(&rule.place, &rule.shown(), OTHER_FRONT),
            }
            return true;
        }
        let refuses = chain.flag(&["F", "FORBIDDEN"]).is_some()
            || chain.flag(&["G", "GONE"]).is_some()
            || chain.redirect().is_some_and(|status| !REDIRECTS.contains(&status));
        if let Err(why) = self.written(chain, base, is_in_folder) {
            let why = format!(
                "{why}; write `rewrite`, `redirects` or `deny` of the site, or the rule into a \
                 `.htaccess` file with `htaccess = true`"
            );
            match refuses || chain.hides_paths() {
                true => self.report.access_left_out(&rule.place, &rule.shown(), &why),
                false => self.report.left_out(&rule.place, &rule.shown(), &why),
            }
            return false;
        }
        true
    }

    fn written(
        &mut self,
        chain: &RewriteChain<'a>,
        base: &str,
        is_in_folder: bool,
    ) -> Result<(), String> {
        let rule = chain.rule;
        let is_nothing = rule.argument(1) == "-";
        if is_of_hidden_files(chain, is_in_folder) {
            self.report.changed(&rule.place, &rule.shown(), "hidden files are a 404");
            return Ok(());
        }
        let passes_authorization = chain.flags.iter().any(|(name, value)| {
            ["E", "ENV"].contains(&name.as_str()) && value.starts_with("HTTP_AUTHORIZATION")
        });
        if is_nothing && passes_authorization {
            self.keep(rule);
            return Ok(());
        }
        let mut expression = chain.expression(base, is_in_folder)?;
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
                CondTest::Path(text, false)
                    if chain.is_for_all() && !rule.argument(1).contains('$') =>
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
        let to = chain.target(base, &self.root)?;
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
        match chain.flag(&["L", "LAST", "END"]).is_some() {
            true => fields.push(("end", "true".to_owned())),
            false => {
                let why = "after it, the rules start over";
                self.report.changed(&rule.place, &rule.shown(), why);
            }
        }
        self.push("rewrite", rule, toml_text::table(fields));
        Ok(())
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

/// Whether a rule ends the rules for paths of files and folders, and does nothing else.
fn ends_for_files(chain: &RewriteChain<'_>) -> bool {
    let is_file = |one: &&Directive| {
        one.first().contains("REQUEST_FILENAME")
            && ["-f", "-d", "-l", "-s"].contains(&one.argument(1))
    };
    chain.rule.argument(1) == "-"
        && chain.is_for_all()
        && chain.flag(&["L", "LAST", "END"]).is_some()
        && !chain.conditions.is_empty()
        && chain.conditions.iter().all(is_file)
}

/// Whether a rule ends the rules for some requests and does nothing else.
fn ends_otherwise(chain: &RewriteChain<'_>) -> bool {
    chain.rule.argument(1) == "-"
        && chain.flag(&["L", "LAST", "END"]).is_some()
        && refusal(chain).is_none()
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
fn refusal<'c>(chain: &'c RewriteChain<'_>) -> Option<&'c str> {
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
