//! Expressions for folders (`<DirectoryMatch>`) as expressions for the paths of URLs.
//!
//! Apache compares the whole path of a file. The part for the folder of a document root is taken
//! off, name by name.

use regex::Regex;

use super::path_area::{FolderAreas, MappedFolder, PathArea};
use crate::regexes::without_starts;
use crate::values::{alternatives, parts};

/// A path in each folder that no configuration names.
const ANY_PATH: &str = "/zz9/zz9.zz9";

/// An expression has no counterpart, and so its section may be for any path.
const UNCLEAR: &str = "it is not clear which URLs lead to these folders; name them in full";

/// Adds the areas in a folder that an expression matches: none if no URL leads there.
pub(super) fn add_areas(text: &str, mapped: &MappedFolder, found: &mut FolderAreas) {
    let (flags, text) = match text.strip_prefix("(?i)") {
        Some(rest) => ("(?i)", rest),
        None => ("", text),
    };
    // A path begins with a slash.
    let text = text.replace("\\/", "/").replace("(^|/)", "/").replace("(?:^|/)", "/");
    let of_folder = FolderExpression { flags, mapped };
    for part in alternatives(&text) {
        match of_folder.areas(part) {
            Some(areas) => found.clear.extend(areas),
            None => found.unclear = Some(UNCLEAR),
        }
    }
}

/// What an expression matches in one folder.
struct FolderExpression<'m> {
    flags: &'static str,
    mapped: &'m MappedFolder,
}

impl FolderExpression<'_> {
    /// The areas of an alternative; nothing if that is not clear.
    fn areas(&self, part: &str) -> Option<Vec<PathArea>> {
        let (flags, folder) = (self.flags, &self.mapped.folder);
        let names: Vec<&str> = folder.split('/').collect();
        let Ok(whole) = Regex::new(&format!("{flags}{part}")) else {
            // Look-around is found to have no counterpart by the rule.
            return part.contains("(?").then(|| vec![self.anywhere(part)]);
        };
        if !whole.is_match(&format!("{folder}/")) {
            return self.inner(part, &names);
        }
        let prefix = &self.mapped.prefix;
        if whole.is_match(&format!("{folder}{ANY_PATH}")) {
            return Some(vec![PathArea::Below(prefix.clone())]);
        }
        // It may match files of the folder, too.
        let itself = PathArea::Regex(format!("^{}/?$", regex::escape(prefix)));
        Some([vec![itself], self.inner(part, &names)?].concat())
    }

    /// The areas of an alternative that does not match all of the folder.
    fn inner(&self, part: &str, names: &[&str]) -> Option<Vec<PathArea>> {
        let (flags, folder) = (self.flags, &self.mapped.folder);
        let Some(rest) = part.strip_prefix('^') else { return self.unanchored(part, names) };
        if without_starts(rest) != rest {
            return None;
        }
        let literal = rest.strip_prefix(folder.as_str());
        match literal.or_else(|| rest.strip_prefix(&regex::escape(folder))) {
            Some(rest) if flags.is_empty() => Some(vec![self.below(rest)]),
            _ => self.walk(&parts(rest, '/'), names, ""),
        }
    }

    /// The areas of an expression that may begin anywhere in the path of the folder or after it.
    fn unanchored(&self, part: &str, names: &[&str]) -> Option<Vec<PathArea>> {
        if without_starts(part) != part {
            return None;
        }
        let mut found = vec![self.anywhere(part)];
        let part = part.trim_start_matches(".*");
        let segments = parts(part, '/');
        for (at, _) in names.iter().enumerate() {
            // After the last name, it begins where the path of the URL does.
            if at + 1 < names.len() || !part.starts_with('/') {
                found.extend(self.walk(&segments, &names[at..], ".*")?);
            }
        }
        Some(found)
    }

    /// The areas of what is left of an expression after the names of the folder. `before` is what
    /// precedes the expression in the first of them.
    fn walk(&self, segments: &[&str], names: &[&str], before: &str) -> Option<Vec<PathArea>> {
        for (at, segment) in segments.iter().enumerate() {
            let Some(name) = names.get(at) else {
                return Some(vec![self.below(&format!("/{}", segments[at..].join("/")))]);
            };
            if let Some(rest) = segment.strip_prefix(".*").or(segment.strip_prefix(".+")) {
                let rest = [&[rest], &segments[at + 1..]].concat().join("/");
                return self.unanchored(&rest, &names[at..]);
            }
            if may_have_slash(segment) {
                return None;
            }
            // The whole expression does not match within the folder.
            if at + 1 == segments.len() {
                return Some(Vec::new());
            }
            let before = if at == 0 { before } else { "" };
            let one = Regex::new(&format!("{}^{before}(?:{segment})$", self.flags)).ok()?;
            if !one.is_match(name) {
                return Some(Vec::new());
            }
        }
        Some(Vec::new())
    }

    fn below(&self, rest: &str) -> PathArea {
        let prefix = regex::escape(&self.mapped.prefix);
        PathArea::Regex(format!("{}^{prefix}{rest}", self.flags))
    }

    /// Folders are compared with a slash at their end, and so `$` after a name is the end of a
    /// folder.
    fn anywhere(&self, part: &str) -> PathArea {
        let name = part.strip_suffix('$').filter(|name| !name.ends_with(['/', '*']));
        let part = name.unwrap_or(part);
        PathArea::Regex(format!("{}{part}", self.flags))
    }
}

/// Whether a part may match a slash: a group or a class that has one, a repeated `.`, a class of
/// all but some letters.
fn may_have_slash(segment: &str) -> bool {
    let repeated = [".*", ".+", ".?", ".{", "\\D", "\\W", "\\S", "\\N", "\\P"];
    let without = segment.replace("[^/]", "x").replace("\\.", "x");
    without.contains('/')
        || without.contains("[^")
        || without.starts_with(['*', '+', '?', '{'])
        || repeated.iter().any(|text| without.contains(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> FolderAreas {
        let mapped = MappedFolder { prefix: String::new(), folder: "/srv/www/site.1".to_owned() };
        let mut found = FolderAreas::default();
        add_areas(text, &mapped, &mut found);
        found
    }

    fn clear(text: &str) -> Vec<PathArea> {
        let found = of(text);
        assert_eq!(found.unclear, None, "{text}");
        found.clear
    }

    #[test]
    fn names_of_the_folder_are_taken_off_an_expression() {
        let private = "/private/a";
        for (text, path) in [
            ("^/srv/www/site.1/private", private),
            (r"^/srv/www/site\.1/private", private),
            (r"^\/srv\/www\/[^/]+\/private", private),
            ("^/srv/[a-z]+/site[.][0-9]/private/", private),
            ("^/srv/.*/private", private),
            ("^/srv/.*/private", "/a/private/b"),
            ("^/srv/.*/site.1/private", private),
            ("/srv/www/[^/]*/private", private),
            (r"1/private", private),
            (r"/site\.[0-9]+/private", private),
            ("/private", "/a/private"),
            ("(^|/)private", private),
            ("(?i)^/SRV/[^/]*/site.1/PRIVATE", private),
            ("/vendor/|^/srv/www/site.1/private", private),
            ("/vendor/|^/srv/www/site.1/private", "/vendor/a"),
            ("^/srv/www/site.1", "/a"),
            ("^/srv/www", "/a"),
            ("/www/", "/a"),
            ("^/srv/www/site.1/$", "/"),
            ("^/srv/www/site.1/[^/]*$", "/a"),
            ("^/srv/www/[^/]+/[^/]*$", "/a"),
            ("/site.1/[^/]*$", "/a"),
            ("/site.1/[^/]*$", "/"),
        ] {
            let found = clear(text);
            assert!(found.iter().any(|area| area.has(path)), "{text} {path} {found:?}");
        }
        for (text, path) in [
            ("^/srv/www/[^/]+/private", "/a/private"),
            ("^/srv/www/site.1/$", "/a"),
            ("/site.1/private", "/a"),
            ("/site.1/[^/]*$", "/a/b"),
            ("^/srv/www/[^/]+/[^/]*$", "/a/b"),
            ("/$", "/a"),
        ] {
            let found = clear(text);
            assert!(!found.iter().any(|area| area.has(path)), "{text} {path} {found:?}");
        }
        for text in ["^/srv/other/private", "^/srv/www/site[2-9]/private", "^/home/.*/private"] {
            assert_eq!(clear(text), Vec::new(), "{text}");
        }
        for text in ["^/srv(/www)?/x.1/a", "^/srv/(www/)?site.1/a", "(^/srv|a)/b", "^/srv/[^w]x/a"]
        {
            assert!(of(text).unclear.is_some(), "{text} {:?}", of(text));
        }
    }
}
