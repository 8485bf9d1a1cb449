//! PHP: handlers, their pools, and which scripts run.

use super::host_import::{AreaSection, HostImport, is_files};
use super::mod_php_pools::PoolEntry;
use super::path_area::{self, PathArea};
use super::path_pools::{other_name, other_source};
use crate::file_draft::Placed;
use crate::fpm::{CONFINING, PassTarget};
use crate::parameter_settings::PHP_PARAMETERS;
use crate::source_directive::Directive;
use crate::toml_text;

/// Handlers that run a file as a program.
const CGI_HANDLERS: [&str; 7] = [
    "application/x-httpd-cgi",
    "cgi-script",
    "fcgid-script",
    "fastcgi-script",
    "lua-script",
    "perl-script",
    "wsgi-script",
];

/// Handlers and types of mod_php that run a file.
const MODULE_HANDLERS: [&str; 4] = [PHP_TYPE, "php-script", "php5-script", "php7-script"];

/// The type that mod_php takes for its own, and how its other types begin.
pub(super) const PHP_TYPE: &str = "application/x-httpd-php";

/// A script that no configuration names.
pub(super) const ANY_SCRIPT: &str = "/zz9/zz9.php";

/// Handlers that run no PHP.
const NO_HANDLERS: [&str; 2] = ["none", "default-handler"];

/// Handlers of pages that Apache makes itself.
const OWN_PAGES: [&str; 5] =
    ["server-status", "server-info", "ldap-status", "balancer-manager", "heartbeat"];

/// Variables with settings of PHP, for php-fpm.
pub(super) const PHP_VARIABLES: [&str; 2] = [PHP_PARAMETERS[0].0, PHP_PARAMETERS[1].0];

/// Directives with settings of PHP.
const PHP_SETTINGS: [&str; 4] = ["php_value", "php_flag", "php_admin_value", "php_admin_flag"];

/// What runs the scripts of some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PhpHandler {
    /// mod_php.
    Module,
    /// A FastCGI server, by its address.
    Fcgi(String),
    /// No PHP.
    None,
}

/// A handler of a section.
pub(super) struct AreaHandler<'a> {
    /// The names of its scripts.
    pub area: PathArea,
    /// What runs them.
    pub handler: PhpHandler,
    /// Its line.
    pub line: &'a Directive,
}

impl<'a> HostImport<'_, 'a> {
    /// The pool of the site, which scripts may run, and their settings.
    pub(super) fn php(&mut self) {
        let handlers = self.handlers();
        let general = handlers.iter().rev().find(|one| one.area.has(ANY_SCRIPT));
        let general = general.map(|one| (one.handler.clone(), one.line));
        let is_module = general.as_ref().is_some_and(|(one, _)| *one == PhpHandler::Module);
        let settings = self.php_settings(is_module);
        if let Some((_, line)) = general {
            self.types_of_files(line);
        }
        match general {
            Some((PhpHandler::None, line)) => self.no_php(line),
            Some((handler, line)) => self.site_pool(&handler, line, settings.clone()),
            None => self.only_some_scripts(&handlers, settings.clone()),
        }
        for one in &handlers {
            let is_kept = !one.line.is("SetHandler") || one.handler != PhpHandler::None;
            if is_kept || NO_HANDLERS.contains(&&*one.line.first().to_ascii_lowercase()) {
                self.keep(one.line);
            }
            self.source_of_others(one);
        }
        self.other_handlers(&handlers);
        if is_module {
            self.pools_of_folders(&settings);
        }
        self.handlers_of_files();
        self.programs();
        self.engines();
        self.settings_by_variable();
    }

    /// Files that are passed to PHP and are served here.
    fn source_of_others(&mut self, one: &AreaHandler<'a>) {
        let is_for_all = matches!(one.area, PathArea::Below(_)) || one.area.has("/zz9/zz9.zz9");
        if one.handler == PhpHandler::None || is_engine(one.line) {
            return;
        }
        let what = match other_source(one) {
            _ if is_for_all => "all of these paths".to_owned(),
            Some(end) => format!("`{end}` files"),
            None => return,
        };
        let why = format!(
            "it passes {what} to PHP, and files there are served here: deny them, or move them out \
             of the document root"
        );
        self.report.access_left_out(&one.line.place, &one.line.shown(), &why);
    }

    /// The names of handlers and types that an `Action` leads to a script, which may be a gate.
    fn actions(&mut self) -> Vec<String> {
        let lines = self.action_lines();
        self.actions_of_files(&lines);
        for line in &lines {
            let name = line.first().to_ascii_lowercase();
            if name.contains('/') && !name.starts_with(PHP_TYPE) {
                let why = "the files of a type are sent, and not passed to a script: deny them, or \
                           move them out of the document root";
                self.report.access_left_out(&line.place, &line.shown(), why);
            }
        }
        lines.into_iter().map(|line| line.first().to_ascii_lowercase()).collect()
    }

    fn action_lines(&self) -> Vec<&'a Directive> {
        self.sections.iter().flat_map(|one| one.all("Action")).collect()
    }

    /// Whether a handler or a type, in lower case, passes a file to PHP or another program, to
    /// another server or to the script of an `Action`.
    pub(super) fn runs_files(&self, name: &str) -> bool {
        let is_action = |line: &&Directive| line.first().eq_ignore_ascii_case(name);
        CGI_HANDLERS.contains(&name)
            || name.starts_with("proxy:")
            || self.php_handler(name).is_some()
            || self.action_lines().iter().any(is_action)
    }

    /// The source of CGI programs is not sent, nor what an `Action` passes to a script, and the
    /// source of PHP never is.
    fn programs(&mut self) {
        let actions = self.actions();
        for section in self.sections.clone() {
            for line in &section.directives {
                let handler = line.first().to_ascii_lowercase();
                let is_set = line.is("SetHandler") || line.is("ForceType");
                if is_set && handler.starts_with("proxy:") && fcgi_address(line.first()).is_none() {
                    let why = "only FastCGI servers run scripts here; the paths are a 404: write \
                               `[[sites.proxy]]` in place of the `deny`";
                    self.nothing_here(line, &section.area, why);
                    continue;
                }
                let is_program =
                    CGI_HANDLERS.contains(&handler.as_str()) || actions.contains(&handler);
                let adds = line.is("AddHandler") || line.is("AddType");
                if !is_program || !is_set && !adds {
                    continue;
                }
                let names = program_extensions(line);
                let area = match is_set {
                    true => Some(section.area.clone()),
                    false if names.is_empty() => continue,
                    false => files_with(&names, &section),
                };
                let Some(area) = area else {
                    let why = "only PHP runs here; write `deny` of the site for its files, or they \
                               are sent";
                    self.report.access_left_out(&line.place, &line.shown(), why);
                    continue;
                };
                if is_set && is_of_php(&area) {
                    continue;
                }
                self.nothing_here(line, &area, "only PHP runs here; the paths are a 404");
            }
        }
    }

    fn no_php(&mut self, line: &Directive) {
        let why = match NO_HANDLERS.contains(&&*line.first().to_ascii_lowercase()) {
            true => "no PHP at this site; scripts are a 403 here, and Apache sends their source",
            false => "no PHP at this site; scripts are a 403 here",
        };
        let all = Placed::because(toml_text::string("/*"), &line.place, "no PHP");
        self.site.settings.push("deny_php", all);
        self.report.changed(&line.place, &line.shown(), why);
    }

    /// All handlers, in the order in which Apache merges them.
    fn handlers(&mut self) -> Vec<AreaHandler<'a>> {
        let (mut by_extension, mut found) = (Vec::new(), Vec::new());
        for section in &self.sections {
            let removes = |line: &&&Directive| line.name.to_ascii_lowercase().starts_with("remove");
            let lines = section.directives.iter();
            // What removes an extension is evaluated last.
            for line in lines.clone().filter(|one| !removes(one)).chain(lines.filter(removes)) {
                if line.is("SetHandler")
                    && let Some(handler) = self.set_handler(line)
                {
                    found.push(AreaHandler { area: section.area.clone(), handler, line });
                }
                if let Some(handler) = self.extension_handler(line, &by_extension) {
                    let area = scripts_below(&section.area);
                    by_extension.push(AreaHandler { area, handler, line });
                }
            }
        }
        by_extension.extend(self.forced_types(&by_extension));
        found.extend(self.passed_scripts());
        // `SetHandler` decides in place of an extension.
        by_extension.append(&mut found);
        by_extension
    }

    /// What a word of Apache's names: mod_php, or a FastCGI server.
    pub(super) fn php_handler(&self, word: &str) -> Option<PhpHandler> {
        let has_module = self.config.modules.iter().any(|name| name.starts_with("php"));
        let lower = word.to_ascii_lowercase();
        let is_module = has_module && MODULE_HANDLERS.contains(&lower.as_str());
        let address = fcgi_address(word).map(PhpHandler::Fcgi);
        address.or(is_module.then_some(PhpHandler::Module))
    }

    fn set_handler(&self, line: &Directive) -> Option<PhpHandler> {
        let word = line.first().to_ascii_lowercase();
        let is_page = OWN_PAGES.contains(&word.as_str());
        self.php_handler(line.first()).or((!is_page).then_some(PhpHandler::None))
    }

    /// The handler of the extension `.php`, or none after an earlier one.
    fn extension_handler(
        &self,
        line: &Directive,
        earlier: &[AreaHandler<'a>],
    ) -> Option<PhpHandler> {
        let is_php = |word: &String| word.trim_start_matches('.').eq_ignore_ascii_case("php");
        let is_by = |name: &str| {
            earlier.iter().any(|one| one.line.is(name) && one.handler != PhpHandler::None)
        };
        if line.is("RemoveHandler") || line.is("RemoveType") {
            let added = if line.is("RemoveType") { "AddType" } else { "AddHandler" };
            let is_undone = line.arguments.iter().any(is_php) && is_by(added);
            return is_undone.then_some(PhpHandler::None);
        }
        let adds = line.is("AddHandler") || line.is("AddType");
        if !adds || !line.arguments.iter().skip(1).any(is_php) {
            return None;
        }
        // A type does not decide where there is a handler.
        let is_undone = is_by("AddType") || line.is("AddHandler") && is_by("AddHandler");
        self.php_handler(line.first()).or(is_undone.then_some(PhpHandler::None))
    }

    fn site_pool(&mut self, handler: &PhpHandler, line: &'a Directive, settings: Vec<PoolEntry>) {
        let address = match handler {
            PhpHandler::None => return,
            PhpHandler::Module => {
                let name = self.mod_php.pool(settings);
                let toml = toml_text::string(&name);
                self.site.settings.set("pool", Placed::new(toml, &line.place));
                return;
            }
            PhpHandler::Fcgi(address) => address,
        };
        match self.target(address, line) {
            PassTarget::Pool(name) => {
                let toml = toml_text::string(&name);
                self.site.settings.set("pool", Placed::new(toml, &line.place));
                for entry in settings.into_iter().filter(|one| one.table == "env") {
                    if let Err(why) = self.pools.entry(&name, "env", &entry.name, entry.value) {
                        self.report.left_out(&line.place, &format!("SetEnv {}", entry.name), &why);
                    }
                }
            }
            PassTarget::Upstream(address) => {
                let toml = toml_text::string(&address);
                self.site.settings.set("upstream", Placed::new(toml, &line.place));
                let why =
                    "no pool of php-fpm with this address was found: the FastCGI server stays";
                self.report.changed(&line.place, &line.shown(), why);
            }
        }
    }

    /// The pool of an address, with the time that Apache waits for it.
    pub(super) fn target(&mut self, address: &str, line: &'a Directive) -> PassTarget {
        let target = self.pools.target(address, self.files);
        let own = line.arguments.iter().find_map(|one| one.strip_prefix("timeout="));
        let own = own.map(|time| (time.to_owned(), line.place.clone()));
        let of_proxy = self.config.tree.iter().chain(self.host).filter(|one| one.is("<Proxy"));
        let of_proxy = of_proxy.filter(|one| fcgi_address(one.first()).as_deref() == Some(address));
        let mut of_proxy = of_proxy.flat_map(|one| {
            let inner = one.block.iter().filter(|one| one.is("ProxySet"));
            inner.chain([one]).flat_map(|one| one.arguments.iter().map(move |word| (word, one)))
        });
        let set = of_proxy.find_map(|(word, one)| {
            Some((word.strip_prefix("timeout=")?.to_owned(), one.place.clone()))
        });
        let all = self.of_host("ProxyTimeout").or(self.of_host("Timeout"));
        let all = all.map(|one| (one.first().to_owned(), one.place.clone()));
        // Whole seconds: text after the digits is ignored.
        let seconds = |text: &str| {
            let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text[..end].to_owned()
        };
        let time = own.or(set).or(all).map(|(text, place)| (seconds(&text), place));
        let time = time.as_ref().map(|(text, place)| (text.as_str(), place));
        self.pools.waits(&target, time, &line.place);
        target
    }

    /// `allow_php`, where no handler is for all scripts.
    fn only_some_scripts(&mut self, handlers: &[AreaHandler<'a>], settings: Vec<PoolEntry>) {
        let is_php = |one: &&AreaHandler<'a>| one.handler != PhpHandler::None;
        let mut used: Vec<&AreaHandler<'a>> = handlers.iter().filter(is_php).collect();
        used.dedup_by_key(|one| one.area.pattern());
        let Some(first) = used.first() else {
            let why = "no handler runs PHP";
            let all = Placed::because(toml_text::string("/*"), &self.place.clone(), why);
            return self.site.settings.push("deny_php", all);
        };
        self.site_pool(&first.handler, first.line, settings);
        for one in used {
            let item = Placed::new(toml_text::string(&one.area.pattern()), &one.line.place);
            self.site.settings.push("allow_php", item);
        }
    }

    /// `php_flag engine off`, which is `deny_php` here.
    fn engines(&mut self) {
        let sections: Vec<AreaSection<'a>> = self.sections.clone();
        for section in &sections {
            for line in section.directives.iter().filter(|one| is_engine(one)) {
                let is_off = !is_on(line);
                if is_off {
                    let item = toml_text::string(&section.area.whole_pattern());
                    self.push("deny_php", line, item);
                    let why = "scripts there are a 403; Apache sends their source";
                    self.report.changed(&line.place, &line.shown(), why);
                }
                self.keep(line);
            }
        }
    }

    /// Settings of PHP and variables for the whole site; those of a part of it are left out.
    fn php_settings(&mut self, is_module: bool) -> Vec<PoolEntry> {
        let mut entries: Vec<PoolEntry> = Vec::new();
        let sections: Vec<AreaSection<'a>> = self.sections.clone();
        for section in &sections {
            for line in &section.directives {
                let Some(entry) = self.pool_entry(line) else { continue };
                if !section.area.is_all() {
                    if is_module && matches!(section.area, PathArea::Below(_)) {
                        continue;
                    }
                    let decides = CONFINING.contains(&line.first());
                    let why = match is_module {
                        true => {
                            "settings of PHP are those of a pool: give the folder a pool of \
                                 its own (`paths`)"
                        }
                        false => {
                            "settings of PHP are those of a pool: give the folder a pool of \
                                  its own (`paths`), or set it in `.user.ini`"
                        }
                    };
                    match decides {
                        true => self.report.access_left_out(&line.place, &line.shown(), why),
                        false => self.report.left_out(&line.place, &line.shown(), why),
                    }
                    continue;
                }
                self.keep(line);
                entry.merge_into(&mut entries);
            }
        }
        if let Some(line) = self.of_host("AssignUserID") {
            self.keep(line);
            for (name, value) in ["user", "group"].iter().zip(&line.arguments) {
                let value = Placed::new(toml_text::string(value), &line.place);
                entries.push(PoolEntry { table: "", name: (*name).to_owned(), value });
            }
        }
        entries
    }

    /// Settings of PHP in `SetEnv PHP_ADMIN_VALUE`: a variable of the pool sets none.
    fn settings_by_variable(&mut self) {
        let sections = self.sections.iter().flat_map(|one| one.directives.iter().copied());
        let is_of_php =
            |line: &&Directive| line.is("SetEnv") && PHP_VARIABLES.contains(&line.first());
        let of_php: Vec<&'a Directive> = sections.filter(is_of_php).collect();
        for line in of_php {
            let value = line.argument(1);
            let decides = CONFINING.iter().any(|name| value.contains(name));
            let why = "set `php_admin_value` of the pool";
            match decides {
                true => self.report.access_left_out(&line.place, &line.shown(), why),
                false => self.report.left_out(&line.place, &line.shown(), why),
            }
        }
    }

    pub(super) fn pool_entry(&self, line: &'a Directive) -> Option<PoolEntry> {
        if line.is("SetEnv") && !line.first().starts_with("proxy-") {
            let value = Placed::new(toml_text::string(line.argument(1)), &line.place);
            let of_apache = ["nokeepalive", "no-gzip", "dont-vary"];
            let is_other =
                of_apache.into_iter().chain(PHP_VARIABLES).any(|one| one == line.first());
            let name = line.first().to_owned();
            return (!is_other).then_some(PoolEntry { table: "env", name, value });
        }
        let table = PHP_SETTINGS.into_iter().find(|name| line.is(name))?;
        if is_engine(line) {
            return None;
        }
        let toml = match table.ends_with("flag") {
            true => is_on(line).to_string(),
            false if line.argument(1).eq_ignore_ascii_case("none") => toml_text::string(""),
            false => toml_text::string(line.argument(1)),
        };
        let value = Placed::new(toml, &line.place);
        Some(PoolEntry { table, name: line.first().to_owned(), value })
    }
}

/// Whether a setting of PHP is on: a flag is by `On` and `1` alone (php-src, `real_flag_hnd` of
/// sapi/apache2handler/apache_config.c), a value as in php.ini.
pub(super) fn is_on(line: &Directive) -> bool {
    let is_flag = line.is("php_flag") || line.is("php_admin_flag");
    match line.argument(1).to_ascii_lowercase().as_str() {
        "1" | "on" => true,
        "true" | "yes" => !is_flag,
        _ => false,
    }
}

pub(super) fn is_engine(line: &Directive) -> bool {
    PHP_SETTINGS.iter().any(|name| line.is(name)) && line.first() == "engine"
}

/// The scripts of an area, by the extension `.php`.
fn scripts_below(area: &PathArea) -> PathArea {
    match area {
        PathArea::Below(prefix) => {
            PathArea::Regex(format!("^{}/.*\\.php(/|$)", regex::escape(prefix)))
        }
        PathArea::Regex(text) => PathArea::Regex(text.clone()),
    }
}

/// Whether an area is an expression for the source of PHP alone.
pub(super) fn is_of_php(area: &PathArea) -> bool {
    matches!(area, PathArea::Regex(_)) && other_name(area).is_none()
}

/// The extensions that a line adds a handler or a type to but PHP's, as expressions.
pub(super) fn program_extensions(line: &Directive) -> Vec<String> {
    let names = line.arguments.iter().skip(1).map(|one| one.trim_start_matches('.'));
    let names = names.filter(|one| !one.to_ascii_lowercase().starts_with("php"));
    names.map(regex::escape).collect()
}

/// The files of a section with one of these extensions, which need not be the last one of a name;
/// nothing if no expression is for them.
pub(super) fn files_with(names: &[String], section: &AreaSection<'_>) -> Option<PathArea> {
    let text = names.join("|");
    match &section.area {
        PathArea::Below(prefix) => {
            let prefix = regex::escape(prefix);
            let found = format!("(?i)^{prefix}/.*\\.(?:{text})(?:\\.[^/]*)?(?:/|$)");
            Some(PathArea::Regex(found))
        }
        area if section.section.is_some_and(is_files) => {
            Some(area.clone()).filter(|area| !area.has(ANY_SCRIPT))
        }
        PathArea::Regex(folder) => {
            let name = format!("[^/]*\\.(?i:{text})(?:\\.[^/]*)?$");
            Some(PathArea::Regex(path_area::below_expression(folder, &name)))
        }
    }
}

/// `proxy:unix:/run/php/x.sock|fcgi://localhost`, `fcgi://127.0.0.1:9000/srv/…`, as maitred writes
/// addresses.
pub(super) fn fcgi_address(text: &str) -> Option<String> {
    let text = text.strip_prefix("proxy:").unwrap_or(text);
    if let Some((socket, rest)) = text.strip_prefix("unix:").and_then(|rest| rest.split_once('|')) {
        return rest.starts_with("fcgi:").then(|| format!("unix:{socket}"));
    }
    let rest = text.strip_prefix("fcgi://")?;
    let server = rest.split('/').next().unwrap_or_default();
    Some(match server.contains(':') {
        true => server.to_owned(),
        false => format!("{server}:8000"),
    })
}
