//! Manual pages and shell completions, from the command line's definition and the settings.

use std::fs;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;
use maitred_config::{SettingGroup, setting_groups};
use roff::{Inline, Roff, bold, roman};

use crate::command::{DEFAULT_CONFIG, Maitred};
use crate::exit_code::{EXIT_SUCCESS, fail};

/// Prints the completions of a shell.
pub fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Maitred::command(), "maitred", &mut text);
    match io::Write::write_all(&mut io::stdout(), &text) {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(error) => fail(&format!("the completions cannot be printed: {error}")),
    }
}

/// Writes all manual pages to a folder: `maitred.1`, one for each subcommand, and `maitred.toml.5`.
pub fn manual(folder: &Path) -> ExitCode {
    match write_all(folder) {
        Ok(()) => ExitCode::from(EXIT_SUCCESS),
        Err(error) => fail(&format!("{} cannot be written to: {error}", folder.display())),
    }
}

fn write_all(folder: &Path) -> io::Result<()> {
    let mut root = Maitred::command().disable_help_subcommand(true);
    root.build();
    write_command(folder, &root, "maitred")?;
    for command in root.get_subcommands().filter(|command| !command.is_hide_set()) {
        write_command(folder, command, &format!("maitred-{}", command.get_name()))?;
    }
    fs::write(folder.join("maitred.toml.5"), settings_page())
}

fn write_command(folder: &Path, command: &clap::Command, name: &str) -> io::Result<()> {
    // The page has the name of its file; the synopsis keeps the command's words.
    let words = command.get_bin_name().unwrap_or(name).to_owned();
    let command = command.clone().name(name.to_owned()).bin_name(words);
    let version = env!("CARGO_PKG_VERSION");
    let man = Man::new(command).manual("maitred").source(format!("maitred {version}"));
    let mut page = Vec::new();
    man.render(&mut page)?;
    fs::write(folder.join(format!("{name}.1")), page)
}

/// maitred.toml(5): every setting.
fn settings_page() -> String {
    let mut page = Roff::new();
    let source = format!("maitred {}", env!("CARGO_PKG_VERSION"));
    page.control("TH", ["maitred.toml", "5", "", &source, "maitred"]);
    page.control("SH", ["NAME"]);
    page.text([roman("maitred.toml - configuration of maitred")]);
    page.control("SH", ["DESCRIPTION"]);
    page.text(inlines(&format!(
        "`maitred serve` reads `{DEFAULT_CONFIG}`, or the file in `--config`, in the TOML format. \
         `maitred check` reports every error in it, and `maitred reload` applies changes without a \
         lost request. Durations have a unit (`500ms`, `30s`, `5m`, `1h`, `1d`), sizes one in \
         powers of 1024 (`8k`, `64M`, `1G`). Relative paths start from the directory of the file."
    )));
    for group in setting_groups() {
        settings_group(&mut page, &group);
    }
    page.control("SH", ["FILES"]);
    page.text([bold(DEFAULT_CONFIG)]);
    page.control("SH", ["SEE ALSO"]);
    page.text([bold("maitred"), roman("(1), "), bold("maitred-check"), roman("(1)")]);
    page.render()
}

fn settings_group(page: &mut Roff, group: &SettingGroup) {
    let title = group.title.replace('`', "").to_uppercase();
    page.control("SH", [title.as_str()]);
    page.text(inlines(group.intro));
    for setting in &group.settings {
        page.control("SS", [setting.name]);
        page.text(inlines(setting.doc));
        for (fact, text) in &setting.facts {
            page.control("br", []);
            let mut words = vec![roman(format!("{fact}: "))];
            words.extend(inlines(text));
            page.text(words);
        }
    }
}

/// A paragraph of Markdown: code is bold, links are their text.
fn inlines(text: &str) -> Vec<Inline> {
    let mut words = Vec::new();
    for (index, part) in without_links(text).split('`').enumerate() {
        match (part.is_empty(), index % 2 == 1) {
            (true, _) => {}
            (false, true) => words.push(bold(part)),
            (false, false) => words.push(roman(part)),
        }
    }
    words
}

/// `[text](target)` as `text`.
fn without_links(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, link)) = rest.split_once("](") {
        let Some((start, end)) = before.rfind('[').zip(link.find(')')) else {
            break;
        };
        out.push_str(&before[..start]);
        out.push_str(&before[start + 1..]);
        rest = &link[end + 1..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_bold_and_a_link_is_its_text() {
        let words = inlines("see [The `page` cache](../guide/page-cache.md), or `valid`");
        let expected =
            [roman("see The "), bold("page"), roman(" cache, or "), bold("valid")].to_vec();
        assert_eq!(words, expected);
    }

    #[test]
    fn brackets_without_a_target_stay() {
        assert_eq!(without_links("`[[sites]]` and [a](b)c [d"), "`[[sites]]` and ac [d");
    }

    #[test]
    fn every_command_and_every_setting_has_its_place_in_the_manual() {
        let folder = tempfile::tempdir().unwrap();
        write_all(folder.path()).unwrap();
        let page = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap();
        assert!(page("maitred.1").contains("maitred\\-serve(1)"));
        assert!(page("maitred-serve.1").contains("\\fBmaitred serve\\fR"));
        let settings = page("maitred.toml.5");
        for setting in setting_groups().iter().flat_map(|group| &group.settings) {
            assert!(settings.contains(&format!("SS {}\n", setting.name)), "{}", setting.name);
        }
    }
}
