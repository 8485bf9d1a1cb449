//! Which scripts Apache runs, by its own merge of the sections of a virtual host. It shares no rule
//! with the import, so that both can be compared.

use pcre2::bytes::{Regex, RegexBuilder};

use super::config_reader::ApacheConfig;
use super::host_scripts::is_on;
use crate::served::{ServedFolder, ServedSite};
use crate::source_directive::Directive;

/// Directives that decide whether a script runs.
const DECIDING: [&str; 11] = [
    "AddHandler",
    "AddType",
    "ForceType",
    "ProxyPass",
    "RemoveHandler",
    "RemoveType",
    "SetHandler",
    "php_admin_flag",
    "php_admin_value",
    "php_flag",
    "php_value",
];

/// Handlers and types of mod_php.
const OF_MODULE: [&str; 4] =
    ["application/x-httpd-php", "php-script", "php5-script", "php7-script"];

/// Handlers that make a page of their own, or run a file as a program.
const OTHERS: [&str; 12] = [
    "application/x-httpd-cgi",
    "balancer-manager",
    "cgi-script",
    "fastcgi-script",
    "fcgid-script",
    "heartbeat",
    "ldap-status",
    "lua-script",
    "perl-script",
    "server-info",
    "server-status",
    "wsgi-script",
];

/// Sections whose condition is no name.
const CONDITIONS: [&str; 5] = ["<If", "<ElseIf", "<Else", "<Limit", "<LimitExcept"];

/// What Apache does with a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ScriptRun<'a> {
    /// It runs.
    Runs,
    /// It does not, for this line; none if no line is for it.
    Stays(Option<&'a Directive>),
    /// A part of the configuration is not understood.
    Unclear,
}

/// The names that a section is for.
enum SectionNames {
    /// A folder and those below it.
    Folder(String),
    /// Folders by a pattern, and those below them.
    Folders(Regex),
    /// An expression for the text of a folder.
    FolderText(Regex),
    /// The last name of a path.
    File(Regex),
    /// A URL and those below it.
    Url(String),
    /// An expression for URLs.
    Urls(Regex),
    /// A pattern for URLs.
    UrlPattern(Regex, Regex),
    Unclear,
}

/// A section, which all of its names must be for.
struct ScriptSection<'a> {
    names: Vec<SectionNames>,
    lines: Vec<&'a Directive>,
}

/// A line of a virtual host about other servers.
struct PassLine<'a> {
    names: SectionNames,
    to: &'a str,
}

/// A virtual host, as far as it decides about scripts.
pub(super) struct ScriptHost<'a> {
    has_module: bool,
    mapped: Vec<ServedFolder>,
    sections: Vec<ScriptSection<'a>>,
    passed: Vec<PassLine<'a>>,
    actions: Vec<String>,
}

/// A script that is requested.
struct AskedScript<'p> {
    url: &'p str,
    file: String,
}

/// A word, and the line that it is from.
type Named<'a> = Option<(String, &'a Directive)>;

/// The merged configuration of a script.
#[derive(Default)]
struct MergedLines<'a> {
    set: Named<'a>,
    by_extension: Named<'a>,
    forced: Named<'a>,
    kind: Named<'a>,
    /// The last line that took something away.
    removed: Option<&'a Directive>,
    /// The line with PHP's engine, and whether it is an administrator's.
    engine: Option<(&'a Directive, bool)>,
}

impl<'a> ScriptHost<'a> {
    /// The virtual host of a site.
    pub fn of(config: &'a ApacheConfig, site: &ServedSite) -> ScriptHost<'a> {
        let is_own = |one: &&Directive| one.is("<VirtualHost") && one.place == site.place;
        let host = config.tree.iter().find(is_own);
        let levels: Vec<&'a [Directive]> =
            [Some(config.tree.as_slice()), host.map(|one| one.block.as_slice())]
                .into_iter()
                .flatten()
                .collect();
        let root = site.root.clone().unwrap_or_default();
        let mut mapped = vec![ServedFolder { prefix: String::new(), folder: root }];
        mapped.extend(site.aliases.iter().cloned());
        let own = levels.iter().rev().flat_map(|level| level.iter());
        let actions = all_named(&levels, "Action");
        ScriptHost {
            has_module: config.modules.iter().any(|name| name.starts_with("php")),
            mapped,
            sections: sections(config, &levels),
            passed: own.filter_map(pass_line).collect(),
            actions: actions.iter().map(|line| line.first().to_ascii_lowercase()).collect(),
        }
    }

    /// Scripts below the folders and URLs that sections name.
    pub fn examples(&self) -> Vec<String> {
        let urls =
            self.sections.iter().flat_map(|one| &one.names).filter_map(|names| match names {
                SectionNames::Url(url) => Some(url.clone()),
                SectionNames::Folder(folder) => {
                    let mut below = self.mapped.iter().filter_map(|one| {
                        let rest = folder.strip_prefix(one.folder.as_str())?;
                        Some(format!("{}{rest}", one.prefix))
                    });
                    below.next()
                }
                _ => None,
            });
        urls.map(|url| format!("{}/zz9.php", url.trim_end_matches('/'))).collect()
    }

    /// What Apache does with the script at a decoded path.
    pub fn run(&self, url: &str) -> ScriptRun<'a> {
        let around = self.mapped.iter().filter(|one| is_below(url, &one.prefix));
        let Some(around) = around.max_by_key(|one| one.prefix.len()) else {
            return ScriptRun::Unclear;
        };
        let file = format!("{}{}", around.folder, &url[around.prefix.len()..]);
        let asked = AskedScript { url, file };
        let (mut merged, mut passed) = (MergedLines::default(), None);
        for section in self.sections.iter().filter(|one| !one.lines.is_empty()) {
            match section.is_for(&asked) {
                Some(true) => {
                    merged.merge(&section.lines);
                    let pass = section.lines.iter().rev().find(|one| one.is("ProxyPass"));
                    passed = pass.map(|line| line.first()).or(passed);
                }
                Some(false) => {}
                None => return ScriptRun::Unclear,
            }
        }
        let first = || self.passed.iter().find(|line| line.names.has(&asked) == Some(true));
        match passed.or_else(|| first().map(|line| line.to)) {
            None | Some("!") => self.handled(&merged),
            Some(to) if is_fcgi(to) => ScriptRun::Runs,
            Some(_) => ScriptRun::Unclear,
        }
    }

    fn handled(&self, merged: &MergedLines<'a>) -> ScriptRun<'a> {
        let MergedLines { set, by_extension, forced, kind, removed, engine } = merged;
        let found = set.as_ref().or(by_extension.as_ref()).or(forced.as_ref()).or(kind.as_ref());
        let Some((word, line)) = found else { return ScriptRun::Stays(*removed) };
        match word.as_str() {
            word if OTHERS.contains(&word) || self.actions.iter().any(|one| one == word) => {
                ScriptRun::Unclear
            }
            word if is_fcgi(word) => ScriptRun::Runs,
            word if word.starts_with("proxy:") => ScriptRun::Unclear,
            word if self.has_module && OF_MODULE.contains(&word) => match engine {
                Some((line, _)) if !is_on(line) => ScriptRun::Stays(Some(line)),
                _ => ScriptRun::Runs,
            },
            _ => ScriptRun::Stays(Some(line)),
        }
    }
}

impl ScriptSection<'_> {
    fn is_for(&self, asked: &AskedScript<'_>) -> Option<bool> {
        let all: Vec<Option<bool>> = self.names.iter().map(|names| names.has(asked)).collect();
        match all.contains(&Some(false)) {
            true => Some(false),
            false => all.into_iter().collect::<Option<Vec<bool>>>().map(|_| true),
        }
    }
}

impl SectionNames {
    /// Whether a script is among them; none if that is not clear.
    fn has(&self, asked: &AskedScript<'_>) -> Option<bool> {
        let matches = |regex: &Regex, text: &str| regex.is_match(text.as_bytes()).ok();
        let (folder, name) = asked.file.rsplit_once('/')?;
        match self {
            SectionNames::Folder(own) => Some(is_below(folder, own)),
            SectionNames::Folders(pattern) => {
                let ends = folder.match_indices('/').map(|(at, _)| at).chain([folder.len()]);
                ends.map(|end| matches(pattern, &folder[..end]))
                    .try_fold(false, |any, one| one.map(|one| any || one))
            }
            SectionNames::FolderText(regex) => {
                let by_folder = matches(regex, &format!("{folder}/"))?;
                let by_file = matches(regex, &asked.file)?;
                (by_folder == by_file).then_some(by_folder)
            }
            SectionNames::File(regex) => matches(regex, name),
            SectionNames::Url(own) => Some(is_below(asked.url, own.trim_end_matches('/'))),
            SectionNames::Urls(regex) => matches(regex, asked.url),
            SectionNames::UrlPattern(whole, begin) => match matches(whole, asked.url)? {
                false if matches(begin, asked.url)? => None,
                is_whole => Some(is_whole),
            },
            SectionNames::Unclear => None,
        }
    }
}

impl<'a> MergedLines<'a> {
    /// Merges the lines of a section: what removes an extension is applied last.
    fn merge(&mut self, lines: &[&'a Directive]) {
        let is_php = |word: &String| word.trim_start_matches('.').eq_ignore_ascii_case("php");
        for line in lines {
            let word = line.first().to_ascii_lowercase();
            let adds = line.arguments.iter().skip(1).any(is_php);
            let named = Some((word.clone(), *line)).filter(|(word, _)| word != "none");
            if line.is("SetHandler") && named.is_none() {
                self.removed = Some(line);
            }
            match line.name.to_ascii_lowercase().as_str() {
                "sethandler" => self.set = named,
                "forcetype" => self.forced = named,
                "addhandler" if adds => self.by_extension = named,
                "addtype" if adds => self.kind = named,
                name if name.starts_with("php_") && word == "engine" => {
                    let is_admin = name.starts_with("php_admin_");
                    if is_admin || self.engine.is_none_or(|(_, is_admin)| !is_admin) {
                        self.engine = Some((line, is_admin));
                    }
                }
                _ => {}
            }
        }
        for line in lines.iter().filter(|line| line.arguments.iter().any(is_php)) {
            match line.name.to_ascii_lowercase().as_str() {
                "removehandler" => self.by_extension = None,
                "removetype" => self.kind = None,
                _ => continue,
            }
            self.removed = Some(line);
        }
    }
}

/// The sections, in the order in which Apache merges them.
fn sections<'a>(config: &ApacheConfig, levels: &[&'a [Directive]]) -> Vec<ScriptSection<'a>> {
    let (mut all, mut folders, mut regexes) = (Vec::new(), Vec::new(), Vec::new());
    let (mut files, mut inner_files, mut locations) = (Vec::new(), Vec::new(), Vec::new());
    for level in levels {
        add(&mut all, Vec::new, level);
        for one in *level {
            match one.name.to_ascii_lowercase().as_str() {
                "<directorymatch" => regexes.push(one),
                "<directory" if one.first() == "~" => regexes.push(one),
                "<directory" => folders.push(one),
                "<files" | "<filesmatch" => files.push(one),
                "<location" | "<locationmatch" => locations.push(one),
                _ => {}
            }
        }
    }
    let depth = |one: &&Directive| config.absolute(one.first()).matches('/').count();
    folders.sort_by_key(|one| if config.absolute(one.first()) == "/" { 0 } else { depth(one) });
    for folder in folders.into_iter().chain(regexes) {
        let names = || of_folder(config, folder);
        add(&mut all, || vec![names()], &folder.block);
        for inner in folder.block.iter().filter(|one| one.is("<Files") || one.is("<FilesMatch")) {
            add(&mut inner_files, || vec![names(), of_files(inner)], &inner.block);
        }
    }
    for one in files {
        add(&mut all, || vec![of_files(one)], &one.block);
    }
    all.append(&mut inner_files);
    for one in locations {
        add(&mut all, || vec![of_url(one)], &one.block);
        for inner in one.block.iter().filter(|one| one.is("<Files") || one.is("<FilesMatch")) {
            add(&mut all, || vec![of_url(one), SectionNames::Unclear], &inner.block);
        }
    }
    all
}

/// Adds the section of a block, and those of the conditions in it.
fn add<'a>(
    all: &mut Vec<ScriptSection<'a>>,
    names: impl Fn() -> Vec<SectionNames>,
    block: &'a [Directive],
) {
    let deciding = |block: &'a [Directive]| -> Vec<&'a Directive> {
        block.iter().filter(|line| DECIDING.iter().any(|name| line.is(name))).collect()
    };
    all.push(ScriptSection { names: names(), lines: deciding(block) });
    for inner in block.iter().filter(|one| CONDITIONS.iter().any(|name| one.is(name))) {
        let mut names = names();
        names.push(SectionNames::Unclear);
        all.push(ScriptSection { names, lines: deciding(&inner.block) });
    }
}

fn of_folder(config: &ApacheConfig, section: &Directive) -> SectionNames {
    if section.is("<DirectoryMatch") || section.first() == "~" {
        return regex(last_word(section)).map_or(SectionNames::Unclear, SectionNames::FolderText);
    }
    let path = config.absolute(section.first());
    match is_pattern(&path) {
        true => pattern(&path, "$").map_or(SectionNames::Unclear, SectionNames::Folders),
        false => SectionNames::Folder(path.trim_end_matches('/').to_owned()),
    }
}

fn of_files(section: &Directive) -> SectionNames {
    let text = last_word(section);
    let is_regex = section.is("<FilesMatch") || section.first() == "~";
    let found = if is_regex { regex(text) } else { pattern(text, "$") };
    found.map_or(SectionNames::Unclear, SectionNames::File)
}

fn of_url(section: &Directive) -> SectionNames {
    let text = last_word(section);
    if section.is("<LocationMatch") || section.first() == "~" {
        return regex(text).map_or(SectionNames::Unclear, SectionNames::Urls);
    }
    if !is_pattern(text) {
        return SectionNames::Url(text.to_owned());
    }
    match (pattern(text, "$"), pattern(text, "(/|$)")) {
        (Some(whole), Some(begin)) => SectionNames::UrlPattern(whole, begin),
        _ => SectionNames::Unclear,
    }
}

fn pass_line(line: &Directive) -> Option<PassLine<'_>> {
    let names = match line.name.to_ascii_lowercase().as_str() {
        "proxypass" => SectionNames::Url(line.first().to_owned()),
        "proxypassmatch" => regex(line.first()).map_or(SectionNames::Unclear, SectionNames::Urls),
        _ => return None,
    };
    Some(PassLine { names, to: line.argument(1) })
}

/// All directives of a name, in sections as well.
fn all_named<'a>(blocks: &[&'a [Directive]], name: &str) -> Vec<&'a Directive> {
    let mut found = Vec::new();
    for line in blocks.iter().flat_map(|block| block.iter()) {
        if line.is(name) {
            found.push(line);
        }
        found.extend(all_named(&[line.block.as_slice()], name));
    }
    found
}

fn last_word(section: &Directive) -> &str {
    section.arguments.last().map(String::as_str).unwrap_or_default()
}

fn regex(text: &str) -> Option<Regex> {
    RegexBuilder::new().build(text).ok()
}

fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?', '['])
}

/// A shell pattern as an expression for whole texts.
fn pattern(text: &str, end: &str) -> Option<Regex> {
    let mut out = String::from("^");
    for letter in text.chars() {
        match letter {
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' | ']' | '-' | '^' => out.push(letter),
            '!' if out.ends_with('[') => out.push('^'),
            letter => out.push_str(&regex::escape(&letter.to_string())),
        }
    }
    regex(&(out + end))
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn is_fcgi(text: &str) -> bool {
    let text = text.strip_prefix("proxy:").unwrap_or(text);
    let rest = text.split_once('|').filter(|_| text.starts_with("unix:"));
    rest.map_or(text, |(_, rest)| rest).starts_with("fcgi:")
}
