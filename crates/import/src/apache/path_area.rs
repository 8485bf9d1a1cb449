//! The paths that a section applies to.

use super::config_reader::ApacheConfig;
use super::folder_regex;
use crate::prefix_complement::{LiteralPath, without};
use crate::regexes::without_starts;
use crate::source_directive::Directive;
use crate::values::alternatives;

/// Paths of a site.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathArea {
    /// A folder or a path, and all below it; empty for all paths. Without a slash at its end.
    Below(String),
    /// All paths that this expression matches.
    Regex(String),
}

impl PathArea {
    /// All paths.
    pub fn all() -> PathArea {
        PathArea::Below(String::new())
    }

    /// Whether it has all paths.
    pub fn is_all(&self) -> bool {
        matches!(self, PathArea::Below(prefix) if prefix.is_empty())
    }

    /// Whether it has all paths of another one.
    pub fn covers(&self, other: &PathArea) -> bool {
        match (self, other) {
            (PathArea::Below(outer), _) if outer.is_empty() => true,
            (PathArea::Below(outer), PathArea::Below(inner)) => is_below(inner, outer),
            (PathArea::Below(outer), PathArea::Regex(text)) => {
                let begin = format!("^{}/", regex::escape(outer));
                // The slash may be missing before these.
                let is_optional = |rest: &str| rest.starts_with(['?', '*', '{']);
                let rest = text.strip_prefix(&begin);
                rest.is_some_and(|rest| !is_optional(rest)) && alternatives(text).len() == 1
            }
            (one, other) => one == other,
        }
    }

    /// Whether a path is among its paths.
    pub fn has(&self, path: &str) -> bool {
        match self {
            PathArea::Below(prefix) => is_below(path, prefix),
            PathArea::Regex(text) => {
                let pattern = maitred_rules::Pattern::parse(&format!("~{text}"));
                pattern.is_ok_and(|pattern| pattern.matches(path.as_bytes()))
            }
        }
    }

    /// maitred's pattern for its paths, for rules that do not decide about access: without the name
    /// of the folder itself.
    pub fn pattern(&self) -> String {
        match self {
            PathArea::Below(prefix) if self.is_file() => prefix.clone(),
            PathArea::Below(prefix) => format!("{prefix}/*"),
            PathArea::Regex(text) => format!("~{text}"),
        }
    }

    /// maitred's pattern for its paths and the name itself, which may be that of a folder, for
    /// rules about who may see what and which scripts run.
    pub fn whole_pattern(&self) -> String {
        self.patterns_without(&[]).concat()
    }

    fn is_file(&self) -> bool {
        let PathArea::Below(prefix) = self else { return false };
        let name = prefix.rsplit('/').next().unwrap_or_default();
        name.contains('.') && !name.starts_with('.')
    }

    /// Whether it may have paths in common with another one.
    pub fn may_overlap(&self, other: &PathArea) -> bool {
        match (self, other) {
            (PathArea::Below(one), PathArea::Below(other)) => {
                is_below(one, other) || is_below(other, one)
            }
            (PathArea::Regex(text), PathArea::Below(prefix))
            | (PathArea::Below(prefix), PathArea::Regex(text)) => alternatives(text)
                .into_iter()
                .map(fixed_start)
                .any(|fixed| fixed.starts_with(prefix.as_str()) || prefix.starts_with(fixed)),
            _ => true,
        }
    }

    /// maitred's patterns for its paths without those of others, as far as these are prefixes below
    /// this one and not too many.
    pub fn patterns_without(&self, others: &[&PathArea]) -> Vec<String> {
        let PathArea::Below(prefix) = self else { return vec![self.pattern()] };
        let inner = others.iter().filter_map(|other| inner_prefix(prefix, other));
        let found = below_without(prefix, &inner.collect::<Vec<_>>());
        found.or_else(|| below_without(prefix, &[])).unwrap_or_default()
    }

    /// maitred's patterns for its paths without all those of others; none if there are no such
    /// patterns.
    pub fn exact_patterns_without(&self, others: &[&PathArea]) -> Option<Vec<String>> {
        let others: Vec<_> = others.iter().filter(|other| self.may_overlap(other)).collect();
        let PathArea::Below(prefix) = self else {
            return others.is_empty().then(|| vec![self.pattern()]);
        };
        let inner = others.into_iter().map(|other| inner_prefix(prefix, other));
        below_without(prefix, &inner.collect::<Option<Vec<_>>>()?)
    }
}

/// The prefix of an area below another prefix.
fn inner_prefix<'a>(prefix: &str, area: &'a PathArea) -> Option<&'a str> {
    match area {
        PathArea::Below(inner) if inner != prefix && is_below(inner, prefix) => Some(inner),
        _ => None,
    }
}

/// maitred's patterns for the paths below a prefix without those below inner ones; none if these
/// are too many.
fn below_without(prefix: &str, inner: &[&str]) -> Option<Vec<String>> {
    if inner.is_empty() {
        return Some(vec![match prefix {
            "" => "/*".to_owned(),
            prefix => format!("~^{}(/|$)", regex::escape(prefix)),
        }]);
    }
    let both = |inner: &&str| {
        let folder = LiteralPath { text: format!("{inner}/"), is_exact: false };
        [LiteralPath { text: (*inner).to_owned(), is_exact: true }, folder]
    };
    let literals: Vec<LiteralPath> = inner.iter().flat_map(both).collect();
    let rest = without(&format!("{prefix}/"), &literals)?;
    let own = (!prefix.is_empty()).then(|| prefix.to_owned());
    Some(own.into_iter().chain([rest]).collect())
}

/// The text that all paths of an expression begin with; empty if that is not clear.
fn fixed_start(expression: &str) -> &str {
    let fixed = expression.strip_prefix('^').unwrap_or_default();
    let end = fixed.find(['(', '[', '.', '*', '\\', '?', '{', '+', '$', '|']);
    let (start, rest) = fixed.split_at(end.unwrap_or(fixed.len()));
    // The letter before these may be missing.
    let is_optional = rest.starts_with(['*', '?', '{']);
    let mut letters = start.chars();
    letters.next_back().filter(|_| is_optional).map_or(start, |_| letters.as_str())
}

/// Whether a path is a folder or in it.
fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Folders that URLs lead to: the document root (with an empty prefix) and aliases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MappedFolder {
    /// The prefix of its URLs, without a slash at the end.
    pub prefix: String,
    /// The folder, without a slash at the end.
    pub folder: String,
}

/// The areas of a section of folders: none if no URL leads there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FolderAreas {
    /// The areas that are clear.
    pub clear: Vec<PathArea>,
    /// That others are not, as the end of a sentence.
    pub unclear: Option<&'static str>,
}

/// The areas of a `<Directory>`.
pub(super) fn of_directory(
    section: &Directive,
    config: &ApacheConfig,
    mapped: &[MappedFolder],
) -> FolderAreas {
    let mut areas = FolderAreas::default();
    for one in mapped {
        let FolderAreas { mut clear, unclear } = of_mapped(section, config, one);
        // URLs lead to the folder of an alias, not to the one of its name beside others.
        let is_hidden = |area: &PathArea| {
            let mut longer = mapped.iter().filter(|other| other.prefix.len() > one.prefix.len());
            longer.any(|other| PathArea::Below(other.prefix.clone()).covers(area))
        };
        clear.retain(|area| !is_hidden(area));
        areas.clear.extend(clear);
        areas.unclear = areas.unclear.or(unclear);
    }
    areas
}

/// The areas of a `<Directory>` in one folder that URLs lead to.
fn of_mapped(section: &Directive, config: &ApacheConfig, mapped: &MappedFolder) -> FolderAreas {
    let mut areas = FolderAreas::default();
    let is_regex = section.is("<DirectoryMatch") || section.first() == "~";
    if is_regex {
        let text = section.arguments.last().map(String::as_str).unwrap_or_default();
        folder_regex::add_areas(text, mapped, &mut areas);
        return areas;
    }
    let path = config.absolute(section.first());
    let path = path.trim_end_matches('/');
    let MappedFolder { prefix, folder } = mapped;
    if is_shell_pattern(path) {
        areas.clear.extend(of_wildcards(path, prefix, folder));
    } else if is_below(folder, path) {
        areas.clear.push(PathArea::Below(prefix.clone()));
    } else if let Some(rest) = path.strip_prefix(folder.as_str())
        && rest.starts_with('/')
    {
        areas.clear.push(PathArea::Below(format!("{prefix}{rest}")));
    }
    areas
}

/// Whether a folder is that of a `<Directory>` without a slash at its end, or below it.
pub(super) fn is_in_directory(folder: &str, path: &str) -> bool {
    if !is_shell_pattern(path) {
        return is_below(folder, path);
    }
    let own: Vec<&str> = folder.split('/').collect();
    let outer = own.get(..path.split('/').count());
    let pattern = regex::Regex::new(&format!("^{}$", shell_expression(path)));
    outer.is_some_and(|outer| pattern.is_ok_and(|pattern| pattern.is_match(&outer.join("/"))))
}

/// Whether a text is a shell pattern.
fn is_shell_pattern(text: &str) -> bool {
    text.contains(['*', '?', '[', '\\'])
}

/// A shell pattern as an expression: nothing but a slash matches a slash.
fn shell_expression(pattern: &str) -> String {
    let (mut out, mut rest) = (String::new(), pattern);
    while let Some(letter) = rest.chars().next() {
        rest = &rest[letter.len_utf8()..];
        match letter {
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            '[' => match shell_class(rest) {
                Some((class, after)) => {
                    out.push_str(&class);
                    rest = after;
                }
                None => out.push_str("\\["),
            },
            '\\' => {
                let escaped = rest.chars().next().unwrap_or('\\');
                out.push_str(&regex::escape(&escaped.to_string()));
                rest = rest.get(escaped.len_utf8()..).unwrap_or_default();
            }
            letter => out.push_str(&regex::escape(&letter.to_string())),
        }
    }
    out
}

/// The class that begins a text after its `[`, and what follows it.
fn shell_class(text: &str) -> Option<(String, &str)> {
    let inner = text.strip_prefix(['!', '^']).unwrap_or(text);
    // A `]` that comes first is a letter of the class.
    let (end, _) = inner.char_indices().skip(1).find(|(_, letter)| *letter == ']')?;
    let mut class = if inner.len() < text.len() { "[^/".to_owned() } else { "[".to_owned() };
    for letter in inner[..end].chars().filter(|letter| *letter != '\\') {
        if matches!(letter, '[' | ']' | '^' | '&' | '~') {
            class.push('\\');
        }
        class.push(letter);
    }
    Some((class + "]", &inner[end + 1..]))
}

/// A shell pattern; `*` does not match a slash.
fn of_wildcards(path: &str, prefix: &str, folder: &str) -> Option<PathArea> {
    let names: Vec<&str> = path.split('/').collect();
    let own: Vec<&str> = folder.split('/').collect();
    // The pattern is for a folder around the document root, or for the root itself.
    if is_in_directory(folder, path) {
        return Some(PathArea::Below(prefix.to_owned()));
    }
    let outer = names.get(..own.len())?.join("/");
    let is_inner = regex::Regex::new(&format!("^{}$", shell_expression(&outer)))
        .is_ok_and(|pattern| pattern.is_match(folder));
    let rest = names.get(own.len()..)?.join("/");
    let pattern = format!("^{}/{}(/|$)", regex::escape(prefix), shell_expression(&rest));
    is_inner.then_some(PathArea::Regex(pattern))
}

/// The area of a `<Location>`.
pub(super) fn of_location(section: &Directive) -> PathArea {
    let text = section.arguments.last().map(String::as_str).unwrap_or_default();
    if section.is("<LocationMatch") || section.first() == "~" {
        return PathArea::Regex(text.to_owned());
    }
    if is_shell_pattern(text) {
        let text = shell_expression(text.trim_end_matches('/'));
        return PathArea::Regex(format!("^{text}(/|$)"));
    }
    PathArea::Below(text.trim_end_matches('/').to_owned())
}

/// The area of a `<Files>` in another one.
pub(super) fn of_files(section: &Directive, around: &PathArea) -> PathArea {
    let text = section.arguments.last().map(String::as_str).unwrap_or_default();
    let is_regex = section.is("<FilesMatch") || section.first() == "~";
    let name = match is_regex {
        true => file_expression(text.strip_prefix("(?i)").unwrap_or(text)),
        false => format!("{}$", shell_expression(text)),
    };
    let flags = if is_regex && text.starts_with("(?i)") { "(?i)" } else { "" };
    match around {
        PathArea::Below(prefix) if !prefix.is_empty() => {
            PathArea::Regex(format!("{flags}^{}/(?:.*/)?{name}", regex::escape(prefix)))
        }
        PathArea::Regex(folder) if flags.is_empty() => {
            PathArea::Regex(below_expression(folder, &name))
        }
        PathArea::Regex(folder) => {
            PathArea::Regex(below_expression(folder, &format!("(?i:{name})")))
        }
        PathArea::Below(_) => PathArea::Regex(format!("{flags}/{name}")),
    }
}

/// An expression for files in the folders that another one names, or below them. Apache compares
/// it with the whole path of a file, and so the folder `/b` has the files `/b/x` and `/bx`.
pub(super) fn below_expression(folder: &str, name: &str) -> String {
    let (flags, folder) = match folder.strip_prefix("(?i)") {
        Some(rest) => ("i", rest),
        None => ("", folder),
    };
    let begins_anywhere = name.starts_with("[^/]*") || name.starts_with("(?");
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let (folder, between) = match folder.strip_suffix("(/|$)") {
        Some(folder) => (folder, "/(?:.*/)?"),
        None => match folder.trim_end_matches('$') {
            folder if folder.ends_with(is_letter) && !begins_anywhere => (folder, ".*/"),
            folder => (folder, "(?:.*/)?"),
        },
    };
    match flags.is_empty() && alternatives(folder).len() == 1 {
        true => format!("{folder}{between}{name}"),
        false => format!("(?{flags}:{folder}){between}{name}"),
    }
}

/// An expression for the names of files, as one for the ends of paths that follow a slash.
fn file_expression(text: &str) -> String {
    let from_start = within_name(&without_starts(text));
    let is_one = alternatives(text).len() == 1;
    if is_one && text.strip_prefix('^').is_some_and(|rest| without_starts(rest) == rest) {
        return from_start;
    }
    // After other letters of the name, a `^` matches nothing.
    let later = format!("[^/]*{}", within_name(text));
    match without_starts(text) == text {
        true => later,
        false => format!("(?:{from_start}|{later})"),
    }
}

/// `.` does not match a slash, and what follows the expression is the rest of a name.
fn within_name(text: &str) -> String {
    let (mut out, mut is_escaped, mut in_class) = (String::new(), false, false);
    for letter in text.chars() {
        match letter {
            _ if is_escaped => {
                is_escaped = false;
                out.push(letter);
                continue;
            }
            '.' if !in_class => {
                out.push_str("[^/]");
                continue;
            }
            '\\' => is_escaped = true,
            '[' => in_class = true,
            ']' => in_class = false,
            _ => {}
        }
        out.push(letter);
    }
    let out = if alternatives(&out).len() > 1 { format!("(?:{out})") } else { out };
    match out.ends_with('$') {
        true => out,
        false => format!("{out}[^/]*$"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(text: &str) -> Directive {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        Directive {
            name: words[0].clone(),
            arguments: words[1..].to_vec(),
            place: crate::report::SourceLine { file: "a".into(), line: 1, word: 0 },
            block: Vec::new(),
        }
    }

    #[test]
    fn names_of_files_are_the_ends_of_paths() {
        let cases = [
            ("<Files wp-config.php", "/a/wp-config.php", true),
            ("<Files wp-config.php", "/a/xwp-config.php", false),
            ("<FilesMatch ^\\.ht", "/a/.htaccess", true),
            ("<FilesMatch ^\\.ht", "/a.ht/b", false),
            ("<FilesMatch .+\\.ph(?:ar|p|tml)$", "/a/x.php", true),
            ("<FilesMatch .+\\.ph(?:ar|p|tml)$", "/a/.php", false),
            ("<FilesMatch (^#.*#|\\.(bak|sql))$", "/a/x.sql", true),
            ("<FilesMatch (?i)\\.SQL$", "/a/x.sql", true),
            ("<FilesMatch (^#.*#|\\.(bak|sql))$", "/a/#x#", true),
            ("<FilesMatch (^#.*#|\\.(bak|sql))$", "/a/b#x#", false),
            ("<FilesMatch \\.inc$|^composer\\.json$", "/composer.json", true),
            ("<FilesMatch \\.inc$|^composer\\.json$", "/a/x.inc", true),
            ("<FilesMatch \\.inc$|^composer\\.json$", "/xcomposer.json", false),
            ("<FilesMatch ^wp-config|~$", "/a/x.php~", true),
            ("<FilesMatch ^wp-config|~$", "/wp-config.bak", true),
            ("<FilesMatch ^wp-config|~$", "/wp-config/a", false),
            ("<FilesMatch (?i)^A|\\Ab", "/bc", true),
            ("<Files *.inc", "/b/x.inc", true),
            ("<Files *.[Ii]nc", "/b/x.Inc", true),
            ("<Files [!a]\\[[]^].x", "/b[^.x", true),
            ("<Files [!a].x", "/a.x", false),
            ("<Files [a.x", "/[a.x", true),
        ];
        for (text, path, matches) in cases {
            let area = of_files(&section(text), &PathArea::all());
            assert_eq!(area.has(path), matches, "{text} {path} {area:?}");
        }
    }

    #[test]
    fn a_folder_has_the_paths_of_an_expression_that_begins_with_its_name_and_a_slash() {
        let docs = PathArea::Below("/docs".to_owned());
        for (text, covers) in [
            ("^/docs/x", true),
            ("^/docs/[^/]+", true),
            ("^/docs/+x", true),
            ("^/docs/?x", false),
            ("^/docs/*x", false),
            ("^/docs/{0,1}x", false),
            ("^/docs/x|y", false),
        ] {
            assert_eq!(docs.covers(&PathArea::Regex(text.to_owned())), covers, "{text}");
        }
    }

    #[test]
    fn names_in_a_folder_begin_after_a_slash() {
        let around = PathArea::Below("/up".to_owned());
        let area = of_files(&section("<FilesMatch ^a|\\.inc$"), &around);
        for (path, has) in
            [("/up/ab", true), ("/up/x/a", true), ("/up/x.inc", true), ("/upa", false)]
        {
            assert_eq!(area.has(path), has, "{path} {area:?}");
        }
    }

    #[test]
    fn files_in_folders_of_an_expression_are_those_below_them() {
        let around = PathArea::Regex("^/zabbix/(conf|app)/".to_owned());
        let area = of_files(&section("<files *.php"), &around);
        for (path, has) in [
            ("/zabbix/conf/a.php", true),
            ("/zabbix/app/b/a.php", true),
            ("/zabbix/a.php", false),
            ("/zabbix/conf/a.txt", false),
        ] {
            assert_eq!(area.has(path), has, "{path} {area:?}");
        }
    }

    #[test]
    fn folders_are_paths_below_the_document_root_and_aliases() {
        let config = ApacheConfig {
            tree: Vec::new(),
            modules: std::collections::BTreeSet::new(),
            server_root: "/etc/apache2".to_owned(),
            defines: std::collections::BTreeSet::new(),
            variables: std::collections::BTreeMap::new(),
            perhaps: Default::default(),
        };
        let mapped = [("", "/srv/www"), ("/docs", "/usr/share/doc")];
        let mapped = mapped.map(|(prefix, folder)| MappedFolder {
            prefix: prefix.to_owned(),
            folder: folder.to_owned(),
        });
        let below = |text: &str| PathArea::Below(text.to_owned());
        let of = |text: &str| of_directory(&section(text), &config, &mapped).clear;
        assert_eq!(of("<Directory /"), [below(""), below("/docs")]);
        assert_eq!(of("<Directory /srv/www/up/"), [below("/up")]);
        assert_eq!(of("<Directory /usr/share/doc/a"), [below("/docs/a")]);
        assert_eq!(of("<Directory /srv/*"), [below("")]);
        assert_eq!(of("<Directory /srv/www2"), []);
        assert!(of("<Directory /srv/www/*/x")[0].has("/a/x/y"));
        assert!(of("<Directory /srv/www/[a-z]x")[0].has("/bx/y"));
        assert!(!of("<Directory /srv/www/[!a-z]x")[0].has("/bx/y"));
        assert_eq!(of("<Directory /srv/[v-x]ww"), [below("")]);
        assert!(of("<DirectoryMatch ^/srv/www/.*/private")[0].has("/a/private/y"));
        assert!(of("<DirectoryMatch /\\.git")[0].has("/a/.git/y"));
    }
}
