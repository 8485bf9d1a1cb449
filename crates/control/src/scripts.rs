//! Lists of scripts that one zygote passes to the next: their full paths, most used first, each
//! followed by a NUL byte. The writer runs the pool's scripts, so the reader trusts nothing in it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Maximum number of scripts in a list: slightly more than the default size of OPcache
/// (`opcache.max_accelerated_files`, rounded up from 10000 to 16229).
pub const SCRIPTS_MAX: usize = 20_000;

/// Longest list, in bytes: room for [`SCRIPTS_MAX`] paths of 200 bytes.
pub const LIST_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Encodes a list of `paths`, truncated to [`LIST_BYTES_MAX`]; returns it with its number of
/// scripts.
pub fn write<'a>(paths: impl IntoIterator<Item = &'a Path>) -> (Vec<u8>, usize) {
    let mut list = Vec::new();
    let mut count = 0;
    for path in paths.into_iter().take(SCRIPTS_MAX) {
        let bytes = path.as_os_str().as_bytes();
        if list.len() + bytes.len() + 1 > LIST_BYTES_MAX {
            break;
        }
        list.extend_from_slice(bytes);
        list.push(0);
        count += 1;
    }
    (list, count)
}

/// Parses a list, up to [`SCRIPTS_MAX`] paths. Skips a truncated last entry and relative paths.
pub fn read(list: &[u8]) -> Vec<PathBuf> {
    list.split_inclusive(|byte| *byte == 0)
        .filter_map(|path| path.strip_suffix(&[0]))
        .filter(|path| path.starts_with(b"/") || path.starts_with(b"phar:///"))
        .take(SCRIPTS_MAX)
        .map(|path| PathBuf::from(OsStr::from_bytes(path)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read_as_it_was_written() {
        let odd: &[u8] = b"/\xff \n.php";
        let paths = ["/a/b.php", "phar:///a.phar/b.php"].map(PathBuf::from);
        let paths = [paths[0].as_path(), &paths[1], Path::new(OsStr::from_bytes(odd))];
        let (list, count) = write(paths);
        assert_eq!(count, 3);
        assert_eq!(read(&list), paths);
    }

    #[test]
    fn a_list_has_its_bounds_in_scripts_and_in_bytes() {
        let short = vec![PathBuf::from("/a"); SCRIPTS_MAX + 1];
        let (list, count) = write(short.iter().map(PathBuf::as_path));
        assert_eq!((count, read(&list).len()), (SCRIPTS_MAX, SCRIPTS_MAX));
        let long = vec![PathBuf::from("/".repeat(4095)); 2000];
        let (list, count) = write(long.iter().map(PathBuf::as_path));
        assert!(list.len() <= LIST_BYTES_MAX);
        assert_eq!(read(&list).len(), count);
        assert_eq!(read(&b"/a\0".repeat(SCRIPTS_MAX + 1)).len(), SCRIPTS_MAX);
    }

    #[test]
    fn what_is_no_full_path_or_was_cut_off_is_left_out() {
        let list = b"relative.php\0http://host/a.php\0\0phar://a\0/whole.php\0/cut";
        assert_eq!(read(list), [PathBuf::from("/whole.php")]);
        assert!(read(b"").is_empty());
    }
}
