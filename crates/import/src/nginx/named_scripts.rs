//! Locations that lead all of their paths to a named one with PHP, as ISPConfig writes them.

use crate::FileReader;
use crate::report::ImportReport;
use crate::source_directive::Directive;

/// Digits of the name of a file that ISPConfig never creates. One with another name may be created
/// later to close a site.
const UNUSED_NAME_DIGITS: usize = 32;

/// Gives locations with nothing but such a `try_files` the block of the named one.
pub(super) fn replace(tree: &mut [Directive], files: &dyn FileReader, report: &mut ImportReport) {
    let http = tree.iter_mut().filter(|one| one.name == "http");
    let servers = http.flat_map(|http| &mut http.block).filter(|one| one.name == "server");
    for server in servers {
        let mut roots = server.block.iter().filter(|one| one.name == "root");
        let Some(root) = roots.next_back().map(|one| one.first().to_owned()) else { continue };
        // Without its folder, it is not known whether a file is there.
        if root.contains('$') || files.resolved(&root).is_none() {
            continue;
        }
        let named: Vec<Directive> =
            server.block.iter().filter(|one| is_named_script(one)).cloned().collect();
        let is_missing = |file: &String| {
            is_unused(file)
                && files.resolved(&format!("{}{file}", root.trim_end_matches('/'))).is_none()
        };
        for location in server.block.iter_mut().filter(|one| one.name == "location") {
            let [line] = location.block.as_slice() else { continue };
            let Some((last, fixed)) = line.arguments.split_last() else { continue };
            let target = named.iter().find(|one| one.first() == last);
            let leads = line.name == "try_files" && fixed.iter().all(is_missing);
            let Some(target) = target.filter(|_| leads) else { continue };
            let why = format!("none of its files is there, and {last} has all of its paths");
            report.changed(&line.place, &line.shown(), &why);
            location.block = target.block.clone();
        }
    }
}

/// Whether a file has a name as ISPConfig's.
fn is_unused(file: &str) -> bool {
    let Some(("", name)) = file.split_once('/') else { return false };
    let Some((digits, extension)) = name.split_once('.') else { return false };
    digits.len() == UNUSED_NAME_DIGITS
        && digits.bytes().all(|digit| digit.is_ascii_hexdigit())
        && extension.bytes().all(|letter| letter.is_ascii_alphanumeric())
}

/// Whether a location has a name, and does nothing but run scripts: nginx checks the access rules
/// of the location that leads to it as well, and its own would replace them.
fn is_named_script(location: &Directive) -> bool {
    let runs = |one: &Directive| one.name == "fastcgi_pass";
    let is_of_scripts =
        |one: &Directive| one.name == "try_files" || one.name.starts_with("fastcgi_");
    location.name == "location"
        && location.first().starts_with('@')
        && location.block.iter().any(runs)
        && location.block.iter().all(is_of_scripts)
}
