//! `RewriteRule` with its conditions, in maitred's words.

use crate::regexes::without_starts;
use crate::source_directive::Directive;
use crate::values::{alternatives, is_identity_header};

/// The tests of a `RewriteCond` that have a meaning here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CondTest {
    /// The path is no file.
    IsMissing,
    /// The path is no folder or no link; it may be a file.
    IsNoFolder,
    /// The request came over plain HTTP.
    IsPlain,
    /// It did so, or something else holds.
    IsPlainOrElse,
    /// The name of the host, by an expression, and whether it must not match.
    Host(String, bool),
    /// The path, by an expression, and whether it must not match.
    Path(String, bool),
    /// Always true in a first round.
    Nothing,
    /// Another one.
    Other,
}

/// Variables about the client, by their begins; those of headers are apart.
const OF_CLIENT: [&str; 7] =
    ["REMOTE_", "AUTH_TYPE", "SSL_CLIENT", "SSL:SSL_CLIENT", "LA_U:", "LA_F:", "ENV:"];

/// The file that a path leads to; `$1` is the path in a rule for all of them.
const OWN_FILES: [&str; 6] = [
    "%{REQUEST_FILENAME}",
    "%{SCRIPT_FILENAME}",
    "%{DOCUMENT_ROOT}%{REQUEST_URI}",
    "%{DOCUMENT_ROOT}/%{REQUEST_URI}",
    "%{DOCUMENT_ROOT}$1",
    "%{DOCUMENT_ROOT}/$1",
];

/// Those of them that are the path of the URL itself in a virtual host, where Apache looks for it
/// at the root of the file system: there is no such file.
const FILES_OF_FOLDERS: [&str; 2] = ["%{REQUEST_FILENAME}", "%{SCRIPT_FILENAME}"];

/// Variables of the path.
const OF_PATH: [&str; 4] =
    ["%{REQUEST_URI}", "%{REQUEST_FILENAME}", "%{SCRIPT_FILENAME}", "%{PATH_INFO}"];

/// Tests of a file.
const FILE_TESTS: [&str; 5] = ["-f", "-s", "-d", "-l", "-F"];

/// Where rules stand.
#[derive(Debug, Clone, Default)]
pub(super) struct RewriteScope {
    /// Whether rewriting is on.
    pub is_on: bool,
    /// The prefix of a folder's paths, which patterns do not have; none in a virtual host.
    pub folder: Option<String>,
    /// The prefix of relative targets.
    pub base: String,
    /// Whether the section is one for folders around this one: paths have more names there.
    pub is_around: bool,
}

impl RewriteScope {
    /// Whether a tested text is a path that leads to no file there.
    pub fn is_no_file(&self, tested: &str) -> bool {
        self.folder.is_none() && FILES_OF_FOLDERS.contains(&tested)
    }
}

/// A rule with the conditions before it.
#[derive(Debug, Clone)]
pub(super) struct RewriteChain<'a> {
    /// `RewriteRule`.
    pub rule: &'a Directive,
    /// The lines of its conditions.
    pub conditions: Vec<&'a Directive>,
    /// Their tests.
    pub tests: Vec<CondTest>,
    /// The flags, in capitals, with their values.
    pub flags: Vec<(String, String)>,
}

/// The rules of a section, or of a virtual host.
pub(super) fn chains<'a>(
    directives: &[&'a Directive],
    scope: &RewriteScope,
) -> Vec<RewriteChain<'a>> {
    let mut found = Vec::new();
    let mut conditions: Vec<&'a Directive> = Vec::new();
    for directive in directives {
        if directive.is("RewriteCond") {
            conditions.push(directive);
        } else if directive.is("RewriteRule") {
            let conditions = std::mem::take(&mut conditions);
            let tests = tests(&conditions, scope);
            let flags = flags(directive.argument(2));
            found.push(RewriteChain { rule: directive, conditions, tests, flags });
        }
    }
    found
}

impl RewriteChain<'_> {
    /// The value of a flag, by any of its names; empty without one.
    pub fn flag(&self, names: &[&str]) -> Option<&str> {
        let found = self.flags.iter().find(|(name, _)| names.contains(&name.as_str()));
        found.map(|(_, value)| value.as_str())
    }

    /// The status of a redirect.
    pub fn redirect(&self) -> Option<&str> {
        let is_url = ["http://", "https://"].iter().any(|s| self.rule.argument(1).starts_with(s));
        let is_proxied = self.flag(&["P", "PROXY"]).is_some();
        let status = self.flag(&["R", "REDIRECT"]).or((is_url && !is_proxied).then_some(""))?;
        Some(match status {
            "" | "temp" => "302",
            "permanent" => "301",
            "seeother" => "303",
            status => status,
        })
    }

    /// Whether any one of its conditions is enough.
    pub fn needs_any(&self) -> bool {
        let before_last = self.conditions.iter().rev().skip(1);
        before_last.into_iter().all(|one| has_flag(one, ["OR", "ORNEXT"]))
    }

    /// Whether the rule is for all paths.
    pub fn is_for_all(&self) -> bool {
        let all = ["^", ".*", "^.*", "^.*$", "(.*)", "^(.*)$", "^/(.*)$", "^/?(.*)$", "^(.*)", "."];
        all.contains(&self.rule.first())
            || ["^/?(.*)", "^/(.*)", "^.", ".+", "^(.+)$", ".?"].contains(&self.rule.first())
    }

    /// Whether a rule that is not written lets clients see what Apache does not show them: one
    /// about the client, or one that passes paths of files to something else.
    pub fn hides_paths(&self) -> bool {
        if self.rule.argument(1) == "-" {
            return false;
        }
        let is_internal = self.redirect().is_none() && self.flag(&["P", "PROXY"]).is_none();
        // A page of a cache or a compressed file in place of the same.
        let is_other_file = |one: &&Directive| {
            FILE_TESTS.contains(&one.argument(1)) && !OWN_FILES.contains(&one.first())
        };
        let is_copy = is_internal && self.conditions.iter().any(is_other_file);
        let hides_files = is_internal
            && !is_copy
            && !self.tests.contains(&CondTest::IsMissing)
            && self.conditions.iter().all(|one| is_of_path(one));
        hides_files || !is_copy && self.conditions.iter().any(|one| is_of_client(one))
    }

    /// The expression of its pattern, for whole paths.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence.
    pub fn expression(&self, scope: &RewriteScope) -> Result<String, String> {
        let pattern = self.rule.first();
        if pattern.starts_with('!') {
            return Err(format!("`{pattern}` is negated"));
        }
        let flags = if self.flag(&["NC", "NOCASE"]).is_some() { "(?i)" } else { "" };
        let pattern = match &scope.folder {
            Some(_) if scope.is_around && !self.is_for_all() && has_start(&by_slash(pattern)) => {
                return Err(format!("`{pattern}` is for the paths of a folder around this one"));
            }
            Some(folder) => self.below(folder, pattern)?,
            None => pattern.to_owned(),
        };
        Ok(format!("{flags}{pattern}"))
    }

    /// An expression for what follows the folder in a path, as one for the path.
    fn below(&self, prefix: &str, pattern: &str) -> Result<String, String> {
        let folder = format!("^{}/", regex::escape(prefix));
        if let Some(rest) = pattern.strip_prefix('^')
            && alternatives(rest).len() == 1
            && !has_start(rest)
        {
            return Ok(format!("{folder}{}", rest.strip_prefix("/?").unwrap_or(rest)));
        }
        if prefix.is_empty() && !has_start(&by_slash(pattern)) {
            return Ok(pattern.to_owned());
        }
        if !has_start(pattern) {
            return Ok(format!("{folder}.*?(?:{pattern})"));
        }
        // Its groups are there twice.
        if self.rule.argument(1).contains('$') {
            return Err(format!("`^` in `{pattern}` has no counterpart"));
        }
        let from_start = without_starts(pattern);
        Ok(format!("{folder}(?:(?:{from_start})|.+?(?:{pattern}))"))
    }

    /// The target in maitred's words. `base` is the prefix of relative paths.
    ///
    /// # Errors
    /// Why there is none, as the end of a sentence.
    pub fn target(&self, base: &str, root: &str) -> Result<String, String> {
        let text = self.rule.argument(1);
        let mut roots = [root, "%{DOCUMENT_ROOT}"].into_iter();
        let below = |root| text.strip_prefix(root).filter(|rest| rest.starts_with('/'));
        let text = roots.find_map(below).unwrap_or(text);
        let is_whole = text.starts_with(['/', '%']) || text.contains("://");
        let text = if is_whole { text.to_owned() } else { format!("{base}/{text}") };
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path.to_owned(), Some(query.to_owned())),
            None => (text, None),
        };
        let mut out = replaced(&path)?;
        let drops = self.flag(&["QSD", "QSDISCARD"]).is_some();
        let appends = self.flag(&["QSA", "QSAPPEND"]).is_some();
        match query.as_deref() {
            None => {}
            Some("%{QUERY_STRING}") => return Ok(out),
            Some(query) => {
                let query = query.strip_suffix("&%{QUERY_STRING}").map(|query| (query, true));
                let query = query.unwrap_or((text_after(self.rule.argument(1)), appends));
                if !query.0.is_empty() {
                    out.push('?');
                    out += &replaced(query.0)?;
                }
                if query.1 {
                    return Ok(out);
                }
                out.push('?');
                return Ok(out);
            }
        }
        if drops {
            out.push('?');
        }
        Ok(out)
    }
}

fn has_start(pattern: &str) -> bool {
    without_starts(pattern) != pattern
}

/// A pattern without the starts that a slash may stand for.
fn by_slash(pattern: &str) -> String {
    pattern.replace("(^|/)", "").replace("(?:^|/)", "")
}

fn text_after(text: &str) -> &str {
    text.split_once('?').map(|(_, query)| query).unwrap_or_default()
}

/// Variables in maitred's words.
fn replaced(text: &str) -> Result<String, String> {
    let mut out = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' {
            out.extend(letters.next().map(|(_, next)| next));
            continue;
        }
        if letter != '%' {
            out.push(letter);
            continue;
        }
        let rest = &text[at + 1..];
        let Some((name, _)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            return Err(match rest.chars().next() {
                Some(digit) if digit.is_ascii_digit() => {
                    format!("`%{digit}` is a part of a condition")
                }
                _ => "`%` has no counterpart in a target".to_owned(),
            });
        };
        out += match name.to_ascii_uppercase().as_str() {
            "HTTP_HOST" | "SERVER_NAME" => "$host",
            "REQUEST_URI" => "$0",
            "REQUEST_SCHEME" => "$scheme",
            other => return Err(format!("`%{{{other}}}` has no counterpart in a target")),
        };
        for _ in 0..name.len() + 2 {
            letters.next();
        }
    }
    Ok(out)
}

fn flags(text: &str) -> Vec<(String, String)> {
    let inner = text.trim_start_matches('[').trim_end_matches(']');
    let all = inner.split(',').map(str::trim).filter(|flag| !flag.is_empty());
    all.map(|flag| match flag.split_once('=') {
        Some((name, value)) => (name.to_ascii_uppercase(), value.to_owned()),
        None => (flag.to_ascii_uppercase(), String::new()),
    })
    .collect()
}

/// The handlers and types that a rule sets, in lower case.
pub(super) fn handlers_of(rule: &Directive) -> Vec<String> {
    let is_handler = |name: &str| ["H", "HANDLER", "T", "TYPE"].contains(&name);
    let all = flags(rule.argument(2)).into_iter().filter(|(name, _)| is_handler(name));
    all.map(|(_, value)| value.to_ascii_lowercase()).collect()
}

/// The variables that a rule sets, as they are written.
pub(super) fn variables_of(rule: &Directive) -> Vec<String> {
    let all = flags(rule.argument(2)).into_iter();
    all.filter(|(name, _)| ["E", "ENV"].contains(&name.as_str())).map(|(_, value)| value).collect()
}

fn has_flag(condition: &Directive, names: [&str; 2]) -> bool {
    flags(condition.argument(2)).iter().any(|(name, _)| names.contains(&name.as_str()))
}

/// The tests of conditions, which must all hold: those with `[OR]` are one with the next.
fn tests(conditions: &[&Directive], scope: &RewriteScope) -> Vec<CondTest> {
    let (mut found, mut group) = (Vec::new(), Vec::new());
    for condition in conditions {
        group.push(test(condition, scope));
        if !has_flag(condition, ["OR", "ORNEXT"]) {
            found.push(either(std::mem::take(&mut group)));
        }
    }
    // Apache applies a rule whose last condition has `[OR]`, whatever holds.
    found.extend((!group.is_empty()).then_some(CondTest::Nothing));
    found
}

/// The test that one of these holds.
fn either(mut group: Vec<CondTest>) -> CondTest {
    if group.len() == 1 {
        return group.remove(0);
    }
    if group.contains(&CondTest::IsPlain) {
        let is_all = group.iter().all(|one| *one == CondTest::IsPlain);
        return if is_all { CondTest::IsPlain } else { CondTest::IsPlainOrElse };
    }
    let (mut paths, mut hosts) = (Vec::new(), Vec::new());
    for one in &group {
        match one {
            CondTest::Path(text, false) => paths.push(format!("(?:{text})")),
            CondTest::Host(text, false) => hosts.push(format!("(?:{text})")),
            _ => return CondTest::Other,
        }
    }
    match (paths.is_empty(), hosts.is_empty()) {
        (false, true) => CondTest::Path(paths.join("|"), false),
        (true, false) => CondTest::Host(hosts.join("|"), false),
        _ => CondTest::Other,
    }
}

/// Whether a condition is about the path or the file that it leads to.
fn is_of_path(condition: &Directive) -> bool {
    let tested = condition.first();
    let is_group = tested.starts_with('$');
    let is_file_test = FILE_TESTS.contains(&condition.argument(1).trim_start_matches('!'));
    is_group || is_file_test || OF_PATH.iter().any(|variable| tested.contains(variable))
}

/// Whether a condition is about who the client is: its address, user, certificate, cookies and
/// other headers, or an argument that it must not lack.
fn is_of_client(condition: &Directive) -> bool {
    let tested = condition.argument(0).to_ascii_uppercase().replace('-', "_");
    let mut variables = tested.split("%{").skip(1);
    variables.any(|name| {
        let name = name.split('}').next().unwrap_or_default();
        let header = name.strip_prefix("HTTP:").or(name.strip_prefix("HTTP_"));
        match header {
            Some(header) => is_identity_header(header),
            None if name == "QUERY_STRING" => condition.argument(1).starts_with('!'),
            None if ["ENV:REDIRECT_STATUS", "ENV:HTTPS"].contains(&name) => false,
            None => OF_CLIENT.iter().any(|begin| name.starts_with(begin)),
        }
    })
}

fn test(condition: &Directive, scope: &RewriteScope) -> CondTest {
    let (tested, wanted) = (condition.argument(0), condition.argument(1));
    let no_case = has_flag(condition, ["NC", "NOCASE"]);
    let (is_negated, plain) = match wanted.strip_prefix('!') {
        Some(rest) => (true, rest),
        None => (false, wanted),
    };
    let expression = match plain.strip_prefix('=') {
        Some(text) => format!("^{}$", regex::escape(text.trim_matches('"'))),
        None => plain.to_owned(),
    };
    let expression = if no_case { format!("(?i){expression}") } else { expression };
    // An order of texts or numbers, or a test of a file.
    let is_no_expression = plain.starts_with(['<', '>', '-']);
    let is_file_test = FILE_TESTS.contains(&plain);
    let variable = tested.trim_start_matches("%{").trim_end_matches('}');
    match variable.to_ascii_uppercase().as_str() {
        _ if is_file_test && is_negated && scope.is_no_file(tested) => CondTest::Nothing,
        _ if is_file_test && is_negated && OWN_FILES.contains(&tested) => match plain {
            "-d" | "-l" => CondTest::IsNoFolder,
            _ => CondTest::IsMissing,
        },
        _ if is_no_expression => CondTest::Other,
        "HTTPS" => match (is_negated, plain.trim_matches(['^', '$', '=']).to_ascii_lowercase()) {
            (false, text) if text == "off" => CondTest::IsPlain,
            (true, text) if text == "on" => CondTest::IsPlain,
            _ => CondTest::Other,
        },
        "SERVER_PORT" => match (is_negated, plain.trim_matches(['^', '$', '='])) {
            (false, "80") | (true, "443") => CondTest::IsPlain,
            _ => CondTest::Other,
        },
        "REQUEST_SCHEME" if plain.contains("https") && is_negated => CondTest::IsPlain,
        "HTTP_HOST" | "SERVER_NAME" => CondTest::Host(expression, is_negated),
        "REQUEST_URI" => CondTest::Path(expression, is_negated),
        "ENV:REDIRECT_STATUS" if ["^$", "=\"\"", "200", "="].contains(&plain) => CondTest::Nothing,
        _ => CondTest::Other,
    }
}

/// The script that a rule falls back to for paths without a file, and what is passed besides the
/// query; none if it is no such rule.
pub(super) fn front_controller(chain: &RewriteChain<'_>, base: &str) -> Option<(String, String)> {
    let is_missing = chain.tests.contains(&CondTest::IsMissing);
    let is_harmless = |test: &CondTest| match test {
        CondTest::IsMissing | CondTest::IsNoFolder | CondTest::Nothing => true,
        CondTest::Path(text, true) => {
            ["favicon", "index\\.php", "index.php", "\\.well-known", "robots"]
                .iter()
                .any(|known| text.contains(known))
        }
        _ => false,
    };
    if !is_missing || !chain.is_for_all() || !chain.tests.iter().all(is_harmless) {
        return None;
    }
    if chain.redirect().is_some() || chain.flag(&["F", "G", "P"]).is_some() {
        return None;
    }
    let text = chain.rule.argument(1);
    let text = match text.starts_with('/') {
        true => text.to_owned(),
        false => format!("{base}/{text}"),
    };
    let text = text.replace("%{DOCUMENT_ROOT}", "");
    let end = text.find(".php")? + ".php".len();
    let (script, rest) = text.split_at(end);
    (!script.contains(['$', '%'])).then(|| (script.to_owned(), rest.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::SourceLine;

    fn line(name: &str, arguments: &[&str]) -> Directive {
        let place = SourceLine { file: "a".into(), line: 1, word: 0 };
        let arguments = arguments.iter().map(|one| (*one).to_owned()).collect();
        Directive { name: name.to_owned(), arguments, place, block: Vec::new() }
    }

    #[test]
    fn targets_are_those_of_maitred() {
        let target = |to: &str, flags: &str| {
            let rule = line("RewriteRule", &["^/a/(.*)$", to, flags]);
            chains(&[&rule], &RewriteScope::default())[0].target("", "/srv/www")
        };
        assert_eq!(target("/b/$1", "[L]").as_deref(), Ok("/b/$1"));
        assert_eq!(target("/b.php?p=$1", "[L]").as_deref(), Ok("/b.php?p=$1?"));
        assert_eq!(target("/b.php?p=$1", "[L,QSA]").as_deref(), Ok("/b.php?p=$1"));
        assert_eq!(target("/b?", "[R]").as_deref(), Ok("/b?"));
        assert_eq!(target("/srv/www/b", "").as_deref(), Ok("/b"));
        assert_eq!(target("%{DOCUMENT_ROOT}/b", "").as_deref(), Ok("/b"));
        let https = target("https://%{HTTP_HOST}%{REQUEST_URI}", "[R=301]");
        assert_eq!(https.as_deref(), Ok("https://$host$0"));
        assert!(target("/b/%1", "").is_err());
    }

    #[test]
    fn conditions_with_or_are_one_test_with_the_next() {
        let tests = |conditions: &[[&str; 3]]| {
            let lines = conditions.iter().map(|words| line("RewriteCond", words));
            let mut lines: Vec<Directive> = lines.collect();
            lines.push(line("RewriteRule", &["^", "-", "[F]"]));
            let lines: Vec<&Directive> = lines.iter().collect();
            chains(&lines, &RewriteScope::default())[0].tests.clone()
        };
        let path = |text: &str| CondTest::Path(text.to_owned(), false);
        let uri = "%{REQUEST_URI}";
        assert_eq!(
            tests(&[[uri, "^/a", "[nocase,OR]"], [uri, "^/b", ""], [uri, "=/c", "[NC]"]]),
            [path("(?:(?i)^/a)|(?:^/b)"), path("(?i)^/c$")]
        );
        let host = CondTest::Host("(?:^a$)|(?:^b$)".to_owned(), false);
        let hosts = [["%{HTTP_HOST}", "^a$", "[ornext]"], ["%{HTTP_HOST}", "^b$", ""]];
        assert_eq!(tests(&hosts), [host]);
        let off = ["%{HTTPS}", "off", "[OR]"];
        assert_eq!(tests(&[off, [uri, "^/a", ""]]), [CondTest::IsPlainOrElse]);
        assert_eq!(tests(&[off, ["%{SERVER_PORT}", "80", ""]]), [CondTest::IsPlain]);
        assert_eq!(tests(&[[uri, "^/a", "[OR]"], [uri, "!^/b", ""]]), [CondTest::Other]);
        assert_eq!(tests(&[[uri, "^/a", "[OR]"]]), [CondTest::Nothing]);
        assert_eq!(tests(&[[uri, ">/a", ""]]), [CondTest::Other]);
    }

    #[test]
    fn the_script_for_paths_without_a_file_is_found() {
        let file = line("RewriteCond", &["%{REQUEST_FILENAME}", "!-f"]);
        let rule = line("RewriteRule", &["^", "index.php", "[L]"]);
        let host = RewriteScope::default();
        let folder = RewriteScope { folder: Some(String::new()), ..RewriteScope::default() };
        let of = |lines: &[&Directive], scope| front_controller(&chains(lines, scope)[0], "");
        let found = of(&[&file, &rule], &folder);
        assert_eq!(found, Some(("/index.php".to_owned(), String::new())));
        assert_eq!(of(&[&rule], &folder), None);
        assert_eq!(of(&[&file, &rule], &host), None);
        let file = line("RewriteCond", &["%{DOCUMENT_ROOT}%{REQUEST_URI}", "!-f"]);
        assert!(of(&[&file, &rule], &host).is_some());
    }
}
