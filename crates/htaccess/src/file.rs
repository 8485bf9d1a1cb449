//! A `.htaccess` file: its sections and directives.

use std::sync::Arc;

use crate::conf::authz::{Methods, Section};
use crate::conf::{Conf, FileNames, FilesSection, IfSection};
use crate::directives::{self, DirectiveLine, Unknown};
use crate::expr::Condition;
use crate::left_out::LeftOut;
use crate::limits::FileSize;
use crate::modules;
use crate::overrides::Overrides;
use crate::regex::Regex;
use crate::weight::Shared;
use crate::words::{self, Words};

/// Most nested sections.
const MAX_DEPTH: usize = 20;

/// Longest sentence about a mistake, in characters: it can have the line's text.
const MAX_WHY_CHARS: usize = 1000;

/// Why a line has no effect with `Nonfatal=Override`.
const NOT_ALLOWED: &str = "`htaccess_override` does not allow it";

/// Why a section for a module has no effect.
const NO_MODULE: &str = "the server has no such module";

/// Why a section for a name has no effect.
const NOT_DEFINED: &str =
    "no name is defined here: if Apache defines it, write its lines without the section";

/// A mistake in a file: requests get a 500, and the log this sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: Vec<u8>,
    /// The line, from 1; 0: the whole file.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

impl std::fmt::Display for Mistake {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let file = String::from_utf8_lossy(&self.file);
        match self.line {
            0 => write!(out, "{file}: {}", self.why),
            line => write!(out, "{file}:{line}: {}", self.why),
        }
    }
}

/// What is said of a line by `maitred check`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// The line, from 1.
    pub line: usize,
    /// The directive as it is written.
    pub text: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict on a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It has its effect.
    Understood,
    /// It has none, and the reason.
    Skipped(String),
    /// It ends each request with a 500, or denies, and the reason.
    Refused(String),
}

/// How files are read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Unknown directives are left out (`htaccess_unknown = "ignore"`).
    pub ignores_unknown: bool,
    /// The directives that they may have.
    pub overrides: Overrides,
}

/// A parsed file.
#[derive(Debug, Clone)]
pub struct Htaccess {
    /// Its configuration, or its first mistake.
    pub conf: Result<Arc<Conf>, Mistake>,
    /// The verdicts on all lines.
    pub remarks: Vec<Remark>,
}

/// Parses a file. `directory` is its absolute folder, with a slash at the end.
pub fn parse(text: &[u8], directory: &[u8], reading: &Reading) -> Htaccess {
    let text = text.strip_prefix(b"\xef\xbb\xbf").unwrap_or(text);
    let mut parser = FileParser {
        lines: words::lines(text),
        at: 0,
        directory,
        reading,
        remarks: Vec::new(),
        mistake: None,
        size: FileSize::default(),
    };
    let mut conf = Conf::default();
    parser.section(&mut conf, Surroundings::top());
    let file = [directory, b".htaccess"].concat();
    let conf = match parser.mistake {
        None => match conf.check_size(Shared::Counts) {
            Ok(()) => Ok(Arc::new(conf)),
            Err(why) => Err(Mistake { file, line: 0, why }),
        },
        Some(LineMistake { line, why }) => {
            let why = why.chars().take(MAX_WHY_CHARS).collect();
            Err(Mistake { file, line, why })
        }
    };
    Htaccess { conf, remarks: parser.remarks }
}

struct LineMistake {
    line: usize,
    why: String,
}

/// The sections around a line.
struct Surroundings<'s> {
    /// The name that ends the section; empty: the file.
    end: &'s [u8],
    methods: Methods,
    /// Requirements are collected here in a container.
    depth: usize,
}

impl Surroundings<'static> {
    fn top() -> Surroundings<'static> {
        Surroundings { end: b"", methods: Methods::default(), depth: 0 }
    }
}

struct FileParser<'p> {
    lines: Vec<words::LogicalLine>,
    at: usize,
    directory: &'p [u8],
    reading: &'p Reading,
    remarks: Vec<Remark>,
    mistake: Option<LineMistake>,
    size: FileSize,
}

impl FileParser<'_> {
    /// Reads to the end of a section.
    fn section(&mut self, conf: &mut Conf, scope: Surroundings<'_>) {
        let mut requirements = None;
        self.lines_of(conf, &scope, &mut requirements);
    }

    fn lines_of(
        &mut self,
        conf: &mut Conf,
        scope: &Surroundings<'_>,
        within: &mut Option<Section>,
    ) {
        while let Some(line) = self.lines.get(self.at).cloned() {
            self.at += 1;
            if let Err(why) = self.size.add(&line.text) {
                self.refuse(&line, why);
                self.at = self.lines.len();
                return;
            }
            if let Some(name) = line.text.strip_prefix(b"</") {
                let name = name.split(|byte| *byte == b'>').next().unwrap_or_default().trim_ascii();
                if name.eq_ignore_ascii_case(scope.end) && !scope.end.is_empty() {
                    return;
                }
                self.refuse(&line, "it ends no section that is open".to_owned());
                continue;
            }
            let result = match line.text.strip_prefix(b"<") {
                Some(rest) => self.open(rest, &line, conf, SectionOf { scope, within }),
                None => self.directive(&line, conf, scope, within),
            };
            match result {
                Ok(verdict) => self.remark(&line, verdict),
                Err(why) => self.refuse(&line, why),
            }
        }
        if !scope.end.is_empty() {
            let line = self.lines.last().cloned();
            let end = String::from_utf8_lossy(scope.end).into_owned();
            if let Some(line) = line {
                self.refuse(&line, format!("<{end}> was not closed."));
            }
        }
    }

    fn remark(&mut self, line: &words::LogicalLine, verdict: Verdict) {
        let text = String::from_utf8_lossy(&line.text).into_owned();
        self.remarks.push(Remark { line: line.number, text, verdict });
    }

    fn refuse(&mut self, line: &words::LogicalLine, why: String) {
        self.remark(line, Verdict::Refused(why.clone()));
        self.mistake.get_or_insert(LineMistake { line: line.number, why });
    }

    fn directive(
        &mut self,
        line: &words::LogicalLine,
        conf: &mut Conf,
        scope: &Surroundings<'_>,
        within: &mut Option<Section>,
    ) -> Result<Verdict, String> {
        let mut words = Words::of(&line.text);
        let name = words.word();
        let overrides = &self.reading.overrides;
        if !overrides.allow(&name) && directives::is_known(&name) {
            return match overrides.leaves_out_others {
                true => Ok(Verdict::Skipped(NOT_ALLOWED.to_owned())),
                false => Err(format!("{} not allowed here", shown(&name))),
            };
        }
        let directive = DirectiveLine {
            name: &name,
            words: words.clone(),
            rest: words.rest(),
            number: line.number,
            methods: &scope.methods,
            directory: self.directory,
            options: overrides.options(),
        };
        if name.eq_ignore_ascii_case(b"require") {
            conf.count_variables(variables_of_requirement(words.clone()))?;
        }
        if name.eq_ignore_ascii_case(b"require")
            && let Some(section) = within
        {
            let required = section.require(directive.rest, scope.methods);
            return self.or_deny(required, conf);
        }
        match directives::apply(&directive, conf) {
            Ok(verdict) => Ok(verdict),
            Err(Unknown::Access(why)) => self.or_deny(Err(why), conf),
            Err(Unknown::Mistake(why)) => Err(why),
            Err(Unknown::Without(why)) => Ok(Verdict::Skipped(why.to_owned())),
            Err(Unknown::Name) if self.leaves_out_unknown() => {
                conf.core.skipped += 1;
                Ok(Verdict::Skipped("the directive is unknown".to_owned()))
            }
            Err(Unknown::Name) => {
                let name = String::from_utf8_lossy(&name);
                Err(format!(
                    "Invalid command '{name}', perhaps misspelled or defined by a module not \
                     included in the server configuration"
                ))
            }
        }
    }

    /// Whether unknown directives and sections have no effect.
    fn leaves_out_unknown(&self) -> bool {
        self.reading.ignores_unknown || self.reading.overrides.leaves_out_unknown
    }

    /// An access line that cannot be understood denies, where others are left out.
    fn or_deny(&self, result: Result<(), String>, conf: &mut Conf) -> Result<Verdict, String> {
        match result {
            Ok(()) => Ok(Verdict::Understood),
            Err(why) if self.reading.ignores_unknown => {
                conf.authz.deny();
                Ok(Verdict::Refused(format!("{why}; access is denied")))
            }
            Err(why) => Err(why),
        }
    }

    fn open(
        &mut self,
        rest: &[u8],
        line: &words::LogicalLine,
        conf: &mut Conf,
        of: SectionOf<'_, '_>,
    ) -> Result<Verdict, String> {
        let SectionOf { scope, within } = of;
        let name_end = rest.iter().position(|byte| byte.is_ascii_whitespace() || *byte == b'>');
        let name = &rest[..name_end.unwrap_or(rest.len())];
        let lower = name.to_ascii_lowercase();
        let end = memchr::memrchr(b'>', rest);
        let Some(end) = end else {
            _ = self.skip(name);
            return Err(format!("<{}> directive missing closing '>'", shown(name)));
        };
        let arguments = rest[name.len().min(end)..end].trim_ascii();
        if scope.depth >= MAX_DEPTH {
            _ = self.skip(name);
            return Err(format!("more than {MAX_DEPTH} nested sections"));
        }
        if !self.reading.overrides.allow_section(&lower) {
            self.skip(name)?;
            // Sections that Apache enters while it reads the file are mistakes in any case.
            let is_entered = matches!(&lower[..], b"ifmodule" | b"ifdefine" | b"ifversion");
            return match self.reading.overrides.leaves_out_others && !is_entered {
                true => Ok(Verdict::Skipped(NOT_ALLOWED.to_owned())),
                false => Err(format!("<{} not allowed here", shown(name))),
            };
        }
        let is_of_files =
            matches!(&lower[..], b"files" | b"filesmatch" | b"if" | b"elseif" | b"else");
        if is_of_files && !scope.methods.are_all() {
            _ = self.skip(name);
            let name = shown(name);
            return Err(format!("<{name}> cannot occur within <Limit> or <LimitExcept> section"));
        }
        let depth = scope.depth + 1;
        let inner = |methods: Methods| Surroundings { end: name, methods, depth };
        match &lower[..] {
            b"ifmodule" | b"ifdefine" | b"ifversion" => {
                match modules::is_entered(&lower, arguments, modules::PHP_MAJOR) {
                    Ok(true) => {
                        self.remark(line, Verdict::Understood);
                        self.lines_of(conf, &inner(scope.methods), within);
                        Ok(Verdict::Understood)
                    }
                    Ok(false) => {
                        self.skip(name)?;
                        // Others are left out by Apache as well.
                        let is_negated = arguments.starts_with(b"!");
                        Ok(match &lower[..] {
                            b"ifmodule" if !is_negated => Verdict::Skipped(NO_MODULE.to_owned()),
                            b"ifdefine" if !is_negated => Verdict::Skipped(NOT_DEFINED.to_owned()),
                            _ => Verdict::Understood,
                        })
                    }
                    Err(why) => {
                        _ = self.skip(name);
                        Err(why)
                    }
                }
            }
            b"files" | b"filesmatch" => {
                let names = file_names(arguments, lower == b"filesmatch");
                let mut own = Conf::default();
                self.section(&mut own, inner(scope.methods));
                let section = FilesSection { names: names?, conf: Arc::new(own) };
                conf.files.push(Arc::new(section));
                Ok(Verdict::Understood)
            }
            b"if" | b"elseif" | b"else" => {
                let is_else = lower != b"if";
                let condition = match &lower[..] {
                    b"else" => Ok(None),
                    _ => if_condition(arguments).map(|condition| Some(Arc::new(condition))),
                };
                let mut own = Conf::default();
                self.section(&mut own, inner(scope.methods));
                let condition = condition?;
                conf.ifs.push(IfSection { condition, is_else, conf: Arc::new(own) });
                Ok(Verdict::Understood)
            }
            b"limit" | b"limitexcept" => {
                match limited(&lower, arguments, scope.methods) {
                    Ok(methods) => self.lines_of(conf, &inner(methods), within),
                    Err(why) => {
                        _ = self.skip(name);
                        return Err(why);
                    }
                }
                Ok(Verdict::Understood)
            }
            b"requireall" | b"requireany" | b"requirenone" => {
                let kind = &lower[..];
                let mut own = Some(Section::new(kind == b"requireall", kind == b"requirenone"));
                self.lines_of(conf, &inner(scope.methods), &mut own);
                let own = own.unwrap_or_default();
                let contained = match within {
                    Some(section) => section.contain(own),
                    None => conf.authz.section_mut().contain(own),
                };
                self.or_deny(contained, conf)
            }
            _ if self.leaves_out_unknown() => {
                let left_out = self.skip(name)?;
                if left_out.may_deny() && self.reading.ignores_unknown {
                    let why = "the section is unknown, and has lines that refuse".to_owned();
                    return self.or_deny(Err(why), conf);
                }
                Ok(Verdict::Skipped("the section is unknown".to_owned()))
            }
            _ => {
                _ = self.skip(name);
                Err(format!("Invalid command '<{}'", shown(name)))
            }
        }
    }

    /// Leaves out a section with all that is in it (`ap_soak_end_container`).
    ///
    /// # Errors
    /// When it is not closed, or another one is: what follows would be left out as well.
    fn skip(&mut self, name: &[u8]) -> Result<LeftOut, String> {
        let mut open = vec![name.to_vec()];
        let mut found = LeftOut::default();
        while let Some(line) = self.lines.get(self.at) {
            self.at += 1;
            if let Some(end) = line.text.strip_prefix(b"</") {
                let end = end.split(|byte| *byte == b'>').next().unwrap_or_default().trim_ascii();
                let last = open.pop().unwrap_or_default();
                if !last.eq_ignore_ascii_case(end) {
                    let (last, end) = (shown(&last), shown(end));
                    return Err(format!("Expected </{last}> but saw </{end}>"));
                }
                if open.is_empty() {
                    return Ok(found);
                }
            } else if let Some(start) = line.text.strip_prefix(b"<") {
                let is_end = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'>';
                let end = start.iter().position(is_end).unwrap_or(start.len());
                open.push(start[..end].to_vec());
            } else {
                let is_negated = open.iter().any(|name| name.eq_ignore_ascii_case(b"requirenone"));
                found.add(Words::of(&line.text), is_negated);
            }
        }
        Err(format!("Expected </{}> before end of configuration", shown(name)))
    }
}

/// A section's surroundings.
struct SectionOf<'s, 'w> {
    scope: &'s Surroundings<'s>,
    within: &'w mut Option<Section>,
}

/// The methods of `<Limit>` or `<LimitExcept>` within others.
fn limited(section: &[u8], arguments: &[u8], around: Methods) -> Result<Methods, String> {
    let names: Vec<Vec<u8>> = Words::of(arguments).collect();
    if names.is_empty() {
        return Err(format!("<{}> directive requires additional arguments", shown(section)));
    }
    if section == b"limit" && names.iter().any(|name| name == b"TRACE") {
        return Err("TRACE cannot be controlled by <Limit>, see TraceEnable".to_owned());
    }
    let methods = Methods::of(&names).map_err(|name| {
        format!("Could not register method '{}' for <{}", shown(&name), shown(section))
    })?;
    let methods = if section == b"limit" { methods } else { methods.others() };
    around.limited_to(methods).map_err(|why| format!("<{}> {why}", shown(section)))
}

/// How many variables `Require env` or `Require not env` names.
fn variables_of_requirement(words: Words<'_>) -> usize {
    let mut words = words.skip_while(|word| word.eq_ignore_ascii_case(b"not"));
    match words.next() {
        Some(provider) if provider.eq_ignore_ascii_case(b"env") => words.count(),
        _ => 0,
    }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

/// The names of `<Files NAME>`, `<Files ~ REGEX>` and `<FilesMatch REGEX>`.
fn file_names(arguments: &[u8], is_match: bool) -> Result<FileNames, String> {
    let mut words = Words::of(arguments);
    let mut name = words.word();
    let is_regex = is_match || name == b"~";
    if name == b"~" && !is_match {
        name = words.word();
    }
    if name.is_empty() {
        return Err("<Files> directive requires additional arguments".to_owned());
    }
    if words.next_word().is_some() {
        return Err("Multiple <Files> arguments not (yet) supported.".to_owned());
    }
    match is_regex {
        true => Regex::new(&name, false)
            .map(FileNames::Regex)
            .map_err(|why| format!("Regex could not be compiled: {why}")),
        false => Ok(FileNames::Glob(name)),
    }
}

/// The condition of `<If "…">`: all of it may be quoted.
fn if_condition(arguments: &[u8]) -> Result<Condition, String> {
    let mut words = Words::of(arguments);
    let text = words.word();
    if words.next_word().is_some() {
        return Err("the condition has to be quoted".to_owned());
    }
    Condition::parse(&text).map_err(|why| format!("Cannot parse condition clause: {why}"))
}
