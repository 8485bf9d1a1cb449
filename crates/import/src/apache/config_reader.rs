//! Apache's configuration as a tree: included files in place, variables replaced, and the sections
//! of conditions (`<IfModule>`, `<IfDefine>`, `<IfVersion>`) left out or dissolved.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use maitred_htaccess::words::{LogicalLine, RewriteArguments, Words, lines};
use pcre2::bytes::Regex;

use super::module_names::{BUILT_IN, has_module};
use super::skipped_sections::{PerhapsNames, directives, may_decide};
use crate::FileReader;
use crate::report::{ImportReport, SourceLine};
use crate::source_directive::Directive;

/// Deepest include, and deepest section.
const MAX_DEPTH: usize = 20;

/// Most directives of all files together.
const MAX_DIRECTIVES: usize = 100_000;

/// Longest line after its variables are replaced, in bytes.
const MAX_LINE_BYTES: usize = 64 << 10;

/// The version that `<IfVersion>` is compared with.
const VERSION: [u32; 3] = [2, 4, 62];

/// Apache's configuration.
#[derive(Debug)]
pub struct ApacheConfig {
    /// The directives of the server itself, and `<VirtualHost>` sections.
    pub tree: Vec<Directive>,
    /// The symbols of the modules.
    pub modules: BTreeSet<String>,
    /// `ServerRoot`, which relative paths start from.
    pub server_root: String,
    /// What `Define` and Apache's arguments define.
    pub defines: BTreeSet<String>,
    /// The values of `${NAME}`.
    pub variables: BTreeMap<String, String>,
    /// What sections load and define that do not apply by the files, but may in Apache.
    pub(super) perhaps: PerhapsNames,
}

impl ApacheConfig {
    /// Whether Apache has a module, by its name in `<IfModule>`.
    pub(super) fn has_module(&self, name: &str) -> bool {
        has_module(&self.modules, name)
    }

    /// A path, which may be relative to `ServerRoot`, as Apache compares it: without empty names,
    /// `.` and `..`, and without a slash at its end.
    pub fn absolute(&self, path: &str) -> String {
        let path = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{}/{path}", self.server_root),
        };
        let mut names = Vec::new();
        for name in path.split('/') {
            match name {
                "" | "." => {}
                ".." => drop(names.pop()),
                name => names.push(name),
            }
        }
        let start = if path.starts_with('/') { "/" } else { "" };
        format!("{start}{}", names.join("/"))
    }
}

/// Reads the configuration in `main`, and what it includes.
///
/// # Errors
/// One sentence: the file cannot be read, or has a syntax error.
pub fn read(
    files: &dyn FileReader,
    main: &str,
    report: &mut ImportReport,
) -> Result<ApacheConfig, String> {
    let folder = main.rsplit_once('/').map_or(".", |(folder, _)| folder).to_owned();
    let environment = files.read(&format!("{folder}/envvars")).unwrap_or_default();
    let variables = environment_of(&environment);
    let mut reader = ConfigReader {
        files,
        report,
        // Of Debian; Fedora's configuration has a `ServerRoot`.
        server_root: folder,
        defines: arguments_of(&variables),
        variables,
        modules: BUILT_IN.map(str::to_owned).into(),
        skipped_names: BTreeSet::new(),
        perhaps: PerhapsNames::default(),
        macros: BTreeMap::new(),
        left: MAX_DIRECTIVES,
    };
    let tree = reader.file(main, 0)?;
    let ConfigReader { server_root, variables, defines, modules, perhaps, .. } = reader;
    Ok(ApacheConfig { tree, modules, server_root, defines, variables, perhaps })
}

/// The directives of a `.htaccess` file, with the modules, names and variables of the
/// configuration.
///
/// # Errors
/// One sentence: the file cannot be read, or has a syntax error.
pub(super) fn htaccess(
    files: &dyn FileReader,
    file: &str,
    config: &ApacheConfig,
) -> Result<Vec<Directive>, String> {
    let mut reader = ConfigReader {
        files,
        report: &mut ImportReport::default(),
        server_root: config.server_root.clone(),
        variables: config.variables.clone(),
        defines: config.defines.clone(),
        modules: config.modules.clone(),
        skipped_names: BTreeSet::new(),
        perhaps: config.perhaps.clone(),
        macros: BTreeMap::new(),
        left: MAX_DIRECTIVES,
    };
    reader.file(file, 0)
}

/// The variables that a shell script such as Debian's `envvars` exports.
fn environment_of(script: &str) -> BTreeMap<String, String> {
    let mut variables = BTreeMap::new();
    for line in script.lines() {
        let line = line.trim().trim_start_matches("export ").trim();
        let Some((name, value)) = line.split_once('=') else { continue };
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(is_name) {
            continue;
        }
        let value = value.trim().trim_matches(['"', '\'']);
        let mut expanded = String::new();
        let mut rest = value;
        while let Some((before, after)) = rest.split_once('$') {
            expanded += before;
            let after = after.trim_start_matches('{');
            let end = after.find(|c| !is_name(c)).unwrap_or(after.len());
            expanded += variables.get(&after[..end]).map(String::as_str).unwrap_or_default();
            rest = after[end..].trim_start_matches('}');
        }
        expanded += rest;
        // The suffix of a second instance is empty for the first.
        let is_new = !variables.contains_key(name) || !expanded.contains("##");
        if is_new && !expanded.contains("##") {
            variables.insert(name.to_owned(), expanded);
        }
    }
    variables
}

/// The names that Debian's `apachectl` passes to Apache with `-D`.
fn arguments_of(variables: &BTreeMap<String, String>) -> BTreeSet<String> {
    let arguments = variables.get("APACHE_ARGUMENTS").map(String::as_str).unwrap_or_default();
    let mut words = arguments.split_whitespace();
    let mut names = BTreeSet::new();
    while let Some(word) = words.next() {
        match word.strip_prefix("-D") {
            Some("") => names.extend(words.next().map(str::to_owned)),
            Some(name) => drop(names.insert(name.to_owned())),
            None => {}
        }
    }
    names
}

/// Lines of a file or of a macro.
struct Source {
    file: Rc<str>,
    lines: Vec<LogicalLine>,
}

/// A `<Macro>`: its file, its parameters and its lines.
struct MacroLines {
    file: Rc<str>,
    parameters: Vec<String>,
    lines: Vec<LogicalLine>,
}

struct ConfigReader<'a> {
    files: &'a dyn FileReader,
    report: &'a mut ImportReport,
    server_root: String,
    variables: BTreeMap<String, String>,
    defines: BTreeSet<String>,
    /// The names that sections define which do not apply.
    skipped_names: BTreeSet<String>,
    /// What sections load and define that may apply in Apache.
    perhaps: PerhapsNames,
    modules: BTreeSet<String>,
    macros: BTreeMap<String, MacroLines>,
    left: usize,
}

impl ConfigReader<'_> {
    fn file(&mut self, file: &str, depth: usize) -> Result<Vec<Directive>, String> {
        let text = self.files.read(file).map_err(|why| format!("{file} cannot be read: {why}"))?;
        let source = Source { file: Rc::from(file), lines: lines(text.as_bytes()) };
        self.all(&source, depth)
    }

    fn all(&mut self, source: &Source, depth: usize) -> Result<Vec<Directive>, String> {
        let mut at = 0;
        let mut found = Vec::new();
        self.section(source, &mut at, None, &mut Nested { found: &mut found, depth })?;
        Ok(found)
    }

    /// Reads to the end of a section, or of the file.
    fn section(
        &mut self,
        source: &Source,
        at: &mut usize,
        end: Option<&Directive>,
        nested: &mut Nested<'_>,
    ) -> Result<(), String> {
        while let Some(line) = source.lines.get(*at) {
            *at += 1;
            let text = self.expanded(&String::from_utf8_lossy(&line.text));
            let place = SourceLine { file: source.file.clone(), line: line.number, word: *at };
            if let Some(name) = text.strip_prefix("</") {
                let name = format!("<{}", name.trim_end_matches('>').trim());
                match end {
                    Some(open) if open.name.eq_ignore_ascii_case(&name) => return Ok(()),
                    _ => return Err(format!("{place}: `{text}` ends no section that is open")),
                }
            }
            let directive = parsed(&text, place);
            self.count(&directive, nested.depth)?;
            match directive.name.starts_with('<') {
                true => self.opened(directive, source, at, nested)?,
                false => self.directive(directive, nested)?,
            }
        }
        match end {
            Some(open) => Err(format!("{}: `{}>` has no end", open.place, open.shown())),
            None => Ok(()),
        }
    }

    fn count(&mut self, directive: &Directive, depth: usize) -> Result<(), String> {
        let place = &directive.place;
        if depth > MAX_DEPTH {
            return Err(format!("{place}: sections and includes are more than {MAX_DEPTH} deep"));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or(format!("{place}: more than {MAX_DIRECTIVES} directives"))?;
        Ok(())
    }

    /// A section: one of a condition is dissolved or left out.
    fn opened(
        &mut self,
        mut directive: Directive,
        source: &Source,
        at: &mut usize,
        nested: &mut Nested<'_>,
    ) -> Result<(), String> {
        let holds = match directive.name.to_ascii_lowercase().as_str() {
            "<ifmodule" => {
                Some(condition(directive.first(), |name| has_module(&self.modules, name)))
            }
            "<ifdefine" => Some(condition(directive.first(), |name| self.defines.contains(name))),
            "<ifversion" => version_holds(&directive),
            "<macro" => {
                self.define_macro(&directive, source, at);
                return Ok(());
            }
            _ => None,
        };
        let depth = nested.depth + 1;
        match holds {
            Some(true) => {
                self.entered(&directive, source, *at);
                let mut inner = Nested { found: nested.found, depth };
                self.section(source, at, Some(&directive), &mut inner)
            }
            Some(false) => {
                let lines = skip(source, at, &directive.name);
                self.skipped(&directive, lines);
                Ok(())
            }
            None => {
                let mut block = Vec::new();
                let mut inner = Nested { found: &mut block, depth };
                self.section(source, at, Some(&directive), &mut inner)?;
                directive.block = block;
                nested.found.push(directive);
                Ok(())
            }
        }
    }

    /// Names a section that applies here, if it may not in Apache.
    fn entered(&mut self, directive: &Directive, source: &Source, mut at: usize) {
        if !self.is_perhaps(directive) {
            return;
        }
        let lines = skip(source, &mut at, &directive.name);
        if directives(lines, &directive.place).iter().any(may_decide) {
            let why = "its lines are imported, and Apache skips them if a section that is left \
                       out applies there. If Apache has it, write `Define` or `LoadModule` for it";
            self.report.access_left_out(&directive.place, &directive.shown(), why);
        }
    }

    /// Whether a section is about a module or a name that only sections have which are left out,
    /// but may apply in Apache.
    fn is_perhaps(&self, directive: &Directive) -> bool {
        let name = directive.first().trim_start_matches('!');
        match () {
            () if directive.is("<IfModule") => {
                self.perhaps.has_module(name) && !has_module(&self.modules, name)
            }
            () if directive.is("<IfDefine") => {
                self.perhaps.defines.contains(name) && !self.defines.contains(name)
            }
            () => false,
        }
    }

    /// Names a section that does not apply here, if another Apache may evaluate it.
    fn skipped(&mut self, directive: &Directive, lines: &[LogicalLine]) {
        let is_perhaps = self.is_perhaps(directive);
        let is_define = directive.is("<IfDefine") && !directive.first().starts_with('!');
        // Apache needs this module: without its line, modules are built in.
        let is_built_in = directive.is("<IfModule") && !self.modules.contains("authz_core_module");
        // A name of the files that they do not define here is no argument of Apache.
        let is_unknown = is_define && !self.skipped_names.contains(directive.first());
        let may_apply = is_unknown || is_built_in || is_perhaps;
        let inner = directives(lines, &directive.place);
        if may_apply {
            self.perhaps.extend(&inner);
        } else {
            let defines = inner.iter().filter(|one| one.is("Define"));
            self.skipped_names.extend(defines.map(|one| one.first().to_owned()));
        }
        let (place, shown) = (&directive.place, directive.shown());
        let why = "what it has is not imported: it is neither defined nor loaded by these files. \
                   If Apache has it, write `Define` or `LoadModule` for it";
        if may_apply && inner.iter().any(may_decide) {
            self.report.access_left_out(place, &shown, why);
        } else if is_define || is_built_in || is_perhaps {
            self.report.left_out(place, &shown, why);
        }
    }

    fn directive(&mut self, directive: Directive, nested: &mut Nested<'_>) -> Result<(), String> {
        match directive.name.to_ascii_lowercase().as_str() {
            "include" | "includeoptional" => {
                let further = self.include(&directive, nested.depth)?;
                nested.found.extend(further);
                return Ok(());
            }
            "use" => {
                let further = self.use_macro(&directive, nested.depth)?;
                nested.found.extend(further);
                return Ok(());
            }
            "define" => {
                let value = directive.argument(1).to_owned();
                self.defines.insert(directive.first().to_owned());
                self.variables.insert(directive.first().to_owned(), value);
                self.report.kept(&directive.place, &directive.shown());
                return Ok(());
            }
            "undefine" => {
                self.defines.remove(directive.first());
                self.variables.remove(directive.first());
                self.report.kept(&directive.place, &directive.shown());
                return Ok(());
            }
            "serverroot" => directive.first().clone_into(&mut self.server_root),
            "loadmodule" => {
                self.modules.insert(directive.first().to_owned());
            }
            _ => {}
        }
        nested.found.push(directive);
        Ok(())
    }

    fn include(&mut self, directive: &Directive, depth: usize) -> Result<Vec<Directive>, String> {
        let path = directive.first();
        let pattern = match path.starts_with('/') {
            true => path.to_owned(),
            false => format!("{}/{path}", self.server_root),
        };
        // A folder stands for all files in it, and a wildcard for no hidden ones.
        let of_folder = format!("{}/*", pattern.trim_end_matches('/'));
        let is_pattern = pattern.contains(['*', '?', '[']);
        let mut files = if is_pattern { Vec::new() } else { self.files.entries(&pattern) };
        if files.is_empty() {
            files = self.files.glob(&pattern);
        }
        let whole = if is_pattern { &pattern } else { &of_folder };
        if let Some(why) = self.files.unlisted(whole) {
            self.report.access_left_out(&directive.place, &directive.shown(), &why);
        }
        let is_optional = directive.is("IncludeOptional");
        let mut found = Vec::new();
        for file in files {
            match self.file(&file, depth + 1) {
                Ok(directives) => found.extend(directives),
                Err(_) if is_optional && self.files.resolved(&file).is_none() => {}
                Err(why) if why.contains(" cannot be read: ") => {
                    let why = format!("{why}; import again as a user who can read it");
                    self.report.access_left_out(&directive.place, &directive.shown(), &why);
                }
                Err(why) => return Err(why),
            }
        }
        Ok(found)
    }

    fn define_macro(&mut self, directive: &Directive, source: &Source, at: &mut usize) {
        let lines = skip(source, at, "<macro").to_vec();
        let parameters = directive.arguments.iter().skip(1).cloned().collect();
        let name = directive.first().to_ascii_lowercase();
        self.macros.insert(name, MacroLines { file: source.file.clone(), parameters, lines });
    }

    fn use_macro(&mut self, directive: &Directive, depth: usize) -> Result<Vec<Directive>, String> {
        let place = &directive.place;
        let Some(known) = self.macros.get(&directive.first().to_ascii_lowercase()) else {
            return Err(format!("{place}: there is no macro `{}`", directive.first()));
        };
        let values: Vec<(&str, &str)> = known
            .parameters
            .iter()
            .map(String::as_str)
            .zip(directive.arguments.iter().skip(1).map(String::as_str))
            .collect();
        let lines = known.lines.iter().map(|line| {
            let text = with_values(&String::from_utf8_lossy(&line.text), &values);
            LogicalLine { number: line.number, text: text.into_bytes() }
        });
        // Each use has lines of its own.
        let file = Rc::from(format!("{place}: {}", known.file));
        let source = Source { file, lines: lines.collect() };
        self.report.kept(place, &directive.shown());
        self.all(&source, depth + 1)
    }

    /// Replaces `${NAME}`.
    fn expanded(&self, text: &str) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            out += before;
            let known = after
                .split_once('}')
                .and_then(|(name, after)| Some((self.variables.get(name)?.as_str(), after)));
            match known.filter(|_| out.len() < MAX_LINE_BYTES) {
                Some((value, after)) => {
                    out += value;
                    rest = after;
                }
                None => {
                    out += "${";
                    rest = after;
                }
            }
        }
        out + rest
    }
}

/// The directives of a section, and its depth.
struct Nested<'n> {
    found: &'n mut Vec<Directive>,
    depth: usize,
}

/// A line of a macro with the values of its parameters: the leftmost name is replaced, and the
/// longest of several at one place. Values are not searched for names.
fn with_values(text: &str, values: &[(&str, &str)]) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(letter) = rest.chars().next() {
        let here = values.iter().filter(|(name, _)| !name.is_empty() && rest.starts_with(name));
        match here.max_by_key(|(name, _)| name.len()) {
            Some((name, value)) if out.len() < MAX_LINE_BYTES => {
                out += value;
                rest = &rest[name.len()..];
            }
            _ => {
                out.push(letter);
                rest = &rest[letter.len_utf8()..];
            }
        }
    }
    out
}

/// A line as a directive or as the begin of a section, whose name starts with `<`.
pub(super) fn parsed(text: &str, place: SourceLine) -> Directive {
    let is_section = text.starts_with('<');
    let text = match is_section {
        true => text.strip_suffix('>').unwrap_or(text),
        false => text,
    };
    let mut words = Words::of(text.as_bytes());
    let shown = |word: &[u8]| String::from_utf8_lossy(word).into_owned();
    let name = shown(&words.word());
    let is_rewrite =
        ["RewriteRule", "RewriteCond"].iter().any(|one| one.eq_ignore_ascii_case(&name));
    let arguments = match RewriteArguments::split(words.rest()).filter(|_| is_rewrite) {
        Some(split) => {
            let all = [Some(split.first), Some(split.second), split.flags];
            all.into_iter().flatten().map(|word| shown(&word)).collect()
        }
        None => words.map(|word| shown(&word)).collect(),
    };
    Directive { name, arguments, place, block: Vec::new() }
}

/// Skips to the end of a section that does not apply. The lines in it.
fn skip<'s>(source: &'s Source, at: &mut usize, name: &str) -> &'s [LogicalLine] {
    let start = *at;
    let name = name.trim_start_matches('<');
    let mut depth = 1;
    while let Some(line) = source.lines.get(*at) {
        *at += 1;
        let text = String::from_utf8_lossy(&line.text).to_ascii_lowercase();
        let opens = text.strip_prefix('<').map(|rest| rest.split([' ', '\t', '>']).next());
        let closes = text.strip_prefix("</").map(|rest| rest.trim_end_matches('>').trim());
        if closes.is_some_and(|closed| closed.eq_ignore_ascii_case(name)) {
            depth -= 1;
        } else if opens.flatten().is_some_and(|opened| opened.eq_ignore_ascii_case(name)) {
            depth += 1;
        }
        if depth == 0 {
            return &source.lines[start..*at - 1];
        }
    }
    &source.lines[start..]
}

/// Whether a condition holds that a `!` negates.
pub(super) fn condition(argument: &str, holds: impl Fn(&str) -> bool) -> bool {
    match argument.strip_prefix('!') {
        Some(name) => !holds(name),
        None => holds(argument),
    }
}

/// Whether the version is one of an `<IfVersion>`; nothing if that is not clear.
fn version_holds(directive: &Directive) -> Option<bool> {
    let (operator, wanted) = match directive.argument(1) {
        "" => ("=", directive.first()),
        wanted => (directive.first(), wanted),
    };
    let (is_negated, operator) = match operator.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, operator),
    };
    let holds = match (operator, wanted.strip_prefix('/')) {
        ("~", _) => version_matches(wanted)?,
        ("=" | "==", Some(text)) => version_matches(text.strip_suffix('/')?)?,
        _ => {
            let mut parts = wanted.split('.').map(|part| part.parse().ok());
            let wanted: [Option<u32>; 3] = std::array::from_fn(|_| parts.next().unwrap_or(Some(0)));
            let order = VERSION.map(Some).cmp(&wanted);
            match operator {
                _ if wanted.contains(&None) => return None,
                "=" | "==" => order.is_eq(),
                ">" => order.is_gt(),
                ">=" => order.is_ge(),
                "<" => order.is_lt(),
                "<=" => order.is_le(),
                _ => return None,
            }
        }
    };
    Some(holds != is_negated)
}

/// Whether the version matches an expression; nothing if it is none.
fn version_matches(expression: &str) -> Option<bool> {
    let version = VERSION.map(|part| part.to_string()).join(".");
    Regex::new(expression).ok()?.is_match(version.as_bytes()).ok()
}
