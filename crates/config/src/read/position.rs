//! The position of a setting, for errors found later, when it is applied.

use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistakes::position_of;
use crate::{Position, read};

/// A section of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// Before the first section: the server's settings.
    Server,
    /// `[pools.NAME]`.
    Pool(String),
    /// The `[[sites]]` with this index in [`crate::Config::sites`].
    Site(usize),
}

/// The position of a setting in the file at `path`: its value, or else its section. None if the
/// file has neither, as for command line options, or cannot be read.
pub fn place_of_setting(path: &Path, section: &Section, setting: &str) -> Option<Position> {
    let text = read(path).ok()?;
    let (table, _) = DeTable::parse_recoverable(&text);
    let offset = offset_of(table.get_ref(), section, setting)?;
    Some(position_of(&text, offset))
}

fn offset_of(table: &DeTable<'_>, section: &Section, setting: &str) -> Option<usize> {
    let value = |table: &DeTable<'_>| table.get(setting).map(|value| value.span().start);
    let (written, begins) = match section {
        Section::Server => return value(table),
        Section::Pool(name) => {
            let pools = table.get("pools")?.get_ref().as_table()?;
            let (key, pool) = pools.get_key_value(name.as_str())?;
            (pool, key.span().start)
        }
        Section::Site(number) => {
            let site = table.get("sites")?.get_ref().as_array()?.get(*number)?;
            (site, site.span().start)
        }
    };
    let within = |section: &Spanned<DeValue<'_>>| section.get_ref().as_table().and_then(value);
    Some(within(written).unwrap_or(begins))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "front_user = \"f\"\n[pools.a]\nuser = \"u\"\n[[sites]]\nroot = \"/a\"\n\
                        [[sites]]\nroot = \"/b\"\n";

    fn place(section: Section, setting: &str) -> Option<(usize, usize)> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.toml");
        std::fs::write(&file, TEXT).unwrap();
        let place = place_of_setting(&file, &section, setting);
        place.map(|place| (place.line, place.column))
    }

    #[test]
    fn a_setting_is_found_where_its_value_is_written() {
        assert_eq!(place(Section::Server, "front_user"), Some((1, 14)));
        assert_eq!(place(Section::Pool("a".to_owned()), "user"), Some((3, 8)));
        assert_eq!(place(Section::Site(1), "root"), Some((7, 8)));
    }

    #[test]
    fn one_that_is_not_written_is_found_by_its_section() {
        assert_eq!(place(Section::Pool("a".to_owned()), "group"), Some((2, 8)));
        assert_eq!(place(Section::Site(0), "pool"), Some((4, 1)));
        assert_eq!(place(Section::Server, "error_log"), None);
        assert_eq!(place(Section::Pool("b".to_owned()), "user"), None);
        assert_eq!(place(Section::Site(2), "root"), None);
    }

    #[test]
    fn nothing_is_found_in_a_file_that_is_gone() {
        let gone = Path::new("/nowhere/m.toml");
        assert_eq!(place_of_setting(gone, &Section::Server, "front_user"), None);
    }
}
