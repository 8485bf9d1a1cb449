//! The position of a setting, for errors found later, when it is applied.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::mistakes::Fault;
use crate::read::directives::POOL_DEFAULTS;
use crate::sources::Sources;
use crate::{Mistake, include, read};

/// A section of the configuration file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Section {
    /// Before the first section: the server's settings.
    Server,
    /// `[tls]`.
    Tls,
    /// `[pools.NAME]`.
    Pool(String),
    /// The `[[sites]]` with this index in [`crate::Config::sites`].
    Site(usize),
}

/// What is wrong with a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingMistake<'s> {
    /// Its section.
    pub section: Section,
    /// Its name.
    pub setting: &'s str,
    /// What is wrong, as one sentence.
    pub sentence: String,
}

/// Mistakes at settings of the configuration whose first file is `path`, each in the file with the
/// setting: at its value, or else at its section. It has no position if no file has either, as for
/// command line options, or if a file cannot be read. The files are read once for all of them.
pub fn mistakes_at(path: &Path, found: Vec<SettingMistake<'_>>) -> Vec<Mistake> {
    let unplaced = |sentence| Mistake { file: path.to_path_buf(), place: None, sentence };
    let text = if found.is_empty() { None } else { read(path).ok() };
    let Some(text) = text else {
        return found.into_iter().map(|one| unplaced(one.sentence)).collect();
    };
    let (sources, faults) = include::gather(path, text);
    let merged = include::merged(&sources, faults).ok();
    let placed = found.into_iter().map(|SettingMistake { section, setting, sentence }| {
        let offset = merged.as_ref().and_then(|merged| {
            let is_file = section == Section::Tls && setting == "certificates";
            let file = is_file.then(|| offset_of_file(&merged.table, &sources, &sentence));
            file.flatten().or_else(|| offset_of(&merged.table, &section, setting))
        });
        match offset {
            Some(offset) => sources.locate(Fault::new(offset..offset, sentence)),
            None => unplaced(sentence),
        }
    });
    placed.collect()
}

/// The same for one mistake.
fn mistake_at(path: &Path, found: SettingMistake<'_>) -> Mistake {
    let unplaced = Mistake { file: path.to_path_buf(), place: None, sentence: String::new() };
    mistakes_at(path, vec![found]).pop().unwrap_or(unplaced)
}

/// The file of the configuration at `path` in which the pool of this name is defined, or else the
/// first one.
pub fn file_of_pool(path: &Path, name: &str) -> PathBuf {
    let (section, sentence) = (Section::Pool(name.to_owned()), String::new());
    mistake_at(path, SettingMistake { section, setting: "", sentence }).file
}

fn offset_of(table: &DeTable<'_>, section: &Section, setting: &str) -> Option<usize> {
    let value = |table: &DeTable<'_>| table.get(setting).map(|value| value.span().start);
    let within = |section: &Spanned<DeValue<'_>>| section.get_ref().as_table().and_then(value);
    let (written, begins) = match section {
        Section::Server => return value(table),
        Section::Tls => {
            let (key, tls) = table.get_key_value("tls")?;
            (tls, key.span().start)
        }
        Section::Pool(name) => {
            let pools = table.get("pools").and_then(|pools| pools.get_ref().as_table());
            let own = pools.and_then(|pools| pools.get_key_value(name.as_str()));
            let own_value = own.and_then(|(_, pool)| within(pool));
            let inherited = || table.get(POOL_DEFAULTS).and_then(within);
            return own_value.or_else(inherited).or(own.map(|(key, _)| key.span().start));
        }
        Section::Site(number) => {
            let site = table.get("sites")?.get_ref().as_array()?.get(*number)?;
            (site, site.span().start)
        }
    };
    Some(within(written).unwrap_or(begins))
}

/// The position of the file in `certificates` that the sentence names, since that setting has many.
fn offset_of_file(table: &DeTable<'_>, sources: &Sources, sentence: &str) -> Option<usize> {
    let tls = table.get("tls")?.get_ref().as_table()?;
    let all = tls.get("certificates")?;
    let items = all.get_ref().as_array().map_or(std::slice::from_ref(all), |items| items.as_ref());
    let tables = items.iter().filter_map(|item| item.get_ref().as_table());
    let mut files = tables.flat_map(|table| table.iter().map(|(_, file)| file));
    let file = files.find(|file| {
        let folder = &sources.at(file.span().start).folder;
        let path = file.get_ref().as_str().map(|file| folder.join(file).display().to_string());
        path.is_some_and(|path| sentence.contains(&path))
    });
    file.map(|file| file.span().start)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "include = \"a.toml\"\nfront_user = \"f\"\n[pool_defaults]\ngroup = \"g\"\n\
                        [pools.a]\nuser = \"u\"\n[[sites]]\nroot = \"/a\"\n[[sites]]\nroot = \
                        \"/b\"\n";
    const INCLUDED: &str = "[pools.c]\nuser = \"u\"\n[[sites]]\nroot = \"/c\"\n";

    /// The position, as `FILE:LINE:COLUMN`.
    fn place(section: Section, setting: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.toml");
        std::fs::write(&file, TEXT).unwrap();
        std::fs::write(folder.path().join("a.toml"), INCLUDED).unwrap();
        let found = SettingMistake { section, setting, sentence: "x".to_owned() };
        let mistake = mistake_at(&file, found).to_string();
        let place = mistake.strip_suffix(": x").unwrap();
        place.replace(&format!("{}/", folder.path().display()), "")
    }

    fn pool(name: &str) -> Section {
        Section::Pool(name.to_owned())
    }

    #[test]
    fn a_setting_is_found_where_its_value_is_written() {
        assert_eq!(place(Section::Server, "front_user"), "m.toml:2:14");
        assert_eq!(place(pool("a"), "user"), "m.toml:6:8");
        assert_eq!(place(Section::Site(1), "root"), "m.toml:10:8");
        assert_eq!(place(pool("c"), "user"), "a.toml:2:8");
        assert_eq!(place(Section::Site(2), "root"), "a.toml:4:8");
        assert_eq!(place(pool("c"), "group"), "m.toml:4:9", "the default of all pools");
        assert_eq!(place(pool("c"), ""), "a.toml:1:8", "its file");
    }

    #[test]
    fn one_that_is_not_written_is_found_by_its_section() {
        assert_eq!(place(pool("a"), "php"), "m.toml:5:8");
        assert_eq!(place(Section::Site(0), "pool"), "m.toml:7:1");
        assert_eq!(place(Section::Site(2), "pool"), "a.toml:3:1");
        assert_eq!(place(Section::Server, "error_log"), "m.toml");
        assert_eq!(place(pool("b"), "user"), "m.toml");
        assert_eq!(place(Section::Site(3), "root"), "m.toml");
    }

    #[test]
    fn a_certificate_is_found_by_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("m.toml");
        let first =
            "include = \"a.toml\"\n[tls]\ncertificates = { cert = \"1.pem\", key = \"1.key\" }\n";
        std::fs::write(&file, first).unwrap();
        let second = "[tls]\ncertificates = [{ cert = \"2.pem\", key = \"2.key\" }]\n";
        std::fs::write(folder.path().join("a.toml"), second).unwrap();
        let place = |name: &str| {
            let sentence = format!("{} is empty", folder.path().join(name).display());
            let (section, setting) = (Section::Tls, "certificates");
            let mistake = mistake_at(&file, SettingMistake { section, setting, sentence });
            let place = mistake.place.unwrap();
            let file = mistake.file.file_name().unwrap().to_str().unwrap().to_owned();
            format!("{file}:{}:{}", place.line, place.column)
        };
        assert_eq!(place("1.key"), "m.toml:3:40");
        assert_eq!(place("2.pem"), "a.toml:2:26");
    }

    #[test]
    fn nothing_is_found_in_a_file_that_is_gone() {
        let gone = Path::new("/nowhere/m.toml");
        let found = |sentence: &str| SettingMistake {
            section: Section::Server,
            setting: "front_user",
            sentence: sentence.to_owned(),
        };
        let mistakes = mistakes_at(gone, vec![found("x"), found("y")]);
        let mistakes: Vec<String> = mistakes.iter().map(ToString::to_string).collect();
        assert_eq!(mistakes, ["/nowhere/m.toml: x", "/nowhere/m.toml: y"]);
        assert!(mistakes_at(gone, Vec::new()).is_empty());
    }
}
