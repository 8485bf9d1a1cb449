//! The guide's page about the checks, generated from a data file.

use std::fmt::Write as _;

use serde::Deserialize;

use crate::checks::CHECKS;

/// The data.
const DATA: &str = include_str!("../data/checks.toml");

/// The start of the page.
const INTRODUCTION: &str = include_str!("../data/doctor.md");

/// Descriptions of all checks.
#[derive(Debug, Deserialize)]
struct Descriptions {
    check: Vec<Description>,
}

/// The description of a check.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// `D1` to `D20`.
    pub id: String,
    /// The check as one question.
    pub asks: String,
    /// The findings: severity, condition.
    pub says: Vec<(String, String)>,
    /// The facts it needs, and the result without them.
    pub needs: String,
    /// The importance of the check, and its differences from articles.
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

/// The page.
///
/// # Errors
/// As [`descriptions`].
pub fn page() -> Result<String, String> {
    let mut page = INTRODUCTION.to_owned();
    let descriptions = descriptions()?;
    page.push_str("\n| check | |\n| --- | --- |\n");
    for (check, description) in CHECKS.iter().zip(&descriptions) {
        let anchor = check.id.to_lowercase();
        let _ =
            writeln!(page, "| [{} {}](#{anchor}) | {} |", check.id, check.title, description.asks);
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
        let _ = write!(page, "\nNeeds {}\n\n{}\n", description.needs, description.why);
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
