//! Two answers to the same request, compared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use super::{Exchange, Outcome};
use crate::Target;
use crate::http::Response;

/// How much of a long value is shown in a report, in characters.
const SHOWN: usize = 300;

/// What distinguishes one answer from another and is no difference in behaviour: the server's port,
/// and a second that has gone by.
#[derive(Debug, Clone)]
pub struct Masks {
    port: String,
}

impl Masks {
    /// The masks for one server.
    pub fn of(server: &dyn Target) -> Self {
        Self { port: server.address().port().to_string() }
    }

    fn apply(&self, text: &str) -> String {
        let port = &self.port;
        let text =
            text.replace(&format!(":{port}"), ":PORT").replace(&format!("\"{port}\""), "\"PORT\"");
        without_countdown(&text)
    }
}

/// PHP makes a cookie's `Max-Age` of its end and the present second, so two servers with requests
/// one after the other may differ by one. The end itself stands beside it and is compared.
fn without_countdown(text: &str) -> String {
    const NAME: &str = "Max-Age=";
    let mut pieces = text.split(NAME);
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let digits = piece.len() - piece.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let (seconds, rest) = piece.split_at(digits);
        // `Max-Age=0` counts nothing down: it deletes.
        let shown = if digits > 1 { "SECONDS" } else { seconds };
        out.push_str(NAME);
        out.push_str(shown);
        out.push_str(rest);
    }
    out
}

/// One place where two answers differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The script's name.
    pub script: String,
    /// Which of its requests, from 1.
    pub request: usize,
    /// Where: `status`, `header.NAME`, `body`, or `body.KEY` if both bodies are JSON objects.
    pub place: String,
    /// What the first server gave.
    pub ours: String,
    /// What the second server gave.
    pub theirs: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { script, request, place, ours, theirs } = self;
        write!(f, "{script} request {request}, {place}:\n    ours   {ours}\n    theirs {theirs}")
    }
}

/// A difference that is known and has a reason; `*` means every script, or every place.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    script: String,
    request: Option<usize>,
    place: String,
    reason: String,
}

/// A header that is not compared, with the reason.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct IgnoredHeader {
    name: String,
    reason: String,
}

/// The differences that are known, from `differences.toml`.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    #[serde(default)]
    ignored_header: Vec<IgnoredHeader>,
    #[serde(default)]
    difference: Vec<Entry>,
}

impl Known {
    /// Reads the file.
    ///
    /// # Panics
    /// When it cannot be read, or an entry has no reason.
    pub fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).expect("differences.toml can be read");
        let known: Self = toml::from_str(&text).unwrap_or_else(|error| panic!("{error}"));
        let mut reasons = known.difference.iter().map(|entry| &entry.reason);
        let headers = known.ignored_header.iter().map(|header| &header.reason);
        assert!(reasons.by_ref().chain(headers).all(|r| !r.trim().is_empty()), "no reason given");
        known
    }

    fn matching(&self, difference: &Difference) -> BTreeSet<usize> {
        let matches = |entry: &Entry| {
            (entry.script == difference.script || entry.script == "*")
                && entry.request.is_none_or(|request| request == difference.request)
                && (entry.place == difference.place || entry.place == "*")
        };
        (0..self.difference.len()).filter(|&at| matches(&self.difference[at])).collect()
    }

    /// Splits differences into those that no entry explains, and the entries that explain none.
    pub fn judge(&self, differences: Vec<Difference>) -> (Vec<Difference>, Vec<String>) {
        let mut used = BTreeSet::new();
        let mut unexplained = Vec::new();
        for difference in differences {
            let matching = self.matching(&difference);
            if matching.is_empty() {
                unexplained.push(difference);
            }
            used.extend(matching);
        }
        let idle = (0..self.difference.len()).filter(|at| !used.contains(at));
        let name = |at: usize| {
            let entry = &self.difference[at];
            format!("{} {} no longer differs: remove the entry", entry.script, entry.place)
        };
        (unexplained, idle.map(name).collect())
    }

    fn is_ignored(&self, exchange: &Exchange, header: &str) -> bool {
        let ignored = self.ignored_header.iter().any(|ignored| ignored.name == header);
        exchange.ignored_headers.iter().any(|ignored| ignored == header)
            || ignored && !exchange.compared_headers.iter().any(|compared| compared == header)
    }
}

type Labelled = BTreeMap<String, String>;

fn label(known: &Known, exchange: &Exchange, outcome: &Outcome, masks: &Masks) -> Labelled {
    let response = match &outcome.response {
        Ok(response) => response,
        Err(error) => return Labelled::from([("status".into(), format!("no answer: {error}"))]),
    };
    let mut places = Labelled::from([("status".into(), response.status.to_string())]);
    for (name, value) in &response.headers {
        let name = name.to_ascii_lowercase();
        if !known.is_ignored(exchange, &name) {
            let values = places.entry(format!("header.{name}")).or_default();
            values.push_str(&masks.apply(value));
            values.push('\n');
        }
    }
    label_body(response, masks, &mut places);
    places
}

fn label_body(response: &Response, masks: &Masks, places: &mut Labelled) {
    let object: Option<BTreeMap<String, Value>> = serde_json::from_slice(&response.body).ok();
    match object {
        Some(object) => {
            for (key, value) in object {
                places.insert(format!("body.{key}"), masks.apply(&value.to_string()));
            }
        }
        None => {
            places.insert("body".into(), masks.apply(&response.text()));
        }
    }
}

fn shown(value: Option<&String>, other: Option<&String>) -> String {
    let Some(value) = value else {
        return "(absent)".into();
    };
    let differs = |other: &String| value.chars().zip(other.chars()).position(|(a, b)| a != b);
    let from = other.and_then(differs).unwrap_or(0).saturating_sub(SHOWN / 3);
    let part: String = value.chars().skip(from).take(SHOWN).collect();
    format!("{part:?} ({} characters, from {from})", value.chars().count())
}

/// Where the answers of two servers to one request differ.
pub fn compare(
    known: &Known,
    (script, request, exchange): (&str, usize, &Exchange),
    (ours, our_masks): (&Outcome, &Masks),
    (theirs, their_masks): (&Outcome, &Masks),
) -> Vec<Difference> {
    let ours = label(known, exchange, ours, our_masks);
    let theirs = label(known, exchange, theirs, their_masks);
    let places: BTreeSet<&String> = ours.keys().chain(theirs.keys()).collect();
    let differing = places.into_iter().filter(|&place| ours.get(place) != theirs.get(place));
    let describe = |place: &String| Difference {
        script: script.into(),
        request,
        place: place.clone(),
        ours: shown(ours.get(place), theirs.get(place)),
        theirs: shown(theirs.get(place), ours.get(place)),
    };
    differing.map(describe).collect()
}

/// What a script says of every server's answer and this one does not hold.
pub fn unmet_expectations(exchange: &Exchange, outcome: &Outcome) -> Vec<String> {
    let mut unmet: Vec<String> =
        outcome.missing_log.iter().map(|text| format!("{text:?} is not in the log")).collect();
    let response = match &outcome.response {
        Ok(response) => response,
        Err(error) => return vec![format!("no answer: {error}")],
    };
    if exchange.status.is_some_and(|status| status != response.status) {
        unmet.push(format!("status {} came: {}", response.status, response.text()));
    }
    let body: String = response.body.iter().map(|&byte| char::from(byte)).collect();
    for text in exchange.expect.iter().filter(|text| !body.contains(text.as_str())) {
        let start: String = body.chars().take(SHOWN).collect();
        unmet.push(format!("{text:?} is not in the body, which starts {start:?}"));
    }
    unmet
}
