//! Evaluates the inspections of a worker.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use maitred_text::humanize::{bytes, plural};
use serde::{Deserialize, Serialize};

/// Longest example, in bytes.
const EXAMPLE_BYTES: usize = 160;

/// The state of a worker between two requests.
#[derive(Debug, Clone, Deserialize)]
pub struct Inspection {
    /// The first of its worker: there is no earlier one to compare with.
    pub first: bool,
    /// Memory in use by PHP's allocator, in bytes.
    pub memory: u64,
    /// Names, their old and their new values.
    pub changes: Vec<(String, Option<String>, Option<String>)>,
}

/// A request, and the inspection after it.
#[derive(Debug, Clone)]
pub struct Visit {
    /// The request target.
    pub target: String,
    /// The response status.
    pub status: u16,
    /// The inspection after it.
    pub look: Inspection,
}

/// State that requests change.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Its name, such as `static Cart::$items`.
    pub what: String,
    /// It grows with each request that changes it.
    pub grows: bool,
    /// Number of requests that changed it.
    pub requests: usize,
    /// One of the changes.
    pub example: String,
    /// The request target after which that change was seen.
    pub after: String,
}

/// All that was found.
#[derive(Debug, PartialEq, Serialize)]
pub struct Findings {
    /// Inspected requests, without the first round, which warms the application up.
    pub requests: usize,
    /// The changes, the most frequent first.
    pub changes: Vec<Finding>,
    /// State that the first round set and no later request changed.
    pub settled: usize,
    /// Bytes by which memory grows with each request.
    pub growth: u64,
    /// Requests after which the worker exited.
    pub ended: Vec<String>,
    /// Requests with an error response.
    pub failed: Vec<(String, u16)>,
}

impl Findings {
    /// Evaluates steps, the first `warm_up` of which are the first round.
    pub fn of(steps: &[Visit], warm_up: usize) -> Findings {
        let (first, rest) = steps.split_at(warm_up.min(steps.len()));
        let mut changes: BTreeMap<&str, Finding> = BTreeMap::new();
        let mut gains: BTreeMap<&str, i64> = BTreeMap::new();
        for step in rest {
            let mut seen: BTreeMap<&str, i64> = BTreeMap::new();
            for (name, old, new) in &step.look.changes {
                let root = root_of(name);
                let finding = changes.entry(root).or_insert_with(|| Finding {
                    what: printable(root),
                    grows: false,
                    requests: 0,
                    example: example(name, old.as_deref(), new.as_deref()),
                    after: step.target.clone(),
                });
                if !seen.contains_key(root) {
                    finding.requests += 1;
                }
                *seen.entry(root).or_default() +=
                    i64::from(old.is_none()) - i64::from(new.is_none());
            }
            for (root, gain) in seen {
                *gains.entry(root).or_default() += gain;
            }
        }
        for (root, finding) in &mut changes {
            let gain = gains.get(root).copied().unwrap_or(0);
            finding.grows = finding.requests > 1 && gain >= finding.requests as i64;
        }
        let settled = first.iter().flat_map(|step| &step.look.changes);
        let settled: std::collections::BTreeSet<&str> =
            settled.map(|(name, _, _)| root_of(name)).collect();
        let settled = settled.iter().filter(|root| !changes.contains_key(*root));
        let settled = settled.count();
        let mut changes: Vec<Finding> = changes.into_values().collect();
        changes.sort_by_key(|change| Reverse((change.grows, change.requests)));
        let ended = steps.iter().filter(|step| step.look.first);
        let failed = steps.iter().filter(|step| step.status >= 500);
        Findings {
            requests: rest.len(),
            changes,
            settled,
            growth: growth(rest),
            ended: unique(ended.map(|step| step.target.clone())),
            failed: unique(failed.map(|step| (step.target.clone(), step.status))),
        }
    }

    /// Whether no state leaks to the next request.
    pub fn is_clean(&self) -> bool {
        self.changes.is_empty()
            && self.ended.is_empty()
            && self.failed.is_empty()
            && self.growth == 0
    }

    /// The report as text.
    pub fn text(&self) -> String {
        let mut lines = Vec::new();
        for one in &self.changes {
            let how = if one.grows { "grows" } else { "changes" };
            lines.push(format!(
                "{} {how} ({} of {} requests), such as {} after {}",
                one.what, one.requests, self.requests, one.example, one.after
            ));
        }
        for target in &self.ended {
            lines.push(format!("{target} ends its worker: exit, or a fatal error"));
        }
        for (target, status) in &self.failed {
            lines.push(format!("{target} got a {status} response"));
        }
        if self.growth > 0 {
            lines.push(format!("memory grows by {} with each request", bytes(self.growth as f64)));
        }
        if lines.is_empty() {
            lines.push(format!("no leak was seen in {}", plural(self.requests as u64, "request")));
        }
        if self.settled > 0 {
            let values = match self.settled {
                1 => "1 value was".to_owned(),
                several => format!("{several} values were"),
            };
            lines.push(format!("{values} set by the first requests and never changed again"));
        }
        lines.join("\n")
    }
}

/// The variable that a value belongs to: `global $a` of `global $a->items[3]`.
fn root_of(name: &str) -> &str {
    let ends = [name.find("->"), name.find('[')];
    let end = ends.into_iter().flatten().min().unwrap_or(name.len());
    &name[..end]
}

fn example(name: &str, old: Option<&str>, new: Option<&str>) -> String {
    let word = |text: Option<&str>| text.unwrap_or("nothing").to_owned();
    let mut text = printable(&format!("{name}: {} → {}", word(old), word(new)));
    if text.len() > EXAMPLE_BYTES {
        let end = (0..=EXAMPLE_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push('…');
    }
    text
}

/// Text of others made safe for a terminal: without control characters.
pub fn printable(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), "\u{fffd}")
}

/// Memory growth per step, if it grows with most of them: a cache that sometimes fills is no leak.
fn growth(steps: &[Visit]) -> u64 {
    let pairs = || steps.windows(2).filter(|pair| !pair[1].look.first);
    let grown = pairs().filter(|pair| pair[1].look.memory > pair[0].look.memory);
    if grown.count() * 2 <= pairs().count() {
        return 0;
    }
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return 0;
    };
    last.look.memory.saturating_sub(first.look.memory) / (steps.len() as u64 - 1).max(1)
}

fn unique<T: PartialEq>(all: impl Iterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(target: &str, memory: u64, changes: &[(&str, Option<&str>, Option<&str>)]) -> Visit {
        let owned = |text: &Option<&str>| text.map(str::to_owned);
        let changes = changes.iter();
        Visit {
            target: target.to_owned(),
            status: 200,
            look: Inspection {
                first: false,
                memory,
                changes: changes
                    .map(|(name, old, new)| ((*name).to_owned(), owned(old), owned(new)))
                    .collect(),
            },
        }
    }

    #[test]
    fn what_is_set_once_is_no_leak_and_what_is_set_again_is() {
        let steps = [
            step(
                "/a",
                100,
                &[("static A::$once", None, Some("1")), ("global $n", None, Some("1"))],
            ),
            step("/a", 150, &[("global $n", Some("1"), Some("2"))]),
            step("/a", 200, &[("global $n", Some("2"), Some("3"))]),
        ];
        let found = Findings::of(&steps, 1);
        assert_eq!((found.requests, found.settled, found.changes.len()), (2, 1, 1));
        let change = &found.changes[0];
        assert_eq!((change.what.as_str(), change.requests, change.grows), ("global $n", 2, false));
        assert_eq!(change.example, "global $n: 1 → 2");
        assert_eq!(found.growth, 50);
        assert!(!found.is_clean());
    }

    #[test]
    fn nothing_of_the_applications_acts_on_a_terminal() {
        let name = "global $a\u{1b}]0;x\u{7}";
        let value = Some("\u{9b}2J\nforged");
        let steps = [step("/", 1, &[]), step("/", 1, &[(name, None, value)])];
        let found = Findings::of(&steps, 1);
        assert_eq!(found.changes[0].what, "global $a\u{fffd}]0;x\u{fffd}");
        assert!(!found.text().contains(char::is_control), "{}", found.text());
    }

    #[test]
    fn what_has_more_with_each_request_grows() {
        let more = |number: usize| format!("static Kept::$seen[{number}]");
        let names = [more(1), more(2), more(3)];
        let steps: Vec<Visit> = names
            .iter()
            .map(|name| step("/b", 100, &[(name, None, Some("string of 1"))]))
            .collect();
        let found = Findings::of(&steps, 1);
        assert_eq!(found.changes.len(), 1);
        assert!(found.changes[0].grows && found.growth == 0);
        assert!(found.text().starts_with("static Kept::$seen grows (2 of 2 requests)"));
    }

    #[test]
    fn memory_that_grows_alone_is_a_leak() {
        let steps = [step("/", 100, &[]), step("/", 200, &[]), step("/", 300, &[])];
        let found = Findings::of(&steps, 1);
        assert!(found.changes.is_empty() && !found.is_clean());
        assert_eq!(found.text(), "memory grows by 100 B with each request");
    }

    #[test]
    fn a_clean_application_is_told_so() {
        let steps = [step("/", 100, &[]), step("/", 100, &[])];
        let found = Findings::of(&steps, 1);
        assert!(found.is_clean());
        assert_eq!(found.text(), "no leak was seen in 1 request");
    }
}
