//! The page of the guide that describes the checks, made of a data file.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::checks::CHECKS;

/// The data, as it lies in the source.
const DATA: &str = include_str!("../data/checks.toml");

/// What the page begins with.
const INTRODUCTION: &str = include_str!("../data/doctor.md");

/// Descriptions of all checks.
#[derive(Debug, Deserialize)]
struct Descriptions {
    check: Vec<Description>,
}

/// What there is to say of a check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// `D1` to `D20`.
    pub id: String,
    /// What is asked, as one question.
    pub asks: String,
    /// When it says what: severity, condition.
    pub says: Vec<(String, String)>,
    /// What it needs to know, and what is said where that lacks.
    pub needs: String,
    /// Why it matters, and how it differs from what articles say.
    pub why: String,
}

/// All descriptions, in the order of the checks.
///
/// # Errors
/// What is wrong with the data, as one sentence.
pub fn descriptions() -> Result<Vec<Description>, String> {
    let read: Result<Descriptions, _> = toml::from_str(DATA);
    read.map(|read| read.check).map_err(|why| why.to_string())
}

/// The page about them.
///
/// # Errors
/// As [`descriptions`].
pub fn page() -> Result<String, String> {
    let mut page = INTRODUCTION.to_owned();
    let descriptions = descriptions()?;
    page.push_str("\n| check | |\n| --- | --- |\n");
    for (check, description) in CHECKS.iter().zip(&descriptions) {
        let anchor = check.id.to_lowercase();
        let _ = writeln!(
            page,
            "| [{} {}](#{anchor}) | {} |",
            check.id, check.title, description.asks
        );
    }
    for (check, description) in CHECKS.iter().zip(&descriptions) {
        let _ = write!(
            page,
            "\n## {}\n\n**{}.** {}\n\n",
            check.id,
            capital(check.title),
            description.asks
        );
        for (severity, condition) in &description.says {
            let _ = writeln!(page, "- {severity}: {condition}");
        }
        let _ = write!(
            page,
            "\nNeeds {}\n\n{}\n",
            description.needs, description.why
        );
    }
    Ok(page)
}

fn capital(title: &str) -> String {
    let mut letters = title.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => String::new(),
    }
}
