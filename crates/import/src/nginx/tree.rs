//! nginx's configuration as a tree of directives, with included files in place.

use std::rc::Rc;

use maitred_text::nginx_words::{Token, TokenKind, words};

use crate::report::{ImportReport, SourceLine};
use crate::source_directive::Directive;
use crate::{FileReader, unlisted};

/// Deepest include, and deepest block.
const MAX_DEPTH: usize = 20;

/// Most directives of all files together.
const MAX_DIRECTIVES: usize = 100_000;

/// Directives whose letters clients or logs show, and that match nothing.
const SHOWN_ALONE: [&str; 3] = ["add_header", "auth_basic", "log_format"];

/// Reads the configuration in `main`, and what it includes.
///
/// # Errors
/// One sentence: the file cannot be read, or has a syntax error.
pub fn read(
    files: &dyn FileReader,
    main: &str,
    report: &mut ImportReport,
) -> Result<Vec<Directive>, String> {
    let folder = main.rsplit_once('/').map_or(".", |(folder, _)| folder).to_owned();
    let mut reader = TreeReader { files, folder, report, left: MAX_DIRECTIVES };
    reader.file(main, 0)
}

struct TreeReader<'a> {
    files: &'a dyn FileReader,
    folder: String,
    report: &'a mut ImportReport,
    left: usize,
}

impl TreeReader<'_> {
    fn file(&mut self, file: &str, depth: usize) -> Result<Vec<Directive>, String> {
        let text = self.files.read(file).map_err(|why| format!("{file} cannot be read: {why}"))?;
        let words = words(&text);
        let mut at = 0;
        let found = self.block(&Rc::from(file), &words, &mut at, depth)?;
        match words.get(at.saturating_sub(1)) {
            Some(last) if last.kind == TokenKind::Close && at < words.len() => {
                Err(format!("{file}:{}: a `}}` without its `{{`", last.line))
            }
            _ => Ok(found),
        }
    }

    fn block(
        &mut self,
        file: &Rc<str>,
        words: &[Token],
        at: &mut usize,
        depth: usize,
    ) -> Result<Vec<Directive>, String> {
        let mut found = Vec::new();
        let mut line: Vec<&Token> = Vec::new();
        while let Some(word) = words.get(*at) {
            *at += 1;
            match word.kind {
                TokenKind::Text => line.push(word),
                TokenKind::Close => return Ok(found),
                TokenKind::End | TokenKind::Open => {
                    let Some(first) = line.first() else { continue };
                    let mut directive = Directive {
                        name: first.text.clone(),
                        arguments: line.iter().skip(1).map(|word| word.text.clone()).collect(),
                        place: SourceLine { file: file.clone(), line: first.line, word: *at },
                        block: Vec::new(),
                    };
                    line.clear();
                    self.count(&directive, depth)?;
                    self.encoding(&directive);
                    if word.kind == TokenKind::Open {
                        directive.block = self.block(file, words, at, depth + 1)?;
                    }
                    match directive.name.as_str() {
                        "include" => found.extend(self.include(&directive, depth)?),
                        _ => found.push(directive),
                    }
                }
            }
        }
        match line.first() {
            Some(word) => Err(format!("{file}:{}: `{}` has no `;`", word.line, word.text)),
            None => Ok(found),
        }
    }

    fn count(&mut self, directive: &Directive, depth: usize) -> Result<(), String> {
        let Directive { place, .. } = directive;
        if depth > MAX_DEPTH {
            return Err(format!("{place}: blocks and includes are more than {MAX_DEPTH} deep"));
        }
        let left = self.left.checked_sub(1);
        self.left = left.ok_or(format!("{place}: more than {MAX_DIRECTIVES} directives"))?;
        Ok(())
    }

    /// Names a directive with letters that are no UTF-8, which match no path here.
    fn encoding(&mut self, directive: &Directive) {
        let has_other = |text: &String| text.contains(char::REPLACEMENT_CHARACTER);
        let mut texts = directive.arguments.iter().chain([&directive.name]);
        if !SHOWN_ALONE.contains(&directive.name.as_str()) && texts.any(has_other) {
            let why = "it has letters that are no UTF-8: convert the file to UTF-8";
            self.report.access_left_out(&directive.place, &directive.shown(), why);
        }
    }

    fn include(&mut self, directive: &Directive, depth: usize) -> Result<Vec<Directive>, String> {
        let pattern = match directive.first() {
            path if path.starts_with('/') => path.to_owned(),
            path => format!("{}/{path}", self.folder),
        };
        if let Some(why) = unlisted(self.files, &pattern) {
            self.report.access_left_out(&directive.place, &directive.shown(), &why);
        }
        let mut files = self.files.glob(&pattern);
        // glob(3) sorts whole paths; the order decides about the default server.
        files.sort_unstable();
        let mut found = Vec::new();
        for file in files {
            match self.file(&file, depth + 1) {
                Ok(directives) => found.extend(directives),
                Err(why) if why.contains(" cannot be read: ") => {
                    let what = directive.shown();
                    self.report.access_left_out(
                        &directive.place,
                        &what,
                        &format!(
                            "{why}; import \
                        again as a user who can read it"
                        ),
                    );
                }
                Err(why) => return Err(why),
            }
        }
        Ok(found)
    }
}
