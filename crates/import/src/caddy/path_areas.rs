//! Paths of Caddy's matchers, and the paths that a block of a site is for.

use maitred_rules::Pattern;

use crate::prefix_complement::{LiteralPath, without};
use crate::regexes::check_regex;

/// The paths of a matcher. Caddy ignores their case, but for regular expressions.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum CaddyPath {
    /// One path.
    Exact(String),
    /// All that begin with it.
    Prefix(String),
    /// All that match a regular expression; `is_exact` if it minds the case.
    Regex {
        /// The expression.
        text: String,
        /// Whether it minds the case.
        is_exact: bool,
    },
}

impl CaddyPath {
    /// The paths of a pattern such as `/a/*`, `*.php`, `*x*` and `/a/*/b`.
    pub fn parse(text: &str) -> CaddyPath {
        let inner = text.strip_suffix('*').unwrap_or(text);
        match text {
            _ if !text.contains(['*', '?', '[']) => CaddyPath::Exact(text.to_owned()),
            _ if text.ends_with('*') && !inner.contains(['*', '?', '[']) => {
                CaddyPath::Prefix(inner.to_owned())
            }
            _ => {
                let ends = text.strip_prefix('*').filter(|rest| !rest.contains(['*', '?', '[']));
                let around = inner.strip_prefix('*');
                let around = around.filter(|rest| !rest.contains(['*', '?', '[']));
                let text = match (ends, around) {
                    (Some(end), _) => format!("{}$", regex::escape(end)),
                    (None, Some(part)) if text.ends_with('*') => regex::escape(part),
                    _ => glob(text),
                };
                CaddyPath::Regex { text, is_exact: false }
            }
        }
    }

    /// As maitred writes it.
    ///
    /// # Errors
    /// Why it is no pattern, as the end of a sentence.
    pub fn pattern(&self) -> Result<String, String> {
        let text = match self {
            CaddyPath::Exact(text) => text.clone(),
            CaddyPath::Prefix(text) => match text.strip_suffix('/') {
                Some(folder) => format!("{folder}/*"),
                None => format!("~^{}", regex::escape(text)),
            },
            CaddyPath::Regex { text, is_exact: true } => format!("~{text}"),
            CaddyPath::Regex { text, is_exact: false } => match extension(text) {
                Some(extension) => format!("*.{extension}"),
                None => format!("~({}){text}", without_case(text)),
            },
        };
        check_regex(&text)?;
        Ok(text)
    }

    /// The same for rules about access, which ignore the case as Caddy does.
    ///
    /// # Errors
    /// Why it is no pattern, as the end of a sentence.
    pub fn guard(&self) -> Result<String, String> {
        let text = match self {
            CaddyPath::Exact(text) if has_letters(text) => {
                format!("~({})^{}$", without_case(text), regex::escape(text))
            }
            CaddyPath::Prefix(text) if has_letters(text) => {
                format!("~({})^{}", without_case(text), regex::escape(text))
            }
            other => return other.pattern(),
        };
        check_regex(&text)?;
        Ok(text)
    }

    /// Whether a path is one of them, ignoring case.
    pub fn has(&self, path: &str) -> bool {
        let (low, same) = (path.to_ascii_lowercase(), |text: &str| text.to_ascii_lowercase());
        match self {
            CaddyPath::Exact(text) => low == same(text),
            CaddyPath::Prefix(text) => low.starts_with(&same(text)),
            CaddyPath::Regex { .. } => {
                let parsed = self.pattern().ok().and_then(|text| Pattern::parse(&text).ok());
                parsed.is_some_and(|pattern| pattern.matches(path.as_bytes()))
            }
        }
    }

    /// Whether all paths of another one are its own, as far as that can be seen.
    fn covers(&self, other: &CaddyPath) -> bool {
        match (self, other) {
            _ if self == other => true,
            (CaddyPath::Prefix(own), _) if ["", "/"].contains(&own.as_str()) => true,
            (CaddyPath::Prefix(own), CaddyPath::Prefix(its)) => {
                its.to_ascii_lowercase().starts_with(&own.to_ascii_lowercase())
            }
            (_, CaddyPath::Exact(its)) => self.has(its),
            _ => false,
        }
    }

    /// Whether it is a smaller part of another one, or an expression that is denied by itself.
    fn is_part_of(&self, other: &CaddyPath) -> bool {
        match (self, other) {
            (CaddyPath::Regex { .. }, CaddyPath::Prefix(_)) => true,
            _ => other.covers(self) && !self.covers(other),
        }
    }

    /// Whether a path may be one of both.
    fn meets(&self, other: &CaddyPath) -> bool {
        match (self, other) {
            (CaddyPath::Exact(path), _) => other.has(path),
            (_, CaddyPath::Exact(path)) => self.has(path),
            (CaddyPath::Prefix(_), CaddyPath::Prefix(_)) => {
                self.covers(other) || other.covers(self)
            }
            _ => true,
        }
    }

    /// Whether a script can have one of these paths.
    pub fn may_be_scripts(&self) -> bool {
        match self {
            CaddyPath::Exact(text) => text.to_ascii_lowercase().ends_with(".php"),
            CaddyPath::Prefix(_) => true,
            CaddyPath::Regex { text, .. } => extension(text).is_none_or(|end| end == "php"),
        }
    }

    /// Whether all of these paths are those of scripts, whose source is never sent.
    pub fn are_scripts(&self) -> bool {
        match self {
            CaddyPath::Exact(text) => text.ends_with(".php"),
            CaddyPath::Prefix(_) => false,
            CaddyPath::Regex { text, .. } => text.ends_with("\\.php$") && !text.contains('|'),
        }
    }

    fn literal(&self) -> Option<LiteralPath> {
        match self {
            CaddyPath::Exact(text) => Some(LiteralPath { text: text.clone(), is_exact: true }),
            CaddyPath::Prefix(text) => Some(LiteralPath { text: text.clone(), is_exact: false }),
            CaddyPath::Regex { .. } => None,
        }
    }
}

fn has_letters(text: &str) -> bool {
    text.contains(char::is_alphabetic)
}

/// The flags for a text whose case is ignored: that of letters beyond ASCII only with `u`.
fn without_case(text: &str) -> &'static str {
    if text.is_ascii() { "?i" } else { "?iu" }
}

/// `\.css$` is the ending `css`.
fn extension(text: &str) -> Option<&str> {
    let name = text.strip_prefix("\\.")?.strip_suffix('$')?;
    name.chars().all(|c| c.is_ascii_alphanumeric()).then_some(name)
}

/// A pattern of Go's `path.Match`: `*` and `?` match no slash.
fn glob(text: &str) -> String {
    let mut out = "^".to_owned();
    let mut rest = text.chars();
    while let Some(letter) = rest.next() {
        match letter {
            '*' => out += "[^/]*",
            '?' => out += "[^/]",
            '[' => {
                out.push('[');
                for inner in rest.by_ref() {
                    out.push(inner);
                    if inner == ']' {
                        break;
                    }
                }
            }
            '\\' => out += &rest.next().map(|c| regex::escape(&c.to_string())).unwrap_or_default(),
            letter => out += &regex::escape(&letter.to_string()),
        }
    }
    out + "$"
}

/// The paths of a block or a directive: those of one of `paths` (all without any), but not those of
/// `except`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct BlockPaths {
    /// Its paths; none are all.
    pub paths: Vec<CaddyPath>,
    /// Those that others have.
    pub except: Vec<CaddyPath>,
    /// A part of the paths that the directives in it do not see.
    pub stripped: String,
    /// Whether it has no path at all.
    pub is_none: bool,
}

/// Why the patterns of an area are not exactly its paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WiderArea {
    /// The patterns, for more paths than those of the area.
    pub patterns: Vec<String>,
    /// The paths that are too many.
    pub others: String,
}

impl BlockPaths {
    /// Whether it has all paths.
    pub fn is_all(&self) -> bool {
        self.paths.is_empty() && self.except.is_empty()
    }

    /// Whether it has a path.
    pub fn has(&self, path: &str) -> bool {
        (self.paths.is_empty() || self.paths.iter().any(|one| one.has(path)))
            && !self.except.iter().any(|one| one.has(path))
    }

    /// Whether it has a path of another area, as far as that can be seen.
    pub fn meets(&self, other: &BlockPaths) -> bool {
        let is_out = |path: &CaddyPath| {
            let excepts = self.except.iter().chain(&other.except);
            excepts.into_iter().any(|one| one.covers(path))
        };
        let of_other = other.all_paths();
        of_other
            .iter()
            .filter(|path| !is_out(path))
            .any(|path| self.all_paths().iter().any(|own| own.meets(path) && !is_out(own)))
    }

    /// Whether it has all paths of another area, as far as that can be seen.
    pub fn covers(&self, other: &BlockPaths) -> bool {
        let is_out = |one: &CaddyPath| other.except.iter().any(|its| its.covers(one));
        other.all_paths().iter().all(|path| {
            self.all_paths().iter().any(|own| own.covers(path))
                && self.except.iter().filter(|one| one.meets(path)).all(is_out)
        })
    }

    /// Its paths without the exceptions.
    fn all_paths(&self) -> Vec<CaddyPath> {
        match self.paths.is_empty() {
            true => vec![CaddyPath::Prefix("/".to_owned())],
            false => self.paths.clone(),
        }
    }

    /// The paths of this area that a matcher has as well; none if there is no such path.
    ///
    /// # Errors
    /// Why they have no pattern, as the end of a sentence.
    pub fn narrowed(
        &self,
        paths: &[CaddyPath],
        except: &[CaddyPath],
    ) -> Result<Option<BlockPaths>, String> {
        let is_anchored = |one: &CaddyPath| match one {
            CaddyPath::Regex { text, .. } => text.contains('^') || text.contains("\\A"),
            _ => false,
        };
        if !self.stripped.is_empty() && except.iter().any(is_anchored) {
            let why = "its expression is for the path without the begin that `handle_path` removes";
            return Err(why.to_owned());
        }
        let mut area = self.clone();
        area.except.extend(except.iter().map(|one| self.with_stripped(one)));
        if paths.is_empty() {
            return Ok(Some(area));
        }
        let seen: Vec<CaddyPath> = paths.iter().map(|one| self.with_stripped(one)).collect();
        if self.paths.is_empty() {
            area.paths = seen;
            return Ok(Some(area));
        }
        let mut both = Vec::new();
        for one in &seen {
            if self.paths.iter().any(|own| own.covers(one)) {
                both.push(one.clone());
            } else if self.paths.iter().any(|own| own.meets(one)) {
                let within: Vec<&CaddyPath> =
                    self.paths.iter().filter(|own| one.covers(own)).collect();
                if within.is_empty() {
                    return Err("its paths and those of the block around it have no common \
                                pattern"
                        .to_owned());
                }
                both.extend(within.into_iter().cloned());
            }
        }
        if both.is_empty() {
            return Ok(None);
        }
        area.paths = both;
        Ok(Some(area))
    }

    /// A path as clients write it, where a `handle_path` has removed its begin.
    fn with_stripped(&self, path: &CaddyPath) -> CaddyPath {
        match path {
            _ if self.stripped.is_empty() => path.clone(),
            CaddyPath::Exact(text) => CaddyPath::Exact(format!("{}{text}", self.stripped)),
            CaddyPath::Prefix(text) => CaddyPath::Prefix(format!("{}{text}", self.stripped)),
            regex @ CaddyPath::Regex { .. } => regex.clone(),
        }
    }

    /// Removes the paths of another area within this one, whose directives have responded. Whether
    /// the rest has patterns; otherwise all paths stay.
    pub fn remove(&mut self, other: &BlockPaths) -> bool {
        let new: Vec<CaddyPath> =
            other.except.iter().filter(|one| !self.except.contains(one)).cloned().collect();
        match (new.is_empty(), other.paths.as_slice()) {
            (true, []) => self.is_none = true,
            (true, paths) => self.except.extend(paths.iter().cloned()),
            // What is left of all paths are the exceptions.
            (false, paths) if self.paths == paths => self.paths = new,
            (false, _) => return false,
        }
        true
    }

    /// The patterns of its paths, for rules about access.
    ///
    /// # Errors
    /// Patterns for more paths, if there are none for these alone, or the reason.
    pub fn guards(&self) -> Result<Vec<String>, Result<WiderArea, String>> {
        let (mut patterns, mut wider) = (Vec::new(), Vec::new());
        for path in &self.all_paths() {
            let inside: Vec<&CaddyPath> =
                self.except.iter().filter(|one| one.meets(path)).collect();
            if inside.is_empty() {
                patterns.push(path.guard().map_err(Err)?);
                continue;
            }
            if inside.iter().any(|one| one.covers(path)) {
                continue;
            }
            let literals: Option<Vec<LiteralPath>> =
                inside.iter().map(|one| one.literal()).collect();
            let complement = match (path, literals) {
                (CaddyPath::Prefix(prefix), Some(literals)) => without(prefix, &literals),
                _ => None,
            };
            match complement {
                Some(pattern) => patterns.push(pattern),
                None => {
                    patterns.push(path.guard().map_err(Err)?);
                    wider.extend(inside.iter().map(|one| one.pattern().unwrap_or_default()));
                }
            }
        }
        match wider.is_empty() {
            true => Ok(patterns),
            false => Err(Ok(WiderArea { patterns, others: wider.join(", ") })),
        }
    }

    /// The patterns of its paths.
    ///
    /// # Errors
    /// Why there are none, as the end of a sentence.
    pub fn patterns(&self) -> Result<Vec<String>, String> {
        let meets = |path: &CaddyPath| self.except.iter().any(|one| one.meets(path));
        if self.is_all() {
            return Ok(vec!["/*".to_owned()]);
        }
        if !self.paths.is_empty() && !self.paths.iter().any(meets) {
            return self.paths.iter().map(CaddyPath::pattern).collect();
        }
        match self.guards() {
            Ok(patterns) => Ok(patterns),
            // Earlier rules of a list win, and its order is the one of Caddy.
            Err(Ok(wider)) if !self.paths.is_empty() => Ok(wider.patterns),
            Err(Ok(wider)) => Err(format!("it is not for {}, which has no pattern", wider.others)),
            Err(Err(why)) => Err(why),
        }
    }
}

/// What of a path is in none of these areas. What an area excepts within the path is a gap of its
/// own.
pub(super) fn gap(path: &CaddyPath, areas: &[BlockPaths]) -> BlockPaths {
    let mut rest = BlockPaths { paths: vec![path.clone()], ..BlockPaths::default() };
    for area in areas.iter().filter(|one| !one.is_none) {
        let mut excepts = area.except.iter().filter(|one| one.meets(path));
        if excepts.all(|one| one.is_part_of(path)) {
            rest.except.extend(area.all_paths());
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_maitred_has_them_and_ignore_case_for_access() {
        let cases = [
            ("/a", "/a", "~(?i)^/a$"),
            ("/a/*", "/a/*", "~(?i)^/a/"),
            ("/a*", "~^/a", "~(?i)^/a"),
            ("*.php", "*.php", "*.php"),
            ("*.tar.gz", "~(?i)\\.tar\\.gz$", "~(?i)\\.tar\\.gz$"),
            ("*/wp-*", "~(?i)/wp\\-", "~(?i)/wp\\-"),
            ("/a/*/b", "~(?i)^/a/[^/]*/b$", "~(?i)^/a/[^/]*/b$"),
            ("*", "~^", "~^"),
            ("/1/*", "/1/*", "/1/*"),
        ];
        for (text, pattern, guard) in cases {
            let path = CaddyPath::parse(text);
            assert_eq!(path.pattern().as_deref(), Ok(pattern), "{text}");
            assert_eq!(path.guard().as_deref(), Ok(guard), "{text}");
        }
    }

    #[test]
    fn an_area_is_without_the_paths_of_earlier_blocks() {
        let paths = |texts: &[&str]| texts.iter().map(|one| CaddyPath::parse(one)).collect();
        let mut rest = BlockPaths::default();
        rest.remove(&BlockPaths { paths: paths(&["/api/*", "/x"]), ..BlockPaths::default() });
        let guards = rest.guards().expect("they are literal");
        let pattern = Pattern::parse(&guards[0]).expect("it is a pattern");
        assert!(pattern.matches(b"/") && pattern.matches(b"/apix") && pattern.matches(b"/xy"));
        assert!(!pattern.matches(b"/api/") && !pattern.matches(b"/x"));
        rest.remove(&BlockPaths { paths: paths(&["*.css"]), ..BlockPaths::default() });
        assert!(rest.guards().is_err());
        assert!(rest.has("/y") && !rest.has("/API/y") && !rest.has("/a.css"));
    }

    #[test]
    fn paths_within_a_block_are_those_of_both() {
        let area = BlockPaths { paths: vec![CaddyPath::parse("/api/*")], ..BlockPaths::default() };
        let of = |text: &str| {
            let inner = area.narrowed(&[CaddyPath::parse(text)], &[]);
            inner.map(|one| one.map(|one| one.paths))
        };
        assert_eq!(of("/api/v1/*"), Ok(Some(vec![CaddyPath::parse("/api/v1/*")])));
        assert_eq!(of("*"), Ok(Some(vec![CaddyPath::parse("/api/*")])));
        assert_eq!(of("/b"), Ok(None));
        assert!(of("*.css").is_err());
    }

    #[test]
    fn a_gap_is_what_no_area_has_of_a_path() {
        let area = |paths: &[&str], except: &[&str]| {
            let parsed = |texts: &[&str]| texts.iter().map(|one| CaddyPath::parse(one)).collect();
            BlockPaths { paths: parsed(paths), except: parsed(except), ..BlockPaths::default() }
        };
        let guards = |path: &str, areas: &[BlockPaths]| {
            gap(&CaddyPath::parse(path), areas).guards().expect("they are literal")
        };
        let rest = area(&[], &["/a/*"]);
        let folder = area(&["/a/*"], &["/a/b/*"]);
        assert_eq!(guards("/a/*", std::slice::from_ref(&rest)), ["~(?i)^/a/"]);
        // The folder has all of it but `/a/b/`, which is a gap of its own.
        let both = [rest, folder];
        assert_eq!(guards("/a/*", &both), [""; 0]);
        assert_eq!(guards("/a/b/*", &both), ["~(?i)^/a/b/"]);
        let all = area(&[], &[]);
        assert_eq!(guards("/a/b/*", &[all.clone(), both[1].clone()]), [""; 0]);
        assert_eq!(guards("*.sql", &[all]), [""; 0]);
        // Two areas that both leave out the same.
        let twice = [area(&["/a/*"], &["*.sql"]), area(&[], &["*.sql"])];
        assert_eq!(guards("*.sql", &twice), ["*.sql"]);
    }
}
