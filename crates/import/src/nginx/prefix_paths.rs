//! `root` and `alias` below nginx's prefix, which its configuration does not name.

use crate::FileReader;
use crate::report::ImportReport;
use crate::source_directive::Directive;

/// The prefix of the packages of Debian and Fedora.
const OF_PACKAGES: &str = "/usr/share/nginx";

/// Completes the folders of `root` and `alias` that begin with no slash. `folder` is that of the
/// configuration.
pub(super) fn complete(
    directives: &mut [Directive],
    folder: &str,
    files: &dyn FileReader,
    report: &mut ImportReport,
) {
    for directive in directives {
        complete(&mut directive.block, folder, files, report);
        let is_folder = ["root", "alias"].contains(&directive.name.as_str());
        let shown = directive.shown();
        let Some(path) = directive.arguments.first_mut().filter(|_| is_folder) else { continue };
        if path.starts_with(['/', '$']) {
            continue;
        }
        *path = below_prefix(path, folder, files);
        let why = format!("a folder below nginx's prefix, which is taken to be {path}");
        report.changed(&directive.place, &shown, &why);
    }
}

/// A path below the prefix: where it exists, or else below the most likely one.
fn below_prefix(path: &str, folder: &str, files: &dyn FileReader) -> String {
    let prefixes = match folder.strip_suffix("/conf") {
        // As nginx builds it.
        Some(prefix) => [prefix, OF_PACKAGES, folder],
        None if folder == "/etc/nginx" => [OF_PACKAGES, folder, folder],
        None => [folder, OF_PACKAGES, folder],
    };
    let paths = prefixes.map(|prefix| format!("{prefix}/{path}"));
    let found = paths.iter().find(|path| files.resolved(path).is_some());
    found.unwrap_or(&paths[0]).clone()
}
