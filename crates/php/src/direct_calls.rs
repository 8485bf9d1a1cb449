//! libphp's calls of its own functions, without the detour through its procedure linkage table.
//!
//! A shared library calls its exported functions through the PLT, and reads the addresses of its
//! exported variables from the global offset table, since a program may define them itself. libphp
//! does so about 30,000 times, php-fpm's program never: it is linked as one. Once relocation is
//! done, the table is read-only, and where it names a function of libphp's own, the call can name
//! it as well: `call stub` becomes `call function`, and `mov table entry, register` becomes
//! `lea variable, register`. Both instructions keep their length. All distances are within the
//! library, so one copy of the code fits every process, wherever libphp is loaded: an anonymous
//! file, which all pools map in place of libphp's code.
//!
//! Format of that file: the code; then, from the next page on, [`Trailer`]: the library's identity,
//! and the table entries that are left out, with their values. A process uses the file only if its
//! own table has the same values.

#[cfg(target_arch = "x86_64")]
mod x86_64;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::raw::text::{Library, join_pages};

const PAGE_BYTES: usize = 4096;

/// First bytes of the trailer; the digit is the version of the format.
const MAGIC: [u8; 8] = *b"MTRPLT01";

/// Most bytes of a trailer: 60,000 table entries, where libphp has 2,200.
const TRAILER_BYTES_MAX: u64 = 1 << 20;

/// Values of the table entries that a copy of the code leaves out, by their addresses. All are
/// relative to the library's base.
type Entries = BTreeMap<u64, u64>;

/// A replacement of bytes of the code.
#[derive(Debug, PartialEq, Eq)]
struct Patch {
    /// Offset in the code.
    at: usize,
    bytes: Vec<u8>,
}

/// Why the calls stay as they are. It costs a few per cent of a script's time, and nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotUsed {
    /// The file is of another libphp: it was replaced since, or is of another version.
    OtherLibrary,
    /// A function or variable of libphp's is defined elsewhere in this process, as by a library in
    /// `LD_PRELOAD`.
    Interposed,
    /// The system does not map the file as code.
    NotMapped,
}

impl fmt::Display for NotUsed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::OtherLibrary => "libphp has been replaced since the server's last reload",
            Self::Interposed => "another library replaces functions of libphp",
            Self::NotMapped => "the system does not allow to map an anonymous file as code",
        })
    }
}

impl std::error::Error for NotUsed {}

/// Writes a copy of libphp's code with direct calls to an empty anonymous file. Leaves it empty for
/// a processor or a library that this is not made for.
///
/// # Errors
/// Those of the file.
pub fn write_direct_calls(file: &File) -> io::Result<()> {
    let Some(library) = Library::loaded() else {
        return Ok(());
    };
    let mut code = library.code().to_vec();
    let (patches, entries) = find_patches(&library);
    if patches.is_empty() {
        return Ok(());
    }
    for Patch { at, bytes } in patches {
        code[at..at + bytes.len()].copy_from_slice(&bytes);
    }
    let length = code.len();
    file.write_all_at(&code, 0)?;
    join_pages(file, length);
    file.write_all_at(&trailer(&library, &entries), trailer_offset(length))
}

/// Has this process run libphp with the direct calls of `file`, which [`write_direct_calls`] has
/// written in a trusted process, and which is sealed against changes.
///
/// # Errors
/// If the file does not fit this process: everything is as before then.
pub fn use_direct_calls(file: &File) -> Result<(), NotUsed> {
    let library = Library::loaded().ok_or(NotUsed::OtherLibrary)?;
    let entries = read_entries(file, &library).ok_or(NotUsed::OtherLibrary)?;
    if entries.iter().any(|(entry, value)| library.constant_at(*entry) != Some(*value)) {
        return Err(NotUsed::Interposed);
    }
    #[allow(unsafe_code, reason = "what makes it safe is known here")]
    // SAFETY: the file was made from a library with the same build id, so of the same code, and
    // differs in instructions that use the value of a table entry instead of reading it. Each of
    // these entries has that value in this process, and keeps it: it is in a segment that is
    // read-only since relocation. The file cannot change: it is sealed.
    let is_replaced = unsafe { library.replace_code(file) };
    if is_replaced { Ok(()) } else { Err(NotUsed::NotMapped) }
}

#[cfg(target_arch = "x86_64")]
fn find_patches(library: &Library) -> (Vec<Patch>, Entries) {
    let end = library.end();
    let code = x86_64::Code { bytes: library.code(), start: library.code_start(), end };
    code.patches(|entry| library.constant_at(entry))
}

#[cfg(not(target_arch = "x86_64"))]
fn find_patches(_: &Library) -> (Vec<Patch>, Entries) {
    (Vec::new(), Entries::new())
}

fn trailer_offset(code_bytes: usize) -> u64 {
    code_bytes.next_multiple_of(PAGE_BYTES) as u64
}

/// The library's identity in the trailer.
fn identity(library: &Library) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    let numbers = [library.code_start(), library.code().len() as u64, library.end()];
    numbers.iter().for_each(|number| bytes.extend(number.to_ne_bytes()));
    bytes.extend((library.build_id().len() as u64).to_ne_bytes());
    bytes.extend(library.build_id());
    bytes
}

fn trailer(library: &Library, entries: &Entries) -> Vec<u8> {
    let mut bytes = identity(library);
    for (entry, value) in entries {
        bytes.extend(entry.to_ne_bytes());
        bytes.extend(value.to_ne_bytes());
    }
    bytes
}

/// The table entries of a trailer; `None` if it is not that of this library.
fn read_entries(file: &File, library: &Library) -> Option<Entries> {
    let offset = trailer_offset(library.code().len());
    let bytes = file.metadata().ok()?.len().checked_sub(offset)?;
    if bytes > TRAILER_BYTES_MAX {
        return None;
    }
    let mut trailer = vec![0; usize::try_from(bytes).ok()?];
    file.read_exact_at(&mut trailer, offset).ok()?;
    let rest = trailer.strip_prefix(identity(library).as_slice())?;
    let numbers = rest.chunks_exact(8).map(|number| number.try_into().map(u64::from_ne_bytes));
    let numbers: Vec<u64> = numbers.collect::<Result<_, _>>().ok()?;
    Some(numbers.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect())
}

#[cfg(test)]
#[cfg(target_arch = "x86_64")]
mod tests {
    use std::sync::OnceLock;

    use super::*;

    /// The copy of this process, made before any test uses it.
    static COPY: OnceLock<Vec<u8>> = OnceLock::new();

    /// The code with direct calls, and the offset and length of its trailer.
    fn copy() -> (File, u64, u64) {
        let bytes = COPY.get_or_init(|| {
            let file = tempfile::tempfile().unwrap();
            write_direct_calls(&file).unwrap();
            let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().len()).unwrap()];
            file.read_exact_at(&mut bytes, 0).unwrap();
            bytes
        });
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(bytes, 0).unwrap();
        let offset = trailer_offset(Library::loaded().unwrap().code().len());
        let length = file.metadata().unwrap().len() - offset;
        (file, offset, length)
    }

    fn change_byte(file: &File, offset: u64) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, offset).unwrap();
        file.write_all_at(&[!byte[0]], offset).unwrap();
    }

    fn maps() -> String {
        std::fs::read_to_string("/proc/self/maps").unwrap()
    }

    #[test]
    fn a_copy_of_libphp_calls_its_functions_directly_and_takes_the_place_of_its_code() {
        let (file, ..) = copy();
        let library = Library::loaded().unwrap();
        let original = library.code().to_vec();
        use_direct_calls(&file).unwrap();
        let changed = library.code().iter().zip(&original).filter(|(new, old)| new != old).count();
        assert!((20_000..200_000).contains(&changed), "{changed} bytes of {}", original.len());
        let is_code = |line: &str| line.contains("r-xp") && line.contains("(deleted)");
        assert!(maps().lines().any(is_code), "{}", maps());
        // A copy of the copy has nothing left to change.
        let again = tempfile::tempfile().unwrap();
        write_direct_calls(&again).unwrap();
        assert_eq!(again.metadata().unwrap().len(), 0);
        assert!(crate::version::PhpVersion::loaded().is_some());
    }

    #[test]
    fn a_copy_of_another_library_is_not_used() {
        let (file, trailer, length) = copy();
        for offset in [0, 8, 16, 24, 32, 40] {
            change_byte(&file, trailer + offset);
            assert_eq!(use_direct_calls(&file), Err(NotUsed::OtherLibrary), "{offset}");
            change_byte(&file, trailer + offset);
        }
        file.set_len(trailer + 4).unwrap();
        assert_eq!(use_direct_calls(&file), Err(NotUsed::OtherLibrary));
        file.set_len(trailer + length + TRAILER_BYTES_MAX).unwrap();
        assert_eq!(use_direct_calls(&file), Err(NotUsed::OtherLibrary));
    }

    #[test]
    fn a_function_that_is_defined_elsewhere_in_this_process_is_not_called_directly() {
        let (file, trailer, length) = copy();
        change_byte(&file, trailer + length - 8);
        assert_eq!(use_direct_calls(&file), Err(NotUsed::Interposed));
    }
}
