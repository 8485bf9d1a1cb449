//! Locations that lead all of their paths to a named one with PHP, as ISPConfig writes them.

use crate::FileReader;
use crate::report::ImportReport;
use crate::source_directive::Directive;

/// Gives locations with nothing but such a `try_files` the block of the named one.
pub(super) fn replace(tree: &mut [Directive], files: &dyn FileReader, report: &mut ImportReport) {
    let http = tree.iter_mut().filter(|one| one.name == "http");
    let servers = http.flat_map(|http| &mut http.block).filter(|one| one.name == "server");
    for server in servers {
        let mut roots = server.block.iter().filter(|one| one.name == "root");
        let Some(root) = roots.next_back().map(|one| one.first().to_owned()) else { continue };
        let named: Vec<Directive> =
            server.block.iter().filter(|one| is_named_script(one)).cloned().collect();
        let is_missing = |file: &String| {
            let is_fixed = file.starts_with('/') && !file.contains('$');
            is_fixed && files.resolved(&format!("{}{file}", root.trim_end_matches('/'))).is_none()
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

/// Whether a location has a name, and runs scripts.
fn is_named_script(location: &Directive) -> bool {
    let runs = |one: &Directive| one.name == "fastcgi_pass";
    location.name == "location"
        && location.first().starts_with('@')
        && location.block.iter().any(runs)
}
