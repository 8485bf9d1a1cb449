//! The 219 rules of the tuning articles, their verdicts, and the page about them.

use std::fmt::Write as _;

use serde::Deserialize;

/// The data.
const DATA: &str = include_str!("../data/rules.toml");

/// The first lines of the page.
const INTRODUCTION: &str = "\
# The rules of the tuning articles

<!-- Made of crates/doctor/data/rules.toml: MAITRED_WRITE_DOCTOR=1 cargo test -p maitred-doctor \
pages -->

Five articles, much read, say how to set php-fpm, nginx and Apache by hand. These are all their \
rules,
formulas, figures and steps, and what has become of each here:

- **implemented**: where;
- **corrected**: it is wrong, or true within limits only, and what is done instead;
- **not applicable**: why;
- **not yet**: what is still to come.

`maitred doctor` names the rules that a finding is about.
";

/// All rules.
#[derive(Debug, Deserialize)]
pub struct Rules {
    /// In their order.
    pub rule: Vec<Rule>,
}

/// A rule.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `R1` to `R219`.
    pub id: String,
    /// Its verdict.
    pub is: Verdict,
    /// The rule.
    pub says: String,
    /// Its implementation: `check D1`, `setting NAME`, `command NAME`, `file PATH`.
    #[serde(default, rename = "where")]
    pub places: Vec<String>,
    /// The reason for the verdict, or a note on the implementation.
    #[serde(default)]
    pub why: String,
}

/// The verdict on a rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// It is implemented.
    Implemented,
    /// Something better is implemented.
    Corrected,
    /// It does not apply here.
    #[serde(rename = "not applicable")]
    NotApplicable,
    /// It is not implemented yet.
    #[serde(rename = "not yet")]
    NotYet,
}

impl Verdict {
    /// As text.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Implemented => "implemented",
            Verdict::Corrected => "corrected",
            Verdict::NotApplicable => "not applicable",
            Verdict::NotYet => "not yet",
        }
    }
}

/// All rules.
///
/// # Errors
/// What is wrong with the data, as one sentence.
pub fn rules() -> Result<Vec<Rule>, String> {
    let rules: Result<Rules, _> = toml::from_str(DATA);
    rules.map(|rules| rules.rule).map_err(|why| why.to_string())
}

/// The page.
///
/// # Errors
/// As [`rules`].
pub fn page() -> Result<String, String> {
    let rules = rules()?;
    let count = |verdict: Verdict| rules.iter().filter(|rule| rule.is == verdict).count();
    let mut page = INTRODUCTION.to_owned();
    let _ = writeln!(
        page,
        "\n{} rules: {} implemented, {} corrected, {} not applicable, {} not yet.\n",
        rules.len(),
        count(Verdict::Implemented),
        count(Verdict::Corrected),
        count(Verdict::NotApplicable),
        count(Verdict::NotYet),
    );
    page.push_str("| rule | says | is | where, why |\n| --- | --- | --- | --- |\n");
    for rule in &rules {
        let places: Vec<String> = rule.places.iter().map(|place| linked(place)).collect();
        let mut last = places.join(", ");
        if !rule.why.is_empty() {
            let separator = if last.is_empty() { "" } else { ": " };
            let _ = write!(last, "{separator}{}", rule.why);
        }
        let (id, says, is) = (&rule.id, rule.says.replace('|', "\\|"), rule.is.name());
        let _ = writeln!(page, "| {id} | {says} | {is} | {} |", last.replace('|', "\\|"));
    }
    Ok(page)
}

fn linked(place: &str) -> String {
    match place.split_once(' ') {
        Some(("check", id)) => format!("[{id}](guide/doctor.md#{})", id.to_lowercase()),
        Some(("setting", name)) => format!("[`{name}`](reference/configuration.md#{name})"),
        Some(("command", name)) => format!("`maitred {name}`"),
        Some(("file", path)) => match path.strip_prefix("docs/") {
            Some(page) => format!("[{page}]({page})"),
            None => format!("[{path}](../{path})"),
        },
        _ => place.to_owned(),
    }
}
