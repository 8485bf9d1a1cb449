//! A Caddyfile as a tree of directives, with imported files and snippets in place.

use std::collections::BTreeMap;
use std::rc::Rc;

use super::tokens::{Token, tokens};
use crate::report::{ImportReport, SourceLine};
use crate::source_directive::Directive;
use crate::{FileReader, unlisted};

/// Deepest import, and deepest block.
const MAX_DEPTH: usize = 20;

/// Most directives of all files together.
const MAX_DIRECTIVES: usize = 100_000;

/// Variables of the environment, by their names.
pub type Environment<'e> = &'e dyn Fn(&str) -> Option<String>;

/// A site, as written.
#[derive(Debug, Clone)]
pub(super) struct SiteBlock {
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Its place.
    pub place: SourceLine,
    /// Its directives.
    pub directives: Vec<Directive>,
}

/// A whole configuration.
#[derive(Debug, Default)]
pub(super) struct CaddyConfig {
    /// The global options.
    pub options: Vec<Directive>,
    /// The sites.
    pub sites: Vec<SiteBlock>,
    /// Named routes.
    pub routes: BTreeMap<String, Vec<Directive>>,
}

/// A word and its place.
#[derive(Debug, Clone)]
struct PlacedToken {
    token: Token,
    place: SourceLine,
}

/// Reads the configuration in `main`, and what it imports.
///
/// # Errors
/// One sentence: the file cannot be read, or has a syntax error.
pub(super) fn read(
    files: &dyn FileReader,
    main: &str,
    environment: Environment<'_>,
    report: &mut ImportReport,
) -> Result<CaddyConfig, String> {
    let mut reader = CaddyReader {
        files,
        environment,
        report,
        snippets: BTreeMap::new(),
        config: CaddyConfig::default(),
        left: MAX_DIRECTIVES,
    };
    reader.file(main, &[], 0)?;
    Ok(reader.config)
}

struct CaddyReader<'w> {
    files: &'w dyn FileReader,
    environment: Environment<'w>,
    report: &'w mut ImportReport,
    snippets: BTreeMap<String, Vec<PlacedToken>>,
    config: CaddyConfig,
    left: usize,
}

impl CaddyReader<'_> {
    fn words(&mut self, file: &str) -> Result<Vec<PlacedToken>, String> {
        let text = self.files.read(file).map_err(|why| format!("{file} cannot be read: {why}"))?;
        let name: Rc<str> = Rc::from(file);
        let text = self.with_environment(&text, &name);
        let found = tokens(&text).map_err(|(line, why)| format!("{file}:{line}: {why}"))?;
        let placed = found.into_iter().enumerate().map(|(word, token)| {
            let place = SourceLine { file: name.clone(), line: token.line, word };
            PlacedToken { token, place }
        });
        Ok(placed.collect())
    }

    /// `{$NAME}` and `{$NAME:default}`, which Caddy fills in before it parses.
    fn with_environment(&mut self, text: &str, file: &Rc<str>) -> String {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{$") {
            out += before;
            let Some((inside, behind)) = after.split_once('}') else {
                out += "{$";
                rest = after;
                continue;
            };
            let (name, default) = inside.split_once(':').unwrap_or((inside, ""));
            match (self.environment)(name) {
                Some(value) => out += &value,
                None if inside.contains(':') => out += default,
                None => {
                    let line = out.matches('\n').count() + 1;
                    let place = SourceLine { file: file.clone(), line, word: 0 };
                    let why = format!(
                        "the variable {name} is not set here: set it for the import, to \
                                       nothing if Caddy has none"
                    );
                    self.report.access_left_out(&place, &format!("{{${inside}}}"), &why);
                }
            }
            rest = behind;
        }
        out + rest
    }

    /// Reads a file with sites.
    fn file(&mut self, file: &str, arguments: &[String], depth: usize) -> Result<(), String> {
        let words: Vec<PlacedToken> = filled(&self.words(file)?, arguments);
        self.top(&words, depth)
    }

    fn top(&mut self, words: &[PlacedToken], depth: usize) -> Result<(), String> {
        let mut at = 0;
        while let Some(first) = words.get(at) {
            if first.token.closes() {
                return Err(format!("{}: a `}}` without its `{{`", first.place));
            }
            if first.token.opens() {
                at += 1;
                let options = self.block(words, &mut at, depth + 1, true)?;
                self.config.options.extend(options);
                continue;
            }
            let line: Vec<&PlacedToken> = same_line(&words[at..]);
            if first.token.text == "import" && !line.iter().any(|one| one.token.opens()) {
                at += line.len();
                self.import_sites(&line, depth)?;
                continue;
            }
            self.section(words, &mut at, depth)?;
        }
        Ok(())
    }

    /// A snippet, a named route, or a site.
    fn section(
        &mut self,
        words: &[PlacedToken],
        at: &mut usize,
        depth: usize,
    ) -> Result<(), String> {
        let place = words[*at].place.clone();
        let mut addresses = Vec::new();
        let mut is_block = false;
        while let Some(word) = words.get(*at) {
            if word.token.opens() {
                is_block = true;
                *at += 1;
                break;
            }
            let last = words[at.saturating_sub(1)].token.clone();
            let is_new_line = !addresses.is_empty() && word.token.line != last.end_line;
            if is_new_line && !last.text.ends_with(',') {
                break;
            }
            let names = word.token.text.split(',').filter(|name| !name.is_empty());
            addresses.extend(names.map(str::to_owned));
            *at += 1;
        }
        let name = addresses.first().cloned().unwrap_or_default();
        let inside = |start: &str| {
            let name = name.strip_prefix(start)?.strip_suffix(')')?;
            is_block.then(|| name.to_owned())
        };
        if let Some(snippet) = inside("(") {
            let begin = *at;
            self.skip_block(words, at)?;
            let inner = words[begin..*at - 1].to_vec();
            self.snippets.insert(snippet, inner);
            return Ok(());
        }
        let directives = self.block(words, at, depth + 1, is_block)?;
        if let Some(route) = inside("&(") {
            self.config.routes.insert(route, directives);
            return Ok(());
        }
        self.config.sites.push(SiteBlock { addresses, place, directives });
        Ok(())
    }

    fn skip_block(&self, words: &[PlacedToken], at: &mut usize) -> Result<(), String> {
        let mut depth = 1_usize;
        while let Some(word) = words.get(*at) {
            *at += 1;
            depth += usize::from(word.token.opens());
            depth -= usize::from(word.token.closes());
            if depth == 0 {
                return Ok(());
            }
        }
        let place = words.last().map(|word| word.place.to_string()).unwrap_or_default();
        Err(format!("{place}: a `{{` has no `}}`"))
    }

    fn import_sites(&mut self, line: &[&PlacedToken], depth: usize) -> Result<(), String> {
        let place = &line[0].place;
        let texts: Vec<String> = line.iter().skip(1).map(|one| one.token.text.clone()).collect();
        self.count(place, depth)?;
        let name = texts.first().cloned().unwrap_or_default();
        let arguments = texts.get(1..).unwrap_or_default();
        if let Some(snippet) = self.snippets.get(&name) {
            let words = filled(snippet, arguments);
            return self.top(&words, depth + 1);
        }
        for file in self.files_of(&name, place) {
            match self.file(&file, arguments, depth + 1) {
                Err(why) if why.contains(" cannot be read: ") => self.unread(place, &name, &why),
                other => other?,
            }
        }
        Ok(())
    }

    fn unread(&mut self, place: &SourceLine, name: &str, why: &str) {
        let why = format!("{why}; import again as a user who can read it");
        self.report.access_left_out(place, &format!("import {name}"), &why);
    }

    /// The files of an `import`, whose path is relative to the file that it stands in.
    fn files_of(&mut self, name: &str, place: &SourceLine) -> Vec<String> {
        let folder = place.file.rsplit_once('/').map_or(".", |(folder, _)| folder);
        let pattern = match name.starts_with('/') {
            true => name.to_owned(),
            false => format!("{folder}/{name}"),
        };
        if let Some(why) = unlisted(self.files, &pattern) {
            self.report.access_left_out(place, &format!("import {name}"), &why);
        }
        self.files.glob(&pattern)
    }

    /// Directives up to the end of a block, or of the file.
    fn block(
        &mut self,
        words: &[PlacedToken],
        at: &mut usize,
        depth: usize,
        has_end: bool,
    ) -> Result<Vec<Directive>, String> {
        let mut found = Vec::new();
        while let Some(first) = words.get(*at) {
            if first.token.closes() {
                if !has_end {
                    return Err(format!("{}: a `}}` without its `{{`", first.place));
                }
                *at += 1;
                return Ok(found);
            }
            let line = same_line(&words[*at..]);
            *at += line.len();
            let opens = line.len() > 1 && line.last().is_some_and(|one| one.token.opens());
            let arguments = &line[1..line.len() - usize::from(opens)];
            let mut directive = Directive {
                name: first.token.text.clone(),
                arguments: arguments.iter().map(|one| one.token.text.clone()).collect(),
                place: first.place.clone(),
                block: Vec::new(),
            };
            self.count(&directive.place, depth)?;
            if opens {
                directive.block = self.block(words, at, depth + 1, true)?;
            }
            match directive.name.as_str() {
                "import" => found.extend(self.imported(&directive, depth)?),
                _ => found.push(directive),
            }
        }
        match (has_end, words.last()) {
            (true, Some(last)) => Err(format!("{}: a `{{` has no `}}`", last.place)),
            _ => Ok(found),
        }
    }

    fn count(&mut self, place: &SourceLine, depth: usize) -> Result<(), String> {
        if depth > MAX_DEPTH {
            return Err(format!("{place}: blocks and imports are more than {MAX_DEPTH} deep"));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or(format!("{place}: more than {MAX_DIRECTIVES} directives"))?;
        Ok(())
    }

    /// The directives of an `import` within a site.
    fn imported(&mut self, line: &Directive, depth: usize) -> Result<Vec<Directive>, String> {
        let (name, place) = (line.first(), &line.place);
        let arguments = line.arguments.get(1..).unwrap_or_default();
        let mut sources = Vec::new();
        if let Some(snippet) = self.snippets.get(name) {
            sources.push(filled(snippet, arguments));
        } else {
            for file in self.files_of(name, place) {
                match self.words(&file) {
                    Ok(words) => sources.push(filled(&words, arguments)),
                    Err(why) if why.contains(" cannot be read: ") => {
                        self.unread(place, name, &why);
                    }
                    Err(why) => return Err(why),
                }
            }
        }
        if !line.block.is_empty() {
            let why = "what it passes as `{block}` is not read: write it into the snippet";
            self.report.access_left_out(place, &line.shown(), why);
        }
        let mut found = Vec::new();
        for words in sources {
            found.extend(self.block(&words, &mut 0, depth + 1, false)?);
        }
        Ok(found)
    }
}

/// The words up to the end of the line, or to the brace that opens a block in it.
fn same_line(words: &[PlacedToken]) -> Vec<&PlacedToken> {
    let mut found: Vec<&PlacedToken> = Vec::new();
    for word in words {
        if let Some(last) = found.last() {
            let is_same = last.token.end_line == word.token.line
                && last.place.file == word.place.file
                && !word.token.closes();
            if !is_same {
                break;
            }
        }
        found.push(word);
        if word.token.opens() {
            break;
        }
    }
    found
}

/// The words of a snippet or a file with the arguments of its `import`.
fn filled(words: &[PlacedToken], arguments: &[String]) -> Vec<PlacedToken> {
    let mut found = Vec::new();
    for word in words {
        if let Some(part) = part_of(arguments, &word.token.text) {
            for argument in part {
                let mut word = word.clone();
                word.token.text.clone_from(argument);
                found.push(word);
            }
            continue;
        }
        let mut word = word.clone();
        if word.token.text.contains("{args") {
            for (index, argument) in arguments.iter().enumerate() {
                let forms = [format!("{{args[{index}]}}"), format!("{{args.{index}}}")];
                for form in forms {
                    word.token.text = word.token.text.replace(&form, argument);
                }
            }
        }
        found.push(word);
    }
    found
}

/// The arguments that a word such as `{args[1:]}` stands for.
fn part_of<'a>(arguments: &'a [String], word: &str) -> Option<&'a [String]> {
    if word == "{args...}" {
        return Some(arguments);
    }
    let (from, to) = word.strip_prefix("{args[")?.strip_suffix("]}")?.split_once(':')?;
    let bound = |text: &str, default: usize| match text {
        "" => Some(default),
        text => text.parse().ok(),
    };
    arguments.get(bound(from, 0)?..bound(to, arguments.len())?)
}
