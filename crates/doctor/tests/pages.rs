//! The pages that are made of data are up to date, and what they name is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use maitred_doctor::checks::CHECKS;
use maitred_doctor::rules::Verdict;
use maitred_doctor::{manual, rules};

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn compare(path: &str, page: &str) {
    let file = project().join(path);
    if std::env::var_os("MAITRED_WRITE_DOCTOR").is_some() {
        std::fs::write(&file, page).expect("the page can be written");
    }
    let found = std::fs::read_to_string(&file).unwrap_or_default();
    assert!(
        found == page,
        "{path} is not what is made of crates/doctor/data; run \
         MAITRED_WRITE_DOCTOR=1 cargo test -p maitred-doctor pages"
    );
}

#[test]
fn the_pages_are_made_of_the_data() {
    compare("docs/rules.md", &rules::page().expect("the project is whole"));
    compare("docs/guide/doctor.md", &manual::page().expect("the project is whole"));
}

#[test]
fn every_check_is_described_by_its_number() {
    let described: Vec<String> = manual::descriptions()
        .expect("the project is whole")
        .into_iter()
        .map(|one| one.id)
        .collect();
    let checks: Vec<&str> = CHECKS.iter().map(|check| check.id).collect();
    assert_eq!(described, checks);
}

#[test]
fn all_219_rules_are_there_each_with_a_place_or_a_reason() {
    let rules = rules::rules().expect("the project is whole");
    for (at, rule) in rules.iter().enumerate() {
        assert_eq!(rule.id, format!("R{}", at + 1));
        let is_said = match rule.is {
            Verdict::Implemented => !rule.places.is_empty(),
            Verdict::Corrected => !rule.places.is_empty() && !rule.why.is_empty(),
            Verdict::NotApplicable | Verdict::NotYet => !rule.why.is_empty(),
        };
        assert!(is_said, "{rule:?}");
    }
    assert_eq!(rules.len(), 219);
}

/// Names of settings, as the reference has them.
fn settings() -> BTreeSet<String> {
    let reference = project().join("docs/reference/configuration.md");
    let reference = std::fs::read_to_string(reference).expect("the project is whole");
    let names = reference.lines().filter_map(|line| line.strip_prefix("### "));
    names.map(|name| name.trim_matches('`').to_owned()).collect()
}

/// Names of commands, as the command line has them.
fn commands() -> BTreeSet<String> {
    let source = std::fs::read_to_string(project().join("crates/maitred/src/main.rs"))
        .expect("the project is whole");
    let names = source.lines().filter_map(|line| line.trim().strip_prefix("Command::"));
    names.filter_map(|rest| Some(rest.split_once('(')?.0.to_lowercase())).collect()
}

#[test]
fn every_place_that_a_rule_names_is_there() {
    let (settings, commands) = (settings(), commands());
    let mut missing = Vec::new();
    for rule in rules::rules().expect("the project is whole") {
        for place in &rule.places {
            let is_there = match place.split_once(' ') {
                Some(("check", id)) => CHECKS.iter().any(|check| check.id == id),
                Some(("setting", name)) => settings.contains(name),
                Some(("command", name)) => commands.contains(name),
                Some(("file", path)) => project().join(path).is_file(),
                _ => false,
            };
            if !is_there {
                missing.push(format!("{}: {place}", rule.id));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// What a check says it is about is a rule that names the check, or one of the articles' errors.
#[test]
fn every_rule_that_is_about_a_check_names_one_that_knows_it() {
    let source = project().join("crates/doctor/src/checks");
    let mut text = String::new();
    for entry in std::fs::read_dir(source).expect("the project is whole") {
        text.push_str(
            &std::fs::read_to_string(entry.expect("the project is whole").path())
                .expect("the project is whole"),
        );
    }
    let numbers: BTreeSet<String> =
        rules::rules().expect("the project is whole").into_iter().map(|rule| rule.id).collect();
    let quoted = text.split('"').skip(1).step_by(2);
    let named = quoted.filter(|word| {
        let digits = word.strip_prefix('R');
        digits.is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    });
    for name in named {
        assert!(numbers.contains(name), "{name}");
    }
}
