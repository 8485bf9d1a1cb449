//! The file that nginx sends or runs for a path: by `root` and `alias`, and by `SCRIPT_FILENAME`.

use super::location::Matcher;
use super::php_locations::OF_PATH;
use super::scope::Scope;

/// The directives that name a folder.
const FOLDERS: [&str; 2] = ["root", "alias"];

/// The file with the name of a path. `None` if that is unknown, or if the path only begins as the
/// prefix of the folder does (`/docs-old` and `location /docs`).
pub(super) fn file(scope: &Scope<'_>, path: &str) -> Option<String> {
    let block = scope.block_with(&FOLDERS)?;
    let root = || Some(folder(scope)? + path);
    if block.name != "location" {
        return root();
    }
    let alias = block.block.iter().find(|one| one.name == "alias");
    match (Matcher::of(block), alias) {
        (Matcher::Prefix { text, .. }, _) if !is_below(path, &text) => None,
        (Matcher::Prefix { text, .. }, Some(alias)) if !alias.first().contains('$') => {
            // nginx puts no slash between them: `location /a/ { alias /b; }` has no file.
            let name = path.strip_prefix(text.as_str())?;
            Some(format!("{}{name}", alias.first()).replace("//", "/"))
        }
        (Matcher::Prefix { .. } | Matcher::Regex(_), None) => root(),
        // What one path leads to is no folder, nor is what groups of an expression stand for.
        _ => None,
    }
}

/// Whether a path is one below a prefix, whether that ends in a slash or not.
fn is_below(path: &str, prefix: &str) -> bool {
    let below = path.strip_prefix(prefix.trim_end_matches('/'));
    below.is_some_and(|below| below.starts_with('/'))
}

/// The script of a path. It is relative where `SCRIPT_FILENAME` begins with a fixed folder, since
/// the pool may have a root of its own (`chroot`).
pub(super) fn script(scope: &Scope<'_>, path: &str) -> Option<String> {
    let parameters = scope.group(&["fastcgi_param"]);
    let named = parameters.iter().rfind(|one| one.first() == "SCRIPT_FILENAME");
    let Some(named) = named else { return file(scope, path) };
    let value = named.argument(1).replace("${", "$").replace('}', "");
    if value == "$request_filename" {
        return file(scope, path);
    }
    let of_root = ["$document_root", "$realpath_root"];
    let of_root = of_root.iter().find_map(|root| value.strip_prefix(root));
    let at = value.find('$').unwrap_or(value.len());
    let (folder, name) = match of_root {
        Some(name) => (folder(scope)?, name),
        None => (value[..at].trim_matches('/').to_owned(), &value[at..]),
    };
    match name {
        // The document root of a pool with a root of its own.
        name if OF_PATH.contains(&name) && folder.is_empty() => {
            Some(path.trim_start_matches('/').to_owned())
        }
        name if OF_PATH.contains(&name) => Some(folder + path),
        name if !name.contains('$') => Some(folder + name),
        _ => None,
    }
}

/// The folder of a scope, if it is fixed.
fn folder(scope: &Scope<'_>) -> Option<String> {
    let folder = scope.group(&FOLDERS).pop()?.first();
    (!folder.contains('$')).then(|| folder.trim_end_matches('/').to_owned())
}
