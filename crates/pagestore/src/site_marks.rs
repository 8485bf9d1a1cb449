//! The sites of which the directory of the disk tier may have pages, in its file `sites`. Purges of
//! the pages of another site are recorded nowhere.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use maitred_os::own_files;

/// The file.
const FILE: &str = "sites";
/// Longest file that is read, in bytes.
const MAX_BYTES: u64 = 16 << 20;

/// The names of sites in keys, each with a fingerprint of the rules by which its pages are stored.
pub type SiteMarks = BTreeMap<String, u64>;

/// The sites in the file of a directory: none if there is no such file or it is not ours.
pub(crate) fn read(dir: &Path) -> SiteMarks {
    let bytes = own_files::read(&dir.join(FILE), MAX_BYTES).ok().flatten();
    let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
    text.lines().filter_map(line).collect()
}

fn line(line: &str) -> Option<(String, u64)> {
    let (mark, site) = line.split_once(' ')?;
    Some((site.to_owned(), u64::from_str_radix(mark, 16).ok()?))
}

/// Replaces the sites in the file of a directory.
///
/// # Errors
/// When it cannot be written: it is removed, and names no sites.
pub(crate) fn write(dir: &Path, sites: &SiteMarks) -> io::Result<()> {
    let text: String = sites.iter().map(|(site, mark)| format!("{mark:016x} {site}\n")).collect();
    let path = dir.join(FILE);
    let written = own_files::replace(&path, text.as_bytes());
    if written.is_err() {
        // What cannot be removed either is of a disk that is not written to at all.
        let _ = std::fs::remove_file(&path);
    }
    written
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sites_are_read_as_they_are_written_and_a_file_that_cannot_be_written_names_none() {
        let dir = tempfile::tempdir().unwrap();
        assert!(read(dir.path()).is_empty());
        let sites: SiteMarks = [("a.example 00ff", u64::MAX), ("* 1", 0)]
            .map(|(site, mark)| (site.into(), mark))
            .into();
        write(dir.path(), &sites).unwrap();
        assert_eq!(read(dir.path()), sites);
        std::fs::create_dir(dir.path().join("sites.new")).unwrap();
        assert!(write(dir.path(), &sites).is_err() && read(dir.path()).is_empty());
        std::fs::write(dir.path().join(FILE), "zz a\n\n12\nff b.example 1\n").unwrap();
        assert_eq!(read(dir.path()), [("b.example 1".to_owned(), 255)].into());
    }
}
